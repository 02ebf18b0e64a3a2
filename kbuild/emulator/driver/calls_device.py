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
from kbuild.emulator.driver.table import FUNCTIONS, Int, Pointer, Unsigned, Word, call, exported


@call(before_init=True)
def cuInit(driver: Driver, flags: Unsigned) -> None:
    if flags:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, "the flags have to be 0")
    driver.init()


@call(before_init=True)
def cuDriverGetVersion(driver: Driver, version: Pointer) -> None:
    host.put(version, "i", driver.settings.version)


def _put_text(driver: Driver, result: int, text: int, is_name: bool) -> None:
    address = driver.text(result, is_name)
    host.put(text, "Q", address or 0)
    if address is None:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE)


@call(since=6000, before_init=True)
def cuGetErrorName(driver: Driver, result: Int, text: Pointer) -> None:
    _put_text(driver, result, text, True)


@call(since=6000, before_init=True)
def cuGetErrorString(driver: Driver, result: Int, text: Pointer) -> None:
    _put_text(driver, result, text, False)


def _find_address(driver: Driver, symbol: int, function: int, version: int) -> bool:
    """Put the address of the newest form of a function that a version has; returns whether it has one."""
    name = host.read_text(symbol)
    known = {one.name: one for one in exported(min(version, driver.settings.version))}
    forms = [
        form for form in (f"{name}_v3", f"{name}_v2", name) if form in known and hasattr(driver.library, form)
    ]
    host.put(
        function,
        "Q",
        ctypes.cast(getattr(driver.library, forms[0]), ctypes.c_void_p).value or 0 if forms else 0,
    )
    return bool(forms)


@call(since=11030, before_init=True)
def cuGetProcAddress(driver: Driver, symbol: Pointer, function: Pointer, version: Int, flags: Word) -> None:
    if not _find_address(driver, symbol, function, version):
        raise Refused(DriverResult.CUDA_ERROR_NOT_FOUND, f"no function {host.read_text(symbol)}")


@call(since=12000, before_init=True)
def cuGetProcAddress_v2(
    driver: Driver, symbol: Pointer, function: Pointer, version: Int, flags: Word, status: Pointer
) -> None:
    is_found = _find_address(driver, symbol, function, version)
    if status:
        host.put(status, "i", 0 if is_found else 2 if host.read_text(symbol) in FUNCTIONS else 1)


# Devices


@call()
def cuDeviceGetCount(driver: Driver, count: Pointer) -> None:
    host.put(count, "i", len(driver.devices))


@call()
def cuDeviceGet(driver: Driver, device: Pointer, ordinal: Int) -> None:
    host.put(device, "i", driver.device(ordinal).ordinal)


@call()
def cuDeviceGetName(driver: Driver, name: Pointer, length: Int, device: Int) -> None:
    if length < 1:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, "the buffer has no room for the name")
    host.write(name, driver.device(device).name.encode()[: length - 1] + b"\0")


@call(since=9020, aliases=["cuDeviceGetUuid_v2"])
def cuDeviceGetUuid(driver: Driver, uuid: Pointer, device: Int) -> None:
    host.write(uuid, driver.device(device).uuid)


@call()
def cuDeviceGetAttribute(driver: Driver, value: Pointer, attribute: Int, device: Int) -> None:
    host.put(value, "i", driver.device(device).attribute(attribute))


@call()
def cuDeviceComputeCapability(driver: Driver, major: Pointer, minor: Pointer, device: Int) -> None:
    capability = driver.device(device).capability
    host.put(major, "i", capability // 10)
    host.put(minor, "i", capability % 10)


@call()
def cuDeviceTotalMem_v2(driver: Driver, size: Pointer, device: Int) -> None:
    host.put(size, "Q", driver.device(device).heap.total)


@call()
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


@call(since=7000)
def cuDevicePrimaryCtxRetain(driver: Driver, context: Pointer, device: Int) -> None:
    of = driver.device(device)
    if of.primary is None:
        of.primary = _make_context(driver, of, True)
    of.primary.is_alive = True
    of.retained += 1
    host.put(context, "Q", of.primary.handle)


@call(since=11000, aliases=["cuDevicePrimaryCtxRelease"])
def cuDevicePrimaryCtxRelease_v2(driver: Driver, device: Int) -> None:
    of = driver.device(device)
    if of.primary is None or not of.retained:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_CONTEXT, "the primary context is not retained")
    of.retained -= 1
    if not of.retained:
        _reset(driver, of)


@call(since=11000, aliases=["cuDevicePrimaryCtxReset"])
def cuDevicePrimaryCtxReset_v2(driver: Driver, device: Int) -> None:
    _reset(driver, driver.device(device))


def _reset(driver: Driver, device: Device) -> None:
    """End the primary context with all that belongs to it; its handle stays, and retaining it restarts it."""
    if device.primary is not None:
        _end(driver, device.primary)


@call(since=7000)
def cuDevicePrimaryCtxGetState(driver: Driver, device: Int, flags: Pointer, active: Pointer) -> None:
    host.put(flags, "I", 0)
    primary = driver.device(device).primary
    host.put(active, "i", int(primary is not None and primary.is_alive))


@call()
def cuCtxCreate_v2(driver: Driver, context: Pointer, flags: Unsigned, device: Int) -> None:
    made = _make_context(driver, driver.device(device), False)
    driver.stack.append(made)
    host.put(context, "Q", made.handle)


@call()
def cuCtxDestroy_v2(driver: Driver, context: Pointer) -> None:
    destroyed = driver.find(DriverContext, context)
    if destroyed.is_primary:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_CONTEXT, "a primary context is released, not destroyed")
    _destroy(driver, destroyed)
    if driver.stack and driver.stack[-1] is destroyed:
        driver.stack.pop()


@call()
def cuCtxGetCurrent(driver: Driver, context: Pointer) -> None:
    host.put(context, "Q", driver.stack[-1].handle if driver.stack else 0)


@call()
def cuCtxSetCurrent(driver: Driver, context: Pointer) -> None:
    found = [driver.find(DriverContext, context)] if context else []
    driver.stack[-1:] = found


@call()
def cuCtxPushCurrent_v2(driver: Driver, context: Pointer) -> None:
    driver.stack.append(driver.find(DriverContext, context))


@call()
def cuCtxPopCurrent_v2(driver: Driver, context: Pointer) -> None:
    if not driver.stack:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_CONTEXT, "no context is current")
    popped = driver.stack.pop()
    if context:
        host.put(context, "Q", popped.handle)


@call()
def cuCtxGetDevice(driver: Driver, device: Pointer) -> None:
    host.put(device, "i", driver.context.device.ordinal)


@call()
def cuCtxGetApiVersion(driver: Driver, context: Pointer, version: Pointer) -> None:
    driver.find(DriverContext, context)
    host.put(version, "I", 3020)


@call()
def cuCtxGetStreamPriorityRange(driver: Driver, least: Pointer, greatest: Pointer) -> None:
    for address in filter(None, (least, greatest)):
        host.write(address, struct.pack("i", 0))


@call()
def cuCtxSynchronize(driver: Driver) -> None:
    for stream in driver.context.streams.values():
        stream.require_uncaptured()
    driver.context.finish()
