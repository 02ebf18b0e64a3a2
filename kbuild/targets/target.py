"""The target of a compilation: facts about an architecture, and the passes for it, as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from kbuild.errors import CompileError
from kbuild.targets.devices import Devices, devices_of
from kbuild.targets.mma_sync import MmaAtom
from kbuild.targets.pipelines import (
    GLUON_GPU_PIPELINE,
    GLUON_TENSOR_PIPELINE,
    GPU_PIPELINE,
    TENSOR_PIPELINE,
)
from kbuild.targets.wgmma import WgmmaAtom

Atom = TypeVar("Atom", MmaAtom, WgmmaAtom)


@dataclass(frozen=True)
class Occupancy:
    """The share of a multiprocessor's warps that programs of one kind can have running."""

    programs: int
    """Programs at once."""
    warps: int
    """Their warps."""
    max_warps: int
    limits: tuple[str, ...]
    """`warps`, `registers`, `shared memory` and `programs`: those of them that keep further programs out."""

    @property
    def share(self) -> float:
        return self.warps / self.max_warps


@dataclass(frozen=True)
class Limits:
    """The resources of a program and of a multiprocessor: CUDA C++ Programming Guide, "Technical Specifications per
    Compute Capability"."""

    shared_bytes: int
    """Shared memory that one program may use."""
    max_warps: int
    """Warps that a multiprocessor holds."""
    max_programs: int = 32
    """Programs that a multiprocessor holds, however small they are."""
    cluster_size: int = 1
    """Programs of a cluster on every device of the architecture; 1 where there are no clusters."""
    registers: int = 255
    """32-bit registers of a thread."""
    register_file: int = 65536
    """32-bit registers of a multiprocessor."""
    reserved_shared_bytes: int = 1024
    """Shared memory that the system takes for each program, besides what the program uses."""

    def registers_for(self, threads: int) -> int:
        """Registers of a thread where one program of so many threads has the multiprocessor to itself; ptxas
        gives eight at a time."""
        return min(self.registers, self.register_file // threads // 8 * 8)

    def programs(self, shared: int, warps: int, registers: int = 0) -> int:
        """How many programs a multiprocessor holds at once, by shared memory, warps, and, where they are known,
        registers of a thread, which come 8 at a time."""
        return min(self.bounds(shared, warps, registers).values())

    def bounds(self, shared: int, warps: int, registers: int = 0) -> dict[str, int]:
        """How many programs fit by each resource alone."""
        fits = shared <= self.shared_bytes
        by_shared = (self.shared_bytes + self.reserved_shared_bytes) // (shared + self.reserved_shared_bytes)
        return {
            "warps": self.max_warps // warps,
            "registers": self.register_file // max(1, -(-registers // 8) * 8 * 32 * warps),
            "shared memory": by_shared if fits else 0,
        }

    def occupancy(self, shared: int, warps: int, registers: int) -> Occupancy:
        """How many programs of so many warps, bytes of shared memory and registers of a thread a multiprocessor holds."""
        bounds = {**self.bounds(shared, warps, registers), "programs": self.max_programs}
        programs = min(bounds.values())
        full = tuple(name for name, bound in bounds.items() if bound == programs)
        return Occupancy(programs, programs * warps, self.max_warps, full)


@dataclass(frozen=True)
class Thresholds:
    """Thresholds from which on a pass pays: ratios between units of the hardware, as timed on an H200."""

    vote_multiplications: int = 16
    """Multiplications of each thread that take as long as a vote of the warp and a branch."""
    invariant_operand_registers: int = 16
    """Registers of a thread that a left operand may take for all iterations of a loop of `wgmma`: the instruction
    then reads B alone from shared memory, which for 64 columns is half as much, and needs one address instead
    of two."""
    alternating_programs: int = 4
    """Programs that must still fit into a multiprocessor's shared memory where tiles get three buffers, so that
    the buffers do not cost occupancy."""
    mma_bits_per_cycle: int = 2048 * 16
    """Bits of A, times columns of B, that the tensor cores of a multiprocessor multiply in a cycle."""
    short_iteration_cycles: int = 512
    """The longest time of an iteration's dots for which a barrier in each iteration costs something."""


class PtxasGuarantees(NamedTuple):
    """What a version of ptxas does right that others do not."""

    keeps_operands: bool = True
    """It leaves the registers of A alone while an asynchronous dot may read them; otherwise no other value may be
    computed there before the dot has ended."""
    sees_dots_write: bool = True
    """It knows that an asynchronous dot changes the registers of D; otherwise the dot must not start from bits that
    it can tell."""


@dataclass(frozen=True)
class Target:
    """A GPU architecture."""

    capability: int
    """Compute capability, 10 · major + minor."""
    ptx_feature: str
    """The LLVM feature of the PTX version to emit: the lowest that has the instructions used."""
    limits: Limits
    multiprocessors: int
    """Those of the largest GPU of the architecture."""
    atoms: tuple[MmaAtom, ...]
    """Tensor-core instructions, best first for each type."""
    wgmma_atoms: tuple[WgmmaAtom, ...] = ()
    """Tensor-core instructions of warpgroups, the widest first."""
    accelerated_arch: str = ""
    """The architecture to compile for where `ttng` operations are used, whose code runs only on this compute
    capability: `sm_90a`; empty where they need none."""
    features: frozenset[str] = frozenset()
    """`cp_async`, `stmatrix`, `wgmma`, `tma`, `bf16_arithmetic`, `fp8_conversion`, `griddepcontrol`, …;
    `thread_block_clusters` where there are clusters, `clusters` where programs of one copy tiles together, which
    they do for `wgmma`."""
    ptxas: PtxasGuarantees = field(default=PtxasGuarantees())
    """What may be expected of the ptxas that assembles the code."""
    thresholds: Thresholds = field(default=Thresholds(), repr=False)
    tensor_pipeline: tuple[str, ...] = field(default=TENSOR_PIPELINE, repr=False)
    """Passes over ttir."""
    gpu_pipeline: tuple[str, ...] = field(default=GPU_PIPELINE, repr=False)
    """Passes from ttir to ttgir ready for lowering."""

    def pipelines(self, explicit_layouts: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The passes over ttir, and those to ttgir ready for lowering, of a kernel whose author chooses the
        layouts or does not."""
        if explicit_layouts:
            return GLUON_TENSOR_PIPELINE, GLUON_GPU_PIPELINE
        return self.tensor_pipeline, self.gpu_pipeline

    @property
    def arch(self) -> str:
        """The name that ptxas and LLVM use: `sm_80`."""
        return f"sm_{self.capability}"

    @property
    def devices(self) -> Devices:
        """The devices that run its cubins, where nothing in them requires the accelerated architecture."""
        return devices_of(self.arch)

    def code_arch(self, is_accelerated: bool) -> str:
        """The architecture to generate code for, by whether the code uses TMA or warpgroup operations: only some
        architectures have those in code of its own kind, such as `sm_90a`."""
        return (self.accelerated_arch if is_accelerated else "") or self.arch

    def runs_on(self, capability: int) -> bool:
        """Whether a device runs its cubins."""
        return self.devices.have(capability)

    def has(self, feature: str) -> bool:
        return feature in self.features

    def portable(self) -> Target:
        """The same without features that bind code to this compute capability; its PTX runs on newer devices."""
        bound = {"wgmma", "clusters"}  # Programs of a cluster share what wgmmas read.
        return replace(self, wgmma_atoms=(), accelerated_arch="", features=self.features - bound)

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
        raise CompileError(f"{self.arch} has no instruction {name!r}", help=f"of this kind it has {known}")
