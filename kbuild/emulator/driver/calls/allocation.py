"""The driver's functions for allocations: on devices, from memory pools, and of the host."""

from __future__ import annotations

from kbuild.emulator.driver import host
from kbuild.emulator.driver.codes import STRUCTURES, DriverResult, PoolAttribute, Refused
from kbuild.emulator.driver.core import Driver
from kbuild.emulator.driver.devices import SETTABLE_OF_POOLS, MemoryPool
from kbuild.emulator.driver.table import Int, Pointer, Size, Unsigned, Word, call

_ON_DEVICE, _ON_HOST = 1, (2, 3, 4)
"""CUmemLocationType: of a device, and those of the host."""
_PINNED = 1
"""CU_MEM_ALLOCATION_TYPE_PINNED."""
_READ_AND_WRITE = 3
"""CU_MEM_ACCESS_FLAGS_PROT_READWRITE."""


def _require_size(size: int) -> None:
    if size <= 0:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, "the size is zero")


@call(3020, unsafe_in_capture=True)
def cuMemAlloc_v2(driver: Driver, address: Pointer, size: Size) -> None:
    _require_size(size)
    context = driver.context
    allocated = context.device.heap.allocate(size, "memory")
    context.memory.add(allocated)
    host.put(address, "Q", allocated)


@call(3020, unsafe_in_capture=True)
def cuMemFree_v2(driver: Driver, address: Word) -> None:
    if not address:
        return
    driver.context.finish()
    _free(driver, address)


def _free(driver: Driver, address: int) -> None:
    if address in driver.host_memory:
        del driver.host_memory[address]
    else:
        driver.locate(address).heap.free(address)
    for context in driver.contexts():
        context.memory.discard(address)
    for pool in driver.pools():
        pool.memory.pop(address, None)


@call(3020)
def cuMemGetInfo_v2(driver: Driver, free: Pointer, total: Pointer) -> None:
    heap = driver.context.device.heap
    host.put(free, "Q", heap.total - heap.used)
    host.put(total, "Q", heap.total)


# Pools


def _allocate_from(driver: Driver, pool: MemoryPool, address: int, size: int) -> None:
    _require_size(size)
    allocated = pool.device.heap.allocate(size, "memory") if pool.device else _host_memory(driver, size)
    pool.add(allocated, size)
    host.put(address, "Q", allocated)


@call(11020, ptsz=11020)
def cuMemAllocAsync(driver: Driver, address: Pointer, size: Size, stream: Pointer) -> None:
    _allocate_from(driver, driver.context_of(stream).device.pool, address, size)


@call(11020, ptsz=11020)
def cuMemAllocFromPoolAsync(
    driver: Driver, address: Pointer, size: Size, pool: Pointer, stream: Pointer
) -> None:
    driver.stream(stream)
    _allocate_from(driver, driver.find(MemoryPool, pool), address, size)


@call(11020, ptsz=11020)
def cuMemFreeAsync(driver: Driver, address: Word, stream: Pointer) -> None:
    if address not in driver.host_memory:
        driver.locate(address)
    driver.submit(driver.stream(stream), lambda: _free(driver, address))


@call(11020)
def cuMemPoolCreate(driver: Driver, pool: Pointer, properties: Pointer) -> None:
    kind, handles, place, number, *_ = host.unpack(properties, STRUCTURES["CUmemPoolProps"])
    if kind != _PINNED or (place != _ON_DEVICE and place not in _ON_HOST):
        raise Refused(
            DriverResult.CUDA_ERROR_NOT_SUPPORTED, f"pools of type {kind} at a location of type {place}"
        )
    if handles:
        raise Refused(DriverResult.CUDA_ERROR_NOT_SUPPORTED, "the emulator's memory stays in its process")
    made = MemoryPool(driver.device(number) if place == _ON_DEVICE else None)
    host.put(pool, "Q", driver.keep(made))


@call(11020)
def cuMemPoolDestroy(driver: Driver, pool: Pointer) -> None:
    destroyed = driver.find(MemoryPool, pool)
    device = destroyed.device
    if device and destroyed is device.default_pool:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, "a device's default pool stays")
    if device and destroyed is device.pool:
        device.pool = device.default_pool
    driver.drop(pool)


@call(11020)
def cuMemPoolTrimTo(driver: Driver, pool: Pointer, size: Size) -> None:
    """Pools keep nothing that is not allocated."""
    driver.find(MemoryPool, pool)


@call(11020)
def cuMemPoolGetAttribute(driver: Driver, pool: Pointer, attribute: Int, value: Pointer) -> None:
    found = driver.find(MemoryPool, pool)
    sizes = {
        PoolAttribute.RESERVED_MEM_CURRENT: found.used,
        PoolAttribute.RESERVED_MEM_HIGH: found.highest,
        PoolAttribute.USED_MEM_CURRENT: found.used,
        PoolAttribute.USED_MEM_HIGH: found.highest,
        **found.settings,
    }
    if attribute not in sizes:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, f"pools have no attribute {attribute}")
    is_flag = attribute < PoolAttribute.RELEASE_THRESHOLD
    host.put(value, "i" if is_flag else "Q", sizes[attribute])


@call(11020)
def cuMemPoolSetAttribute(driver: Driver, pool: Pointer, attribute: Int, value: Pointer) -> None:
    found = driver.find(MemoryPool, pool)
    (given,) = host.unpack(value, "i" if attribute < PoolAttribute.RELEASE_THRESHOLD else "Q")
    if attribute in SETTABLE_OF_POOLS:
        found.settings[attribute] = given
    elif attribute in (PoolAttribute.RESERVED_MEM_HIGH, PoolAttribute.USED_MEM_HIGH) and not given:
        found.highest = found.used
    else:
        raise Refused(
            DriverResult.CUDA_ERROR_INVALID_VALUE, f"attribute {attribute} of pools cannot be set to {given}"
        )


@call(11020)
def cuMemPoolSetAccess(driver: Driver, pool: Pointer, descriptions: Pointer, count: Size) -> None:
    owner = driver.find(MemoryPool, pool).device
    for place, number, _ in zip(*[iter(host.unpack(descriptions, f"{3 * count}i"))] * 3):
        if owner is None or place != _ON_DEVICE or number != owner.ordinal:
            raise Refused(
                DriverResult.CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "a device reaches its own memory alone"
            )


@call(11020)
def cuMemPoolGetAccess(driver: Driver, flags: Pointer, pool: Pointer, location: Pointer) -> None:
    owner = driver.find(MemoryPool, pool).device
    place, number = host.unpack(location, STRUCTURES["CUmemLocation"])
    reaches = (place == _ON_DEVICE) == (owner is not None) and (owner is None or owner.ordinal == number)
    host.put(flags, "i", _READ_AND_WRITE if reaches else 0)


@call(11020)
def cuDeviceGetDefaultMemPool(driver: Driver, pool: Pointer, device: Int) -> None:
    host.put(pool, "Q", driver.handle_of(driver.device(device).default_pool))


@call(11020)
def cuDeviceGetMemPool(driver: Driver, pool: Pointer, device: Int) -> None:
    host.put(pool, "Q", driver.handle_of(driver.device(device).pool))


@call(11020)
def cuDeviceSetMemPool(driver: Driver, device: Int, pool: Pointer) -> None:
    found, of = driver.find(MemoryPool, pool), driver.device(device)
    if found.device is not of:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, "the pool is not one of the device")
    of.pool = found


def _device_at(location: int, kind: int) -> int:
    """The ordinal that a CUmemLocation names.  Raises Refused where it is not a device."""
    place, number = host.unpack(location, STRUCTURES["CUmemLocation"])
    if place != _ON_DEVICE or kind != _PINNED:
        raise Refused(
            DriverResult.CUDA_ERROR_NOT_SUPPORTED, f"a pool of type {kind} at a location of type {place}"
        )
    return number


@call(13000)
def cuMemGetDefaultMemPool(driver: Driver, pool: Pointer, location: Pointer, kind: Int) -> None:
    cuDeviceGetDefaultMemPool(driver, pool, _device_at(location, kind))


@call(13000)
def cuMemGetMemPool(driver: Driver, pool: Pointer, location: Pointer, kind: Int) -> None:
    cuDeviceGetMemPool(driver, pool, _device_at(location, kind))


@call(13000)
def cuMemSetMemPool(driver: Driver, location: Pointer, kind: Int, pool: Pointer) -> None:
    cuDeviceSetMemPool(driver, _device_at(location, kind), pool)


# Memory of the host, for copies: kernels of the emulator do not reach it.


def _host_memory(driver: Driver, size: int) -> int:
    page = host.Page(size)
    driver.host_memory[page.address] = page
    return page.address


@call(3020, unsafe_in_capture=True)
def cuMemAllocHost_v2(driver: Driver, address: Pointer, size: Size) -> None:
    cuMemHostAlloc(driver, address, size, 0)


@call(2020, unsafe_in_capture=True)
def cuMemHostAlloc(driver: Driver, address: Pointer, size: Size, flags: Unsigned) -> None:
    _ = driver.context  # there has to be one
    _require_size(size)
    host.put(address, "Q", _host_memory(driver, size))


@call(2000, unsafe_in_capture=True)
def cuMemFreeHost(driver: Driver, address: Pointer) -> None:
    if address not in driver.host_memory:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, f"{address:#x} was not allocated")
    driver.context.finish()
    _free(driver, address)
