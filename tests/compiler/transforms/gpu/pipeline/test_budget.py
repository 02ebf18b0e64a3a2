"""How many buffers loops get."""

from __future__ import annotations

import pytest

from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ops.control import For
from kbuild.compiler.transforms.gpu.pipeline.budget import is_third_buffer_free
from kbuild.targets.sm_90 import TARGET as SM_90
from tests.compiler.transforms.gpu.loops import LOOPS, kernel

KIB = 1024


@pytest.mark.parametrize(
    ("stage_bytes", "is_free"),
    [
        (16 * KIB, True),  # Four programs of a multiprocessor instead of six.
        (32 * KIB, True),  # Two instead of three.
        (44 * KIB, False),  # One instead of two.
        (64 * KIB, True),  # One in any case.
        (80 * KIB, False),  # None.
    ],
)
def test_a_third_buffer_must_not_leave_a_multiprocessor_one_program_for_two(
    stage_bytes: int, is_free: bool
) -> None:
    func = parse_module(kernel(LOOPS["matmul"], 2)).kernel
    (loop,) = (op for op in func.body.walk() if isinstance(op, For))
    assert is_third_buffer_free(func, loop, stage_bytes, SM_90) == is_free
