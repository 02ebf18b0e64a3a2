"""A slice of swizzled memory: what a thread reads at (its own offset XOR the slice's start) is the slice's
element."""

from __future__ import annotations

import pytest

from kbuild.compiler.layout import LinearLayout, dot_operand, offset_map, parse_layout
from kbuild.compiler.lower.memory.shared_memory import offset_of
from kbuild.compiler.transforms.gpu.dot.prefetch import first_part

SHARED = [
    "swizzled{vector=8, perPhase=2, maxPhase=4, order=[1,0]}",
    "swizzled{vector=8, perPhase=1, maxPhase=8, order=[0,1]}",
]


def bits(images: tuple[int, ...], index: int) -> int:
    result = 0
    for position, image in enumerate(images):
        result ^= image if index >> position & 1 else 0
    return result


@pytest.mark.parametrize("text", SHARED)
@pytest.mark.parametrize("index", [0, 1])
def test_every_step_reads_its_own_elements(text: str, index: int) -> None:
    shape, axis, step = (64, 64), 1 - index, 16
    shared = parse_layout(text, shape)
    part = first_part(dot_operand(shape, (2, 2), index, 2), axis, step)
    assert isinstance(part, LinearLayout)
    images = offset_map(part, shared)
    for number in range(shape[axis] // step):
        start = [0, 0]
        start[axis] = number * step
        for register in range(part.size("register")):
            for lane, warp in [(0, 0), (5, 1), (18, 2), (31, 3)]:
                place = (
                    bits(images["register"], register)
                    ^ bits(images["lane"], lane)
                    ^ bits(images["warp"], warp)
                )
                row, column = part.coordinates(register=register, lane=lane, warp=warp)
                found = shared.coordinates(offset=place ^ offset_of(shared, start))
                assert found == (row + start[0], column + start[1])
