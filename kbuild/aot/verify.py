"""Runs kernels on the CPU twice and compares: their ttir by the interpreter, and their PTX by the emulator.

The interpreter says what the kernel means, the emulator what the code does that is shipped.  Inputs are small whole numbers,
for which most sums are exact; arrays that the kernel only writes hold NaN, or a number that shows, before it runs.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kbuild.aot.cases import Case, cases
from kbuild.aot.manifest import Manifest
from kbuild.aot.matrix import Variant
from kbuild.compiler import driver
from kbuild.compiler.interp import decode, encode
from kbuild.compiler.interp import run as interpret
from kbuild.compiler.interp.formats import memory_dtype
from kbuild.compiler.interp.loaded import Type, is_float, is_pointer, loaded_arguments, module_of, pointee_of
from kbuild.emulator import arguments_of
from kbuild.emulator import load as load_ptx
from kbuild.emulator import run as emulate
from kbuild.errors import KbuildError, UsageError

SCHEDULES = ("lockstep", "random(1)")
"""Orders of warps that every case runs under."""

BOUNDS = {"f64": 1e-12, "f32": 2e-5, "f16": 2e-3, "bf16": 1.6e-2}
"""How far a floating-point result may be off, relative to the greater of its size and the mean size of the array."""
_COARSEST = 0.13
"""That of the 8-bit types: one step of three bits."""


@dataclass(frozen=True)
class Check:
    """What came of one launch under one schedule."""

    case: str
    """The launch's scalars."""
    schedule: str
    """The order of warps."""
    problems: tuple[str, ...]
    """What is wrong: findings of the emulator, and outputs that differ."""
    error: float = 0.0
    """The largest difference of an output, relative as in `BOUNDS`."""


@dataclass(frozen=True)
class Verdict:
    """What came of one variant."""

    variant: str
    """The variant's name."""
    checks: tuple[Check, ...]
    """One for each case and schedule; none where the manifest has no cases that fit."""
    problem: str = ""
    """Why the variant could not be run at all."""
    seconds: float = 0.0
    """Time taken."""

    @property
    def state(self) -> str:
        """`ok`, `failed` or `no cases`."""
        if self.problem or any(check.problems for check in self.checks):
            return "failed"
        return "ok" if self.checks else "no cases"


def verify(project: Path, manifest: Manifest, variants: Sequence[Variant]) -> Iterator[Verdict]:
    """The verdict on each variant, in order, as they come."""
    for variant in variants:
        started = time.monotonic()
        checks: list[Check] = []
        problem = ""
        try:
            wanted = list(cases(manifest.kernel(variant.kernel), variant))
            if wanted:
                artifact = _compile(project, manifest, variant)
                for case in wanted:
                    checks += check(artifact, case, zlib.crc32(f"{variant.kernel} {case}".encode()))
        except KbuildError as error:
            problem = str(error)
        yield Verdict(variant.name, tuple(checks), problem, time.monotonic() - started)


def _compile(project: Path, manifest: Manifest, variant: Variant) -> driver.Artifact:
    kernel = manifest.kernel(variant.kernel)
    axes = {axis.name for axis in kernel.matrix if axis.is_parameter}
    constexprs = {name: value for name, value in variant.matrix if name in axes} | dict(variant.constexprs)
    return driver.compile(
        str(project / kernel.source) + f":{kernel.function}", signature=dict(variant.signature), constexprs=constexprs,
        target=variant.arch, num_warps=variant.num_warps, num_stages=variant.num_stages, lineinfo=True, stop="ptx",
    )  # fmt: skip


def check(artifact: driver.Artifact, case: Case, seed: int) -> list[Check]:
    """Run an artifact's ttir once and its PTX under each schedule, on the same inputs.  KbuildError for what cannot run."""
    module = module_of(artifact.asm["ttir"])
    types = {argument.hint: argument.type for argument in module.kernel.arguments}
    arguments = inputs(types, loaded_arguments(module.kernel), case, np.random.default_rng(seed))
    expected = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in arguments.items()}
    with np.errstate(all="ignore"):
        interpret(module, expected, case.grid)
    program = load_ptx(artifact.asm["ptx"], artifact.metadata.name)
    checks: list[Check] = []
    for schedule in SCHEDULES:
        report = run_ptx(artifact, program, types, arguments, case.grid, schedule)
        problems, largest = [str(finding) for finding in report.findings], 0.0
        for name, output in zip(types, report.outputs):
            if output is not None and not report.findings:
                error, problem = compare(pointee_of(types[name]), expected[name], output)
                largest = max(largest, error)
                problems += [f"{name}: {problem}"] if problem else []
        checks.append(Check(str(case), schedule, tuple(problems), largest))
    return checks


def inputs(types: Mapping[str, Type], loaded: frozenset[str], case: Case, random: np.random.Generator) -> dict[str, Any]:
    """The arguments of a launch: whole numbers of at most 3 in arrays that are read, poison in others, and the scalars."""
    scalars, sizes = dict(case.scalars), dict(case.sizes)
    made: dict[str, Any] = {}
    for name, type_ in types.items():
        if not is_pointer(type_):
            made[name] = scalars[name]
        elif name in loaded:
            # Whole numbers may be positions in other arrays: none below zero.
            values = random.integers(-3 if is_float(pointee_of(type_)) else 0, 4, sizes[name])
            made[name] = np.atleast_1d(encode(values.astype(np.float32), pointee_of(type_)))
        else:
            made[name] = poisoned(pointee_of(type_), sizes[name])
    return made


def poisoned(element: Type, count: int) -> np.ndarray:
    """An array in memory that nobody has written: NaN, or bytes of 0xA5."""
    dtype = np.dtype(memory_dtype(element))
    return np.full(count * dtype.itemsize, 0xFF if is_float(element) else 0xA5, np.uint8).view(dtype)


def run_ptx(
    artifact: driver.Artifact, program: Any, types: Mapping[str, Type], arguments: Mapping[str, Any], grid: Sequence[int],
    schedule: str,
) -> Any:  # fmt: skip
    """The emulator's report on one launch."""
    facts = artifact.metadata
    given = arguments_of(facts.params, {name: _as_parameter(type_, arguments[name]) for name, type_ in types.items()})
    timing = schedule if schedule.startswith("random") else "late"
    return emulate(program, None, grid, facts.warps, facts.shared, given, schedule=schedule, timing=timing)


def _as_parameter(type_: Type, value: Any) -> Any:
    """An argument as the emulator takes it: numbers of types that Python lacks as their bytes."""
    if is_pointer(type_) or not is_float(type_):
        return value
    return np.asarray(encode(np.array([value], np.float64), type_)).tobytes()


def compare(element: Type, expected: np.ndarray, found: np.ndarray) -> tuple[float, str]:
    """The largest relative difference of two arrays in memory, and what is wrong with it in words; empty if nothing is."""
    if not is_float(element):
        wrong, error = expected != found, 0.0
    else:
        left, right = decode(expected, element).astype(np.float64), decode(found, element).astype(np.float64)
        same = (left == right) | (np.isnan(left) & np.isnan(right))
        finite = np.abs(left[np.isfinite(left)])
        scale = np.maximum(np.abs(left), finite.mean() if finite.size else 0.0)
        with np.errstate(all="ignore"):
            errors = np.where(same, 0.0, np.abs(left - right) / scale)
        errors = np.where(np.isnan(errors), np.inf, errors)
        wrong, error = errors > BOUNDS.get(str(element), _COARSEST), float(errors.max(initial=0.0))
        expected, found = left, right
    if not wrong.any():
        return error, ""
    first = int(np.flatnonzero(wrong)[0])
    return error, f"{int(wrong.sum())} of {wrong.size} elements differ; [{first}] is {found[first]}, expected {expected[first]}"


def run_one(
    artifact: driver.Artifact, texts: Mapping[str, str], grid: Sequence[int], schedule: str
) -> tuple[list[str], list[str]]:
    """Run a kernel's PTX on arguments given as text; a line for each array afterwards, and what was found.

    A number is itself; `random:N`, `range:N`, `zeros:N` and `poison:N` are arrays of N elements.  UsageError for other texts.
    """
    types = {argument.hint: argument.type for argument in module_of(artifact.asm["ttir"]).kernel.arguments}
    for name in texts:
        if name not in types:
            raise UsageError(f"--arg {name}: no such run-time argument", hint=f"known: {', '.join(types)}")
    missing = [name for name in types if name not in texts]
    if missing:
        example = "random:1000" if is_pointer(types[missing[0]]) else "1000"
        raise UsageError(f"no value for {', '.join(missing)}", hint=f"write --arg {missing[0]}={example}")
    random = np.random.default_rng(0)
    arguments = {name: _parsed(name, type_, texts[name], random) for name, type_ in types.items()}
    program = load_ptx(artifact.asm["ptx"], artifact.metadata.name)
    report = run_ptx(artifact, program, types, arguments, grid, schedule)
    lines = [
        f"{name}: {_summary(pointee_of(types[name]), arguments[name], output)}"
        for name, output in zip(types, report.outputs)
        if output is not None
    ]
    return lines + report.printed, [str(finding) for finding in report.findings]


def _parsed(name: str, type_: Type, text: str, random: np.random.Generator) -> Any:
    """One argument from its text."""
    if not is_pointer(type_):
        try:
            return float(text) if is_float(type_) else int(text, 0)
        except ValueError:
            raise UsageError(f"--arg {name}={text}: {type_} wants a number") from None
    element = pointee_of(type_)
    kind, _, count = text.partition(":")
    if kind not in ("random", "range", "zeros", "poison") or not (count.isascii() and count.isdigit()) or int(count) >= 2**31:
        raise UsageError(
            f"--arg {name}={text}: {type_} wants an array", hint="write random:N, range:N, zeros:N or poison:N, with N elements"
        )
    size = int(count)
    if kind == "poison":
        return poisoned(element, size)
    made = {"random": lambda: random.integers(-3 if is_float(element) else 0, 4, size), "range": lambda: np.arange(size)}
    values = made.get(kind, lambda: np.zeros(size))()
    return np.atleast_1d(encode(values.astype(np.float64), element))


def _summary(element: Type, before: np.ndarray, after: np.ndarray) -> str:
    """An array in a line: its first elements, its range, and how many elements were changed."""
    values = decode(after, element)
    changed = int((before.view(np.uint8) != after.view(np.uint8)).reshape(after.size, -1).any(axis=1).sum()) if after.size else 0
    first = ", ".join(str(value) for value in values[:6].tolist())
    known = values[~np.isnan(values.astype(np.float64))]
    extent = f"; from {known.min()} to {known.max()}, mean {known.astype(np.float64).mean():.6g}" if known.size else ""
    return f"{after.size} elements of {element}, {changed} changed: {first}{', …' if after.size > 6 else ''}{extent}"
