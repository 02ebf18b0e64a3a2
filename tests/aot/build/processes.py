"""Whether processes run, and waiting for what they do."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
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


def at_work(project: Path) -> dict[int, Path]:
    """The processes in a project's directory or below, but this one, and where each is: those of a build and
    of its steps."""
    found: dict[int, Path] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # It has ended.
            found[int(process.name)] = Path(os.readlink(process / "cwd"))
    project = project.resolve()
    return {
        process: folder
        for process, folder in found.items()
        if folder.is_relative_to(project) and process != os.getpid()
    }


def interruptible() -> None:
    """To be called in a new process: what a shell starts in the background, as a test run may be, has the
    interrupt ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def command_line(process: int) -> list[str]:
    """The words of a process's command; none if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_text().split("\0")
    return []
