"""What variants cost to compile: CPU seconds, as builds in this directory have measured them, or else estimated.

Estimates are for sharing work out, where errors of single variants even out.  Of the shipped kernels a variant is half
the mean off, and a shard of 64 variants 6 %.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from kbuild.aot.build.plan import STATE
from kbuild.aot.files import write_if_changed
from kbuild.aot.identity import seal, unseal
from kbuild.aot.manifest.expand import Variant
from kbuild.aot.manifest.model import Kernel, Manifest
from kbuild.aot.syntax import syntax_tree

FILE = f"{STATE}/seconds.json"
"""Measured seconds by the name of the variant, within the build directory."""
TOOK = "@took"
"""How a step that has compiled prints its CPU seconds and the variant's name."""
_BASE, _PER_NODE = 0.05, 6e-5
"""Seconds that every variant takes, and for each node of the kernel's syntax and root of the elements of its tile that a
thread has: fitted to the shipped kernels."""
_NODES = 400
"""Nodes of a kernel whose source cannot be read."""


def remember(build: Path, printed: Iterable[str]) -> None:
    """Keeps what steps have printed about what they took."""
    found: dict[str, float] = {}
    for line in printed:
        words = line.split(" ", 2)
        if words[0] == TOOK and len(words) == 3:
            with suppress(ValueError):
                found[words[2]] = float(words[1])
    if found:
        write_if_changed(build / FILE, seal({**measured(build), **found}))


def measured(build: Path) -> dict[str, float]:
    """The seconds that variants took in this directory when they were last compiled, by name."""
    with suppress(OSError):
        known = unseal((build / FILE).read_bytes()) or {}
        return {name: value for name, value in known.items() if isinstance(value, float)}
    return {}


def seconds_of(
    project: Path, manifest: Manifest, variants: Sequence[Variant], known: Mapping[str, float]
) -> list[float]:
    """The CPU seconds of each variant: as known by its name, or the mean of its kernel's known ones on the architecture, or
    an estimate, to the scale of what is known."""
    nodes = {kernel.name: _nodes(project, kernel) for kernel in manifest.kernels}
    estimates = [estimate(variant, nodes[variant.kernel]) for variant in variants]
    sums: dict[tuple[str, str], list[float]] = {}
    for variant, guess in zip(variants, estimates):
        if variant.name in known:
            found = sums.setdefault((variant.kernel, variant.arch), [0.0, 0.0, 0.0])
            found[:] = found[0] + known[variant.name], found[1] + 1, found[2] + guess
    guessed = sum(found[2] for found in sums.values())
    scale = sum(found[0] for found in sums.values()) / guessed if guessed else 1.0
    means = {cell: total / count for cell, (total, count, _) in sums.items()}
    return [
        known.get(variant.name) or means.get((variant.kernel, variant.arch)) or guess * scale
        for variant, guess in zip(variants, estimates)
    ]


def estimate(variant: Variant, nodes: int) -> float:
    """The seconds of a variant of a kernel with so many nodes of syntax: a tile is taken to have the two largest of the
    compile-time integers as its sides."""
    sides = sorted(
        (value for value in variant.values.values() if type(value) is int and value >= 16), reverse=True
    )[:2]
    per_thread = math.prod(sides) / (32 * variant.options.warps)
    return _BASE + _PER_NODE * nodes * math.sqrt(min(per_thread, 1 << 16))


def _nodes(project: Path, kernel: Kernel) -> int:
    """The nodes of syntax of a kernel's function."""
    with suppress(OSError, SyntaxError, ValueError, RecursionError):
        for node in ast.walk(syntax_tree(project / kernel.source)):
            if isinstance(node, ast.FunctionDef) and node.name == kernel.function:
                return sum(1 for _ in ast.walk(node))
    return _NODES
