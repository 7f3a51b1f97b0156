#!/bin/sh
# The tests of a build for 64-bit Arm, run by an emulator of its processors. It says nothing of speed, nor of how Arm
# orders memory: threads run in the order that this machine keeps.
#
#   scripts/check-arm.sh [--all] [--run] [BUILD]    BUILD: where to build (build/arm)
#
# The processors: cortex-a72 has none of the optional instructions, cortex-a76 has dotprod (as Apple's M1), "max" without
# SVE has i8mm and bf16 too (as the M2 and later), "max" has SVE. On each: the tests of kernels and of what the processor
# is found to have. On the first and the third also the demo model, exact against its golden and fast. --all runs all
# tests and both proofs on each, which takes hours of processor time. Before that, a build that does not ask the
# processor what it has must die on the first: a control. ARM_PROCESSORS names others than these four, ARM_TESTS other
# tests, ARM_JOBS how many programs run side by side (as many as there are processors). scripts/setup.sh --arm installs
# what is needed. Exit code 2 where something is missing.
#
# --run runs what BUILD has and compiles nothing: BUILD may come from another machine. What is linked dynamically is then
# looked for in QEMU_LD_PREFIX, which the emulator reads.
set -eu
cd "$(dirname "$0")/.."
all=no compile=yes
while :; do
    case ${1:-} in
    --all) all=yes ;;
    --run) compile=no ;;
    *) break ;;
    esac
    shift
done
build=$(realpath -m "${1:-build/arm}")
mkdir -p "$build"
compiler=aarch64-linux-gnu-gcc
emulator=qemu-aarch64-static
processors=${ARM_PROCESSORS:-cortex-a72 cortex-a76 max,sve=off max}
cores=$(getconf _NPROCESSORS_ONLN)

lacks() { echo "arm: $* (scripts/setup.sh --arm installs it)" >&2; exit 2; }
command -v $emulator >/dev/null || lacks "$emulator is not there"
if [ $compile = yes ]; then
    command -v $compiler >/dev/null || lacks "$compiler is not there"
    [ -f /usr/lib/aarch64-linux-gnu/pkgconfig/cmocka.pc ] || lacks "jansson and cmocka for arm64 are not there"
fi

if [ $all = yes ]; then # but for the simulators of GPUs and what needs libcurl
    tests=$(find tests -name 'test_*.c' ! -path 'tests/*sim/*' ! -path 'tests/hub/test_http.c' \
        ! -path 'tests/hub/test_digest.c' | sort)
    proofs=$processors
else
    tests="$(ls tests/kernels/test_*.c) tests/backend/test_kernels.c tests/base/test_processors.c tests/base/test_system.c"
    proofs="cortex-a72 max,sve=off"
fi
tests=${ARM_TESTS:-$tests}

# The control's detection answers that everything is there.
compile_all() {
    programs=$(for test in $tests; do echo "$build/${test%.c}"; done)
    # shellcheck disable=SC2086
    make -j"$cores" CC=$compiler BUILD="$build" WERROR=1 CFLAGS=-O2 "$build/gossamer" "$build/tests/kernels/test_variants" \
        $programs >"$build.log" 2>&1 || { tail -n 30 "$build.log"; echo "arm: the build failed" >&2; exit 1; }
    echo 'unsigned gs_arm_features(void); unsigned gs_arm_features(void) { return ~0u; }' >"$build/unguarded.c"
    $compiler -O2 -o "$build/unguarded" "$build/unguarded.c" "$build"/tests/kernels/test_variants.o \
        "$build"/tests/support/*.o "$build/libgossamer.a" -L/usr/lib/aarch64-linux-gnu -lcmocka -ljansson -lm -pthread
}
if [ $compile = yes ]; then compile_all; fi
[ -x "$build/unguarded" ] || { echo "arm: $build is not a build of this script's; leave out --run" >&2; exit 2; }

# emulate PROCESSOR FOLDER: scripts in the programs' place that start them in the emulator.
emulate() {
    for program in gossamer $tests; do
        program=${program%.c}
        mkdir -p "$(dirname "$2/$program")"
        printf '#!/bin/sh\nexec %s -cpu %s "%s" "$@"\n' $emulator "$1" "$build/$program" >"$2/$program"
        chmod +x "$2/$program"
    done
}

if $emulator -cpu cortex-a72 "$build/unguarded" >"$build/unguarded.log" 2>&1 ||
    ! grep -q 'Illegal instruction' "$build/unguarded.log"; then
    cat "$build/unguarded.log"
    echo "arm: the control, a build that does not ask, must die of an illegal instruction on cortex-a72" >&2
    exit 1
fi
echo "arm: the control, a build that does not ask, dies of an illegal instruction on cortex-a72"

failed=0
for processor in $processors; do
    folder=$build/emulated/$processor
    emulate "$processor" "$folder"
    list=$(for test in $tests; do echo "$folder/${test%.c}"; done)
    echo "== $processor: $("$folder/gossamer" --version | sed -n 's/^backend cpu[ :]*//p')"
    # shellcheck disable=SC2086
    TEST_JOBS=${ARM_JOBS:-$cores} sh scripts/run-tests.sh "$folder" $list || failed=1
    case " $proofs " in *" $processor "*) ;; *) continue ;; esac
    for precision in exact fast; do
        tokens=16
        if [ $precision = fast ]; then tokens=64; fi # its bars are shares, and need some
        if "$folder/gossamer" verify models/demo -n $tokens --threads 1 --precision $precision >"$folder/verify.log" 2>&1; then
            echo "ok   verify models/demo, $precision: $(tail -n 1 "$folder/verify.log")"
        else
            cat "$folder/verify.log"
            failed=1
        fi
    done
done
exit $failed
