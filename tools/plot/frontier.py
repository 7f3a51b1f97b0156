#!/usr/bin/env python3
"""A frontier chart from the JSON of gossamer bench: speed over the tokens already in the context.

    frontier.py -o chart.svg RESULT.json ... [--title TEXT] [--rows REGEX] [--bandwidth GB_PER_SECOND | --of-first]

A line for each kind of row (pp128, tg16 ...) and number of threads, its bars from the smallest to the largest
run. The runs need several depths: gossamer bench MODEL -n 16 -d 0,512,2048 --json. With --bandwidth a broken
line says what that bandwidth allows: it over the weights and keys and values that a token reads. --of-first takes
runs of bench --in-turn and shows the part of the first depth's speed instead, beside what the bytes alone allow.
"""
import argparse
import json
import re

import chart


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--title", default="Speed over context")
    parser.add_argument("--rows", default="", help="only rows whose name this finds")
    parser.add_argument("--bandwidth", type=float, help="of the device, where the runs measured the host's alone")
    parser.add_argument("--of-first", action="store_true", help="the part of the first depth's speed (--in-turn)")
    arguments = parser.parse_args()
    figure = "of_first_depth" if arguments.of_first else "tokens_per_second"

    runs = [run for name in arguments.results for run in chart.runs_of(json.load(open(name, encoding="utf-8")))]
    series, limits = {}, []
    for (name, threads), found in chart.merge_rows(runs, figure).items():
        if not re.search(arguments.rows, name):
            continue
        kind = name.split(" @ ")[0]
        if kind.startswith("pp") and len(found[0]["seconds"]) == 1:
            kind = "reading on"  # the steps of --frontier, each of its own size
        series.setdefault((kind, threads), []).append((found[0]["depth"], *found[1:]))
        if (arguments.bandwidth or arguments.of_first) and kind.startswith("tg"):
            read = found[0]["bytes_per_token"] + found[0]["kv_bytes_per_token"]
            limits.append((found[0]["depth"], 1e9 * (arguments.bandwidth or 1) / read))
    if not series:
        parser.error(f"no row has {figure}")
    if arguments.of_first:
        limits = [(depth, limit / min(limits)[1]) for depth, limit in limits]
    depths = [point[0] for points in series.values() for point in points]
    most = max([point[3] for points in series.values() for point in points] + [limit for _depth, limit in limits])
    x_axis, y_axis = chart.plot_area(0, max(max(depths), 1) * 1.04, 0, most * 1.12, False, False)
    picture = chart.Chart(
        arguments.title, chart.machine_text(runs[-1]), x_axis, y_axis, "tokens in the context before",
        "part of the first depth's speed" if arguments.of_first else "tokens a second",
    )
    for index, (key, points) in enumerate(sorted(series.items())):
        colour = chart.COLOURS[index % len(chart.COLOURS)]
        points.sort()
        picture.path([(depth, middle) for depth, middle, _least, _most in points], colour, 1.5)
        for depth, middle, least, largest in points:
            picture.point(depth, middle, least, largest, colour)
        ends = f"{points[0][1]:.3g} \u2192 {points[-1][1]:.3g}{'' if arguments.of_first else ' tokens/s'}"
        picture.entry([f"{key[0]}, {chart.threads_text(key[1])}", ends], colour)
    if limits:
        picture.path(sorted(limits), "#333", 1.5, "6 4")
        text = ["what a token's bytes allow"]
        if arguments.bandwidth:
            text = [f"{arguments.bandwidth:,.0f} GB/s", "over the bytes of a token"]
        picture.entry(text, "#333", "6 4")
    with open(arguments.output, "w", encoding="utf-8") as file:
        file.write(picture.svg())


if __name__ == "__main__":
    main()
