"""How a step asks the build that it belongs to for what other machines have made, where that shares anything
(`aot/remote/exchange.py`).

Nothing is imported here that a step does not load anyway but `socket`.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from kbuild.aot.build.plan import STATE

SOCKET = f"{STATE}/exchange"
"""Within the build directory."""
HAVE = b"have"
COMPILE = b"compile"


def want(build: Path, key: str) -> bool:
    """Waits until the entry of this key is in the cache, or is to be made here; returns whether it is there.

    That never fails: without an answer the step does the work itself.
    """
    return _said(build, f"want {key}\n") == HAVE


def made(build: Path, key: str) -> None:
    """Says that the entry of this key has been made, and is in the cache."""
    _said(build, f"made {key}\n")


def _said(build: Path, line: str) -> bytes:
    try:
        directory = os.open(build, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.connect(f"/proc/self/fd/{directory}/{SOCKET}")  # However long the path is.
                connection.sendall(line.encode())
                return connection.recv(64).strip()
        finally:
            os.close(directory)
    except OSError:
        return b""
