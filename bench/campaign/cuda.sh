#!/bin/sh
# The CUDA backend's proof and its figures on the machine at hand: under ten minutes in all.
#
#   PART=proof|full|figures bench/campaign/cuda.sh [BUILD] [MODEL] [LARGE]
#       BUILD   where make put its products (build)
#       MODEL   a folder for the synthetic 20b (/dev/shm/gossamer-20b); it is written there if it is not there yet
#       LARGE   a synthetic 120b, if there is one: its figures too
#
# Without PART all three, one after another:
#   proof    the backend's tests; verify against the goldens of transformers and against the exact CPU backend; the
#            controls, which must be noticed; the same bits on every run; what a killed run leaves behind;
#            compute-sanitizer where it is. The demo model and tiny ones: a minute and a half.
#   full     transformers computes the synthetic 20b on the same GPU, in float32 and in bfloat16 (about 90 GB of its
#            memory), and every component, then the final logits of prompts and of single steps, are held to it.
#   figures  speed: bench_cuda, the campaign's predictions, the 2 x 2 of submissions and grids (bench_ceiling), the
#            time by stage where ncu is.
# Each section ends in "pass" or "FAIL"; exit code 1 if one failed. What a section printed is kept in $LOGS
# (default: a new folder under /tmp), results in JSON too. FULL=1 adds to `full` the exact CPU backend, which takes
# as long as the processor does. CEILING names bench_ceiling where it is built already.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${1:-build}
model=${2:-/dev/shm/gossamer-20b}
large=${3:-}
part=${PART:-all}
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

# control NAME BACKEND: must fail a check: exit code 1, where 2 would be a command that is wrong.
control() {
    "$build/gossamer" verify models/demo --kill "$1" --backend "$2" >"$logs/control-$2-$1.log" 2>&1
    code=$?
    if [ $code -eq 1 ]; then
        echo "-- control $1 on $2: pass (it was noticed: $(grep 'checks FAILED' "$logs/control-$2-$1.log" | tail -n 1))"
    else
        echo "-- control $1 on $2: FAIL (exit code $code, must be 1)"
        failed=1
    fi
}

verify() {
    "$build/gossamer" verify "$@" --backend cuda
}

say() {
    "$build/gossamer" run models/demo --backend cuda --raw -p "The capital of France is" --temp 0 -n 200 "$@"
}

# The same text before and after a run that is killed while the device is at work.
survives_a_kill() {
    say >"$logs/before.txt" 2>/dev/null || return 1
    "$build/bench/bench_cuda" models/demo exact native 64 >"$logs/killed.log" 2>&1 &
    victim=$!
    sleep 2
    kill -9 $victim 2>/dev/null || { echo "it ended before it was killed: $(tail -n 1 "$logs/killed.log")"; return 1; }
    wait $victim
    echo "the killed run's exit code: $?"
    say >"$logs/after.txt" 2>/dev/null || return 1
    cmp "$logs/before.txt" "$logs/after.txt" || return 1
    "$build/bench/bench_agree" models/demo models/demo/golden.safetensors cuda exact 0 0.99999 || return 1
    echo "the same text and right logits after it"
}

# One line and exit code 2 where there is no such device, and where there is none; then auto takes the CPU.
bad_input() {
    for device in 99 hidden; do
        visible=${CUDA_VISIBLE_DEVICES:-0}
        number=0
        if [ $device = hidden ]; then visible=; else number=$device; fi
        CUDA_VISIBLE_DEVICES=$visible "$build/gossamer" run models/demo --backend cuda --device $number -p x -n 1 \
            >"$logs/bad.txt" 2>&1
        [ $? -eq 2 ] && [ "$(wc -l <"$logs/bad.txt")" -eq 1 ] || { cat "$logs/bad.txt"; return 1; }
        cat "$logs/bad.txt"
    done
    CUDA_VISIBLE_DEVICES= "$build/gossamer" run models/demo --backend auto -p x -n 1 >"$logs/auto.txt" 2>&1 || return 1
    cat "$logs/auto.txt"
}

repeats() {
    for precision in exact fast; do
        for run in 1 2; do say --precision $precision >"$logs/run-$run.txt" 2>/dev/null || return 1; done
        cmp "$logs/run-1.txt" "$logs/run-2.txt" || return 1
    done
    echo "the same text twice, exact and fast"
}

proof() {
    section 4 tests "$build/tests/backend/test_cuda"
    section 3 demo-golden-exact verify models/demo --precision exact
    grep mxfp4 "$logs/demo-golden-exact.log"
    section 3 demo-golden-fast verify models/demo --precision fast
    section 3 demo-cpu-exact verify models/demo --against cpu:exact
    for golden in tests/golden/data/*.safetensors; do
        name=$(basename "$golden" .safetensors)
        [ -d "tests/golden/models/$name" ] || continue
        section 1 "golden-$name" verify "tests/golden/models/$name" --golden "$golden"
    done
    demo=models/demo/golden.safetensors
    section 5 demo-prompt-fast "$build/bench/bench_agree" models/demo $demo cuda fast 0 0.9995
    section 5 demo-steps-fast "$build/bench/bench_agree" models/demo $demo cuda fast 1 0.9995
    section 5 demo-steps-exact "$build/bench/bench_agree" models/demo $demo cuda exact 1 0.99999
    for name in sinks window yarn yarn-rounded-bounds expert-bias nibble-order gate-up-order scale-minus-one; do
        control $name cuda
    done
    for name in router-softmax-before-topk swiglu-plus-one rope-pairs kv-ring-off-by-one; do
        control $name cpu # they change arithmetic that only the CPU backend has in both ways
    done
    section 1 repeats repeats
    section 2 kill survives_a_kill
    section 4 bad-input bad_input
    if command -v compute-sanitizer >/dev/null; then
        for tool in memcheck racecheck; do
            for precision in exact fast; do
                section 1 "sanitizer-$tool-$precision" compute-sanitizer --tool "$tool" --error-exitcode 9 \
                    "$build/gossamer" run models/demo --backend cuda --precision "$precision" --raw \
                    -p "The capital of France is" --temp 0 -n 3
            done
        done
    else
        echo "-- sanitizer: not run (compute-sanitizer is not here)"
    fi
}

full() {
    golden=$model/golden.safetensors
    rounded=$model/golden-bf16.safetensors
    oracle=tools/oracle/make_golden.py
    if [ ! -f "$golden" ]; then
        section 1 oracle-float32 "$python" $oracle "$model" "$golden" --device cuda --length 140 --rows all
    fi
    section 5 full-prompt-exact "$build/bench/bench_agree" "$model" "$golden" cuda exact 0 0.99999
    section 5 full-steps-fast "$build/bench/bench_agree" "$model" "$golden" cuda fast 1 0.9995
    section 5 full-prompt-fast "$build/bench/bench_agree" "$model" "$golden" cuda fast 0 0.9995
    section 3 full-golden-exact verify "$model" --precision exact --golden "$golden"
    grep -E "mxfp4|logits" "$logs/full-golden-exact.log"
    if [ ! -f "$rounded" ]; then
        section 1 oracle-bfloat16 "$python" $oracle "$model" "$rounded" --device cuda --dtype bfloat16 \
            --tokens "$golden" --rows all
    fi
    section 4 full-prompt-bf16 "$build/bench/bench_agree" "$model" "$rounded" cuda fast 0 0.995
    if [ -n "${FULL:-}" ]; then
        section 4 full-size-cpu-exact verify "$model" --against cpu:exact -n 16
    fi
}

judge() {
    "$python" bench/campaign/judge.py "$@"
}

ceiling() {
    program=${CEILING:-$logs/bench_ceiling}
    if [ ! -x "$program" ]; then
        nvcc -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a -Isrc -Iinclude -o "$program" \
            bench/bench_ceiling.cu || return 1
    fi
    "$program" "$1" --json "$logs/ceiling-$1.json" && judge "$logs/ceiling-$1.json" bench/campaign/ceiling-"$1"-*.txt
}

# A token's stages, each by itself (bench/campaign/stages.py, tools/plot/stages.py).
stages() {
    ncu --clock-control none --csv -c 121 -k 'regex:^gs_decode_(qkv|attention|o|gate_up|down|head)' \
        --metrics gpu__time_duration.sum,dram__bytes_read.sum --log-file "$logs/stages.csv" \
        "$build/gossamer" bench "$model" --backend cuda -p 0 -n 4 -r 1 || return 1
    read=$(sed -n 's/^100 % = \([0-9]*\) GB.*/\1/p' "$logs/ceiling-20b.log")
    "$python" bench/campaign/stages.py "$logs/stages.csv" "$logs/stages.json" "${read:-4500}"
}

figures() {
    section 64 ceiling-20b ceiling 20b
    # In fast precision bench_cuda prints its distance from exact first, layer by layer.
    section 18 figures-fast "$build/bench/bench_cuda" "$model" fast native 5 128,8192,32768,130000
    section 8 figures-fast-q8 "$build/bench/bench_cuda" "$model" fast q8 5 128
    for gate in bench/campaign/cuda-20b-*.txt; do
        section 4 "gate-$(basename "$gate" .txt)" "$build/gossamer" bench --gate "$gate" "$model"
    done
    if [ -n "$large" ]; then
        section 20 ceiling-120b ceiling 120b
        section 8 figures-120b "$build/bench/bench_cuda" "$large" fast native 5 128 2048 8
        section 8 figures-120b-q8 "$build/bench/bench_cuda" "$large" fast q8 5 128 2048 8
        section 4 gate-cuda-120b-decode "$build/gossamer" bench --gate bench/campaign/cuda-120b-decode.txt "$large"
    fi
    if command -v ncu >/dev/null; then
        section 1 stages stages
    fi
}

for program in gossamer tests/backend/test_cuda bench/bench_cuda bench/bench_agree; do
    [ -x "$build/$program" ] || { echo "$build/$program is not there: make $build/$program" >&2; exit 1; }
done
case $part in
all | proof | full | figures) ;;
*) echo "PART is \"$part\": it must be proof, full, figures or nothing" >&2; exit 2 ;;
esac
nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm --format=csv,noheader || exit 1
# The tests skip what needs a device: without one they would pass.
"$build/gossamer" --version | grep '^backend cuda' || { echo "the cuda backend does not work here" >&2; exit 1; }
if [ $part != proof ] && [ ! -f "$model/config.json" ]; then
    section 4 checkpoint "$python" tools/synth/make_checkpoint.py "$model" --scale 20b
fi
for name in proof full figures; do
    if [ $part = all ] || [ $part = $name ]; then $name; fi
done
echo "logs: $logs"
[ $failed -eq 0 ] && echo "all sections pass"
exit $failed
