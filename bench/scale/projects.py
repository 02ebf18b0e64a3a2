"""Projects of any number of variants, as kernel libraries have them: many kernels, some with a dozen arguments, lists that
multiply, facts of arguments, configurations by architecture.

    python bench/scale/projects.py FOLDER 10000
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

_NOT_COPIED = ("build", "dist", "kbuild", "tests", "docs", "bench")
MOST_OF_A_KERNEL = 192
"""Variants that a kernel has, but the last."""
_POINTWISE = '''\
"""One of many kernels: a chain of elementwise operations on rows."""

import triton
import triton.language as tl


@triton.jit
def rows_{number}_kernel(x, y, out, n_rows, n_cols, stride_x, stride_y, stride_out, scale,
                         ROWS: tl.constexpr, BLOCK: tl.constexpr, ACT: tl.constexpr, POWER: tl.constexpr):
    """Kernel number {number}."""
    columns = tl.arange(0, BLOCK)
    for offset in range(ROWS):
        row = tl.program_id(0) * ROWS + offset
        mask = (columns < n_cols) & (row < n_rows)
        a = tl.load(x + row * stride_x + columns, mask=mask, other=0.0).to(tl.float32)
        b = tl.load(y + row * stride_y + columns, mask=mask, other=0.0).to(tl.float32)
        value = a * scale + b * {factor}
        for _ in tl.static_range(POWER):
            value = value * a
        if ACT == "relu":
            value = tl.maximum(value, 0.0)
        elif ACT == "silu":
            value = value / (1.0 + tl.exp(-value))
        tl.store(out + row * stride_out + columns, value, mask=mask)
'''
_ENTRY = """
[[kernel]]
name = "rows_{number}"
source = "kernels/rows_{number}.py"
grid = ["cdiv(n_rows, ROWS)"]
args = {{ "x, y, out" = "*{{dtype}}:16", n_rows = "i32", n_cols = "i32:16", \
"stride_x, stride_y, stride_out" = "i32:16", scale = "fp32" }}
matrix = {{ dtype = ["fp16", "bf16", "fp32"], ACT = ["none", "relu", "silu"], POWER = {powers} }}
[[kernel.config]]
when = {{ n_rows = "<= 64" }}
ROWS = 1
BLOCK = 256
num_warps = 1
[[kernel.config]]
ROWS = 4
BLOCK = 1024
num_warps = 4
"""


def make_project(folder: Path, variants: int, archs: tuple[str, ...] = ("sm_80", "sm_90")) -> None:
    """Writes a project with about so many variants, and no fewer."""
    (folder / "kernels").mkdir(parents=True, exist_ok=True)
    text = f'schema = 1\n[package]\nname = "many"\nversion = "1.0"\narchs = {[*archs]}\n'.replace("'", '"')
    per_power = len(archs) * 3 * 3 * 2
    most = max(MOST_OF_A_KERNEL // per_power, 1)
    left, number = -(-variants // per_power), 0
    while left > 0:
        powers = min(left, most)
        source = _POINTWISE.format(number=number, factor=float(number + 1))
        (folder / f"kernels/rows_{number}.py").write_text(source)
        text += _ENTRY.format(number=number, powers=list(range(powers)))
        left, number = left - powers, number + 1
    (folder / "kernels.toml").write_text(text)


def copy_of(project: Path, place: Path) -> Path:
    """A folder with the files of a project, without what builds left there, and without kbuild where it is kbuild's own."""
    place.mkdir()
    for path in project.iterdir():
        if path.name not in _NOT_COPIED and not path.name.startswith("."):
            (shutil.copytree if path.is_dir() else shutil.copy)(path, place / path.name)
    return place


if __name__ == "__main__":
    make_project(Path(sys.argv[1]), int(sys.argv[2]))
