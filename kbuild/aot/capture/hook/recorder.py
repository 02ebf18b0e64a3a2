"""The records of one process, written as they are made.

A file of JSON lines for each process, whole lines appended: a process that is killed leaves what it has seen.  One that is
forked begins a file of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from kbuild.aot.capture.hook.decorators import chosen_names, is_tuner, recorded_key
from kbuild.aot.capture.hook.origin import origin
from kbuild.aot.capture.hook.specialization import launch_values, options_of, specialization

SCHEMA = 1
"""Raised when the meaning of a line changes."""
MOST_VARIANTS = 20_000
"""Variants that one process records."""
MOST_LAUNCHES = 12
"""Launches that it records of a variant, besides those that a tuner chose for."""
MOST_KEYS = 2_000
"""Keys of a tuner for which it records the choice."""


class Seen:
    """A compiled kernel that was launched, and how often."""

    __slots__ = ("choice", "count", "id", "kernel", "launches", "next", "written")

    def __init__(self, kernel: Any, name: str) -> None:
        self.kernel = kernel  # So that no other gets its identity.
        self.id = name
        self.count = 0
        self.next = 1
        """The count at which a launch is looked at again: 1, 2, 4, 8, …"""
        self.written = 0
        self.launches: set[str] = set()
        self.choice = False
        """Whether the next launch is the first for a key of a tuner."""


class Recorder:
    """What this process has launched."""

    def __init__(self, folder: str, facts: Mapping[str, Any]) -> None:
        self.seen: dict[int, Seen] = {}
        self._folder = folder
        self._facts = dict(facts)
        self._lock = threading.RLock()
        self._handle = -1
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        """With a file of its own, as a process has after its fork, too."""
        self._lock = threading.RLock()  # That of the parent may be held by a thread that is not here.
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1
        self._written: set[str] = set()
        self._names: dict[int, tuple[Any, str]] = {}
        self._dropped = 0
        self.seen.clear()

    def note(
        self,
        kernel: Any,
        function: Any,
        launch: tuple[Any, Any, Any],
        decorators: Sequence[Any],
        near: bool = False,
    ) -> None:
        """A launch of a compiled kernel, the first or one at which to look again: `launch` is its grid, None for a
        compilation alone, with its arguments and keywords; `decorators` are those that it went through; `near` says that a
        package answered it with the choice of a tuner for another size."""
        grid, args, kwargs = launch
        with self._lock:
            entry = self.seen.get(id(kernel))
            if entry is None:
                if len(self.seen) >= MOST_VARIANTS:
                    self._drop()
                    return
                self.seen[id(kernel)] = entry = Seen(
                    kernel, self._variant(kernel, function, kwargs, decorators)
                )
                entry.count = int(grid is not None)
            if grid is None:
                return
            entry.next = max(entry.count * 2, 1)
            made: dict[str, Any] = {
                "grid": [int(size) for size in (grid if isinstance(grid, tuple | list) else (grid,))],
                "values": launch_values(function, args, kwargs),
            }
            if key := recorded_key(decorators, function, args, kwargs):
                made["key"] = key
            if near:
                made["near"], entry.choice = True, True
            self._launch(entry, made)

    def _launch(self, entry: Seen, made: dict[str, Any]) -> None:
        text = json.dumps(made, sort_keys=True)
        is_new = text not in entry.launches
        room = MOST_LAUNCHES if not entry.choice else MOST_KEYS
        if is_new and len(entry.launches) < room:
            entry.launches.add(text)
        else:
            made = {}
        entry.choice = False
        entry.written = entry.count
        self._write({"kind": "launch", "of": entry.id, "count": entry.count, **made})

    def _variant(
        self, kernel: Any, function: Any, kwargs: Mapping[str, Any], decorators: Sequence[Any]
    ) -> str:
        """Writes a variant, and its kernel before it; the variant's name."""
        made = {
            "kind": "variant",
            "of": self._kernel(function),
            **specialization(kernel),
            "options": options_of(function, kwargs),
        }
        for decorator in decorators:
            made["tuned" if is_tuner(decorator) else "derived"] = chosen_names(decorator)
        return self._once(made)

    def _kernel(self, function: Any) -> str:
        known = self._names.get(id(function))
        if known is None:
            name = self._once({"kind": "kernel", **origin(function)})
            self._names[id(function)] = known = (function, name)
        return known[1]

    def _once(self, made: dict[str, Any]) -> str:
        """Writes a line that other lines refer to, the first time that it is made; its name."""
        name = hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()[:20]
        if name not in self._written:
            self._written.add(name)
            self._write({**made, "id": name})
        return name

    def _drop(self) -> None:
        self._dropped += 1
        if self._dropped & (self._dropped - 1) == 0:
            self._write({"kind": "dropped", "count": self._dropped})

    def failed(self, function: Any, error: Exception) -> None:
        """A launch that could not be recorded, which is no reason for it to fail."""
        with self._lock, suppress(OSError):  # Such as a full disk, for which there is no place to say it.
            name = getattr(function, "__qualname__", "") or getattr(function, "__name__", "")
            self._once(
                {"kind": "failed", "name": str(name), "error": f"{type(error).__name__}: {error}"[:300]}
            )

    def close(self) -> None:
        """Writes the counts that are not written yet."""
        with self._lock, suppress(OSError):
            for entry in self.seen.values():
                if entry.written != entry.count:
                    entry.written = entry.count
                    self._write({"kind": "launch", "of": entry.id, "count": entry.count})

    def _write(self, made: Mapping[str, Any]) -> None:
        if self._handle < 0:
            os.makedirs(self._folder, exist_ok=True)
            name = f"{os.getpid()}-{os.urandom(6).hex()}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._handle = os.open(os.path.join(self._folder, f"{name}.jsonl"), flags, 0o644)
            self._append({"kbuild": "capture", "schema": SCHEMA, "process": name, **self._facts})
        self._append(made)

    def _append(self, made: Mapping[str, Any]) -> None:
        data = json.dumps(made, separators=(",", ":")).encode() + b"\n"
        while data:
            data = data[os.write(self._handle, data) :]
