"""What a program's recorded figures make of the campaign's predictions.

    judge.py RESULTS.json FILE.txt...

For the questions that are not put to `gossamer bench`: RESULTS is what the program named in the files' `command`
wrote. Prints the line that `gossamer bench --gate` would: predicted, seen, outcome. Exit code 2 if a file or a
row is not there; an outcome, whatever it is, is no error.
"""
import json
import operator
import sys

OPERATORS = {">=": operator.ge, "<=": operator.le, "<": operator.lt, ">": operator.gt}
OUTCOMES = ("close-out", "strong", "continue")  # the first that holds


def read_question(path):
    """The file's keys (bench/campaign/README.md)."""
    question, last = {}, None
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith("#") or not line.strip():
                continue
            if line[0].isspace():
                question[last] += " " + line.strip()
            else:
                last, _, value = line.partition(":")
                question[last] = value.strip()
    return question


def figure_of(rows, name, key):
    """A row's figure: its median where it has one."""
    value = rows[name][key]
    return value["median"] if isinstance(value, dict) else value


def outcome_of(question, seen):
    """Which threshold holds."""
    for outcome in OUTCOMES:
        sign, limit = question[outcome].split()
        if OPERATORS[sign](seen, float(limit)):
            return outcome
    return "undecided"


def judge(question, rows):
    """Seen figure and outcome."""
    seen = figure_of(rows, question["row"], question["figure"])
    if "over" in question:
        seen /= figure_of(rows, question["over"], question["figure"])
    return seen, outcome_of(question, seen)


def main():
    """Judges every file."""
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        rows = {row["name"]: row for row in json.load(file)["rows"]}
    for path in sys.argv[2:]:
        try:
            question = read_question(path)
            seen, outcome = judge(question, rows)
        except (OSError, KeyError, ValueError) as error:
            print(f"{path}: {error!r}: a campaign file whose rows are all in {sys.argv[1]} is needed", file=sys.stderr)
            sys.exit(2)
        name = path.rsplit("/", 1)[-1].removesuffix(".txt")
        print(f"{name}: predicted {question['predicted']}, seen {seen:.4g}: {outcome}")


if __name__ == "__main__":
    main()
