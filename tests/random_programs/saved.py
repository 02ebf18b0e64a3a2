"""Kernels with their launches as files: a Python file that opens with what a launch needs."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from random_programs.arrays import Argument
from random_programs.compare import Kernel
from random_programs.types import E4M3, E5M2, FLOATS, I1, INTEGERS

_DTYPES = {dtype.signature: dtype for dtype in (I1, *INTEGERS, *FLOATS, E4M3, E5M2)}
_LAUNCH = "# launch: "


def saved(kernel: Kernel, notes: str = "") -> str:
    """The text of a file; `notes` become comments."""
    arguments = [{**asdict(argument), "dtype": argument.dtype.signature} for argument in kernel.arguments]
    short = [
        {key: value for key, value in a.items() if value not in ("", 0, False, ()) or key == "value"}
        for a in arguments
    ]
    launch = {
        "grid": kernel.grid,
        "num_warps": kernel.num_warps,
        "num_stages": kernel.num_stages,
        "seed": kernel.seed,
    }
    comments = "".join(f"# {line}\n" for line in notes.splitlines())
    return f"{comments}{_LAUNCH}{json.dumps({**launch, 'arguments': short})}\n{kernel.source}"


def read(path: str | Path) -> Kernel:
    """The kernel of a file that `saved` wrote.  Raises ValueError for another file."""
    text = Path(path).read_text()
    found = next((line for line in text.splitlines() if line.startswith(_LAUNCH)), None)
    if found is None:
        raise ValueError(f"{path} has no line that begins with {_LAUNCH.strip()!r}")
    launch = json.loads(found.removeprefix(_LAUNCH))
    arguments = tuple(map(_argument, launch.pop("arguments")))
    source = text[text.index(found) + len(found) + 1 :]
    return replace(Kernel(source, arguments), **{**launch, "grid": tuple(launch["grid"])})


def _argument(item: dict[str, Any]) -> Argument:
    companions = tuple((name, number) for name, number in item.get("companions", ()))
    return Argument(**{**item, "dtype": _DTYPES[item["dtype"]], "companions": companions})
