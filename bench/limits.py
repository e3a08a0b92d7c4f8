#!/usr/bin/env python3
"""Draws what bench_limits printed, as an SVG: a bar a kernel and shape, as long as its share of the
roofline, grouped by network; the kernels that make up 90 % of a step's time.

    bench/bench_limits > limits.jsonl && bench/limits.py limits.jsonl > limits.svg
"""
import json
import sys
from xml.sax.saxutils import escape

LEFT, BAR, RIGHT, ROW, HEAD = 360, 420, 180, 18, 30  # pixels; BAR is the whole roofline
MOST = 1.25  # shares beyond are cut, and their number says so
COLOURS = {"forward": "#4477aa", "backward_data": "#ee6677", "backward_weight": "#228833"}
OTHER = "#999999"


def colour(op):
    return next((value for end, value in COLOURS.items() if op.endswith(end)), OTHER)


def text(x, y, words, more=""):
    return f'<text x="{x:.0f}" y="{y:.0f}" {more}>{escape(words)}</text>'


def most_of(lines):
    """The first lines whose shares make up 90 %."""
    kept, share = [], 0
    for line in sorted(lines, key=lambda line: -line["share"]):
        if share >= 0.9:
            break
        kept.append(line)
        share += line["share"]
    return kept


def bar(line, y):
    length = min(line["roof"], MOST) * BAR
    label = f'{line["op"]} {line["layer"]}'
    if line["calls"] > 1:
        label += f' and {line["calls"] - 1:.0f} more'
    yield text(LEFT - 8, y + 13, label, 'text-anchor="end"')
    yield (f'<rect x="{LEFT}" y="{y + 2}" width="{length:.1f}" height="{ROW - 4}" '
           f'fill="{colour(line["op"])}"/>')
    yield text(LEFT + length + 5, y + 13,
               f'{100 * line["roof"]:.0f} %, {100 * line["share"]:.0f} % of the time')


def axis(y, height):
    for share in (0, 0.25, 0.5, 0.75, 1):
        x = LEFT + share * BAR
        yield f'<line x1="{x}" y1="{y}" x2="{x}" y2="{y + height}" stroke="#dddddd"/>'
        yield text(x, y - 4, f"{100 * share:.0f} %", 'text-anchor="middle" fill="#666666"')


def picture(networks, machine):
    rows, y = [], 70
    top = y
    for name, lines in networks.items():
        step = lines[0]["ms"] * lines[0]["calls"] / lines[0]["share"]
        rows.append(text(12, y + 16, f"{name}: a step's kernels take {step:.1f} ms",
                         'font-weight="bold"'))
        y += HEAD - 8
        for line in most_of(lines):
            rows += bar(line, y)
            y += ROW
        y += 8
    width = LEFT + MOST * BAR + RIGHT
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{y + 10}" '
           'font-family="sans-serif" font-size="12">')
    yield '<rect width="100%" height="100%" fill="white"/>'
    yield text(12, 20, "Share of the roofline, training on one core", 'font-size="15"')
    yield text(12, 40, machine)
    x = LEFT
    for end, value in [*COLOURS.items(), ("other", OTHER)]:
        yield f'<rect x="{x}" y="{30}" width="10" height="10" fill="{value}"/>'
        yield text(x + 14, 40, end.replace("_", " "))
        x += 130
    yield from axis(top, y - top)
    yield from rows
    yield "</svg>"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    lines = [json.loads(line) for line in open(sys.argv[1])]
    peaks = {line["bench"]: line for line in lines if line["bench"] != "limits"}
    networks = {}
    for line in lines:
        if line["bench"] == "limits":
            networks.setdefault(line["network"], []).append(line)
    if not networks or "peak" not in peaks or "bandwidth" not in peaks:
        sys.exit(f"{sys.argv[1]}: not what bench_limits prints")
    print("\n".join(picture(networks, f'peak {peaks["peak"]["gflops"]:.0f} GFLOP/s, '
                            f'memory {peaks["bandwidth"]["gb_s"]:.0f} GB/s')))


main()
