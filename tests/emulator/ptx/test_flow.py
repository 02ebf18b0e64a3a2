"""`brx.idx`: branches to one of a list of labels."""

from __future__ import annotations

import numpy as np
import pytest

from kbuild.emulator.ptx.model import PtxError
from kbuild.emulator.ptx.parser import parse
from kbuild.emulator.ptx.printer import print_module
from tests.emulator.emulated import at, kernel, launch, results

SWITCH = """
    mov.b32 %r0, 5;
    @%p1 brx.idx %r_index, ways;
    bra met;
    ways: .branchtargets first, second, third;
first:
    mov.b32 %r0, 10;
    bra met;
second:
    mov.b32 %r0, 20;
third:
    add.u32 %r0, %r0, 30;
met:
    add.u32 %r0, %r0, 1;
"""
LANE = np.arange(64)


@pytest.mark.parametrize("schedule", ["lockstep", "round-robin"])
def test_each_thread_takes_its_branch(schedule: str) -> None:
    index = LANE % 3
    body = "    setp.lt.u32 %p1, %r_tid, 40;\n" + SWITCH
    expected = np.where(LANE < 40, np.array([10, 50, 35])[index], 5) + 1
    assert (results(body, 64, index=index) == expected).all()


def test_an_index_without_a_label_is_found() -> None:
    arrays = {"x": np.array([3] * 32, np.uint32)}
    body = (
        "    .reg .b32 %r_index;\n    setp.eq.u32 %p1, 0, 0;\n"
        + at("x", 4)
        + "    ld.global.b32 %r_index, [%d0];\n"
        + SWITCH
    )
    (found,) = launch(body, arrays).findings
    assert (
        found.kind == "branch-misuse"
        and "the index 3 of a branch is not one of its 3 labels" in found.message
    )
    assert found.instruction is not None and found.instruction.name == "brx.idx"


def test_in_a_function_that_is_called_twice() -> None:
    module = """
.func (.param .b32 result) way(.param .b32 index) {
    .reg .b32 %r<3>;
    ld.param.b32 %r1, [index];
    list: .branchtargets zero, one;
    brx.idx %r1, list;
zero:
    mov.b32 %r1, 7;
one:
    st.param.b32 [result], %r1;
    ret;
}
"""
    call = "{ .param .b32 a; .param .b32 b;\n st.param.b32 [a], %r1;\n call.uni (b), way, (a);\n ld.param.b32 %r2, [b]; }\n"
    body = "and.b32 %r1, %r_tid, 1;\n" + call + "mov.b32 %r0, %r2;\n xor.b32 %r1, %r1, 1;\n" + call
    body += "mad.lo.u32 %r0, %r2, 100, %r0;\n" + at("out", 4) + "st.global.b32 [%d0], %r0;\n"
    found = launch(body, {"out": np.zeros(32, np.uint32)}, module=module).check().outputs[0]
    assert found is not None and (found == np.where(LANE[:32] % 2, 701, 107)).all()


def test_lists_of_labels_are_printed_and_must_be_there() -> None:
    text = kernel(SWITCH.replace("%r_index", "%r_tid"))
    module = parse(text)
    assert parse(
        print_module(module)
    ) == module and "ways: .branchtargets first, second, third;" in print_module(module)
    with pytest.raises(PtxError, match=r"names no list of \.branchtargets"):
        launch(SWITCH.replace("%r_index, ways", "%r_tid, others"), {})
