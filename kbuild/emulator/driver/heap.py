"""The memory of one device: allocations between red zones, at addresses that no other device has."""

from __future__ import annotations

from collections import deque

from kbuild.emulator.driver.codes import DriverResult, Refused
from kbuild.emulator.engine.findings import Fault
from kbuild.emulator.engine.memory import POISON, RED_ZONE, Heap

_BASE = 0x3000_0000_0000
"""Far from where Linux puts anything of a process, so that an address is one of a device or one of the host."""
_DEVICE_SHIFT = 36
"""Device `n` begins at _BASE + (n << 36)."""
_ALIGNMENT = 256
_QUARANTINE = 64 << 20
"""Freed bytes, or a quarter of the memory where that is less, that are kept apart before they are given out
again, so that a late access is reported as a use after free."""


class DeviceHeap(Heap):
    """Global memory of a device with a number of bytes."""

    def __init__(self, ordinal: int, total: int) -> None:
        super().__init__(_BASE + (ordinal << _DEVICE_SHIFT))
        self.ordinal = ordinal
        self.total = total
        self.used = 0
        self._top = len(self.data)
        self._sizes: dict[int, tuple[int, str]] = {}
        self._freed: deque[tuple[int, int, str]] = deque()
        self._freed_bytes = 0

    def covers(self, address: int) -> bool:
        """Whether an address is one of this device, allocated or not."""
        return self.base >> _DEVICE_SHIFT == address >> _DEVICE_SHIFT

    def allocate(self, size: int, name: str = "allocation", skew: int = 0) -> int:
        """Address of `size` fresh bytes, a multiple of 256 plus `skew`.  Raises Refused where less
        is left."""
        if self.used + size > self.total:
            raise Refused(
                DriverResult.CUDA_ERROR_OUT_OF_MEMORY,
                f"{size} bytes are wanted, {self.total - self.used} of {self.total} are free",
            )
        offset = (self._reused(size) if not skew else None) or self._fresh(size + skew) + skew
        self.data[offset : offset + size] = POISON
        self.make_live(offset, offset + size)
        self.names.append((offset, size, name))
        self._sizes[offset] = size, name
        self.used += size
        return self.base + offset

    def _fresh(self, size: int) -> int:
        """The offset of bytes that were never given out; room is made for more than these, as it is copied
        each time."""
        room = -(-(size + RED_ZONE) // _ALIGNMENT) * _ALIGNMENT
        if self._top + room > len(self.data):
            self.grow(max(room, len(self.data)))
        offset, self._top = self._top, self._top + room
        return offset

    def _reused(self, size: int) -> int | None:
        """The offset of bytes that were freed long ago, if as many as these."""
        if self._freed_bytes <= min(_QUARANTINE, self.total // 4):
            return None
        entry = next((entry for entry in self._freed if entry[1] == size), None)
        if entry is None:
            return None
        self._freed.remove(entry)
        self.names.remove(entry)
        self._freed_bytes -= size
        return entry[0]

    def free(self, address: int) -> None:
        """Give an allocation back; touching it again is a fault.  Raises Refused for other addresses."""
        size, name = self._sizes.get(address - self.base, (0, ""))
        try:
            super().free(address)
        except Fault as fault:
            raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, fault.message) from None
        del self._sizes[address - self.base]
        self.arrays.pop(address - self.base, None)
        self._freed.append((address - self.base, size, name))
        self._freed_bytes += size
        self.used -= size

    def allocation(self, address: int) -> tuple[int, int] | None:
        """Address and size of the allocation that an address lies in."""
        for offset, (size, _) in self._sizes.items():
            if offset <= address - self.base < offset + max(size, 1):
                return self.base + offset, size
        return None

    @property
    def allocations(self) -> dict[int, str]:
        """The names of allocations, by address."""
        return {self.base + offset: name for offset, (_, name) in self._sizes.items()}
