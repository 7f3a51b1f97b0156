#!/usr/bin/env python3
"""Checks the one rule: includes point downward, and the two wings do not know each other.

A file may include from its own folder, from folders below it in its own wing, and from the trunk. Within a folder
headers form no circle. Also: only src/cli prints, exits or reads the environment.
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

HEADERS = [".h", ".cuh"]
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


def find_circle(includes, path, above):
    """The headers from one that is met again down to itself; None: there is no circle below `path`."""
    if path in above:
        return above[above.index(path) :] + [path]
    for target in includes.pop(path, []):  # a header is looked at once
        circle = find_circle(includes, target, above + [path])
        if circle:
            return circle
    return None


def check_circles(headers):
    """headers: path below src/ -> text."""
    includes = {
        path: [m.group(1) for m in map(INCLUDE.match, text.splitlines()) if m and m.group(1) in headers]
        for path, text in headers.items()
    }
    for path in sorted(headers):
        circle = find_circle(includes, path, [])
        if circle:
            yield f"src/{circle[0]}: includes itself: {' -> '.join(circle)}"


def main():
    findings = 0
    files = [path for path in (ROOT / "src").rglob("*") if path.suffix in HEADERS]
    headers = {str(path.relative_to(ROOT / "src")): path.read_text() for path in files}
    for message in check_circles(headers):
        print(message, file=sys.stderr)
        findings += 1
    for path in sorted((ROOT / "src").rglob("*.[ch]")):
        for number, message in check_file(path):
            print(f"{path.relative_to(ROOT)}:{number}: {message}", file=sys.stderr)
            findings += 1
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
