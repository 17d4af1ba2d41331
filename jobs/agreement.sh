#!/usr/bin/env bash
# Do the backends agree? bash jobs/agreement.sh [FOLDER [NETWORK…]]     (default: results/agreement, all three networks)
#
# One epoch on the shipped data with the same seed in every backend; of each run its losses as NETWORK_BACKEND.csv, of
# each network the comparison of all runs with the agreement of each pair as NETWORK.txt and NETWORK.json. Six minutes
# on two cores; `bash jobs/agreement.sh FOLDER small_network` takes one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=${1:-results/agreement}
shift || true
networks=("$@")
[ ${#networks[@]} -gt 0 ] || networks=(small_network cnn2d_3layer_fullconnected_3layer cnn2d_2layer_fullconnected_2layer)
declare -A flags=(
    [torch]="--backend torch"
    [tensorflow]="--backend tensorflow"
    [keras_tensorflow]="--backend keras --keras-backend tensorflow"
    [keras_torch]="--backend keras --keras-backend torch"
    [keras_jax]="--backend keras --keras-backend jax"
)
backends=(torch tensorflow keras_tensorflow keras_torch keras_jax)
settings=(--train data/train.csv --test data/test.csv --epochs 1 --global-batch 50 --seed 1 --threads 1 --no-progress
    --optimizer sgd --learning-rate 0.05)

mkdir -p "$out"
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
for network in "${networks[@]}"; do
    place=$network
    [ ! -e "jobs/$network.toml" ] || place=jobs/$network.toml
    for backend in "${backends[@]}"; do
        echo "agreement: $network, $backend"
        read -ra choice <<<"${flags[$backend]}"
        bash env/with.sh "${choice[1]}" hpcnn train --network "$place" "${choice[@]}" "${settings[@]}" \
            --out "$runs" --run-id "${network}_$backend" >"$runs/${network}_$backend.log"
        cp "$runs/${network}_$backend/loss.csv" "$out/${network}_$backend.csv"
    done
    paths=("${backends[@]/#/$runs/${network}_}")
    bash env/with.sh torch hpcnn compare "${paths[@]}" --json "$out/$network.json" >"$out/$network.txt"
    # where the runs lay is this machine's matter
    sed -i "s|$runs/||g" "$out/$network.json" "$out/$network.txt"
    sed -n '/^agreement/,$p' "$out/$network.txt"
done
