#!/usr/bin/env bash
# Compile Caffe for Python from its release on PyPI: bash env/build_caffe.sh RELEASE.tar.gz PYTHON FOLDER
#
# PYTHON has NumPy. Works in FOLDER, which must not exist, and leaves FOLDER/caffe, the package for site-packages.
# env/caffe.sh calls this, after it has looked for what is needed; a change here that is more than a comment makes every
# classic environment anew, and its Caffe.
set -euo pipefail

release=$1 python=$2 work=$3
mkdir "$work"
mkdir "$work/source" "$work/prefix" "$work/prefix/lib"
tar -xzf "$release" -C "$work/source" --strip-components 1

# The release's own setup.py wants conda and Python below 3.10; its CMake files want neither, only the name that Boost's
# library for Python has under conda.
facts='import sys, sysconfig, numpy; print(sysconfig.get_path("include"), numpy.get_include(), *sys.version_info[:2])'
read -r include numpy major minor < <("$python" -I -c "$facts")
printf 'INPUT(-lboost_python%s)\n' "$major$minor" >"$work/prefix/lib/libboost_python.so"

# Debian keeps HDF5 without MPI apart; elsewhere these folders don't exist.
export CPATH=$include:$numpy:$work/source/src:/usr/include/hdf5/serial${CPATH:+:$CPATH}
architecture=$(g++ -print-multiarch)
export LIBRARY_PATH=/usr/lib/$architecture/hdf5/serial${LIBRARY_PATH:+:$LIBRARY_PATH}
cores=$(nproc)
# no flag for this machine's own processor: the package may lie on a disk that other machines share
cmake -S "$work/source" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS=-w -DCMAKE_SKIP_RPATH=ON \
    -DANACONDA_HOME="$work/prefix" -DPYTHON_VERSION="python$major.$minor"
cmake --build "$work/build" --target pycaffe --parallel "$((cores < 8 ? cores : 8))" # up to 1 GB each

mkdir "$work/package" "$work/package/proto"
cp "$work"/source/python/caffe/*.py "$work/package"
cp "$work/build/include/caffe/proto/caffe_pb2.py" "$work/package/proto"
: >"$work/package/proto/__init__.py"
cp -L "$work/source/python/caffe/_caffe.so" "$work/package"
mv "$work/package" "$work/caffe"
