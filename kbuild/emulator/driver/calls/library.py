"""The driver's functions for libraries, which are loaded in each context when it needs them, and their kernels."""

from __future__ import annotations

from collections.abc import Callable

from kbuild.emulator.driver import host, modules
from kbuild.emulator.driver.calls.module import (
    cuFuncGetName,
    cuFuncGetParamCount,
    cuFuncGetParamInfo,
    load_module,
    options_at,
    read_image,
    refuse_fixed,
    unload_module,
)
from kbuild.emulator.driver.codes import FunctionAttribute
from kbuild.emulator.driver.core import Driver
from kbuild.emulator.driver.modules import LoadedFunction, LoadedKernel, LoadedLibrary, LoadedModule
from kbuild.emulator.driver.table import Int, Pointer, Size, Unsigned, call


def module_of(driver: Driver, library: LoadedLibrary) -> int:
    """The handle of a library's module in the current context, where it is loaded now unless it was before.

    Raises Refused where the device does not run it.
    """
    context = driver.context
    handle = library.modules.get(context, 0)
    if driver.find_any(LoadedModule, handle) is None:  # The context may have been reset since.
        handle = library.modules[context] = load_module(driver, context, library.image)
    return handle


def function_of(driver: Driver, handle: int) -> LoadedFunction:
    """A function; for a kernel of a library, what it is in the current context."""
    kernel = driver.find_any(LoadedKernel, handle)
    if kernel is None:
        return driver.find(LoadedFunction, handle)
    module = driver.find(LoadedModule, module_of(driver, kernel.library))
    function = module.function(kernel.code.name)
    function.kernel = kernel
    return function


def _load(driver: Driver, library: int, read: Callable[[], bytes], options: dict[int, int]) -> None:
    host.put(library, "Q", driver.keep(LoadedLibrary(read_image(driver, read, options))))


@call(12000)
def cuLibraryLoadData(
    driver: Driver,
    library: Pointer,
    image: Pointer,
    options: Pointer,
    values: Pointer,
    count: Unsigned,
    library_options: Pointer,
    library_values: Pointer,
    library_count: Unsigned,
) -> None:
    _load(driver, library, lambda: modules.image_at(image), options_at(count, options, values))


@call(12000)
def cuLibraryLoadFromFile(
    driver: Driver,
    library: Pointer,
    path: Pointer,
    options: Pointer,
    values: Pointer,
    count: Unsigned,
    library_options: Pointer,
    library_values: Pointer,
    library_count: Unsigned,
) -> None:
    _load(driver, library, lambda: modules.image_in(host.read_file(path)), options_at(count, options, values))


@call(12000, unsafe_in_capture=True)
def cuLibraryUnload(driver: Driver, library: Pointer) -> None:
    unloaded = driver.find(LoadedLibrary, library)
    for module in unloaded.modules.values():
        if driver.find_any(LoadedModule, module):
            unload_module(driver, module)
    for handle, kernel in driver.handles(LoadedKernel):
        if kernel.library is unloaded:
            driver.drop(handle)
    driver.drop(library)


@call(12000)
def cuLibraryGetKernel(driver: Driver, kernel: Pointer, library: Pointer, name: Pointer) -> None:
    found = driver.find(LoadedLibrary, library).kernel(host.read_text(name))
    host.put(kernel, "Q", driver.handle_of(found))


@call(12040)
def cuLibraryGetKernelCount(driver: Driver, count: Pointer, library: Pointer) -> None:
    host.put(count, "I", len(driver.find(LoadedLibrary, library).image.kernels))


@call(12040)
def cuLibraryEnumerateKernels(driver: Driver, kernels: Pointer, room: Unsigned, library: Pointer) -> None:
    found = driver.find(LoadedLibrary, library)
    handles = [driver.handle_of(found.kernel(name)) for name in found.image.kernels[:room]]
    host.write(kernels, b"".join(handle.to_bytes(8, "little") for handle in handles))


@call(12000)
def cuLibraryGetModule(driver: Driver, module: Pointer, library: Pointer) -> None:
    host.put(module, "Q", module_of(driver, driver.find(LoadedLibrary, library)))


@call(12000)
def cuLibraryGetGlobal(
    driver: Driver, address: Pointer, size: Pointer, library: Pointer, name: Pointer
) -> None:
    module = driver.find(LoadedModule, module_of(driver, driver.find(LoadedLibrary, library)))
    for target, answer in zip((address, size), module.variable(host.read_text(name))):
        if target:
            host.put(target, "Q", answer)


@call(12000)
def cuKernelGetFunction(driver: Driver, function: Pointer, kernel: Pointer) -> None:
    driver.find(LoadedKernel, kernel)
    host.put(function, "Q", driver.handle_of(function_of(driver, kernel)))


@call(12050)
def cuKernelGetLibrary(driver: Driver, library: Pointer, kernel: Pointer) -> None:
    host.put(library, "Q", driver.handle_of(driver.find(LoadedKernel, kernel).library))


@call(12000)
def cuKernelGetAttribute(
    driver: Driver, value: Pointer, attribute: Int, kernel: Pointer, device: Int
) -> None:
    found, on = driver.find(LoadedKernel, kernel), driver.device(device)
    dynamic_shared = found.opted_in.get(on.ordinal, found.code.default_dynamic_shared)
    host.put(value, "i", found.code.attribute(attribute, on, dynamic_shared))


@call(12000)
def cuKernelSetAttribute(driver: Driver, attribute: Int, value: Int, kernel: Pointer, device: Int) -> None:
    found, on = driver.find(LoadedKernel, kernel), driver.device(device)
    if attribute == FunctionAttribute.MAX_DYNAMIC_SHARED_SIZE_BYTES:
        found.code.check_dynamic_shared(on, value)
        found.opted_in[on.ordinal] = value
    else:
        refuse_fixed(attribute)


@call(12000)
def cuKernelSetCacheConfig(driver: Driver, kernel: Pointer, config: Int, device: Int) -> None:
    driver.find(LoadedKernel, kernel)


@call(12030)
def cuKernelGetName(driver: Driver, name: Pointer, kernel: Pointer) -> None:
    cuFuncGetName(driver, name, kernel)


@call(12040)
def cuKernelGetParamInfo(
    driver: Driver, kernel: Pointer, index: Size, offset: Pointer, size: Pointer
) -> None:
    cuFuncGetParamInfo(driver, kernel, index, offset, size)


@call(13020)
def cuKernelGetParamCount(driver: Driver, kernel: Pointer, count: Pointer) -> None:
    cuFuncGetParamCount(driver, kernel, count)
