"""Dots of warpgroups that start from bits a ptxas can tell, for one that takes them for the result's bits."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kbuild
from kbuild.compiler.backend.cubin import ptxas_version
from kbuild.compiler.backend.ptxas_wheels import choose, guarantees_of, installed
from tests.compiler.backend.test_cross_check import nvdisasm
from tests.emulator.artifacts import emulate

SOURCE = """
import triton.language as tl

def product(a, b, bias, c, bits, HOW: tl.constexpr, LOOP: tl.constexpr):
    m, n, k = tl.arange(0, 64), tl.arange(0, 32), tl.arange(0, 64)
    left = tl.load(a + m[:, None] * 64 + k[None, :])
    right = tl.load(b + k[:, None] * 32 + n[None, :])
    if HOW == "zeros":
        acc = tl.zeros((64, 32), tl.float32)
    elif HOW == "ones":
        acc = tl.full((64, 32), 1, tl.float32)
    elif HOW == "chosen":
        acc = tl.where(m[:, None] < n[None, :], 1.0, 0.0) + tl.zeros((64, 32), tl.float32)
    elif HOW == "widened":
        acc = tl.load(bias + n)[None, :].to(tl.float32) + tl.zeros((64, 32), tl.float32)
    if LOOP:
        for _ in range(LOOP):
            acc = tl.dot(left, right, acc)
    else:
        acc = tl.dot(left, right, acc)
    place = m[:, None] * 32 + n[None, :]
    tl.store(c + place, acc)
    tl.store(bits + place, acc.to(tl.int32, bitcast=True) & 0xFFFFFF)
"""
STARTS = ["zeros", "ones", "chosen", "widened"]


@pytest.fixture(scope="module")
def old() -> str:
    """A ptxas that does not see what dots write."""
    chosen = choose(installed(ptxas_version), "12.9")
    assert not guarantees_of(chosen.name).sees_dots_write
    return chosen.path


def product(tmp_path: Path, how: str, loop: int = 0, **options: Any) -> kbuild.Artifact:
    file = tmp_path / "product.py"
    file.write_text(SOURCE)
    signature = dict.fromkeys(("a", "b", "bias"), "*fp16:16") | {"c": "*fp32:16", "bits": "*i32:16"}
    return kbuild.compile(
        f"{file}:product",
        signature=signature,
        constexprs={"HOW": how, "LOOP": loop},
        target="sm_90",
        **options,
    )


@pytest.mark.parametrize("loop", [0, 1, 2])
@pytest.mark.parametrize("how", STARTS)
def test_bits_of_the_result_are_computed(how: str, loop: int, old: str, tmp_path: Path) -> None:
    """Were they taken for those of the start, no thread would mask its 16 elements."""
    artifact = product(tmp_path, how, loop, ptxas=old)
    (tmp_path / "k.cubin").write_bytes(artifact.asm["cubin"])
    sass = subprocess.run(
        [nvdisasm(), tmp_path / "k.cubin"], capture_output=True, text=True, check=True
    ).stdout
    assert len(re.findall(r"LOP3\.LUT R\d+, R\d+, 0xffffff\b", sass)) == 16
    assert "HGMMA.64x32x16.F32" in sass


@pytest.mark.parametrize("how", STARTS)
def test_hidden_starts_have_their_values(how: str, old: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    a, b, bias = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((64, 64), (64, 32), (32,)))
    given = {"a": a, "b": b, "bias": bias, "c": np.zeros((64, 32), np.float32)}
    given["bits"] = np.zeros((64, 32), np.int32)
    artifact = product(tmp_path, how, ptxas=old, stop="ptx")
    rows, columns = np.indices((64, 32))
    start = {"zeros": 0, "ones": 1, "chosen": rows < columns, "widened": bias}[how]
    expected = (a.astype(np.float32) @ b.astype(np.float32) + start).astype(np.float32)
    *_, c, bits = emulate(artifact, given).check().outputs
    np.testing.assert_array_equal(c, expected)
    np.testing.assert_array_equal(bits, expected.view(np.int32) & 0xFFFFFF)


def test_versions_that_see_what_dots_write_pay_nothing(old: str, tmp_path: Path) -> None:
    """Nor do zeros, which no instruction is given, and what a loop carries."""
    for how, loop, is_hidden in (("zeros", 0, False), ("ones", 2, False), ("ones", 0, True)):
        new, hidden = (product(tmp_path, how, loop, ptxas=which, stop="ptx") for which in (None, old))
        assert (new.asm["ptx"] != hidden.asm["ptx"]) == is_hidden
        assert ("%ctaid.y" in hidden.asm["ptx"]) == is_hidden


@pytest.mark.parametrize(
    ("version", "sees"), [("12.4", False), ("12.9.86", False), ("13.0.88", True), ("?", False)]
)
def test_versions(version: str, sees: bool) -> None:
    assert guarantees_of(version).sees_dots_write == sees
