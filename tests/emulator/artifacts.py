"""Compiled kernels emulated on arrays of numpy, as a launch of one program or of a grid would run them.

    given = {"a": a, "b": b, "c": np.zeros((64, 64), np.float32), "K": 80}
    np.testing.assert_array_equal(left_in("c", artifact, given), a @ b)

`left_in` is for one array, `outputs_of` for all, and `emulate` for what was found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from kbuild.compiler.driver import Artifact
from kbuild.emulator import Program, Report, arguments_of, load, run


def emulate(
    artifact: Artifact,
    arguments: Mapping[str, Any],
    grid: Sequence[int] = (1,),
    *,
    ptx: str = "",
    checks: str = "strict",
    **options: Any,
) -> Report:
    """The report on a launch with arguments by name: numbers, and arrays, which stay as they are.

    `ptx` is in place of the artifact's own, such as one with a mistake in it; races are looked for unless `checks` is
    empty; further options, as `schedule` and `timing`, are those of `kbuild.emulator.run`.
    """
    facts = artifact.metadata
    program = _program(ptx or artifact.asm["ptx"], facts.name)
    passed = arguments_of(facts.params, dict(arguments))
    return run(program, None, grid, facts.block, facts.shared, passed, checks=checks, **options)


def outputs_of(artifact: Artifact, report: Report) -> dict[str, np.ndarray]:
    """What a launch has left in its arrays, by the names of the arguments."""
    names = (name for name, _ in artifact.metadata.params)
    return {name: output for name, output in zip(names, report.outputs) if output is not None}


def left_in(
    name: str, artifact: Artifact, arguments: Mapping[str, Any], grid: Sequence[int] = (1,), **options: Any
) -> np.ndarray:
    """What a launch leaves in the array that is an argument, in the shape of that; options as for `emulate`.

    Raises EmulationError where something was found.
    """
    return outputs_of(artifact, emulate(artifact, arguments, grid, **options).check())[name]


@lru_cache(maxsize=8)
def _program(ptx: str, name: str) -> Program:
    """Launches of one text share what is known of its code."""
    return load(ptx, name)
