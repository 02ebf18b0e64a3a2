"""`wgmma`: products that warps issue, collect into groups and wait for.

Until its wait a product may read its operands and write its result at any time: the result's registers hold poison meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kbuild.emulator import tensor
from kbuild.emulator.findings import Fault
from kbuild.emulator.tensor.descriptor import DescriptorError

_POISON = 0xFFFFFFFF
_CHUNK = 16
_DEPTH_BYTES = 32
"""Bytes along k that one instruction takes, whatever the type."""
_WARP_ROWS = 16


@dataclass(frozen=True)
class Product:
    """What an instruction says of the product."""

    n: int
    kinds: tuple[str, str, str]
    """Types of D, A and B."""
    negate: bool = False
    """Whether the product is subtracted: one of the two signs is negative."""
    transposed: tuple[bool, bool] = (False, False)
    """Whether A and B are MN-major."""
    saturate: bool = False

    @property
    def result_registers(self) -> int:
        return self.n // 4 if self.kinds[0] == "f16" else self.n // 2

    def compute(self, a: np.ndarray, b: np.ndarray, c: np.ndarray | None) -> np.ndarray:
        """Registers of D, [registers, warps, 32], for A [16 * warps, k], B [n, k] and the registers of C (None: zero)."""
        addend = None if c is None else tensor.accumulator(c, self.kinds[0])
        total = tensor.multiply(a, b, addend, -1 if self.negate else 1)
        return tensor.accumulator_registers(tensor.finish(total, self.kinds[0], self.saturate), self.kinds[0])


@dataclass(eq=False)
class Issue:
    """One instruction of the warps of a convoy."""

    convoy: Any
    instruction: Any
    product: Product
    a: int | tuple[np.ndarray, ...]
    """Descriptor, or registers."""
    b: int
    scale: bool
    """Whether D is added to."""
    result: tuple[np.ndarray, ...]
    warps: np.ndarray
    """Warps of the CTA for which it has not landed."""
    groups: np.ndarray
    """Number of the warp's group that it belongs to."""
    addend: np.ndarray | None = None
    """D before the product, [registers, warps, 32], where no earlier product is to deliver it."""
    addend_warps: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    def lanes(self, warps: np.ndarray) -> np.ndarray:
        """The first lanes of warps, counted in the convoy."""
        return 32 * (warps - self.convoy.first)

    def read(self, registers: tuple[np.ndarray, ...], warps: np.ndarray) -> np.ndarray:
        """Registers of some warps: [registers, warps, 32]."""
        return np.stack([register.reshape(-1, 32)[warps - self.convoy.first] for register in registers])

    def write(self, warps: np.ndarray, values: np.ndarray) -> None:
        """Registers of D of some warps."""
        for register, value in zip(self.result, values):
            register.reshape(-1, 32)[warps - self.convoy.first] = value

    def land(self, warps: np.ndarray) -> None:
        """Compute the product for some warps.  Raises Fault for operands that are wrong."""
        for group in np.unique(warps // 4).tolist():
            members = warps[warps // 4 == group]
            if isinstance(self.a, tuple):
                a = tensor.operand_of_registers(self.read(self.a, members), self.product.kinds[1])
            else:
                rows = (members % 4 * _WARP_ROWS)[:, None] + np.arange(_WARP_ROWS)
                a = self._operand(self.a, 0, rows.ravel(), members)
            b = self._operand(self.b, 1, np.arange(self.product.n), members)
            self.write(members, self.product.compute(a, b, self._addend(members)))

    def _addend(self, warps: np.ndarray) -> np.ndarray | None:
        if not self.scale:
            return None
        values = self.read(self.result, warps)
        if self.addend is not None:
            known = np.isin(warps, self.addend_warps)
            values[:, known] = self.addend[:, np.searchsorted(self.addend_warps, warps[known])]
        return values

    def _operand(self, bits: int, which: int, rows: np.ndarray, warps: np.ndarray) -> np.ndarray:
        """The operand's chosen rows of A or columns of B (whole chunks of them) as float64 [rows, k], read chunk by chunk."""
        kind, transposed = self.product.kinds[1 + which], self.product.transposed[which]
        size = tensor.ELEMENT_BITS[kind] // 8
        try:
            descriptor = tensor.Descriptor.decode(bits)
            addresses = tensor.operand_addresses(descriptor, int(rows[-1]) + 1, _DEPTH_BYTES, size, transposed)[rows]
        except DescriptorError as error:
            raise Fault("wgmma-misuse", str(error)) from None
        per_chunk = _CHUNK // size
        chunks = addresses[::per_chunk] if transposed else addresses[:, ::per_chunk]
        lanes = np.full(chunks.size, 32 * (int(warps[0]) - self.convoy.first))
        site = (self.convoy, self.instruction, lanes)
        found = self.convoy.memory.load("shared", chunks.ravel().astype(np.uint32), _CHUNK, True, site)
        words = np.ascontiguousarray(found).view(f"u{size}").reshape(*chunks.shape, per_chunk)
        if transposed:
            words = words.swapaxes(1, 2)
        return tensor.elements(np.ascontiguousarray(words).reshape(addresses.shape), kind)


class WgmmaQueue:
    """The products of a CTA's warps.  An agent of the CTA."""

    def __init__(self, cta: Any) -> None:
        self.timing = cta.launch.timing
        self.pending: list[Issue] = []
        self.committed = np.zeros(cta.warp_count, np.int64)
        """Groups that each warp has committed."""
        self._issued = np.zeros(cta.warp_count, np.int64)
        self._seen: dict[tuple[int, int], tuple[object, object]] = {}

    def issue(self, issue: Issue) -> None:
        """Begin a product.  Raises Fault where the warps of a warpgroup do not agree on it."""
        self._check_group(issue)
        issue.groups = self.committed[issue.warps].copy()
        busy = np.zeros(len(self.committed), bool)
        for other in self.pending:
            if other.convoy.file is issue.convoy.file and _overlap(other, issue):
                busy[other.warps] = True
        free = issue.warps[~busy[issue.warps]]
        if len(free):
            issue.addend, issue.addend_warps = issue.read(issue.result, free), free
        issue.write(free, np.full((len(issue.result), 1, 1), _POISON, np.uint32))
        self.pending.append(issue)
        for _ in range(self.timing.ready(len(self.pending))):
            self.land()

    def _check_group(self, issue: Issue) -> None:
        what = (issue.instruction, (issue.a if isinstance(issue.a, int) else None, issue.b))
        for warp in issue.warps.tolist():
            key = warp // 4, int(self._issued[warp])
            seen = self._seen.setdefault(key, what)
            if seen[0] is not issue.instruction:
                raise Fault("divergent-collective", f"the warps of warpgroup {key[0]} execute different products at once")
            if seen[1] != what[1]:
                raise Fault("wgmma-misuse", f"the warps of warpgroup {key[0]} give different matrix descriptors")
            self._issued[warp] += 1

    def commit(self, warps: np.ndarray) -> None:
        """End the open group of these warps and begin another."""
        self.committed[warps] += 1

    def wait(self, warps: np.ndarray, allowed: int) -> None:
        """Land the products of these warps but for those of the last `allowed` groups."""
        limit = np.full(len(self.committed), -1)
        limit[warps] = self.committed[warps] - allowed
        for issue in self.pending:
            self._land(issue, issue.groups < limit[issue.warps])
        self.pending = [issue for issue in self.pending if len(issue.warps)]

    def _land(self, issue: Issue, chosen: np.ndarray) -> None:
        if chosen.any():
            warps = issue.warps[chosen]
            issue.warps, issue.groups = issue.warps[~chosen], issue.groups[~chosen]
            issue.land(warps)

    def land(self) -> bool:
        """Land the oldest product.  False where there is none."""
        if not self.pending:
            return False
        issue = self.pending.pop(0)
        self._land(issue, np.ones(len(issue.warps), bool))
        return True

    def finish(self) -> None:
        """The CTA has ended.  Raises Fault for products that nobody waited for."""
        if self.pending:
            raise Fault("wgmma-misuse", f"the kernel ends before it waits for {self.pending[0].instruction.name}")


def _overlap(first: Issue, second: Issue) -> bool:
    """Whether the results of two products are the same registers."""
    return np.shares_memory(first.result[0], second.result[0])
