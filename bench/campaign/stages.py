"""The stages of a generated token from ncu's CSV, as JSON for tools/plot/stages.py.

    stages.py STAGES.csv OUT.json READ_GB_PER_SECOND [--model TEXT]

The CSV is that of `ncu --csv --metrics gpu__time_duration.sum,dram__bytes_read.sum` over one or more tokens of
the decode kernels. ncu runs each kernel by itself and with cold caches: times are of stages alone, without the
overlap of a captured graph.
"""
import argparse
import csv
import json
import re
import statistics

NAMES = {"qkv": "norm, QKV", "attention": "attention", "o": "output, router", "gate_up": "gate and up",
         "down": "down", "head": "head"}
UNITS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9,
         "nsecond": 1e-3, "usecond": 1.0, "msecond": 1e3}
TIME, BYTES = "gpu__time_duration.sum", "dram__bytes_read.sum"


def kernels_of(path):
    """(stage, microseconds, bytes) of each launch, in order."""
    with open(path, encoding="utf-8") as file:
        rows = list(csv.DictReader(line for line in file if line.startswith('"')))
    launches = {}
    for row in rows:
        launch = launches.setdefault(row["ID"], {"kernel": row["Kernel Name"]})
        launch[row["Metric Name"]] = float(row["Metric Value"].replace(",", "")) * UNITS[row["Metric Unit"]]
    for launch in launches.values():
        found = re.match(r"gs_decode_(\w+?)(_q8)?(\(|$)", launch["kernel"])
        if found and found[1] in NAMES:
            yield found[1], launch[TIME], launch[BYTES]


def main():
    """Converts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv")
    parser.add_argument("output")
    parser.add_argument("read", type=float, help="read bandwidth of the same device, GB/s")
    parser.add_argument("--model", default="synthetic gpt-oss-20b, native weights")
    arguments = parser.parse_args()
    stages = {}
    for stage, time, count in kernels_of(arguments.csv):
        stages.setdefault(stage, []).append((time, count))
    if "head" not in stages:
        parser.error(f"{arguments.csv} has no whole token of the decode kernels")
    n_token = len(stages["head"])
    rows = []
    for stage in (name for name in NAMES if name in stages):
        times, read = zip(*stages[stage])
        rows.append({
            "name": NAMES[stage],
            "kernel": f"gs_decode_{stage}",
            "launches_per_token": len(times) / n_token,
            "microseconds": {"median": statistics.median(times), "min": min(times), "max": max(times)},
            "microseconds_per_token": sum(times) / n_token,
            "bytes_per_token": sum(read) / n_token,
        })
    document = {"program": "ncu", "model": arguments.model, "read_gb_per_second": arguments.read, "tokens": n_token,
                "rows": rows}
    with open(arguments.output, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=2)
        file.write("\n")


if __name__ == "__main__":
    main()
