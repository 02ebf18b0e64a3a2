"""The driver's functions for itself, its devices and contexts."""

from __future__ import annotations

import ctypes
import struct

from kbuild.emulator.driver import host
from kbuild.emulator.driver.codes import DriverResult, Refused
from kbuild.emulator.driver.core import Driver
from kbuild.emulator.driver.devices import Device, DriverContext
from kbuild.emulator.driver.modules import LoadedFunction, LoadedModule
from kbuild.emulator.driver.streams import Stream
from kbuild.emulator.driver.table import Int, Pointer, Size, Unsigned, Word, call, form_of

_LEGACY_STREAM, _PER_THREAD_STREAM = 1, 2
"""CUdriverProcAddress_flags."""
_SYMBOL_NOT_FOUND, _VERSION_NOT_SUFFICIENT = 1, 2
"""CUdriverProcAddressQueryResult."""
_ANY_VERSION = 1 << 30


@call(2000, before_init=True)
def cuInit(driver: Driver, flags: Unsigned) -> None:
    if flags:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, "the flags have to be 0")
    driver.init()


@call(2020, before_init=True)
def cuDriverGetVersion(driver: Driver, version: Pointer) -> None:
    host.put(version, "i", driver.settings.version)


def _put_text(driver: Driver, result: int, text: int, is_name: bool) -> None:
    address = driver.result_text(result, is_name)
    host.put(text, "Q", address or 0)
    if address is None:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE)


@call(6000, before_init=True)
def cuGetErrorName(driver: Driver, result: Int, text: Pointer) -> None:
    _put_text(driver, result, text, True)


@call(6000, before_init=True)
def cuGetErrorString(driver: Driver, result: Int, text: Pointer) -> None:
    _put_text(driver, result, text, False)


def _find_address(driver: Driver, symbol: int, function: int, version: int, flags: int) -> bool:
    """Put the address of the form of a function that programs for a version mean; returns whether there is one."""
    if flags not in (0, _LEGACY_STREAM, _PER_THREAD_STREAM):
        raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, f"flags {flags}")
    name = host.read_text(symbol)
    form = form_of(name, min(version, driver.settings.version), flags == _PER_THREAD_STREAM)
    entry = getattr(driver.library, form.name, None) if form else None
    host.put(function, "Q", ctypes.cast(entry, ctypes.c_void_p).value or 0 if entry else 0)
    return entry is not None


@call(11030, before_init=True)
def cuGetProcAddress(driver: Driver, symbol: Pointer, function: Pointer, version: Int, flags: Word) -> None:
    if not _find_address(driver, symbol, function, version, flags):
        raise Refused(DriverResult.CUDA_ERROR_NOT_FOUND, f"no function {host.read_text(symbol)}")


@call(12000, before_init=True)
def cuGetProcAddress_v2(
    driver: Driver, symbol: Pointer, function: Pointer, version: Int, flags: Word, status: Pointer
) -> None:
    is_found = _find_address(driver, symbol, function, version, flags)
    if status:
        is_known = form_of(host.read_text(symbol), _ANY_VERSION) is not None
        host.put(status, "i", 0 if is_found else _VERSION_NOT_SUFFICIENT if is_known else _SYMBOL_NOT_FOUND)


@call(3000, before_init=True)
def cuGetExportTable(driver: Driver, table: Pointer, uuid: Pointer) -> None:
    """NVRTC asks for one where a driver is loaded, and does without where there is none."""
    host.put(table, "Q", 0)
    raise Refused(DriverResult.CUDA_ERROR_NOT_FOUND, "the driver's own tables are not known")


# Devices


@call(2000)
def cuDeviceGetCount(driver: Driver, count: Pointer) -> None:
    host.put(count, "i", len(driver.devices))


@call(2000)
def cuDeviceGet(driver: Driver, device: Pointer, ordinal: Int) -> None:
    host.put(device, "i", driver.device(ordinal).ordinal)


@call(2000)
def cuDeviceGetName(driver: Driver, name: Pointer, length: Int, device: Int) -> None:
    if length < 1:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, "the buffer has no room for the name")
    host.write(name, driver.device(device).name.encode()[: length - 1] + b"\0")


@call(4010)
def cuDeviceGetPCIBusId(driver: Driver, text: Pointer, length: Int, device: Int) -> None:
    name = driver.device(device).pci_bus_id.encode() + b"\0"
    if length < len(name):
        raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, "the buffer has no room for the name")
    host.write(text, name)


@call(4010)
def cuDeviceGetByPCIBusId(driver: Driver, device: Pointer, text: Pointer) -> None:
    name = host.read_text(text)
    found = next((one.ordinal for one in driver.devices if one.pci_bus_id.lower() == name.lower()), None)
    if found is None:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_DEVICE, f"no device {name}")
    host.put(device, "i", found)


@call(9020, aliases={"cuDeviceGetUuid_v2": 11040})
def cuDeviceGetUuid(driver: Driver, uuid: Pointer, device: Int) -> None:
    host.write(uuid, driver.device(device).uuid)


@call(2000)
def cuDeviceGetAttribute(driver: Driver, value: Pointer, attribute: Int, device: Int) -> None:
    host.put(value, "i", driver.device(device).attribute(attribute))


@call(2000)
def cuDeviceComputeCapability(driver: Driver, major: Pointer, minor: Pointer, device: Int) -> None:
    capability = driver.device(device).capability
    host.put(major, "i", capability // 10)
    host.put(minor, "i", capability % 10)


@call(3020)
def cuDeviceTotalMem_v2(driver: Driver, size: Pointer, device: Int) -> None:
    host.put(size, "Q", driver.device(device).heap.total)


@call(4000)
def cuDeviceCanAccessPeer(driver: Driver, answer: Pointer, device: Int, peer: Int) -> None:
    driver.device(device)
    driver.device(peer)
    host.put(answer, "i", 0)


# Contexts


def _make_context(driver: Driver, device: Device, is_primary: bool) -> DriverContext:
    context = DriverContext(device, is_primary)
    context.handle = driver.keep(context)
    return context


def _end(driver: Driver, context: DriverContext) -> None:
    """Do the pending work, and remove what belongs to a context."""
    context.finish()
    context.is_alive = False
    modules = {handle: module for handle, module in driver.handles(LoadedModule) if module.context is context}
    functions = [
        handle for handle, function in driver.handles(LoadedFunction) if function.module.context is context
    ]
    for module in modules.values():
        module.unload()
    for handle in (*modules, *functions, *(handle for handle in context.streams if handle > 0)):
        driver.drop(handle)
    for address in context.memory:
        context.device.heap.free(address)
    context.streams.clear()
    context.memory.clear()
    context.default = Stream(None, 0)


def _destroy(driver: Driver, context: DriverContext) -> None:
    _end(driver, context)
    driver.drop(context.handle)


@call(7000)
def cuDevicePrimaryCtxRetain(driver: Driver, context: Pointer, device: Int) -> None:
    of = driver.device(device)
    if of.primary is None:
        of.primary = _make_context(driver, of, True)
    of.primary.is_alive = True
    of.primary.flags = of.primary_flags
    of.retained += 1
    host.put(context, "Q", of.primary.handle)


@call(11000, aliases={"cuDevicePrimaryCtxRelease": 7000})
def cuDevicePrimaryCtxRelease_v2(driver: Driver, device: Int) -> None:
    of = driver.device(device)
    if of.primary is None or not of.retained:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_CONTEXT, "the primary context is not retained")
    of.retained -= 1
    if not of.retained:
        _reset(driver, of)


@call(11000, aliases={"cuDevicePrimaryCtxReset": 7000})
def cuDevicePrimaryCtxReset_v2(driver: Driver, device: Int) -> None:
    _reset(driver, driver.device(device))


def _reset(driver: Driver, device: Device) -> None:
    """End the primary context with all that belongs to it; its handle stays, and retaining it restarts it."""
    if device.primary is not None:
        _end(driver, device.primary)


@call(11000, aliases={"cuDevicePrimaryCtxSetFlags": 7000})
def cuDevicePrimaryCtxSetFlags_v2(driver: Driver, device: Int, flags: Unsigned) -> None:
    driver.device(device).primary_flags = flags


@call(7000)
def cuDevicePrimaryCtxGetState(driver: Driver, device: Int, flags: Pointer, active: Pointer) -> None:
    host.put(flags, "I", driver.device(device).primary_flags)
    primary = driver.device(device).primary
    host.put(active, "i", int(primary is not None and primary.is_alive))


@call(3020)
def cuCtxCreate_v2(driver: Driver, context: Pointer, flags: Unsigned, device: Int) -> None:
    made = _make_context(driver, driver.device(device), False)
    made.flags = flags
    driver.stack.append(made)
    host.put(context, "Q", made.handle)


@call(11040)
def cuCtxCreate_v3(
    driver: Driver, context: Pointer, affinities: Pointer, count: Int, flags: Unsigned, device: Int
) -> None:
    if count:
        raise Refused(
            DriverResult.CUDA_ERROR_NOT_SUPPORTED, "the emulator's multiprocessors are not shared out"
        )
    cuCtxCreate_v2(driver, context, flags, device)


@call(12050)
def cuCtxCreate_v4(
    driver: Driver, context: Pointer, parameters: Pointer, flags: Unsigned, device: Int
) -> None:
    if parameters:
        raise Refused(
            DriverResult.CUDA_ERROR_NOT_SUPPORTED, "contexts have no parameters besides their flags"
        )
    cuCtxCreate_v2(driver, context, flags, device)


@call(4000)
def cuCtxDestroy_v2(driver: Driver, context: Pointer) -> None:
    destroyed = driver.find(DriverContext, context)
    if destroyed.is_primary:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_CONTEXT, "a primary context is released, not destroyed")
    _destroy(driver, destroyed)
    if driver.stack and driver.stack[-1] is destroyed:
        driver.stack.pop()


@call(4000)
def cuCtxGetCurrent(driver: Driver, context: Pointer) -> None:
    host.put(context, "Q", driver.stack[-1].handle if driver.stack else 0)


@call(4000)
def cuCtxSetCurrent(driver: Driver, context: Pointer) -> None:
    found = [driver.find(DriverContext, context)] if context else []
    driver.stack[-1:] = found


@call(4000)
def cuCtxPushCurrent_v2(driver: Driver, context: Pointer) -> None:
    driver.stack.append(driver.find(DriverContext, context))


@call(4000)
def cuCtxPopCurrent_v2(driver: Driver, context: Pointer) -> None:
    if not driver.stack:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_CONTEXT, "no context is current")
    popped = driver.stack.pop()
    if context:
        host.put(context, "Q", popped.handle)


def _context(driver: Driver, handle: int) -> DriverContext:
    """A context by its handle; 0 means the current one."""
    return driver.find(DriverContext, handle) if handle else driver.context


@call(2000)
def cuCtxGetDevice(driver: Driver, device: Pointer) -> None:
    cuCtxGetDevice_v2(driver, device, 0)


@call(13000)
def cuCtxGetDevice_v2(driver: Driver, device: Pointer, context: Pointer) -> None:
    host.put(device, "i", _context(driver, context).device.ordinal)


@call(12000)
def cuCtxGetId(driver: Driver, context: Pointer, number: Pointer) -> None:
    host.put(number, "Q", _context(driver, context).handle)


@call(7000)
def cuCtxGetFlags(driver: Driver, flags: Pointer) -> None:
    host.put(flags, "I", driver.context.flags)


@call(12010)
def cuCtxSetFlags(driver: Driver, flags: Unsigned) -> None:
    driver.context.flags = flags


@call(3010)
def cuCtxGetLimit(driver: Driver, value: Pointer, limit: Int) -> None:
    host.put(value, "Q", driver.context.limits.get(limit, 0))


@call(3010)
def cuCtxSetLimit(driver: Driver, limit: Int, value: Size) -> None:
    """Programs can read back what they have set; the emulator has no such limits."""
    driver.context.limits[limit] = value


@call(3020)
def cuCtxGetApiVersion(driver: Driver, context: Pointer, version: Pointer) -> None:
    driver.find(DriverContext, context)
    host.put(version, "I", 3020)


@call(5050)
def cuCtxGetStreamPriorityRange(driver: Driver, least: Pointer, greatest: Pointer) -> None:
    for address in filter(None, (least, greatest)):
        host.write(address, struct.pack("i", 0))


@call(2000)
def cuCtxSynchronize(driver: Driver) -> None:
    cuCtxSynchronize_v2(driver, 0)


@call(13000)
def cuCtxSynchronize_v2(driver: Driver, context: Pointer) -> None:
    waited = _context(driver, context)
    for stream in waited.streams.values():
        stream.require_uncaptured()
    waited.finish()
