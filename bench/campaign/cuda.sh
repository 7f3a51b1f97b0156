#!/bin/sh
# The CUDA backend's proof and its figures on the machine at hand: under ten minutes in all.
#
#   [PART=proof|full|figures|large|peer] bench/campaign/cuda.sh [BUILD] [MODEL] [LARGE]
#       BUILD   where make puts its products (build), for this machine's device alone; BUILT=1: they came from another
#               machine, with the kernels' programs in BUILD/cuda-kernels, and nothing is compiled
#       MODEL   a folder for the synthetic 20b (/dev/shm/gossamer-20b); it is written there if it is not there yet
#       LARGE   a folder for the synthetic 120b, 65 GB (/dev/shm/gossamer-120b; "": none), likewise
#
# Without PART all of them. What is not timed runs side by side, what is timed runs alone:
#   proof    the backend's tests; verify against the goldens of transformers and against the exact CPU backend; the
#            controls, which must be noticed; the same bits on every run, alone and in a batch; what a killed run leaves
#            behind; bad input; compute-sanitizer on the demo model and on the tests of the batch and prefill kernels.
#   full     transformers computes the synthetic 20b on the same GPU, in float32 and in bfloat16 (about 90 GB of its
#            memory), and every component, then the final logits of prompts and of single steps, are held to it; and
#            all of its components to the exact CPU backend.
#   figures  speed: the kernels by themselves, bench_cuda, the campaign's predictions (*.txt), the 2 x 2 of submissions
#            and grids (bench_ceiling), the frontier of contexts, the time by stage where ncu is.
#   large    the same, shorter, of the 120b.
#   peer     llama.cpp beside it, 20b and 120b, where PEER names the folder of its llama-bench and llama-batched-bench.
#            Its files are made for it; the 120b's folder is removed for that, since memory does not hold both. It takes
#            100 s more than the rest leaves: PEER_SCALES=20b leaves it out.
#
# A section has a limit of seconds, and all of them together have BUDGET (480): what does not fit is not run, and says
# so. At the end a table: figure, must, aim, seen, outcome, out of the sections' JSON (cuda_table.py). Exit code 0: every
# section passed and every figure reached what it must; 1: not so; 2: a wrong argument, or no such device here. Logs and
# results: $LOGS (default: a new folder under /tmp). MAKE_ARGS: further arguments of make; PYTHON: the interpreter that
# has numpy, torch and transformers.
set -u
self=$0
[ "${self#/}" = "$self" ] && self=$PWD/$self
cd "$(dirname "$self")/../.." || exit 2
if [ -z "${CUDA_SH_SECTION:-}" ]; then # else: a section of this script, which has these from it
    build=${1:-build}
    model=${2:-/dev/shm/gossamer-20b}
    large=${3-/dev/shm/gossamer-120b}
    part=${PART:-all}
fi
python=${PYTHON:-python3}
kernels=$build/cuda-kernels
cores=$(nproc)

verify() {
    "$build/gossamer" verify "$@" --backend cuda
}

agree() {
    "$build/bench/bench_agree" "$@"
}

say() {
    "$build/gossamer" run models/demo --backend cuda --raw -p "The capital of France is" --temp 0 -n 200 "$@"
}

# ------------------------------------------------------------------ what is built

build_tree() {
    if [ -n "${BUILT:-}" ]; then
        ls "$build/gossamer" "$build/tests/backend/test_cuda" "$build/bench/bench_cuda" "$build/bench/bench_agree"
        return
    fi
    # shellcheck disable=SC2086 # several arguments
    make -j"$cores" BUILD="$build" CUDA=yes CUDA_ARCHS="$arch" HIP=no ${MAKE_ARGS:-} "$build/gossamer" \
        "$build/tests/backend/test_cuda" "$build/bench/bench_cuda" "$build/bench/bench_agree"
}

# Programs of single kernels, which make does not know: each source once, in parallel, then the links.
build_kernels() {
    if [ -n "${BUILT:-}" ]; then
        ls "$kernels/bench_ceiling" "$kernels/test_batch" "$kernels/test_prefill" "$kernels/test_decode" \
            "$kernels/bench_decode"
        return
    fi
    mkdir -p "$kernels" || return 1
    nvcc="nvcc -std=c++17 -O3 -gencode=arch=compute_$arch,code=sm_$arch -Isrc -Iinclude"
    gpu=src/backend/gpu
    ls $gpu/decode_*.cu $gpu/batch_*.cu $gpu/prefill_*.cu $gpu/simple.cu tests/gpu/test_batch_kernels.cu \
        tests/gpu/test_prefill_kernels.cu tests/gpu/test_decode_kernels.cu tests/gpu/bench_decode_kernels.cu |
        xargs -P "$cores" -I{} sh -c "$nvcc -c -o $kernels/\$(basename {} .cu).o {}" || return 1
    $nvcc -o "$kernels/bench_ceiling" bench/bench_ceiling.cu &
    o=$kernels
    $nvcc -o "$o/test_batch" "$o"/decode_relay.o "$o"/batch_*.o "$o"/simple.o "$o"/test_batch_kernels.o &
    $nvcc -o "$o/test_prefill" "$o"/prefill_*.o "$o"/test_prefill_kernels.o &
    $nvcc -o "$o/test_decode" "$o"/decode_*.o "$o"/test_decode_kernels.o &
    $nvcc -o "$o/bench_decode" "$o"/decode_*.o "$o"/bench_decode_kernels.o &
    wait
    ls "$o/bench_ceiling" "$o/test_batch" "$o/test_prefill" "$o/test_decode" "$o/bench_decode"
}

checkpoint() {
    "$python" tools/synth/make_checkpoint.py "$1" --scale "$2" --jobs "$cores"
}

# ------------------------------------------------------------------ proof

# control NAME BACKEND: must fail a check: exit code 1, where 2 would be a command that is wrong.
control() {
    "$build/gossamer" verify models/demo --kill "$1" --backend "$2"
    code=$?
    [ $code -eq 1 ] || { echo "exit code $code, must be 1"; return 1; }
}

controls() {
    for name in sinks window yarn yarn-rounded-bounds expert-bias nibble-order gate-up-order scale-minus-one; do
        section 20 1 "control-$name-cuda" control $name cuda
    done
    for name in router-softmax-before-topk swiglu-plus-one rope-pairs kv-ring-off-by-one; do
        section 20 1 "control-$name-cpu" control $name cpu # they change what only the CPU backend has in both ways
    done
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
    agree models/demo models/demo/golden.safetensors cuda exact 0 0.99999 || return 1
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

# sanitize TOOL PROGRAM...: of our kernels alone, since the tests' references are slow under it.
sanitize() {
    tool=$1
    shift
    compute-sanitizer --tool "$tool" --error-exitcode 9 --kernel-regex kns=gs_ "$@"
}

sanitizers() {
    if ! command -v compute-sanitizer >/dev/null; then
        skip sanitizer "compute-sanitizer is not here"
        return
    fi
    for tool in memcheck racecheck; do
        for precision in exact fast; do
            section 30 1 "$tool-demo-$precision" compute-sanitizer --tool $tool --error-exitcode 9 \
                "$build/gossamer" run models/demo --backend cuda --precision $precision --raw \
                -p "The capital of France is" --temp 0 -n 3
        done
    done
    section 20 1 memcheck-batch-kernels sanitize memcheck "$kernels/test_batch" small
    section 30 1 memcheck-prefill-kernels sanitize memcheck "$kernels/test_prefill" check small
    finish 1 racecheck-batch-kernels
    finish 1 racecheck-prefill-kernels
}

proof() {
    demo=models/demo/golden.safetensors
    finish 3 kernels-built
    if command -v compute-sanitizer >/dev/null; then
        # racecheck is slow: few rows, beside the rest
        aside 90 racecheck-batch-kernels sanitize racecheck "$kernels/test_batch" small 8 33
        aside 90 racecheck-prefill-kernels sanitize racecheck "$kernels/test_prefill" check tiny
    fi
    section 60 4 tests "$build/tests/backend/test_cuda"
    section 30 3 demo-golden-exact verify models/demo --precision exact
    grep mxfp4 "$logs/demo-golden-exact.log"
    section 30 3 demo-golden-fast verify models/demo --precision fast
    section 30 3 demo-cpu-exact verify models/demo --against cpu:exact
    section 30 5 demo-steps-exact agree models/demo $demo cuda exact 1 0.99999
    section 30 5 demo-prompt-exact agree models/demo $demo cuda exact 0 0.99999
    section 30 5 demo-steps-fast agree models/demo $demo cuda fast 1 0.9995
    section 30 5 demo-prompt-fast agree models/demo $demo cuda fast 0 0.9995
    for golden in tests/golden/data/*.safetensors; do
        name=$(basename "$golden" .safetensors)
        [ -d "tests/golden/models/$name" ] || continue
        section 20 1 "golden-$name" verify "tests/golden/models/$name" --golden "$golden"
    done
    section 20 1 repeats repeats
    section 30 2 kill survives_a_kill
    section 20 4 bad-input bad_input
    controls
    section 40 1 decode-kernels "$kernels/test_decode"
    section 40 1 batch-kernels "$kernels/test_batch"
    section 40 1 prefill-kernels "$kernels/test_prefill" check small
    sanitizers
}

# ------------------------------------------------------------------ full size

# Both goldens, one after the other: together they would not fit the device.
oracle() {
    make_golden="$python tools/oracle/make_golden.py"
    if [ ! -f "$model/golden.safetensors" ]; then
        $make_golden "$model" "$model/golden.safetensors" --device cuda --length 140 --rows all || return 1
    fi
    if [ ! -f "$model/golden-bf16.safetensors" ]; then
        $make_golden "$model" "$model/golden-bf16.safetensors" --device cuda --dtype bfloat16 \
            --tokens "$model/golden.safetensors" --rows all || return 1
    fi
    ls -l "$model/golden.safetensors" "$model/golden-bf16.safetensors"
}

full() {
    golden=$model/golden.safetensors
    finish 2 oracle
    section 40 5 full-steps-exact agree "$model" "$golden" cuda exact 1 0.99999
    section 40 5 full-prompt-exact agree "$model" "$golden" cuda exact 0 0.99999
    section 30 5 full-steps-fast agree "$model" "$golden" cuda fast 1 0.9995
    section 30 5 full-prompt-fast agree "$model" "$golden" cuda fast 0 0.9995
    section 30 4 full-prompt-bf16 agree "$model" "$model/golden-bf16.safetensors" cuda fast 0 0.995
    section 70 3 full-golden-exact verify "$model" --precision exact --golden "$golden"
    grep -E "mxfp4|logits" "$logs/full-golden-exact.log"
    finish 3 full-cpu-exact
    grep -E "mxfp4|logits" "$logs/full-cpu-exact.log"
}

# ------------------------------------------------------------------ figures

judge() {
    "$python" bench/campaign/judge.py "$@"
}

ceiling() {
    "$kernels/bench_ceiling" "$1" --json "$logs/ceiling-$1.json" &&
        judge "$logs/ceiling-$1.json" bench/campaign/ceiling-"$1"-*.txt
}

# A token's stages, each by itself (bench/campaign/stages.py, tools/plot/stages.py).
stages() {
    ncu --clock-control none --csv -c 121 -k 'regex:^gs_decode_(qkv|attention|o|gate_up|down|head)' \
        --metrics gpu__time_duration.sum,dram__bytes_read.sum --log-file "$logs/stages.csv" \
        "$build/gossamer" bench "$model" --backend cuda -p 0 -n 4 -r 1 || return 1
    read=$(sed -n 's/^100 % = \([0-9]*\) GB.*/\1/p' "$logs/ceiling-20b.log")
    "$python" bench/campaign/stages.py "$logs/stages.csv" "$logs/stages.json" "${read:-4500}"
}

# gate FILE MODEL: the campaign's file, by its own gate.
gate() {
    "$build/gossamer" bench --gate "bench/campaign/$1.txt" --json "$2" >"$logs/$1.json" || return 1
    "$python" bench/campaign/cuda_table.py --gate "$logs/$1.json"
}

# What a person sees: 700 tokens of run, the likeliest and drawn.
run_rates() {
    for temp in 0 1; do
        "$build/gossamer" run "$model" --backend cuda --raw -p "Once upon a time, " --ignore-stop --stats -n 700 --seed 5 \
            --temp $temp >/dev/null 2>"$logs/run-$temp.txt" || return 1
        echo "temperature $temp: $(grep -a 'tok/s' "$logs/run-$temp.txt" | tail -n 1)"
        grep -aq 'tok/s' "$logs/run-$temp.txt" || return 1
    done
}

# measured NAME ARGUMENTS...: a run of gossamer bench whose JSON is kept.
measured() {
    name=$1
    shift
    "$build/gossamer" bench "$@" --backend cuda --json >"$logs/$name.json" || return 1
    "$python" bench/campaign/cuda_table.py --rows "$logs/$name.json"
}

figures() {
    section 40 64 ceiling-20b ceiling 20b
    section 15 24 kernels-20b "$kernels/bench_decode" 20b 512
    section 15 24 kernels-20b-q8 "$kernels/bench_decode" 20b-q8 512
    # In fast precision bench_cuda prints its distance from exact first, layer by layer.
    section 80 44 speed-20b "$build/bench/bench_cuda" "$model" fast native 5 128,1000,8192,32768,130000 \
        512,1024,2048,8192 2,4,8,16,32,64,64@8192,64@32768 "$logs/speed-20b.json"
    section 40 14 speed-20b-q8 "$build/bench/bench_cuda" "$model" fast q8 5 128,32768 1024 8,64 "$logs/speed-20b-q8.json"
    section 20 2 run-20b run_rates
    section 40 6 cuda-20b-decode gate cuda-20b-decode "$model"
    section 40 6 cuda-20b-decode-32k gate cuda-20b-decode-32k "$model"
    section 40 6 cuda-20b-prefill-2048 gate cuda-20b-prefill-2048 "$model"
    section 40 6 cuda-20b-prefill-8192 gate cuda-20b-prefill-8192 "$model"
    section 15 24 kernels-120b "$kernels/bench_decode" 120b 512
}

# What the plots are drawn of: last, since a cut is least felt here.
plots() {
    if command -v ncu >/dev/null; then
        section 30 1 stages stages
    else
        skip stages "ncu is not here"
    fi
    section 40 9 frontier measured frontier "$model" --frontier 512:65536 -n 32 -r 3
    section 40 2 frontier-131k measured frontier-131k "$model" -p 0 -n 32 -d 131000 -r 3
}

large() {
    [ -n "$large" ] || return
    finish 1 checkpoint-120b
    section 40 20 ceiling-120b ceiling 120b
    section 40 12 speed-120b "$build/bench/bench_cuda" "$large" fast native 5 128 2048 8 "$logs/speed-120b.json"
    section 40 12 speed-120b-q8 "$build/bench/bench_cuda" "$large" fast q8 5 128 2048 8 "$logs/speed-120b-q8.json"
    section 75 6 cuda-120b-decode gate cuda-120b-decode "$large"
}

# ------------------------------------------------------------------ llama.cpp

# peer SCALE NAME OPTIONS...
peer_bench() {
    "$PEER/llama-bench" -m "/dev/shm/peer-$1.gguf" -ngl 99 -fa on -p 2048 -n 128 -d 0,32768 -r "$2" -o json \
        >"$logs/peer-$1.json" || return 1
    "$python" bench/campaign/cuda_table.py --peer "$logs/peer-$1.json"
}

peer_batches() {
    "$PEER/llama-batched-bench" -m /dev/shm/peer-20b.gguf -ngl 99 -fa on -c 20480 -b 2048 -ub 512 -npp 64 -ntg 128 \
        -npl 8,64 --output-format jsonl >"$logs/peer-batches.jsonl" || return 1
    grep '^{' "$logs/peer-batches.jsonl"
}

peer_file() {
    "$python" tools/synth/make_gguf.py "$1" "/dev/shm/peer-$2.gguf" --jobs "$cores"
}

peer() {
    if [ -z "${PEER:-}" ]; then
        skip peer "PEER names no folder"
        return
    fi
    section 60 1 peer-file-20b peer_file "$model" 20b
    section 60 6 peer-20b peer_bench 20b 5
    section 40 2 peer-20b-batches peer_batches
    rm -f /dev/shm/peer-20b.gguf
    case "$large ${PEER_SCALES:-20b 120b}" in
    /*120b)
        rm -rf "$large"
        section 120 1 peer-file-120b peer_file scale:120b 120b
        section 90 6 peer-120b peer_bench 120b 3
        section 60 4 beside-120b-q8 measured beside-120b-q8 /dev/shm/peer-120b.gguf -p 2048 -n 128 -d 0,32768 -r 3
        rm -f /dev/shm/peer-120b.gguf
        ;;
    esac
}

# Ours by gossamer bench, in the same sitting.
beside() {
    section 30 4 beside-20b measured beside-20b "$model" -p 2048 -n 128 -d 0,32768 -r 5
    section 30 4 beside-20b-q8 measured beside-20b-q8 "$model" --weights q8 -p 2048 -n 128 -d 0,32768 -r 5
}

# ------------------------------------------------------------------ sections

if [ -n "${CUDA_SH_SECTION:-}" ]; then # this script again, under timeout
    "$@"
    exit
fi

left() {
    echo $((began + ${BUDGET:-480} - $(date +%s)))
}

# note NAME OUTCOME SECONDS
note() {
    printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$logs/sections.tsv"
    [ "$2" = pass ] || failed=1
    echo "-- $1: $2, $3 s"
}

skip() {
    note "$1" "not run ($2)" 0
}

# limited LIMIT NAME COMMAND...: prints nothing; leaves the log, the exit code and the seconds.
limited() {
    limit=$1
    label=$2
    shift 2
    start=$(date +%s)
    CUDA_SH_SECTION=1 build=$build model=$model large=$large part=$part arch=$arch logs=$logs \
        timeout -k 3 "$limit" sh "$self" "$@" >"$logs/$label.log" 2>&1
    echo "$? $(($(date +%s) - start))" >"$logs/$label.code"
}

outcome_of() {
    case $1 in
    0) echo pass ;;
    124 | 137) echo "FAIL (cut after $2 s)" ;;
    *) echo "FAIL (exit code $1)" ;;
    esac
}

# section LIMIT LINES NAME COMMAND...: runs it, shows the last LINES lines of what it says, and the outcome.
section() {
    limit=$1
    lines=$2
    label=$3
    shift 3
    echo "== $label"
    rest=$(left)
    if [ "$rest" -le 2 ]; then
        skip "$label" "no time left"
        return
    fi
    [ "$limit" -gt "$rest" ] && limit=$rest
    limited "$limit" "$label" "$@"
    tail -n "$lines" "$logs/$label.log"
    read -r code seconds <"$logs/$label.code"
    note "$label" "$(outcome_of "$code" "$seconds")" "$seconds"
}

# aside LIMIT NAME COMMAND...: the same beside what follows, until `finish LINES NAME`.
aside() {
    limit=$1
    rest=$(left)
    [ "$limit" -gt "$rest" ] && limit=$rest
    [ "$limit" -ge 1 ] || limit=1
    shift
    limited "$limit" "$@" &
    echo "$1" >>"$logs/asides"
}

finish() {
    echo "== $2"
    grep -qx "$2" "$logs/asides" 2>/dev/null || { echo "-- $2: not begun"; return; }
    while [ ! -f "$logs/$2.code" ]; do sleep 0.2; done # its timeout ends it
    tail -n "$1" "$logs/$2.log"
    read -r code seconds <"$logs/$2.code"
    note "$2" "$(outcome_of "$code" "$seconds")" "$seconds"
}

# Until nothing runs beside any more.
settle() {
    while read -r label; do
        while [ ! -f "$logs/$label.code" ]; do sleep 0.2; done
    done <"$logs/asides"
}

# ------------------------------------------------------------------ all of it

wants() {
    [ "$part" = all ] || [ "$part" = "$1" ]
}

case $part in
all | proof | full | figures | large | peer) ;;
*) echo "PART is \"$part\": it must be proof, full, figures, large, peer or nothing" >&2; exit 2 ;;
esac
began=$(date +%s)
failed=0
logs=${LOGS:-$(mktemp -d /tmp/gossamer-cuda.XXXXXX)}
mkdir -p "$logs" || exit 2
if [ -f "$logs/sections.tsv" ]; then
    echo "LOGS is $logs, which holds another run: it must be a new folder" >&2
    exit 2
fi
: >"$logs/asides"
nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm --format=csv,noheader || exit 2
case $(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1) in
9.0) arch=90a ;;
*) arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .) ;;
esac

if [ "$part" != proof ] && [ "$part" != large ] && [ ! -f "$model/config.json" ]; then
    aside 150 checkpoint-20b checkpoint "$model" 20b
fi
if wants proof || wants figures || wants large; then
    aside 200 kernels-built build_kernels
fi
section 200 3 built build_tree
# The tests skip what needs a device: without one they would pass.
"$build/gossamer" --version | grep '^backend cuda' || { echo "the cuda backend does not work here" >&2; exit 2; }
if grep -q checkpoint-20b "$logs/asides"; then finish 1 checkpoint-20b; fi
if wants full; then
    aside 200 oracle oracle
    aside 150 full-cpu-exact verify "$model" --against cpu:exact -n 16
fi
if wants proof; then proof; fi
settle # figures want a quiet machine
if { wants figures || wants large; } && ! wants proof; then finish 3 kernels-built; fi
if wants figures; then figures; fi
if { wants full || wants large; } && [ -n "$large" ] && [ ! -f "$large/config.json" ]; then
    aside 150 checkpoint-120b checkpoint "$large" 120b
fi
if wants full; then full; fi
if wants large; then large; fi
if wants peer; then peer; fi
if wants figures; then plots; fi
if wants peer && [ -n "${PEER:-}" ]; then beside; fi
settle
"$python" bench/campaign/cuda_table.py "$logs" || failed=1
echo "$(($(date +%s) - began)) s in all; logs and results: $logs"
[ $failed -eq 0 ] && echo "all sections pass, all figures reach what they must"
exit $failed
