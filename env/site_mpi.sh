# shellcheck shell=bash
# shellcheck disable=SC2154  # ENVIRONMENT, ROOT, MPI, LOG and SOURCE are set by env/create.sh and env/common.sh
# mpi4py for the MPI of a site: is that MPI whole, and compile it, once for each Python and MPI.

MPI4PY_BUILD_PINS=$ENV_DIR/mpi4py-build.txt

mpi_family() { # what an MPI says of itself -> its family; MPICH's relatives share its launcher
    if grep -qiE 'open.?mpi|openrte|prrte' <<<"$1"; then echo "Open MPI"; else echo "MPICH"; fi
}

# Sets MPI_WORDS, what the library says of itself, or ends: mpicc must link a program that runs, mpirun be of the same
# family (Debian's alternatives choose the two apart), and the Python have its headers.
check_site_mpi() {
    local mpicc scratch linked
    mpicc=$(command -v mpicc) ||
        die 1 "--mpi site, but there is no mpicc: load the site's MPI and compiler (module load …) or install one ($APT $APT_MPI)"
    scratch=$(mktemp -d)
    cat >"$scratch/version.c" <<'END'
#include <mpi.h>
#include <stdio.h>
int main(void) {
    char words[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(words, &length);
    return puts(words) < 0;
}
END
    linked=yes
    mpicc "$scratch/version.c" -o "$scratch/version" >/dev/null 2>&1 || linked=''
    MPI_WORDS=$({ [ -z "$linked" ] || "$scratch/version" 2>&1; } | head -1 | tr -s '\t' ' ' | cut -d, -f1 | cut -c1-100)
    rm -rf "$scratch"
    [ -n "$linked" ] ||
        die 1 "--mpi site, but $mpicc compiles no program: install a C compiler or load it ($APT gcc libc6-dev)"
    check_python_headers "--mpi site"
    [ "$(mpi_family "$MPI_WORDS")" = "$(mpi_family "$MPI")" ] ||
        die 1 "--mpi site, but $mpicc is of another MPI ($MPI_WORDS) than $(command -v mpirun): load one whole MPI"
}

# Install mpi4py as it was compiled for this MPI before, or compile it. Two who compile at once both leave a whole file.
install_mpi4py() {
    local pin folder
    pin=$(pin_of mpi4py) || give_up "looking for mpi4py== in $CONSTRAINTS"
    folder=$ROOT/wheels/${pin/==/-}-$(pins_of "$MPI4PY_BUILD_PINS" | key_of "$MPI" "$MPI_WORDS")
    if ! compgen -G "$folder/*.whl" >/dev/null; then
        say "compiling $pin for $MPI_WORDS, once (half a minute)"
        # pip's own cache would give what it compiled against another MPI
        MPICC=$(command -v mpicc) PIP_CONSTRAINT=$MPI4PY_BUILD_PINS PIP_BUILD_CONSTRAINT=$MPI4PY_BUILD_PINS \
            pip_log wheel "${SOURCE[@]}" --no-cache-dir --no-deps --no-binary mpi4py \
            --wheel-dir "$ENVIRONMENT/compiled" "$pin" ||
            give_up "compiling mpi4py against $(command -v mpicc)"
        { mkdir -p "$folder" && mv "$ENVIRONMENT"/compiled/*.whl "$folder"; } >>"$LOG" 2>&1 ||
            give_up "keeping mpi4py in $folder"
    fi
    pip_log install --no-index --no-deps "$folder"/*.whl || give_up "installing mpi4py from $folder"
    "$ENVIRONMENT/bin/python" -I -c 'import mpi4py; mpi4py.rc.initialize = False; import mpi4py.MPI' >>"$LOG" 2>&1 ||
        give_up "loading the mpi4py from $folder"
}
