#!/usr/bin/env bash
# What .ci/run leaves out, in full: bash tests/full.sh [PART…]
#
# .ci/run takes torch through every matrix of tests, and the other backends through a covering set of each. Here those
# run all of it (pytest --full -m matrix), and besides train, fail, go on and report as .ci/run has torch do, by being
# hpcnn's default backend (env/with.sh). Keras runs over each of its frameworks. Other parts are site-horovod, Horovod
# compiled for the MPIs of the site, and studies, every injected fault and every right run that compare is to tell
# apart. What pytest says in the end of each part is kept as results/full/PART.txt. Both environments have to be there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

BY_DEFAULT=(tests/mpi/test_training.py tests/mpi/test_faults.py tests/parallel tests/training/test_run.py
    tests/training/test_resume.py)
MATRICES=(--full -m matrix tests/wrappers tests/parity tests/parallel tests/mpi)

in_environment() { # BACKEND ARGUMENT OF pytest…
    local word=$1
    shift
    case $word in
        keras-torch | keras-jax) HPCNN_TEST_KERAS_BACKEND=${word#keras-} bash env/with.sh keras python -m pytest -q "$@" ;;
        *) bash env/with.sh "$word" python -m pytest -q "$@" ;;
    esac
}

tests_of() { # BACKEND
    local failed=0
    in_environment "$1" "${MATRICES[@]}" -k "${1%%-*}" || failed=$?
    case $1 in
        keras-*) ;; # differs from keras below the contract alone
        *) in_environment "$1" "${BY_DEFAULT[@]}" || failed=$? ;;
    esac
    return "$failed"
}

run_part() { # PART
    case $1 in
        site-horovod) in_environment torch --full tests/env/test_site_horovod.py ;;
        studies) in_environment torch --full -m full tests/studies ;;
        *) tests_of "$1" ;;
    esac
}

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(site-horovod studies tensorflow keras keras-torch keras-jax lasagne keras-theano caffe)
mkdir -p results/full
failed=0
for part in "${parts[@]}"; do
    echo "full: $part"
    log=$(mktemp)
    run_part "$part" >"$log" 2>&1 || failed=$?
    {
        echo "$part, commit $(git rev-parse --short=12 HEAD), $(date --utc +%F), $(nproc) cores"
        grep -aE '^(FAILED|ERROR|SKIPPED)|(passed|failed).* in ' "$log" | sed "s|$PWD/||g"
    } >"results/full/$part.txt"
    cat "results/full/$part.txt"
    rm "$log"
done
exit "$failed"
