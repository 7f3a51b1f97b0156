#!/usr/bin/env python3
"""Checks the one rule: includes point downward, and the two wings do not know each other.

A file may include from its own folder, from folders below it in its own wing, and from the trunk. Also: only
src/cli prints, exits or reads the environment.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TRUNK = ["base", "format"]
SIDE = ["hub"]  # fetching models: stands on the trunk, known only to the top
WINGS = {"words": ["text", "chat"], "numbers": ["model", "backend", "engine"]}
TOP = ["server", "cli"]

ALLOWED = {}
for index, folder in enumerate(TRUNK):
    ALLOWED[folder] = TRUNK[: index + 1]
for wing in WINGS.values():
    for index, folder in enumerate(wing):
        ALLOWED[folder] = TRUNK + wing[: index + 1]
for folder in SIDE:
    ALLOWED[folder] = TRUNK + [folder]
for index, folder in enumerate(TOP):
    ALLOWED[folder] = TRUNK + SIDE + sum(WINGS.values(), []) + TOP[: index + 1]

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
FOR_CLI_ONLY = re.compile(r"\b(printf|puts|putchar|vprintf|perror|exit|_exit|abort|getenv)\s*\(")
COMMENT_OR_STRING = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\])*"', re.S)


def check_file(path):
    folder = path.relative_to(ROOT / "src").parts[0]
    if folder not in ALLOWED:
        yield 1, f"folder {folder} has no place in the house: {', '.join(ALLOWED)}"
        return
    text = path.read_text()
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match or match.group(1) == "gossamer.h":
            continue
        target = match.group(1)
        if not (ROOT / "src" / target).exists():
            yield number, f'"{target}" is not a path below src/'
        elif target.split("/")[0] not in ALLOWED[folder]:
            yield number, f"{folder} may not include {target}: only {', '.join(ALLOWED[folder])}"
    if folder == "cli":
        return
    code = COMMENT_OR_STRING.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)
    for number, line in enumerate(code.splitlines(), 1):
        match = FOR_CLI_ONLY.search(line)
        if match and not line.lstrip().startswith("#") and "format(printf" not in line:
            yield number, f"{match.group(1)}: only src/cli prints, exits or reads the environment"


def main():
    findings = 0
    for path in sorted((ROOT / "src").rglob("*.[ch]")):
        for number, message in check_file(path):
            print(f"{path.relative_to(ROOT)}:{number}: {message}", file=sys.stderr)
            findings += 1
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
