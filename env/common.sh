# shellcheck shell=bash
# shellcheck disable=SC2034  # what is set here is used by the scripts that source this
# What the scripts of env/ share: words to the user, the choice of a Python, and the name of an environment.
#
# An environment lies in $HPCNN_ENV_ROOT/envs/RECIPE-KEY (default ~/.cache/hpcnn/envs). The key is a hash of what is in
# it: the pins, the Python, the MPI. So a changed pin is another environment, a changed comment isn't, and two clones of
# one version share theirs: hpcnn itself isn't installed there, env/with.sh puts the clone on the path instead.
#
# Variables: see  bash env/create.sh --help

unset PYTHONHOME PYTHONPATH # a module system's may belong to another Python, which then wouldn't even start
ENV_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CLONE=$(dirname "$ENV_DIR")
APT="Debian, Ubuntu: sudo apt-get install"
APT_MPI="gcc libopenmpi-dev openmpi-bin" # or libmpich-dev mpich
RECIPES="modern, modern-cuda, classic" # each with its env/constraints-RECIPE.txt
LAYOUT=1                     # part of every key: raise it when env/create.sh makes something else of the same pins
BUILD_CAFFE=$ENV_DIR/build_caffe.sh BUILD_HOROVOD=$ENV_DIR/build_horovod.sh
CONSTRAINTS='' # the list of pins at hand, once it is known

say() { printf 'env: %s\n' "$*"; }

die() { # STATUS MESSAGE: one line, then out
    local status=$1
    shift
    printf 'env: %s\n' "$*" >&2
    exit "$status"
}

# backend -> recipe; a backend without a line here is unknown to env/with.sh
recipe_of() {
    case $1 in
        torch | tensorflow | keras)
            [ "${HPCNN_RECIPE:-}" != classic ] || die 2 "HPCNN_RECIPE=classic has no $1: unset it; recipes: $RECIPES"
            echo "${HPCNN_RECIPE:-modern}"
            ;;
        lasagne | theano | keras-theano | caffe) echo classic ;;
        *) die 2 "unknown backend '$1'; known: torch, tensorflow, keras, lasagne, keras-theano, caffe" ;;
    esac
}

# One probe of an interpreter: prints "3.11 PREFIX" when it will do, else one of: absent, old VERSION, bare VERSION.
# Old Pythons run it too, so it keeps to what all of them understand.
probe_python() {
    local path answer
    path=$(command -v "$1" 2>/dev/null) || { echo absent; return; }
    answer=$("$path" -c '
import sys
version = "%d.%d" % sys.version_info[:2]
if sys.version_info < (3, 11):
    print("old " + version)
else:
    try:
        import ensurepip, venv
        print(version + " " + sys.base_prefix)
    except ImportError:
        print("bare " + version)
' 2>/dev/null) || answer=absent
    echo "$answer"
}

# Sets PYTHON_PATH, PYTHON_VERSION and PYTHON_PREFIX, or ends with the one line that says what is missing.
find_python() {
    local candidate found problem='' only='' candidates=(python3.11 python3.12 python3)
    [ -z "$CONSTRAINTS" ] || ! pin_of theano >/dev/null || only=3.11
    [ -z "${PYTHON:-}" ] || candidates=("$PYTHON")
    for candidate in "${candidates[@]}"; do
        found=$(probe_python "$candidate")
        case $found in
            absent) continue ;;
            old*) problem=${problem:-"$candidate is Python ${found#old }, hpcnn needs 3.11 or newer"} ;;
            bare*) problem="$candidate (Python ${found#bare }) has no ensurepip, so it can't make an environment" ;;
            *)
                [ -z "$only" ] || [ "${found%% *}" = "$only" ] || {
                    problem=${problem:-"$candidate is Python ${found%% *}, and Theano runs on $only alone"}
                    continue
                }
                PYTHON_PATH=$(command -v "$candidate") PYTHON_VERSION=${found%% *} PYTHON_PREFIX=${found#* }
                return
                ;;
        esac
    done
    die 1 "${problem:-no Python runs under the name ${candidates[*]}}: install Python ${only:-3.11 or newer} with venv" \
        "($APT python3 python3-venv), or set PYTHON=PATH"
}

# Tells MPIs apart: the one from PyPI, or the site's own by what its mpirun says of itself.
mpi_identity() {
    local mpirun
    [ "$MPI_KIND" = site ] || { echo pypi; return; }
    mpirun=$(command -v mpirun) ||
        die 1 "--mpi site, but there is no mpirun: load the site's MPI (module load …) or install one ($APT $APT_MPI)"
    echo "site $mpirun $(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$mpirun" --version 2>&1)"
}

# WORD… -> a key of these, of standard input and of the Python
key_of() {
    { printf '%s\n' "$PYTHON_VERSION $PYTHON_PREFIX $(uname -m)" "$@"; cat; } | sha256sum | cut -c1-12
}

# a list of pins -> its lines without comments
pins_of() { awk '{ sub(/(^|[ \t]+)#.*/, "") } NF' "$1"; }

# NAME -> its pin, NAME==VERSION, from the list at hand; fails where it has none
pin_of() { pins_of "$CONSTRAINTS" | grep -m1 -ioE "^$1==[^ ]+"; }

# Sees that what is compiled for Python finds its headers.
check_python_headers() { # WHO COMPILES
    local include
    include=$("$PYTHON_PATH" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    [ -r "$include/Python.h" ] || die 1 "$1, but there is no $include/Python.h: install Python's headers ($APT python3-dev)"
}

# RECIPE -> sets CONSTRAINTS (its list of pins) and MPI_KIND (pypi or site)
locate_pins() {
    MPI_KIND=${HPCNN_MPI:-pypi}
    case $MPI_KIND in
        pypi | site) ;;
        *) die 2 "MPI '$MPI_KIND' is unknown (--mpi, HPCNN_MPI); known: pypi (the default), site" ;;
    esac
    CONSTRAINTS=${HPCNN_CONSTRAINTS:-$ENV_DIR/constraints-$1.txt}
    [ -r "$CONSTRAINTS" ] || die 2 "no list of pins $CONSTRAINTS; recipes: $RECIPES"
}

# RECIPE -> sets ROOT (where all is kept), MPI (its identity) and ENVIRONMENT (its folder) besides
locate_environment() {
    [ -n "${HPCNN_ENV_ROOT:-}${HOME:-}" ] ||
        die 1 "neither HPCNN_ENV_ROOT nor HOME is set: set one to say where environments go"
    ROOT=${HPCNN_ENV_ROOT:-$HOME/.cache/hpcnn}
    locate_pins "$1"
    find_python
    MPI=$(mpi_identity) || exit
    # the ways that Caffe and Horovod are compiled are as good as pins
    ENVIRONMENT=$ROOT/envs/$1-$({
        pins_of "$CONSTRAINTS"
        ! pin_of brocolli-caffe >/dev/null || pins_of "$BUILD_CAFFE"
        ! pin_of horovod >/dev/null || pins_of "$BUILD_HOROVOD"
    } | key_of "$LAYOUT" "$MPI")
}

# The mark is written last and the interpreter must still start: a half-built environment never counts, nor one whose
# Python has been removed since.
is_complete() { [ -e "$ENVIRONMENT/complete" ] && "$ENVIRONMENT/bin/python" -c '' 2>/dev/null; }
