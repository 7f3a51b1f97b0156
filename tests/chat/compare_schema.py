"""Structured output against the `jsonschema` package.

    compare_schema.py --driver DRIVER --tokenizer FILE [--random N] [--seed S] [--suite DIR] [--table]

Every schema (the list in schema_cases.py, N random ones, and the official suite's where DIR holds its
draft2020-12 folder) is compiled; texts are generated through the token masks by a source that wants junk, and
each must be valid JSON and valid against the schema. An instance that the suite calls invalid must never be
accepted; a valid one in canonical form must be, unless it is of a kind that is left out on purpose.
Exit status 0: all of that holds.
"""

import argparse
import collections
import json
import pathlib
import random
import re
import subprocess
import sys

import jsonschema

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import schema_cases  # noqa: E402

FORMATS = jsonschema.Draft202012Validator.FORMAT_CHECKER


class Driver:
    def __init__(self, path, tokenizer):
        self.process = subprocess.Popen([path, tokenizer], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, schema, instances=(), samples=0, seed=0):
        texts = [json.dumps(i, ensure_ascii=False, separators=(",", ":")) for i in instances]
        request = {"schema": schema, "instances": texts, "samples": samples, "seed": seed}
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the driver died at {json.dumps(schema)[:500]}")
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        return self.process.wait()


class Faults:
    def __init__(self):
        self.count = self.starved = self.ended = 0

    def add(self, what, schema, detail):
        self.count += 1
        if self.count <= 20:
            print(f"FAULT {what}: {str(detail)[:400]}\n    schema {json.dumps(schema)[:600]}")


def no_duplicates(pairs):
    return dict(pairs)


def check_samples(schema, reply, faults):
    """All texts must parse and satisfy the schema; returns how many there were."""
    older = isinstance(schema, dict) and isinstance(schema.get("items"), list)
    draft = jsonschema.Draft201909Validator if older else jsonschema.Draft202012Validator
    validator = draft(schema, format_checker=FORMATS)
    if reply["fault"]:
        faults.add("the masks", schema, reply)
    for text in reply["samples"]:
        if text is None:  # the source, which knows nothing of the schema, did not hit on an end
            faults.starved += 1
            continue
        faults.ended += 1
        try:
            value = json.loads(text, object_pairs_hook=no_duplicates)
        except ValueError as error:
            faults.add(f"no JSON ({error})", schema, text)
            continue
        try:
            error = next(iter(validator.iter_errors(value)), None)
        except re.error:  # a pattern of ECMA's that Python does not read
            continue
        if error:
            faults.add(f"invalid ({error.message[:200]})", schema, text)
    return len(reply["samples"])


def run_cases(driver, faults, samples):
    n_texts = 0
    for number, case in enumerate(schema_cases.CASES):
        schema = case["schema"]
        reply = driver.ask(schema, case.get("valid", []) + case.get("invalid", []), samples, number)
        wanted = case.get("status", "ok")
        if reply["status"] != wanted:
            faults.add(f"status {reply['status']} instead of {wanted}", schema, reply["message"])
            continue
        keywords = sorted({u[0] for u in reply["unsupported"]})
        if keywords != sorted(case.get("unsupported", [])):
            faults.add(f"unsupported {keywords}", schema, reply)
        accepted = reply["accepts"]
        valid = case.get("valid", [])
        for instance, yes in zip(valid, accepted):
            if not yes:
                faults.add("a valid instance was refused", schema, json.dumps(instance))
        for instance, yes in zip(case.get("invalid", []), accepted[len(valid):]):
            if yes:
                faults.add("an invalid instance was accepted", schema, json.dumps(instance))
        if not keywords and wanted == "ok":
            n_texts += check_samples(case.get("same_as", schema), reply, faults)
    print(f"{len(schema_cases.CASES)} listed schemas: {n_texts} texts generated and validated")


def run_random(driver, faults, count, samples, seed):
    n_texts = n_ok = 0
    rng = random.Random(seed)
    statuses = collections.Counter()
    for number in range(count):
        schema = schema_cases.random_schema(rng)
        reply = driver.ask(schema, [], samples, number)
        statuses[reply["status"]] += 1
        if reply["status"] == "malformed":
            faults.add("a good schema is called malformed", schema, reply["message"])
        if reply["status"] == "ok" and not reply["unsupported"]:
            n_ok += 1
            n_texts += check_samples(schema, reply, faults)
    print(f"{count} random schemas ({dict(statuses)}): {n_ok} fully enforced, "
          f"{n_texts} texts generated and validated")


def run_suite(driver, faults, folder, samples, table):
    rows = []
    files = sorted(folder.glob("*.json")) + sorted(folder.glob("optional/format/*.json"))
    for file in files:
        row = collections.Counter()
        for group in json.loads(file.read_text()):
            schema = group["schema"]
            tests = group["tests"]
            reply = driver.ask(schema, [t["data"] for t in tests], samples, 1)
            row["groups"] += 1
            row["tests"] += len(tests)
            if reply["status"] != "ok":
                row["refused"] += 1
                continue
            if reply["unsupported"]:
                row["reported"] += 1
                continue
            row["honoured"] += 1
            row["honoured tests"] += len(tests)
            for test, yes in zip(tests, reply["accepts"]):
                if yes and not test["valid"]:
                    faults.add(f"{file.name}: accepted, but {test['description']}", schema, test["data"])
                row["valid"] += test["valid"]
                row["accepted"] += test["valid"] and yes
            if "remote" not in file.name:
                row["texts"] += check_samples(schema, reply, faults)
        rows.append((str(file.relative_to(folder)), row))
    total = sum((row for _, row in rows), collections.Counter())
    if table:
        print("| file | groups | enforced | reported | refused | tests of enforced groups | valid ones accepted |")
        print("|---|---|---|---|---|---|---|")
        for name, row in rows + [("all", total)]:
            print(f"| {name} | {row['groups']} | {row['honoured']} | {row['reported']} | {row['refused']} "
                  f"| {row['honoured tests']} | {row['accepted']} of {row['valid']} |")
    print(f"official suite: {total['groups']} groups, {total['honoured']} enforced, {total['reported']} with "
          f"keywords reported, {total['refused']} refused; of {total['honoured tests']} tests no invalid "
          f"instance may be accepted; {total['accepted']} of {total['valid']} valid ones are; "
          f"{total['texts']} texts generated and validated")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--driver", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--random", type=int, default=300)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--suite", type=pathlib.Path)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    driver = Driver(options.driver, options.tokenizer)
    faults = Faults()
    run_cases(driver, faults, options.samples)
    run_random(driver, faults, options.random, options.samples, options.seed)
    if options.suite:
        run_suite(driver, faults, options.suite, 2, options.table)
    if driver.close() != 0:
        faults.add("the driver's exit status", {}, "not 0")
    if faults.starved > 0.01 * faults.ended:
        faults.add("texts without an end", {}, faults.starved)
    print(f"{faults.count} faults; {faults.ended} texts, {faults.starved} more without an end after 4,000 tokens")
    return 1 if faults.count else 0


if __name__ == "__main__":
    sys.exit(main())
