"""The driver's functions for memory, and the encoding of tensor maps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kbuild.emulator.async_ops.tensor_map import ELEMENTS, TensorMap, TensorMapError
from kbuild.emulator.driver import host
from kbuild.emulator.driver.codes import DriverResult, PointerAttribute, Refused
from kbuild.emulator.driver.core import Driver
from kbuild.emulator.driver.table import Byte, Int, Pointer, Short, Size, Unsigned, Word, call

_ON_DEVICE = 2
"""CU_MEMORYTYPE_DEVICE."""


def _allocate(driver: Driver, address: int, size: int) -> None:
    if size <= 0:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, "the size is zero")
    context = driver.context
    allocated = context.device.heap.allocate(size, "memory")
    context.memory.add(allocated)
    host.put(address, "Q", allocated)


def _free(driver: Driver, address: int) -> None:
    driver.locate(address).heap.free(address)
    for context in driver.contexts():
        context.memory.discard(address)


@call(unsafe_in_capture=True)
def cuMemAlloc_v2(driver: Driver, address: Pointer, size: Size) -> None:
    _allocate(driver, address, size)


@call(unsafe_in_capture=True)
def cuMemFree_v2(driver: Driver, address: Word) -> None:
    if not address:
        return
    driver.context.finish()
    _free(driver, address)


@call(since=11020)
def cuMemAllocAsync(driver: Driver, address: Pointer, size: Size, stream: Pointer) -> None:
    driver.stream(stream)
    _allocate(driver, address, size)


@call(since=11020)
def cuMemFreeAsync(driver: Driver, address: Word, stream: Pointer) -> None:
    driver.locate(address)
    driver.submit(driver.stream(stream), lambda: _free(driver, address))


@call()
def cuMemGetInfo_v2(driver: Driver, free: Pointer, total: Pointer) -> None:
    heap = driver.context.device.heap
    host.put(free, "Q", heap.total - heap.used)
    host.put(total, "Q", heap.total)


def device_bytes(driver: Driver, address: int, size: int) -> np.ndarray:
    """Bytes on a device, to read or write.  Raises Refused where they are not all allocated."""
    if not size:
        return np.zeros(0, np.uint8)
    heap = driver.locate(address).heap
    start, length = heap.allocation(address) or (address, 0)
    if address + size > start + length:
        raise Refused(
            DriverResult.CUDA_ERROR_INVALID_VALUE,
            f"{size} bytes at {address:#x}; the allocation ends after {start + length - address}",
        )
    return heap.bytes(address, size)


def _to_device(driver: Driver, target: int, data: bytes) -> Callable[[], None]:
    device_bytes(driver, target, len(data))

    def work() -> None:
        device_bytes(driver, target, len(data))[:] = np.frombuffer(data, np.uint8)

    return work


def _from_device(driver: Driver, target: int, source: int, size: int) -> Callable[[], None]:
    device_bytes(driver, source, size)
    return lambda: host.write(target, device_bytes(driver, source, size).tobytes())


def _within_device(driver: Driver, target: int, source: int, size: int) -> Callable[[], None]:
    device_bytes(driver, target, size)
    device_bytes(driver, source, size)

    def work() -> None:
        device_bytes(driver, target, size)[:] = device_bytes(driver, source, size).copy()

    return work


def _fill(driver: Driver, target: int, value: bytes, count: int) -> Callable[[], None]:
    if target % len(value):
        raise Refused(
            DriverResult.CUDA_ERROR_INVALID_VALUE, f"{target:#x} is not aligned to {len(value)} bytes"
        )
    return _to_device(driver, target, value * count)


@call()
def cuMemcpyHtoD_v2(driver: Driver, target: Word, source: Pointer, size: Size) -> None:
    driver.do(_to_device(driver, target, host.read(source, size)))


@call()
def cuMemcpyDtoH_v2(driver: Driver, target: Pointer, source: Word, size: Size) -> None:
    driver.do(_from_device(driver, target, source, size))


@call()
def cuMemcpyDtoD_v2(driver: Driver, target: Word, source: Word, size: Size) -> None:
    driver.do(_within_device(driver, target, source, size))


@call()
def cuMemcpyHtoDAsync_v2(driver: Driver, target: Word, source: Pointer, size: Size, stream: Pointer) -> None:
    driver.submit(driver.stream(stream), _to_device(driver, target, host.read(source, size)))


@call()
def cuMemcpyDtoHAsync_v2(driver: Driver, target: Pointer, source: Word, size: Size, stream: Pointer) -> None:
    driver.submit(driver.stream(stream), _from_device(driver, target, source, size))


@call()
def cuMemcpyDtoDAsync_v2(driver: Driver, target: Word, source: Word, size: Size, stream: Pointer) -> None:
    driver.submit(driver.stream(stream), _within_device(driver, target, source, size))


@call()
def cuMemsetD8_v2(driver: Driver, target: Word, value: Byte, count: Size) -> None:
    driver.do(_fill(driver, target, value.to_bytes(1, "little"), count))


@call()
def cuMemsetD16_v2(driver: Driver, target: Word, value: Short, count: Size) -> None:
    driver.do(_fill(driver, target, value.to_bytes(2, "little"), count))


@call()
def cuMemsetD32_v2(driver: Driver, target: Word, value: Unsigned, count: Size) -> None:
    driver.do(_fill(driver, target, value.to_bytes(4, "little"), count))


@call()
def cuMemsetD8Async(driver: Driver, target: Word, value: Byte, count: Size, stream: Pointer) -> None:
    driver.submit(driver.stream(stream), _fill(driver, target, value.to_bytes(1, "little"), count))


@call()
def cuMemsetD32Async(driver: Driver, target: Word, value: Unsigned, count: Size, stream: Pointer) -> None:
    driver.submit(driver.stream(stream), _fill(driver, target, value.to_bytes(4, "little"), count))


@call()
def cuPointerGetAttribute(driver: Driver, value: Pointer, attribute: Int, address: Word) -> None:
    device = driver.locate(address)
    start, size = device.heap.allocation(address) or (0, 0)
    named = PointerAttribute
    values = {
        named.CONTEXT: ("Q", device.primary.handle if device.primary else 0),
        named.MEMORY_TYPE: ("I", _ON_DEVICE),
        named.DEVICE_POINTER: ("Q", address),
        named.IS_MANAGED: ("B", 0),
        named.DEVICE_ORDINAL: ("i", device.ordinal),
        named.RANGE_START_ADDR: ("Q", start),
        named.RANGE_SIZE: ("Q", size),
        named.MAPPED: ("B", 1),
    }
    for known, (format, answer) in values.items():
        if known == attribute:
            host.put(value, format, answer)
            return
    raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, f"pointers have no attribute {attribute}")


@call(since=7000)
def cuPointerGetAttributes(
    driver: Driver, count: Unsigned, attributes: Pointer, values: Pointer, address: Word
) -> None:
    for number, value in zip(host.unpack(attributes, f"{count}i"), host.unpack(values, f"{count}Q")):
        cuPointerGetAttribute(driver, value, number, address)


@call()
def cuMemGetAddressRange_v2(driver: Driver, base: Pointer, size: Pointer, address: Word) -> None:
    start, length = driver.locate(address).heap.allocation(address) or (0, 0)
    for target, answer in ((base, start), (size, length)):
        if target:
            host.put(target, "Q", answer)


@call(since=12000)
def cuTensorMapEncodeTiled(
    driver: Driver,
    tensor_map: Pointer,
    element: Int,
    rank: Unsigned,
    address: Pointer,
    sizes: Pointer,
    strides: Pointer,
    box: Pointer,
    steps: Pointer,
    interleave: Int,
    swizzle: Int,
    promotion: Int,
    fill: Int,
) -> None:
    if tensor_map % 64:
        raise Refused(
            DriverResult.CUDA_ERROR_INVALID_VALUE,
            f"the tensor map at {tensor_map:#x} is not aligned to 64 bytes",
        )
    if (
        not 1 <= rank <= 5
        or not 0 <= element < len(ELEMENTS)
        or not 0 <= promotion <= 3
        or fill not in (0, 1)
    ):
        raise Refused(
            DriverResult.CUDA_ERROR_INVALID_VALUE,
            f"rank {rank}, element type {element}, promotion {promotion}, fill {fill}",
        )
    described = TensorMap(
        address,
        ELEMENTS[element],
        host.unpack(sizes, f"{rank}Q"),
        host.unpack(strides, f"{rank - 1}Q") if rank > 1 else (),
        host.unpack(box, f"{rank}I"),
        host.unpack(steps, f"{rank}I"),
        swizzle,
        bool(fill),
        interleave,
    )
    try:
        host.write(tensor_map, described.encode())
    except TensorMapError as error:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, error.message) from None
