#!/usr/bin/env python3
"""A file of more than 800 lines is two ideas, a function of more than 80 several.

Looked at are C, Python and JavaScript files and the GPUs' kernels, and shell scripts, style sheets and pages as a whole.
A function of Python or JavaScript is taken without the functions and classes inside it. Generated tables are data.

usage: lengths.py            from the repository's root; exit status 1 if anything was found
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

MOST_OF_FILE, MOST_OF_FUNCTION = 800, 80
GENERATED = "unicode_tables.c"
C_LIKE = (".c", ".h", ".cc", ".cu", ".cuh", ".metal")
C_NAME = re.compile(r"\b(?!__|max_total)(\w+)\(")  # not an attribute's
JS_FUNCTION = re.compile(r"(\bfunction\b|=>|^\s+(?!\s|(if|for|while|switch|catch)\b)[\w ]+\([^;]*\)).*\{$")
JS_NAME = re.compile(r"\b(?!(export|default|async|function|const|let|static|get|set|return)\b)\w+")


def c_functions(lines):
    """(name, first line, lines) of each function, as clang-format lays them out: its braces alone in column 0."""
    for at, line in enumerate(lines):
        if line != "{":
            continue
        first = at
        while first > 0 and lines[first - 1] and lines[first - 1][0] not in "}#/" and lines[first - 1][-1] not in ";/":
            first -= 1
        name = C_NAME.search(" ".join(lines[first:at]))
        end = next((i for i in range(at, len(lines)) if lines[i].startswith("}")), len(lines) - 1)
        yield name.group(1) if name else "?", first + 1, end - first + 1


def python_functions(text):
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, kinds[:2]):
            inner = sum(child.end_lineno - child.lineno + 1 for child in node.body if isinstance(child, kinds))
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1 - inner


def javascript_functions(lines):
    """As c_functions, but without the functions inside. The first line ends in a brace, and the last begins with one
    as deep as the first line is."""
    found = []
    for at, line in enumerate(lines):
        if JS_FUNCTION.search(line):
            margin = line[:len(line) - len(line.lstrip())]
            end = next((i for i in range(at + 1, len(lines)) if lines[i].startswith(margin + "}")), len(lines) - 1)
            found.append((JS_NAME.search(line).group(), at, end))
    for name, first, last in found:
        inner, covered = 0, first
        for _, begin, end in found:
            if begin > covered and end < last:
                inner, covered = inner + end - begin + 1, end
        yield name, first + 1, last - first + 1 - inner


def functions_of(path, text, lines):
    if path.suffix == ".py":
        return python_functions(text)
    if path.suffix == ".js":
        return javascript_functions(lines)
    return c_functions(lines) if path.suffix in C_LIKE else ()


def faults_of(path):
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    if len(lines) > MOST_OF_FILE:
        yield f"{path}: {len(lines)} lines, at most {MOST_OF_FILE} are allowed"
    for name, first, count in functions_of(path, text, lines):
        if count > MOST_OF_FUNCTION:
            yield f"{path}:{first}: {name} has {count} lines, at most {MOST_OF_FUNCTION} are allowed"


def main():
    patterns = ["*.h", "*.js", "*.css", "*.html", "*.py", "*.sh", *(f"*{suffix}" for suffix in C_LIKE)]
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
                            check=True, capture_output=True, text=True).stdout.split()
    paths = [path for path in map(Path, listed) if path.exists() and path.name != GENERATED]
    faults = [fault for path in paths for fault in faults_of(path)]
    for fault in faults:
        print(f"lint: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
