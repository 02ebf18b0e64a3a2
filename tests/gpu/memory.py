"""Torch tensors between red zones, which catch all writes beside outputs and reads beside inputs.

The elements around a tensor and between its rows are NaN, so that reading one of them spoils the result; all
of them, and all inputs, have to be the same bits afterwards.  Outputs are NaN before the launch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

RED_ZONE = 512
"""Elements before and after a tensor; a multiple of 16 bytes for every type, so that it changes no alignment."""

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
ROUNDING = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
"""The largest relative error of a right result that is rounded to the type."""
SMALLEST = {torch.float32: 2.0**-126, torch.float16: 2.0**-24, torch.bfloat16: 2.0**-126}
"""Below this the error is absolute: results that small may be rounded to the next of the least numbers, or to
zero."""


@dataclass(frozen=True)
class _Kept:
    buffer: torch.Tensor
    before: torch.Tensor
    output: torch.Tensor | None


class Memory:
    """The tensors of one launch."""

    def __init__(self) -> None:
        self._kept: list[_Kept] = []

    def input(
        self, values: torch.Tensor, strides: Sequence[int] | None = None, offset: int = 0
    ) -> torch.Tensor:
        """The values with strides in elements (row-major by default), `offset` elements away from an aligned
        address."""
        buffer, view = _surrounded(tuple(values.shape), values.dtype, strides, offset)
        view.copy_(values)
        self._kept.append(_Kept(buffer, bits(buffer).clone(), None))
        return view

    def output(
        self, shape: Sequence[int], dtype: torch.dtype, strides: Sequence[int] | None = None, offset: int = 0
    ) -> torch.Tensor:
        """A tensor of NaN that the kernel is to fill."""
        buffer, view = _surrounded(tuple(shape), dtype, strides, offset)
        self._kept.append(_Kept(buffer, bits(buffer).clone(), view))
        return view

    def check(self, what: object) -> None:
        """Assert that nothing but the outputs has changed."""
        for number, kept in enumerate(self._kept):
            expected = kept.before
            if kept.output is not None and kept.output.numel():
                view = kept.output
                expected.as_strided(view.shape, view.stride(), view.storage_offset()).copy_(bits(view))
            place = f"input {number}" if kept.output is None else f"the memory around output {number}"
            assert torch.equal(bits(kept.buffer), expected), f"{what}: {place} changed"


def _surrounded(
    shape: tuple[int, ...], dtype: torch.dtype, strides: Sequence[int] | None, offset: int
) -> tuple[torch.Tensor, torch.Tensor]:
    if strides is None:
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    extent = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides)) if math.prod(shape) else 0
    buffer = torch.full((2 * RED_ZONE + offset + extent,), math.nan, dtype=dtype, device="cuda")
    return buffer, buffer.as_strided(shape, tuple(strides), RED_ZONE + offset)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The elements as whole numbers, under which NaNs are equal as well."""
    return tensor.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])


def whole(generator: torch.Generator, shape: Sequence[int], dtype: torch.dtype, largest: int) -> torch.Tensor:
    """Random whole numbers from -largest to largest."""
    return torch.randint(-largest, largest + 1, tuple(shape), generator=generator, device="cuda").to(dtype)


def normal(
    generator: torch.Generator, shape: Sequence[int], dtype: torch.dtype, scale: float = 1.0
) -> torch.Tensor:
    """Random normal numbers."""
    return (torch.randn(tuple(shape), generator=generator, device="cuda") * scale).to(dtype)


def assert_equal(found: torch.Tensor, right: torch.Tensor, what: object) -> None:
    """Assert that the result is the float64 one, rounded to the result's type."""
    _assert_within(found, right.to(found.dtype).double(), torch.zeros((), device=found.device), what)


def assert_close(
    found: torch.Tensor,
    right: torch.Tensor,
    what: object,
    relative: float = 0.0,
    absolute: float | torch.Tensor = 0.0,
) -> None:
    """Assert that the result is the float64 one but for its rounding and for the errors allowed."""
    dtype = found.dtype
    _assert_within(
        found, right, absolute + SMALLEST[dtype] + (relative + 1.01 * ROUNDING[dtype]) * right.abs(), what
    )


def _assert_within(found: torch.Tensor, right: torch.Tensor, limit: torch.Tensor, what: object) -> None:
    assert found.shape == right.shape, f"{what}: shape {tuple(found.shape)}, not {tuple(right.shape)}"
    wrong = ~((found.double() - right).abs() <= limit)
    if wrong.any():
        place = tuple(wrong.nonzero()[0].tolist())
        pair = f"{found[place].item()!r} and not {right[place].item()!r}"
        raise AssertionError(
            f"{what}: {int(wrong.sum())} of {wrong.numel()} elements are wrong, first at {place}: {pair}"
        )
