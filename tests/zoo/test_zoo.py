"""The zoo without a GPU: every case means the right thing as written, after the passes, and assembles for
each target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from zoo import CASES, Bits, Case

import kbuild
import kbuild.compiler.transforms
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


@pytest.mark.parametrize(
    ("name", "arch"), [(name, arch) for name, case in CASES.items() for arch in case.archs]
)
def test_case_assembles_without_spills(name: str, arch: str) -> None:
    case = CASES[name]
    arguments = case.make(np.random.default_rng(0))
    artifact = kbuild.compile(
        case.source,
        signature=case.signature(arguments),
        constexprs=case.constexprs,
        target=arch,
        options=case.options(arch),
    )
    assert artifact.metadata.spill_stores == 0
    assert artifact.asm["cubin"].startswith(b"\x7fELF")
