"""Axes, marks and labels of a chart as SVG text; standard library only. Used by roofline.py and frontier.py."""
import math
from xml.sax.saxutils import escape

COLOURS = ["#1f5fa8", "#c1521b", "#2f7d4f", "#7b4aa0", "#a08314", "#b03060", "#4a6a7a", "#5f5f5f"]
WIDTH, HEIGHT = 860, 520
LEFT, RIGHT, TOP, BOTTOM = 84, 270, 64, 78


class Axis:
    """Values to pixels, linear or logarithmic."""

    def __init__(self, least, most, start, end, logarithmic):
        self.least, self.most, self.start, self.end = least, most, start, end
        self.logarithmic = logarithmic

    def at(self, value):
        if self.logarithmic:
            share = math.log(value / self.least) / math.log(self.most / self.least)
        else:
            share = (value - self.least) / (self.most - self.least)
        return self.start + share * (self.end - self.start)

    def ticks(self):
        if self.logarithmic:
            powers = range(math.floor(math.log10(self.least)), math.ceil(math.log10(self.most)) + 1)
            values = [m * 10.0**p for p in powers for m in (1, 2, 5)]
        else:
            step = 10.0 ** math.floor(math.log10(self.most - self.least))
            while (self.most - self.least) / step < 4:
                step /= 2
            values = [self.least + i * step for i in range(int((self.most - self.least) / step) + 1)]
        return [v for v in values if self.least * 0.9999 <= v <= self.most * 1.0001]


def number(value):
    if value >= 1000 and value % 1000 == 0:
        return f"{value / 1000:g}k"
    return f"{value:.4g}"


class Chart:
    def __init__(self, title, subtitle, x_axis, y_axis, x_label, y_label):
        self.x, self.y, self.parts, self.legend = x_axis, y_axis, [], []
        self.text(LEFT, 26, title, size=17, weight="bold")
        self.text(LEFT, 46, subtitle, size=11.5, colour="#555")
        for value in x_axis.ticks():
            at = x_axis.at(value)
            self.line(at, y_axis.start, at, y_axis.end, "#e6e6e6")
            self.text(at, y_axis.start + 18, number(value), anchor="middle")
        for value in y_axis.ticks():
            at = y_axis.at(value)
            self.line(x_axis.start, at, x_axis.end, at, "#e6e6e6")
            self.text(x_axis.start - 8, at + 4, number(value), anchor="end")
        self.line(x_axis.start, y_axis.start, x_axis.end, y_axis.start, "#333")
        self.line(x_axis.start, y_axis.start, x_axis.start, y_axis.end, "#333")
        self.text((x_axis.start + x_axis.end) / 2, y_axis.start + 42, x_label, anchor="middle")
        self.parts.append(
            f'<text transform="translate(24 {(y_axis.start + y_axis.end) / 2:.1f}) rotate(-90)" '
            f'text-anchor="middle" font-size="12">{escape(y_label)}</text>'
        )

    def text(self, x, y, text, size=12, anchor="start", colour="#222", weight="normal"):
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}" '
            f'font-weight="{weight}">{escape(text)}</text>'
        )

    def line(self, x1, y1, x2, y2, colour, width=1.0, dash=""):
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
            f'stroke-width="{width}"{dashes}/>'
        )

    def point(self, x, y, least, most, colour, aside=0.0):
        """A dot with its smallest and largest value as a bar, moved aside by some pixels."""
        px = self.x.at(x) + aside
        top, bottom = self.y.at(most), self.y.at(least)
        self.line(px, bottom, px, top, colour, 1.5)
        self.line(px - 4, bottom, px + 4, bottom, colour, 1.5)
        self.line(px - 4, top, px + 4, top, colour, 1.5)
        self.parts.append(f'<circle cx="{px:.1f}" cy="{self.y.at(y):.1f}" r="4.5" fill="{colour}"/>')

    def path(self, points, colour, width=2.0, dash=""):
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        at = " ".join(f"{self.x.at(x):.1f},{self.y.at(y):.1f}" for x, y in points)
        self.parts.append(
            f'<polyline points="{at}" fill="none" stroke="{colour}" stroke-width="{width}"{dashes}/>'
        )

    def entry(self, lines, colour, dash=None):
        """A legend entry of one or more lines; dash None: a dot."""
        self.legend.append((lines, colour, dash))

    def svg(self):
        at, x = TOP + 8, WIDTH - RIGHT + 18
        for lines, colour, dash in self.legend:
            if dash is None:
                self.parts.append(f'<circle cx="{x + 7}" cy="{at - 4}" r="4.5" fill="{colour}"/>')
            else:
                self.line(x, at - 4, x + 15, at - 4, colour, 2, dash)
            for index, text in enumerate(lines):
                self.text(x + 22, at, text, size=11.5, colour="#222" if index == 0 else "#666")
                at += 15
            at += 7
        body = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
            f'height="{HEIGHT}" font-family="Helvetica, Arial, sans-serif">\n'
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n{body}\n</svg>\n'
        )


def plot_area(x_least, x_most, y_least, y_most, x_log, y_log):
    return (
        Axis(x_least, x_most, LEFT, WIDTH - RIGHT, x_log),
        Axis(y_least, y_most, HEIGHT - BOTTOM, TOP, y_log),
    )


def threads_text(count):
    return f"{count} thread" if count == 1 else f"{count} threads"


def machine_text(run):
    """The machine and the build of a run, in a line."""
    machine = run["machine"]
    kernels = f' ({run["isa"]})' if run["isa"] else ""  # a GPU's have no name
    return (
        f'{machine["processor"]}, {machine["processors"]} processors, {run["backend"]}{kernels}, '
        f'{run["when"][:10]}, load {machine["load_average"][0]:.1f}'
    )


def runs_of(document):
    """The bench reports in a file: itself, or the runs of a campaign."""
    return document["runs"] if document.get("kind") == "campaign" else [document]


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def merge_rows(runs, figure):
    """(name, threads) -> (first such row, median, min, max of the figure's medians over the runs)."""
    found = {}
    for run in runs:
        for row in run["rows"]:
            if figure in row:
                found.setdefault((row["name"], row["threads"]), []).append(row)
    merged = {}
    for key, rows in found.items():
        values = [row[figure] for row in rows]
        least = min(v["min"] for v in values) if len(rows) == 1 else min(v["median"] for v in values)
        most = max(v["max"] for v in values) if len(rows) == 1 else max(v["median"] for v in values)
        merged[key] = (rows[0], median([v["median"] for v in values]), least, most)
    return merged
