"""Compiles variants in forks of one process that has loaded the compiler already.

A process of its own keeps a crash of LLVM to its variant, but Python and the compiler's modules would take a tenth of a
second to load for each.  So a build starts one server, which loads them once; ninja's steps are tiny clients (`client.py`),
and each has the server fork a child that compiles with the client's own output:

    client ── job, its stdout and stderr ──▶ server ── fork ──▶ child: compile_variant
    client ◀── exit code, when the child has ended ── server

The server ends with the build: when the pipe that is its standard input closes.  A client that goes away, because ninja
was interrupted, takes its child along.
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
from pathlib import Path
from typing import Any

from kbuild.aot.plan import STATE

SOCKET = f"{STATE}/serve"
"""Within the build directory, and only ever named relative to it: socket paths may have 107 bytes at most."""

_LONGEST_JOB = 1 << 20
"""Bytes."""
LONGEST_COMPILE = 900
"""Seconds after which a compilation is taken to hang; the slowest known take one hundredth."""


class Server:
    """One listening socket, and the children that compile."""

    def __init__(self, listening: socket.socket, compile_job: Callable[[bytes], int]) -> None:
        self._compile_job = compile_job
        self._listening = listening
        self._children: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._woken, self._wakeup = os.pipe()

    def run(self) -> None:
        """Serves until standard input closes."""
        os.set_blocking(self._wakeup, False)
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # Only ninja answers to the keyboard; its clients going away is what ends the children here.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for readable in (self._listening, self._woken, 0):
            self._selector.register(readable, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._listening:
                    self._accept()
                elif key.fileobj == self._woken:
                    os.read(self._woken, 4096)
                    self._reap()
                elif key.fileobj == 0:
                    self._end()
                    return
                else:
                    self._client_left(key.fileobj)

    def _accept(self) -> None:
        """Takes a client's job and forks the child for it."""
        client, _ = self._listening.accept()
        job, descriptors, _, _ = socket.recv_fds(client, _LONGEST_JOB, 2)
        if len(descriptors) != 2:
            client.close()
            return
        child = os.fork()
        if child == 0:
            self._child(job, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        self._children[child] = client
        self._selector.register(client, selectors.EVENT_READ)

    def _child(self, job: bytes, descriptors: list[int]) -> None:
        """Compiles in a process group of its own, for whatever it starts to end with it."""
        code = 1
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            signal.alarm(LONGEST_COMPILE)
            os.dup2(descriptors[0], 1)
            os.dup2(descriptors[1], 2)
            code = self._compile_job(job)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)

    def _reap(self) -> None:
        while self._children:
            child, status = os.waitpid(-1, os.WNOHANG)
            if child == 0:
                return
            client = self._children.pop(child)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)  # Whatever it started and left behind, such as a ptxas that hangs.
            code = os.waitstatus_to_exitcode(status)
            with suppress(OSError):
                client.send(bytes([code if code >= 0 else 128 - code]))
            with suppress(KeyError):  # It may have left before.
                self._selector.unregister(client)
            client.close()

    def _client_left(self, client: Any) -> None:
        for child, known in self._children.items():
            if known is client:
                self._kill(child)
        self._selector.unregister(client)

    def _end(self) -> None:
        for child in self._children:
            self._kill(child)

    def _kill(self, child: int) -> None:
        # The group too, which is not there yet if the child has only just been forked.
        for kill in (os.kill, os.killpg):
            with suppress(ProcessLookupError, PermissionError):
                kill(child, signal.SIGKILL)


def main(arguments: list[str]) -> int:
    """Serves on the socket whose descriptor is named, in the build directory; the exit code."""
    from kbuild.aot import compile_variant  # Here, for `ninja.py` to know the socket's name without the compiler's start.

    settings = json.loads(Path(STATE, "settings.json").read_bytes())
    sys.path.extend(settings.get("path", []))
    with suppress(Exception):  # What is wrong with the compiler, each job tells by itself.
        for reference in (settings["compiler"], settings["source_digest"]):
            compile_variant.resolve(reference)
        from kbuild.compiler.backend.cubin import ptxas_version  # Here, to load it in the server alone.

        ptxas_version(settings["ptxas"])  # It is remembered, so that no child has to ask ptxas again.
    gc.freeze()
    with socket.socket(fileno=int(arguments[0])) as listening:
        Server(listening, compile_variant.run).run()
    return 0
