"""The project of the tests: operators over kernels of this repository, and one of its own; and how such projects are built
and imported."""

from __future__ import annotations

import importlib
import os
import re
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from kbuild.aot.build.progress import Progress
from kbuild.aot.build.project import BuildOptions, build
from kbuild.aot.environment import cache_directory
from kbuild.aot.manifest.load import load_text
from kbuild.aot.manifest.model import Manifest
from kbuild.emulator.driver import FakeDriver
from kbuild.errors import ErrorGroup

ROOT = Path(__file__).resolve().parents[3]
KERNELS = ROOT / "kernels"

SCALE = '''\
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, bias, counter, n, stride_x, factor, HAS_BIAS: tl.constexpr, MODE: tl.constexpr, BLOCK: tl.constexpr):
    """x = x·factor + bias in place, or with its sign changed; counts its programs."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + offsets * stride_x, mask=offsets < n) * factor
    if HAS_BIAS:
        values += tl.load(bias + offsets, mask=offsets < n)
    if MODE == "negate":
        values = -values
    tl.store(x + offsets * stride_x, values, mask=offsets < n)
    tl.atomic_add(counter, 1)
'''

CHOOSE = '''\
import triton
import triton.language as tl


@triton.jit
def choose_kernel(x, choice, bias, y, slope, counts, n, factor, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr):
    """y = x·slope + bias, where the slope is the factor if there is a choice, else 0; counts the choices."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    chosen = tl.load(choice + offsets, mask=mask, other=0) != 0
    slopes = tl.where(chosen, factor, 0.0)
    values = tl.load(x + offsets, mask=mask).to(tl.float32) * slopes
    if HAS_BIAS:
        values += tl.load(bias + offsets, mask=mask).to(tl.float32)
    tl.store(y + offsets, values, mask=mask)
    tl.store(slope + offsets, slopes, mask=mask)
    tl.store(counts + tl.program_id(0), tl.sum(chosen.to(tl.int32)))


@triton.jit
def choose_backward_kernel(dy, slope, dx, dbias, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    gradients = tl.load(dy + offsets, mask=mask)
    tl.store(dx + offsets, gradients.to(tl.float32) * tl.load(slope + offsets, mask=mask), mask=mask)
    tl.store(dbias + offsets, gradients, mask=mask)
'''

MANIFEST = """\
schema = 1
[package]
name = "operators_example"
version = "0.1"
archs = ["sm_90"]

[[kernel]]
name = "vector_add"
source = "kernels/vector_add.py"
grid = ["cdiv(n, BLOCK)"]
args = { "x, y, out" = "*{dtype}", n = "i64" }
matrix = { dtype = ["fp32", "fp16"] }
config = [{ BLOCK = 1024, num_warps = 4 }]
[kernel.op]
doc = "The sum of two tensors."
inputs = { "x, y" = "*shape" }
outputs = { out = "*shape" }
aliases = ["out"]
bind = { n = "shape" }

[[kernel]]
name = "sum"
source = "kernels/sum.py"
grid = ["cdiv(n, BLOCK * STEPS)"]
args = { x = "*{dtype}", partial = "*fp64", n = "i64" }
matrix = { dtype = ["fp32", "fp16"] }
config = [{ BLOCK = 1024, STEPS = 16, num_warps = 4 }]
[kernel.op]
inputs = { x = "*shape" }
outputs = { made = "" }
workspaces = { partial = "cdiv(shape, BLOCK * STEPS)" }
launch = [{ bind = { n = "shape" } }, { kernel = "sum_partials", bind = { out = "made", count = "cdiv(shape, BLOCK * STEPS)" } }]

[[kernel]]
name = "sum_partials"
source = "kernels/sum.py"
function = "sum_partials_kernel"
grid = ["1"]
args = { partial = "*fp64:16", out = "*{dtype}", count = "i32" }
matrix = { dtype = ["fp32", "fp16"] }
config = [{ BLOCK = 4096, num_warps = 32, launch_pdl = true }]

[[kernel]]
name = "layer_norm"
source = "kernels/layer_norm.py"
grid = ["n_rows"]
args = { "x, y, weight, bias" = "*{dtype}", "mean, rstd" = "*fp32", "stride_x, stride_y" = "i64", n_cols = "i32", eps = "fp32" }
grid_args = { n_rows = "i32" }
matrix = { dtype = ["fp32", "fp16"] }
defaults = { BLOCK = "next_power_of_2(n_cols) // PARTS", PARTS = 1, num_warps = 4 }
config = [{ when = { n_cols = "<= 256" } }]
[kernel.op]
inputs = { x = "*n_rows n_cols", "weight, bias" = "n_cols" }
outputs = { y = "*n_rows n_cols", "mean, rstd" = "*n_rows" }
scalars = { eps = 1e-5 }
bind = { stride_x = "stride(x, n_rows)", stride_y = "stride(y, n_rows)" }
returns = ["y"]
require = { "n_cols <= 256" = "rows have more than 256 elements" }

[[kernel]]
name = "scale"
source = "kernels/scale.py"
grid = ["cdiv(n, BLOCK)"]
args = { x = "*fp32", bias = "*fp32:16", counter = "*i32", "n, stride_x" = "i32", factor = "fp32" }
matrix = { HAS_BIAS = [false, true], MODE = ["keep", "negate"] }
config = [{ BLOCK = 64, num_warps = 1 }]
[kernel.op]
name = "scale_"
inputs = { x = "N", bias = "N" }
outputs = { counter = "1" }
optional = ["bias"]
mutates = ["x"]
zeros = ["counter"]
scalars = { factor = "N ** -0.5", mode = "'keep'" }
returns = ["x", "counter"]
bind = { n = "N", stride_x = "stride(x, N)", HAS_BIAS = "given(bias)", MODE = "mode" }
"""

NORMALISE_MANIFEST = """\
[[kernel]]
name = "normalise"
like = "layer_norm"
[kernel.op]
inputs = { x = "*n_rows n_cols", "weight, bias" = "n_cols" }
outputs = { y = "*n_rows n_cols", "mean, rstd" = "*n_rows" }
optional = ["mean", "rstd"]
scalars = { eps = 1e-5 }
bind = { stride_x = "stride(x, n_rows)", stride_y = "stride(y, n_rows)" }
returns = ["y"]
launch = [{ when = "n_rows > 2 or given(rstd)" }, { when = "n_rows <= 2 and not given(rstd)" }]
"""
"""layer_norm whose statistics nobody need ask for."""

CHOOSE_MANIFEST = """\
[[kernel]]
name = "choose"
source = "kernels/choose.py"
grid = ["cdiv(n, BLOCK)"]
args = { "x, bias, y" = "*{dtype}", "choice, counts" = "*i32", slope = "*fp32", n = "i32", factor = "fp32" }
matrix = { dtype = ["fp32", "fp16"], HAS_BIAS = [false, true] }
config = [{ BLOCK = 64, num_warps = 1 }]
[kernel.op]
inputs = { x = "*shape", choice = "*shape", bias = "*shape" }
optional = ["bias"]
outputs = { y = "*shape", slope = "*shape", counts = "max(programs,BLOCK//32)+given(bias)" }
zeros = ["counts"]
scalars = { factor = 2.0, programs = "cdiv(shape, 64)" }
returns = ["y", "counts"]
bind = { n = "shape", HAS_BIAS = "given(bias)" }
backward = { op = "choose_backward", bind = { dy = "grad(y)" }, grads = { x = "dx", bias = "dbias" } }

[[kernel]]
name = "choose_backward"
source = "kernels/choose.py"
function = "choose_backward_kernel"
grid = ["cdiv(n, BLOCK)"]
args = { "dy, dx, dbias" = "*{dtype}", slope = "*fp32", n = "i32" }
matrix = { dtype = ["fp32", "fp16"] }
config = [{ BLOCK = 64, num_warps = 1 }]
[kernel.op]
inputs = { dy = "*shape", slope = "*shape" }
outputs = { "dx, dbias" = "*shape" }
scalars = { step = 1, count = "shape" }
bind = { n = "count" }
require = { "step == 1" = "steps are of one" }

[[kernel]]
name = "pick"
like = "choose"
[kernel.op]
inputs = { torch = "*max", next = "*max", any = "*max" }
optional = ["any"]
outputs = { y = "*max", tuple = "*max", counts = "max(cdiv,BLOCK//32)+given(any)" }
zeros = ["counts"]
scalars = { grad_y = 2.0, cdiv = "cdiv(max, 64)" }
returns = ["y", "counts"]
bind = { x = "torch", choice = "next", bias = "any", slope = "tuple", n = "max", factor = "grad_y", HAS_BIAS = "given(any)" }
require = { "max % 2 == 0 and max < 1000 and (cdiv < 20 or given(any))" = "sizes are even, and not large" }
backward = { op = "choose_backward", bind = { dy = "grad(y)", slope = "tuple" }, grads = { torch = "dx", any = "dbias" } }
"""
"""`pick` is `choose` with names that Python and torch have."""


COST_MANIFEST = """\
[[kernel]]
name = "add_cheaply"
like = "vector_add"
config = [{ BLOCK = 256, num_warps = 1, cost = "2 * cdiv(n, 256)" }, { BLOCK = 1024, cost = "5 * cdiv(n, 1024) + 0 // (n - 7)" }]
[kernel.op]
inputs = { "x, y" = "*shape" }
outputs = { out = "*shape" }
bind = { n = "shape" }
"""
"""An operator whose launch takes the cheaper of two variants; for 7 elements one of the costs has no value."""


def write_kernels(folder: Path) -> None:
    """The sources of the project."""
    (folder / "kernels").mkdir()
    for name in ("vector_add", "sum", "layer_norm"):
        (folder / "kernels" / f"{name}.py").write_bytes((KERNELS / f"{name}.py").read_bytes())
    (folder / "kernels" / "scale.py").write_text(SCALE)
    (folder / "kernels" / "choose.py").write_text(CHOOSE)


def loaded(folder: Path, text: str) -> Manifest:
    """The manifest of a text, with the sources in a folder."""
    return load_text(text.encode(), folder / "kernels.toml", "kernels.toml")


def mistakes(folder: Path, text: str, old: str, new: str) -> list[str]:
    """What is wrong with a manifest after one change of its text."""
    assert text.count(old) == 1, old
    with pytest.raises(ErrorGroup) as caught:
        loaded(folder, text.replace(old, new))
    return [str(error) for error in caught.value.errors()]


def built_wheel(folder: Path, *archs: str) -> Path:
    """The wheel of a project, for the architectures of its manifest or these, with cubins of the user's cache."""
    options = BuildOptions(
        project=folder, environment=dict(os.environ), archs=archs, cache=cache_directory(os.environ)
    )
    result = build(options, Progress())
    assert not result.failures and result.wheel is not None
    return result.wheel


def built(folder: Path, *archs: str) -> Path:
    """The project, built, with the wheel unpacked in `site`."""
    with zipfile.ZipFile(built_wheel(folder, *archs)) as archive:
        archive.extractall(folder / "site")
    return folder


@contextmanager
def imported(name: str, site: Path, driver: FakeDriver) -> Iterator[ModuleType]:
    """The package of a site over a driver, forgotten afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KBUILD_LIBCUDA", str(driver.path))
        patch.syspath_prepend(str(site))
        yield importlib.import_module(name)
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        del sys.modules[module]


def shipped_products(package: str, kernels: str) -> str:
    """The manifest of a package with shipped kernels whose whole names match, for fp16 on sm_90, and one configuration for
    the whole tiles of the first."""
    tables = (ROOT / "kernels.toml").read_text().split("[[kernel]]\n")
    wanted = (f"[[kernel]]\n{each}" for each in tables if re.match(f'name = "{kernels}"\n', each))
    text = re.sub(r'dtype = \["fp16", "bf16"(, "fp32")?\]', 'dtype = ["fp16"]', "".join(wanted))
    text = re.sub(r"\[kernel\.tune\]\n.*?(?=\[kernel\.op\])", "", text, flags=re.DOTALL)
    plain = "config = [{ BLOCK_M = 64, BLOCK_N = 64, num_warps = 4, num_stages = 2 }]"
    text = re.sub(r"config = \[\n  # sm_80.*?^\]", plain, text, count=1, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r".*(sm_80|fp32\"|bf16).*\n", "", text.replace("*fp32", "*f32")).replace("*f32", "*fp32")
    return f'schema = 1\n[package]\nname = "{package}"\nversion = "0.1"\narchs = ["sm_90"]\n\n{text}'
