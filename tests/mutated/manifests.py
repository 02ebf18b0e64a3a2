"""Mutated manifests: values of other types and sizes, keys renamed, added, taken out and doubled, and damaged
text."""

from __future__ import annotations

import copy
import json
import math
import random
from pathlib import Path
from typing import Any

import tomli
from mutated.text import damaged

from kbuild.aot.manifest.expand import expand
from kbuild.aot.manifest.load import load

KERNELS = '''\
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, out, factor, n, stride, BLOCK: tl.constexpr, FAST: tl.constexpr = False):
    """Multiplies."""


@triton.jit
def tile_kernel(a, c, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, num_warps: tl.constexpr = 4):
    """Copies tiles."""
'''

MANIFEST = """\
schema = 1
[package]
name = "many"
version = "1.0"
archs = ["sm_80", "sm_90+ptx"]
summary = "Kernels"
license = "Apache-2.0"

[[kernel]]
name = "scale"
source = "kernels.py"
function = "scale_kernel"
grid = ["cdiv(n, BLOCK)"]
doc = "Multiplies."
[kernel.args]
x = "*{dtype}:16"
out = "*{dtype}:16?"
factor = "fp32"
n = "i32:16?"
stride = "i64"
[kernel.grid_args]
rows = "i32"
[kernel.matrix]
dtype = ["fp16", "fp32"]
FAST = [true, false]
[[kernel.specialize]]
name = "dense"
stride = 1
[[kernel.specialize]]
[[kernel.config]]
when = { arch = "sm_90", dtype = ["fp16"], n = "> 16, <= 4096", "n * stride" = "<= 64" }
BLOCK = 1024
num_warps = 8
launch_pdl = true
[[kernel.config]]
BLOCK = 512
num_stages = 2
[[kernel.exclude]]
arch = "sm_80"
FAST = true
[kernel.verify]
sizes = { x = "n * stride", out = "n" }
defaults = { "stride, rows" = 1, factor = 0.5 }
values = [{ factor = 2.5, n = 1000, rows = "n // 2" }, { n = 7 }]
loops = { n = "BLOCK" }
grid = ["2"]
zeros = ["out"]
[kernel.tune]
sizes = { x = "n * stride", out = "n" }
candidates = { BLOCK = [256, 512], num_warps = [4, 8] }
require = "BLOCK <= n"
[[kernel.tune.bucket]]
when = { n = "<= 4096" }
values = { factor = 1.0, n = 4096, stride = 1, rows = 1 }

[[kernel]]
name = "tile"
source = "kernels.py"
function = "tile_kernel"
grid = ["cdiv(M, BLOCK_M)", "cdiv(N, BLOCK_N)"]
unverified = "it only copies"
args = { a = "tensordesc<fp16[BLOCK_M, BLOCK_N]>", c = "*fp16", "M, N" = "i32" }
defaults = { BLOCK_N = 64, num_warps = 8 }
config = [{ when = { arch = "sm_90" }, BLOCK_M = 64, cluster_size = 2 }, { BLOCK_M = 32 }]
"""

STRANGE: tuple[Any, ...] = (
    0,
    1,
    3,
    -1,
    5,
    16,
    2**31,
    2**63,
    10**40,
    -(10**40),
    1.5,
    -0.0,
    1e308,
    math.inf,
    math.nan,
    True,
    False,
    "",
    " ",
    "x",
    "n",
    "i32",
    "fp16",
    "*fp16:16",
    "*{dtype}",
    "{dtype}",
    "{unknown}",
    "tensordesc<fp16[64, 64]>",
    "tensordesc<fp16[]>",
    "sm_90",
    "sm_999",
    "<= 64",
    "% 0",
    "n / 0",
    "1 / 0",
    "((((",
    "n % n",
    "2 ** 9999",
    "9" * 400,
    "(" * 500 + "1" + ")" * 500,
    "\x00",
    "é",
    "\u202e",
    "\U0001f600",
    "a" * 5000,
    "../x.py",
    "kernels.py",
    "/dev/zero",
    ".",
    "class",
    "__init__",
    "None",
    "True",
    [],
    {},
    [[]],
    [{}],
    [1, "a"],
    ["x", "x"],
    {"x": 1},
    {"": ""},
    {"a": {"b": {"c": []}}},
    [[[[[[1]]]]]],
)


def mutated(random_: random.Random) -> bytes:
    """The bytes of a manifest with one to three mistakes."""
    table = tomli.loads(MANIFEST)
    for _ in range(random_.choice((1, 1, 1, 2, 3))):
        _mutate(table, random_)
    text = _text(table).encode("utf-8", "surrogatepass")
    return damaged(text, random_) if random_.random() < 0.25 else text


def attempt(data: bytes, folder: Path) -> str:
    """What became of a manifest: the names of its variants; raises what kbuild raises."""
    (folder / "kernels.py").write_text(KERNELS)
    file = folder / "kernels.toml"
    file.write_bytes(data)
    manifest = load(file, "kernels.toml")
    return "\n".join(variant.name for variant in expand(manifest).variants)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every container with each of its keys or indices."""
    found: list[tuple[Any, Any]] = []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found.append((value, key))
        found += _places(inner)
    return found


def _mutate(table: dict[str, Any], random_: random.Random) -> None:
    places = _places(table)
    if not places:
        return
    container, key = random_.choice(places)
    value = container[key]
    kind = random_.randrange(8)
    if kind <= 2:
        container[key] = copy.deepcopy(random_.choice(STRANGE))
    elif kind == 3:
        del container[key]
    elif kind == 4:
        other, name = random_.choice(places)
        container[key] = copy.deepcopy(other[name])
    elif kind == 5 and isinstance(container, dict):
        name = random_.choice(("x", "n", "BLOCK", "num_warps", "", "ké y", key + "s", key[:-1], "a.b"))
        container[name] = copy.deepcopy(value)
    elif kind == 6 and isinstance(container, list):
        container.append(copy.deepcopy(random_.choice((value, *STRANGE))))
    elif isinstance(value, str) and value:
        index = random_.randrange(len(value))
        new = random_.choice(("", "*", ":", "(", "/ 0", "{", "}", "é", "8", ",", value))
        container[key] = value[:index] + new + value[index + 1 :]
    else:
        container[key] = [copy.deepcopy(value)] if random_.random() < 0.5 else {"n": copy.deepcopy(value)}


def _text(table: dict[str, Any]) -> str:
    """TOML with every table but the outermost written inline: all that matters is what is read back."""
    return "".join(f"{json.dumps(key)} = {_inline(value)}\n" for key, value in table.items())


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_inline(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_inline(inner) for inner in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value).replace("e+", "e")
    if not isinstance(value, str):
        return str(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
