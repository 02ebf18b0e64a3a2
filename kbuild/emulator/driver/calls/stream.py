"""The driver's functions for streams, events and captures."""

from __future__ import annotations

import threading

from kbuild.emulator.driver import host
from kbuild.emulator.driver.codes import CaptureMode, DriverResult, Refused
from kbuild.emulator.driver.core import Driver
from kbuild.emulator.driver.streams import Capture, Event, Stream
from kbuild.emulator.driver.table import Int, Pointer, Unsigned, call

_NON_BLOCKING = 1
"""CU_STREAM_NON_BLOCKING."""
_WITHOUT_TIMING = 2
"""CU_EVENT_DISABLE_TIMING."""
_IDLE, _CAPTURING, _INVALIDATED = 0, 1, 2
"""CUstreamCaptureStatus."""


@call(2000)
def cuStreamCreate(driver: Driver, stream: Pointer, flags: Unsigned) -> None:
    context = driver.context
    made = Stream(None if flags & _NON_BLOCKING else context.default, 0)
    made.handle = driver.keep(made)
    context.streams[made.handle] = made
    host.put(stream, "Q", made.handle)


@call(5050)
def cuStreamCreateWithPriority(driver: Driver, stream: Pointer, flags: Unsigned, priority: Int) -> None:
    cuStreamCreate(driver, stream, flags)


@call(4000)
def cuStreamDestroy_v2(driver: Driver, stream: Pointer) -> None:
    destroyed = driver.find(Stream, stream)
    destroyed.finish()
    if destroyed.default is not None:
        destroyed.default.followers.remove(destroyed)
    for streams in (context.streams for context in driver.contexts()):
        streams.pop(stream, None)
    driver.drop(stream)


@call(2000, ptsz=7000)
def cuStreamSynchronize(driver: Driver, stream: Pointer) -> None:
    waited = driver.stream(stream)
    waited.require_uncaptured()
    if waited is driver.context.default:
        waited.submit(lambda: None, True)  # which comes after the work of all streams that it waits for
    driver.refuse_in_capture("cuStreamSynchronize")
    waited.finish()


@call(2000, ptsz=7000)
def cuStreamQuery(driver: Driver, stream: Pointer) -> None:
    target = driver.stream(stream)
    target.require_uncaptured()
    driver.refuse_in_capture("cuStreamQuery")
    if not target.is_idle:
        target.advance()
        raise Refused(DriverResult.CUDA_ERROR_NOT_READY)


@call(3020, ptsz=7000)
def cuStreamWaitEvent(driver: Driver, stream: Pointer, event: Pointer, flags: Unsigned) -> None:
    driver.find(Event, event).hold(driver.stream(stream), driver.settings.is_late)


@call(5050, ptsz=7000)
def cuStreamGetFlags(driver: Driver, stream: Pointer, flags: Pointer) -> None:
    target = driver.stream(stream)
    host.put(
        flags, "I", _NON_BLOCKING if target.default is None and target is not driver.context.default else 0
    )


@call(5050, ptsz=7000)
def cuStreamGetPriority(driver: Driver, stream: Pointer, priority: Pointer) -> None:
    driver.stream(stream)
    host.put(priority, "i", 0)


@call(12000, ptsz=12000)
def cuStreamGetId(driver: Driver, stream: Pointer, number: Pointer) -> None:
    driver.stream(stream)
    host.put(number, "Q", stream)


@call(9020, ptsz=9020)
def cuStreamGetCtx(driver: Driver, stream: Pointer, context: Pointer) -> None:
    host.put(context, "Q", driver.context_of(stream).handle)


@call(12050, ptsz=12050)
def cuStreamGetCtx_v2(driver: Driver, stream: Pointer, context: Pointer, green: Pointer) -> None:
    cuStreamGetCtx(driver, stream, context)
    if green:
        host.put(green, "Q", 0)


@call(12080, ptsz=12080)
def cuStreamGetDevice(driver: Driver, stream: Pointer, device: Pointer) -> None:
    host.put(device, "i", driver.context_of(stream).device.ordinal)


@call(10000, ptsz=10000)
def cuLaunchHostFunc(driver: Driver, stream: Pointer, function: Pointer, data: Pointer) -> None:
    driver.submit(driver.stream(stream), lambda: host.run(function, data))


@call(13010, ptsz=13010)
def cuLaunchHostFunc_v2(
    driver: Driver, stream: Pointer, function: Pointer, data: Pointer, mode: Unsigned
) -> None:
    cuLaunchHostFunc(driver, stream, function, data)


@call(5000, ptsz=7000)
def cuStreamAddCallback(
    driver: Driver, stream: Pointer, function: Pointer, data: Pointer, flags: Unsigned
) -> None:
    driver.submit(driver.stream(stream), lambda: host.run(function, stream, 0, data))


# Captures


@call(10010, ptsz=10010)
def cuStreamBeginCapture_v2(driver: Driver, stream: Pointer, mode: Int) -> None:
    captured = driver.stream(stream)
    if captured is driver.context.default:
        raise Refused(
            DriverResult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the default stream cannot be captured"
        )
    if mode not in CaptureMode.__members__.values():
        raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, f"no capture mode {mode}")
    captured.begin(CaptureMode(mode), threading.get_ident())


@call(10000, ptsz=10000)
def cuStreamEndCapture(driver: Driver, stream: Pointer, graph: Pointer) -> None:
    host.put(graph, "Q", 0)
    host.put(graph, "Q", driver.handle_of(driver.stream(stream).end(threading.get_ident())))


def _status(driver: Driver, stream: int) -> tuple[int, Capture | None]:
    """CUstreamCaptureStatus of a stream, and its capture.  Raises Refused where a question about it ends one."""
    target = driver.stream(stream)
    if any(follower.capture is not None for follower in target.followers):
        raise Refused(
            DriverResult.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
            "the default stream waits for a stream that is being captured",
        )
    capture = target.capture
    return (_IDLE if capture is None else _CAPTURING if capture.is_valid else _INVALIDATED), capture


@call(10000, ptsz=10000)
def cuStreamIsCapturing(driver: Driver, stream: Pointer, status: Pointer) -> None:
    host.put(status, "i", _status(driver, stream)[0])


@call(10010, ptsz=10010)
def cuStreamGetCaptureInfo(driver: Driver, stream: Pointer, status: Pointer, number: Pointer) -> None:
    found, capture = _status(driver, stream)
    host.put(status, "i", found)
    if number and capture:
        host.put(number, "Q", driver.handle_of(capture.graph))


@call(11030, ptsz=11030)
def cuStreamGetCaptureInfo_v2(
    driver: Driver,
    stream: Pointer,
    status: Pointer,
    number: Pointer,
    graph: Pointer,
    dependencies: Pointer,
    count: Pointer,
) -> None:
    cuStreamGetCaptureInfo_v3(driver, stream, status, number, graph, dependencies, 0, count)


@call(12030, ptsz=12030)
def cuStreamGetCaptureInfo_v3(
    driver: Driver,
    stream: Pointer,
    status: Pointer,
    number: Pointer,
    graph: Pointer,
    dependencies: Pointer,
    edges: Pointer,
    count: Pointer,
) -> None:
    """A graph here is a list of work, without dependencies: none are told."""
    cuStreamGetCaptureInfo(driver, stream, status, number)
    capture = driver.stream(stream).capture
    for address, answer in (
        (graph, driver.handle_of(capture.graph) if capture else 0),
        (dependencies, 0),
        (edges, 0),
        (count, 0),
    ):
        if address and capture:
            host.put(address, "Q", answer)


# Events


@call(2000)
def cuEventCreate(driver: Driver, event: Pointer, flags: Unsigned) -> None:
    context = driver.context
    host.put(event, "Q", driver.keep(Event(context.device, not flags & _WITHOUT_TIMING)))


@call(4000, aliases={"cuEventDestroy": 2000})
def cuEventDestroy_v2(driver: Driver, event: Pointer) -> None:
    driver.find(Event, event)
    driver.drop(event)


@call(2000, ptsz=7000)
def cuEventRecord(driver: Driver, event: Pointer, stream: Pointer) -> None:
    recorded, device = driver.find(Event, event), driver.context_of(stream).device
    if recorded.device is not device:
        raise Refused(
            DriverResult.CUDA_ERROR_INVALID_HANDLE, "the event was created on another device than the stream"
        )
    recorded.record(driver.stream(stream), lambda: device.steps, driver.settings.is_late)


@call(11010, ptsz=11010)
def cuEventRecordWithFlags(driver: Driver, event: Pointer, stream: Pointer, flags: Unsigned) -> None:
    cuEventRecord(driver, event, stream)


@call(2000)
def cuEventQuery(driver: Driver, event: Pointer) -> None:
    target = driver.find(Event, event)
    target.require_uncaptured()
    driver.refuse_in_capture("cuEventQuery")
    if not target.is_reached and target.mark is not None:
        target.mark[0].step()
        raise Refused(DriverResult.CUDA_ERROR_NOT_READY)


@call(2000)
def cuEventSynchronize(driver: Driver, event: Pointer) -> None:
    waited = driver.find(Event, event)
    waited.require_uncaptured()
    driver.refuse_in_capture("cuEventSynchronize")
    if waited.mark is not None:
        waited.mark[0].finish(waited.mark[1])


@call(2000, aliases={"cuEventElapsedTime_v2": 12080})
def cuEventElapsedTime(driver: Driver, milliseconds: Pointer, start: Pointer, end: Pointer) -> None:
    """A million instructions of the emulator count as a millisecond."""
    first, last = driver.find(Event, start), driver.find(Event, end)
    if first.mark is None or last.mark is None:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_HANDLE, "the event was not recorded")
    if not (first.has_timing and last.has_timing):
        raise Refused(DriverResult.CUDA_ERROR_INVALID_HANDLE, "the event was created without timing")
    if first.moment is None or last.moment is None:
        raise Refused(DriverResult.CUDA_ERROR_NOT_READY)
    host.put(milliseconds, "f", (last.moment - first.moment) / 1e6)
