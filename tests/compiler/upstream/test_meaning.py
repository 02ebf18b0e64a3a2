"""What Triton's texts mean: interpreted, printed in kbuild's form and read again, and as PTX in the emulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import kbuild
from kbuild.compiler import interp
from kbuild.compiler.ir.core import Module
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ir.printer import print_module
from kbuild.compiler.upstream import is_upstream, read_upstream
from tests.emulator.artifacts import emulate, outputs_of

TEXTS = Path(__file__).parent / "texts"
Arguments = dict[str, Any]


class Case(NamedTuple):
    """A text, its arguments, and what the arrays hold afterwards."""

    arch: str
    grid: tuple[int, ...]
    arguments: Callable[[np.random.Generator], Arguments]
    expected: Callable[[Mapping[str, Any]], Arguments]


def halves(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Small numbers, of which all sums are exact."""
    return rng.integers(-4, 5, shape).astype(np.float16)


def zeros(*shape: int, of: type = np.float32) -> np.ndarray:
    return np.zeros(shape, of)


def described(name: str, array: np.ndarray) -> Arguments:
    """What kbuild's kernels take for an array that a descriptor describes."""
    rows, columns = array.shape
    return {
        name: array,
        f"{name}_shape_0": rows,
        f"{name}_shape_1": columns,
        f"{name}_stride_0": columns,
    }


def steps_to_one(value: int) -> int:
    return 0 if value == 1 else 1 + steps_to_one(3 * value + 1 if value % 2 else value // 2)


def few_are_negative(steps: int) -> int:
    return -steps if steps < 3 else steps


CASES = {
    "masked_add.ttir": Case(
        "sm_80",
        (2,),
        lambda rng: {"x": halves(rng, 128).astype("f4"), "y": zeros(128) + 2, "out": zeros(128), "n": 100},
        lambda given: {"out": np.where(np.arange(128) < 100, given["x"] + given["y"], 1)},
    ),
    "branches.ttir": Case(
        "sm_80",
        (12,),
        lambda rng: {"out": zeros(12, of=np.int32) + 99, "limit": 10},
        lambda given: {"out": [*(few_are_negative(steps_to_one(1 + pid)) for pid in range(10)), 99, 99]},
    ),
    "regions.ttir": Case(
        "sm_80",
        (1,),
        lambda rng: {
            "x": rng.permutation(128).astype(np.float32).reshape(8, 16),
            "best": zeros(8),
            "where": zeros(8, of=np.int32),
            "sums": zeros(8, 16),
        },
        lambda given: {
            "best": given["x"].max(1),
            "where": given["x"].argmax(1),
            "sums": np.maximum(given["x"][:, ::-1].cumsum(1)[:, ::-1], 99),
        },
    ),
    "functions.ttir": Case(
        "sm_90",
        (3,),
        lambda rng: {"x": halves(rng, 32).astype("f4"), "out": zeros(32), "count": zeros(32, of=np.int32)},
        lambda given: {"out": -np.exp2(abs(given["x"]) + 2), "count": [3 * 32, *[0] * 31]},
    ),
    "generic.ttir": Case(
        "sm_80",
        (8,),
        lambda rng: {
            "x": halves(rng, 8, 4).astype("f4"),
            "out": zeros(8) + 9,
            "count": zeros(1, of=np.int32),
            "limit": 2.0,
        },
        lambda given: {
            "out": [*np.where(given["x"] < 2, given["x"], 0).sum(1)[:6], 9, 9],
            "count": [(given["x"][:6] < 2).sum()],
        },
    ),
    "pipelined.ttgir": Case(
        "sm_80",
        (1,),
        lambda rng: {
            "a": halves(rng, 5, 32, 16),
            "b": halves(rng, 5, 16, 32),
            "out": zeros(32, 32),
            "rounds": 5,
        },
        lambda given: {"out": (given["a"].astype("f4") @ given["b"].astype("f4")).sum(0)},
    ),
    "wgmma.ttgir": Case(
        "sm_90",
        (1,),
        lambda rng: {
            **described("a", halves(rng, 64, 192)),
            **described("b", halves(rng, 192, 32)),
            **described("out", zeros(64, 32)),
            "depth": 192,
        },
        lambda given: {"out": given["a"].astype("f4") @ given["b"].astype("f4")},
    ),
    "partitions.ttgir": Case(
        "sm_90",
        (1,),
        lambda rng: {"out": zeros(128, of=np.int32), "rounds": 5},
        lambda given: {"out": np.arange(128) * (0 + 1 + 2 + 3 + 4)},
    ),
    "shapes.ttgir": Case(
        "sm_90",
        (1,),
        lambda rng: {
            "turned": zeros(8, 16, of=np.int32),
            "less": zeros(8, 16, of=np.int32),
            "sums": zeros(16, of=np.int32),
        },
        lambda given: {
            "turned": np.arange(128).reshape(8, 16).T.reshape(8, 16),
            "less": np.stack([np.full(64, 1), np.arange(0, 128, 2)], 1).reshape(8, 16),
            "sums": np.arange(128).reshape(8, 16).sum(0),
        },
    ),
}


def read(name: str) -> Module:
    path = TEXTS / name
    text = path.read_text()
    assert is_upstream(text)
    return read_upstream(text, str(path), {"num_warps": 4})


def check(name: str, module: Module) -> None:
    """Interpret a module with the arguments of a case."""
    case = CASES[name]
    given = case.arguments(np.random.default_rng(1))
    after = {key: value.copy() if isinstance(value, np.ndarray) else value for key, value in given.items()}
    interp.run(module, after, case.grid)
    for key, array in case.expected(given).items():
        np.testing.assert_array_equal(after[key], array, key)


@pytest.mark.parametrize("name", CASES)
def test_a_text_means_what_it_says(name: str) -> None:
    check(name, read(name))


@pytest.mark.parametrize("name", CASES)
def test_it_means_the_same_in_kbuilds_form(name: str) -> None:
    printed = print_module(read(name))
    assert not is_upstream(printed)
    again = parse_module(printed)
    assert print_module(again) == printed
    check(name, again)


@pytest.mark.parametrize("name", CASES)
def test_kbuilds_passes_go_on_from_it(name: str) -> None:
    case = CASES[name]
    made = kbuild.compile(str(TEXTS / name), target=case.arch, stop="ptx", lineinfo=True)
    given = case.arguments(np.random.default_rng(2))
    for schedule, checks in (("lockstep", ""), ("random(1)", "strict")):
        outputs = outputs_of(made, emulate(made, given, case.grid, schedule=schedule, checks=checks).check())
        for key, array in case.expected(given).items():
            np.testing.assert_array_equal(outputs[key], array, f"{key}, {schedule}")
