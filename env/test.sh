#!/usr/bin/env bash
# Every check of the project: bash env/test.sh [ARGUMENT OF pytest…]
#
# Makes the environment if need be, then style (ruff), types (mypy), shell scripts (shellcheck, where installed), tests.
# Needs no root; the tests of tests/slurm, and those of a site's MPI and `module` in tests/env, skip, and say so, where
# Slurm, Debian's MPIs or Environment Modules aren't installed or can't be started.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=env/common.sh
. env/common.sh

check() {
    say "$*"
    bash env/with.sh torch "$@"
}

bash env/create.sh
check ruff check --quiet .
check ruff format --check --quiet .
check mypy
if command -v shellcheck >/dev/null; then
    check bash tests/env/lint_shell.sh
else
    say "shellcheck isn't installed, shell scripts are not checked ($APT shellcheck)"
fi
check python -m pytest "$@"
