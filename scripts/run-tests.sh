#!/bin/sh
# run-tests.sh BUILD TEST...: runs the test programs one after another and counts their tests.
# Prints a failing program's output whole; ends with "N passed, N failed, N skipped".
build=$1
shift
GOSSAMER=$build/gossamer
export GOSSAMER
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0 failed=0 skipped=0
for program in "$@"; do
    began=$(date +%s)
    "$program" >"$log" 2>&1 </dev/null
    code=$?
    seconds=$(($(date +%s) - began))
    p=$(grep -c '^\[       OK \]' "$log")
    # cmocka names these again in its summary
    f=$(grep '^\[  FAILED  \] [A-Za-z_0-9]*$' "$log" | sort -u | wc -l)
    s=$(grep '^\[  SKIPPED \] [A-Za-z_0-9]*$' "$log" | sort -u | wc -l)
    if [ $code -ne 0 ] && [ "$f" -eq 0 ]; then
        f=1 # it crashed, or failed outside a test
    fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    if [ $code -ne 0 ]; then
        echo "FAIL $program (exit code $code)"
        cat "$log"
    else
        printf 'ok   %-40s %4d passed' "${program#"$build"/tests/}" "$p"
        [ "$s" -gt 0 ] && printf ', %d skipped' "$s"
        [ $seconds -ge 5 ] && printf ', %d s' $seconds
        echo
        grep '^  ' "$log" # a test's table, or why it was skipped
    fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
