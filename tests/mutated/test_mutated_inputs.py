"""Any input is accepted or refused with a message; `bench/fuzz/fuzz_input.py` tries many more."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import fuzz_input
import pytest
from mutated import ir, kernels, manifests

from kbuild.compiler.driver import opt
from kbuild.errors import CompileError


@pytest.mark.parametrize(
    "mutants, count", [(manifests, 300), (kernels, 25), (ir, 40)], ids=["manifests", "kernels", "ir"]
)
def test_mutated(mutants: fuzz_input.Mutants, count: int) -> None:
    results = dict(fuzz_input.in_processes(mutants, range(count), seconds=60.0))
    assert len(results) == count
    assert not {seed: result for seed, result in results.items() if result not in ("taken", "refused")}


def test_what_is_not_mutated_is_taken(tmp_path: Path) -> None:
    assert len(manifests.attempt(manifests.MANIFEST.encode(), tmp_path).splitlines()) == 66
    assert ".entry kernel" in kernels.attempt(kernels.KERNEL.encode(), tmp_path)
    assert all(".entry kernel" in ir.attempt(text, tmp_path) for text in ir.texts())


def test_a_break_a_hang_and_a_death_are_findings(tmp_path: Path) -> None:
    """The net itself: one that calls everything a refusal would catch nothing."""
    found = [result for _, result in fuzz_input.in_processes(_Broken, range(5), seconds=0.5)]
    assert (
        found[0].startswith("broke: KeyError")
        and found[1].startswith("hang: ")
        and found[2].startswith("died: SIGKILL")
    )
    assert found[3].startswith("mute: ") and found[4] == "taken"


class _Broken:
    """Inputs that go wrong in every way: the number of the seed is the input."""

    FIRST = [random.Random(seed).random() for seed in range(5)]

    @classmethod
    def mutated(cls, random_: random.Random) -> int:
        return cls.FIRST.index(random_.random())

    @staticmethod
    def attempt(number: int, folder: Path) -> str:
        if number == 0:
            raise KeyError("text")
        if number == 1:
            time.sleep(60)
        if number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 3:
            raise CompileError("")
        return ""


MODULES = {
    "an operand from another block": (
        """\
tt.func @f(%x: i32, %c: i1) {
  scf.if %c then_body() {
    %a: i32 = arith.constant {value = 1}
    scf.yield
  } else_body() {
    scf.yield
  }
  %b: i32 = arith.addi %a, %x
  tt.return
}
""",
        "f.ttir:8:13: error: not a module that kbuild makes: operand %a: i32 is not defined before it",
    ),
    "no terminator": (
        "tt.func @f(%x: i32) {\n  %b: i32 = arith.addi %x, %x\n}\n",
        "f.ttir:2:13: error: not a module that kbuild makes: a terminator must be the last operation",
    ),
    "nothing": ("", "f.ttir:1:1: error: expected tt.func"),
}


@pytest.mark.parametrize("text, message", MODULES.values(), ids=MODULES)
def test_ir_that_breaks_a_rule(text: str, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        opt(text, "cse", file="f.ttir")
    assert message in str(caught.value)
