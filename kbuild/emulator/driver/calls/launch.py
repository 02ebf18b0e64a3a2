"""The driver's functions for launches, and for how many blocks fit on a device."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kbuild.emulator.async_ops.timing import timing_named
from kbuild.emulator.driver import host
from kbuild.emulator.driver.calls.library import function_of
from kbuild.emulator.driver.codes import FINDINGS, STRUCTURES, DriverResult, LaunchAttribute, Refused
from kbuild.emulator.driver.core import Driver, LaunchCall
from kbuild.emulator.driver.devices import Device
from kbuild.emulator.driver.modules import KernelCode, LoadedFunction
from kbuild.emulator.driver.streams import LaunchWork
from kbuild.emulator.driver.table import Int, Pointer, Size, Unsigned, call
from kbuild.emulator.engine.launch import Launch, checkers_named
from kbuild.emulator.engine.schedule import schedule_named

_BUFFER_POINTER, _BUFFER_SIZE = 1, 2
"""CU_LAUNCH_PARAM_BUFFER_POINTER and CU_LAUNCH_PARAM_BUFFER_SIZE."""
_PORTABLE_CLUSTER, _LARGEST_CLUSTER = 8, 16
_ONE = (1, 1, 1)


@dataclass(frozen=True)
class LaunchShape:
    """How a kernel is launched."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    stream: int
    cluster: tuple[int, int, int] = _ONE
    may_begin_early: bool = False


@call(4000, ptsz=7000)
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
    shape = LaunchShape((grid_x, grid_y, grid_z), (block_x, block_y, block_z), shared, stream)
    _launch(driver, function, shape, parameters, extra)


@call(11060, ptsz=11060)
def cuLaunchKernelEx(
    driver: Driver, config: Pointer, function: Pointer, parameters: Pointer, extra: Pointer
) -> None:
    _launch(driver, function, _shape_at(config), parameters, extra)


@call(9000, ptsz=9000)
def cuLaunchCooperativeKernel(
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
) -> None:
    raise _not_cooperative()


def _not_cooperative() -> Refused:
    return Refused(
        DriverResult.CUDA_ERROR_NOT_SUPPORTED,
        "the emulator runs blocks one after the other, not cooperatively",
    )


def _shape_at(config: int) -> LaunchShape:
    """The launch that a CUlaunchConfig describes."""
    gx, gy, gz, bx, by, bz, shared, stream, attributes, count = host.unpack(
        config, STRUCTURES["CUlaunchConfig"]
    )
    cluster, may_begin_early = _ONE, False
    for index in range(count):
        layout = STRUCTURES["CUlaunchAttribute"]
        kind, value = host.unpack(attributes + index * struct.calcsize(layout), layout)
        x, y, z = struct.unpack_from("3I", value)
        if kind == LaunchAttribute.CLUSTER_DIMENSION:
            cluster = x, y, z
        elif kind == LaunchAttribute.PROGRAMMATIC_STREAM_SERIALIZATION:
            may_begin_early = bool(x)
        elif kind == LaunchAttribute.COOPERATIVE and x:
            raise _not_cooperative()
    return LaunchShape((gx, gy, gz), (bx, by, bz), shared, stream, cluster, may_begin_early)


def _launch(driver: Driver, handle: int, shape: LaunchShape, parameters: int, extra: int) -> None:
    context, function = driver.context, function_of(driver, handle)
    if function.module.context is not context:
        raise Refused(
            DriverResult.CUDA_ERROR_INVALID_HANDLE,
            "the kernel belongs to another context than the current one",
        )
    if driver.context_of(shape.stream) is not context:
        raise Refused(
            DriverResult.CUDA_ERROR_INVALID_HANDLE,
            "the stream belongs to another context than the current one",
        )
    code = function.code
    cluster = code.program.required_cluster if shape.cluster == _ONE else shape.cluster
    _check_shape(code, shape, cluster, function.dynamic_shared)
    arguments = _packed(code, extra) if extra else _arguments(code, parameters)
    launched = LaunchCall(
        code.name,
        context.device.ordinal,
        shape.grid,
        shape.block,
        shape.shared,
        shape.stream,
        arguments,
        function.module.image.digest,
        cluster,
        shape.may_begin_early,
    )
    driver.submit(driver.stream(shape.stream), _work(driver, function, launched))
    driver.launches.append(launched)


def _check_shape(code: KernelCode, shape: LaunchShape, cluster: Sequence[int], most: int) -> None:
    """Raise Refused for a launch that the device cannot do, or that has more than `most` bytes of dynamic shared
    memory."""
    grid, block = shape.grid, shape.block
    threads, required = block[0] * block[1] * block[2], code.program.required_threads
    limits, compiled = (2**31 - 1, 65535, 65535), code.program.required_cluster
    rules = [
        (all(1 <= size <= limit for size, limit in zip(grid, limits)), f"a grid of {grid}"),
        (1 <= threads <= 1024 and block[2] <= 64, f"a block of {block} threads"),
        (threads <= code.threads, f"{threads} threads; the kernel is for {code.threads}"),
        (required in (None, block), f"a block of {block} threads; the kernel is for {required}"),
        (shape.shared <= most, f"{shape.shared} bytes of dynamic shared memory; the kernel may have {most}"),
        (
            cluster[0] * cluster[1] * cluster[2] <= _LARGEST_CLUSTER,
            f"a cluster of {tuple(cluster)}",
        ),
        (compiled in (_ONE, tuple(cluster)), f"a cluster of {tuple(cluster)}; the kernel is for {compiled}"),
        (
            all(part and not size % part for size, part in zip(grid, cluster)),
            f"a grid of {grid} by {tuple(cluster)}",
        ),
    ]
    for holds, message in rules:
        if not holds:
            raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, message)


def _arguments(code: KernelCode, parameters: int) -> tuple[bytes, ...]:
    """The bytes of each parameter, from an array of their addresses."""
    wanted = code.parameters
    if not wanted:
        return ()
    addresses = host.unpack(parameters, f"{len(wanted)}Q")
    return tuple(host.read(address, size) for address, (_, size) in zip(addresses, wanted))


def _packed(code: KernelCode, extra: int) -> tuple[bytes, ...]:
    """The bytes of each parameter, from one buffer with all of them."""
    buffer = size = 0
    while key := host.unpack(extra, "Q")[0]:
        (value,) = host.unpack(extra + 8, "Q")
        buffer = value if key == _BUFFER_POINTER else buffer
        size = host.unpack(value, "Q")[0] if key == _BUFFER_SIZE else size
        extra += 16
    data, wanted = host.read(buffer, size), code.parameters
    end = sum(wanted[-1]) if wanted else 0
    if end > size:
        raise Refused(
            DriverResult.CUDA_ERROR_INVALID_VALUE, f"the parameters take {end} bytes, the buffer has {size}"
        )
    return tuple(data[offset : offset + length] for offset, length in wanted)


def _work(driver: Driver, function: LoadedFunction, launched: LaunchCall) -> LaunchWork:
    """The work of a launch, which its stream runs."""
    settings, device = driver.settings, function.module.context.device

    def run(earlier: Callable[[], None] | None) -> None:
        launch = Launch(
            function.code.program,
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
            raise Refused(result, f"{launched.entry}: {findings[0]}")

    return LaunchWork(run, launched.may_begin_early)


# Occupancy: registers do not count, as the emulator allocates none.


def _blocks(code: KernelCode, device: Device, threads: int, shared: int) -> int:
    """Blocks that a multiprocessor holds at a time."""
    warps = -(-threads // 32)
    if not 0 < threads <= code.threads or shared + code.static_shared > device.shared_limit:
        return 0
    by_shared = device.shared_of_multiprocessor // (code.static_shared + shared + device.reserved_shared)
    return min(device.threads_of_multiprocessor // (32 * warps), by_shared, device.blocks_of_multiprocessor)


@call(6050)
def cuOccupancyMaxActiveBlocksPerMultiprocessor(
    driver: Driver, count: Pointer, function: Pointer, threads: Int, shared: Size
) -> None:
    found = function_of(driver, function)
    host.put(count, "i", _blocks(found.code, found.module.context.device, threads, shared))


@call(7000)
def cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    driver: Driver, count: Pointer, function: Pointer, threads: Int, shared: Size, flags: Unsigned
) -> None:
    cuOccupancyMaxActiveBlocksPerMultiprocessor(driver, count, function, threads, shared)


@call(6050)
def cuOccupancyMaxPotentialBlockSize(
    driver: Driver,
    grid: Pointer,
    block: Pointer,
    function: Pointer,
    shared_of: Pointer,
    shared: Size,
    limit: Int,
) -> None:
    found = function_of(driver, function)
    device, most = found.module.context.device, min(limit or 1024, found.code.threads)

    def blocks(threads: int) -> int:
        size = host.size_by(shared_of, threads) if shared_of else shared
        return _blocks(found.code, device, threads, size)

    best = max(
        range(32, most + 1, 32), key=lambda threads: (blocks(threads) * threads, threads), default=most
    )
    host.put(grid, "i", blocks(best) * device.multiprocessors)
    host.put(block, "i", best)


@call(7000)
def cuOccupancyMaxPotentialBlockSizeWithFlags(
    driver: Driver,
    grid: Pointer,
    block: Pointer,
    function: Pointer,
    shared_of: Pointer,
    shared: Size,
    limit: Int,
    flags: Unsigned,
) -> None:
    cuOccupancyMaxPotentialBlockSize(driver, grid, block, function, shared_of, shared, limit)


@call(10020)
def cuOccupancyAvailableDynamicSMemPerBlock(
    driver: Driver, size: Pointer, function: Pointer, blocks: Int, threads: Int
) -> None:
    found = function_of(driver, function)
    device = found.module.context.device
    if blocks < 1 or _blocks(found.code, device, threads, 0) < blocks:
        raise Refused(
            DriverResult.CUDA_ERROR_INVALID_VALUE, f"{blocks} blocks of {threads} threads do not fit"
        )
    room = device.shared_of_multiprocessor // blocks - device.reserved_shared - found.code.static_shared
    host.put(size, "Q", min(room, device.shared_limit - found.code.static_shared))


@call(11070)
def cuOccupancyMaxPotentialClusterSize(
    driver: Driver, size: Pointer, function: Pointer, config: Pointer
) -> None:
    found, shape = function_of(driver, function), _shape_at(config)
    device = found.module.context.device
    fits = _blocks(found.code, device, shape.block[0] * shape.block[1] * shape.block[2], shape.shared) > 0
    host.put(size, "i", _PORTABLE_CLUSTER if fits and device.has_clusters else 0)


@call(11070)
def cuOccupancyMaxActiveClusters(driver: Driver, count: Pointer, function: Pointer, config: Pointer) -> None:
    found, shape = function_of(driver, function), _shape_at(config)
    device = found.module.context.device
    blocks = _blocks(found.code, device, shape.block[0] * shape.block[1] * shape.block[2], shape.shared)
    size = shape.cluster[0] * shape.cluster[1] * shape.cluster[2]
    host.put(count, "i", blocks * device.multiprocessors // size if device.has_clusters else 0)
