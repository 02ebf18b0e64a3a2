"""`wgmma`: products that warps issue, collect into groups and wait for.

Until its wait a product may read its operands and write its result at any time: the result's registers hold poison meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kbuild.emulator.findings import Fault
from kbuild.emulator.tensor import wgmma
from kbuild.emulator.tensor.descriptor import CHUNK, Descriptor

_POISON = 0xFFFFFFFF


@dataclass(eq=False)
class Issue:
    """One instruction of the warps of a convoy."""

    convoy: Any
    instruction: Any
    product: wgmma.Product
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
    """D before the product, [warps, registers, 32], where no earlier product is to deliver it."""
    addend_warps: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    def lanes(self, warps: np.ndarray) -> np.ndarray:
        """The first lanes of warps, counted in the convoy."""
        return 32 * (warps - self.convoy.first)

    def read(self, registers: tuple[np.ndarray, ...], warps: np.ndarray) -> np.ndarray:
        """Registers of some warps: [warps, registers, 32]."""
        return np.stack([register.reshape(-1, 32)[warps - self.convoy.first] for register in registers], axis=1).view(np.uint32)

    def write(self, warps: np.ndarray, values: np.ndarray | int) -> None:
        for index, register in enumerate(self.result):
            register.reshape(-1, 32)[warps - self.convoy.first] = values if isinstance(values, int) else values[:, index]

    def land(self, warps: np.ndarray) -> None:
        """Compute the product for some warps.  Raises Fault for addresses that are wrong."""
        for group in np.unique(warps // 4).tolist():
            members = warps[warps // 4 == group]
            b = self._operand(self.b, 1, np.arange(self.product.n), members)
            if isinstance(self.a, tuple):
                a = wgmma.operand_of_registers(self.product, self.read(self.a, members))
            else:
                rows = (members % 4 * wgmma.WARP_ROWS)[:, None] + np.arange(wgmma.WARP_ROWS)
                a = self._operand(self.a, 0, rows.ravel(), members).reshape(len(members), wgmma.WARP_ROWS, -1)
            self.write(members, wgmma.multiply(self.product, a, b, self._addend(members)))

    def _addend(self, warps: np.ndarray) -> np.ndarray | None:
        if not self.scale:
            return None
        values = self.read(self.result, warps)
        if self.addend is not None:
            known = np.isin(warps, self.addend_warps)
            values[known] = self.addend[np.searchsorted(self.addend_warps, warps[known])]
        return values

    def _operand(self, bits: int, which: int, rows: np.ndarray, warps: np.ndarray) -> np.ndarray:
        """The operand's chosen rows of A or columns of B as float64 [rows, k]."""
        descriptor, kind, transposed = Descriptor.decode(bits), self.product.kinds[1 + which], self.product.transposed[which]
        if transposed:
            per_chunk = CHUNK // 2
            addresses = descriptor.chunks(int(rows[-1]) // per_chunk + 1, self.product.k, True)[rows[0] // per_chunk :]
            found = wgmma.operand(self._load(addresses, warps), kind, True)
            return found[rows - rows[0] // per_chunk * per_chunk]
        addresses = descriptor.chunks(int(rows[-1]) + 1, wgmma.CHUNKS_OF_K, False)[rows]
        return wgmma.operand(self._load(addresses, warps), kind, False)

    def _load(self, addresses: np.ndarray, warps: np.ndarray) -> np.ndarray:
        lanes = np.full(addresses.size, self.lanes(warps[:1])[0])
        found = self.convoy.memory.load(
            "shared", addresses.ravel().astype(np.uint32), CHUNK, True, (self.convoy, self.instruction, lanes)
        )
        return np.ascontiguousarray(found).view(np.uint8).reshape(*addresses.shape, CHUNK)


class WgmmaQueue:
    """The products of a CTA's warps.  An agent of the CTA."""

    def __init__(self, cta: Any) -> None:
        self.landing = cta.launch.landing
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
        issue.write(free, _POISON)
        self.pending.append(issue)
        for _ in range(self.landing.ready(len(self.pending))):
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


def _overlap(first: Issue, second: Issue) -> bool:
    """Whether the results of two products are the same registers."""
    return np.shares_memory(first.result[0], second.result[0])
