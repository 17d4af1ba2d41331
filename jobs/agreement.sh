#!/usr/bin/env bash
# Do the backends agree? bash jobs/agreement.sh [FOLDER [NETWORK…]]     (default: results/agreement, all three networks)
#
# The shipped data in every backend, with the same seed and the settings that each network is documented with (one epoch;
# of the first zoo network, whose epoch is five steps, ten). Of each run its losses as NETWORK_BACKEND.csv, and its command,
# machine and versions as NETWORK_BACKEND.json; of each network the comparison of all runs with the agreement of each pair
# as NETWORK.txt and NETWORK.json. A quarter of an hour on two cores; `bash jobs/agreement.sh FOLDER small_network` takes two
# minutes. Both environments have to be there (env/create.sh, env/create.sh classic).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=${1:-results/agreement}
shift || true
networks=("$@")
[ ${#networks[@]} -gt 0 ] || networks=(small_network cnn2d_3layer_fullconnected_3layer cnn2d_2layer_fullconnected_2layer)
declare -A flags=(
    [torch]="--backend torch"
    [torch_in_8_micro_batches]="--backend torch --micro-batches 8"
    [tensorflow]="--backend tensorflow"
    [keras_tensorflow]="--backend keras --keras-backend tensorflow"
    [keras_torch]="--backend keras --keras-backend torch"
    [keras_jax]="--backend keras --keras-backend jax"
    [keras_theano]="--backend keras --keras-backend theano"
    [lasagne]="--backend lasagne"
    [caffe]="--backend caffe"
)
# the second only sums in another order: how far apart rounding alone brings two runs
backends=(torch torch_in_8_micro_batches tensorflow keras_tensorflow keras_torch keras_jax keras_theano lasagne caffe)
settings=(--train data/train.csv --test data/test.csv --seed 1 --threads 1 --no-progress)
declare -A documented=(
    [small_network]="--optimizer sgd --learning-rate 0.05 --global-batch 50 --epochs 1"
    [cnn2d_3layer_fullconnected_3layer]="--optimizer sgd --learning-rate 0.05 --momentum 0.9 --nesterov --decay 1e-6 --global-batch 1000 --validation-fraction 0.2 --epochs 10"
    [cnn2d_2layer_fullconnected_2layer]="--optimizer adam --learning-rate 5e-4 --global-batch 50 --epochs 1"
)

mkdir -p "$out"
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
for network in "${networks[@]}"; do
    place=$network
    [ ! -e "jobs/$network.toml" ] || place=jobs/$network.toml
    read -ra own <<<"${documented[$network]}"
    for backend in "${backends[@]}"; do
        echo "agreement: $network, $backend"
        read -ra choice <<<"${flags[$backend]}"
        bash env/with.sh torch hpcnn train --auto-env --network "$place" "${choice[@]}" "${settings[@]}" "${own[@]}" \
            --out "$runs" --run-id "${network}_$backend" >"$runs/${network}_$backend.log"
        cp "$runs/${network}_$backend/loss.csv" "$out/${network}_$backend.csv"
        cp "$runs/${network}_$backend/run.json" "$out/${network}_$backend.json"
    done
    paths=("${backends[@]/#/$runs/${network}_}")
    bash env/with.sh torch hpcnn compare "${paths[@]}" --json "$out/$network.json" >"$out/$network.txt"
    # where the runs lay is this machine's matter
    sed -i "s|$runs/||g; s|$runs|results|g; s|$HOME/|~/|g; s|$PWD/||g" "$out/$network"*.json "$out/$network.txt"
    sed -n '/^agreement/,$p' "$out/$network.txt"
done
