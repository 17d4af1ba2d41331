#!/usr/bin/env bash
# Lints every shell script of the clone, job scripts included; tests/env and env/test.sh both call it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
shopt -s nullglob globstar
files=(.ci/run env/*.sh env/bin/* jobs/**/*.slurm jobs/**/*.sh tests/**/*.sh tests/slurm/cluster-*)
shellcheck --external-sources "${files[@]}"
