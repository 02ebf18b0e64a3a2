"""The zoo by the interpreter: every case means the right thing as written and after the passes.  What it compiles to is
tested by `tests/emulator/test_zoo_emulated.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from zoo import CASES, Bits, Case

from kbuild.compiler.driver import pipelines_of
from kbuild.compiler.frontend import build_module
from kbuild.compiler.interp import run
from kbuild.compiler.ir.passes import run_pipeline
from kbuild.targets import find_target


def interpret_case(case: Case, with_passes: bool, arch: str = "sm_90") -> None:
    """Run a case in the interpreter, as it is written or after all passes, and check what it did."""
    arguments = case.make(np.random.default_rng(2))
    module = build_module(case.source, case.signature(arguments), case.constexprs, case.options(arch))
    for passes in pipelines_of(module, find_target(arch)) if with_passes else ():
        run_pipeline(module, find_target(arch), passes)
    memory: dict[str, Any] = {
        name: value.data.copy()
        if isinstance(value, Bits)
        else value.copy()
        if isinstance(value, np.ndarray)
        else value
        for name, value in arguments.items()
    }
    run(module, memory, case.grid)
    after = {
        name: Bits(memory[name], value.type_name) if isinstance(value, Bits) else memory[name]
        for name, value in arguments.items()
    }
    case.check(arguments, after)


@pytest.mark.parametrize("name", CASES)
def test_source_means_what_numpy_says(name: str) -> None:
    interpret_case(CASES[name], with_passes=False)


@pytest.mark.parametrize("name", CASES)
def test_passes_keep_the_meaning(name: str) -> None:
    interpret_case(CASES[name], with_passes=True)
