#!/bin/sh
# Installs what building and testing gossamer needs, on Debian, Ubuntu, Fedora and macOS.
#
#   scripts/setup.sh            compiler, libraries, test and lint tools
#   scripts/setup.sh --cuda     also build/cuda with NVIDIA's compiler (nvcc) where there is none, to compile the CUDA
#                               kernels; the Makefile finds it there. It needs no GPU
#   scripts/setup.sh --oracle   also build/venv with PyTorch (CPU) and transformers, for the goldens, and
#                               build/o200k/tokenizer.json, the published vocabulary, for its tests
#   scripts/setup.sh --arm      also a compiler for 64-bit Arm, that machine's jansson and cmocka, and its emulator
#   scripts/setup.sh --macos    also a compiler for macOS (in build/venv) and the source of jansson (build/jansson)
#   scripts/setup.sh --server   also the clients that make check-server runs against the server, in build/venv
set -eu
cd "$(dirname "$0")/.."

oracle=no server=no cuda=no arm=no macos=no
for argument in "$@"; do
    case $argument in
    --oracle) oracle=yes ;;
    --server) server=yes ;;
    --cuda) cuda=yes ;;
    --arm) arm=yes ;;
    --macos) macos=yes ;;
    *) echo "setup.sh: unknown argument $argument: --arm, --cuda, --macos, --oracle and --server are known" >&2; exit 2 ;;
    esac
done

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# Installs packages that are not there yet, with one update of the lists and a second try, since mirrors fail.
apt_install() {
    missing=""
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
            missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    export DEBIAN_FRONTEND=noninteractive
    as_root apt-get update -q
    # shellcheck disable=SC2086
    as_root apt-get install -q -y --no-install-recommends $missing ||
        { sleep 5; as_root apt-get update -q; as_root apt-get install -q -y --no-install-recommends $missing; }
}

# Is there such a package? Lists that are not there say no: one update of them before that is believed.
apt_has() {
    apt-cache show "$1" >/dev/null 2>&1 && return 0
    [ "$(apt-cache pkgnames | wc -l)" -lt 10000 ] || return 1
    as_root apt-get update -q
    apt-cache show "$1" >/dev/null 2>&1
}

# venv_install FOLDER REQUIREMENTS: packages into a virtual environment, made if need be; a second try here too. What is
# imported is compiled then: of most files that will never be.
venv_install() {
    test -x "$1/bin/python" || { mkdir -p build; python3 -m venv "$1"; }
    "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile -r "$2" ||
        { sleep 5; "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile -r "$2"; }
}

if command -v apt-get >/dev/null; then
    apt_install build-essential pkg-config python3 python3-venv git libjansson-dev libcmocka-dev \
        libcurl4-openssl-dev libssl-dev libedit-dev libmicrohttpd-dev \
        clang clang-format cppcheck
    # libFuzzer's runtime is part of clang's compiler-rt, a package of its own in newer releases.
    version=$(clang --version | sed -n 's/.*version \([0-9]*\).*/\1/p' | head -n 1)
    if apt_has "libclang-rt-$version-dev"; then
        apt_install "libclang-rt-$version-dev"
    fi
    # For the simulator of Metal and the HIP kernels; older systems have none, and their tests are skipped.
    if apt_has clang-19; then
        apt_install clang-19 lld-19 llvm-19
    fi
    # AMD's library and its headers: the tests ask it what it says without a device.
    if apt_has libamdhip64-dev; then
        apt_install libamdhip64-dev
    fi
elif command -v dnf >/dev/null; then
    as_root dnf install -y gcc make pkgconf-pkg-config python3 git jansson-devel libcmocka-devel \
        libcurl-devel openssl-devel libedit-devel libmicrohttpd-devel \
        clang clang-tools-extra compiler-rt cppcheck
elif command -v brew >/dev/null; then
    brew install pkg-config python3 jansson cmocka curl openssl libedit libmicrohttpd clang-format cppcheck
else
    echo "setup.sh: no apt-get, dnf or brew here. Install: a C11 compiler, GNU make, pkg-config, jansson," \
         "cmocka, for gossamer pull libcurl and libcrypto, for gossamer chat libedit, for gossamer serve libmicrohttpd; for lint and fuzzing clang, clang-format, cppcheck" >&2
    exit 1
fi

if [ $server = yes ]; then
    if command -v apt-get >/dev/null; then apt_install chromium; fi
    venv_install build/venv tests/server/requirements.txt
fi

# The compiler alone, as Python packages: some 300 MB, for Linux on x86-64 and 64-bit Arm.
if [ $cuda = yes ] && ! command -v nvcc >/dev/null; then
    venv_install build/cuda tools/cuda/requirements.txt
fi

if [ $oracle = yes ]; then
    venv_install build/venv tools/oracle/requirements.txt
    test -f build/o200k/tokenizer.json || build/venv/bin/python tools/vocab/make_tokenizer.py build/o200k/tokenizer.json
fi

# Packages of arm64 beside those of this machine: jansson and cmocka to link with, and what they need to run.
if [ $arm = yes ]; then
    command -v apt-get >/dev/null || { echo "setup.sh: --arm is for Debian and Ubuntu" >&2; exit 1; }
    if ! dpkg --print-foreign-architectures | grep -qx arm64; then
        as_root dpkg --add-architecture arm64
        as_root apt-get update -q
    fi
    apt_install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static libjansson-dev:arm64 libcmocka-dev:arm64
fi

# The source package of jansson, by lists of its own: those of the system may name no sources.
fetch_jansson() {
    lists=$(mktemp -d)
    mkdir -p "$lists/parts" "$lists/lists/partial" build/jansson
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list.d/ubuntu.sources; do
        if [ -f "$file" ]; then
            sed -e 's/^Types:.*/Types: deb-src/' -e 's/^deb /deb-src /' "$file" >"$lists/parts/$(basename "$file")"
        fi
    done
    options="-o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts=$lists/parts -o Dir::State::lists=$lists/lists"
    # shellcheck disable=SC2086
    if apt-get $options update -q && (cd build/jansson && apt-get $options source -q jansson); then fetched=0; else fetched=1; fi
    rm -rf "$lists"
    return $fetched
}

if [ $macos = yes ]; then
    command -v apt-get >/dev/null || { echo "setup.sh: --macos is for Debian and Ubuntu" >&2; exit 1; }
    apt_install dpkg-dev llvm-19
    venv_install build/venv tools/macos/requirements.txt
    ls -d build/jansson/jansson-*/ >/dev/null 2>&1 || fetch_jansson || { sleep 5; fetch_jansson; }
fi

echo "setup.sh: what was asked for is installed"
