"""The driver's functions for modules, kernels and their launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kbuild.emulator.async_ops.timing import timing_named
from kbuild.emulator.driver import host, modules
from kbuild.emulator.driver.codes import FINDINGS, DriverResult, FunctionAttribute, JitOption, Refused
from kbuild.emulator.driver.core import Driver, LaunchCall
from kbuild.emulator.driver.modules import LoadedFunction, LoadedModule
from kbuild.emulator.driver.streams import LaunchWork
from kbuild.emulator.driver.table import Int, Pointer, Size, Unsigned, call
from kbuild.emulator.engine.launch import Launch, checkers_named, size_of
from kbuild.emulator.engine.schedule import schedule_named

_CLUSTER_DIMENSION = 4
"""CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION."""
_STREAM_SERIALIZATION = 6
"""CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION."""
_ATTRIBUTE_BYTES = 72
_BUFFER_POINTER, _BUFFER_SIZE = 1, 2
"""CU_LAUNCH_PARAM_BUFFER_POINTER and CU_LAUNCH_PARAM_BUFFER_SIZE."""


_LOADS_IN_CAPTURE = 13000
"""The first driver that is known to load modules while a stream is captured."""


@call()
def cuModuleLoadDataEx(
    driver: Driver, module: Pointer, image: Pointer, count: Unsigned, options: Pointer, values: Pointer
) -> None:
    if driver.settings.version < _LOADS_IN_CAPTURE:
        driver.refuse_in_capture("cuModuleLoadDataEx")
    given = dict(zip(host.unpack(options, f"{count}i"), host.unpack(values, f"{count}Q"))) if count else {}
    try:
        loaded = modules.load(driver.context, modules.image_at(image), driver.table, driver.settings.version)
    except Refused as refused:
        room = given.get(JitOption.ERROR_LOG_BUFFER_SIZE, 0)
        if (buffer := given.get(JitOption.ERROR_LOG_BUFFER, 0)) and room:
            host.write(buffer, refused.why.encode()[: room - 1] + b"\0")
        raise
    driver.loads[loaded.context.device.ordinal] += 1
    host.put(module, "Q", driver.keep(loaded))


@call()
def cuModuleLoadData(driver: Driver, module: Pointer, image: Pointer) -> None:
    cuModuleLoadDataEx(driver, module, image, 0, 0, 0)


@call(unsafe_in_capture=True)
def cuModuleUnload(driver: Driver, module: Pointer) -> None:
    unloaded = driver.find(LoadedModule, module)
    unloaded.context.finish()
    unloaded.unload()
    driver.drop(module)


@call()
def cuModuleGetFunction(driver: Driver, function: Pointer, module: Pointer, name: Pointer) -> None:
    found = modules.function_of(driver.find(LoadedModule, module), host.read_text(name))
    handle = next((handle for handle, thing in driver.handles(LoadedFunction) if thing is found), None)
    host.put(function, "Q", handle or driver.keep(found))


@call()
def cuModuleGetGlobal_v2(
    driver: Driver, address: Pointer, size: Pointer, module: Pointer, name: Pointer
) -> None:
    found, wanted = driver.find(LoadedModule, module), host.read_text(name)
    if wanted not in found.symbols:
        raise Refused(DriverResult.CUDA_ERROR_NOT_FOUND, f"no variable {wanted}")
    variable = next(variable for variable in found.ptx.variables if variable.name == wanted)
    for target, answer in ((address, found.symbols[wanted]), (size, size_of(variable))):
        if target:
            host.put(target, "Q", answer)


@call()
def cuFuncGetAttribute(driver: Driver, value: Pointer, attribute: Int, function: Pointer) -> None:
    host.put(value, "i", driver.find(LoadedFunction, function).attribute(attribute))


@call(since=9000)
def cuFuncSetAttribute(driver: Driver, function: Pointer, attribute: Int, value: Int) -> None:
    found = driver.find(LoadedFunction, function)
    if attribute == FunctionAttribute.MAX_DYNAMIC_SHARED_SIZE_BYTES:
        limit = found.module.context.device.shared_limit - found.static_shared
        if not 0 <= value <= limit:
            raise Refused(
                DriverResult.CUDA_ERROR_INVALID_VALUE,
                f"{value} bytes of dynamic shared memory; the device has {limit}",
            )
        found.dynamic_shared = value
    elif attribute != FunctionAttribute.PREFERRED_SHARED_MEMORY_CARVEOUT:
        raise Refused(
            DriverResult.CUDA_ERROR_INVALID_VALUE, f"attribute {attribute} of functions cannot be set"
        )


@call()
def cuFuncSetCacheConfig(driver: Driver, function: Pointer, config: Int) -> None:
    driver.find(LoadedFunction, function)


@call(since=6050)
def cuOccupancyMaxActiveBlocksPerMultiprocessor(
    driver: Driver, count: Pointer, function: Pointer, threads: Int, shared: Size
) -> None:
    found = driver.find(LoadedFunction, function)
    total = found.static_shared + shared
    by_shared = (found.module.context.device.shared_limit + 1024) // (total + 1024)
    host.put(count, "i", max(0, min(2048 // max(threads, 1), by_shared, 32)))


# Launches


@call()
def cuLaunchKernel(
    driver: Driver,
    function: Pointer,
    grid_x: Unsigned,
    grid_y: Unsigned,
    grid_z: Unsigned,
    block_x: Unsigned,
    block_y: Unsigned,
    block_z: Unsigned,
    shared: Unsigned,
    stream: Pointer,
    parameters: Pointer,
    extra: Pointer,
) -> None:
    grid, block = (grid_x, grid_y, grid_z), (block_x, block_y, block_z)
    _launch(driver, function, grid, block, shared, stream, parameters, extra, (1, 1, 1), False)


@call(since=11080)
def cuLaunchKernelEx(
    driver: Driver, config: Pointer, function: Pointer, parameters: Pointer, extra: Pointer
) -> None:
    gx, gy, gz, bx, by, bz, shared, stream, attributes, count = host.unpack(config, "7IQQI")
    cluster, may_begin_early = (1, 1, 1), False
    for index in range(count):
        kind, *value = host.unpack(attributes + index * _ATTRIBUTE_BYTES, "i4x3I")
        if kind == _CLUSTER_DIMENSION:
            cluster = (value[0], value[1], value[2])
        elif kind == _STREAM_SERIALIZATION:
            may_begin_early = bool(value[0])
    _launch(
        driver,
        function,
        (gx, gy, gz),
        (bx, by, bz),
        shared,
        stream,
        parameters,
        extra,
        cluster,
        may_begin_early,
    )


def _launch(
    driver: Driver,
    handle: int,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared: int,
    stream: int,
    parameters: int,
    extra: int,
    cluster: tuple[int, int, int],
    may_begin_early: bool,
) -> None:
    context, function = driver.context, driver.find(LoadedFunction, handle)
    if function.module.context is not context:
        raise Refused(
            DriverResult.CUDA_ERROR_INVALID_HANDLE,
            "the kernel belongs to another context than the current one",
        )
    cluster = function.program.required_cluster if cluster == (1, 1, 1) else cluster
    _check_shape(function, grid, block, shared, cluster)
    arguments = _packed(function, extra) if extra else _arguments(function, parameters)
    ordinal = context.device.ordinal
    digest = function.module.digest
    launched = LaunchCall(
        function.name, ordinal, grid, block, shared, stream, arguments, digest, cluster, may_begin_early
    )
    driver.submit(driver.stream(stream), _work(driver, function, launched))
    driver.launches.append(launched)


def _check_shape(
    function: LoadedFunction, grid: Sequence[int], block: Sequence[int], shared: int, cluster: Sequence[int]
) -> None:
    """Raise Refused for a launch that the device cannot do."""
    threads, most, required = (
        block[0] * block[1] * block[2],
        function.dynamic_shared,
        function.program.required_threads,
    )
    limits, compiled = (2**31 - 1, 65535, 65535), function.program.required_cluster
    rules = [
        (all(1 <= size <= limit for size, limit in zip(grid, limits)), f"a grid of {tuple(grid)}"),
        (1 <= threads <= 1024 and block[2] <= 64, f"a block of {tuple(block)} threads"),
        (threads <= function.threads, f"{threads} threads; the kernel is for {function.threads}"),
        (
            required in (None, tuple(block)),
            f"a block of {tuple(block)} threads; the kernel is for {required}",
        ),
        (shared <= most, f"{shared} bytes of dynamic shared memory; the kernel may have {most}"),
        (cluster[0] * cluster[1] * cluster[2] <= 16, f"a cluster of {tuple(cluster)}"),
        (
            compiled in ((1, 1, 1), tuple(cluster)),
            f"a cluster of {tuple(cluster)}; the kernel is for {compiled}",
        ),
        (
            all(part and not size % part for size, part in zip(grid, cluster)),
            f"a grid of {tuple(grid)} by {tuple(cluster)}",
        ),
    ]
    for holds, message in rules:
        if not holds:
            raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, message)


def _arguments(function: LoadedFunction, parameters: int) -> tuple[bytes, ...]:
    """The bytes of each parameter, from an array of their addresses."""
    wanted = function.program.entry.parameters
    if not wanted:
        return ()
    addresses = host.unpack(parameters, f"{len(wanted)}Q")
    return tuple(host.read(address, size_of(parameter)) for address, parameter in zip(addresses, wanted))


def _packed(function: LoadedFunction, extra: int) -> tuple[bytes, ...]:
    """The bytes of each parameter, from one buffer with all of them."""
    buffer = size = 0
    while key := host.unpack(extra, "Q")[0]:
        (value,) = host.unpack(extra + 8, "Q")
        buffer = value if key == _BUFFER_POINTER else buffer
        size = host.unpack(value, "Q")[0] if key == _BUFFER_SIZE else size
        extra += 16
    data, position, found = host.read(buffer, size), 0, []
    for parameter in function.program.entry.parameters:
        length = size_of(parameter)
        align = max(parameter.align, length // max(parameter.size or 1, 1), 1)
        position = -(-position // align) * align
        found.append(data[position : position + length])
        position += length
    if position > size:
        raise Refused(
            DriverResult.CUDA_ERROR_INVALID_VALUE,
            f"the parameters take {position} bytes, the buffer has {size}",
        )
    return tuple(found)


def _work(driver: Driver, function: LoadedFunction, launched: LaunchCall) -> LaunchWork:
    """The work of a launch, which its stream runs."""
    settings, device = driver.settings, function.module.context.device

    def run(earlier: Callable[[], None] | None) -> None:
        launch = Launch(
            function.program,
            device.heap,
            launched.arguments,
            launched.grid,
            launched.block,
            launched.shared,
            schedule_named(settings.schedule),
            cluster=launched.cluster,
            placed=function.module.symbols,
        )
        launch.timing = timing_named(settings.timing)
        launch.observers = checkers_named(settings.checks)
        launch.earlier = earlier
        findings = launch.run()
        launch.wait_for_earlier()
        device.steps += launch.steps
        driver.printed += launch.printed
        driver.findings += findings
        if findings:
            result = FINDINGS.get(findings[0].kind, DriverResult.CUDA_ERROR_LAUNCH_FAILED)
            raise Refused(result, f"{function.name}: {findings[0]}")

    return LaunchWork(run, launched.may_begin_early)
