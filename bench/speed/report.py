"""The rows of `bench/speed/gpu.py` as text: a line for each, geometric means by group, the tables of
docs/figures.md, and a plot.

python bench/speed/report.py out.json … [--markdown | --page docs/figures.md] [--plot docs/speed.svg]
"""

from __future__ import annotations

import argparse
import html
import json
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
"""`group`, `shape`, `us`, `error`, `rate` (GB/s or GFLOP/s), `unit`, `right`, `peers` (microseconds by name)
and their `errors`; where memory is the limit `bytes`, and from LARGE on `copy`, the microseconds of a device
copy that moves as many."""

LARGE = 256e6
"""Bytes from which on a kernel is compared with the device's copy."""
_SQUARE = [
    f"{size} {dtype}{order}"
    for size, dtype in (
        ("4096x4096x4096", "float16"),
        ("8192x8192x8192", "float16"),
        ("1024x1024x1024", "float16"),
        ("8192x8192x8192", "bfloat16"),
        ("4096x4096x4096", "float32"),
        ("16x8192x8192", "float16"),
        ("4096x14336x4096", "bfloat16"),
    )
    for order in ("", " B^T")
]
_ROWS = [
    "4096x1000 float16",
    "4096x4096 float16",
    "8192x8192 float16",
    "4096x32768 bfloat16",
    "4096x4096 float32",
]
_HEADS = [
    "Z1 H32 N2048 D128",
    "Z1 H32 N4096 D128",
    "Z16 H12 N512 D64",
    "Z4 H16 N8192 D64",
    "Z2 H16 N8192 D128",
    "Z1 H16 N16384 D128",
]
TARGETS = {
    "add": {"float32 n=2^26"},
    "sum": {"float32 n=2^26, two launches"},
    "softmax": set(_ROWS),
    "layer_norm": set(_ROWS),
    "launch": {"vector_add, host time of a call"},
    "matmul": {
        *_SQUARE,
        "8192x8192x512 float16 B^T",
        "8192x8192x8192 float8_e4m3fn B^T",
        "4096x4096x4096 float16 B^T, persistent",
        "8192x8192x8192 float16 B^T, persistent",
    },
    "attention": {f"{heads} {mask} float16" for heads in _HEADS for mask in ("full", "causal")},
}
"""The rows that figures of the peers had been taken of before there was a compiler: those that it has to win.
All others were chosen later."""
_TABLES = re.compile(r"^\| kernel \|.*\n(\|.*\n)+\n\| geometric mean of .*\n(\|.*\n)+", re.MULTILINE)
_COLOURS = {"triton": "#3b7dd8", "cublas": "#2e9e5b", "cudnn": "#2e9e5b", "torch": "#b0b0b0"}


def main() -> None:
    """Print the table of a run, which may have been made in parts, and draw its plot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("json", type=Path, nargs="+")
    parser.add_argument("--markdown", action="store_true", help="as docs/figures.md has it")
    parser.add_argument("--page", type=Path, help="put both tables in place of those in this page")
    parser.add_argument("--plot", type=Path, help="write an SVG here")
    options = parser.parse_args()
    runs = [json.loads(file.read_text()) for file in options.json]
    rows = [row for run in runs for row in run["rows"]]
    if options.page:
        text, count = _TABLES.subn(lambda _: markdown(rows) + "\n", options.page.read_text())
        if count != 1:
            parser.error(f"{options.page} has the two tables {count} times")
        options.page.write_text(text)
    else:
        print(markdown(rows) if options.markdown else render(rows))
    if options.plot:
        options.plot.write_text(plot(rows, runs[0]["device"]))


def line_of(row: Row, copy: float = 0.0) -> str:
    """One row; (1.20x) means that the peer takes 1.2 times as long.  `copy` is the highest rate of a device
    copy, if known."""
    errors = {name: f" err {error:.2e}" for name, error in row["errors"].items()}
    peers = "  ".join(
        f"{name} {us:9.2f} us ({us / row['us']:.2f}x){errors.get(name, '')}"
        for name, us in row["peers"].items()
    )
    mark = "" if row["right"] else "  WRONG"
    share = f"  {row['copy'] / row['us']:.2f} of copy" if "copy" in row else ""
    if share and copy:
        share += f" ({row['rate'] / copy:.2f} of its highest rate)"
    ours = f"{row['group']:10} {starred(row):38} {row['us']:9.2f} us {rate_of(row):8.1f} {row['unit']:8}"
    return f"{ours} err {row['error']:.2e}{mark}{share}  {peers}"


def is_target(row: Row) -> bool:
    """Whether a row is one of TARGETS."""
    return row["shape"] in TARGETS.get(row["group"], ())


def starred(row: Row) -> str:
    """The row's shape, with a star if it is one of TARGETS."""
    return row["shape"] + " *" * is_target(row)


def rate_of(row: Row) -> float:
    """The rate in the row's unit."""
    return row["rate"] / (1000 if row["unit"] == "TFLOP/s" else 1)


def copy_rate(rows: Iterable[Row]) -> float:
    """GB/s of the device's copy, the highest of all sizes; 0 if the run has not measured it."""
    return max((row["rate"] for row in rows if row["group"] == "copy"), default=0.0)


def render(rows: Sequence[Row]) -> str:
    """All rows, then the means."""
    copy = copy_rate(rows)
    title = (
        "kbuild against its peers; (1.20x): the peer takes 1.20 times as long; *: the rows that it has to win"
    )
    wanted = {(group, peer): rest for group, peer, *rest in summary(filter(is_target, rows))}
    means = []
    for group, peer, mean, count, least in summary(rows):
        line = f"{group:10} {peer:8} geometric mean {mean:.3f} over {count} rows, least {least:.3f}"
        if (group, peer) in wanted:
            line += "; {:.3f} over the {} with a star, least {:.3f}".format(*wanted[group, peer])
        means.append(line)
    return "\n".join(["", title, *(line_of(row, copy) for row in rows), "", *means])


def summary(rows: Iterable[Row]) -> list[tuple[str, str, float, int, float]]:
    """For each group and peer: geometric mean of the peer's time over ours, how many rows, and the least
    ratio.

    The groups without tensor cores count together as well, as `memory`.
    """
    ratios: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        groups = [row["group"]] + ["memory"] * (row["group"] in ("add", "sum", "softmax", "layer_norm"))
        for name, us in row["peers"].items():
            for group in groups if row["group"] != "copy" else ():
                ratios.setdefault((group, name), []).append(us / row["us"])
    means = {key: math.exp(sum(map(math.log, own)) / len(own)) for key, own in ratios.items()}
    return [(*key, means[key], len(own), min(own)) for key, own in sorted(ratios.items())]


def markdown(rows: Sequence[Row]) -> str:
    """The table of all rows in Markdown, and the means."""
    names = {"cublas": "cuBLAS", "cudnn": "cuDNN"}
    lines = [
        "| kernel | shape | µs | rate | of copy | Triton | vendor | error | Triton's, vendor's |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        ratios = {name: f"{us / row['us']:.2f}" for name, us in row["peers"].items()}
        others = ", ".join(
            f"{names.get(name, name)} {ratio}" for name, ratio in ratios.items() if name != "triton"
        )
        rate = f"{rate_of(row):.0f} {row['unit']}" if row["unit"] else ""
        share = f"{row['copy'] / row['us']:.2f}" if "copy" in row else ""
        cells = (
            row["group"],
            starred(row).replace("*", "★"),
            f"{row['us']:.1f}",
            rate,
            share,
            ratios.get("triton", ""),
            others,
            _power(row["error"]) if row["errors"] else "",
            ", ".join(map(_power, row["errors"].values())),
        )
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "| geometric mean of | against | all rows | least | rows with ★ | least |",
        "|---|---|--:|--:|--:|--:|",
    ]
    wanted = {
        (group, peer): f"{mean:.2f} | {least:.2f}"
        for group, peer, mean, _, least in summary(filter(is_target, rows))
    }
    for group, peer, mean, _, least in summary(rows):
        lines.append(
            f"| {group} | {names.get(peer, peer)} | {mean:.2f} | {least:.2f} | {wanted.get((group, peer), ' | ')} |"
        )
    return "\n".join(lines)


def _power(error: float) -> str:
    """An error to three digits: 2.81e-4."""
    digits, _, power = f"{error:.2e}".partition("e")
    return f"{digits}e{int(power)}" if error else "0"


def plot(rows: Sequence[Row], device: str) -> str:
    """Bars of the peers' time over ours, a group of them for each row, and a line at 1."""
    shown = [row for row in rows if row["peers"] and row["group"] != "copy"]
    most, left, width, bar = 2.0, 330, 420, 9
    scale = width / most
    top, body, y = 46, [], 46
    for row in shown:
        body.append(_text(left - 8, y + 8, f"{row['group']} {starred(row).replace('*', '★')}", "end"))
        for name, us in row["peers"].items():
            ratio = us / row["us"]
            colour = _COLOURS.get(name, "#888888")
            body.append(
                f'<rect x="{left}" y="{y}" width="{min(ratio, most) * scale:.1f}" height="{bar - 1}" fill="{colour}"/>'
            )
            body.append(_text(left + min(ratio, most) * scale + 4, y + 8, f"{ratio:.2f}", "start"))
            y += bar
        y += 5
    line = left + scale
    head = [
        _text(
            left,
            16,
            f"{device}: time of the peer / time of kbuild (longer is better for kbuild; ★: to be won)",
            "start",
        )
    ]
    legend = left
    for name, colour in (("Triton", "#3b7dd8"), ("cuBLAS, cuDNN", "#2e9e5b"), ("torch", "#b0b0b0")):
        head.append(f'<rect x="{legend}" y="24" width="10" height="10" fill="{colour}"/>')
        head.append(_text(legend + 14, 33, name, "start"))
        legend += 120
    head.append(f'<line x1="{line}" y1="{top - 4}" x2="{line}" y2="{y}" stroke="#c03030" stroke-width="1"/>')
    size = f'width="{left + width + 60}" height="{y + 10}"'
    style = 'font-family="sans-serif" font-size="10"'
    background = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join(
        [f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>', background, *head, *body, "</svg>", ""]
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}">{html.escape(text)}</text>'


if __name__ == "__main__":
    main()
