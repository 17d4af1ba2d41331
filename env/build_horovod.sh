#!/usr/bin/env bash
# Compile Horovod for Python from its release on PyPI: bash env/build_horovod.sh RELEASE.tar.gz PYTHON FOLDER [RPATH]
#
# PYTHON has setuptools and torch, TensorFlow or both; the first mpicxx on PATH, its own folder before all, is of the MPI
# that Horovod is linked to, which libraries then also look for in RPATH. Works in FOLDER, which must not exist, and leaves
# FOLDER/horovod, a folder with the wheel. env/horovod.sh calls this, after it has looked for what is needed; a change here
# that is more than a comment makes every modern environment anew, and its Horovod.
set -euo pipefail

release=$1 python=$2 work=$3 rpath=${4:-}
mkdir "$work" "$work/tmp"
unset "${!HOROVOD_@}" # what a person's shell says of other builds
flag='' of_cmake=:
if [ -n "$rpath" ]; then # in place of the folders of the environment that it is compiled in
    printf -v flag %q "-Wl,-rpath,$rpath"
    of_cmake='continue'
fi

# Horovod 0.28.1 is older than what it is compiled for, and says how in several places. No line of it is changed: the
# compiler hears otherwise. The headers of torch and TensorFlow are C++17. Of xla_mpi_ops.cc all but the headers is for
# GPUs, and TensorFlow's don't bring all that those include. Debugging symbols would take twice the time and more memory.
cat >"$work/c++" <<END
#!/usr/bin/env bash
shared='' more=(-g0)
for word; do
    shift
    case \$word in
        -std=*++11 | -std=*++14) word=-std=c++17 ;;
        -shared) shared=yes ;;
        -Wl,-rpath,*) $of_cmake ;;
        */xla_mpi_ops.cc) more+=(-UTENSORFLOW_VERSION) ;;
    esac
    set -- "\$@" "\$word"
done
[ -z "\$shared" ] || more+=($flag)
exec g++ "\$@" "\${more[@]}"
END

# CMake looks for an mpiexec and takes the compiler beside that, which may be of another MPI than the first on PATH.
path="$(dirname "$python"):$PATH"
cat >"$work/cmake" <<END
#!/usr/bin/env bash
case \$1 in
    -*) exec cmake "\$@" ;;
    *) exec cmake "\$@" -DMPI_CXX_COMPILER=$(printf %q "$(PATH=$path command -v mpicxx)") ;;
esac
END
chmod +x "$work/c++" "$work/cmake"

cores=$(nproc)
memory=$(awk '/^MemAvailable/ { print int($2 / 2000000) }' /proc/meminfo) # a file takes up to 2 GB
jobs=$((cores < memory ? cores : memory))
jobs=$((jobs < 1 ? 1 : jobs > 8 ? 8 : jobs))

has() { "$python" -I -c "import importlib.util, sys; sys.exit(not importlib.util.find_spec('$1'))"; }
frameworks=()
for pair in torch:PYTORCH tensorflow:TENSORFLOW; do
    if has "${pair%:*}"; then frameworks+=("HOROVOD_WITH_${pair#*:}=1"); else frameworks+=("HOROVOD_WITHOUT_${pair#*:}=1"); fi
done

# pip's own cache would give what it compiled for another MPI or torch
env PATH="$path" TMPDIR="$work/tmp" CXX="$work/c++" HOROVOD_CMAKE="$work/cmake" MAKEFLAGS="-j$jobs" "${frameworks[@]}" \
    HOROVOD_WITHOUT_MXNET=1 HOROVOD_WITH_MPI=1 HOROVOD_CPU_OPERATIONS=MPI \
    "$python" -I -m pip wheel --no-input --disable-pip-version-check --verbose --no-index --no-deps \
    --no-build-isolation --no-cache-dir --wheel-dir "$work/horovod" "$release"
