"""Writes the seeds of fuzz_schema: the schemas and patterns of tests/chat/schema_cases.py."""

import hashlib
import json
import pathlib
import sys

root = pathlib.Path(__file__).parent
sys.path.insert(0, str(root.parent / "chat"))
import schema_cases  # noqa: E402

SIZE_LIMIT = 2000  # bytes


def patterns(schema):
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        for value in schema.values():
            yield from patterns(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from patterns(value)


def main():
    folder = root / "corpus" / "schema"
    folder.mkdir(parents=True, exist_ok=True)
    seeds = [json.dumps(case["schema"]) for case in schema_cases.CASES]
    seeds += ["r" + pattern for case in schema_cases.CASES for pattern in patterns(case["schema"])]
    for seed in seeds:
        data = seed.encode()
        if len(data) <= SIZE_LIMIT:
            (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)


if __name__ == "__main__":
    main()
