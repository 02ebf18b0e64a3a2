"""The driver's functions for streams, events, captures and graphs."""

from __future__ import annotations

import threading

from kbuild.emulator.driver import host
from kbuild.emulator.driver.codes import CaptureMode, DriverResult, Refused
from kbuild.emulator.driver.core import Driver
from kbuild.emulator.driver.streams import Event, Graph, Stream
from kbuild.emulator.driver.table import Int, Pointer, Unsigned, Word, call

_NON_BLOCKING = 1
_IDLE, _CAPTURING, _INVALIDATED = 0, 1, 2
"""CUstreamCaptureStatus."""


@call()
def cuStreamCreate(driver: Driver, stream: Pointer, flags: Unsigned) -> None:
    context = driver.context
    made = Stream(None if flags & _NON_BLOCKING else context.default, 0)
    made.handle = driver.keep(made)
    context.streams[made.handle] = made
    host.put(stream, "Q", made.handle)


@call(since=5050)
def cuStreamCreateWithPriority(driver: Driver, stream: Pointer, flags: Unsigned, priority: Int) -> None:
    cuStreamCreate(driver, stream, flags)


@call()
def cuStreamDestroy_v2(driver: Driver, stream: Pointer) -> None:
    destroyed = driver.find(Stream, stream)
    destroyed.finish()
    if destroyed.default is not None:
        destroyed.default.followers.remove(destroyed)
    for streams in (context.streams for context in driver.contexts()):
        streams.pop(stream, None)
    driver.drop(stream)


@call()
def cuStreamSynchronize(driver: Driver, stream: Pointer) -> None:
    waited = driver.stream(stream)
    waited.require_uncaptured()
    if waited is driver.context.default:
        waited.submit(lambda: None, True)  # which comes after the work of all streams that it waits for
    driver.refuse_in_capture("cuStreamSynchronize")
    waited.finish()


@call()
def cuStreamQuery(driver: Driver, stream: Pointer) -> None:
    target = driver.stream(stream)
    target.require_uncaptured()
    driver.refuse_in_capture("cuStreamQuery")
    if not target.is_idle:
        target.advance()
        raise Refused(DriverResult.CUDA_ERROR_NOT_READY)


@call()
def cuStreamWaitEvent(driver: Driver, stream: Pointer, event: Pointer, flags: Unsigned) -> None:
    driver.find(Event, event).hold(driver.stream(stream), driver.settings.is_late)


@call(since=5050)
def cuStreamGetFlags(driver: Driver, stream: Pointer, flags: Pointer) -> None:
    target = driver.stream(stream)
    host.put(
        flags, "I", _NON_BLOCKING if target.default is None and target is not driver.context.default else 0
    )


@call(since=9020)
def cuStreamGetCtx(driver: Driver, stream: Pointer, context: Pointer) -> None:
    driver.stream(stream)
    host.put(context, "Q", driver.context.handle)


# Captures


@call(since=10010)
def cuStreamBeginCapture_v2(driver: Driver, stream: Pointer, mode: Int) -> None:
    captured = driver.stream(stream)
    if captured is driver.context.default:
        raise Refused(
            DriverResult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the default stream cannot be captured"
        )
    if mode not in CaptureMode.__members__.values():
        raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, f"no capture mode {mode}")
    captured.begin(CaptureMode(mode), threading.get_ident())


@call(since=10000)
def cuStreamEndCapture(driver: Driver, stream: Pointer, graph: Pointer) -> None:
    host.put(graph, "Q", 0)
    host.put(graph, "Q", driver.keep(Graph(driver.stream(stream).end(threading.get_ident()))))


@call(since=10000)
def cuStreamIsCapturing(driver: Driver, stream: Pointer, status: Pointer) -> None:
    target = driver.stream(stream)
    if any(follower.capture is not None for follower in target.followers):
        raise Refused(
            DriverResult.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
            "the default stream waits for a stream that is being captured",
        )
    capture = target.capture
    host.put(status, "i", _IDLE if capture is None else _CAPTURING if capture.is_valid else _INVALIDATED)


@call(since=11040)
def cuGraphInstantiateWithFlags(driver: Driver, executable: Pointer, graph: Pointer, flags: Word) -> None:
    host.put(executable, "Q", driver.keep(Graph(list(driver.find(Graph, graph).work))))


@call(since=10000)
def cuGraphInstantiate_v2(
    driver: Driver, executable: Pointer, graph: Pointer, node: Pointer, log: Pointer, size: Word
) -> None:
    cuGraphInstantiateWithFlags(driver, executable, graph, 0)


@call(since=10000)
def cuGraphGetNodes(driver: Driver, graph: Pointer, nodes: Pointer, count: Pointer) -> None:
    work = driver.find(Graph, graph).work
    if nodes:
        (room,) = host.unpack(count, "Q")
        host.write(
            nodes, b"".join((number + 1).to_bytes(8, "little") for number in range(min(room, len(work))))
        )
    host.put(count, "Q", len(work))


@call(since=10000)
def cuGraphLaunch(driver: Driver, executable: Pointer, stream: Pointer) -> None:
    graph = driver.find(Graph, executable)

    def work() -> None:
        for one in graph.work:
            one()

    driver.submit(driver.stream(stream), work)


@call(since=10000, aliases=["cuGraphExecDestroy"])
def cuGraphDestroy(driver: Driver, graph: Pointer) -> None:
    driver.find(Graph, graph)
    driver.drop(graph)


# Events


@call()
def cuEventCreate(driver: Driver, event: Pointer, flags: Unsigned) -> None:
    _ = driver.context  # there has to be one
    host.put(event, "Q", driver.keep(Event()))


@call(aliases=["cuEventDestroy"])
def cuEventDestroy_v2(driver: Driver, event: Pointer) -> None:
    driver.find(Event, event)
    driver.drop(event)


@call()
def cuEventRecord(driver: Driver, event: Pointer, stream: Pointer) -> None:
    device = driver.context.device
    driver.find(Event, event).record(driver.stream(stream), lambda: device.steps, driver.settings.is_late)


@call()
def cuEventQuery(driver: Driver, event: Pointer) -> None:
    target = driver.find(Event, event)
    target.require_uncaptured()
    driver.refuse_in_capture("cuEventQuery")
    if not target.is_reached and target.mark is not None:
        target.mark[0].step()
        raise Refused(DriverResult.CUDA_ERROR_NOT_READY)


@call()
def cuEventSynchronize(driver: Driver, event: Pointer) -> None:
    waited = driver.find(Event, event)
    waited.require_uncaptured()
    driver.refuse_in_capture("cuEventSynchronize")
    if waited.mark is not None:
        waited.mark[0].finish(waited.mark[1])


@call(aliases=["cuEventElapsedTime_v2"])
def cuEventElapsedTime(driver: Driver, milliseconds: Pointer, start: Pointer, end: Pointer) -> None:
    """A million instructions of the emulator count as a millisecond."""
    first, last = driver.find(Event, start), driver.find(Event, end)
    if first.mark is None or last.mark is None:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_HANDLE, "the event was not recorded")
    if first.moment is None or last.moment is None:
        raise Refused(DriverResult.CUDA_ERROR_NOT_READY)
    host.put(milliseconds, "f", (last.moment - first.moment) / 1e6)
