"""The zoo without a GPU: every case means the right thing as written, after the passes, and assembles for each target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from zoo import CASES, Bits, Case, numbers

import kbuild
import kbuild.compiler.transforms
from kbuild.compiler.frontend import build_module
from kbuild.compiler.interp import run
from kbuild.compiler.ir.passes import run_pipeline
from kbuild.compiler.targets import find_target


def interpret_case(case: Case, passes: Sequence[str], arch: str = "sm_90") -> None:
    """Run a case in the interpreter after some passes, and check what it did."""
    case.check(*interpreted(case, passes, arch))


def interpreted(case: Case, passes: Sequence[str], arch: str = "sm_90") -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of a case before it runs in the interpreter after some passes, and then."""
    arguments = case.make(np.random.default_rng(2))
    module = build_module(case.source, case.signature(arguments), case.constexprs, **case.options(arch))
    run_pipeline(module, find_target(arch), passes)
    memory: dict[str, Any] = {
        name: value.data.copy() if isinstance(value, Bits) else value.copy() if isinstance(value, np.ndarray) else value
        for name, value in arguments.items()
    }
    run(module, memory, case.grid)
    after = {
        name: Bits(memory[name], value.type_name) if isinstance(value, Bits) else memory[name]
        for name, value in arguments.items()
    }
    return arguments, after


@pytest.mark.parametrize("name", CASES)
def test_source_means_what_numpy_says(name: str) -> None:
    interpret_case(CASES[name], ())


@pytest.mark.parametrize("name", CASES)
def test_passes_keep_the_meaning(name: str) -> None:
    target = find_target("sm_90")
    interpret_case(CASES[name], (*target.tensor_pipeline, *target.gpu_pipeline))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", CASES)
def test_case_assembles_without_spills(name: str, arch: str) -> None:
    case = CASES[name]
    arguments = case.make(np.random.default_rng(0))
    artifact = kbuild.compile(
        case.source, signature=case.signature(arguments), constexprs=case.constexprs, target=arch,
        **case.options(arch),
    )  # fmt: skip
    assert artifact.metadata.spill_stores == 0
    assert artifact.asm["cubin"].startswith(b"\x7fELF")


def test_weights_in_two_parts_bring_attention_nearer() -> None:
    """The rest is the rounding of the output."""
    target = find_target("sm_90")
    errors = []
    for exact_keys in (0, 64):
        case = CASES["attention_exact"]
        case = replace(case, constexprs={**case.constexprs, "EXACT_KEYS": exact_keys})
        before, after = interpreted(case, (*target.tensor_pipeline, *target.gpu_pipeline))
        right = case.expect(**before)["out"]
        errors.append(np.linalg.norm(numbers(after["out"]) - right) / np.linalg.norm(right))
    assert errors[1] < 0.95 * errors[0], errors
