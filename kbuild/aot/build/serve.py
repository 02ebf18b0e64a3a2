"""Compiles variants in a few processes that have loaded the compiler already.

A separate process for each variant would confine a crash of LLVM to it, but loading Python and the compiler's
modules would take a tenth of a second every time.  So a build starts one server, which loads them once; ninja's
steps are tiny clients (`client.py`), for each of which the server has a worker compile, with the client's own
output:

    client ── job, its stdout and stderr ──▶ server ──▶ worker: step, one job after another
    client ◀── exit code ── server ◀── exit code, or the end of the worker's connection

Workers are forked when a job finds none idle; one more is forked at once, and loads what the last step takes
while the others compile, for that step runs alone.  One that crashes fails the variant it was compiling, and is not
replaced before another is needed.  The server ends with the build: when the pipe that is its standard input
closes.  When a client goes away, because ninja was interrupted, its worker is ended.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

from kbuild.aot.build.plan import STATE, is_last

SOCKET = f"{STATE}/serve"
"""Within the build directory, and only ever named relative to it: socket paths may have 107 bytes at most."""

_LONGEST_JOB = 1 << 20
"""Bytes."""
_OVER = bytes([128 + signal.SIGTERM])
"""What a client receives when the build has ended."""
LONGEST_COMPILE = 900
"""Seconds after which a compilation is taken to hang; the slowest known take one hundredth."""


@dataclass(eq=False)
class Worker:
    """A process that compiles."""

    process: int
    """Its number, which is that of its process group as well."""
    connection: socket.socket
    """Jobs go there, exit codes come back."""
    client: socket.socket | None = None
    """The client that waits for its present job; None when it is idle."""


class Server:
    """One listening socket, and the workers that compile."""

    def __init__(
        self,
        listening: socket.socket,
        run_job: Callable[[bytes], int],
        prepare: Callable[[], None] | None = None,
    ) -> None:
        """`run_job` gives the exit code of a job; `prepare`, if given, is called in the worker that is for
        the last one."""
        self._run_job = run_job
        self._prepare = prepare
        self._for_last: Worker | None = None
        self._listening = listening
        self._workers: list[Worker] = []
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        """Serves until standard input closes."""
        # Only ninja answers to the keyboard; its clients going away is what ends the workers here.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._selector.register(self._listening, selectors.EVENT_READ, self._accept)
        self._selector.register(0, selectors.EVENT_READ)
        if self._prepare is not None:
            self._for_last = self._start(self._prepare)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == 0:
                    self._end()
                    return
                key.data()

    def _end(self) -> None:
        """Ends all workers and notifies their clients, which would otherwise do the work themselves."""
        for worker in self._workers:  # All first, for freeing their memory takes a while.
            self._signal(worker)
            if worker.client is not None:
                with suppress(OSError):
                    worker.client.send(_OVER)
        for worker in list(self._workers):
            self._buried(worker)

    def _accept(self) -> None:
        """Takes a client's job and passes it to a worker."""
        # First the worker: one that is started now must not inherit what comes with the job.
        idle = [worker for worker in self._workers if worker.client is None]
        worker = next((worker for worker in idle if worker is not self._for_last), None) or self._start()
        client, _ = self._listening.accept()
        job, descriptors, _, _ = socket.recv_fds(client, _LONGEST_JOB, 2)
        if is_last(job) and self._for_last in idle:
            worker = self._for_last
        if len(descriptors) == 2:
            worker.client = client
            self._selector.register(client, selectors.EVENT_READ, partial(self._client_left, worker, client))
            with suppress(OSError):  # A worker that has died says so by its connection.
                socket.send_fds(worker.connection, [job], descriptors)
        else:
            client.close()
        for descriptor in descriptors:
            os.close(descriptor)

    def _start(self, prepare: Callable[[], None] = lambda: None) -> Worker:
        ours, theirs = socket.socketpair()
        process = os.fork()
        if process == 0:
            ours.close()
            self._work(theirs, prepare)
        theirs.close()
        worker = Worker(process, ours)
        self._workers.append(worker)
        self._selector.register(ours, selectors.EVENT_READ, partial(self._answered, worker))
        return worker

    def _work(self, connection: socket.socket, prepare: Callable[[], None]) -> NoReturn:
        """Compiles, in a process group of its own, so that all it starts ends with it."""
        try:
            os.setsid()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            # Workers must not hold the server's connections: the end of a connection is how each notices the
            # other's death.
            for key in list(self._selector.get_map().values()):
                os.close(key.fd)
            nothing = os.open(os.devnull, os.O_RDWR)
            with suppress(Exception):  # The job reports what is wrong.
                prepare()
            while True:
                job, descriptors, _, _ = socket.recv_fds(connection, _LONGEST_JOB, 2)
                if not job:
                    os._exit(0)
                for output, descriptor in zip((1, 2), descriptors):
                    os.dup2(descriptor, output)
                    os.close(descriptor)
                signal.alarm(LONGEST_COMPILE)
                code = self._run_job(job)
                signal.alarm(0)
                sys.stdout.flush()
                sys.stderr.flush()
                for output in (1, 2):  # ninja waits until all writers have closed these.
                    os.dup2(nothing, output)
                connection.send(bytes([code]))
        finally:
            os._exit(1)

    def _answered(self, worker: Worker) -> None:
        """Passes the worker's exit code to its client; that of the process, if it has ended."""
        if worker not in self._workers:  # It may just have been killed.
            return
        code = b""
        with suppress(ConnectionError):
            code = worker.connection.recv(1)
        code = code or self._buried(worker)
        client, worker.client = worker.client, None
        if client is not None:
            self._selector.unregister(client)
            with suppress(OSError):
                client.send(code)
            client.close()

    def _buried(self, worker: Worker) -> bytes:
        self._selector.unregister(worker.connection)
        worker.connection.close()
        self._workers.remove(worker)
        _, status = os.waitpid(worker.process, 0)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(
                worker.process, signal.SIGKILL
            )  # Whatever it started and left behind, such as a ptxas that hangs.
        code = os.waitstatus_to_exitcode(status)
        return bytes([code if code >= 0 else 128 - code])

    def _client_left(self, worker: Worker, client: socket.socket) -> None:
        if worker.client is client:  # It may just have been answered.
            self._selector.unregister(client)
            client.close()
            self._kill(worker)

    def _kill(self, worker: Worker) -> None:
        self._signal(worker)
        self._buried(worker)

    def _signal(self, worker: Worker) -> None:
        # The group too, which is not there yet if the worker has only just been forked.
        for kill in (os.kill, os.killpg):
            with suppress(ProcessLookupError, PermissionError):
                kill(worker.process, signal.SIGKILL)


def main(arguments: list[str]) -> int:
    """Serves on the socket whose descriptor is named, in the build directory; the exit code."""
    # Here, for `service.py` to know the socket's name without their start.
    from kbuild.aot.build import (
        compile_variant,
        step,
    )

    settings = json.loads(Path(STATE, "settings.json").read_bytes())
    sys.path.extend(settings.get("path", []))
    with suppress(Exception):  # Each job reports by itself what is wrong with the compiler.
        for reference in (settings["compiler"], settings["source_digest"]):
            compile_variant.resolve(reference)
    gc.freeze()
    with socket.socket(fileno=int(arguments[0])) as listening:
        Server(listening, step.run, step.prepare if settings["package"] else None).run()
    return 0
