# shellcheck shell=bash
# shellcheck disable=SC2034  # what is set here is used by the scripts that source this
# What the scripts of env/ share: words to the user, the choice of a Python, and the name of an environment.
#
# An environment lies in $HPCNN_ENV_ROOT/envs/RECIPE-KEY (default ~/.cache/hpcnn/envs). The key is a hash of all that went
# into it, so a changed pin, another Python or another MPI is another environment, and two clones of one version share
# theirs: hpcnn itself isn't installed there, env/with.sh puts the clone on the path instead.
#
# Variables: PYTHON (interpreter to build with), HPCNN_ENV_ROOT, HPCNN_MPI=site (mpi4py against the loaded MPI),
# HPCNN_CONSTRAINTS (another list of pins than env/constraints-RECIPE.txt).

unset PYTHONHOME PYTHONPATH # a module system's may belong to another Python, which then wouldn't even start
ENV_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CLONE=$(dirname "$ENV_DIR")
APT="Debian, Ubuntu: sudo apt-get install"
PYTHON_HINT="install Python 3.11 or newer with venv ($APT python3 python3-venv), or set PYTHON=PATH"

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
        torch) echo modern ;;
        *) die 2 "unknown backend '$1'; known: torch" ;;
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
    local candidate found problem='' candidates=(python3.11 python3.12 python3)
    [ -z "${PYTHON:-}" ] || candidates=("$PYTHON")
    for candidate in "${candidates[@]}"; do
        found=$(probe_python "$candidate")
        case $found in
            absent) continue ;;
            old*) problem=${problem:-"$candidate is Python ${found#old }, hpcnn needs 3.11 or newer"} ;;
            bare*) problem="$candidate (Python ${found#bare }) has no ensurepip, so it can't make an environment" ;;
            *)
                PYTHON_PATH=$(command -v "$candidate") PYTHON_VERSION=${found%% *} PYTHON_PREFIX=${found#* }
                return
                ;;
        esac
    done
    die 1 "${problem:-no Python runs under the name ${candidates[*]}}: $PYTHON_HINT"
}

# Which MPI an environment is for: the one from PyPI, or the site's own, told apart by what its mpirun says of itself.
mpi_identity() {
    case ${HPCNN_MPI:-wheel} in
        wheel) echo wheel ;;
        site)
            command -v mpirun >/dev/null ||
                die 1 "HPCNN_MPI=site, but there is no mpirun: load the site's MPI first (module load …)"
            echo "site $(command -v mpirun) $(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --version 2>&1)"
            ;;
        *) die 2 "HPCNN_MPI=$HPCNN_MPI is unknown; known: wheel (the default), site" ;;
    esac
}

# RECIPE -> sets ENVIRONMENT (its folder) and CONSTRAINTS (its pins)
locate_environment() {
    local recipe=$1 root mpi key
    [ -n "${HPCNN_ENV_ROOT:-}${HOME:-}" ] || die 1 "neither HPCNN_ENV_ROOT nor HOME is set: set one to say where environments go"
    root=${HPCNN_ENV_ROOT:-$HOME/.cache/hpcnn}
    CONSTRAINTS=${HPCNN_CONSTRAINTS:-$ENV_DIR/constraints-$recipe.txt}
    [ -r "$CONSTRAINTS" ] || die 2 "no list of pins $CONSTRAINTS; recipes: modern"
    find_python
    mpi=$(mpi_identity) || exit
    key=$({
        cat "$CONSTRAINTS" "$ENV_DIR/create.sh"
        echo "$PYTHON_VERSION $PYTHON_PREFIX $(uname -m) $mpi"
    } | sha256sum | cut -c1-12)
    ENVIRONMENT=$root/envs/$recipe-$key
}

# The mark is written last and the interpreter must still start: a half-built environment never counts, nor one whose
# Python has been removed since.
is_complete() { [ -e "$ENVIRONMENT/complete" ] && "$ENVIRONMENT/bin/python" -c '' 2>/dev/null; }
