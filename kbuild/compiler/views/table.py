"""The table of a layout as text: where each element of a tensor is, and what each place of shared memory holds."""

from __future__ import annotations

from kbuild.compiler.layout import LinearLayout, gaps_of, moved_up, show
from kbuild.compiler.layout.linear import all_sums
from kbuild.compiler.layout.shared import BANK_ROW_BYTES

MAX_ELEMENTS = 1 << 14
"""Elements of a tensor up to which a table is printed."""


def table(layout: LinearLayout, element_bits: int) -> str:
    """The table with a line above it that says how to read it."""
    if layout.numel > MAX_ELEMENTS:
        return f"(the table of {layout.numel} elements is left out; up to {MAX_ELEMENTS} are printed)"
    if not layout.is_shared:
        dims = ":".join(dim for dim in layout.dims if dim != "block" or layout.bits("block"))
        return f"element at its place: {dims}\n{show(layout)}"
    return f"{offsets(layout, element_bits)}\n\nelement at its place: offset in elements\n{show(layout)}"


def contents(layout: LinearLayout) -> list[int | None]:
    """The element at each place of shared memory, by its flat index; None where a place stays empty."""
    flats = [*all_sums(layout.bases_of("offset"))]
    gaps = gaps_of(layout)
    if not gaps:
        return [*flats]
    found: list[int | None] = [None] * (moved_up(len(flats) - 1, gaps) + 1)
    for offset, flat in enumerate(flats):
        found[moved_up(offset, gaps)] = flat
    return found


def offsets(layout: LinearLayout, element_bits: int) -> str:
    """What each place holds: a line for each 128 bytes, over which the banks reach; `.` where a place stays empty."""
    each = max(1, BANK_ROW_BYTES * 8 // element_bits)
    cells = ["." if flat is None else ",".join(map(str, layout.unflatten(flat))) for flat in contents(layout)]
    width = max(map(len, cells))
    lines = ["byte of shared memory: the elements there, 128 bytes in a line"]
    for start in range(0, len(cells), each):
        address = start * element_bits // 8
        lines.append(f"{address:>6}: " + " ".join(cell.rjust(width) for cell in cells[start : start + each]))
    return "\n".join(lines)
