#!/bin/sh
# Does gossamer compile and link for macOS? A compile check on Linux: nothing here can start a Mach-O file.
#
#   scripts/check-macos.sh [BUILD]      BUILD: where to build (build/macos)
#
# For arm64 and x86_64 the library and the program are built by clang with macOS's headers (the Python package ziglang),
# warnings being errors and without optimisation, which finds no more of them, without curl, libedit and libmicrohttpd;
# what uses those three is compiled only. jansson is compiled from its Debian source. scripts/setup.sh --macos fetches
# both. Exit code 2 where one is missing.
set -eu
cd "$(dirname "$0")/.."
build=$(realpath -m "${1:-build/macos}")
python=build/venv/bin/python
jobs=$(getconf _NPROCESSORS_ONLN)

fail() { echo "macos: $*" >&2; exit 1; }
lacks() { echo "macos: $* (scripts/setup.sh --macos installs it)" >&2; exit 2; }

# The program itself: Python would be started once more for each file.
zig=$($python -c 'import os, ziglang; print(os.path.join(os.path.dirname(ziglang.__file__), "zig"))' 2>/dev/null) ||
    lacks "the Python package ziglang is not in build/venv"
source=$(find build/jansson -maxdepth 1 -type d -name 'jansson-*' 2>/dev/null | head -n 1)
[ -n "$source" ] || lacks "there is no source of jansson in build/jansson"
readobj=$(command -v llvm-readobj-19 || command -v llvm-readobj) || lacks "llvm-readobj is not there"
ZIG_GLOBAL_CACHE_DIR=$build/cache ZIG_LOCAL_CACHE_DIR=$build/cache
export ZIG_GLOBAL_CACHE_DIR ZIG_LOCAL_CACHE_DIR

# write_tools: ar and cc of the target. zig's way to name an instruction set is not clang's, and it adds a sanitizer where
# nothing is optimised.
write_tools() {
    mkdir -p "$folder"
    cat >"$folder/ar.new" <<END
#!/bin/sh
exec "$zig" ar "\$@"
END
    cat >"$folder/cc.new" <<END
#!/bin/sh
for argument; do
    shift
    case \$argument in
    -march=armv8*) argument=-mcpu=generic\$(echo "\$argument" | sed 's/[^+]*//') ;;
    esac
    set -- "\$@" "\$argument"
done
exec "$zig" cc -target $target-macos.13.0 -fno-sanitize=undefined "\$@"
END
    for tool in ar cc; do
        chmod +x "$folder/$tool.new"
        mv "$folder/$tool.new" "$folder/$tool"
    done
}

# build_jansson FOLDER: libjansson.a and jansson.pc, with what its configuration would find on macOS.
build_jansson() {
    mkdir -p "$1"
    sed -e 's/@json_inline@/inline/' -e 's/@json_have_[a-z_]*@/1/' "$source/src/jansson_config.h.in" >"$1/jansson_config.h"
    cp "$source/src/jansson.h" "$1"
    for have in STDINT_H UNISTD_H FCNTL_H SCHED_H SYS_STAT_H SYS_TIME_H SYS_TYPES_H OPEN CLOSE READ GETTIMEOFDAY GETPID \
        SCHED_YIELD ATOMIC_BUILTINS; do
        echo "#define HAVE_$have 1"
    done >"$1/jansson_private_config.h"
    objects=""
    for file in "$source"/src/*.c; do
        object=$1/$(basename "$file" .c).o
        "$folder/cc" -I"$1" -DHAVE_CONFIG_H -DUSE_URANDOM -c "$file" -o "$object"
        objects="$objects $object"
    done
    # shellcheck disable=SC2086
    "$folder/ar" rcs "$1/libjansson.a" $objects
    printf 'Name: jansson\nDescription: JSON\nVersion: 0\nCflags: -I%s\nLibs: %s/libjansson.a\n' "$1" "$1" >"$1/jansson.pc"
}

# compile_only FILE LIBRARY-HEADERS...: a file that needs a library which is not here for macOS, against the headers of
# the one that is here for Linux.
compile_only() {
    file=$1
    shift
    rm -rf "$folder/headers"
    mkdir -p "$folder/headers"
    for header in "$@"; do
        for found in "/usr/include/$(uname -m)-linux-gnu/$header" "/usr/include/$header"; do
            [ -e "$found" ] && cp -r "$found" "$folder/headers/"
        done
    done
    [ -n "$(ls "$folder/headers")" ] || { echo "macos: $file is not compiled: $1 is not here"; return 0; }
    "$folder/cc" -std=c11 -D_GNU_SOURCE -Iinclude -Isrc -I. -I"$folder/jansson" -isystem "$folder/headers" \
        -DGS_HAVE_LIBEDIT=1 -Wall -Wextra -Werror -c "$file" -o "$folder/compiled.o" || fail "$file does not compile for $target"
}

# The tests, without linking: there is no cmocka for macOS here.
compile_tests() {
    mkdir -p "$folder/cmocka"
    cp /usr/include/cmocka*.h "$folder/cmocka/"
    tests=$(find tests -name 'test_*.c' ! -path 'tests/*sim/*' ! -path 'tests/hub/test_http.c' \
        ! -path 'tests/hub/test_digest.c' ! -path 'tests/backend/test_hip.c' | sort)
    # shellcheck disable=SC2086,SC2046
    build $(for test in $tests; do echo "$folder/${test%.c}.o"; done)
}

# build MAKE-ARGUMENTS...
build() {
    make -j"$jobs" BUILD="$folder" CC="$folder/cc" AR="$folder/ar" PKG_CONFIG="PKG_CONFIG_LIBDIR=$folder/jansson pkg-config" \
        CMOCKA_CFLAGS="-isystem $folder/cmocka" PULL=no EDIT=no SERVE=no CUDA=no HIP=no WERROR=1 CFLAGS=-O0 "$@" >"$folder/build.log" 2>&1 ||
        { cat "$folder/build.log"; fail "gossamer does not build for $target"; }
}

# A program that calls what Linux alone has must not link: otherwise linking would say nothing.
control() {
    printf 'unsigned long getauxval(unsigned long);\nint main(void) { return (int)getauxval(16); }\n' >"$folder/control.c"
    if "$folder/cc" "$folder/control.c" -o "$folder/control" 2>/dev/null; then
        fail "the control, a call of getauxval, links for $target: then linking proves nothing"
    fi
}

check_target() {
    target=$1 format=$2
    folder=$build/$target
    write_tools
    [ -f "$folder/jansson/jansson.pc" ] || build_jansson "$folder/jansson"
    build all
    "$readobj" --file-headers "$folder/gossamer" | grep -q "Format: $format" || fail "$folder/gossamer is not $format"
    libraries=$("$readobj" --needed-libs "$folder/gossamer" | grep -c '\.dylib\|framework' || true)
    [ "$libraries" -eq 1 ] || fail "$folder/gossamer needs $libraries libraries, libSystem alone was expected"
    compile_only src/server/http_daemon.c microhttpd.h
    compile_only src/cli/line_edit.c editline histedit.h
    for file in http digest; do
        [ -f src/hub/$file.c ] && compile_only src/hub/$file.c curl openssl
    done
    control
    echo "macos: gossamer links for $target ($("$readobj" --file-headers "$folder/gossamer" | sed -n 's/^Format: //p')," \
        "$(wc -c <"$folder/gossamer") bytes); it has never been started"
}

check_target aarch64 'Mach-O arm64'
compile_tests
check_target x86_64 'Mach-O 64-bit x86-64'
