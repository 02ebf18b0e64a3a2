"""Kernels that no file has as they ran are copied with all that they reach, by whichever names they have for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild import cli
from kbuild.aot.capture.static import static_digest
from kbuild.aot.manifest.load import load
from tests.cli.adopting.conftest import Recording

EXT = """\
import math
import triton
import triton.language as tl

SCALE = tl.constexpr(2.0)
KIND = tl.float32
LEAST = tl.constexpr(float("-inf"))


@triton.jit
def above(x):
    return tl.maximum(x, LEAST)


def plain(value):
    return value.value if isinstance(value, tl.constexpr) else value


@tl.constexpr
def half(size):
    return plain(size) // 2


@triton.jit
def programs(axis: tl.constexpr):
    return tl.num_programs(axis)
"""

GENERATED = """\
import triton
import triton.language as tl
import lib.ext as ext
from lib import ext as other
from lib.shared import above as limit

TYPE = tl.float32
INDEX = tl.int32
SIZES = tl.constexpr((4, 0.5, (True, None)))


def made():
    @triton.jit
    def mixed(x, out, n, BLOCK: tl.constexpr):
        places = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(INDEX)
        value = limit(tl.load(x + places, mask=places < n)) * ext.SCALE
        value = ext.above(value) + other.tl.abs(value) * SIZES[0]
        tl.store(out + places, value.to(TYPE).to(ext.KIND) * ext.programs(0) * ext.half(BLOCK), mask=places < n)

    return mixed


mixed = made()


@triton.jit
def first_half(x, out, BLOCK: tl.constexpr):
    places = tl.arange(0, ext.half(BLOCK))
    tl.store(out + places, tl.load(x + places))
"""

USE = """\
from lib.ops import Tensor
from lib.generated import first_half, mixed
mixed[(1,)](Tensor(16), Tensor(16), 16, BLOCK=64)
first_half[(1,)](Tensor(16), Tensor(16), BLOCK=32)
"""


@pytest.fixture
def sources(record: Recording, project: Path) -> list[Path]:
    """The files of the kernel that the library makes, its own first."""
    (project / "lib/ext.py").write_text(EXT)
    (project / "lib/generated.py").write_text(GENERATED)
    record(program=USE)
    assert cli.main(["import", "capture.jsonl", "-q", "--embed"]) == 0
    kernel, direct = load(project / "kernels.toml").kernels
    assert (direct.name, direct.source) == ("first_half", "lib/generated.py")
    assert static_digest(project / kernel.source, kernel.function) == kernel.digest
    first = project / kernel.source
    return [first, *sorted(path for path in first.parent.iterdir() if path != first)]


def test_names_of_other_modules_keep_their_meaning(sources: list[Path]) -> None:
    first, *others = sources
    parts = [path.stem.removeprefix(f"{first.stem}_") for path in others]
    assert parts == ["ext", "ext_2", "other", "shared"]
    text = first.read_text()
    assert (
        f"from . import {first.stem}_ext as ext\n" in text
        and "SIZES: tl.constexpr = (4, 0.5, (True, None))\n" in text
    )
    assert (
        f"from .{first.stem}_shared import above as limit\n" in text
        and "TYPE: tl.constexpr = tl.float32\n" in text
    )
    assert 'LEAST: tl.constexpr = float("-inf")\n' in others[1].read_text()


def test_the_copies_are_built(sources: list[Path]) -> None:
    assert cli.main(["build", "-q", "--no-cache"]) == 0


WRITTEN = """\
import types
import triton
import triton.language as tl


def written(name, factor):
    def empty(): pass
    text = f"def {name}(x, out, BLOCK: tl.constexpr):\\n    places = tl.arange(0, BLOCK)\\n"
    function = types.FunctionType(empty.__code__, {"tl": tl})
    function.__module__, function.__qualname__ = f"of_{name}", "written.<locals>.empty"
    kernel = triton.jit(function)
    kernel.src = text + f"    tl.store(out + places, tl.load(x + places) * {factor})\\n"
    parameters = "x out BLOCK".split()
    kernel.arg_names = parameters
    kernel.params = [types.SimpleNamespace(num=number, name=one, default=None, has_default=False, is_constexpr=one == "BLOCK")
                     for number, one in enumerate(parameters)]
    return kernel
"""


def test_a_kernel_that_is_written_has_the_name_in_its_text(record: Recording, project: Path) -> None:
    (project / "lib/written.py").write_text(WRITTEN)
    calls = "".join(
        f"written('{name}', {n})[(1,)](Tensor(16), Tensor(16), 16)\n"
        for name, n in (("two", 2), ("three", 3))
    )
    record(program=f"from lib.ops import Tensor\nfrom lib.written import written\n{calls}")
    assert cli.main(["import", "capture.jsonl", "-q", "--embed"]) == 0
    kernels = load(project / "kernels.toml").kernels
    assert sorted((one.name, one.function) for one in kernels) == [("three", "three"), ("two", "two")]
    assert cli.main(["build", "-q", "--no-cache"]) == 0
