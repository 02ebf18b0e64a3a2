"""Layouts as Triton's IR names them: the same as Gluon's, under other names.

#ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [4, 8], warpsPerCTA = [4, 1], order = [1, 0]}>
BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from kbuild.compiler.layout.gluon import (
    BlockedLayout,
    DistributedLayout,
    DistributedLinearLayout,
    DotOperandLayout,
    Layout,
    NVMMADistributedLayout,
    NVMMASharedLayout,
    PaddedSharedLayout,
    SharedLayout,
    SharedLinearLayout,
    SliceLayout,
    SwizzledSharedLayout,
)
from kbuild.compiler.layout.linear import LinearLayout
from kbuild.errors import CompileError, InternalError

_REFUSED = {
    **dict.fromkeys(
        ("tensor_memory_encoding", "tensor_memory_scales_encoding"),
        "tensor memory is of Blackwell's tensor cores, for which kbuild has no instructions",
    ),
    **dict.fromkeys(("amd_mfma", "amd_wmma"), "it is a layout of AMD's tensor cores"),
    "amd_rotating_shared": "it is a layout of AMD's shared memory",
    **dict.fromkeys(("auto_encoding", "coalesced_encoding"), "the compiler chooses it; say which it is"),
}
"""Encodings that stand for no layout here, and why."""


@dataclass(frozen=True)
class Encoding:
    """A layout by Triton's name and parameters; `parent` is an `Encoding` too."""

    name: str
    parameters: Mapping[str, Any] = field(hash=False)

    def author(self) -> Layout:
        """The layout in Gluon's words.

        Raises `CompileError` where parameters are missing or contradict each other, or name hardware that kbuild does
        not know.
        """
        if self.name in _REFUSED:
            raise CompileError(f"no layout for {self.name}: {_REFUSED[self.name]}")
        if self.name not in _FORMS:
            raise CompileError(
                f"unknown layout {self.name!r}", help=f"known layouts: {', '.join(sorted(_FORMS))}"
            )
        _require_one_cta(self.parameters)
        try:
            return _FORMS[self.name](self.parameters)
        except KeyError as missing:
            raise CompileError(f"layout {self.name} lacks its parameter {missing.args[0]}") from None
        except (AttributeError, TypeError, ValueError, InternalError) as error:
            raise CompileError(f"layout {self.name}: {getattr(error, 'message', error)}") from None

    def layout_of(self, shape: Sequence[int]) -> LinearLayout:
        """The layout of a tensor, or of one buffer of shared memory.  Raises `CompileError` as `author`, and where the
        layout does not fit the shape."""
        author = self.author()
        assert isinstance(author, DistributedLayout | SharedLayout)
        try:
            if author.rank != len(shape):
                raise ValueError(f"it is for {author.rank} axes")
            return author.linear(tuple(shape))
        except (IndexError, TypeError, ValueError, InternalError) as error:
            reason = getattr(error, "message", error)
            raise CompileError(
                f"layout {self.name} does not fit a tensor of shape {list(shape)}: {reason}"
            ) from None


def _require_one_cta(parameters: Mapping[str, Any]) -> None:
    """Refuse what is spread over several CTAs: `CTAsPerCGA` as older versions write it, `CGALayout` and `block` as newer
    ones do."""
    spread = parameters.get("CGALayout", ()) or parameters.get("block", ())
    if prod(parameters.get("CTAsPerCGA", ())) > 1 or any(map(any, spread)):
        raise CompileError(
            "the tensor is spread over several CTAs, and kbuild gives each program one",
            help="compile it with num_ctas=1",
        )


def _linear(p: Mapping[str, Any]) -> DistributedLinearLayout:
    register, lane, warp = (tuple(map(tuple, p[dim])) for dim in ("register", "lane", "warp"))
    return DistributedLinearLayout(register, lane, warp, (), _reached([*register, *lane, *warp]))


def _reached(bases: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """The shape that bases fill: Triton leaves it to the tensor."""
    return tuple(1 << max(steps).bit_length() for steps in zip(*bases))


def _rank(p: Mapping[str, Any]) -> int:
    """The axes of a layout that does not name them, but where they are not two."""
    return int(p.get("rank", len(p.get("CTAsPerCGA", ())) or 2))


def _nvmma_shared(p: Mapping[str, Any]) -> NVMMASharedLayout:
    transposed, padded = bool(p.get("transposed", False)), bool(p.get("fp4Padded", False))
    return NVMMASharedLayout(p["swizzlingByteWidth"], p["elementBitWidth"], _rank(p), transposed, padded)


def _padded_shared(p: Mapping[str, Any]) -> PaddedSharedLayout:
    gaps = tuple(map(tuple, p["gaps"]))
    if "order" in p:
        return PaddedSharedLayout.with_identity_for(gaps, p["shape"], p["order"])
    return PaddedSharedLayout(gaps, p["offset"], (), _reached(p["offset"]))


_FORMS: dict[str, Callable[[Mapping[str, Any]], Layout]] = {
    "blocked": lambda p: BlockedLayout(p["sizePerThread"], p["threadsPerWarp"], p["warpsPerCTA"], p["order"]),
    "slice": lambda p: SliceLayout(p["dim"], p["parent"].author()),
    "nvidia_mma": lambda p: NVMMADistributedLayout(
        (p["versionMajor"], p.get("versionMinor", 0)), p["warpsPerCTA"], p["instrShape"]
    ),
    "dot_op": lambda p: DotOperandLayout(p["opIdx"], p["parent"].author(), p.get("kWidth", 0)),
    "linear": _linear,
    "swizzled_shared": lambda p: SwizzledSharedLayout(p["vec"], p["perPhase"], p["maxPhase"], p["order"]),
    "nvmma_shared": _nvmma_shared,
    "padded_shared": _padded_shared,
    "shared_linear": lambda p: SharedLinearLayout(p["offset"]),
}
