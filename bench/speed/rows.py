"""Softmax and layer norm over rows of every length: the shipped operators against torch and Inductor.

    python bench/speed/rows.py --package dist/….whl [--json out.json] [--only softmax] [--rows '1000000x|x5 ']
    [--types all] [--mode max-autotune-no-cudagraphs]

Needs torch, and triton for Inductor, beside the built package.  Each contender's result is checked against
float64, on fresh numbers and in memory that was full of NaN where it takes an output, before it is timed.  Times
are medians by CUDA events with a cold L2 cache, of calls in random order (`aot/tune/interleaved.py`).  Shapes
take the three types in turn, or each of them with `--types all`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import contest
import torch
from contest import BRAIN, CLOCK, HALF, SINGLE, error_of, name_of

from kbuild.aot.tune import interleaved

TYPES = (HALF, BRAIN, SINGLE)
LIMITS = {HALF: 1e-3, BRAIN: 8e-3, SINGLE: 2e-6}
"""Relative errors allowed, as the norm of the difference over that of the right result."""
SECONDS = 0.25
"""Device time for each comparison."""
CHECKED = 1 << 24
"""Elements of the rows that are compared, evenly spread."""
SHAPES = (
    *((1, columns) for columns in (1, 128, 4096, 16384, 50257, 131072)),
    *((128, columns) for columns in (5, 512, 50257, 131072)),
    *((4096, columns) for columns in (1, 32, 100, 1000, 4096, 16384, 50257)),
    (1024, 131072),
    *((100_000, columns) for columns in (5, 100, 128, 255, 512, 1000)),
    *((1_000_000, columns) for columns in (1, 5, 32, 128)),
)


class Contest(NamedTuple):
    """What is timed for one operator and shape."""

    x: torch.Tensor
    out: torch.Tensor
    ours: Callable[[], Any]
    eager: Callable[..., torch.Tensor]
    """torch's function of `inputs`, which Inductor compiles, too."""
    inputs: tuple[torch.Tensor, ...]


def softmax(rows: int, columns: int, dtype: torch.dtype) -> Contest:
    x = 3 * torch.randn(rows, columns, device="cuda", dtype=dtype)
    out = torch.empty_like(x)
    ours = lambda: contest.package.softmax(x, out=out)  # noqa: E731
    return Contest(x, out, ours, lambda x: torch.softmax(x, -1), (x,))


def layer_norm(rows: int, columns: int, dtype: torch.dtype) -> Contest:
    x = torch.randn(rows, columns, device="cuda", dtype=dtype) + 2
    weight, bias = (torch.randn(columns, device="cuda", dtype=dtype) for _ in range(2))
    y = torch.empty_like(x)
    ours = lambda: contest.package.layer_norm(x, weight, bias, y=y)  # noqa: E731

    def eager(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, (columns,), weight, bias)

    return Contest(x, y, ours, eager, (x, weight, bias))


OPERATORS: dict[str, Callable[[int, int, torch.dtype], Contest]] = {
    "softmax": softmax,
    "layer_norm": layer_norm,
}


def main() -> None:
    """Parse the command line, time what is asked for, print the table, the worst row last."""
    parser = contest.parser_of(__doc__)
    parser.add_argument("--only", default=",".join(OPERATORS), help="operators, with commas")
    parser.add_argument("--types", choices=("turns", "all"), default="turns")
    parser.add_argument("--mode", default="default", help="Inductor's, as torch.compile takes it")
    options = parser.parse_args()
    contest.load_package(options.package, options.name)
    torch.manual_seed(0)
    found: list[dict[str, Any]] = []
    for name in options.only.split(","):
        for rows, columns, dtype in points(options.types):
            shape = f"{rows}x{columns} {name_of(dtype)}"
            if not re.search(options.rows, shape):
                continue
            try:
                row = timed(name, rows, columns, dtype, options.mode)
            except Exception as error:  # The other rows are worth having.
                print(f"FAILED {name} {shape}: {error!r}"[:600], flush=True)
                continue
            found.append({"operator": name, "shape": shape, **row})
            print(line_of(found[-1]), flush=True)
            if options.json:
                report = {"device": torch.cuda.get_device_name(), "mode": options.mode, "rows": found}
                options.json.write_text(json.dumps(report, indent=1))
    print_table(found)


def points(types: str) -> Iterator[tuple[int, int, torch.dtype]]:
    """Shapes with their types."""
    for index, (rows, columns) in enumerate(SHAPES):
        for dtype in TYPES if types == "all" else (TYPES[index % len(TYPES)],):
            yield rows, columns, dtype


def timed(name: str, rows: int, columns: int, dtype: torch.dtype, mode: str) -> dict[str, Any]:
    """Microseconds and errors of the three contenders."""
    asked = OPERATORS[name](rows, columns, dtype)
    torch.compiler.reset()
    compiled = torch.compile(asked.eager, dynamic=False, mode=None if mode == "default" else mode)
    calls: dict[str, Callable[[], Any]] = {
        "kbuild": asked.ours,
        "torch": lambda: asked.eager(*asked.inputs),
        "inductor": lambda: compiled(*asked.inputs),
    }
    errors = {contender: checked_error(asked, call) for contender, call in calls.items()}
    us = interleaved.interleave(calls, CLOCK, SECONDS)
    right = errors["kbuild"] <= LIMITS[dtype]
    return {"us": us, "errors": errors, "right": right, "bytes": 2 * asked.x.nbytes}


def checked_error(asked: Contest, call: Callable[[], Any]) -> float:
    """The error of a call on numbers that it has not seen, beside the right result in the type of its elements;
    infinite if an element is not finite."""
    asked.x.normal_()
    asked.out.fill_(float("nan"))
    given = call()
    result = given if isinstance(given, torch.Tensor) else asked.out
    rows, columns = result.shape
    picked = torch.linspace(0, rows - 1, min(rows, max(1, CHECKED // columns)), device="cuda").long()
    right = asked.eager(asked.x[picked].double(), *(each.double() for each in asked.inputs[1:]))
    right = right.to(result.dtype).double()
    error = error_of(result[picked], right) if columns > 1 else (result[picked] - right).abs().max().item()
    return error if bool(torch.isfinite(result).all()) else float("inf")


def ratios(row: dict[str, Any]) -> dict[str, float]:
    """The peers' time over ours."""
    return {name: row["us"][name] / row["us"]["kbuild"] for name in ("torch", "inductor")}


def line_of(row: dict[str, Any]) -> str:
    us, of = row["us"], ratios(row)
    rate = row["bytes"] / us["kbuild"] / 1e3
    mark = "" if row["right"] else f"  WRONG: {row['errors']['kbuild']:.1e}"
    return (
        f"| {row['operator']} | {row['shape']} | {us['kbuild']:.1f} | {rate:.0f} GB/s | {of['torch']:.2f} | "
        f"{of['inductor']:.2f} | {row['errors']['kbuild']:.1e} |{mark}"
    )


def print_table(found: list[dict[str, Any]]) -> None:
    """All rows in Markdown, the one where the best peer comes closest last."""
    print("\n| operator | shape | µs | rate | torch | Inductor | error |\n|---|---|--:|--:|--:|--:|--:|")
    for row in sorted(found, key=lambda row: -min(ratios(row).values())):
        print(line_of(row))
    behind = [row for row in found if min(ratios(row).values()) < 1]
    print(f"\n{len(found)} rows, {len(behind)} behind a peer, {sum(not row['right'] for row in found)} wrong")


if __name__ == "__main__":
    main()
