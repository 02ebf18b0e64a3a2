"""Layouts as Triton's IR and Gluon's constructors name them: parameters, which fit tensors of any shape.

    #ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [4, 8], warpsPerCTA = [4, 1], order = [1, 0]}>
    BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])

are both the `Encoding` "blocked", and `layout_of` gives the `LinearLayout` for a shape: for tensors the one that Triton
3.6 gives by `to_linear_layout`, register by register.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from kbuild.compiler.layout.linear import LinearLayout, axis_bits
from kbuild.compiler.layout.named import (
    blocked,
    dot_operand,
    mma_accumulator,
    slice_of,
    swapped_chunks,
    swizzled,
    unswizzled,
)
from kbuild.errors import CompileError, InternalError

WARP_THREADS = 32
MAX_BOX = 256
"""Elements of a box of TMA along each axis."""
_REFUSED = {
    **dict.fromkeys(
        ("tensor_memory_encoding", "tensor_memory_scales_encoding"),
        "tensor memory is of Blackwell's tensor cores, for which kbuild has no instructions",
    ),
    "amd_mfma": "it is a layout of AMD's tensor cores",
    "amd_wmma": "it is a layout of AMD's tensor cores",
    "amd_rotating_shared": "it is a layout of AMD's shared memory",
    "auto_encoding": "the compiler chooses this layout; say which it is",
    "coalesced_encoding": "the compiler chooses this layout for each access; say which it is",
}
"""Encodings that stand for no layout here, and why."""


@dataclass(frozen=True)
class Encoding:
    """A layout by Triton's name and parameters; `parent` is an `Encoding` too."""

    name: str
    parameters: Mapping[str, Any] = field(hash=False)

    def layout_of(self, shape: Sequence[int]) -> LinearLayout:
        """The layout of a tensor, or of one buffer of shared memory, of the given shape.

        Raises `CompileError` where the parameters are incomplete, do not fit the shape, or name hardware that kbuild
        does not know.
        """
        if self.name in _REFUSED:
            raise CompileError(f"no layout for {self.name}: {_REFUSED[self.name]}")
        if self.name not in _FORMS:
            raise CompileError(
                f"unknown layout {self.name!r}", help=f"known layouts: {', '.join(sorted(_FORMS))}"
            )
        _require_one_cta(self.parameters)
        shape = tuple(shape)
        try:
            return _FORMS[self.name](shape, self.parameters)
        except KeyError as missing:
            raise CompileError(f"layout {self.name} lacks its parameter {missing.args[0]}") from None
        except (IndexError, TypeError, ValueError, InternalError) as error:
            reason = error.message if isinstance(error, InternalError) else str(error)
            raise CompileError(
                f"layout {self.name} does not fit a tensor of shape {list(shape)}: {reason}"
            ) from None


def _require_one_cta(parameters: Mapping[str, Any]) -> None:
    """Refuse what is spread over several CTAs: `CTAsPerCGA` as older versions write it, `CGALayout` as newer ones do."""
    if prod(parameters.get("CTAsPerCGA", ())) > 1 or any(map(any, parameters.get("CGALayout", ()))):
        raise CompileError(
            "the tensor is spread over several CTAs, and kbuild gives each program one",
            help="compile it with num_ctas=1",
        )


def _require_rank(shape: tuple[int, ...], parameter: Sequence[int]) -> None:
    if len(parameter) != len(shape):
        raise ValueError(f"its parameters are for {len(parameter)} axes")


def _blocked(shape: tuple[int, ...], p: Mapping[str, Any]) -> LinearLayout:
    sizes = [p[key] for key in ("sizePerThread", "threadsPerWarp", "warpsPerCTA", "order")]
    for parameter in sizes:
        _require_rank(shape, parameter)
    if prod(p["threadsPerWarp"]) != WARP_THREADS:
        raise ValueError(f"a warp has {WARP_THREADS} threads, not {prod(p['threadsPerWarp'])}")
    if sorted(p["order"]) != list(range(len(shape))):
        raise ValueError(f"order {p['order']} does not name each axis once")
    return blocked(shape, *sizes)


def _slice(shape: tuple[int, ...], p: Mapping[str, Any]) -> LinearLayout:
    axis = p["dim"]
    return slice_of(p["parent"].layout_of((*shape[:axis], 1, *shape[axis:])), axis)


def _mma_version(p: Mapping[str, Any]) -> int:
    """2 for mma.sync, 3 for wgmma."""
    if p["versionMajor"] not in (2, 3):
        raise ValueError(
            f"kbuild knows the tensor cores of versions 2 (mma.sync) and 3 (wgmma), not {p['versionMajor']}"
        )
    return p["versionMajor"]


def instruction_of(p: Mapping[str, Any]) -> tuple[int, int]:
    """The rows and columns that an instruction gives to one warp; batches come before them, and k after them in newer
    versions."""
    shape = list(p["instrShape"])
    rows, columns = (shape[0], shape[1]) if len(shape) == 3 and _mma_version(p) == 3 else shape[-2:]
    return rows, columns


def warps_and_order(p: Mapping[str, Any]) -> tuple[list[int], bool]:
    """Warps along each axis, and whether those along M are numbered first."""
    return list(p["warpsPerCTA"]), _mma_version(p) == 3


def _mma(shape: tuple[int, ...], p: Mapping[str, Any]) -> LinearLayout:
    _require_rank(shape, p["warpsPerCTA"])
    warps, rows_first = warps_and_order(p)
    return mma_accumulator(shape, warps, instruction_of(p), rows_first)


def _dot_operand(shape: tuple[int, ...], p: Mapping[str, Any]) -> LinearLayout:
    parent: Encoding = p["parent"]
    index = p["opIdx"]
    if parent.name == "blocked":
        # For scalar fma: each thread holds all of k, and threads along that axis hold copies.
        sizes = list(parent.parameters["sizePerThread"])
        sizes[len(shape) - 1 - index] = shape[len(shape) - 1 - index]
        return _blocked(shape, {**parent.parameters, "sizePerThread": sizes})
    if parent.name != "nvidia_mma":
        raise ValueError(f"its parent is {parent.name}")
    _require_rank(shape, parent.parameters["warpsPerCTA"])
    warps, rows_first = warps_and_order(parent.parameters)
    return dot_operand(shape, warps, index, p["kWidth"], instruction_of(parent.parameters), rows_first)


def _swizzled_shared(shape: tuple[int, ...], p: Mapping[str, Any]) -> LinearLayout:
    _require_rank(shape, p["order"])
    return swizzled(shape, p["vec"], p["perPhase"], p["maxPhase"], p["order"])


def _nvmma_shared(shape: tuple[int, ...], p: Mapping[str, Any]) -> LinearLayout:
    """Boxes as TMA copies them, one after another, in each of which the hardware swaps chunks of 16 bytes by the address
    bits above 7: of two axes, `wgmma_shared`."""
    if p.get("fp4Padded"):
        raise ValueError("kbuild has no 4-bit elements")
    rank, bits, swizzle = len(shape), p["elementBitWidth"], p["swizzlingByteWidth"]
    order = [*reversed(range(rank))]
    if p.get("transposed") and swizzle:
        order = [order[-1], *order[:-1]]
    box = [min(size, MAX_BOX) for size in shape]
    if swizzle:
        box[order[0]] = 8 * swizzle // bits
        if box[order[0]] > shape[order[0]]:
            raise ValueError(f"{shape[order[0]]} elements of {bits} bits are narrower than {swizzle} bytes")
    inside = [1 << bit for axis in order for bit in axis_bits(shape, axis)[: box[axis].bit_length() - 1]]
    beyond = [
        1 << bit for axis in range(rank) for bit in axis_bits(shape, axis)[box[axis].bit_length() - 1 :]
    ]
    return LinearLayout.make(shape, offset=swapped_chunks([*inside, *beyond], bits, swizzle))


def _padded_shared(shape: tuple[int, ...], p: Mapping[str, Any]) -> LinearLayout:
    """Without the padding, which changes addresses and nothing else."""
    return _shared_linear(shape, p) if "offset" in p else unswizzled(shape, p["order"])


def _linear(shape: tuple[int, ...], p: Mapping[str, Any]) -> LinearLayout:
    bases = {dim: _fitted(shape, p[dim]) for dim in ("register", "lane", "warp")}
    if 1 << len(bases["lane"]) != WARP_THREADS:
        raise ValueError(f"a warp has {WARP_THREADS} threads, not {1 << len(bases['lane'])}")
    _require_no_block(p)
    return LinearLayout.make(shape, **bases)


def _shared_linear(shape: tuple[int, ...], p: Mapping[str, Any]) -> LinearLayout:
    _require_no_block(p)
    return LinearLayout.make(shape, offset=_fitted(shape, p["offset"]))


def _require_no_block(p: Mapping[str, Any]) -> None:
    if p.get("block"):
        raise ValueError("it is spread over several CTAs")


def _fitted(shape: tuple[int, ...], bases: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """Bases given as coordinates; those beyond a smaller tensor become copies."""
    for basis in bases:
        _require_rank(shape, basis)
    return [tuple(step % size for step, size in zip(basis, shape)) for basis in bases]


_FORMS: dict[str, Callable[[tuple[int, ...], Mapping[str, Any]], LinearLayout]] = {
    "blocked": _blocked,
    "slice": _slice,
    "nvidia_mma": _mma,
    "dot_op": _dot_operand,
    "linear": _linear,
    "swizzled_shared": _swizzled_shared,
    "nvmma_shared": _nvmma_shared,
    "padded_shared": _padded_shared,
    "shared_linear": _shared_linear,
}
