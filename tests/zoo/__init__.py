"""Kernels of all kinds with inputs and right answers: the shared test set of interpreter, passes, backend and
GPU."""

from zoo import (
    cases_control,
    cases_descriptors,
    cases_dots,
    cases_elementwise,
    cases_gluon,
    cases_layer_norm,
    cases_matmul,
    cases_memory,
    cases_reductions,
    cases_rows,
    cases_shapes,
    cases_split_dots,
    cases_tiles,
    cases_undefined,
    cases_wrapping,
)
from zoo.attention import backward, forward
from zoo.case import Bits, Case, numbers

_GROUPS = (
    cases_elementwise,
    cases_reductions,
    cases_rows,
    cases_shapes,
    cases_control,
    cases_dots,
    cases_split_dots,
    cases_layer_norm,
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
