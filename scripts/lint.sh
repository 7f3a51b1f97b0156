#!/bin/sh
# Formatting, length and static analysis; make lint runs it after the check of the include order.
set -u
cd "$(dirname "$0")/.."
bad=0
files=$(git ls-files --cached --others --exclude-standard 'src/*.[ch]' 'include/*.h' 'tests/*.[ch]' 'bench/*.[ch]')

if command -v clang-format >/dev/null; then
    # shellcheck disable=SC2086
    clang-format --dry-run --Werror $files || bad=1
else
    echo "lint: clang-format is missing (run scripts/setup.sh)" >&2
    bad=1
fi

# A file of 800 lines is two ideas; generated tables are data.
for file in $files $(git ls-files --cached --others --exclude-standard '*.py' '*.sh'); do
    case $file in *unicode_tables.c) continue ;; esac
    lines=$(wc -l <"$file")
    if [ "$lines" -gt 800 ]; then
        echo "lint: $file: $lines lines, at most 800 are allowed" >&2
        bad=1
    fi
done

if command -v cppcheck >/dev/null; then
    cppcheck --quiet --std=c11 --language=c --enable=warning,performance,portability --inline-suppr \
        --suppress=missingIncludeSystem --suppress=unknownMacro --error-exitcode=1 \
        -DGS_ISA=generic -D__x86_64__ -Iinclude -Isrc -j 2 src || bad=1
else
    echo "lint: cppcheck is missing (run scripts/setup.sh)" >&2
    bad=1
fi

if build/venv/bin/python -c 'import check_jsonschema' 2>/dev/null; then
    build/venv/bin/python -m check_jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml || bad=1
else
    echo "lint: workflow files are not checked: scripts/setup.sh --macos installs their schema"
fi

[ $bad -eq 0 ] && echo "lint: no findings"
exit $bad
