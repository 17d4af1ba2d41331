#!/usr/bin/env bash
# What .ci/run leaves out, in full: bash tests/full.sh [BACKEND…]
#
# .ci/run takes torch through every matrix of tests, and the other backends through a covering set of each. Here those
# run all of it (pytest --full -m matrix), and besides train, fail, go on and report as .ci/run has torch do, by being
# hpcnn's default backend (env/with.sh). Keras runs over each of its frameworks. What pytest says in the end of each
# backend is kept as results/full/BACKEND.txt. Without BACKEND it begins with Horovod, compiled for the MPIs of the
# site, and with every injected fault and every right run that compare is to tell apart. Both environments have to be
# there.
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

backends=("$@")
[ ${#backends[@]} -gt 0 ] || backends=(tensorflow keras keras-torch keras-jax lasagne keras-theano caffe)
mkdir -p results/full
failed=0
[ $# -gt 0 ] || bash env/with.sh torch python -m pytest -q --full tests/env/test_site_horovod.py || failed=$?
[ $# -gt 0 ] || bash env/with.sh torch python -m pytest -q --full -m full tests/studies || failed=$?
for backend in "${backends[@]}"; do
    echo "full: $backend"
    log=$(mktemp)
    tests_of "$backend" >"$log" 2>&1 || failed=$?
    {
        echo "backend $backend, commit $(git rev-parse --short=12 HEAD), $(date --utc +%F), $(nproc) cores"
        grep -aE '^(FAILED|ERROR|SKIPPED)|(passed|failed).* in ' "$log" | sed "s|$PWD/||g"
    } >"results/full/$backend.txt"
    cat "results/full/$backend.txt"
    rm "$log"
done
exit "$failed"
