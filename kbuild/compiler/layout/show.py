"""Pictures of layouts, for people reading IR."""

from __future__ import annotations

from itertools import product

from kbuild.compiler.layout.linear import LinearLayout


def show(layout: LinearLayout) -> str:
    """The tensor as a grid of text, each element saying where it is.

    A distributed tensor shows register:lane:warp (:block in clusters), shared memory shows the offset.  For
    replicated elements it is the lowest place, and a line below the grid lists the changes (XOR) that lead
    from any place to a copy. Tensors of more than two dimensions show one grid for each index of the leading
    ones.
    """
    rows, columns = (1, 1, *layout.shape)[-2:]
    cells = [_place(layout, flat) for flat in range(layout.numel)]
    width = max(map(len, cells))
    lines = []
    for panel, leading in enumerate(product(*map(range, layout.shape[:-2]))):
        if leading:
            lines.append(f"[{', '.join(map(str, leading))}, :, :]")
        for row in range(rows):
            start = (panel * rows + row) * columns
            lines.append(" ".join(cell.rjust(width) for cell in cells[start : start + columns]))
    copies = [_step(step) for step in layout.kernel()]
    if copies:
        lines.append("copies: " + ", ".join(copies))
    return "\n".join(lines)


def _place(layout: LinearLayout, flat: int) -> str:
    index = layout.find(flat)
    return ":".join(str(index[dim]) for dim in layout.dims if dim != "block" or layout.bits("block"))


def _step(step: dict[str, int]) -> str:
    """A change of the hardware index that leads to a copy of the same element."""
    return " ".join(f"{dim}^{change}" for dim, change in step.items() if change)
