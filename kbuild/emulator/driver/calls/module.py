"""The driver's functions for modules and their kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from kbuild.emulator.driver import host, modules
from kbuild.emulator.driver.codes import DriverResult, FunctionAttribute, JitOption, Refused
from kbuild.emulator.driver.core import Driver
from kbuild.emulator.driver.devices import DriverContext
from kbuild.emulator.driver.modules import Image, KernelCode, LoadedFunction, LoadedKernel, LoadedModule
from kbuild.emulator.driver.table import Int, Pointer, Size, Unsigned, call

_LOADS_IN_CAPTURE = 13000
"""The first driver that is known to load modules while a stream is captured."""
_LAZY_LOADING = 2
"""CU_MODULE_LAZY_LOADING."""
_FUNCTION_LOADED = 1
"""CU_FUNCTION_LOADING_STATE_LOADED."""


def read_image(driver: Driver, read: Callable[[], bytes], options: Mapping[int, int]) -> Image:
    """An image for this driver.  Raises Refused where it takes none such, and explains it in the log that the
    options ask for."""
    with _explained(options):
        return modules.read_image(read(), driver.table, driver.settings.version)


def options_at(count: int, options: int, values: int) -> dict[int, int]:
    """The options of a call that loads an image, with their values."""
    return dict(zip(host.unpack(options, f"{count}i"), host.unpack(values, f"{count}Q"))) if count else {}


@contextmanager
def _explained(options: Mapping[int, int]) -> Iterator[None]:
    try:
        yield
    except Refused as refused:
        room = options.get(JitOption.ERROR_LOG_BUFFER_SIZE_BYTES, 0)
        if (buffer := options.get(JitOption.ERROR_LOG_BUFFER, 0)) and room:
            host.write(buffer, refused.why.encode()[: room - 1] + b"\0")
        raise


def load_module(driver: Driver, context: DriverContext, image: Image) -> int:
    """The handle of an image that is loaded in a context.  Raises Refused where the device does not run it."""
    if driver.settings.version < _LOADS_IN_CAPTURE:
        driver.refuse_in_capture("cuModuleLoadDataEx")
    loaded = modules.load(context, image)
    driver.loads[context.device.ordinal] += 1
    return driver.keep(loaded)


def _load(driver: Driver, module: int, read: Callable[[], bytes], options: Mapping[int, int]) -> None:
    with _explained(options):
        loaded = load_module(driver, driver.context, read_image(driver, read, {}))
    host.put(module, "Q", loaded)


@call(2010)
def cuModuleLoadDataEx(
    driver: Driver, module: Pointer, image: Pointer, count: Unsigned, options: Pointer, values: Pointer
) -> None:
    _load(driver, module, lambda: modules.image_at(image), options_at(count, options, values))


@call(2000)
def cuModuleLoadData(driver: Driver, module: Pointer, image: Pointer) -> None:
    _load(driver, module, lambda: modules.image_at(image), {})


@call(2000)
def cuModuleLoad(driver: Driver, module: Pointer, path: Pointer) -> None:
    _load(driver, module, lambda: modules.image_in(host.read_file(path)), {})


@call(2000, unsafe_in_capture=True)
def cuModuleUnload(driver: Driver, module: Pointer) -> None:
    unload_module(driver, module)


def unload_module(driver: Driver, module: int) -> None:
    """Unload a module when the work of its context is done."""
    unloaded = driver.find(LoadedModule, module)
    unloaded.context.finish()
    unloaded.unload()
    driver.drop(module)


@call(11070)
def cuModuleGetLoadingMode(driver: Driver, mode: Pointer) -> None:
    host.put(mode, "i", _LAZY_LOADING)


@call(2000)
def cuModuleGetFunction(driver: Driver, function: Pointer, module: Pointer, name: Pointer) -> None:
    found = driver.find(LoadedModule, module).function(host.read_text(name))
    host.put(function, "Q", driver.handle_of(found))


@call(12040)
def cuModuleGetFunctionCount(driver: Driver, count: Pointer, module: Pointer) -> None:
    host.put(count, "I", len(driver.find(LoadedModule, module).image.kernels))


@call(12040)
def cuModuleEnumerateFunctions(driver: Driver, functions: Pointer, room: Unsigned, module: Pointer) -> None:
    found = driver.find(LoadedModule, module)
    handles = [driver.handle_of(found.function(name)) for name in found.image.kernels[:room]]
    host.write(functions, b"".join(handle.to_bytes(8, "little") for handle in handles))


@call(3020)
def cuModuleGetGlobal_v2(
    driver: Driver, address: Pointer, size: Pointer, module: Pointer, name: Pointer
) -> None:
    answers = driver.find(LoadedModule, module).variable(host.read_text(name))
    for target, answer in zip((address, size), answers):
        if target:
            host.put(target, "Q", answer)


# Kernels


def find_code(driver: Driver, handle: int) -> KernelCode:
    """The code of a function, or of a library's kernel.  Raises Refused where the handle is neither."""
    kernel = driver.find_any(LoadedKernel, handle)
    return kernel.code if kernel else driver.find(LoadedFunction, handle).code


@call(2020)
def cuFuncGetAttribute(driver: Driver, value: Pointer, attribute: Int, function: Pointer) -> None:
    found = driver.find(LoadedFunction, function)
    device = found.module.context.device
    host.put(value, "i", found.code.attribute(attribute, device, found.dynamic_shared))


@call(9000)
def cuFuncSetAttribute(driver: Driver, function: Pointer, attribute: Int, value: Int) -> None:
    found = driver.find(LoadedFunction, function)
    if attribute == FunctionAttribute.MAX_DYNAMIC_SHARED_SIZE_BYTES:
        found.code.check_dynamic_shared(found.module.context.device, value)
        found.opted_in = value
    else:
        refuse_fixed(attribute)


_SETTABLE = (
    FunctionAttribute.MAX_DYNAMIC_SHARED_SIZE_BYTES,
    FunctionAttribute.PREFERRED_SHARED_MEMORY_CARVEOUT,
    FunctionAttribute.NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
    FunctionAttribute.CLUSTER_SCHEDULING_POLICY_PREFERENCE,
)


def refuse_fixed(attribute: int) -> None:
    """Raise Refused for an attribute of kernels that programs cannot set."""
    if attribute not in _SETTABLE:
        raise Refused(
            DriverResult.CUDA_ERROR_INVALID_VALUE, f"attribute {attribute} of functions cannot be set"
        )


@call(3000)
def cuFuncSetCacheConfig(driver: Driver, function: Pointer, config: Int) -> None:
    driver.find(LoadedFunction, function)


@call(11000)
def cuFuncGetModule(driver: Driver, module: Pointer, function: Pointer) -> None:
    host.put(module, "Q", driver.handle_of(driver.find(LoadedFunction, function).module))


@call(12030)
def cuFuncGetName(driver: Driver, name: Pointer, function: Pointer) -> None:
    host.put(name, "Q", driver.text(find_code(driver, function).name))


@call(12040)
def cuFuncGetParamInfo(
    driver: Driver, function: Pointer, index: Size, offset: Pointer, size: Pointer
) -> None:
    parameters = find_code(driver, function).parameters
    if index >= len(parameters):
        raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, f"the kernel has {len(parameters)} parameters")
    host.put(offset, "Q", parameters[index][0])
    if size:
        host.put(size, "Q", parameters[index][1])


@call(13020)
def cuFuncGetParamCount(driver: Driver, function: Pointer, count: Pointer) -> None:
    host.put(count, "Q", len(find_code(driver, function).parameters))


@call(12040)
def cuFuncIsLoaded(driver: Driver, state: Pointer, function: Pointer) -> None:
    driver.find(LoadedFunction, function)
    host.put(state, "i", _FUNCTION_LOADED)


@call(12040)
def cuFuncLoad(driver: Driver, function: Pointer) -> None:
    driver.find(LoadedFunction, function)
