"""Kernels of all kinds with inputs and right answers: the shared test set of interpreter, passes, backend and
GPU."""

from zoo import (
    cases_control,
    cases_descriptors,
    cases_dots,
    cases_elementwise,
    cases_gluon,
    cases_matmul,
    cases_memory,
    cases_reductions,
    cases_shapes,
    cases_split_dots,
    cases_tiles,
    cases_undefined,
    cases_wrapping,
)
from zoo.attention import backward, forward
from zoo.case import Bits, Case, numbers
from zoo.rows import gradients, lengths

_GROUPS = (
    cases_elementwise,
    cases_reductions,
    lengths,
    cases_shapes,
    cases_control,
    cases_dots,
    cases_split_dots,
    gradients,
    cases_matmul,
    forward,
    backward,
    cases_tiles,
    cases_descriptors,
    cases_undefined,
    cases_memory,
    cases_wrapping,
    cases_gluon,
)
CASES = {case.name: case for group in _GROUPS for case in group.CASES}

__all__ = ["CASES", "Bits", "Case", "numbers"]
