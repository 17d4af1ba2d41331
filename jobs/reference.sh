#!/usr/bin/env bash
# The reference results of this repository: bash jobs/reference.sh [FOLDER]     (default: results/reference)
#
# Four ranks against one process with their verdict and a picture, as the README shows them, and the accuracy of ten
# epochs with three seeds. About ten minutes on two cores. FOLDER must not hold results yet.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=${1:-results/reference}
if [ -e "$out/four-ranks" ]; then
    echo "reference: $out holds results already: move them away, or give another folder" >&2
    exit 1
fi
hpcnn=(bash env/with.sh torch)
ranks=(mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1)
settings=(--train data/train.csv --test data/test.csv --optimizer adam --learning-rate 1e-3 --global-batch 50
    --validation-fraction 0.1 --out "$out")

"${hpcnn[@]}" "${ranks[@]}" -np 4 hpcnn train "${settings[@]}" --threads 1 --epochs 3 --trace --run-id four-ranks
"${hpcnn[@]}" hpcnn train "${settings[@]}" --strategy single --threads 2 --epochs 3 --run-id one-process
"${hpcnn[@]}" hpcnn compare "$out/one-process" "$out/four-ranks" --json "$out/verdict.json" >"$out/verdict.txt"
"${hpcnn[@]}" python -m hpcnn.studies.plots "$out/one-process" "$out/four-ranks" --out "$out/first_run.png"

for seed in 1 2 3; do
    "${hpcnn[@]}" "${ranks[@]}" -np 2 hpcnn train "${settings[@]}" --validation-fraction 0 --threads 1 --epochs 10 \
        --seed "$seed" --run-id "accuracy-seed-$seed"
done
# checkpoints are large and made again by these commands; traces too
rm -f "$out"/*/checkpoint.h5 "$out"/*/trace.json
# where the environment lies is this machine's matter
sed -i "s|$HOME/|~/|g" "$out"/*/run.json "$out"/verdict.json "$out"/verdict.txt
