"""Arguments of a launch: tensor maps are made from the arguments they name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kbuild.emulator import EmulationError, TensorMapArgument, arguments_of
from kbuild.emulator.async_ops.tensor_map import TensorMap, TensorMapError
from kbuild.emulator.engine.arguments import place
from kbuild.emulator.engine.memory import Heap

PARAMETERS = (
    ("a", "!tt.ptr<f16>"),
    ("M", "i32"),
    ("K", "i32"),
    ("lda", "i64"),
    ("a_map", "tensormap f16 128x64 128 a M,K lda"),
)
MATRIX = np.arange(100 * 80, dtype=np.float16).reshape(100, 80)


def test_a_tensor_map_names_its_array_sizes_and_stride() -> None:
    *_, made = arguments_of(PARAMETERS, {"a": MATRIX, "M": 100, "K": 72, "lda": 80})
    assert made == TensorMapArgument("f16", (128, 64), 128, 0, (100, 72), (80,))


def test_the_kernel_gets_the_address_of_the_copy() -> None:
    heap = Heap()
    passed, addresses = place(heap, arguments_of(PARAMETERS, {"a": MATRIX, "M": 100, "K": 72, "lda": 80}))
    assert (
        passed[0] == addresses[0]
        and (heap.bytes(passed[0], MATRIX.nbytes).view(np.float16) == MATRIX.ravel()).all()
    )
    assert TensorMap.decode(passed[4]) == TensorMap(passed[0], "f16", (72, 100), (160,), (64, 128), (1, 1), 3)


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"strides": (81,)}, "stride 162 of dimension 1 is not a multiple of 16"),
        ({"shape": (100, (1 << 32) + 1)}, "size 4294967297 of dimension 0"),
        ({"box": (128, 128)}, "the box is 256 bytes wide, the swizzle has rows of 128"),
    ],
)
def test_maps_that_the_driver_refuses(changed: dict[str, object], message: str) -> None:
    good = TensorMapArgument("f16", (128, 64), 128, 0, (100, 72), (80,))
    with pytest.raises(TensorMapError, match=message):
        place(Heap(), [MATRIX, replace(good, **changed)])


def test_a_missing_value_is_reported() -> None:
    with pytest.raises(EmulationError, match="no value for the parameter lda"):
        arguments_of(PARAMETERS, {"a": MATRIX, "M": 100, "K": 72})
