#!/bin/sh
# Formatting, length, links of documents and static analysis; make lint runs it after the check of the include order.
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

python3 tools/lint/lengths.py || bad=1
python3 tools/lint/documents.py || bad=1

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
