"""What compiling a kernel gives: the texts of its stages, its code, and facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from kbuild.compiler.backend.cubin import CubinFacts
from kbuild.options import Block, CompileOptions

STAGES = ("ttir", "ttgir", "llir", "ptx", "cubin")


@dataclass(frozen=True)
class Metadata:
    """What is known about a compiled kernel besides its code."""

    name: str
    """The entry's symbol."""
    target: str
    """The architecture asked for."""
    arch: str
    """The architecture of the code: `sm_90a` where `sm_90` was asked for and Hopper-only instructions are
    used."""
    options: CompileOptions
    """The options that it was compiled with."""
    block: Block
    """Threads of a block along each axis, those of warps that only copy among them."""
    shared: int
    """Bytes of dynamic shared memory a launch must ask for."""
    params: tuple[tuple[str, str], ...]
    """Name and type of each kernel parameter, in order.  Tensor maps, which the launcher encodes, come last; their
    type is the text of a `TensorMapType`: `tensormap f16 1x128x64 128 a Z,M,K stride_z,stride`."""
    signature: tuple[tuple[str, str], ...] | None = None
    """Name and type of each run-time argument in the source's order, as signatures spell them, so with what is assumed of
    it: `("n", "i32:16")`, `("strides", "(i32, i32:1)")`.  Arguments that are one are not among `params`.  None where the
    source was LLVM or PTX, which do not say."""
    tma: tuple[str, ...] = ()
    """Which loads of loops use TMA, and why the others do not."""
    registers: int | None = None
    """Registers per thread; None before the stage `cubin`, like the four that follow."""
    spill_stores: int | None = None
    """Bytes."""
    spill_loads: int | None = None
    """Bytes."""
    ptxas_version: str | None = None
    nvrtc_version: str = ""
    """The version of NVRTC that made the PTX; empty where kbuild did, or it was given."""
    static_shared: int = 0
    """Bytes of shared memory besides; 0 before the stage `cubin`."""
    waits_for_launches: bool = False
    """Whether it waits for the launches before it by itself, so that it may begin before they have ended."""
    warnings: tuple[str, ...] = ()
    """The warnings of ptxas, and the `serialized` dots with their places in the source."""
    serialized: tuple[str, ...] = ()
    """Dots that ptxas does not let run ahead as the code has them, which costs speed alone; `strict` refuses
    them."""
    conversions: int = 0
    """Changes of layout that go through shared memory; known from the stage `ttgir` on."""
    stage_seconds: Mapping[str, float] = field(default_factory=dict, compare=False)
    """Time spent by stage."""

    @property
    def warps(self) -> int:
        """Warps of a launch."""
        return -(-prod(self.block) // 32)

    def with_facts(self, facts: CubinFacts | None, serialized: tuple[str, ...]) -> Metadata:
        """The same with the facts of the cubin, if there is one."""
        if facts is None:
            return self
        return replace(
            self,
            registers=facts.registers,
            spill_stores=facts.spill_stores,
            spill_loads=facts.spill_loads,
            ptxas_version=facts.ptxas_version,
            static_shared=facts.shared,
            warnings=(*self.warnings, *facts.warnings, *serialized),
            serialized=serialized,
        )


@dataclass(frozen=True)
class Artifact:
    """The result of `compile`: every stage's text, the cubin's bytes, and facts."""

    asm: Mapping[str, Any]
    """`ttir`, `ttgir`, `llir`, `ptx` as str and `cubin` as bytes, up to the stage asked for."""
    metadata: Metadata
