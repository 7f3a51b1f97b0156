#!/bin/sh
# The CUDA backend's proof and its figures on the machine at hand, in one go of a few minutes.
#
#   bench/campaign/cuda.sh [BUILD] [MODEL]      BUILD: where make put its products (build)
#                                               MODEL: a folder for the synthetic 20b (/dev/shm/gossamer-20b); it is
#                                               written there if it is not there yet
#
# Sections, each ending in "pass" or "FAIL": the backend's tests; verify against the golden of transformers and
# against the exact CPU backend, in both precisions; the same bits on every run, alone and in a batch, step by
# step and chained (bench_cuda and the tests); compute-sanitizer where it is; then the figures. Exit code 1 if
# anything failed. What a section printed is kept in $LOGS (default: a new folder under /tmp).
set -u
cd "$(dirname "$0")/../.."
build=${1:-build}
model=${2:-/dev/shm/gossamer-20b}
python=${PYTHON:-python3}
logs=${LOGS:-$(mktemp -d /tmp/gossamer-cuda.XXXXXX)}
failed=0

# section NAME COMMAND...: runs it, shows the end of what it says, and the outcome.
section() {
    name=$1
    shift
    echo "== $name"
    if "$@" >"$logs/$name.log" 2>&1; then outcome=pass; else outcome=FAIL failed=1; fi
    tail -n "${SHOW:-4}" "$logs/$name.log"
    echo "-- $name: $outcome"
}

nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm --format=csv,noheader || exit 1
if [ ! -f "$model/config.json" ]; then
    section checkpoint "$python" tools/synth/make_checkpoint.py "$model" --scale 20b
fi

section tests "$build/tests/backend/test_cuda"
section demo-golden-exact "$build/gossamer" verify models/demo --backend cuda --precision exact
section demo-golden-fast "$build/gossamer" verify models/demo --backend cuda --precision fast
section demo-cpu-exact "$build/gossamer" verify models/demo --backend cuda --against cpu:exact
for golden in tests/golden/data/*.safetensors; do
    name=$(basename "$golden" .safetensors)
    [ -d "tests/golden/models/$name" ] || continue
    SHOW=1 section "golden-$name" "$build/gossamer" verify "tests/golden/models/$name" --backend cuda \
        --golden "$golden"
done

# The controls must fail; they are the CPU backend's, and the reference they are measured against is CUDA.
for control in sinks window yarn scale-minus-one; do
    echo "== control $control"
    if "$build/gossamer" verify models/demo --kill "$control" --backend cpu >"$logs/control-$control.log" 2>&1
    then echo "-- control $control: FAIL (it passed)"; failed=1
    else echo "-- control $control: pass (it was noticed)"; fi
done

if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
        for precision in exact fast; do
            SHOW=2 section "sanitizer-$tool-$precision" compute-sanitizer --tool "$tool" --error-exitcode 9 \
                "$build/gossamer" run models/demo --backend cuda --precision "$precision" --raw \
                -p "The capital of France is" --temp 0 -n 3
        done
    done
fi

# bench_cuda compares every run with exact precision first, layer by layer.
SHOW=40 section figures-fast "$build/bench/bench_cuda" "$model" fast native 5 128,8192,32768,130000
SHOW=40 section figures-fast-q8 "$build/bench/bench_cuda" "$model" fast q8 5 128
SHOW=40 section figures-exact "$build/bench/bench_cuda" "$model" exact native 3 128 512,1024 2,8

echo "logs: $logs"
[ $failed -eq 0 ] && echo "all sections pass"
exit $failed
