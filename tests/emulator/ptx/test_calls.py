"""Calls of functions, by name and by address, which are put into their callers."""

from __future__ import annotations

import numpy as np
import pytest

from kbuild.emulator.engine.launch import run
from kbuild.emulator.ptx.model import PtxError
from kbuild.emulator.ptx.parser import parse
from kbuild.emulator.ptx.printer import print_module
from tests.emulator.emulated import at, kernel, launch

FUNCTION = """
.func (.param .b32 out) {name} (.param .b32 x)
{{
    .reg .b32 %a;
    .reg .pred %p;
    ld.param.b32 %a, [x];
    {body}
    st.param.b32 [out], %a;
    ret;
}}
"""
TWICE = FUNCTION.format(name="twice", body="add.u32 %a, %a, %a;")
SQUARE = FUNCTION.format(name="square", body="mul.lo.u32 %a, %a, %a;")
BY_NAME = """
    {
    .param .b32 given;
    .param .b32 found;
    st.param.b32 [given], %r_tid;
    call.uni (found), twice, (given);
    ld.param.b32 %r0, [found];
    }
"""
BY_ADDRESS = """
    and.b32 %r1, %r_tid, 1;
    setp.eq.u32 %p1, %r1, 0;
    mov.u64 %d1, twice;
    mov.u64 %d2, square;
    selp.b64 %d3, %d1, %d2, %p1;
    {
    .param .b32 given;
    .param .b32 found;
    st.param.b32 [given], %r_tid;
    prototype: .callprototype (.param .b32 _) _ (.param .b32 _);
    call (found), %d3, (given), prototype;
    ld.param.b32 %r0, [found];
    }
"""
STORE = at("out", 4) + "    st.global.b32 [%d0], %r0;\n"
LANE = np.arange(32, dtype=np.uint32)


def called(body: str, module: str, schedule: str = "lockstep") -> np.ndarray | None:
    """What each thread leaves in %r0."""
    out = np.zeros(32, np.uint32)
    return launch(body + STORE, {"out": out}, module=module, schedule=schedule).check().outputs[0]


def test_a_function_gets_and_returns_parameters() -> None:
    assert (called(BY_NAME, TWICE) == 2 * LANE).all()


@pytest.mark.parametrize("schedule", ["lockstep", "round-robin", "reverse"])
def test_each_thread_calls_the_function_whose_address_it_has(schedule: str) -> None:
    assert (
        called(BY_ADDRESS, TWICE + SQUARE, schedule=schedule) == np.where(LANE % 2, LANE * LANE, 2 * LANE)
    ).all()


def test_an_address_that_is_none_of_a_function_is_found() -> None:
    body = BY_ADDRESS.replace("selp.b64 %d3, %d1, %d2, %p1", "mov.b64 %d3, 12345")
    report = launch(body + STORE, {"out": np.zeros(32, np.uint32)}, module=TWICE + SQUARE)
    assert [finding.kind for finding in report.findings] == ["trap"]


def test_recursion_is_refused() -> None:
    again = "{ .param .b32 y; .param .b32 z; st.param.b32 [y], %a; call.uni (z), twice, (y); ld.param.b32 %a, [z]; }"
    text = kernel(BY_NAME + STORE, ("out",), FUNCTION.format(name="twice", body=again))
    with pytest.raises(PtxError, match=r"line \d+: recursive call of twice"):
        run(text, "test", (1,), 1, 0, [np.zeros(32, np.uint32)])


def test_prototypes_are_printed_as_they_were_read() -> None:
    text = print_module(parse(kernel(BY_ADDRESS, (), TWICE + SQUARE)))
    assert ": .callprototype (.param .b32 _) _ (.param .b32 _);" in text
    assert print_module(parse(text)) == text
