#!/bin/sh
# run-tests.sh BUILD TEST...: runs the test programs and counts their tests, one program after another, or TEST_JOBS of
# them side by side and told as they end. Prints a failing program's output whole; ends with
# "N passed, N failed, N skipped".
set -u

# run_one RESULTS BUILD PROGRAM: leaves "passed failed skipped" in a file of RESULTS.
run_one() {
    name=$(echo "$3" | tr / _)
    log=$1/$name.log
    began=$(date +%s)
    "$3" >"$log" 2>&1 </dev/null
    code=$?
    seconds=$(($(date +%s) - began))
    p=$(grep -c '^\[       OK \]' "$log")
    # cmocka names these again in its summary
    f=$(grep '^\[  FAILED  \] [A-Za-z_0-9]*$' "$log" | sort -u | wc -l)
    s=$(grep '^\[  SKIPPED \] [A-Za-z_0-9]*$' "$log" | sort -u | wc -l)
    if [ $code -ne 0 ] && [ "$f" -eq 0 ]; then
        f=1 # it crashed, or failed outside a test
    fi
    until mkdir "$1/telling" 2>/dev/null; do sleep 1; done # one tells at a time
    if [ $code -ne 0 ]; then
        echo "FAIL $3 (exit code $code)"
        cat "$log"
    else
        printf 'ok   %-40s %4d passed' "${3#"$2"/tests/}" "$p"
        [ "$s" -gt 0 ] && printf ', %d skipped' "$s"
        [ $seconds -ge 5 ] && printf ', %d s' $seconds
        echo
        grep '^  ' "$log" # a test's table, or why it was skipped
    fi
    rmdir "$1/telling"
    rm -f "$log"
    echo "$p $f $s" >"$1/$name.count"
}

if [ "$1" = --one ]; then # by this script itself, below
    run_one "$2" "$3" "$4"
    exit 0
fi

build=$1
shift
GOSSAMER=$build/gossamer
export GOSSAMER
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
trap 'exit 130' INT TERM
printf '%s\n' "$@" | xargs -P "${TEST_JOBS:-1}" -n 1 sh "$0" --one "$results" "$build"
# A program of which nothing was heard is one that failed.
cat "$results"/*.count 2>/dev/null | awk -v programs=$# '
    { passed += $1; failed += $2; skipped += $3 }
    END {
        failed += programs - NR
        printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
        exit failed > 0
    }'
