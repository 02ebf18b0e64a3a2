"""What builds were made of and how they went, kept beside what they made: `kbuild why` and `kbuild report` read it.

    build/.kbuild/history      one JSON value a line, the oldest first:

    {"with": {…}}       kbuild, its compiler's files and the tools; named by the digest of all that
    {"source": {…}}     the text of a kernel and all that it reaches; named by its digest
    {"variant": {…}}    a variant that a build made: its job, what it was made with, by which build
    {"build": {…}}      a build that ran steps: when, and each step's time

Nothing that is built depends on it.  Whatever a line lacks, a build that was cut off for one, is as if it had
never been written; it may be deleted at any time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from kbuild.aot.build.plan import STATE
from kbuild.aot.files import write_atomic
from kbuild.aot.manifest.expand import Variant

FILE = f"{STATE}/history"
"""Within the build directory."""
BUILDS = 20
"""Builds that are kept when the file is written anew."""
BUILDS_WITH_STEPS = 5
"""Of these, builds of which every step is kept."""
DECORATOR = "@"
"""Among the values of a function: what its decorator makes of it."""
_SLACK = 2000
"""Lines that nobody needs any more before the file is written anew."""


@dataclass(frozen=True)
class Circumstances:
    """What all variants of a build are made with."""

    id: str
    kbuild: str
    """Version of kbuild."""
    compiler: str
    """Digest of its compiler."""
    format: int
    """`identity.FORMAT`."""
    files: Mapping[str, str]
    """Files of the compiler, with the beginnings of their digests."""
    tools: Mapping[str, str]
    """Digests of ptxas and LLVM."""
    versions: Mapping[str, str]
    """Their versions."""


@dataclass(frozen=True)
class SourcePart:
    """A function that a kernel is or reaches; a whole file where it is not Python."""

    file: str
    """Relative to the project, where it is in it."""
    name: str
    """Empty for a file."""
    line: int
    """That of the first line of `text`."""
    text: str
    values: Mapping[str, str] = field(default_factory=dict)
    """Names that it takes from its module, and what they stand for."""


@dataclass(frozen=True)
class Made:
    """A variant that a build made."""

    name: str
    build: int
    """Number of the build."""
    how: str
    """`compiled` or `cache`; empty where that is not known."""
    made_with: str
    """`id` of the circumstances."""
    job: Mapping[str, Any]
    """The fields of `Job.encode`."""

    @cached_property
    def variant(self) -> Variant:
        """The variant as its own text says."""
        return Variant.parse(str(self.job["variant"]))

    @property
    def identity(self) -> tuple[object, ...]:
        """What the files of the variant depend on."""
        return tuple(
            self.job.get(name, "") for name in ("identity", "portable", "source", "function", "variant")
        )


@dataclass(frozen=True)
class Step:
    """A step of a build."""

    what: str
    """The variant, or what else the step makes."""
    kind: str
    """`compile` for variants, `launcher`, `package`."""
    start: float | None
    """Seconds since the build's steps began; None where that is not known, as of steps that failed."""
    end: float
    how: str
    """`compiled`, `cache` or `failed`."""
    notes: tuple[str, ...] = ()
    """What the step said of where it ran, or where it took its result from."""


@dataclass(frozen=True)
class BuildRun:
    """A build that ran steps."""

    number: int
    ended: float
    """Seconds since 1970."""
    jobs: int
    """Variants of its plan."""
    steps: tuple[Step, ...]

    @property
    def seconds(self) -> float:
        """From the first step's start to the last one's end."""
        return max((step.end for step in self.steps), default=0.0)


@dataclass
class History:
    """All that is known."""

    circumstances: dict[str, Circumstances] = field(default_factory=dict)
    sources: dict[str, tuple[SourcePart, ...]] = field(default_factory=dict)
    made: dict[str, list[Made]] = field(default_factory=dict)
    """By name of the variant, the latest last."""
    builds: list[BuildRun] = field(default_factory=list)
    """The latest last."""
    lines: int = 0
    """Lines that were read."""

    def last(self, name: str) -> Made | None:
        """How a variant was made last."""
        return self.made[name][-1] if name in self.made else None

    def before(self, name: str) -> Made | None:
        """How it was made before that."""
        return self.made[name][-2] if len(self.made.get(name, ())) > 1 else None

    def take(self, line: Mapping[str, Any]) -> None:
        """Adds what a line says; KeyError, TypeError or ValueError if it is not one."""
        ((kind, fields),) = line.items()
        if kind == "with":
            self.circumstances[fields["id"]] = Circumstances(**fields)
        elif kind == "source":
            self.sources[fields["digest"]] = tuple(SourcePart(**part) for part in fields["parts"])
        elif kind == "variant":
            self.made.setdefault(fields["name"], []).append(Made(**fields))
        elif kind == "build":
            steps = tuple(Step(*words, notes=tuple(notes)) for *words, notes in fields.pop("steps"))
            self.builds.append(BuildRun(**fields, steps=steps))

    @property
    def is_wasteful(self) -> bool:
        """Whether most lines of the file say what is not needed any more."""
        kept = self.trimmed(self.made)
        tables = (kept.circumstances, kept.sources, kept.builds, *kept.made.values())
        return self.lines > 2 * sum(map(len, tables)) + _SLACK

    def trimmed(self, names: Iterable[str]) -> History:
        """What is worth keeping: the last two states of the variants of these names, and of those that the kept
        builds made; the last builds; and what all these refer to."""
        builds = [
            build if age < BUILDS_WITH_STEPS else BuildRun(build.number, build.ended, build.jobs, ())
            for age, build in enumerate(reversed(self.builds[-BUILDS:]))
        ][::-1]
        oldest = builds[0].number if builds else 0
        wanted = set(names)
        made = {
            name: entries[-2:]
            for name, entries in self.made.items()
            if name in wanted or entries[-1].build >= oldest
        }
        entries = [entry for each in made.values() for entry in each]
        used = {entry.made_with for entry in entries}
        texts = {entry.job.get("source_digest") for entry in entries}
        return History(
            {id: found for id, found in self.circumstances.items() if id in used},
            {digest: parts for digest, parts in self.sources.items() if digest in texts},
            made,
            builds,
        )

    def encode(self) -> bytes:
        """All of it, as lines."""
        found: list[bytes] = [encoded(one) for one in self.circumstances.values()]
        found += [encoded_source(digest, parts) for digest, parts in self.sources.items()]
        found += [encoded(entry) for entries in self.made.values() for entry in entries]
        found += [encoded(build) for build in self.builds]
        return b"".join(found)


def encoded(value: Circumstances | Made | BuildRun) -> bytes:
    """A value as a line."""
    if isinstance(value, BuildRun):
        fields = {name: getattr(value, name) for name in ("number", "ended", "jobs")}
        steps = [
            [step.what, step.kind, step.start, step.end, step.how, list(step.notes)] for step in value.steps
        ]
        return _line("build", {**fields, "steps": steps})
    return _line("variant" if isinstance(value, Made) else "with", asdict(value))


def encoded_source(digest: str, parts: Iterable[SourcePart]) -> bytes:
    """The text of a kernel as a line."""
    return _line("source", {"digest": digest, "parts": [asdict(part) for part in parts]})


def _line(kind: str, fields: Mapping[str, Any]) -> bytes:
    return json.dumps({kind: fields}, separators=(",", ":")).encode() + b"\n"


def read(build: Path) -> History:
    """The history in a build directory; lines that are damaged count as absent."""
    history = History()
    with suppress(OSError):
        for line in (build / FILE).read_bytes().splitlines():
            history.lines += 1
            with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
                history.take(json.loads(line))
    return history


def append(build: Path, lines: Iterable[bytes]) -> None:
    """Adds lines; whoever is cut off here leaves one that is damaged, which the next one ends."""
    with (build / FILE).open("a+b") as stream:
        size = stream.seek(0, 2)
        if size:
            stream.seek(size - 1)
        is_open = size > 0 and stream.read(1) != b"\n"
        stream.write(b"\n" * is_open + b"".join(lines))


def rewrite(build: Path, history: History) -> None:
    """Writes the history anew, in one step."""
    write_atomic(build / FILE, history.encode())
