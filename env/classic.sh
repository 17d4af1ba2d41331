# shellcheck shell=bash
# shellcheck disable=SC2154  # ENVIRONMENT, ROOT, LOG, SOURCE and FROM_SOURCE are set by env/create.sh and env/common.sh
# What Theano and Caffe want of a machine, looked for before anything is made; and Caffe, compiled once and kept.
#
# The compiler is asked, not the package manager: a site's modules bring the same files under other names.

# what Caffe is compiled with: the package of Debian and Ubuntu, then a header and a library that it brings (-: none)
CAFFE_NEEDS="
libopenblas-dev           cblas.h                           openblas
libboost-dev              boost/shared_ptr.hpp              -
libboost-python-dev       boost/python.hpp                  boost_pythonXY
libboost-system-dev       boost/system/error_code.hpp       boost_system
libboost-thread-dev       boost/thread.hpp                  boost_thread
libboost-filesystem-dev   boost/filesystem.hpp              boost_filesystem
libboost-regex-dev        boost/regex.hpp                   boost_regex
libprotobuf-dev           google/protobuf/message.h         protobuf
libgoogle-glog-dev        glog/logging.h                    glog
libgflags-dev             gflags/gflags.h                   gflags
libhdf5-dev               hdf5_hl.h                         hdf5_hl
"

caffe_needs() { echo "${CAFFE_NEEDS//XY/${PYTHON_VERSION/./}}"; }

has_library() { # NAME: a program links with it, and so can what Theano and Caffe compile
    echo 'int main() { return 0; }' | LIBRARY_PATH=$(hdf5_libraries)${LIBRARY_PATH:+:$LIBRARY_PATH} \
        g++ -x c++ - -l"$1" -o /dev/null 2>/dev/null
}

has_header() {
    printf '#if !__has_include(<%s>)\n#error\n#endif\n' "$1" |
        CPATH=/usr/include/hdf5/serial${CPATH:+:$CPATH} g++ -E -x c++ - >/dev/null 2>&1
}

hdf5_libraries() { echo "/usr/lib/$(g++ -print-multiarch)/hdf5/serial"; }

# Ends where the pins, the compiler or its libraries won't do.
check_classic() {
    local numpy
    ! pin_of theano >/dev/null || {
        numpy=$(pin_of numpy) || numpy="no NumPy"
        [[ $numpy =~ ^numpy==1\.(1[0-9]|2[0-3])(\.|$) ]] ||
            die 1 "$CONSTRAINTS pins $numpy, but Theano 1.0.5 needs NumPy below 1.24: pin numpy==1.23.5"
        command -v g++ >/dev/null ||
            die 1 "there is no g++, with which Theano compiles each function: install it or load it ($APT g++)"
        has_library openblas ||
            die 1 "g++ finds no libopenblas, which Theano computes with: install it or load it ($APT libopenblas-dev)"
        check_python_headers "Theano compiles"
    }
    ! pin_of brocolli-caffe >/dev/null || is_kept "$(caffe_folder)" || check_caffe
}

check_caffe() {
    local package header library program files=() packages=()
    check_python_headers "Caffe is compiled"
    for program in $(lacking_programs g++ cmake make protoc); do
        files+=("$program") packages+=("${program/protoc/protobuf-compiler}")
    done
    while [[ " ${packages[*]} " != *" g++ "* ]] && read -r package header library; do
        [ -n "$package" ] || continue
        has_header "$header" && { [ "$library" = - ] || has_library "$library"; } && continue
        files+=("$header") packages+=("$package")
    done < <(caffe_needs)
    [ ${#files[@]} -eq 0 ] ||
        die 1 "Caffe is compiled here, and there is no ${files[*]}: install or load what brings them ($APT ${packages[*]})"
}

# Where the Caffe of these pins, this recipe and these libraries is kept; its `complete` is there once it is whole.
caffe_folder() {
    local library
    { pins_of "$BUILD_CAFFE"; pin_of brocolli-caffe; pin_of numpy; } | key_of "$(
        caffe_needs | while read -r _ _ library; do
            [ "${library:--}" = - ] || library_file "$library"
        done
    )" | sed "s|^|$ROOT/built/caffe-|"
}

library_file() { # NAME -> the file that a program is linked with; nothing where there is none
    local file
    file=$({ LIBRARY_PATH=$(hdf5_libraries)${LIBRARY_PATH:+:$LIBRARY_PATH} g++ -print-file-name="lib$1.so"; } 2>/dev/null) ||
        return 0 # without a compiler, which is said elsewhere
    [[ $file != */* ]] || readlink -f "$file" # g++ answers with the name alone where it finds no such file
}

fetch_caffe() { pip_pinned download "${SOURCE[@]}" "${FROM_SOURCE[@]}" --no-deps --dest "$1" "$(pin_of brocolli-caffe)"; }

# Compiled inside the environment in the making, which nothing survives when it ends early, and kept by a rename.
install_caffe() {
    local folder work=$ENVIRONMENT/compiled site
    folder=$(caffe_folder)
    if ! is_kept "$folder"; then
        say "compiling Caffe, once: 4 to 10 minutes on 2 cores (log: $LOG)"
        fetch_caffe "$work/release" || give_up "downloading Caffe's source"
        bash "$BUILD_CAFFE" "$work"/release/*.tar.gz "$ENVIRONMENT/bin/python" "$work/caffe" >>"$LOG" 2>&1 ||
            give_up "compiling Caffe" '^cmake error|error: |cannot find -l|undefined reference|no space left'
        keep "$work/caffe/caffe" "$folder" || give_up "keeping Caffe in $folder"
        rm -rf "$work"
    fi
    site=$("$ENVIRONMENT/bin/python" -I -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
    cp -R "$folder" "$site/caffe" >>"$LOG" 2>&1 || give_up "copying Caffe from $folder"
    { GLOG_minloglevel=2 "$ENVIRONMENT/bin/python" -I -c 'import caffe'; } >>"$LOG" 2>&1 || # a crash's words too
        give_up "loading the Caffe of $folder (remove that folder to have it compiled anew)" '^[A-Za-z]*Error|bus error|segmentation|core dumped'
}
