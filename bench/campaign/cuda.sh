#!/bin/sh
# The CUDA backend's proof and its figures on the machine at hand, in one go of a few minutes.
#
#   bench/campaign/cuda.sh [BUILD] [MODEL] [LARGE]
#       BUILD   where make put its products (build)
#       MODEL   a folder for the synthetic 20b (/dev/shm/gossamer-20b); it is written there if it is not there yet
#       LARGE   a synthetic 120b, if there is one: its figures too
#
# Sections, each ending in "pass" or "FAIL": the backend's tests; verify against the golden of transformers and
# against the exact CPU backend, in both precisions; the same bits on every run, alone and in a batch, step by
# step and chained (bench_cuda and the tests); compute-sanitizer where it is; then the figures, and the
# predictions of the campaign's files. FULL=1 adds the synthetic 20b against the exact CPU backend, which takes
# as long as the processor does. Exit code 1 if anything failed. What a section printed is kept in $LOGS
# (default: a new folder under /tmp).
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${1:-build}
model=${2:-/dev/shm/gossamer-20b}
large=${3:-}
python=${PYTHON:-python3}
logs=${LOGS:-$(mktemp -d /tmp/gossamer-cuda.XXXXXX)}
failed=0
mkdir -p "$logs" || exit 1

# section LINES NAME COMMAND...: runs it, shows the last LINES lines of what it says, and the outcome.
section() {
    lines=$1
    label=$2
    shift 2
    echo "== $label"
    if "$@" >"$logs/$label.log" 2>&1; then outcome=pass; else outcome="FAIL (exit code $?)"; failed=1; fi
    tail -n "$lines" "$logs/$label.log"
    echo "-- $label: $outcome"
}

for program in gossamer tests/backend/test_cuda bench/bench_cuda; do
    [ -x "$build/$program" ] || { echo "$build/$program is not there: make $build/$program" >&2; exit 1; }
done
nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm --format=csv,noheader || exit 1
# The tests skip what needs a device: without one they would pass.
"$build/gossamer" --version | grep '^backend cuda' || { echo "the cuda backend does not work here" >&2; exit 1; }
if [ ! -f "$model/config.json" ]; then
    section 4 checkpoint "$python" tools/synth/make_checkpoint.py "$model" --scale 20b
fi

section 4 tests "$build/tests/backend/test_cuda"
section 4 demo-golden-exact "$build/gossamer" verify models/demo --backend cuda --precision exact
section 4 demo-golden-fast "$build/gossamer" verify models/demo --backend cuda --precision fast
section 4 demo-cpu-exact "$build/gossamer" verify models/demo --backend cuda --against cpu:exact
for golden in tests/golden/data/*.safetensors; do
    name=$(basename "$golden" .safetensors)
    [ -d "tests/golden/models/$name" ] || continue
    section 1 "golden-$name" "$build/gossamer" verify "tests/golden/models/$name" --backend cuda --golden "$golden"
done
if [ -n "${FULL:-}" ]; then
    section 4 full-size-cpu-exact "$build/gossamer" verify "$model" --backend cuda --against cpu:exact -n 16
fi

# The controls are the CPU backend's. Each must fail a check: exit code 1, where 2 would be a command that is wrong.
for control in sinks window yarn scale-minus-one; do
    "$build/gossamer" verify models/demo --kill "$control" --backend cpu >"$logs/control-$control.log" 2>&1
    code=$?
    if [ $code -eq 1 ]; then
        echo "-- control $control: pass (it was noticed)"
    else
        echo "-- control $control: FAIL (exit code $code, must be 1)"
        failed=1
    fi
done

if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
        for precision in exact fast; do
            section 2 "sanitizer-$tool-$precision" compute-sanitizer --tool "$tool" --error-exitcode 9 \
                "$build/gossamer" run models/demo --backend cuda --precision "$precision" --raw \
                -p "The capital of France is" --temp 0 -n 3
        done
    done
else
    echo "-- sanitizer: not run (compute-sanitizer is not here)"
fi

# In fast precision bench_cuda prints its distance from exact first, layer by layer.
section 40 figures-fast "$build/bench/bench_cuda" "$model" fast native 5 128,8192,32768,130000
section 40 figures-fast-q8 "$build/bench/bench_cuda" "$model" fast q8 5 128
section 40 figures-exact "$build/bench/bench_cuda" "$model" exact native 3 128 512,1024 2,8
for gate in bench/campaign/cuda-20b-*.txt; do
    section 4 "gate-$(basename "$gate" .txt)" "$build/gossamer" bench --gate "$gate" "$model"
done
if [ -n "$large" ]; then
    section 40 figures-120b "$build/bench/bench_cuda" "$large" fast native 3 128 2048 8
    section 4 gate-cuda-120b-decode "$build/gossamer" bench --gate bench/campaign/cuda-120b-decode.txt "$large"
fi

echo "logs: $logs"
[ $failed -eq 0 ] && echo "all sections pass"
exit $failed
