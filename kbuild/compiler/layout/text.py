"""Layouts as text: named forms where a layout has one, its bases otherwise.

    blocked{sizePerThread=[1,4], threadsPerWarp=[4,8], warpsPerCTA=[4,1], order=[1,0]}
    slice{axis=1, size=64, parent=mma{warps=[4,1], instruction=[16,8]}}
    dotOperand{index=0, warps=[4,1], kWidth=2}
    swizzled{vector=8, perPhase=1, maxPhase=8, order=[1,0]}
    wgmmaShared{elementBits=16, swizzleBytes=128, transposed=0}
    linear{register=[[0,1]], lane=[[0,2],[0,4],[1,0],[2,0],[4,0]], warp=[], block=[]}
    padded{gaps=[[64,8]], offset=[[0,1],[0,2],[1,0]]}
    auto{}

A name is only a reading aid: `describe` guesses the parameters, builds the layout that they name, and uses
the name when the layouts are equal.  With the tensor's shape, `parse_layout` gives back the layout that was
described.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice, pairwise, product

from kbuild.compiler.layout.linear import IN_DIMS, LinearLayout
from kbuild.compiler.layout.named import (
    blocked,
    dot_operand,
    mma_accumulator,
    slice_of,
    swizzled,
    wgmma_shared,
)
from kbuild.compiler.layout.padded import PaddedLayout
from kbuild.compiler.layout.written import PendingLayout, WrittenLayout
from kbuild.errors import CompileError

Parameters = dict[str, "int | list | str"]
"""The parameters of a named form; the parent of a slice is its text."""

_MAX_ORDERS = 24
"""Orders of axes that are tried: all of four axes.  Of more axes the bases leave few to try, as a rule; where
not, a layout goes without a name."""
_INSTRUCTIONS = ([16, 8], [8, 8], [16, 16], [16, 32], [16, 64], [16, 128], [16, 256])

_WARP_ORDERS: tuple[Parameters, ...] = ({}, {"rowsFirst": 0})
"""Tensor-core layouts number their warps along M first, and Triton's for mma.sync along N first."""


@lru_cache(maxsize=4096)
def describe(layout: LinearLayout) -> str:
    """The text of a layout: a named form if it has one, raw bases otherwise."""
    if isinstance(layout, PendingLayout):
        return _print(layout.kind, {})
    if isinstance(layout, PaddedLayout):
        offset = [list(layout.unflatten(basis)) for basis in layout.bases_of("offset")]
        return _print("padded", {"gaps": [list(pair) for pair in layout.gaps], "offset": offset})
    for name, guesses in (_SHARED_GUESSES if layout.is_shared else _REGISTER_GUESSES).items():
        for parameters in guesses(layout):
            if _FORMS[name](layout.shape, parameters) == layout:
                return _print(name, parameters)
    raw = {dim: [list(layout.unflatten(basis)) for basis in bases] for dim, bases in layout.bases}
    return _print("linear", {dim: bases for dim, bases in raw.items() if bases or dim != "block"})


def author_text(layout: LinearLayout) -> str:
    """A layout in a message: as its author wrote it, if he did."""
    if isinstance(layout, PendingLayout):
        return f"{layout.kind.title()}Layout()"
    return str(layout.author) if isinstance(layout, WrittenLayout) else describe(layout)


def parse_layout(text: str, shape: Sequence[int]) -> LinearLayout:
    """The layout of a tensor of the given shape that a text of `describe` stands for."""
    layout, end = _parse(text, 0, tuple(shape))
    if text[end:].strip():
        raise CompileError(f"unexpected text after the layout: {text[end:].strip()!r}")
    return layout


# -- the forms -----------------------------------------------------------------------------------------------------


def _slice(shape: Sequence[int], parameters) -> LinearLayout:
    axis = parameters["axis"]
    parent_shape = (*shape[:axis], parameters["size"], *shape[axis:])
    return slice_of(parse_layout(parameters["parent"], parent_shape), axis)


def _linear(shape: Sequence[int], parameters) -> LinearLayout:
    return LinearLayout.make(shape, **parameters)


def _padded(shape: Sequence[int], parameters) -> LinearLayout:
    layout = LinearLayout.make(shape, offset=parameters["offset"])
    return PaddedLayout.of(layout, tuple((interval, padding) for interval, padding in parameters["gaps"]))


_FORMS: dict[str, Callable[..., LinearLayout]] = {
    "blocked": lambda shape, p: blocked(
        shape, p["sizePerThread"], p["threadsPerWarp"], p["warpsPerCTA"], p["order"]
    ),
    "mma": lambda shape, p: mma_accumulator(
        shape, p["warps"], tuple(p["instruction"]), bool(p.get("rowsFirst", 1))
    ),
    "dotOperand": lambda shape, p: dot_operand(
        shape, p["warps"], p["index"], p["kWidth"], rows_first=bool(p.get("rowsFirst", 1))
    ),
    "slice": _slice,
    "swizzled": lambda shape, p: swizzled(shape, p["vector"], p["perPhase"], p["maxPhase"], p["order"]),
    "wgmmaShared": lambda shape, p: wgmma_shared(
        shape, p["elementBits"], p["swizzleBytes"], bool(p["transposed"])
    ),
    "linear": _linear,
    "padded": _padded,
    "auto": lambda shape, p: PendingLayout.of(shape, "auto"),
    "coalesced": lambda shape, p: PendingLayout.of(shape, "coalesced"),
}


# -- guessing ------------------------------------------------------------------------------------------------------


def _guess_blocked(layout: LinearLayout) -> Iterator[Parameters]:
    """Count the bits of lanes and warps along each axis; whatever precedes them along an axis belongs to one
    thread."""
    if layout.bits("block") or not layout.rank:
        return
    threads, warps = _count_along(layout, "lane"), _count_along(layout, "warp")
    sizes = []
    for axis in range(layout.rank):
        outside = [step for dim in ("lane", "warp") for step in layout.bases_along(dim, axis) if step]
        first_registers = [step for step in layout.bases_along("register", axis) if step]
        sizes.append(min(outside) if outside else max(first_registers, default=0) * 2 or 1)
    # Registers that hold copies: the thread's box was larger than the tensor, along the fastest axis.
    copies = 1 << sum(basis == 0 for basis in layout.bases_of("register"))
    for order in _orders(layout, "lane", "warp"):
        leading = [min(size, _leading(layout, axis)) for axis, size in enumerate(sizes)]
        larger = [copies * size if axis == order[0] else size for axis, size in enumerate(leading)]
        for size_per_thread in (sizes, leading, larger) if copies > 1 else (sizes, leading):
            for threads_per_warp, warps_per_cta in product(
                _with_copies(threads, order), _with_copies(warps, order)
            ):
                yield {
                    "sizePerThread": list(size_per_thread),
                    "threadsPerWarp": threads_per_warp,
                    "warpsPerCTA": warps_per_cta,
                    "order": list(order),
                }


def _orders(layout: LinearLayout, *dims: str) -> Iterator[tuple[int, ...]]:
    """Orders of the axes, the fastest first, in which the bits of each input dimension move along one axis
    after the other."""
    earlier: dict[int, set[int]] = {axis: set() for axis in range(layout.rank)}
    for dim in dims:
        moved = [
            [axis for axis, step in enumerate(layout.unflatten(basis)) if step]
            for basis in layout.bases_of(dim)
        ]
        for before, after in pairwise(dict.fromkeys(axes[0] for axes in moved if len(axes) == 1)):
            earlier[after].add(before)
    placed: set[int] = set()
    while more := {axis for axis in earlier if axis not in placed and earlier[axis] <= placed}:
        placed |= more
    if len(placed) < layout.rank:
        return iter(())  # lanes and warps contradict each other
    return islice(_extensions((), earlier), _MAX_ORDERS)


def _extensions(begun: tuple[int, ...], earlier: Mapping[int, set[int]]) -> Iterator[tuple[int, ...]]:
    """All orders that begin so and have each axis after certain others, the last axes first."""
    if len(begun) == len(earlier):
        yield begun
    for axis in reversed(range(len(earlier))):
        if axis not in begun and earlier[axis].issubset(begun):
            yield from _extensions((*begun, axis), earlier)


def _count_along(layout: LinearLayout, dim: str) -> tuple[list[int], int]:
    """The number of values of an input dimension along each axis, and how many remain that are copies."""
    counts = [1 << sum(step > 0 for step in layout.bases_along(dim, axis)) for axis in range(layout.rank)]
    return counts, 1 << sum(basis == 0 for basis in layout.bases_of(dim))


def _with_copies(counts: tuple[list[int], int], order: Sequence[int]) -> Iterator[list[int]]:
    """The counts, with the copies attributed to one axis: the last in order first."""
    along, copies = counts
    for axis in reversed(order) if copies > 1 else order[:1]:
        yield [count * copies if axis == this else count for this, count in enumerate(along)]


def _leading(layout: LinearLayout, axis: int) -> int:
    """Elements that the registers before any other axis's hold along this axis."""
    size = 1
    for step, basis in zip(layout.bases_along("register", axis), layout.bases_of("register")):
        if not step and basis:
            break
        size *= 2 if step else 1
    return size


def _guess_warps(layout: LinearLayout) -> Iterator[list[int]]:
    counts, copies = _count_along(layout, "warp")
    yield counts[-2:]
    if copies > 1:
        yield [counts[-2] * copies, counts[-1]]
        yield [counts[-2], counts[-1] * copies]


def _guess_mma(layout: LinearLayout) -> Iterator[Parameters]:
    # An accumulator with copies in other warps is rare; such layouts are operands, and read better as that.
    warps, copies = _count_along(layout, "warp") if layout.rank >= 2 else ([], 1)
    if copies == 1 and warps and layout.bases_along("lane", -1)[:2] == (2, 4):
        for instruction, order in product(_INSTRUCTIONS, _WARP_ORDERS):
            yield {"warps": warps[-2:], "instruction": list(instruction), **order}


def _guess_dot_operand(layout: LinearLayout) -> Iterator[Parameters]:
    if layout.rank < 2 or layout.bits("lane") != 5:
        return
    for index, inner in ((0, -1), (1, -2)):
        k_width = layout.bases_along("lane", inner)[0]
        if k_width:
            for warps, order in product(_guess_warps(layout), _WARP_ORDERS):
                yield {"index": index, "warps": warps, "kWidth": k_width, **order}


def _guess_slice(layout: LinearLayout) -> Iterator[Parameters]:
    """Let zero bases move along a new axis: the pair of registers that tensor-core layouts begin with, or
    none, then lanes, warps and the registers.

    The last of them may have been copies in the parent already, so smaller and smaller axes are tried.
    """
    if layout.rank != 1:
        return
    zeros = [
        (dim, bit)
        for dim in ("lane", "warp", "register")
        for bit, basis in enumerate(layout.bases_of(dim))
        if not basis
    ]
    # Lanes run along the last axis first, as a rule: if they skip the new axis at first, it is the one
    # before.
    axes = (0, 1) if any(layout.bases_of("lane")[:1]) else (1, 0)
    for axis, pair, copies in product(axes, (0, 1), range(len(zeros))):
        places = zeros[: len(zeros) - copies]
        text = describe(_with_axis(layout, axis, places, pair))
        if not text.startswith("linear"):
            yield {"axis": axis, "size": 1 << pair + len(places), "parent": text}


def _with_axis(layout: LinearLayout, axis: int, places: Sequence[tuple[str, int]], pair: int) -> LinearLayout:
    """The layout of a matrix whose new axis is what the given bits of a vector's layout, now copies, move
    along; below them, `pair` bits of new registers."""
    size = 1 << pair + len(places)
    shape = (size, layout.numel) if axis == 0 else (layout.numel, size)
    old, new = (1, layout.numel) if axis == 0 else (size, 1)
    moved = {place: new << pair + position for position, place in enumerate(places)}
    bases = {
        dim: [moved.get((dim, bit), basis * old) for bit, basis in enumerate(layout.bases_of(dim))]
        for dim in IN_DIMS
    }
    bases["register"] = [new] * pair + bases["register"]
    return LinearLayout.make(shape, **bases)


def _guess_swizzled(layout: LinearLayout) -> Iterator[Parameters]:
    for order in _orders(layout, "offset"):
        plain = {"vector": 1, "perPhase": 1, "maxPhase": 1, "order": list(order)}
        yield plain
        if layout.rank < 2:
            continue
        columns = layout.bases_along("offset", order[0])
        rows = layout.bases_along("offset", order[1])
        flips = [(row, column) for row, column in zip(rows, columns) if row and column]
        if flips:
            per_phase, vector = min(flips)
            phases = 1 << len(flips)
            for vector_size, max_phase in ((vector, phases), (vector, 2 * phases)):
                yield {
                    "vector": vector_size,
                    "perPhase": per_phase,
                    "maxPhase": max_phase,
                    "order": list(order),
                }


def _guess_wgmma_shared(layout: LinearLayout) -> Iterator[Parameters]:
    if layout.rank < 2:
        return
    for transposed, element_bits, swizzle_bytes in product((0, 1), (16, 8, 32), (128, 64, 32, 0)):
        if layout.shape[-2 if transposed else -1] * element_bits >= 8 * (swizzle_bytes or 16):
            yield {"elementBits": element_bits, "swizzleBytes": swizzle_bytes, "transposed": transposed}


_REGISTER_GUESSES = {
    "blocked": _guess_blocked,
    "mma": _guess_mma,
    "dotOperand": _guess_dot_operand,
    "slice": _guess_slice,
}
_SHARED_GUESSES = {"swizzled": _guess_swizzled, "wgmmaShared": _guess_wgmma_shared}


# -- reading and writing -------------------------------------------------------------------------------------------


def _print(name: str, parameters: Parameters) -> str:
    fields = ", ".join(
        f"{key}={str(value).replace(' ', '') if key != 'parent' else value}"
        for key, value in parameters.items()
    )
    return f"{name}{{{fields}}}"


_TOKEN = re.compile(r"\s*([A-Za-z]\w*|\d+|[\[\]{},=])")


def _parse(text: str, position: int, shape: tuple[int, ...]) -> tuple[LinearLayout, int]:
    name, position = _token(text, position)
    if name not in _FORMS:
        raise CompileError(f"unknown layout {name!r}", help=f"known layouts: {', '.join(_FORMS)}")
    parameters: Parameters = {}
    position = _expect(text, position, "{")
    while not _peek(text, position, "}"):
        if parameters:
            position = _expect(text, position, ",")
        key, position = _token(text, position)
        position = _expect(text, position, "=")
        parameters[key], position = (
            _skip_layout(text, position) if key == "parent" else _value(text, position)
        )
    end = _expect(text, position, "}")
    try:
        return _FORMS[name](shape, parameters), end
    except KeyError as missing:
        raise CompileError(f"layout {name} lacks its parameter {missing.args[0]}") from None
    except (IndexError, TypeError, ValueError) as error:
        raise CompileError(f"layout {name} does not fit a tensor of shape {list(shape)}: {error}") from None


def _value(text: str, position: int) -> tuple[int | list, int]:
    token, position = _token(text, position)
    if token.isdigit():
        return int(token), position
    if token != "[":
        raise CompileError(f"expected a number or a list in a layout, found {token!r}")
    items = []
    while not _peek(text, position, "]"):
        if items:
            position = _expect(text, position, ",")
        item, position = _value(text, position)
        items.append(item)
    return items, _expect(text, position, "]")


def _skip_layout(text: str, position: int) -> tuple[str, int]:
    """The text of a nested layout, up to its closing brace."""
    depth = 0
    for end in range(position, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if text[end] == "}" and depth <= 0:
            return text[position : end + 1], end + 1
    raise CompileError(f"a layout is not closed: {text[position:]!r}")


def _token(text: str, position: int) -> tuple[str, int]:
    match = _TOKEN.match(text, position)
    if match is None:
        found = text[position:].strip()[:20]
        raise CompileError(
            f"expected more of a layout, found {found!r}" if found else f"the layout ends too early: {text!r}"
        )
    return match[1], match.end()


def _peek(text: str, position: int, token: str) -> bool:
    return _token(text, position)[0] == token


def _expect(text: str, position: int, token: str) -> int:
    found, position = _token(text, position)
    if found != token:
        raise CompileError(f"expected {token!r} in a layout, found {found!r}")
    return position
