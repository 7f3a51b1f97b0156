#!/bin/sh
# The full-size proof: writes a synthetic checkpoint of the published 20b shape, lets transformers compute it in
# float32 and bfloat16, and has gossamer verify itself against both, with every control.
#
#   full_size.sh GOSSAMER FOLDER OUT [DEVICE] [options of make_checkpoint.py]
#
# FOLDER needs 15 GB. DEVICE is torch's: cuda (the default) needs 90 GB of its memory, cpu 100 GB of the machine's.
# Tables go to the folder OUT too.
set -eu
gossamer=$1 folder=$2 out=$3 device=${4:-cuda}
[ $# -lt 5 ] && shift $# || shift 4
here=$(dirname "$0")
mkdir -p "$folder" "$out"
at() { echo; echo "== $(date +%H:%M:%S) $*"; }

at synthetic checkpoint
python3 "$here/../synth/make_checkpoint.py" "$folder/model" --scale 20b "$@"
at transformers, float32
python3 "$here/make_golden.py" "$folder/model" "$folder/golden.safetensors" --device "$device" --length 140 --rows all
python3 "$here/../synth/describe.py" "$folder/golden.safetensors"
at transformers, bfloat16
python3 "$here/make_golden.py" "$folder/model" "$folder/golden-bf16.safetensors" --device "$device" --dtype bfloat16 \
    --tokens "$folder/golden.safetensors" --rows all
failed=0
verify() { # NAME ARGUMENT...
    name=$1
    shift
    at "verify: $name"
    "$gossamer" verify "$folder/model" "$@" >"$out/$name.txt" || failed=1
    cat "$out/$name.txt"
}
verify float32 --golden "$folder/golden.safetensors"
verify bfloat16 --golden "$folder/golden-bf16.safetensors"
at "verify: controls"
"$gossamer" verify "$folder/model" --golden "$folder/golden.safetensors" --controls >"$out/controls.txt" || failed=1
cat "$out/controls.txt"
at "done, failed: $failed"
exit $failed
