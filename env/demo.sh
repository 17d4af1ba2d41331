#!/usr/bin/env bash
# The first run, from nothing: bash env/demo.sh [FLAG of hpcnn train…]
#
# Makes the environment if need be, trains one network on data/train.csv with four MPI ranks, then the same in one
# process, and compares the two. Needs no root. Each time its results go to a new folder, results/demo-N.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=env/common.sh
. env/common.sh

RANKS=4
SETTINGS=(
    --network cnn2d_3layer_fullconnected_3layer --backend torch
    --train data/train.csv --test data/test.csv
    --optimizer adam --learning-rate 1e-3 --global-batch 50 --epochs 3 --seed 1
    "$@"
)
# four ranks on however few cores this machine has: none is bound to a core, and one that waits lets another run
MPIRUN=(mpirun -np "$RANKS" --oversubscribe --bind-to none --mca mpi_yield_when_idle 1)

new_folder() {
    local n=1
    mkdir -p results
    until mkdir "results/demo-$n" 2>/dev/null; do
        [ -e "results/demo-$n" ] || die 1 "can't make results/demo-$n: may you write there?"
        n=$((n + 1))
    done
    echo "results/demo-$n"
}

step() { # TITLE COMMAND…: in the environment, the command shown as a person would type it
    printf '\n== %s\n$ ' "$1"
    shift
    printf '%s ' "$@"
    printf '\n'
    bash env/with.sh torch "$@"
}

HPCNN_HOROVOD=${HPCNN_HOROVOD:-no} bash env/create.sh # Horovod would take minutes to compile, and isn't used here
out=$(new_folder)
trap 'rmdir "$out" 2>/dev/null || true' EXIT # of a run that was refused, nothing is left
cores=$(nproc)
threads=$((cores < RANKS ? cores : RANKS)) # the same cores for both runs
say "settings: ${SETTINGS[*]}"
say "$RANKS ranks of 1 thread, then 1 process of $threads, on $cores cores; results go to $out"

step "$RANKS ranks, data-parallel" "${MPIRUN[@]}" \
    hpcnn train --strategy data --threads 1 "${SETTINGS[@]}" --out "$out" --run-id "ranks-$RANKS"
step "one process, the baseline" \
    hpcnn train --strategy single --threads "$threads" "${SETTINGS[@]}" --out "$out" --run-id one-process
status=0
step "are they the same?" hpcnn compare "$out/one-process" "$out/ranks-$RANKS" || status=$?

echo
say "done in $SECONDS s; results: $out (loss.csv, timing.csv, predictions.csv and more for each run)"
exit "$status"
