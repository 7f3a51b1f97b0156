#!/usr/bin/env python3
"""Where a token's time on a GPU goes: a bar for each stage, and what of it its bytes need, as SVG.

    stages.py -o chart.svg STAGES.json [--title TEXT]

STAGES.json is from bench/campaign/stages.py. The dark part of a bar is the time in which the device's measured
read bandwidth delivers the bytes that the stage read; the light part is everything else.
"""
import argparse
import json
from xml.sax.saxutils import escape

import chart

BAR, GAP, TOP, LEFT, RIGHT = 30, 16, 84, 150, 215
DARK, LIGHT = "#1f5fa8", "#b9d0ea"


def text(x, y, words, size=12, anchor="start", colour="#222", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}" '
            f'font-weight="{weight}">{escape(words)}</text>')


def bar(x, y, width, colour):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{BAR}" fill="{colour}"/>'


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--title", default="A generated token by stage")
    arguments = parser.parse_args()
    with open(arguments.results, encoding="utf-8") as file:
        document = json.load(file)
    rows, rate = document["rows"], document["read_gb_per_second"]
    longest = max(row["microseconds_per_token"] for row in rows)
    axis = chart.Axis(0, longest * 1.02, LEFT, chart.WIDTH - RIGHT, False)
    end = TOP + len(rows) * (BAR + GAP)
    total = sum(row["microseconds_per_token"] for row in rows)
    parts = [
        text(20, 26, arguments.title, 17, weight="bold"),
        text(20, 46, f'{document["model"]}; each stage alone by ncu, cold caches; {rate:,.0f} GB/s read = 100 %', 11.5,
             colour="#555"),
        f'<rect x="20" y="57" width="12" height="12" fill="{DARK}"/>',
        text(38, 67, "what the bytes need at the read bandwidth", 11.5),
        f'<rect x="290" y="57" width="12" height="12" fill="{LIGHT}"/>', text(308, 67, "the rest", 11.5),
    ]
    for value in axis.ticks():
        parts.append(f'<line x1="{axis.at(value):.1f}" y1="{TOP - 6}" x2="{axis.at(value):.1f}" y2="{end}" '
                     f'stroke="#e6e6e6"/>')
        parts.append(text(axis.at(value), end + 16, chart.number(value), anchor="middle"))
    parts.append(text((LEFT + chart.WIDTH - RIGHT) / 2, end + 38, "microseconds a token, all layers", anchor="middle"))
    for index, row in enumerate(rows):
        y, time, size = TOP + index * (BAR + GAP), row["microseconds_per_token"], row["bytes_per_token"]
        needed = size / rate * 1e-3
        parts += [
            text(LEFT - 10, y + BAR / 2 + 4, row["name"], anchor="end"),
            bar(LEFT, y, axis.at(time) - LEFT, LIGHT), bar(LEFT, y, axis.at(needed) - LEFT, DARK),
            text(chart.WIDTH - RIGHT + 12, y + BAR / 2 - 2, f"{time:.0f} us, {100 * time / total:.0f} % of the token"),
            text(chart.WIDTH - RIGHT + 12, y + BAR / 2 + 13,
                 f"{size / 1e6:,.0f} MB at {100 * needed / time:.0f} % of the read", 11.5, colour="#666"),
        ]
    height = end + 54
    body = "\n".join(parts)
    with open(arguments.output, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {chart.WIDTH} {height}" '
                   f'width="{chart.WIDTH}" height="{height}" font-family="Helvetica, Arial, sans-serif">\n'
                   f'<rect width="{chart.WIDTH}" height="{height}" fill="white"/>\n{body}\n</svg>\n')


if __name__ == "__main__":
    main()
