"""Whether a build has nothing to do, found out without planning it: for a project of 10,000 variants less than a second
instead of five.

A build that has everything leaves a note: the digest of all that its plan is made from, and of the size, times and inode
of each file that it has made.

    kernels.toml, sources, compiler, tools, options ─digest─▶ request  ┐
                                                                       ├─ as noted ─▶ nothing to do
    files in the build directory ─sizes and times, digest─▶ state      ┘

Planning is pure, so equal requests have equal plans.  Files that look untouched are taken to be so, as git takes them:
a file changed by anybody has another ctime, unless the clock that stamps files has not ticked in between.  So a note
does not count that is hardly younger than the youngest file.  What is packed into a wheel is never taken on trust: it
is compared with its digest when it is read.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from kbuild.aot.build.plan import LAUNCHER, LAUNCHER_RECORD, LIBRARY_CORE, STATE, WHEEL
from kbuild.aot.files import write_if_changed
from kbuild.aot.identity import seal, unseal

FILE = f"{STATE}/done.json"
"""The note, within the build directory."""
_FOLDERS = ("package", "wheel")
"""Folders of what a build makes, besides those of architectures."""
_FILES = (WHEEL, LAUNCHER, LIBRARY_CORE, LAUNCHER_RECORD)
_TICK = 20_000_000
"""Nanoseconds: more than the clocks of local file systems take to tick."""
_SECOND = 1_000_000_000
"""The same for file systems whose times are whole seconds, which tick every two at the latest."""


@dataclass(frozen=True)
class Totals:
    """What a build has, in numbers."""

    variants: int
    """Variants asked for."""
    built: int = 0
    """Those that are built."""
    size: int = 0
    """Bytes of their cubins."""
    warned: int = 0
    """Variants that have warnings."""
    notes: tuple[str, ...] = ()
    """What the build says of its variants."""


def note(build: Path, request: str, totals: Totals) -> None:
    """Notes that the directory has everything for a request."""
    state, newest = _state(build)
    fields = {"request": request, "state": state, "newest": newest, **asdict(totals)}
    path = build / FILE
    path.unlink(missing_ok=True)  # For the file to be of now, whatever it says.
    write_if_changed(path, seal(fields))


def noted(build: Path, request: str) -> Totals | None:
    """What the directory has, if it has everything for a request; None where that is not known."""
    try:
        fields = unseal((build / FILE).read_bytes())
        if fields is None or fields.pop("request") != request:
            return None
        state, newest = _state(build)
        age = os.stat(build / FILE).st_ctime_ns - newest
    except OSError:
        return None
    tick = _TICK if newest % _SECOND else 3 * _SECOND
    if (fields.pop("state"), fields.pop("newest")) != (state, newest) or age < tick:
        return None
    return Totals(**{**fields, "notes": tuple(fields["notes"])})


def _state(build: Path) -> tuple[str, int]:
    """A digest of the names, sizes, times and inodes of what builds make, and the youngest ctime in nanoseconds."""
    hasher, newest = hashlib.sha256(), 0
    for name, status in _files(str(build)):
        newest = max(newest, status.st_ctime_ns)
        hasher.update(
            f"{name}\0{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}\n".encode(
                errors="surrogateescape"
            )
        )
    return hasher.hexdigest(), newest


def _files(build: str) -> Iterator[tuple[str, os.stat_result]]:
    """The files that builds make, in an order that depends on their names alone."""
    with os.scandir(build) as entries:
        folders = sorted(
            entry.path for entry in entries if entry.name in _FOLDERS or entry.name.startswith("sm_")
        )
    while folders:
        folder = folders.pop()
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    yield entry.path, entry.stat(follow_symlinks=False)
    for name in _FILES:
        with suppress(FileNotFoundError):
            yield name, os.lstat(os.path.join(build, name))
