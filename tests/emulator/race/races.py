"""Kernels for the tests of the race detector, whole or broken."""

from __future__ import annotations

import numpy as np

from kbuild.emulator import Finding
from tests.emulator.emulated import launch

BUFFER = ".extern .shared .align 1024 .b8 buffer[];"


def findings(
    body: str, broken: str = "", threads: int = 128, grid: int = 1, checks: str = "strict", **options
) -> list[Finding]:
    """What is found in a kernel, whole or broken, that may use 8 KiB of shared memory and the arrays x and y.

    A line that begins with `+word` is left out to break the rule that goes by this word; one with `-word` is
    there only then.
    """
    kept = []
    for line in map(str.strip, body.strip().split("\n")):
        mark, _, rest = line.partition(" ") if line[:1] in ("+", "-") else ("", "", line)
        if not mark or (mark[0] == "-") == (mark[1:] == broken):
            kept.append(rest)
    x = np.arange(4096, dtype=np.uint32)
    arrays = {"x": x, "y": np.zeros_like(x)}
    report = launch(
        "\n".join(kept),
        arrays,
        module=BUFFER,
        threads=threads,
        grid=(grid,),
        shared=8192,
        checks=checks,
        **options,
    )
    return report.findings


def kinds_of(body: str, word: str, **options) -> set[str]:
    """The kinds of what is found in a broken kernel, asynchronous operations being late or early; whole, it
    must be clean."""
    kinds = set()
    for timing in ("late", "early"):
        assert not findings(body, timing=timing, **options)
        kinds |= {finding.kind for finding in findings(body, word, timing=timing, **options)}
    return kinds
