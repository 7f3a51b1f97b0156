#!/usr/bin/env python3
"""A roofline from the JSON of gossamer bench: multiplications a second over multiplications a byte of weights.

    roofline.py -o chart.svg RESULT.json ... [--peak GMACS --peak-label TEXT] [--rows REGEX]

Takes reports (bench --json) and campaigns (bench --gate --json), all of one machine. The slope is the read
bandwidth that the runs measured themselves. Bars go from the smallest to the largest value.
"""
import argparse
import json
import re

import chart


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--peak", type=float, help="arithmetic ceiling, in 10^9 multiplications a second "
                        "(default: the median that the rows' runs measured, if they did)")
    parser.add_argument("--peak-label", default="measured, on registers", help="where the ceiling comes from")
    parser.add_argument("--rows", default="", help="only rows whose \"NAME, N threads\" this finds")
    parser.add_argument("--title", default="Share of the machine")
    arguments = parser.parse_args()

    runs = [run for name in arguments.results for run in chart.runs_of(json.load(open(name, encoding="utf-8")))]
    rows = {key: found for key, found in chart.merge_rows(runs, "gmac_per_second").items()
            if re.search(arguments.rows, f"{key[0]}, {chart.threads_text(key[1])}")}
    if not rows:
        parser.error("no such row has gmac_per_second")
    bandwidths = [row["bandwidth_gb_per_second"] for run in runs for row in run["rows"]
                  if (row["name"], row["threads"]) in rows and row["bandwidth_gb_per_second"]]
    if not bandwidths:
        parser.error("no such row has a bandwidth beside it: bench measures the CPU's alone")
    bandwidth = chart.median(bandwidths)

    peaks = [row["peak_gmac_per_second"] for run in runs for row in run["rows"]
             if (row["name"], row["threads"]) in rows and row.get("peak_gmac_per_second")]
    if arguments.peak is None and peaks:
        arguments.peak = chart.median(peaks)

    intensities = {key: row["products"] / (row["bytes"] + row.get("kv_bytes", 0)) for key, (row, *_rest) in rows.items()}
    speeds = [v for _row, m, least, most in rows.values() for v in (least, most)]
    x_least, x_most = min(intensities.values()) / 2, max(max(intensities.values()) * 2, 4)
    roof_end = bandwidth * x_most if arguments.peak is None else arguments.peak
    y_least = min(speeds) / 2
    y_most = max(max(speeds), min(roof_end, bandwidth * x_most)) * 1.6
    x_axis, y_axis = chart.plot_area(x_least, x_most, y_least, y_most, True, True)
    picture = chart.Chart(
        arguments.title, chart.machine_text(runs[-1]), x_axis, y_axis,
        "multiplications for each byte of weights read", "10\u2079 multiplications a second",
    )
    knee = x_most if arguments.peak is None else min(arguments.peak / bandwidth, x_most)
    start = max(x_least, y_least / bandwidth)
    picture.path([(start, bandwidth * start), (min(knee, y_most / bandwidth), min(bandwidth * knee, y_most))],
                 "#333", 2)
    picture.entry([f"read bandwidth {bandwidth:.1f} GB/s", "median of what the runs measured"], "#333", "0")
    if arguments.peak is not None and knee < x_most:
        picture.path([(knee, arguments.peak), (x_most, arguments.peak)], "#333", 2, "6 4")
        picture.entry([f"{arguments.peak:.4g} \u00d7 10\u2079 a second", arguments.peak_label], "#333", "6 4")
    placed = {}
    for index, (key, (row, middle, least, most)) in enumerate(sorted(rows.items())):
        colour = chart.COLOURS[index % len(chart.COLOURS)]
        # Rows of one intensity stand side by side, or they would hide each other.
        column = round(x_axis.at(intensities[key]) / 12)
        placed[column] = placed.get(column, 0) + 1
        side = placed[column] // 2 * (1 if placed[column] % 2 else -1)  # 0, -1, 1, -2 ...
        picture.point(intensities[key], middle, least, most, colour, aside=14.0 * side)
        label = row["name"].replace("moe_", "").replace("_mxfp4_f32", "")
        speed = middle / intensities[key]
        picture.entry([label, f"{chart.threads_text(key[1])}, {speed:.2f} GB/s, {100 * speed / bandwidth:.0f} % of it"],
                      colour)
    with open(arguments.output, "w", encoding="utf-8") as file:
        file.write(picture.svg())


if __name__ == "__main__":
    main()
