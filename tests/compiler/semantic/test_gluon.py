"""What kernels of Gluon ask about layouts while they are compiled, and objects of their authors' classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kbuild
from kbuild.compiler.frontend import build_module
from kbuild.errors import KbuildError
from kbuild.language import gluon
from kbuild.language.gluon import language as gl

TILE = gl.constexpr(gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0]))
LINE = gl.constexpr(gl.BlockedLayout([1], [32], [4], [0]))
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false


@gluon.jit
def about_layouts(x):
    gl.static_assert(gl.num_warps() == 4 and gl.num_ctas() == 1)
    rows = gl.arange(0, 32, gl.SliceLayout(1, TILE))
    gl.static_assert(rows.type.layout == gl.SliceLayout(1, TILE))
    gl.static_assert(isinstance(rows.type.layout, gl.SliceLayout) and rows.type.layout.parent.order[0] == 1)
    tile = rows[:, None] + gl.zeros([1, 32], gl.int32, TILE)
    gl.static_assert(tile.type.layout == TILE and tile.shape == (32, 32))
    gl.static_assert(gl.sum(tile, axis=0).type.layout == gl.SliceLayout(0, TILE))
    gl.static_assert(gl.zeros_like(tile).type == gl.distributed_type(gl.int32, [32, 32], TILE))
    line: gl.constexpr = gl.to_linear_layout(LINE, [128])
    gl.static_assert(line.lane_bases == [[1], [2], [4], [8], [16]] and line.warp_bases == [[32], [64]])
    gl.store(x + gl.arange(0, 128, LINE), gl.arange(0, 128, LINE))


@gluon.jit
def about_memory(x, layout: gl.constexpr, conflicts: gl.constexpr):
    tile = gl.allocate_shared_memory(gl.float32, [32, 32], layout)
    gl.static_assert(tile.shape == (32, 32) and tile.dtype == gl.float32 and tile.layout == layout)
    columns: gl.constexpr = gl.BlockedLayout([1, 1], [32, 1], [1, 4], [0, 1])
    distributed: gl.constexpr = gl.distributed_type(gl.float32, [32, 32], columns)
    gl.static_assert(gl.bank_conflicts(distributed, tile.type) == conflicts)
    gl.static_assert(
        gl.bank_conflicts(distributed, gl.shared_memory_descriptor_type(gl.float32, [32, 32], layout))
        == conflicts
    )


@gluon.constexpr_function
def halves(count):
    made = [1, 1]
    made.append(0)
    for i in range(count):
        made[i % 2] *= 2
    return made


@gluon.jit
def about_lists(x):
    gl.static_assert(halves(3) == [4, 2, 0])
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [8, 4], halves(2)[:2], [1, 0])
    gl.static_assert(layout.warps_per_cta == [2, 2])


def built(kernel: Any, constexprs: dict | None = None, **types: str) -> None:
    build_module(kernel, {"x": "*i32", **types}, constexprs or {})


@pytest.mark.parametrize("kernel", [about_layouts, about_lists])
def test_facts(kernel: Any) -> None:
    built(kernel)


@pytest.mark.parametrize(
    ("layout", "conflicts"),
    [
        (gl.SwizzledSharedLayout(1, 1, 1, [1, 0]), 31),
        (gl.SwizzledSharedLayout(1, 1, 8, [1, 0]), 3),
        (gl.SwizzledSharedLayout(1, 1, 32, [1, 0]), 0),
        (gl.SwizzledSharedLayout(1, 1, 1, [0, 1]), 0),
        (gl.PaddedSharedLayout.with_identity_for([[32, 1]], [32, 32], [1, 0]), 0),
    ],
)
def test_conflicts_of_a_column(layout: Any, conflicts: int) -> None:
    built(about_memory, {"layout": layout, "conflicts": conflicts})


def test_a_failed_assertion_about_a_layout_names_it() -> None:
    @gluon.jit
    def wrong(x):
        gl.static_assert(x.type.element_ty == gl.int32 and TILE.order == [0, 1], f"not in order: {TILE}")

    with pytest.raises(KbuildError, match=r"not in order: BlockedLayout\(size_per_thread=\[1, 4\]"):
        built(wrong)


@gluon.aggregate
class Window:
    """A part of an array."""

    base: gl.tensor
    size: gl.constexpr

    @gluon.constexpr_function
    def __init__(self, base, size):
        self.base = base
        self.size = gl.constexpr(size)

    @gluon.jit
    def next(self):
        return Window(self.base + self.size, self.size)

    @gluon.jit
    def double(self):
        place = self.base + gl.arange(0, self.size, LINE)
        gl.store(place, gl.load(place) * 2)


@gluon.jit
def windows(x, count):
    window = Window(x, 128)
    for _ in range(count):
        window.double()
        window = window.next()
    if count > 1:
        window = window.next()
    window.double()


def test_objects_go_through_loops_and_branches() -> None:
    values = np.ones(128 * 6, np.int32)
    windows.interpret[1](values, 2)
    assert values.reshape(6, 128)[:, 0].tolist() == [2, 2, 1, 2, 1, 1]


@gluon.jit
def changed(x):
    window = Window(x, 128)
    window.size = 64


@gluon.jit
def unknown(x):
    gl.store(x, Window(x, 128).first)


@gluon.aggregate
class Unfilled:
    """One whose constructor forgets a field."""

    base: gl.tensor
    size: gl.constexpr

    @gluon.constexpr_function
    def __init__(self, base):
        self.base = base


@gluon.jit
def unfilled(x):
    Unfilled(x)


@gluon.jit
def wrong_count(x):
    Window(x)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (changed, "an attribute cannot be assigned in a kernel"),
        (unknown, "Window(a scalar pointer<int32>, 128) has no attribute `first`"),
        (unfilled, "Unfilled.__init__ gives no value to size"),
        (wrong_count, "`__init__` is called without its argument `size`"),
    ],
    ids=lambda item: getattr(item, "__name__", ""),
)
def test_mistakes_with_objects(kernel: Any, message: str) -> None:
    with pytest.raises(KbuildError) as caught:
        built(kernel)
    assert message in caught.value.message


def test_layouts_are_values_of_the_running_program() -> None:
    layout = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    assert layout == TILE.value and layout.order == (1, 0) and gl.SliceLayout(0, layout).parent is layout
    with pytest.raises(ValueError, match="a warp has 32"):
        gl.BlockedLayout([1], [16], [4], [0])
    assert kbuild.compile(about_layouts, signature={"x": "*i32"}, constexprs={}, target="sm_80", stop="ttir")
