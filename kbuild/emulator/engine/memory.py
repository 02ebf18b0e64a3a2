"""The state spaces: a global heap with red zones, shared, local, constant and parameter memory, and generic
addresses.

A `Space` is an array of bytes with a state per byte.  `Memory` is what the threads of one CTA see: it finds
the space that an address lies in, checks alignment and bounds, and notifies observers (race
detector, initialisation bits) of every access.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from kbuild.emulator.engine.findings import Fault

GLOBAL_BASE = 0x7F00_0000_0000
SHARED_WINDOW = 0x0100_0000_0000
LOCAL_WINDOW = 0x0200_0000_0000
CONST_WINDOW = 0x0300_0000_0000
PARAM_WINDOW = 0x0400_0000_0000
WINDOW_SIZE = 1 << 40
RED_ZONE = 4096
"""Bytes around every allocation of the global heap that no kernel may touch."""
CTA_SHIFT = 24
"""In the window of a cluster's shared memory, CTA `r` begins at `(r + 1) << CTA_SHIFT`."""
POISON = 0xFF
"""The byte in fresh memory: NaN in every float type, -1 in every integer type."""

_SHIFTS = {1: 0, 2: 1, 4: 2, 8: 3, 16: 4}
_OUTSIDE, _LIVE, _FREED = 0, 1, 2


class Observer(Protocol):
    """Is notified of every access before it takes place."""

    def accessed(
        self,
        kind: str,
        space: Space,
        offsets: np.ndarray,
        size: int,
        lanes: np.ndarray,
        data: np.ndarray | None,
        site: Any,
    ) -> None:
        """`kind` is `load`, `store` or `atomic`; `offsets` are bytes into `space.data`, one per entry of
        `lanes`.

        `lanes` counts from the first lane of `site`'s warps; `data` (bytes [n, size]) is what a store writes.
        """
        ...


class Space:
    """A run of bytes at a base address."""

    def __init__(self, name: str, base: int, size: int = 0, live: bool = True) -> None:
        self.name = name
        self.base = base
        self.data = np.zeros(0, np.uint8)
        self.state = np.zeros(0, np.uint8)
        self.names: list[tuple[int, int, str]] = []
        """First byte, size and name of each allocation, for reports."""
        self.arrays: dict[int, tuple[str, int]] = {}
        """Name and bytes of an element, by first byte, of the allocations that are arrays: reports count in
        elements."""
        self.live: list[tuple[int, int]] = []
        """First and last (exclusive) byte of runs of live memory, for quick checks."""
        self.ended = False
        """Whether it was the shared memory of a CTA that has ended, and others may have it."""
        self._views: dict[int, np.ndarray] = {}
        self.grow(size, live)

    def grow(self, size: int, live: bool = False) -> int:
        """Append bytes (rounded up to 16) and return the offset of the first."""
        offset, rounded = len(self.data), -(-size // 16) * 16
        self.data = np.concatenate([self.data, np.full(rounded, POISON, np.uint8)])
        self.state = np.concatenate([self.state, np.zeros(rounded, np.uint8)])
        self._views.clear()
        if live:
            self.make_live(offset, offset + size)
        return offset

    def make_live(self, start: int, end: int) -> None:
        """Let the bytes from `start` to before `end` be touched."""
        self.state[start:end] = _LIVE
        if start < end:
            self.live.insert(0, (start, end))

    def view(self, size: int) -> np.ndarray:
        """The bytes as elements of `size` bytes."""
        found = self._views.get(size)
        if found is None:
            found = self._views[size] = self.data.view(f"V{size}" if size == 16 else f"u{size}")
        return found

    def check(self, offsets: np.ndarray, size: int) -> None:
        """Raise Fault unless all of these (int64, at least one) are aligned and inside live memory."""
        first, last = int(np.minimum.reduce(offsets)), int(np.maximum.reduce(offsets)) + size
        if size == 1 or not int(np.bitwise_or.reduce(offsets)) & (size - 1):
            for start, end in self.live:
                if start <= first and last <= end:
                    return
        self._check_each(offsets, size)

    def _check_each(self, offsets: np.ndarray, size: int) -> None:
        """As `check`, without the shortcut for offsets that lie in one run of live memory."""
        last = offsets + (size - 1)
        state = self.state
        if size > 1 and (offsets & (size - 1)).any():
            worst = int(offsets[np.argmax((offsets & (size - 1)) != 0)])
            raise Fault("misaligned", f"{self.describe(worst)} is not aligned to the {size} bytes accessed")
        outside = (offsets < 0) | (last >= len(state))
        if outside.any():
            raise Fault("out-of-bounds", f"{size} bytes at {self.describe(int(offsets[np.argmax(outside)]))}")
        if (state[offsets] != _LIVE).any() or (size > 1 and (state[last] != _LIVE).any()):
            wrong = (state[offsets] != _LIVE) | (state[last] != _LIVE)
            worst = int(offsets[np.argmax(wrong)])
            kind = "use-after-free" if state[worst] == _FREED else "out-of-bounds"
            raise Fault(kind, f"{size} bytes at {self.describe(worst, size)}")

    def describe(self, offset: int, size: int = 1) -> str:
        """Describes an access of `size` bytes, relative to the nearest allocation."""
        text = f"{self.name} address {self.base + offset:#x}"
        if not self.names:
            return f"{text} ({self.name} memory has {int((self.state == _LIVE).sum())} bytes)"
        start, length, name = min(
            self.names, key=lambda entry: max(entry[0] - offset, offset - entry[0] - entry[1] + 1, 0)
        )
        over = offset + size - start - length
        if start in self.arrays and abs(offset - start) < len(self.data):
            name, element = self.arrays[start]
            index, byte = divmod(offset - start, element)
            where = (
                f", before {name}" if offset < start else f", after the end of {name}" if over >= size else ""
            )
            where = f", the last {over} of them after the end of {name}" if 0 < over < size else where
            within = f", byte {byte} of it" if byte else ""
            return f"{name}[{index}]{within}{where}" + (f" ({length // element} elements)" if where else "")
        if offset < start:
            return f"{text}, {start - offset} bytes before {name} ({length} bytes)"
        if over >= size:
            return f"{text}, {over - size} bytes after the end of {name} ({length} bytes)"
        beyond = f", the last {over} of them after the end of {name}" if over > 0 else f" of {name}"
        return f"{text}, byte {offset - start}{beyond} ({length} bytes)"


class Heap(Space):
    """Global memory: allocations between red zones."""

    def __init__(self, base: int = GLOBAL_BASE) -> None:
        super().__init__("global", base)
        self.grow(RED_ZONE)

    def allocate(self, size: int, name: str = "allocation", skew: int = 0) -> int:
        """Address of `size` fresh bytes, a multiple of 256 plus `skew`."""
        room = skew + size + RED_ZONE
        offset = self.grow(-(-room // 256) * 256) + skew
        self.make_live(offset, offset + size)
        self.names.append((offset, size, name))
        return self.base + offset

    def is_array(self, address: int, name: str, element: int) -> None:
        """Name the allocation at an address in reports, which count it in elements of `element` bytes."""
        self.arrays[address - self.base] = name, element

    def free(self, address: int) -> None:
        """Free an allocation; touching it again is a fault.  Raises Fault for other addresses."""
        for start, size, _ in self.names:
            if start == address - self.base and self.state[start : start + 1].tolist() != [_FREED]:
                self.state[start : start + size] = _FREED
                self.live.remove((start, start + size))
                return
        raise Fault("bad-free", f"{address:#x} is not the start of an allocation")

    def bytes(self, address: int, size: int) -> np.ndarray:
        """The live bytes at an address, to read or write.  Raises Fault when they are not all live."""
        offset = address - self.base
        if size and not (
            offset >= 0
            and offset + size <= len(self.data)
            and (self.state[offset : offset + size] == _LIVE).all()
        ):
            raise Fault("out-of-bounds", f"{size} bytes at {self.describe(offset)}")
        return self.data[offset : offset + size]


class Local(Space):
    """Thread-private memory: each thread's bytes lie one after the other."""

    def __init__(self, size: int, threads: int) -> None:
        self.stride = -(-size // 16) * 16
        super().__init__("local", LOCAL_WINDOW, self.stride * threads)


class Memory:
    """The memory that the threads of one CTA see."""

    def __init__(
        self,
        heap: Heap,
        shared: Space,
        local: Local,
        const: Space,
        param: Space,
        peers: list[Space] | None = None,
    ) -> None:
        self.spaces: dict[str, Space] = {
            "global": heap,
            "shared": shared,
            "local": local,
            "const": const,
            "param": param,
        }
        self.heap = heap
        self.local = local
        self.peers = peers if peers is not None else [shared]
        """Shared memory of every CTA of the cluster, by rank."""
        self.observers: list[Observer] = []

    def load(self, space: str, addresses: np.ndarray, size: int, where: Any, site: Any) -> np.ndarray:
        """The elements of `size` bytes at `addresses` (unsigned; 16 bytes as two uint64 columns); zero where
        `where` is false."""
        lanes = None if where is True else np.flatnonzero(where)
        shape = (len(addresses), 2) if size == 16 else (len(addresses),)
        if lanes is not None:
            result = np.zeros(shape, np.uint64 if size == 16 else f"u{size}")
            if len(lanes):
                result[lanes] = self.load(space, addresses[lanes], size, True, (site[0], site[1], lanes))
            return result
        if space == "global":
            return self._read(self.heap, addresses.astype(np.int64) - self.heap.base, size, site)
        parts = self._locate(space, addresses, site)
        if len(parts) == 1:
            return self._read(*parts[0][:2], size, site).reshape(shape)
        result = np.zeros(shape, np.uint64 if size == 16 else f"u{size}")
        for part, offsets, chosen in parts:
            result[chosen] = self._read(part, offsets, size, site)
        return result

    def _read(self, space: Space, offsets: np.ndarray, size: int, site: Any) -> np.ndarray:
        space.check(offsets, size)
        for observer in self.observers:
            observer.accessed("load", space, offsets, size, _lanes(site, len(offsets)), None, site)
        found = space.view(size)[offsets >> _SHIFTS[size]]
        return found.view(np.uint64).reshape(-1, 2) if size == 16 else found

    def store(
        self, space: str, addresses: np.ndarray, values: np.ndarray, size: int, where: Any, site: Any
    ) -> None:
        """Write elements of `size` bytes (as `load` returns them); of several at one address the last lane's
        is kept."""
        if where is not True:
            lanes = np.flatnonzero(where)
            if not len(lanes):
                return
            addresses, values, site = addresses[lanes], values[lanes], (site[0], site[1], lanes)
        for part, offsets, chosen in self._locate(space, addresses, site):
            part.check(offsets, size)
            data = np.ascontiguousarray(values if chosen is None else values[chosen])
            for observer in self.observers:
                observer.accessed(
                    "store",
                    part,
                    offsets,
                    size,
                    _lanes(site, len(offsets)),
                    data.view(np.uint8).reshape(-1, size),
                    site,
                )
            part.view(size)[offsets >> _SHIFTS[size]] = data.view("V16").ravel() if size == 16 else data

    def atomic(
        self,
        space: str,
        addresses: np.ndarray,
        size: int,
        update: Any,
        operands: list[np.ndarray],
        where: Any,
        site: Any,
    ) -> np.ndarray:
        """Apply `update(old, *operands)` lane by lane and return the old values (unsigned; 0 where `where` is
        false)."""
        result = np.zeros(len(addresses), f"u{size}")
        lanes = np.arange(len(addresses)) if where is True else np.flatnonzero(where)
        if not len(lanes):
            return result
        site = (site[0], site[1], lanes)
        for part, offsets, chosen in self._locate(space, addresses[lanes], site):
            here = lanes if chosen is None else lanes[chosen]
            part.check(offsets, size)
            for observer in self.observers:
                observer.accessed("atomic", part, offsets, size, here, None, site)
            elements, view = offsets // size, part.view(size)
            if len(np.unique(elements)) == len(elements):
                result[here] = view[elements]
                view[elements] = update(view[elements], *(operand[here] for operand in operands))
                continue
            for lane, element in zip(here.tolist(), elements.tolist()):
                old = view[element : element + 1].copy()
                result[lane] = old[0]
                view[element] = update(old, *(operand[lane : lane + 1] for operand in operands))[0]
        return result

    def _locate(
        self, space: str, addresses: np.ndarray, site: Any
    ) -> list[tuple[Space, np.ndarray, np.ndarray | None]]:
        """The spaces that addresses lie in, with byte offsets there and the entries (None: all) that lie
        there."""
        if space == "global":
            return [(self.spaces["global"], addresses.astype(np.int64) - self.heap.base, None)]
        if space == "generic":
            return self._generic(addresses, site)
        if space == "shared":
            offsets = addresses.astype(np.int64)
            if int(np.maximum.reduce(offsets)) < 1 << CTA_SHIFT:
                return [(self.spaces["shared"], offsets, None)]
            return self._cluster(offsets)
        offsets = addresses.astype(np.int64)
        if space == "local":
            self._check_local(offsets)
            offsets = (
                offsets
                + _lanes(site, len(offsets)) * self.local.stride
                + site[0].first_thread * self.local.stride
            )
        return [(self.spaces[space], offsets, None)]

    def _check_local(self, offsets: np.ndarray) -> None:
        if ((offsets < 0) | (offsets >= self.local.stride)).any():
            raise Fault(
                "out-of-bounds", f"local address {int(offsets.max()):#x} of {self.local.stride} bytes"
            )

    def _cluster(self, offsets: np.ndarray) -> list[tuple[Space, np.ndarray, np.ndarray | None]]:
        """Addresses in the shared window of the cluster."""
        parts: list[tuple[Space, np.ndarray, np.ndarray | None]] = []
        ranks = (offsets >> CTA_SHIFT) - 1
        for rank in np.unique(ranks).tolist():
            if rank >= len(self.peers):
                raise Fault(
                    "out-of-bounds", f"shared address of CTA {rank} in a cluster of {len(self.peers)}"
                )
            chosen = np.flatnonzero(ranks == rank)
            target = self.spaces["shared"] if rank < 0 else self.peers[rank]
            if target.ended:
                raise Fault("ended-peer", f"uses shared memory of CTA {rank} of the cluster, which has ended")
            parts.append((target, offsets[chosen] & ((1 << CTA_SHIFT) - 1), chosen))
        return parts

    def _generic(self, addresses: np.ndarray, site: Any) -> list[tuple[Space, np.ndarray, np.ndarray | None]]:
        """Generic addresses: a window per space, all else is global."""
        windows = (addresses.astype(np.int64) // WINDOW_SIZE).astype(np.int64)
        names = {1: "shared", 2: "local", 3: "const", 4: "param"}
        kinds = np.unique(windows).tolist()
        if not any(kind in names for kind in kinds):
            return self._locate("global", addresses, site)
        parts: list[tuple[Space, np.ndarray, np.ndarray | None]] = []
        for kind in kinds:
            chosen = np.flatnonzero(windows == kind)
            inner = addresses[chosen] - np.uint64(kind * WINDOW_SIZE) if kind in names else addresses[chosen]
            lanes = _lanes(site, len(addresses))[chosen]
            for part, offsets, within in self._locate(
                names.get(kind, "global"), inner, (site[0], site[1], lanes)
            ):
                parts.append((part, offsets, chosen if within is None else chosen[within]))
        return parts


def _lanes(site: Any, count: int) -> np.ndarray:
    """The lanes that the entries of an access belong to."""
    return site[2] if len(site) > 2 else np.arange(count)
