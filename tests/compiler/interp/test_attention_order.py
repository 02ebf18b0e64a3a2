"""The order in which the shipped attention gives its tiles to programs: each tile once, and as much for each program."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from kbuild.compiler import interp
from kbuild.compiler.frontend import build_module

KERNELS = Path(__file__).parents[3] / "kernels"
ORDER = """
import triton
import triton.language as tl
from flash_attention import dealt, in_turn, rounds_together


@triton.jit
def persistent(found, work, tiles, heads, group):
    programs, count = tl.num_programs(0), tiles * heads
    rounds = rounds_together(tiles, group)
    blocks = 0
    for turn in range(0, tl.cdiv(count - tl.program_id(0), programs)):
        tile, head = dealt(turn, programs, count, tiles, rounds)
        tl.atomic_add(found + head * tiles + tile, 1)
        blocks += tile + 1
    tl.store(work + tl.program_id(0), blocks)


@triton.jit
def one_tile(found, tiles, heads, TOGETHER: tl.constexpr, LAST: tl.constexpr):
    tile, head = in_turn(tiles * heads, tiles, TOGETHER, LAST)
    tl.store(found + tl.program_id(0), head * tiles + tile)
"""


def run(
    folder: Path, name: str, grid: int, arguments: dict[str, np.ndarray | int], **constexprs: int
) -> None:
    """Run a kernel of ORDER, beside a copy of the shipped one, whose functions it calls."""
    shutil.copy(KERNELS / "flash_attention.py", folder)
    (folder / "order.py").write_text(ORDER)
    module = build_module(f"{folder / 'order.py'}:{name}", interp.signature_of(arguments), constexprs)
    interp.run(module, arguments, (grid,))


@pytest.mark.parametrize(
    ("tiles", "heads", "group", "programs"),
    [
        (9, 14, 1, 13),  # Sections of one round
        (5, 31, 1, 8),
        (17, 12, 1, 13),  # Of two
        (7, 24, 4, 9),  # Of four
        (64, 3, 4, 5),  # Of 32
        (1, 20, 2, 6),
        (300, 1, 1, 4),  # Of 32, all within a head
        (2, 3, 1, 6),  # A tile for each
    ],
)
def test_persistent_programs_share_all_tiles_evenly(
    tmp_path: Path, tiles: int, heads: int, group: int, programs: int
) -> None:
    found, work = np.zeros((heads, tiles), np.int32), np.zeros(programs, np.int32)
    arguments = {"found": found, "work": work, "tiles": tiles, "heads": heads, "group": group}
    run(tmp_path, "persistent", programs, arguments)
    assert (found == 1).all()
    assert work.sum() == heads * tiles * (tiles + 1) // 2
    assert work.max() - work.min() <= tiles


@pytest.mark.parametrize(
    ("tiles", "heads", "together", "last"), [(5, 12, 8, 20), (3, 4, 8, 20), (40, 2, 8, 20)]
)
def test_tiles_come_once_and_the_short_ones_of_the_last_section_at_the_end(
    tmp_path: Path, tiles: int, heads: int, together: int, last: int
) -> None:
    found = np.full(tiles * heads, -1, np.int32)
    arguments = {"found": found, "tiles": tiles, "heads": heads}
    run(tmp_path, "one_tile", found.size, arguments, TOGETHER=together, LAST=last)
    assert np.array_equal(np.sort(found), np.arange(found.size))
    sections = [part % tiles for part in np.split(found, range(together, found.size - last + 1, together))]
    assert all((np.diff(section) <= 0).all() for section in sections)
    assert found.size < last or last <= sections[-1].size < last + together
