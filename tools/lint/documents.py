#!/usr/bin/env python3
"""Documents: every relative link leads to a file, and to a heading of it; docs/README.md names every document.

usage: documents.py            from the repository's root; exit status 1 if anything was found
"""

import re
import subprocess
import sys
from pathlib import Path

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
INDEX = Path("docs/README.md")


def without_code(text):
    """The text without fenced and indented blocks and without spans of code, in which brackets are no links."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    text = re.sub(r"^    .*$", "", text, flags=re.M)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(text):
    """The anchors that a heading gets where documents are shown: lower case, no punctuation, dashes for blanks."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    found = set()
    for heading in re.findall(r"^#+ +(.*?) *$", text, flags=re.M):
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number = 0
        while (name := f"{anchor}-{number}" if number else anchor) in found:
            number += 1
        found.add(name)
    return found


def faults_of(document):
    for target in LINK.findall(without_code(document.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = document.parent / name if name else document
        if not path.exists():
            yield f"{document}: {target} leads to no file"
        elif anchor and path.suffix == ".md" and anchor not in anchors(path.read_text(encoding="utf-8")):
            yield f"{document}: {target} leads to no heading of {path}"


def main():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
                            check=True, capture_output=True, text=True).stdout.split()
    documents = [path for path in map(Path, listed) if path.exists()]
    faults = [fault for document in documents for fault in faults_of(document)]
    named = set(LINK.findall(INDEX.read_text(encoding="utf-8"))) if INDEX.exists() else set()
    faults += [f"{INDEX} does not name {document.name}" for document in documents
               if document.parent == INDEX.parent and document != INDEX and document.name not in named]
    for fault in faults:
        print(f"lint: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
