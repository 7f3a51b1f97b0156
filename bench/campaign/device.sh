# What silicon.sh and rocm.sh share; they stand in the root when they read it.

# run_campaign PREDICTIONS RESULTS-BY-DEFAULT [BUILD] [MODEL] [RESULTS]
run_campaign() {
    predictions=bench/campaign/$1
    build=${3:-build}
    model=${4:-/tmp/gossamer-20b}
    results=${5:-$2}
    command -v python3 >/dev/null || { echo "campaign: python3 is not there" >&2; exit 2; }
    # Without the backend nothing is worth writing a model for.
    python3 bench/campaign/device.py --probe "$predictions" "$build" || exit $?
    if [ ! -e "$model" ]; then
        echo "campaign: $model is not there: writing a synthetic 20b, 13.8 GB"
        python3 tools/synth/make_checkpoint.py "$model" --scale 20b ||
            { echo "campaign: no model: gossamer pull openai/gpt-oss-20b, or make numpy known to python3" >&2; exit 2; }
    fi
    exec python3 bench/campaign/device.py "$predictions" "$build" "$model" "$results"
}
