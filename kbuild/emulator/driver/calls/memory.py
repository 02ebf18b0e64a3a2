"""The driver's functions that copy and fill memory, and tell of addresses, and the encoding of tensor maps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from kbuild.emulator.async_ops.tensor_map import BYTES, ELEMENTS, TensorMap, TensorMapError
from kbuild.emulator.driver import host
from kbuild.emulator.driver.codes import DriverResult, PointerAttribute, Refused
from kbuild.emulator.driver.core import Driver
from kbuild.emulator.driver.table import Byte, Int, Pointer, Short, Size, Unsigned, Word, call

_HOST, _DEVICE = 1, 2
"""CUmemorytype."""
_MAP_ALIGNMENT = 16
"""Of a tensor map's place: the manual wants 64 bytes, but the driver of an H200 takes 16, and the maps of cuda.core lie where
malloc puts them."""


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


@call(3020, ptds=7000)
def cuMemcpyHtoD_v2(driver: Driver, target: Word, source: Pointer, size: Size) -> None:
    driver.do(_to_device(driver, target, host.read(source, size)))


@call(3020, ptds=7000)
def cuMemcpyDtoH_v2(driver: Driver, target: Pointer, source: Word, size: Size) -> None:
    driver.do(_from_device(driver, target, source, size))


@call(3020, ptds=7000)
def cuMemcpyDtoD_v2(driver: Driver, target: Word, source: Word, size: Size) -> None:
    driver.do(_within_device(driver, target, source, size))


@call(3020, ptsz=7000)
def cuMemcpyHtoDAsync_v2(driver: Driver, target: Word, source: Pointer, size: Size, stream: Pointer) -> None:
    driver.submit(driver.stream(stream), _to_device(driver, target, host.read(source, size)))


@call(3020, ptsz=7000)
def cuMemcpyDtoHAsync_v2(driver: Driver, target: Pointer, source: Word, size: Size, stream: Pointer) -> None:
    driver.submit(driver.stream(stream), _from_device(driver, target, source, size))


@call(3020, ptsz=7000)
def cuMemcpyDtoDAsync_v2(driver: Driver, target: Word, source: Word, size: Size, stream: Pointer) -> None:
    driver.submit(driver.stream(stream), _within_device(driver, target, source, size))


@call(3020, ptds=7000)
def cuMemsetD8_v2(driver: Driver, target: Word, value: Byte, count: Size) -> None:
    driver.do(_fill(driver, target, value.to_bytes(1, "little"), count))


@call(3020, ptds=7000)
def cuMemsetD16_v2(driver: Driver, target: Word, value: Short, count: Size) -> None:
    driver.do(_fill(driver, target, value.to_bytes(2, "little"), count))


@call(3020, ptds=7000)
def cuMemsetD32_v2(driver: Driver, target: Word, value: Unsigned, count: Size) -> None:
    driver.do(_fill(driver, target, value.to_bytes(4, "little"), count))


@call(3020, ptsz=7000)
def cuMemsetD8Async(driver: Driver, target: Word, value: Byte, count: Size, stream: Pointer) -> None:
    driver.submit(driver.stream(stream), _fill(driver, target, value.to_bytes(1, "little"), count))


@call(3020, ptsz=7000)
def cuMemsetD16Async(driver: Driver, target: Word, value: Short, count: Size, stream: Pointer) -> None:
    driver.submit(driver.stream(stream), _fill(driver, target, value.to_bytes(2, "little"), count))


@call(3020, ptsz=7000)
def cuMemsetD32Async(driver: Driver, target: Word, value: Unsigned, count: Size, stream: Pointer) -> None:
    driver.submit(driver.stream(stream), _fill(driver, target, value.to_bytes(4, "little"), count))


def _copied(driver: Driver, target: int, source: int, size: int) -> Callable[[], None]:
    """A copy between any two addresses, of the process or of devices."""
    if driver.is_on_device(target):
        if driver.is_on_device(source):
            return _within_device(driver, target, source, size)
        return _to_device(driver, target, host.read(source, size))
    if driver.is_on_device(source):
        return _from_device(driver, target, source, size)
    data = host.read(source, size)
    return lambda: host.write(target, data)


@call(4000, ptds=7000)
def cuMemcpy(driver: Driver, target: Word, source: Word, size: Size) -> None:
    driver.do(_copied(driver, target, source, size))


@call(4000, ptsz=7000)
def cuMemcpyAsync(driver: Driver, target: Word, source: Word, size: Size, stream: Pointer) -> None:
    driver.submit(driver.stream(stream), _copied(driver, target, source, size))


@call(13020, ptsz=13020)
def cuMemcpyWithAttributesAsync(
    driver: Driver, target: Word, source: Word, size: Size, attributes: Pointer, stream: Pointer
) -> None:
    cuMemcpyAsync(driver, target, source, size, stream)


@call(4000, ptds=7000)
def cuMemcpyPeer(driver: Driver, target: Word, to: Pointer, source: Word, from_: Pointer, size: Size) -> None:
    cuMemcpy(driver, target, source, size)


@call(4000, ptsz=7000)
def cuMemcpyPeerAsync(
    driver: Driver, target: Word, to: Pointer, source: Word, from_: Pointer, size: Size, stream: Pointer
) -> None:
    cuMemcpyAsync(driver, target, source, size, stream)


# Addresses


_FORMATS = {
    PointerAttribute.CONTEXT: "Q",
    PointerAttribute.MEMORY_TYPE: "I",
    PointerAttribute.DEVICE_POINTER: "Q",
    PointerAttribute.HOST_POINTER: "Q",
    PointerAttribute.IS_MANAGED: "B",
    PointerAttribute.DEVICE_ORDINAL: "i",
    PointerAttribute.RANGE_START_ADDR: "Q",
    PointerAttribute.RANGE_SIZE: "Q",
    PointerAttribute.MAPPED: "B",
    PointerAttribute.MEMPOOL_HANDLE: "Q",
}


def _attributes_of(driver: Driver, address: int) -> dict[PointerAttribute, int]:
    """What the driver knows of an address, but for what is 0.  Raises Refused where it has not given it out."""
    named = PointerAttribute
    pool = next((pool for pool in driver.pools() if address in pool.memory), None)
    known = {named.MAPPED: 1, named.MEMPOOL_HANDLE: driver.handle_of(pool) if pool else 0}
    for start, page in driver.host_memory.items():
        if start <= address < start + page.size:
            place = {named.MEMORY_TYPE: _HOST, named.HOST_POINTER: address}
            return known | place | {named.RANGE_START_ADDR: start, named.RANGE_SIZE: page.size}
    device = driver.locate(address)
    start, size = device.heap.allocation(address) or (0, 0)
    return known | {
        named.CONTEXT: device.primary.handle if device.primary else 0,
        named.MEMORY_TYPE: _DEVICE,
        named.DEVICE_POINTER: address,
        named.DEVICE_ORDINAL: device.ordinal,
        named.RANGE_START_ADDR: start,
        named.RANGE_SIZE: size,
    }


def _format(attribute: int) -> tuple[PointerAttribute, str]:
    if attribute not in PointerAttribute.__members__.values():
        raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, f"pointers have no attribute {attribute}")
    return PointerAttribute(attribute), _FORMATS[PointerAttribute(attribute)]


@call(4000)
def cuPointerGetAttribute(driver: Driver, value: Pointer, attribute: Int, address: Word) -> None:
    known, (named, format) = _attributes_of(driver, address), _format(attribute)
    host.put(value, format, known.get(named, 0))


@call(7000)
def cuPointerGetAttributes(
    driver: Driver, count: Unsigned, attributes: Pointer, values: Pointer, address: Word
) -> None:
    """All are 0 for an address that the driver does not know."""
    try:
        known = _attributes_of(driver, address)
    except Refused:
        known = {}
    for number, value in zip(host.unpack(attributes, f"{count}i"), host.unpack(values, f"{count}Q")):
        named, format = _format(number)
        host.put(value, format, known.get(named, 0))


@call(3020)
def cuMemGetAddressRange_v2(driver: Driver, base: Pointer, size: Pointer, address: Word) -> None:
    start, length = driver.locate(address).heap.allocation(address) or (0, 0)
    for target, answer in ((base, start), (size, length)):
        if target:
            host.put(target, "Q", answer)


@call(12000)
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
    if tensor_map % _MAP_ALIGNMENT:
        raise Refused(
            DriverResult.CUDA_ERROR_INVALID_VALUE,
            f"the tensor map at {tensor_map:#x} is not aligned to {_MAP_ALIGNMENT} bytes",
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


@call(12000)
def cuTensorMapReplaceAddress(driver: Driver, tensor_map: Pointer, address: Pointer) -> None:
    try:
        replaced = replace(TensorMap.decode(host.read(tensor_map, BYTES)), address=address)
        host.write(tensor_map, replaced.encode())
    except TensorMapError as error:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, error.message) from None
