"""The processes that a build starts beside ninja: the server of its steps, and before that the C compiler,
for their client.

Both take as long to be ready as planning takes, so they start as soon as they are known to pay off.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from kbuild.aot.artifact.platforms import elf_machine, this_machine
from kbuild.aot.build import records
from kbuild.aot.build.plan import STATE, STEP
from kbuild.aot.build.serve import SOCKET
from kbuild.aot.files import write_if_changed
from kbuild.aot.identity import digest

_SECONDS_TO_STOP = 10
_CLIENT = f"{STATE}/client"
_WORTH_COMPILING = 12
"""With this many steps they save more time than compiling their client takes."""


class Service:
    """What does the steps of one build; ends with its context."""

    def __init__(
        self,
        build: Path,
        python: str,
        environment: Mapping[str, str],
        cc: Sequence[str],
        inherit: Sequence[int] = (),
    ) -> None:
        """`cc` is the C compiler with its first arguments, empty where there is none.

        `inherit` are file descriptors that these processes keep open: a process that still writes in the directory when
        the build has been killed thus holds its lock, and the next build waits for it.
        """
        self._inherit = tuple(inherit)
        self._build, self._python, self._environment, self._cc = build, python, environment, cc
        self._server: subprocess.Popen[bytes] | None = None
        self._compiling: subprocess.Popen[bytes] | None = None
        self._directory = os.open(build, os.O_RDONLY)
        self._socket = (
            f"/proc/self/fd/{self._directory}/{SOCKET}"  # However long the directory's own path is.
        )

    def __enter__(self) -> Service:
        return self

    def expect(self, steps: int) -> None:
        """Starts the processes that pay off for so many steps and do not run yet."""
        if steps > 1 and self._server is None:
            self._server = self._serve()
        if steps >= _WORTH_COMPILING and self._cc and self._compiling is None and self._old_client() is None:
            command = [*self._cc, "-O1", str(_source("client.c")), "-o", f"{_CLIENT}.part"]
            nothing = subprocess.DEVNULL
            with suppress(OSError):
                self._compiling = subprocess.Popen(
                    command,
                    cwd=self._build,
                    stdin=nothing,
                    stdout=nothing,
                    stderr=nothing,
                    pass_fds=self._inherit,
                )

    def get_ready(self) -> None:
        """Has the steps run the client in C, which starts ten times as fast, where there is one.

        Steps run the command written here, so that their own command, by which ninja identifies them, never
        changes.
        """
        program = self._build / _CLIENT
        if self._compiling is not None and self._compiling.wait() == 0:
            with suppress(OSError):
                os.replace(f"{program}.part", program)
                records.write(self._build, f"{_CLIENT}.json", {_CLIENT: program.read_bytes()}, self._stamp())
        words = [self._python, "-S", "-I", str(_source("client.py"))]
        # Programs may not run from every directory, and CC may make them for another machine.
        if self._old_client() is not None and os.access(program, os.X_OK) and _is_of_this_machine(program):
            words = [f"./{_CLIENT}", self._python]
        write_if_changed(self._build / STEP, f"exec {shlex.join(words)}\n".encode())

    def drop_client(self) -> None:
        """Has the steps run the client in Python, which needs no file in the build directory."""
        for name in (_CLIENT, f"{_CLIENT}.json"):
            (self._build / name).unlink(missing_ok=True)
        self._compiling = None
        self.get_ready()

    def _old_client(self) -> Path | None:
        """The client in C, if it is there as it was compiled, from this source and by this compiler."""
        return (
            self._build / _CLIENT
            if records.read(self._build, f"{_CLIENT}.json", self._stamp()) is not None
            else None
        )

    def _stamp(self) -> str:
        return digest([list(self._cc), _source("client.c").read_text()])

    def _serve(self) -> subprocess.Popen[bytes]:
        """Starts the server (`serve.py`); steps wait for it from the start."""
        with suppress(FileNotFoundError):
            os.unlink(self._socket)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            listening.bind(self._socket)
            listening.listen(1024)
            return subprocess.Popen(
                [self._python, "-m", "kbuild", "@serve", str(listening.fileno())],
                cwd=self._build,
                env=dict(self._environment),
                stdin=subprocess.PIPE,
                pass_fds=(listening.fileno(), *self._inherit),
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._compiling is not None:
            self._compiling.wait()
        if self._server is not None:
            assert self._server.stdin is not None
            self._server.stdin.close()
            try:
                self._server.wait(_SECONDS_TO_STOP)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
            with suppress(FileNotFoundError):
                os.unlink(self._socket)
        os.close(self._directory)


def _source(name: str) -> Path:
    return Path(__file__).with_name(name)


def _is_of_this_machine(program: Path) -> bool:
    with program.open("rb") as stream, suppress(ValueError):
        return elf_machine(stream.read(64)) == this_machine()
    return True
