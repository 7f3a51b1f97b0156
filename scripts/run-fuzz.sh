#!/bin/sh
# Builds every tests/fuzz/fuzz_*.c with libFuzzer and runs them, SECONDS in all, each from its seeds.
#
#   scripts/run-fuzz.sh BUILD_DIR SECONDS [target ...]      FUZZ_CC=clang-17 for another clang
#
# Inputs found on the way are kept in BUILD_DIR/found/<target>, crashing ones in BUILD_DIR/crashes; the seeds
# under tests/fuzz/corpus are never written to.
set -eu

build=$1
seconds=$2
shift 2
cc=${FUZZ_CC:-clang}
sanitize=-fsanitize=fuzzer-no-link,address,undefined
# The warning flags are the Makefile's business.
cflags="-std=c11 -D_GNU_SOURCE -Iinclude -Isrc -I. -O1 -g -pthread -ffp-contract=off -fno-math-errno
        -fno-omit-frame-pointer -fno-sanitize-recover=undefined $(pkg-config --cflags jansson)"
libs="$(pkg-config --libs jansson) -lm -pthread"

mkdir -p "$build/obj" "$build/crashes"

skip() {
    echo "fuzz: $1; nothing was fuzzed"
    if [ -n "${CI:-}" ]; then
        exit 1
    fi
    exit 0
}

command -v "$cc" >/dev/null 2>&1 || skip "$cc is missing (install clang, or set FUZZ_CC)"
printf '%s\n' '#include <stddef.h>' '#include <stdint.h>' \
    'int LLVMFuzzerTestOneInput(const uint8_t *d, size_t n) { return d && n > 9 ? 0 : 0; }' >"$build/probe.c"
# shellcheck disable=SC2086 # flags are words
$cc $cflags -fsanitize=fuzzer,address,undefined "$build/probe.c" -o "$build/probe" 2>"$build/probe.log" ||
    skip "$cc has no fuzzer runtime (see $build/probe.log; install libclang-rt-dev or compiler-rt)"

if [ $# -gt 0 ]; then
    targets=$*
else
    targets=$(for f in tests/fuzz/fuzz_*.c; do basename "$f" .c | sed 's/^fuzz_//'; done)
fi

# The library without backend and engine, whose kernels need flags of their own.
sources=$(ls src/base/*.c src/format/*.c src/text/*.c src/chat/*.c src/model/*.c 2>/dev/null)
jobs=$(getconf _NPROCESSORS_ONLN)
echo "fuzz: building"
compile='out=$0/obj/$(echo "$1" | tr / _).o; shift; exec "$@" -o "$out"'
for f in $sources; do
    printf '%s\n' "$f"
done | xargs -P "$jobs" -I FILE sh -c "$compile" "$build" FILE $cc $cflags $sanitize -c FILE
objects=$(for f in $sources; do echo "$build/obj/$(echo "$f" | tr / _).o"; done)

# waited TARGET: an input was given up after 10 seconds by the clock. Yes where it ends within so many seconds of a
# processor: then the machine was busy, or stood still.
waited() {
    input=$(sed -n 's/.*Test unit written to //p' "$build/$1.log" | tail -n 1)
    [ -n "$input" ] && (ulimit -t 10; "$build/fuzz_$1" -timeout=86400 "$input") >>"$build/$1.log" 2>&1 && rm "$input"
}

count=0
for target in $targets; do
    # shellcheck disable=SC2086
    $cc $cflags -fsanitize=fuzzer,address,undefined "tests/fuzz/fuzz_$target.c" $objects $libs \
        -o "$build/fuzz_$target"
    count=$((count + 1))
done

each=$((seconds / count))
if [ "$each" -lt 1 ]; then
    each=1
fi
failed=0
summary=
for target in $targets; do
    found=$build/found/$target
    seeds=tests/fuzz/corpus/$target
    mkdir -p "$found"
    if [ ! -d "$seeds" ]; then
        seeds=
    fi
    echo "fuzz: $target for $each s"
    code=0
    # shellcheck disable=SC2086
    "$build/fuzz_$target" -max_total_time=$each -max_len=4096 -rss_limit_mb=2048 -timeout=10 \
        -print_final_stats=1 -verbosity=0 -artifact_prefix="$build/crashes/$target-" \
        "$found" $seeds >"$build/$target.log" 2>&1 || code=$?
    if [ $code -eq 70 ] && waited "$target"; then
        code=0
    fi
    if [ $code -eq 0 ]; then
        verdict=ok
    else
        verdict="FAILED (input in $build/crashes, log in $build/$target.log)"
        tail -n 40 "$build/$target.log"
        failed=1
    fi
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$build/$target.log" | tail -n 1)
    summary="$summary
fuzz: $target: ${runs:-unknown} executions, $verdict"
done
echo "$summary" | sed 1d
exit $failed
