"""Kernels of Gluon as sources: how they are found, what their names mean, and the types of their arguments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kbuild
from kbuild.compiler.frontend import build_module
from kbuild.compiler.frontend.layout_text import Unresolved, layout_of_text
from kbuild.compiler.frontend.signature import parse_type
from kbuild.compiler.frontend.sources.digest import source_digest
from kbuild.compiler.ir.printer import print_module
from kbuild.errors import KbuildError, UsageError
from kbuild.language import gluon
from kbuild.language.gluon import language as gl
from kbuild.language.gluon.language.nvidia import hopper

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false

KERNEL = """\
{imports}
@gluon.jit
def k(x, B: gl.constexpr = 64):
    layout: gl.constexpr = gl.BlockedLayout([2], [32], [gl.num_warps()], [0])
    gl.store(x + gl.arange(0, B, layout), gl.full([B], 1.0, gl.float32, layout))
"""
IMPORTS = [
    "from triton.experimental import gluon\nfrom triton.experimental.gluon import language as gl",
    "from kbuild.language import gluon\nfrom kbuild.language.gluon import language as gl",
    "from triton.experimental import gluon\nimport triton.experimental.gluon.language as gl",
    "import triton.experimental.gluon as gluon\nfrom triton.experimental import gluon as g\ngl = g.language",
]


@pytest.mark.parametrize("imports", IMPORTS, ids=["triton", "kbuild", "module", "attribute"])
def test_every_way_to_import_it(imports: str, tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(KERNEL.format(imports=imports))
    text = print_module(build_module(f"{tmp_path}/k.py:k", {"x": "*fp32"}, {}))
    assert "explicit_layouts = true" in text
    assert "#blocked = blocked{sizePerThread=[2], threadsPerWarp=[32], warpsPerCTA=[4], order=[0]}" in text


def test_functions_of_triton_and_gluon_do_not_mix(tmp_path: Path) -> None:
    imports = f"{IMPORTS[0]}\nimport triton\nimport triton.language as tl"
    kernel = KERNEL.format(imports=imports).replace("@gluon.jit", "@triton.jit")
    (tmp_path / "k.py").write_text(kernel)
    with pytest.raises(KbuildError) as caught:
        build_module(f"{tmp_path}/k.py:k", {"x": "*fp32"}, {})
    assert "gl.num_warps" in caught.value.message and "@gluon.jit" in str(caught.value)


@gluon.jit
def doubled(x, n, B: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([2], [32], [gl.num_warps()], [0])
    place = gl.program_id(0) * B + gl.arange(0, B, layout)
    ready = gl.allocate_shared_memory(gl.int64, [1], hopper.mbarrier.MBarrierLayout())
    hopper.mbarrier.init(ready, count=1)
    gl.store(x + place, gl.load(x + place, place < n) * 2, mask=place < n)


def test_kernels_of_a_program_that_runs() -> None:
    values = np.arange(200, dtype=np.float32)
    doubled.interpret[2](values, 150, B=128)
    assert values.tolist() == [2 * i if i < 150 else i for i in range(200)]


def test_the_digest_knows_gluon_and_aggregates(tmp_path: Path) -> None:
    def digest(text: str) -> str:
        (tmp_path / "k.py").write_text(text)
        return source_digest(f"{tmp_path}/k.py", "k")

    kernel = (
        KERNEL.format(imports=IMPORTS[0]).replace("1.0", "Pair(1.0, 2).one")
        + """
@gluon.aggregate
class Pair:
    one: gl.constexpr
    two: gl.constexpr

    @gluon.constexpr_function
    def __init__(self, one, two):
        self.one = gl.constexpr(one)
        self.two = gl.constexpr(two)
"""
    )
    edits = [
        ("@gluon.jit", "@gluon.jit(debug=True)"),
        ("[2], [32]", "[1], [32]"),
        ("one: gl.constexpr\n", "one: gl.tensor\n"),
        ("constexpr(two)", "constexpr(two + 1)"),
    ]
    assert all(old in kernel for old, _ in edits)
    assert len({digest(kernel), *(digest(kernel.replace(*edit)) for edit in edits)}) == 5
    triton = kernel.replace("@gluon.jit\n", "@triton.jit\n").replace("@gluon", "import triton\n@gluon", 1)
    assert digest(kernel) != digest(triton)
    assert digest(kernel) == digest(kernel.replace("class Pair:\n", 'class Pair:\n    """Two."""\n\n'))


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("gl.BlockedLayout([1], [32], [4], [0])", gl.BlockedLayout([1], [32], [4], [0])),
        ("ttgl.SwizzledSharedLayout(vec=1, per_phase=1, max_phase=1, order=[0])", gl.SwizzledSharedLayout(1, 1, 1, [0])),
        ("NVMMASharedLayout(128, 8 * 2)", gl.NVMMASharedLayout(128, 16)),
        (
            "gl.SliceLayout(0, gl.BlockedLayout([1, 1], [1, 32], [2, 2], [1, 0]))",
            gl.SliceLayout(0, gl.BlockedLayout([1, 1], [1, 32], [2, 2], [1, 0])),
        ),
        ("gl.NVMMASharedLayout.get_default_for([64, 32], gl.float16)", gl.NVMMASharedLayout(64, 16)),
    ],
)  # fmt: skip
def test_layouts_as_text(text: str, layout: object) -> None:
    assert layout_of_text(text) == layout
    assert layout_of_text(str(layout)) == layout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gl.BlockedLayout([1], [32], [4], [0]", "is not an expression"),
        ("gl.BlockedLayout([1], [32], [3], [0])", "powers of two"),
        ("gl.BlockedLayout([1], [32], [4])", "order"),
        ("gl.float16", "is not a layout"),
        ("gl.Blocked(1)", "Blocked"),
        ("open('x')", "open"),
    ],
)
def test_texts_that_are_no_layouts(text: str, message: str) -> None:
    with pytest.raises(Unresolved, match=message):
        layout_of_text(text)


def test_a_descriptor_has_the_layout_of_its_blocks() -> None:
    given = parse_type("tensordesc<fp16[64, 64],NVMMASharedLayout(64, 16)>", "x")
    assert given.layout == gl.NVMMASharedLayout(64, 16)
    assert parse_type("tensordesc<fp16[64, 64]:nan,gl.NVMMASharedLayout(64, 16)>", "x").padding == "nan"

    @gluon.jit
    def kernel(x, swizzle: gl.constexpr):
        gl.static_assert(x.layout.swizzle_byte_width == swizzle and x.block_type.shape == (64, 32))

    for layout, swizzle in (("", 64), (",NVMMASharedLayout(32, 16)", 32)):
        build_module(kernel, {"x": f"tensordesc<fp16[64, 32]{layout}>"}, {"swizzle": swizzle})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SwizzledSharedLayout(1, 1, 1, [1, 0])", "is not the layout of a descriptor's blocks"),
        ("NVMMASharedLayout(128, 32)", "does not fit blocks"),
        ("NVMMASharedLayout(128, 16, rank=3)", "does not fit blocks"),
        ("NVMMASharedLayout(100, 16)", "it is 0, 32, 64 or 128"),
    ],
)
def test_layouts_that_a_descriptor_cannot_have(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        parse_type(f"tensordesc<fp16[64, 64],{text}>", "x")
    assert caught.value.message.startswith("argument x: ")


def test_a_layout_is_for_kernels_of_gluon() -> None:
    @kbuild.jit
    def kernel(x):
        x.load([0, 0])

    with pytest.raises(KbuildError, match="layout"):
        build_module(kernel, {"x": "tensordesc<fp16[64, 64],NVMMASharedLayout(128, 16)>"}, {})


def test_modules_of_hardware_exist_outside_of_kernels() -> None:
    assert "init" in repr(hopper.mbarrier.init)
    assert hopper.tma.async_copy_global_to_shared.__doc__
    with pytest.raises(AttributeError, match="nothing"):
        hopper.mbarrier.nothing  # noqa: B018  the access is what fails
