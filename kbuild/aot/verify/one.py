"""`kbuild run`: one kernel's PTX on the emulator, on arrays described in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kbuild.aot.verify.check import run_ptx
from kbuild.aot.verify.data import poisoned
from kbuild.aot.verify.oracle import types_of_artifact
from kbuild.compiler import driver
from kbuild.compiler.interp import decode, encode
from kbuild.compiler.interp import run as interpret
from kbuild.compiler.interp.loaded import Type, bit_width, is_float, is_pointer, module_of, pointee_of
from kbuild.emulator import load as load_ptx
from kbuild.emulator.race import RaceDetector
from kbuild.errors import UsageError


def run_one(
    artifact: driver.Artifact,
    texts: Mapping[str, str],
    grid: Sequence[int],
    schedule: str,
    timing: str,
    races: bool,
) -> tuple[list[str], list[str]]:
    """Run a kernel's PTX on arguments given as text; a line for each array afterwards, and what was found.

    A number is itself; `random:N`, `range:N`, `zeros:N` and `poison:N` are arrays of N elements.  UsageError
    for other texts.
    """
    types, arguments = arguments_from(artifact, texts)
    program = load_ptx(artifact.asm["ptx"], artifact.metadata.name)
    report = run_ptx(
        artifact, program, types, arguments, grid, schedule, timing, [RaceDetector()] if races else []
    )
    taken = zip(artifact.metadata.params, report.outputs)
    outputs = {name: output for (name, _), output in taken if output is not None}
    return lines_of(types, arguments, outputs) + report.printed, [str(finding) for finding in report.findings]


def arguments_from(
    artifact: driver.Artifact, texts: Mapping[str, str]
) -> tuple[dict[str, Type], dict[str, Any]]:
    """The types of the kernel's arguments, and their values from texts."""
    types = types_of_artifact(artifact, dict(artifact.metadata.params))
    for name in texts:
        if name not in types:
            raise UsageError(f"--arg {name}: no such run-time argument", help=f"known: {', '.join(types)}")
    missing = [name for name in types if name not in texts]
    if missing:
        example = "random:1000" if is_pointer(types[missing[0]]) else "1000"
        raise UsageError(f"no value for {', '.join(missing)}", help=f"write --arg {missing[0]}={example}")
    random = np.random.default_rng(0)
    return types, {name: _parsed(name, type_, texts[name], random) for name, type_ in types.items()}


def lines_of(
    types: Mapping[str, Type], arguments: Mapping[str, Any], outputs: Mapping[str, np.ndarray]
) -> list[str]:
    """A line for each array, as it was and as it is."""
    return [
        f"{name}: {_summary(pointee_of(types[name]), arguments[name], output)}"
        for name, output in outputs.items()
    ]


def interpret_one(
    artifact: driver.Artifact, texts: Mapping[str, str], grid: Sequence[int]
) -> tuple[list[str], list[str]]:
    """The same for the kernel as it is written, in numpy.  InterpretError where it does something wrong."""
    types, arguments = arguments_from(artifact, texts)
    after = {
        name: value.copy() if isinstance(value, np.ndarray) else value for name, value in arguments.items()
    }
    interpret(module_of(artifact.asm["ttir"]), after, grid)
    arrays = {name: value for name, value in after.items() if isinstance(value, np.ndarray)}
    return lines_of(types, arguments, arrays), []


def _parsed(name: str, type_: Type, text: str, random: np.random.Generator) -> Any:
    """One argument from its text."""
    if not is_pointer(type_):
        try:
            value = float(text) if is_float(type_) else int(text, 0)
        except ValueError:
            raise UsageError(
                f"--arg {name}={text}: {type_} wants a {'number' if is_float(type_) else 'whole number'}"
            ) from None
        if isinstance(value, int) and not -1 << bit_width(type_) - 1 <= value < 1 << bit_width(type_):
            raise UsageError(
                f"--arg {name}={text}: {type_} has {bit_width(type_)} bits, which do not hold it"
            )
        return value
    element = pointee_of(type_)
    kind, _, count = text.partition(":")
    if (
        kind not in ("random", "range", "zeros", "poison")
        or not (count.isascii() and count.isdigit())
        or int(count) >= 2**31
    ):
        raise UsageError(
            f"--arg {name}={text}: {type_} wants an array",
            help="write random:N, range:N, zeros:N or poison:N; N is a number of elements below 2^31",
        )
    size = int(count)
    if kind == "poison":
        return poisoned(element, size)
    made = {
        "random": lambda: random.integers(-3 if is_float(element) else 0, 4, size),
        "range": lambda: np.arange(size),
    }
    values = made.get(kind, lambda: np.zeros(size))()
    return np.atleast_1d(encode(values.astype(np.float64), element))


def _summary(element: Type, before: np.ndarray, after: np.ndarray) -> str:
    """An array in a line: its first elements, its range, and how many elements were changed."""
    values = decode(after, element)
    changed = (
        int((before.view(np.uint8) != after.view(np.uint8)).reshape(after.size, -1).any(axis=1).sum())
        if after.size
        else 0
    )
    first = ", ".join(str(value) for value in values[:6].tolist())
    known = values[~np.isnan(values.astype(np.float64))]
    extent = (
        f"; from {known.min()} to {known.max()}, mean {known.astype(np.float64).mean():.6g}"
        if known.size
        else ""
    )
    return f"{after.size} elements of {element}, {changed} changed: {first}{', …' if after.size > 6 else ''}{extent}"
