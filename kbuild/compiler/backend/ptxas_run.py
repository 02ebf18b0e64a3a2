"""Runs of ptxas, which may begin while the PTX is still being made."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from io import FileIO
from typing import NamedTuple

from kbuild.compiler.backend.large_pages import environment_of_programs
from kbuild.errors import ToolError


class Command(NamedTuple):
    """A ptxas and what it is told, except for the files."""

    tool: str
    arch: str
    options: tuple[str, ...] = ()

    def on(self, source: int, output: int) -> list[str]:
        """The command for two open files."""
        return [
            self.tool,
            "-v",
            f"-arch={self.arch}",
            "--warn-on-spills",
            *self.options,
            path_of(source),
            "-o",
            path_of(output),
        ]


def path_of(file: int) -> str:
    """The path of an open file, by the number of this process: a script in the place of ptxas may not pass on open files."""
    return f"/proc/{os.getpid()}/fd/{file}"


def in_memory(name: str) -> FileIO:
    """A file without a place on disk, and so without the modules that find one, which take 5 ms to load."""
    return FileIO(os.memfd_create(name), "r+")


def started(command: list[str]) -> subprocess.Popen[str]:
    """A program that has been started.  Raises `ToolError` where it cannot be."""
    try:
        # Whatever the language and the encoding of the machine: what cannot be read is not a reason to stop.
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            env=environment_of_programs(),
        )
    except OSError as error:
        name = os.path.basename(command[0])
        raise ToolError(
            f"cannot run {name} ({command[0]}): {error.strerror}", help="set KBUILD_PTXAS to a ptxas"
        ) from error


def run(command: list[str]) -> tuple[int, str]:
    """The exit code of a program and what it printed, to either stream."""
    with started(command) as process:
        printed = process.communicate()
    return process.returncode, "".join(printed)


_OPEN_PIPES: set[int] = set()
"""Those that a ptxas of this process waits at: it would wait for ever if forks of this process kept them open."""


def _close_in_fork() -> None:
    for pipe in _OPEN_PIPES:
        os.close(pipe)
    _OPEN_PIPES.clear()


os.register_at_fork(after_in_child=_close_in_fork)


class EarlyRun:
    """A ptxas that loads while its source is being made: half of the time that it takes for a small kernel.

    What it finds as its source is a pipe, at which it waits.  It reads its source twice: when the text is there, a file takes
    the pipe's place, and then the text goes through the pipe.
    """

    def __init__(self, command: Command) -> None:
        self.command = command
        self._source, self._pipe = os.pipe()
        _OPEN_PIPES.add(self._pipe)
        self._output = in_memory("kernel.cubin")
        self._process: subprocess.Popen[str] | None = None
        try:
            self._process = started(command.on(self._source, self._output.fileno()))
        except ToolError:
            self.end()
            raise

    def finish(self, ptx: str) -> tuple[bytes, str] | None:
        """The cubin of a text and ptxas's messages.  None where there is no cubin, or has been asked for one before: an
        ordinary run has the error, and another program may read its source differently."""
        if self._process is None:
            return None
        text = ptx.encode()
        with in_memory("kernel.ptx") as file:
            file.write(text)
            os.dup2(file.fileno(), self._source, inheritable=False)
        with suppress(BrokenPipeError), open(self._pipe, "wb", closefd=False) as pipe:
            pipe.write(text)
        self._close_pipe()
        report = "".join(self._process.communicate()).replace(path_of(self._source), "kernel.ptx")
        cubin = b"" if self._process.returncode else self._output.read()
        self.end()
        return (cubin, report) if cubin else None

    def end(self) -> None:
        """Stop it, if it is still waiting."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            process.communicate()
        self._close_pipe()
        if not self._output.closed:
            self._output.close()
            os.close(self._source)

    def _close_pipe(self) -> None:
        if self._pipe in _OPEN_PIPES:
            _OPEN_PIPES.remove(self._pipe)
            os.close(self._pipe)
