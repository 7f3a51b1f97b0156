#!/bin/sh
# run-bench.sh BUILD: the benchmarks that need no large model. Beside tiktoken where build/venv has it.
set -eu
cd "$(dirname "$0")/.."
build=$1
machine=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1)
echo "machine: ${machine:-$(uname -m)}, $(getconf _NPROCESSORS_ONLN) processors, $(uname -s)"
if [ -f build/o200k/tokenizer.json ] && build/venv/bin/python -c 'import tiktoken' 2>/dev/null; then
    build/venv/bin/python bench/tokenizer_vs_tiktoken.py --bench "$build/bench/bench_tokenizer"
else
    "$build/bench/bench_tokenizer"
fi
for program in "$build"/bench/bench_*; do
    case $program in *.o | *.d | */bench_tokenizer) continue ;; esac
    echo
    "$program"
done
