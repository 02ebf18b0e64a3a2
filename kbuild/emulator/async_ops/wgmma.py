"""`wgmma.mma_async`: the wgmma operations under way, computed one warp at a time.

The rows of A and D that a warp owns depend on no other warp, and a wait orders only the warp that executes
it; so each warp has a queue of its own.  Operations of one warp take effect in the order of their issue.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from kbuild.emulator.async_ops.operation import ByteExtent, Operation, hears, notify
from kbuild.emulator.async_ops.timing import Timing
from kbuild.emulator.engine.findings import Fault
from kbuild.emulator.engine.memory import Memory
from kbuild.emulator.engine.register_block import RegisterBlock
from kbuild.emulator.isa import matrix as tensor
from kbuild.emulator.isa.matrix.descriptor import DescriptorError
from kbuild.emulator.isa.matrix.wgmma import DEPTH_BYTES


@dataclass(frozen=True)
class Shape:
    """The shape, types and modifiers of one instruction."""

    columns: int
    """N."""
    kind_d: str
    kind_a: str
    kind_b: str
    scale_a: int = 1
    scale_b: int = 1
    transposed_a: bool = False
    transposed_b: bool = False
    saturate: bool = False


@dataclass(frozen=True)
class Registers:
    """The names of the registers of one instruction."""

    d: tuple[str, ...]
    a: tuple[str, ...] = ()

    @cached_property
    def of_d(self) -> frozenset[str]:
        return frozenset(self.d)

    @cached_property
    def of_a(self) -> frozenset[str]:
        return frozenset(self.a)


@lru_cache(maxsize=1024)
def _addresses(bits: int, first: int, extent: int, kind: str, transposed: bool) -> np.ndarray:
    """Addresses of rows `first` to `first + extent` of an operand in shared memory.  Raises Fault for a wrong
    descriptor."""
    try:
        descriptor = tensor.MatrixDescriptor.decode(bits)
        found = tensor.operand_addresses(
            descriptor, first + extent, DEPTH_BYTES, tensor.ELEMENT_BITS[kind] // 8, transposed
        )
    except DescriptorError as error:
        raise Fault("wgmma-descriptor", str(error)) from None
    return np.ascontiguousarray(found[first:])


@dataclass(eq=False)
class WgmmaOperation(Operation):
    """One `wgmma.mma_async` of some warps of a warpgroup, with the lanes of its registers."""

    shape: Shape
    names: Registers
    warps: tuple[int, ...]
    """Numbers in the warpgroup, 0 to 3, in order."""
    d: RegisterBlock
    a: RegisterBlock | int
    """Registers of A, or its descriptor."""
    b: int
    """Descriptor of B."""
    before: np.ndarray | WgmmaOperation | None = None
    """The accumulator: bits [registers, lanes], the operation under way that computes it, or None for zero."""
    result: np.ndarray | None = None
    """Bits of the elements of D, [rows, columns]."""
    spread: bool = False
    """Whether the registers hold the result already."""
    group: int = 0


class WgmmaQueues:
    """The wgmma operations of the warps of one CTA: one queue for each warp."""

    def __init__(self, memory: Memory, warp_count: int, timing: Timing) -> None:
        self.memory = memory
        self.timing = timing
        self.warp_count = warp_count
        self.committed = [0] * warp_count
        self.queues: list[list[WgmmaOperation]] = [[] for _ in range(warp_count)]
        self.fenced = [False] * warp_count
        """Warps that have executed `wgmma.fence`."""
        self._extents: dict[tuple[Any, ...], tuple[ByteExtent, ...]] = {}
        """The bytes that operations read, by their shape, warp of the warpgroup and descriptors."""
        self._places: dict[tuple[Any, ...], tuple[np.ndarray, np.ndarray]] = {}
        """Offsets of operands in shared memory, and the numbers of their elements there, once they have been
        checked."""
        self.issued: list[list[tuple[Any, ...]]] = [[] for _ in range(warp_count)]
        """The instructions that each warp has issued since its warpgroup last agreed."""

    def issue(
        self,
        site: Any,
        first: int,
        shape: Shape,
        names: Registers,
        d: RegisterBlock,
        a: RegisterBlock | int,
        b: int,
        accumulates: bool,
    ) -> None:
        """Begin the wgmma of consecutive warps of one warpgroup, from warp `first` of the CTA on."""
        count = len(d) // 32
        if not all(self.fenced[first : first + count]):
            raise Fault(
                "wgmma-registers", "the first wgmma.mma_async of a warp without wgmma.fence before it"
            )
        self._agree(site, first, count, (shape, a if isinstance(a, int) else "registers", b, accumulates))
        if not self.timing.adversarial and not hears(self.memory.observers, "issued"):
            inner = tuple((first + index) % 4 for index in range(count))
            operation = WgmmaOperation(
                "wgmma", site, (), (), shape, names, inner, d, a, b, d.read() if accumulates else None
            )
            self._compute(operation)
            _spread(operation)
            return
        for index in range(count):
            lanes = 32 * index, 32 * index + 32
            left = a if isinstance(a, int) else a.part(*lanes)
            own = site[0], site[1], site[2][slice(*lanes)]
            self._issue_one(own, first + index, shape, names, d.part(*lanes), left, b, accumulates)

    def _issue_one(
        self,
        site: Any,
        warp: int,
        shape: Shape,
        names: Registers,
        d: RegisterBlock,
        a: RegisterBlock | int,
        b: int,
        accumulates: bool,
    ) -> None:
        queue = self.queues[warp]
        operation = WgmmaOperation(
            "wgmma", site, self._reads(shape, warp % 4, a, b), (), shape, names, (warp % 4,), d, a, b
        )
        operation.group = self.committed[warp]
        owner = self._owner(queue, names)
        if accumulates:
            operation.before = d.read().copy() if owner is None else owner
        notify(self.memory.observers, "issued", operation)
        queue.append(operation)
        if self.timing.lands_at_issue() and all(other.result is not None for other in queue[:-1]):
            self._compute(operation)
            _spread(operation)
            operation.spread = True
        elif self.timing.adversarial:
            d.write(0xFFFFFFFF)

    def fence(self, warps: list[int]) -> None:
        """`wgmma.fence`."""
        for warp in warps:
            self.fenced[warp] = True

    def commit(self, warps: list[int]) -> None:
        """`wgmma.commit_group`."""
        for warp in warps:
            self.committed[warp] += 1

    def wait(self, warps: list[int], allowed: int, site: Any) -> None:
        """All but the last `allowed` groups of these warps are complete: their accumulators hold the sums."""
        for warp in warps:
            queue = self.queues[warp]
            while queue and queue[0].group < self.committed[warp] - allowed:
                operation = queue[0]
                self._compute(operation)
                del queue[0]
                if not operation.spread and not any(operation.names.d == other.names.d for other in queue):
                    _spread(operation)
                notify(self.memory.observers, "awaited", operation, 32 * warp + np.arange(32), False, site)

    def finish(self) -> None:
        """The CTA has ended.  Raises Fault where the warps of a warpgroup did not execute the same wgmmas."""
        for warp, issued in enumerate(self.issued):
            if issued:
                raise Fault(
                    "wgmma-divergent",
                    f"warp {warp} executed {issued[0][0]}, other warps of its warpgroup did not",
                )

    def _agree(self, site: Any, first: int, count: int, what: tuple[Any, ...]) -> None:
        """Note what warps issue; raise Fault when warps of one warpgroup issue different wgmmas."""
        if first // 4 * 4 + 4 > self.warp_count:
            raise Fault(
                "wgmma-divergent",
                f"the CTA has {self.warp_count} warps, so warp {first} is not in a whole warpgroup",
            )
        if count == 4:
            if any(self.issued[first + index] for index in range(4)):
                raise Fault("wgmma-divergent", "the warps of a warpgroup execute different wgmmas")
            return
        group = self.issued[first // 4 * 4 : first // 4 * 4 + 4]
        for warp in range(first, first + count):
            self.issued[warp].append((site[1], *what))
            for other in group:
                place = len(self.issued[warp]) - 1
                if place < len(other) and other[place] != self.issued[warp][place]:
                    raise Fault(
                        "wgmma-divergent",
                        "the warps of a warpgroup execute different wgmmas, or with different descriptors",
                    )
        agreed = min(map(len, group))
        for other in group:
            del other[:agreed]

    def _owner(self, queue: list[WgmmaOperation], names: Registers) -> WgmmaOperation | None:
        """The last operation under way with the same accumulator.  Raises Fault where operations share
        registers otherwise."""
        owner = None
        for other in queue:
            if names.of_a & other.names.of_d:
                raise Fault(
                    "wgmma-registers",
                    "a register of A is the accumulator of a wgmma that has not been waited for",
                )
            if names.d == other.names.d:
                owner = other
            elif names.of_d & other.names.of_d:
                raise Fault(
                    "wgmma-registers",
                    "an accumulator shares registers with that of a wgmma that has not been waited for",
                )
        return owner

    def _reads(self, shape: Shape, warp: int, a: RegisterBlock | int, b: int) -> tuple[ByteExtent, ...]:
        key = (shape, warp, a if isinstance(a, int) else None, b)
        if key in self._extents:
            return self._extents[key]
        shared, found = self.memory.spaces["shared"], []
        if isinstance(a, int):
            found.append((_addresses(a, 16 * warp, 16, shape.kind_a, shape.transposed_a), shape.kind_a))
        found.append((_addresses(b, 0, shape.columns, shape.kind_b, shape.transposed_b), shape.kind_b))
        extents = tuple(
            ByteExtent(shared, places.ravel(), tensor.ELEMENT_BITS[kind] // 8) for places, kind in found
        )
        for extent in extents:
            extent.check()
        self._extents[key] = extents
        return extents

    def _compute(self, operation: WgmmaOperation) -> None:
        """Read the operands as they are now and compute the sums."""
        if operation.result is not None:
            return
        shape = operation.shape
        if isinstance(operation.a, int):
            first, extent = 16 * operation.warps[0], 16 * len(operation.warps)
            left = self._operand(operation, operation.a, first, extent, shape.kind_a, shape.transposed_a)
        else:
            left = tensor.operand_of_registers(_by_warp(operation.a.read()), shape.kind_a)
        right = self._operand(operation, operation.b, 0, shape.columns, shape.kind_b, shape.transposed_b)
        before, c = operation.before, None
        if isinstance(before, WgmmaOperation):
            assert before.result is not None
            c = tensor.elements(before.result, shape.kind_d)
        elif before is not None:
            c = tensor.accumulator(_by_warp(before), shape.kind_d)
        total = tensor.multiply(left, right, c, shape.scale_a, shape.scale_b)
        operation.result = tensor.finish(total, shape.kind_d, shape.saturate)
        operation.before = None

    def _operand(
        self, operation: WgmmaOperation, bits: int, first: int, extent: int, kind: str, transposed: bool
    ) -> np.ndarray:
        """Elements of an operand in shared memory, float64 [extent, k]."""
        shared, size = self.memory.spaces["shared"], tensor.ELEMENT_BITS[kind] // 8
        found = self._places.get((bits, first, extent, kind, transposed))
        if found is None:
            places = _addresses(bits, first, extent, kind, transposed)
            shared.check(places.ravel(), size)
            found = self._places[bits, first, extent, kind, transposed] = places.ravel(), places // size
        offsets, elements = found
        for observer in self.memory.observers:
            observer.accessed(
                "load", shared, offsets, size, np.zeros(len(offsets), np.int64), None, operation.site
            )
        return tensor.elements(shared.view(size).take(elements), kind)


def _by_warp(registers: np.ndarray) -> np.ndarray:
    """Bits [registers, lanes] as [registers, warps, 32]."""
    return registers.reshape(len(registers), -1, 32)


def _spread(operation: WgmmaOperation) -> None:
    """Put a result into its registers."""
    assert operation.result is not None
    registers = tensor.accumulator_registers(operation.result, operation.shape.kind_d)
    operation.d.write(registers.reshape(len(registers), -1))
