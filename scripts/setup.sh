#!/bin/sh
# Installs what building and testing gossamer needs, on Debian, Ubuntu, Fedora and macOS.
#
#   scripts/setup.sh            compiler, libraries, test and lint tools
#   scripts/setup.sh --cuda     also build/cuda with NVIDIA's compiler (nvcc) where there is none, to compile the CUDA
#                               kernels; the Makefile finds it there. It needs no GPU
#   scripts/setup.sh --oracle   also build/venv with PyTorch (CPU) and transformers, for the goldens, and
#                               build/o200k/tokenizer.json, the published vocabulary, for its tests
#   scripts/setup.sh --server   also the clients that make check-server runs against the server, in build/venv
set -eu
cd "$(dirname "$0")/.."

oracle=no server=no cuda=no
for argument in "$@"; do
    case $argument in
    --oracle) oracle=yes ;;
    --server) server=yes ;;
    --cuda) cuda=yes ;;
    *) echo "setup.sh: unknown argument $argument: --oracle, --server and --cuda are known" >&2; exit 2 ;;
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

if command -v apt-get >/dev/null; then
    apt_install build-essential pkg-config python3 python3-venv git libjansson-dev libcmocka-dev \
        libcurl4-openssl-dev libssl-dev libedit-dev libmicrohttpd-dev \
        clang clang-format cppcheck
    # libFuzzer's runtime is part of clang's compiler-rt, a package of its own in newer releases.
    version=$(clang --version | sed -n 's/.*version \([0-9]*\).*/\1/p' | head -n 1)
    if apt-cache show "libclang-rt-$version-dev" >/dev/null 2>&1; then
        apt_install "libclang-rt-$version-dev"
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
    test -x build/venv/bin/python || { mkdir -p build; python3 -m venv build/venv; }
    build/venv/bin/python -m pip install --quiet --disable-pip-version-check -r tests/server/requirements.txt ||
        { sleep 5; build/venv/bin/python -m pip install --quiet --disable-pip-version-check \
            -r tests/server/requirements.txt; }
fi

# The compiler alone, as Python packages: some 300 MB, for Linux on x86-64 and 64-bit Arm.
if [ $cuda = yes ] && ! command -v nvcc >/dev/null; then
    test -x build/cuda/bin/python || { mkdir -p build; python3 -m venv build/cuda; }
    build/cuda/bin/python -m pip install --quiet --disable-pip-version-check -r tools/cuda/requirements.txt ||
        { sleep 5; build/cuda/bin/python -m pip install --quiet --disable-pip-version-check \
            -r tools/cuda/requirements.txt; }
fi

if [ $oracle = yes ]; then
    test -x build/venv/bin/python || { mkdir -p build; python3 -m venv build/venv; }
    build/venv/bin/python -m pip install --quiet --disable-pip-version-check -r tools/oracle/requirements.txt ||
        { sleep 5; build/venv/bin/python -m pip install --quiet --disable-pip-version-check \
            -r tools/oracle/requirements.txt; }
    test -f build/o200k/tokenizer.json || build/venv/bin/python tools/vocab/make_tokenizer.py build/o200k/tokenizer.json
fi
