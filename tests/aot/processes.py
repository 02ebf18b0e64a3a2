"""Whether processes run, and waiting for what they do."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for ten seconds at most."""
    for _ in range(200):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it has not come to that")


def is_alive(process: int) -> bool:
    """Whether a process runs still."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_gone(process: int) -> None:
    wait_until(lambda: not is_alive(process))


def written_number(file: Path) -> int:
    """The number that a process writes into a file, such as its own, once it is there."""
    wait_until(lambda: file.is_file() and file.read_text() != "")
    return int(file.read_text())
