#!/usr/bin/env bash
# Run a command in the environment that serves a backend: bash env/with.sh BACKEND COMMAND [ARGUMENT…]
#
# PATH gets the environment's programs and this clone's hpcnn, PYTHONPATH this clone, so the environment knows no clone
# and several can share it. Makes nothing: env/create.sh does.
set -euo pipefail
# shellcheck source=env/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

[ $# -ge 2 ] || die 2 "usage: bash env/with.sh BACKEND COMMAND [ARGUMENT…]"
recipe=$(recipe_of "$1")
export HPCNN_BACKEND=${1/#theano/keras-theano}
shift
locate_environment "$recipe"
is_complete || die 1 "the environment '$recipe' isn't made yet ($ENVIRONMENT): run  bash env/create.sh $recipe"

# Open MPI looks for a home, which a job or a container may not have set
[ -n "${HOME:-}" ] || { unset HOME; export HOME=~; }
export VIRTUAL_ENV=$ENVIRONMENT PATH=$ENV_DIR/bin:$ENVIRONMENT/bin:$PATH PYTHONPATH=$CLONE
if [ "$(id -u)" = 0 ]; then # Open MPI refuses to start as root unless told twice
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
case $1 in
    mpirun | mpiexec) # over several nodes it would wait for ever for places that the srun around it holds
        if [[ ${SLURM_STEP_NUM_TASKS:-1} =~ ^[0-9]+$ ]] && [ "${SLURM_STEP_NUM_TASKS:-1}" -gt 1 ]; then
            [ "${SLURM_PROCID:-0}" = 0 ] || exit 1 # said once
            die 1 "$1 inside an srun of $SLURM_STEP_NUM_TASKS tasks would start everything $SLURM_STEP_NUM_TASKS times: use one launcher, mpirun without srun, or  srun --mpi=pmix … bash env/with.sh $HPCNN_BACKEND hpcnn …"
        fi
        ;;
esac
command -v "$1" >/dev/null || die 127 "no command '$1' in the environment or on PATH"
exec "$@"
