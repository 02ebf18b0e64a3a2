"""The algebra of layouts, on random ones."""

import random

import pytest

from kbuild.compiler.layout import LinearLayout, blocked, mma_accumulator, unswizzled
from kbuild.errors import InternalError
from tests.compiler.layout.random_layouts import SHAPES, places, random_layout


@pytest.fixture(params=range(12))
def layout(request):
    source = random.Random(request.param)
    return random_layout(source, source.choice(SHAPES))


def test_the_swizzle_of_the_module_docstring():
    layout = LinearLayout.make((4, 4), offset=[(0, 1), (0, 2), (1, 1), (2, 2)])
    assert layout.coordinates(offset=6) == (1, 3)
    assert [layout.coordinates(offset=offset) for offset in range(16)] == [
        (o // 4, o % 4 ^ o // 4) for o in range(16)
    ]


def test_a_layout_is_the_xor_of_its_bases():
    layout = LinearLayout.make(
        (16, 16), register=[(0, 1)], lane=[(0, 2), (0, 4), (0, 8), (1, 0), (2, 0)], warp=[(4, 0), (8, 0)]
    )
    assert layout.coordinates(register=1, lane=9, warp=2) == (9, 3)
    assert layout.bases_along("lane", 1) == (2, 4, 8, 0, 0)
    assert layout.bases_along("lane", -2) == (0, 0, 0, 1, 2)


def test_views_follow_the_elements(layout):
    """Transposing, reshaping and dropping an axis move coordinates and nothing else."""
    order = list(reversed(range(layout.rank)))
    flipped, flat = layout.transpose(order), layout.reshape((layout.numel,))
    for index in places(layout):
        coordinates = layout.coordinates(**index)
        assert flipped.coordinates(**index) == tuple(reversed(coordinates))
        assert flat.coordinates(**index) == (layout.flatten(coordinates),)
        assert layout.unflatten(layout.flatten(coordinates)) == coordinates
        for axis in range(layout.rank):
            assert layout.drop(axis).coordinates(**index) == coordinates[:axis] + coordinates[axis + 1 :]
    assert flipped.transpose(order) == layout
    assert layout.expand_dims(-1).drop(-1) == layout


def test_free_bits_leave_each_element_once(layout):
    held = [
        layout.flat(**i)
        for i in places(layout)
        if all(not i[dim] & layout.free_bits(dim) for dim in layout.dims)
    ]
    assert sorted(held) == list(range(layout.numel))
    assert layout.is_surjective()
    assert layout.is_injective() == (len(places(layout)) == layout.numel)


def test_kernel_steps_keep_the_element(layout):
    for step in layout.kernel():
        assert layout.flat(**step) == 0
    assert len(places(layout)) == layout.numel << len(layout.kernel())


def test_find_and_representatives(layout):
    for flat in range(layout.numel):
        assert layout.flat(**layout.find(flat)) == flat
    registers = layout.registers()
    assert [registers[first] for first in layout.representatives()] == registers
    assert sorted({registers.index(flat) for flat in registers}) == layout.unique_registers()


@pytest.mark.parametrize("seed", range(30))
def test_solve_finds_every_element(seed):
    source = random.Random(seed)
    shape = source.choice(SHAPES)
    first, second = random_layout(source, shape), random_layout(source, shape)
    conversion = first.solve(second)
    for index in places(second):
        assert first.flat(**conversion.source(**index)) == second.flat(**index)


def test_solve_prefers_the_copy_in_the_same_lane_then_the_same_warp():
    # All lanes and warps hold all eight elements; the destination wants them spread over lanes.
    source = LinearLayout.make((8,), register=[1, 2, 4], lane=[0, 0], warp=[0])
    spread = LinearLayout.make((8,), register=[1], lane=[2, 4], warp=[0])
    conversion = source.solve(spread)
    assert conversion.keeps("lane") and conversion.keeps("warp")
    assert conversion.source(register=1, lane=2, warp=1) == {"register": 5, "lane": 2, "warp": 1, "block": 0}
    # Both warps hold everything, spread over lanes: other lanes must be asked, other warps need not be.
    source = LinearLayout.make((8,), register=[1], lane=[2, 4], warp=[0])
    other = LinearLayout.make((8,), register=[4], lane=[1, 2], warp=[4])
    conversion = source.solve(other)
    assert not conversion.keeps("lane") and conversion.keeps("warp")


def test_product_tiles():
    thread = LinearLayout.make((1, 4), register=[1, 2])
    lanes = LinearLayout.make((8, 4), lane=[(0, 1), (0, 2), (1, 0), (2, 0), (4, 0)])
    assert thread * lanes == blocked((8, 16), [1, 4], [8, 4], [1, 1], [1, 0])


def test_contiguous_registers_are_the_vector_width():
    assert blocked((64, 64), [1, 4], [4, 8], [4, 1], [1, 0]).contiguous_per_thread() == 4
    assert blocked((64, 64), [1, 4], [4, 8], [4, 1], [1, 0]).contiguous_per_thread(0) == 1
    assert blocked((64, 64), [4, 1], [8, 4], [1, 4], [0, 1]).contiguous_per_thread(0) == 4
    assert mma_accumulator((64, 64), (4, 1)).contiguous_per_thread() == 2
    assert unswizzled((8, 8), [1, 0]).contiguous_per_thread() == 8
    # Lane 1 holds 1 0 3 2: nothing may be loaded as a vector of four, nor of two.
    assert LinearLayout.make((8,), register=[1, 2], lane=[5]).contiguous_per_thread() == 1
    assert LinearLayout.make((8,), register=[1, 2], lane=[6]).contiguous_per_thread() == 2
    assert LinearLayout.make((), register=[0]).contiguous_per_thread() == 1


def test_broadcast_keeps_what_threads_hold():
    row = blocked((1, 32), [1, 1], [1, 32], [1, 4], [1, 0])
    full = row.broadcast((4, 32))
    assert full.is_surjective()
    for index in places(row):
        assert {full.coordinates(**{**index, "register": r})[1] for r in range(4)} == {
            row.coordinates(**index)[1]
        }


def test_project_keeps_the_axis():
    parent = mma_accumulator((64, 64), (4, 1))
    assert parent.project(1) == parent.drop(1).expand_dims(1)
    assert parent.project(1).coordinates(register=3, lane=7, warp=1) == (25, 0)


def test_errors_are_reported():
    with pytest.raises(InternalError, match="powers of two"):
        LinearLayout.make((3,))
    with pytest.raises(InternalError, match="outside the shape"):
        LinearLayout.make((4,), lane=[4])
    with pytest.raises(InternalError, match="no such input dimensions"):
        LinearLayout.make((4,), thread=[1])
    with pytest.raises(InternalError, match="different shapes"):
        LinearLayout.make((4,), lane=[1, 2]).solve(LinearLayout.make((8,), lane=[1, 2, 4]))
    with pytest.raises(InternalError, match=r"lacks element \(4,\)"):
        LinearLayout.make((8,), lane=[1, 2]).solve(LinearLayout.make((8,), lane=[1, 2, 4]))
