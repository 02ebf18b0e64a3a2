"""What a compilation is for: hardware facts and pipelines, as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kbuild.compiler.targets.mma_sync import MmaAtom
from kbuild.compiler.targets.wgmma import WgmmaAtom
from kbuild.errors import CompileError, UsageError

Atom = TypeVar("Atom", MmaAtom, WgmmaAtom)

REGISTER_FILE = 65536
"""32-bit registers of a multiprocessor, on all architectures that there are targets of."""


@dataclass(frozen=True)
class Target:
    """A GPU architecture."""

    arch: str
    """As ptxas and LLVM name it: `sm_80`."""
    capability: tuple[int, int]
    """Compute capability: major, minor."""
    ptx_feature: str
    """The LLVM feature of the PTX version to emit: the lowest that has the instructions used."""
    shared_bytes: int
    """Shared memory that one program may use."""
    max_registers: int
    """Registers per thread."""
    atoms: tuple[MmaAtom, ...]
    """Tensor-core instructions, best first for each type."""
    wgmma_atoms: tuple[WgmmaAtom, ...] = ()
    """Tensor-core instructions of warpgroups, the widest first."""
    accelerated_arch: str = ""
    """The architecture to compile for where `ttng` operations are used, which run on this very capability
    alone: `sm_90a`."""
    features: frozenset[str] = frozenset()
    """`cp_async`, `stmatrix`, `wgmma`, `tma`, `bf16_arithmetic`, `fp8_conversion`, `griddepcontrol`, …"""
    keeps_operands: bool = True
    """Whether ptxas lets the registers of A be while an asynchronous dot may read them; else nothing else may
    be made there before the dot has ended."""
    tensor_pipeline: tuple[str, ...] = field(default=(), repr=False)
    """Passes over ttir."""
    gpu_pipeline: tuple[str, ...] = field(default=(), repr=False)
    """Passes from ttir to ttgir ready for lowering."""

    def has(self, feature: str) -> bool:
        return feature in self.features

    def atom(self, name: str) -> MmaAtom:
        """The instruction of a name.  Raises `CompileError` where the architecture has none."""
        return self._named(self.atoms, name)

    def wgmma_atom(self, name: str) -> WgmmaAtom:
        """The warpgroup's instruction of a name.  Raises `CompileError` where the architecture has none."""
        return self._named(self.wgmma_atoms, name)

    def _named(self, atoms: Sequence[Atom], name: str) -> Atom:
        for atom in atoms:
            if atom.name == name:
                return atom
        known = ", ".join(atom.name for atom in atoms) or "none"
        raise CompileError(f"{self.arch} has no instruction {name!r}", hint=f"of this kind it has {known}")


_TARGETS: dict[str, Target] = {}


def register_target(target: Target) -> Target:
    """Make a target available to `find_target`."""
    _TARGETS[target.arch] = target
    return target


def target_names() -> list[str]:
    """All architectures, in the order of their names."""
    return sorted(_TARGETS)


def find_target(arch: str) -> Target:
    """The target of an architecture name.  Raises `UsageError` for one that kbuild does not know."""
    if arch not in _TARGETS:
        raise UsageError(f"unknown architecture {arch!r}", hint=f"known: {', '.join(target_names())}")
    return _TARGETS[arch]
