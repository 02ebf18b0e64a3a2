"""Streams, events, captures and graphs: the order and the time of the work that a device is given.

Work may be done as early as possible, at the call that submits it, or as late as the rules allow: not
before a thread waits for it.  Late work shows where a wait is missing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from kbuild.emulator.driver.codes import CaptureMode, DriverResult, Refused

Work = Callable[[], None]


@dataclass(frozen=True)
class LaunchWork:
    """The work of a launch.  One that may begin early runs the launch before it when it waits for it: until
    then it sees none of its writes, which shows where the wait comes too late."""

    run: Callable[[Work | None], None]
    """Runs the kernel; before its first wait, or else when it has ended, the launch before it, where that is
    given."""
    may_begin_early: bool = False

    def __call__(self) -> None:
        self.run(None)


@dataclass(eq=False)
class UserObject:
    """Something of the program that is destroyed when nobody refers to it any more."""

    destroy: Callable[[], None]
    references: int

    def release(self, count: int) -> None:
        """Give references back; the last one destroys it.  Raises Refused where there are not as many."""
        if not 0 < count <= self.references:
            raise Refused(
                DriverResult.CUDA_ERROR_INVALID_VALUE,
                f"{count} references of {self.references} are given back",
            )
        self.references -= count
        if not self.references:
            self.destroy()


@dataclass(eq=False)
class Graph:
    """Work to be done as often as it is launched; an object of this class stands for the graph made ready to run, too."""

    work: list[Work] = field(default_factory=list)
    objects: Counter[UserObject] = field(default_factory=Counter)
    """What it refers to, and how often."""

    def ready(self) -> Graph:
        """A copy that is ready to run."""
        for item in self.objects:
            item.references += 1
        return Graph(list(self.work), Counter(dict.fromkeys(self.objects, 1)))

    def end(self) -> None:
        """Release what it refers to."""
        for item, count in self.objects.items():
            item.release(count)
        self.objects.clear()


@dataclass(eq=False)
class Capture:
    """Work of a graph, as it is submitted."""

    origin: Stream
    mode: CaptureMode
    thread: int
    graph: Graph = field(default_factory=Graph)
    streams: set[Stream] = field(default_factory=set)
    unjoined: set[Stream] = field(default_factory=set)
    """Streams whose work the stream of origin has not waited for."""
    is_valid: bool = True


class Stream:
    """A queue of work on one device."""

    def __init__(self, default: Stream | None, handle: int) -> None:
        self.default = default
        """The legacy default stream, which waits for this one as this does for it; None for itself and for
        non-blocking ones."""
        self.handle = handle
        self.followers: list[Stream] = []
        """Of a legacy default stream, those that it waits for."""
        self.capture: Capture | None = None
        self.issued = 0
        self.done = 0
        self._queue: deque[tuple[Work, list[tuple[Stream, int]]]] = deque()
        if default is not None:
            default.followers.append(self)

    def submit(self, work: Work, is_late: bool, after: tuple[tuple[Stream, int], ...] = ()) -> None:
        """Submit work.  Raises Refused where a capture forbids it, and what the work raises if it is done
        at once."""
        if self.capture is not None:
            _require_valid(self.capture)
            self.capture.graph.work.append(work)
            if self is not self.capture.origin:
                self.capture.unjoined.add(self)
            return
        for follower in self.followers:
            if follower.capture is not None:
                follower.capture.is_valid = False
                raise Refused(
                    DriverResult.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                    "the default stream waits for a stream that is being captured",
                )
        earlier = [*after, *((stream, stream.issued) for stream in self.followers)]
        if self.default is not None:
            earlier.append((self.default, self.default.issued))
        self._queue.append((work, earlier))
        self.issued += 1
        if not is_late:
            self.finish(self.issued)

    def finish(self, count: int | None = None) -> None:
        """Do the work submitted up to a number, all by default.  Raises what the work raises."""
        last = self.issued if count is None else count
        while self.done < last:
            self.step()

    def step(self) -> None:
        """Do the next piece of work, and first all work that it waits for."""
        work = self._next()
        following = self._queue[0][0] if self._queue else None
        if isinstance(work, LaunchWork) and isinstance(following, LaunchWork) and following.may_begin_early:
            self._next()
            following.run(work)
        else:
            work()

    def _next(self) -> Work:
        """Take the next piece of work, once all work that it waits for is done."""
        work, earlier = self._queue.popleft()
        self.done += 1
        for stream, count in earlier:
            stream.finish(count)
        return work

    def advance(self) -> None:
        """Do one piece of work, where there is any, of this stream or of one that it waits for."""
        waiting = [stream for stream in (*self.followers, self) if stream.done < stream.issued]
        if waiting:
            waiting[0].step()

    @property
    def is_idle(self) -> bool:
        """Whether all of its work is done, and that of the streams that it waits for."""
        return all(stream.done == stream.issued for stream in (self, *self.followers))

    def require_uncaptured(self) -> None:
        """Raise Refused, and end the capture, where a call on a captured stream cannot be captured."""
        if self.capture is not None:
            self.capture.is_valid = False
            raise Refused(DriverResult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the stream is being captured")

    def begin(self, mode: CaptureMode, thread: int) -> Capture:
        """Start to capture.  Raises Refused where the stream is captured already."""
        if self.capture is not None:
            raise Refused(DriverResult.CUDA_ERROR_ILLEGAL_STATE, "the stream is being captured already")
        self.capture = Capture(self, mode, thread, streams={self})
        return self.capture

    def end(self, thread: int) -> Graph:
        """The graph of the captured work.  Raises Refused where nothing valid was captured, and stops capturing all the
        same."""
        capture = self.capture
        if capture is None:
            raise Refused(DriverResult.CUDA_ERROR_ILLEGAL_STATE, "the stream is not being captured")
        if self is not capture.origin:
            raise Refused(
                DriverResult.CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the capture began on another stream"
            )
        for stream in capture.streams:
            stream.capture = None
        if capture.mode != CaptureMode.RELAXED and thread != capture.thread:
            raise Refused(
                DriverResult.CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "the capture began in another thread"
            )
        _require_valid(capture)
        if capture.unjoined:
            raise Refused(
                DriverResult.CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "work on other streams was not waited for"
            )
        return capture.graph


def _require_valid(capture: Capture) -> None:
    if not capture.is_valid:
        raise Refused(
            DriverResult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
            "an earlier call during the capture was not allowed",
        )


@dataclass(eq=False)
class Event:
    """A point in the work of a stream."""

    device: object
    """That of the context in which it was created."""
    has_timing: bool = True
    moment: int | None = None
    """Instructions executed on the device when it was reached."""
    mark: tuple[Stream, int] | None = None
    """The stream and the number of its work at which it was recorded."""
    capture: Capture | None = None

    def record(self, stream: Stream, clock: Callable[[], int], is_late: bool) -> None:
        """Record the event: it is reached when the stream's work so far is done."""
        self.capture, self.mark = stream.capture, None
        if self.capture is not None:
            self.mark = stream, 0
            return

        def reach() -> None:
            self.moment = clock()

        self.moment = None
        stream.submit(reach, is_late)
        self.mark = stream, stream.issued

    def require_uncaptured(self) -> None:
        """Raise Refused, and end the capture, where the event was recorded in one."""
        if self.capture is not None:
            self.capture.is_valid = False
            raise Refused(
                DriverResult.CUDA_ERROR_CAPTURED_EVENT, "the event was recorded while its stream was captured"
            )

    @property
    def is_reached(self) -> bool:
        """Whether the work before it is done; True if it was never recorded."""
        return self.mark is None or self.mark[0].done >= self.mark[1]

    def hold(self, stream: Stream, is_late: bool) -> None:
        """Let the stream's later work wait for the event.  Raises Refused where one is captured and the other
        is not."""
        if self.capture is not None and self.mark is not None and self.mark[0].capture is self.capture:
            if stream.capture is None:
                stream.capture = self.capture
                self.capture.streams.add(stream)
                self.capture.unjoined.add(stream)
            elif stream.capture is not self.capture:
                raise Refused(
                    DriverResult.CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "the event belongs to another capture"
                )
            if stream is self.capture.origin:
                self.capture.unjoined.discard(self.mark[0])
        elif stream.capture is not None and self.mark is not None:
            stream.capture.is_valid = False
            raise Refused(
                DriverResult.CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
                "the event was recorded outside of the capture",
            )
        elif self.mark is not None:
            stream.submit(lambda: None, is_late, (self.mark,))
