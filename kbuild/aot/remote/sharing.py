"""The exchange of a build, made from what the build knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from kbuild.aot.build.cache import Cache
from kbuild.aot.build.plan import Job
from kbuild.aot.build.progress import Progress
from kbuild.aot.environment import Remote
from kbuild.aot.remote import address
from kbuild.aot.remote.exchange import Exchange, Wanted
from kbuild.aot.remote.shared import Shared
from kbuild.aot.remote.stores import load, open_store


def exchange(
    remote: Remote,
    directory: Path,
    local: Cache,
    jobs: Iterable[Job],
    request: dict[str, Any],
    progress: Progress,
) -> Exchange:
    """The exchange for the jobs that have something left to do.

    `directory` is that of the build, `local` the cache on this machine, and `request` the fields of `engine.Request`.
    Raises UsageError for a URL that is none, and where a library is missing.
    """
    shared = Shared(open_store(remote), remote, progress.message) if remote.cache else None
    engine = None
    if remote.engine:
        where = address.parse(address.ENGINE, remote.engine, address.ENGINES)
        module = load("engine", where)
        engine = module.ReapiEngine(where, remote, module.Request(**request), progress.message)
    return Exchange(directory, local, _wanted(jobs, local, engine), remote, shared, engine, progress)


def keys_of(job: Job) -> Iterator[tuple[str, bool]]:
    """The keys of a job's entries, and whether each is that of its PTX for newer GPUs."""
    yield job.identity, False
    if job.portable:
        yield job.portable, True


def _wanted(jobs: Iterable[Job], local: Cache, engine: Any) -> Iterator[Wanted]:
    """What the jobs need and this machine has not."""
    for job in jobs:
        path = PurePosixPath(job.source)
        can_travel = ".." not in path.parts and not path.is_absolute()
        for key, is_portable in keys_of(job):
            if not local.entry(key).exists():
                execute = partial(engine.execute, job, key, is_portable) if engine and can_travel else None
                yield Wanted(key, execute, is_certain=not is_portable)
