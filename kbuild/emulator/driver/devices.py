"""The devices that the driver shows, and contexts on them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from kbuild.emulator.driver.codes import DeviceAttribute, PoolAttribute
from kbuild.emulator.driver.heap import DeviceHeap
from kbuild.emulator.driver.streams import Stream
from kbuild.errors import UsageError

_SHARED_LIMITS = {80: 166912, 86: 101376, 87: 166912, 89: 101376, 120: 101376, 121: 101376}
"""Bytes of shared memory that a block may opt in to, by compute capability; 232,448 for all others."""
_THREADS = {75: 1024, 86: 1536, 87: 1536, 89: 1536, 120: 1536, 121: 1536}
"""Threads that a multiprocessor holds; 2,048 for all others."""
_KNOWN = (75, 80, 86, 87, 89, 90, 100, 101, 103, 110, 120, 121)
"""The existing compute capabilities, as 10 * major + minor."""

SETTABLE_OF_POOLS = (
    PoolAttribute.REUSE_FOLLOW_EVENT_DEPENDENCIES,
    PoolAttribute.REUSE_ALLOW_OPPORTUNISTIC,
    PoolAttribute.REUSE_ALLOW_INTERNAL_DEPENDENCIES,
    PoolAttribute.RELEASE_THRESHOLD,
)


class Device:
    """One device."""

    def __init__(self, ordinal: int, arch: str, memory: int) -> None:
        match = re.fullmatch(r"sm_(\d+)", arch)
        if match is None or int(match[1]) not in _KNOWN:
            known = ", ".join(f"sm_{capability}" for capability in _KNOWN)
            raise UsageError(f"no device of architecture {arch!r}", help=f"known are {known}")
        self.ordinal = ordinal
        self.arch = arch
        self.capability = int(match[1])
        self.heap = DeviceHeap(ordinal, memory)
        self.primary: DriverContext | None = None
        self.retained = 0
        """How often the primary context is retained."""
        self.primary_flags = 0
        self.default_pool = MemoryPool(self)
        self.pool = self.default_pool
        """The pool of allocations that name none."""
        self.steps = 0
        """Instructions executed so far, the device's clock."""

    @property
    def name(self) -> str:
        return f"kbuild stand-in for {self.arch}"

    @property
    def uuid(self) -> bytes:
        """16 bytes that no other device of the driver has."""
        return f"kbuild-{self.arch:>6}-{self.ordinal:02}".encode()[:16]

    @property
    def shared_limit(self) -> int:
        """Bytes of shared memory that one block may have."""
        return 65536 if self.capability == 75 else _SHARED_LIMITS.get(self.capability, 232448)

    @property
    def multiprocessors(self) -> int:
        return 132 if self.capability >= 90 else 108

    @property
    def threads_of_multiprocessor(self) -> int:
        """Threads that a multiprocessor holds."""
        return _THREADS.get(self.capability, 2048)

    @property
    def shared_of_multiprocessor(self) -> int:
        """Bytes of shared memory of a multiprocessor."""
        return self.shared_limit + self.reserved_shared

    @property
    def has_clusters(self) -> bool:
        """Whether blocks can be launched in clusters, and tiles copied by tensor maps."""
        return self.capability >= 90

    blocks_of_multiprocessor = 32
    reserved_shared = 1024
    """Bytes of shared memory that each block takes besides its own."""

    def attribute(self, number: int) -> int:
        """The value of an attribute; 0 for features that the device lacks."""
        named = DeviceAttribute
        values = {
            named.MAX_THREADS_PER_BLOCK: 1024,
            named.MAX_BLOCK_DIM_X: 1024,
            named.MAX_BLOCK_DIM_Y: 1024,
            named.MAX_BLOCK_DIM_Z: 64,
            named.MAX_GRID_DIM_X: 2**31 - 1,
            named.MAX_GRID_DIM_Y: 65535,
            named.MAX_GRID_DIM_Z: 65535,
            named.MAX_SHARED_MEMORY_PER_BLOCK: 49152,
            named.TOTAL_CONSTANT_MEMORY: 65536,
            named.WARP_SIZE: 32,
            named.MAX_PITCH: 2**31 - 1,
            named.MAX_REGISTERS_PER_BLOCK: 65536,
            named.CLOCK_RATE: 1_000_000,
            named.TEXTURE_ALIGNMENT: 512,
            named.MULTIPROCESSOR_COUNT: self.multiprocessors,
            named.CONCURRENT_KERNELS: 1,
            named.PCI_BUS_ID: self.ordinal + 1,
            named.L2_CACHE_SIZE: 40 << 20,
            named.MAX_THREADS_PER_MULTIPROCESSOR: self.threads_of_multiprocessor,
            named.ASYNC_ENGINE_COUNT: 1,
            named.UNIFIED_ADDRESSING: 1,
            named.STREAM_PRIORITIES_SUPPORTED: 1,
            named.COMPUTE_CAPABILITY_MAJOR: self.capability // 10,
            named.COMPUTE_CAPABILITY_MINOR: self.capability % 10,
            named.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: self.shared_limit,
            named.MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: self.shared_of_multiprocessor,
            named.MAX_REGISTERS_PER_MULTIPROCESSOR: 65536,
            named.MAX_BLOCKS_PER_MULTIPROCESSOR: self.blocks_of_multiprocessor,
            named.RESERVED_SHARED_MEMORY_PER_BLOCK: self.reserved_shared,
            named.MEMORY_POOLS_SUPPORTED: 1,
            named.CLUSTER_LAUNCH: int(self.has_clusters),
            named.TENSOR_MAP_ACCESS_SUPPORTED: int(self.has_clusters),
        }
        return values.get(named(number), 0) if number in named.__members__.values() else 0

    @property
    def pci_bus_id(self) -> str:
        """Its place on the bus: domain, bus, device and function."""
        return f"0000:{self.ordinal + 1:02X}:00.0"


@dataclass(eq=False)
class MemoryPool:
    """Memory that streams allocate: of a device, or of the host."""

    device: Device | None
    """None for memory of the host."""
    settings: dict[int, int] = field(default_factory=lambda: dict.fromkeys(SETTABLE_OF_POOLS, 0))
    """Values of its attributes that can be set."""
    memory: dict[int, int] = field(default_factory=dict)
    """Bytes of the allocations from it, by address."""
    highest: int = 0
    """The most bytes that were allocated at a time."""

    @property
    def used(self) -> int:
        """Bytes of its allocations."""
        return sum(self.memory.values())

    def add(self, address: int, size: int) -> None:
        """Count an allocation as one from it."""
        self.memory[address] = size
        self.highest = max(self.highest, self.used)


@dataclass(eq=False)
class DriverContext:
    """A context on a device: modules, streams and events belong to it."""

    device: Device
    is_primary: bool
    handle: int = 0
    default: Stream = field(default_factory=lambda: Stream(None, 0))
    """The legacy default stream."""
    streams: dict[int, Stream] = field(default_factory=dict)
    """All others, by handle."""
    is_alive: bool = True
    flags: int = 0
    limits: dict[int, int] = field(default_factory=dict)
    """Values that a program has set, by CUlimit."""
    memory: set[int] = field(default_factory=set)
    """Addresses that were allocated in it."""

    def finish(self) -> None:
        """Do all the work that its streams have been given: later streams first, which shows where a wait is
        missing."""
        for stream in (*reversed(self.streams.values()), self.default):
            stream.finish()
