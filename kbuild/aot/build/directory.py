"""The build directory: held by one build at a time, and swept of what others have left."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kbuild.aot.build.plan import STATE, Plan
from kbuild.aot.build.progress import Progress


@contextmanager
def lock(directory: Path, progress: Progress) -> Iterator[tuple[int, ...]]:
    """Holds the build directory for one build at a time; waits for the one before.

    Yields the descriptor that holds it, none on file systems that know no locks: there builds run side by
    side, which their own writes in one step and the cache survive, at the cost of work done twice.
    """
    (directory / STATE).mkdir(parents=True, exist_ok=True)
    handle = os.open(directory / STATE / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.message(f"waiting for another build in {directory}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:
            yield ()
            return
        yield (handle,)
    finally:
        os.close(handle)


def sweep(planned: Plan, directory: Path, is_whole: bool) -> None:
    """Removes what a build that was cut off left half written; after a whole plan also what it does not know."""
    wanted = {directory / output for edge in planned.edges for output in edge.outputs}
    wanted |= {directory / job.portable_ptx for job in planned.jobs if job.portable}
    wanted |= {directory / name for name, _ in planned.files}
    for base in (directory, directory / STATE / "jobs"):
        for path in base.glob("sm_*/*/*"):
            if path.suffix == ".part" or (is_whole and path not in wanted):
                path.unlink(missing_ok=True)
    for path in [*directory.glob("*/.*.part"), *(directory / STATE).glob(".launcher-*/*")]:
        path.unlink(missing_ok=True)
    for path in (directory / STATE).glob(".launcher-*"):
        path.rmdir()
