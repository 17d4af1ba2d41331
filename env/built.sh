# shellcheck shell=bash
# shellcheck disable=SC2154  # LOG is set by env/create.sh
# What is compiled once and kept outside the environments, in $ROOT/built/NAME-KEY: Caffe and Horovod.
#
# A folder counts once its mark `complete` is there. The mark is made before the folder gets its name, by a rename, so
# that one whose making was interrupted never has both.

is_kept() { [ -e "$1/complete" ]; } # FOLDER

# Of two who compiled at once the first keeps its own; a folder without the mark is nobody's.
keep() { # MADE FOLDER
    : >"$1/complete" && mkdir -p "${2%/*}" && { is_kept "$2" || rm -rf "$2"; } && { mv -T "$1" "$2" || is_kept "$2"; }
} >>"$LOG" 2>&1

# PROGRAM… -> those that there aren't
lacking_programs() {
    local program
    for program; do
        command -v "$program" >/dev/null || echo "$program"
    done
}
