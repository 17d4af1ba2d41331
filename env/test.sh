#!/usr/bin/env bash
# Every check of the project: bash env/test.sh [ARGUMENT OF pytest…]
#
# Makes both environments if need be, then style (ruff), types (mypy), shell scripts (shellcheck, where installed), tests;
# those of the classic environment's backends, and of what uses no framework, in that one too, unless the arguments choose
# among the tests. All tests at once are shared out among as many processes as there are cores and one more, since a test
# waits a quarter of its time, 4 at most (HPCNN_TEST_PROCESSES=N: among N; 1: none).
# Needs no root; the tests of tests/slurm, and those of a site's MPI and `module` in tests/env, skip, and say so, where
# Slurm, Debian's MPIs or Environment Modules aren't installed or can't be started; and those of the classic environment
# where it can't be made (HPCNN_REQUIRE_CLASSIC=1: fail); and those of Horovod where it can't be compiled
# (HPCNN_REQUIRE_HOROVOD=1: fail). What pytest says is "left to tests/full.sh" that script runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=env/common.sh
. env/common.sh
unset PYTHONDONTWRITEBYTECODE # the tests start Python some thousand times, which would compile hpcnn each time

CLASSIC_TESTS=(tests/network tests/data tests/records tests/parallel tests/training tests/studies tests/wrappers
    tests/parity/test_step0.py tests/parity/test_plain_caffe.py tests/parity/test_plain_theano.py
    tests/mpi/test_other_backends.py tests/mpi/test_pipeline.py tests/mpi/test_native.py tests/mpi/test_two_threads.py
    tests/mpi/test_reducers.py
    tests/jobs/test_plain_script.py tests/jobs/test_theano_operations.py)

check() {
    say "$*"
    bash env/with.sh torch "$@"
}

all_tests() { # ARGUMENT OF pytest…: whether they choose among the tests
    case " $*" in
        *tests/* | *" -k"* | *" -m"*) return 1 ;;
    esac
}

tests_of_classic() { # ARGUMENT OF pytest…
    say "in the classic environment: pytest ${CLASSIC_TESTS[*]} $*"
    bash env/with.sh caffe python -m pytest "${CLASSIC_TESTS[@]}" "$@"
}

[ "${HPCNN_REQUIRE_HOROVOD:-}" != 1 ] || export HPCNN_HOROVOD=yes
bash env/create.sh
classic=yes
bash env/create.sh classic || classic=''
[ -n "$classic" ] || [ "${HPCNN_REQUIRE_CLASSIC:-}" != 1 ] || die 1 "HPCNN_REQUIRE_CLASSIC=1, but there is no classic environment"
check ruff check --quiet .
check ruff format --check --quiet .
check mypy
if command -v shellcheck >/dev/null; then
    check bash tests/env/lint_shell.sh
else
    say "shellcheck isn't installed, shell scripts are not checked ($APT shellcheck)"
fi
failed=0 # both run, whichever fails
if all_tests "$@"; then
    cores=$(nproc)
    processes=${HPCNN_TEST_PROCESSES:-$((cores < 4 ? cores + 1 : 4))}
    [ "$processes" -lt 2 ] || set -- --numprocesses "$processes" --max-worker-restart 0 "$@"
    [ -z "$classic" ] || tests_of_classic "$@" || failed=$?
fi
check python -m pytest "$@" || failed=$?
exit "$failed"
