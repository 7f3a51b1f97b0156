#!/bin/sh
# instructions.sh [BUILD] [PART OF A KERNEL'S NAME]: how many instructions a call of each variant of each kernel is,
# by callgrind: the same on every run, whatever else the machine does. Needs valgrind, which knows no AVX-512: the
# variants up to AVX2 are counted. Columns as bench_kernels has them; then instructions, for a byte of weights (or of
# what is converted) and for a multiplication (or element).
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
folder=$(mktemp -d "${TMPDIR:-/tmp}/gossamer-instructions.XXXXXX")
trap 'rm -rf "$folder"' EXIT
command -v valgrind >/dev/null || { echo "instructions.sh: valgrind is not here" >&2; exit 2; }
[ -x "$build/bench/bench_kernels" ] || { echo "instructions.sh: make $build/bench/bench_kernels first" >&2; exit 2; }
if ! valgrind --tool=callgrind --toggle-collect=count_call --dump-after=count_call \
    --callgrind-out-file="$folder/out" "$build/bench/bench_kernels" --count "${2:-}" \
    >"$folder/calls" 2>"$folder/said"; then
    tail -n 3 "$folder/said" >&2
    exit 1
fi
printf '  %-22s %5s %5s %5s  %-11s %12s %8s %8s\n' kernel n rows with variant instructions /byte /op
call=0
tab=$(printf '\t')
while IFS=$tab read -r name n rows with variant bytes products; do
    call=$((call + 1))
    counted=$(sed -n 's/^totals: //p' "$folder/out.$call")
    printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$name" "$n" "$rows" "$with" "$variant" "$counted" "$bytes" "$products"
done <"$folder/calls" | awk -F '\t' '{ printf "  %-22s %5s %5s %5s  %-11s %12d %8.3f %8.4f\n", $1, $2, $3, $4, $5, $6, $6 / $7, $6 / $8 }'
