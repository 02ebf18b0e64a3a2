"""What a drawing of a layout shows: who owns each element, the bank of each byte, and the phases of a swizzle."""

from __future__ import annotations

from itertools import product
from math import prod

from kbuild.compiler.layout import LinearLayout, describe, moved_up
from kbuild.compiler.layout.linear import all_sums
from kbuild.compiler.layout.shared import BANK_ROW_BYTES, LdmatrixPlan, SharedAccess, load_plan, store_plan
from kbuild.compiler.views.drawing import Drawing, colour
from kbuild.compiler.views.facts import vector_name
from kbuild.compiler.views.sources import ShownLayout
from kbuild.compiler.views.table import contents
from kbuild.targets import Target

MAX_SIDE = 64
"""Rows, columns and lines that are drawn; of larger ones the first."""
BANKS, WORD_BYTES, CHUNK_BYTES = 32, 4, 16
Cells = list[list[tuple[str, str]]]


def picture(shown: ShownLayout, other: ShownLayout | None, target: Target) -> str:
    """The SVG of a layout, and of another one that elements go to or come from."""
    drawing = Drawing()
    for number, one in enumerate((shown, other)):
        if one is not None:
            if number:
                drawing.gap()
            drawing.title(f"{one.text}   {'x'.join(map(str, one.layout.shape))} {one.element}")
            if describe(one.layout) not in one.text:
                drawing.words(describe(one.layout))
            _tile(drawing, one) if one.layout.is_shared else _tensor(drawing, one)
    if other is not None and shown.layout.is_shared != other.layout.is_shared:
        tensor, tile = (other, shown) if shown.layout.is_shared else (shown, other)
        _first_accesses(drawing, tensor, tile, target)
    return drawing.text()


def _panels(layout: LinearLayout) -> tuple[list[tuple[int, ...]], int, int]:
    """The indices of the axes before the last two, and the rows and columns that are drawn."""
    rows, columns = (1, 1, *layout.shape)[-2:]
    leading = [*product(*map(range, layout.shape[:-2]))]
    if layout.rank == 1 and columns > BANKS:
        rows, columns = columns // BANKS, BANKS  # A vector goes on in further rows.
    return leading[:4], min(rows, MAX_SIDE), min(columns, MAX_SIDE)


def _cut(drawing: Drawing, layout: LinearLayout, panels: int, rows: int, columns: int) -> None:
    if panels * rows * columns < layout.numel:
        drawing.words(
            f"the first {panels * rows * columns} of {layout.numel} elements: {panels} × {rows} × {columns}"
        )


def _flat(layout: LinearLayout, leading: tuple[int, ...], row: int, column: int) -> int:
    """The flat index of an element of a panel."""
    width = layout.shape[-1] if layout.rank > 1 else min(layout.numel, BANKS)
    height = prod((1, *layout.shape)[-2:]) // layout.shape[-1] if layout.rank > 1 else layout.numel // width
    number = 0
    for index, size in zip(leading, layout.shape[:-2]):
        number = number * size + index
    return (number * height + row) * width + column


# Tensors


def _tensor(drawing: Drawing, shown: ShownLayout) -> None:
    layout = shown.layout
    warps, lanes = layout.size("warp"), layout.size("lane")
    drawing.words("in each cell lane:register; colours are warps, and darker shades further lanes")
    drawing.legend([(colour(warp, 0.3), f"warp {warp}") for warp in range(min(warps, 16))])
    if layout.kernel():
        drawing.words("elements that several places hold are shown at the lowest")
    panels, rows, columns = _panels(layout)
    _cut(drawing, layout, len(panels), rows, columns)
    for leading in panels:
        cells: Cells = []
        for row in range(rows):
            places = [layout.find(_flat(layout, leading, row, column)) for column in range(columns)]
            cells.append(
                [
                    (f"{one['lane']}:{one['register']}", colour(one["warp"], one["lane"] / max(1, lanes - 1)))
                    for one in places
                ]
            )
        _panel(drawing, layout, leading, cells, rows, columns)


def _panel(
    drawing: Drawing,
    layout: LinearLayout,
    leading: tuple[int, ...],
    cells: Cells,
    rows: int,
    columns: int,
    ends: tuple[str, ...] = (),
) -> None:
    if leading:
        drawing.words(f"[{', '.join(map(str, leading))}, :, :]")
    step = columns if layout.rank == 1 else 1
    heads = [str(row * step) for row in range(rows)]
    drawing.grid(cells, heads, [str(column) for column in range(columns)], ends)


# Shared memory


def _tile(drawing: Drawing, shown: ShownLayout) -> None:
    layout, size = shown.layout, shown.element_bits // 8
    panels, rows, columns = _panels(layout)
    drawn = [
        [
            [layout.find(_flat(layout, leading, row, column))["offset"] for column in range(columns)]
            for row in range(rows)
        ]
        for leading in panels
    ]
    is_swizzled = layout.rank > 1 and any(_phase(offsets) for panel in drawn for offsets in panel)
    behind = ", and behind each row by what the columns are swapped (XOR)" if is_swizzled else ""
    drawing.words(f"in each cell the bank of the element{behind}")
    _cut(drawing, layout, len(panels), rows, columns)
    for leading, panel in zip(panels, drawn):
        cells: Cells = []
        for offsets in panel:
            banks = [offset * size // WORD_BYTES % BANKS for offset in offsets]
            cells.append([(str(bank), colour(bank // 4, bank % 4 / 4)) for bank in banks])
        ends = tuple(f"^ {_phase(offsets)}" for offsets in panel) if is_swizzled else ()
        _panel(drawing, layout, leading, cells, rows, columns, ends)
    _memory(drawing, shown)


def _phase(offsets: list[int]) -> int:
    """The column that lies first in memory of a row's: 0 without a swizzle."""
    return offsets.index(min(offsets))


def _memory(drawing: Drawing, shown: ShownLayout) -> None:
    """Lines of 128 bytes by banks: the elements that each word holds, coloured by their chunk of 16 bytes in the row."""
    layout, bits = shown.layout, shown.element_bits
    each, wide = max(1, WORD_BYTES * 8 // bits), max(1, bits // (8 * WORD_BYTES))
    places = contents(layout)
    lines = min(-(-len(places) * bits // (8 * BANK_ROW_BYTES)), MAX_SIDE)
    drawing.gap()
    drawing.words(
        "shared memory by banks: the first element of each word; colours are chunks of 16 bytes of a row"
    )
    cells: Cells = []
    for line in range(lines):
        row: list[tuple[str, str]] = []
        for bank in range(BANKS):
            offset = (line * BANKS + bank) * each // wide
            if offset >= len(places):
                break
            flat = places[offset]
            coordinates = () if flat is None else layout.unflatten(flat)
            chunk = coordinates[-1] * bits // 8 // CHUNK_BYTES if coordinates else 0
            row.append(("", "") if flat is None else (",".join(map(str, coordinates)), colour(chunk % 8)))
        cells.append(row)
    drawing.grid(
        cells, [str(line * BANK_ROW_BYTES) for line in range(lines)], [str(bank) for bank in range(BANKS)]
    )


# Accesses


def _first_accesses(drawing: Drawing, tensor: ShownLayout, tile: ShownLayout, target: Target) -> None:
    """The lanes that reach each bank in the first store and load of warp 0."""
    bits = tensor.element_bits
    store = store_plan(tensor.layout, tile.layout, bits, target.has("stmatrix"))
    load = load_plan(tensor.layout, tile.layout, bits, target.has("ldmatrix"))
    for kinds, plan in [(("st", "ld"), store)] if store == load else [(("st",), store), (("ld",), load)]:
        drawing.gap()
        size = bits // 8
        if isinstance(plan, LdmatrixPlan):
            suffix = f"matrix.x{plan.x}{'.trans' if plan.transposed else ''}"
            drawing.title(" and ".join(kind + suffix for kind in kinds))
            drawing.words("the lanes whose rows of 16 bytes lie in each bank, first access of warp 0")
            width, phases = CHUNK_BYTES, [range(8 * matrix, 8 * matrix + 8) for matrix in range(plan.x)]
        else:
            drawing.title(" and ".join(vector_name(kind, plan.vector * bits) for kind in kinds))
            drawing.words("the lanes that reach each bank, first access of warp 0")
            width = plan.vector * size
            together = BANKS // max(1, width // WORD_BYTES)
            phases = [range(start, start + together) for start in range(0, BANKS, together)]
        _bank_stacks(drawing, plan, [*all_sums(plan.lane)], width, size, phases)


def _bank_stacks(
    drawing: Drawing,
    plan: SharedAccess | LdmatrixPlan,
    offsets: list[int],
    width: int,
    size: int,
    phases: list[range],
) -> None:
    """For each part of an access that is served at once, the different words of each bank, one above the other: so many
    wavefronts it takes."""
    for number, phase in enumerate(phases):
        banks: list[dict[int, list[int]]] = [{} for _ in range(BANKS)]
        for lane in phase:
            first = moved_up(offsets[lane] ^ plan.offsets[0], plan.gaps) * size
            for word in range(
                first // WORD_BYTES, max(first // WORD_BYTES + 1, (first + width) // WORD_BYTES)
            ):
                banks[word % BANKS].setdefault(word, []).append(lane)
        depth = max(map(len, banks))
        cells: Cells = []
        for level in range(depth):
            stacks = [[*bank.values()][level : level + 1] for bank in banks]
            cells.append(
                [(_lanes(stack[0]), colour(stack[0][0] // 4, 0.2)) if stack else ("", "") for stack in stacks]
            )
        lanes = f"lanes {phase[0]} to {phase[-1]}"
        drawing.words(
            f"{lanes}: {depth} wavefront{'s' if depth > 1 else ''}"
            + (", bank conflicts" if depth > 1 else "")
        )
        drawing.grid(cells, [str(level) for level in range(depth)], [str(bank) for bank in range(BANKS)])
        if number == 3:
            break


def _lanes(lanes: list[int]) -> str:
    """The lanes that read one word: `3`, or `0-3`."""
    return str(lanes[0]) if len(lanes) == 1 else f"{lanes[0]}-{lanes[-1]}"
