"""Captures as values: read from files of JSON lines, joined, and written as one file.

    {"kbuild": "capture", "schema": 1, "process": "812-6f1c…", "triton": "3.6.0", "python": "3.11.7", "device": "sm_90"}
    {"kind": "kernel", "id": "a29816c3…", "module": "lib.ops", "name": "add_kernel", "digest": "18db…", "parts": […], …}
    {"kind": "variant", "id": "6768e499…", "of": "a29816c3…", "args": {"x": "*fp16:16", "n": "i32"}, "constexprs": {…}, …}
    {"kind": "launch", "of": "6768e499…", "count": 2, "grid": [4], "values": {"n": 4096, …}, "key": {…}}

Kernels and variants go by digests of what they are, so that files join by their names.  The count of a launch is that of
its variant in the process so far.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from kbuild.aot.capture.hook.recorder import MOST_KEYS, MOST_LAUNCHES, SCHEMA
from kbuild.aot.files import write_atomic
from kbuild.errors import Loc, ManifestError, shown_path


@dataclass(frozen=True)
class Part:
    """A function that a kernel is or reaches."""

    module: str
    name: str
    """Its qualified name."""
    file: str
    """Its file, below the folder that its module was imported from."""
    line: int
    text: str
    """Its source from `def` on; empty where there was none, or too much."""
    values: Mapping[str, Any]
    """The constants that it takes from outside, by the names that it has for them, as `hook/plain.py` writes values."""
    kind: str
    """The class of the object: `JITFunction`, `ConstexprFunction`, `function`."""
    imports: Mapping[str, str]
    """Modules of the language that it names, and their members as `module:name`."""
    calls: Mapping[str, str]
    """Functions that it names, as `module:name`, by the names that it has for them."""


@dataclass(frozen=True)
class CapturedKernel:
    """A kernel that was launched."""

    id: str
    module: str
    name: str
    """Its qualified name: `make.<locals>.kernel` for one within a function."""
    digest: str
    """Digest of its text and of all that it reaches, as `text.py` makes it."""
    params: tuple[tuple[str, bool], ...]
    """Its parameters in order: name, and whether it is a constexpr."""
    defaults: Mapping[str, Any]
    """Defaults of parameters, by name."""
    is_gluon: bool
    parts: tuple[Part, ...]
    """What it is made of; itself first."""


@dataclass
class CapturedVariant:
    """One specialisation that a library asked for."""

    id: str
    kernel: str
    """The `id` of its kernel."""
    args: Mapping[str, Any]
    """Types and hints of arguments, as `"*fp16:16"`; lists for tuples, `"none"` for None."""
    constexprs: Mapping[str, Any]
    """Compile-time values, as `hook/plain.py` writes them."""
    options: Mapping[str, Any]
    """Keywords of the launch that are no parameters, such as `num_warps`."""
    tuned: tuple[str, ...]
    """Names whose values `@triton.autotune` chose."""
    derived: tuple[str, ...]
    """Names whose values `@triton.heuristics` computed."""
    count: int = 0
    """Launches."""
    launches: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """Some of them: `grid`, `values` of arguments, and the `key` that a tuner chose by."""


@dataclass
class Capture:
    """All that some runs have asked for."""

    kernels: dict[str, CapturedKernel] = field(default_factory=dict[str, CapturedKernel])
    variants: dict[str, CapturedVariant] = field(default_factory=dict[str, CapturedVariant])
    processes: dict[str, None] = field(default_factory=dict[str, None])
    """Names of the processes whose launches are counted."""
    facts: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Versions of Triton and Python, and devices."""
    failed: dict[str, str] = field(default_factory=dict[str, str])
    """Kernels with launches that could not be recorded, and why."""
    dropped: int = 0
    """Launches of variants beyond those that a process records."""
    lines: dict[str, str] = field(default_factory=dict[str, str])
    """The file and line of each variant, for messages."""

    @property
    def launches(self) -> int:
        """How many launches were seen."""
        return sum(variant.count for variant in self.variants.values())


def read_captures(paths: Iterable[Path]) -> Capture:
    """Files, and all `*.jsonl` of folders, joined.  Raises ManifestError, with the line, for what is no capture."""
    found = Capture()
    for path in paths:
        files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        if not files:
            raise ManifestError(f"{shown_path(str(path))}: no captures: expected files that end in .jsonl")
        for file in files:
            _read(found, file)
    return found


def _read(capture: Capture, file: Path) -> None:
    display = shown_path(str(file))
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ManifestError(f"{display}: {error.strerror or error}") from None
    block: _Block | None = None
    lines = data.split(b"\n")
    whole = len(lines) - 1
    for number, line in enumerate(lines if lines[-1] else lines[:-1], 1):
        try:
            made = json.loads(line)
            if made.get("kbuild") == "capture":
                block = _Block(capture, made)
            elif block is None:
                raise ValueError
            else:
                block.add(made, f"{display}:{number}")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            if number > whole:
                break  # A process was killed while it wrote.
            raise ManifestError("not a line of kbuild capture", Loc(str(file), number)) from None
        except _OtherSchema as error:
            raise ManifestError(
                f"a capture of schema {error}, and this kbuild reads schema {SCHEMA}",
                Loc(str(file), number),
                help="capture again with this kbuild, or import with the one that captured",
            ) from None
    if block is None and data:
        raise ManifestError("not a capture: its first line is not that of kbuild capture", Loc(str(file), 1))


class _OtherSchema(Exception):
    """A capture of another version of the format."""


class _Block:
    """The lines that follow one header."""

    def __init__(self, capture: Capture, header: Mapping[str, Any]) -> None:
        if header["schema"] != SCHEMA:
            raise _OtherSchema(header["schema"])
        self._capture = capture
        self._counts: dict[str, int] = {}
        names = header.get("processes") or [header["process"]]
        self._is_new = not capture.processes.keys() >= set(names)
        capture.processes |= dict.fromkeys(names)
        for fact in ("triton", "python", "device"):
            known = capture.facts.setdefault(fact, [])
            texts = header.get(fact, "")
            for text in texts if isinstance(texts, list) else [texts]:
                if text and text not in known:
                    known.append(str(text))

    def add(self, made: Mapping[str, Any], place: str) -> None:
        """One more line."""
        kind = made["kind"]
        if kind == "kernel":
            self._capture.kernels.setdefault(made["id"], _kernel(made))
        elif kind == "variant":
            self._capture.lines.setdefault(made["id"], place)
            self._capture.variants.setdefault(made["id"], _variant(made, self._capture.kernels))
        elif kind == "launch":
            self._launch(made)
        elif kind == "failed":
            self._capture.failed.setdefault(str(made["name"]), str(made["error"]))
        elif kind == "dropped":
            more = int(made["count"]) - self._counts.get("", 0)
            self._counts[""] = int(made["count"])
            self._capture.dropped += more if self._is_new else 0
        else:
            raise ValueError(kind)

    def _launch(self, made: Mapping[str, Any]) -> None:
        variant = self._capture.variants[made["of"]]
        more = max(int(made["count"]) - self._counts.get(variant.id, 0), 0)
        self._counts[variant.id] = self._counts.get(variant.id, 0) + more
        variant.count += more if self._is_new else 0
        if "grid" in made:
            launch = {key: made[key] for key in ("grid", "values", "key") if key in made}
            if len(variant.launches) < (MOST_KEYS if "key" in launch else MOST_LAUNCHES):
                variant.launches.setdefault(json.dumps(launch, sort_keys=True), launch)


def _kernel(made: Mapping[str, Any]) -> CapturedKernel:
    return CapturedKernel(
        id=made["id"],
        module=made["module"],
        name=made["name"],
        digest=made["digest"],
        params=tuple((one["name"], bool(one["constexpr"])) for one in made["params"]),
        defaults={one["name"]: one["default"] for one in made["params"] if "default" in one},
        is_gluon=bool(made["gluon"]),
        parts=tuple(Part(**{field.name: one[field.name] for field in fields(Part)}) for one in made["parts"]),
    )


def _variant(made: Mapping[str, Any], kernels: Mapping[str, CapturedKernel]) -> CapturedVariant:
    names = {name for name, _ in kernels[made["of"]].params}
    if {*made["args"], *made["constexprs"]} != names:
        raise ValueError("the values of other parameters than the kernel has")
    return CapturedVariant(
        id=made["id"],
        kernel=made["of"],
        args=dict(made["args"]),
        constexprs=dict(made["constexprs"]),
        options=dict(made["options"]),
        tuned=tuple(made.get("tuned", ())),
        derived=tuple(made.get("derived", ())),
    )


def write_capture(capture: Capture, file: Path) -> None:
    """Writes a capture as one file, in one step; the same captures in the same order give the same bytes."""
    lines = [json.dumps(made, sort_keys=True, separators=(",", ":")) for made in _lines(capture)]
    write_atomic(file, ("\n".join(lines) + "\n").encode())


def _lines(capture: Capture) -> Iterator[dict[str, Any]]:
    facts = {name: texts for name, texts in capture.facts.items() if texts}
    yield {"kbuild": "capture", "schema": SCHEMA, "processes": [*capture.processes], **facts}
    for kernel in capture.kernels.values():
        params = [
            {"name": name, "constexpr": is_constexpr}
            | ({"default": kernel.defaults[name]} if name in kernel.defaults else {})
            for name, is_constexpr in kernel.params
        ]
        own = {"id": kernel.id, "module": kernel.module, "name": kernel.name, "digest": kernel.digest}
        parts = [dict(vars(part)) for part in kernel.parts]
        yield {"kind": "kernel", **own, "params": params, "gluon": kernel.is_gluon, "parts": parts}
    for variant in capture.variants.values():
        names = ("id", "args", "constexprs", "options", "tuned", "derived")
        own = {name: getattr(variant, name) for name in names if getattr(variant, name) or name in names[:4]}
        yield {"kind": "variant", "of": variant.kernel, **own}
        for launch in variant.launches.values():
            yield {"kind": "launch", "of": variant.id, "count": variant.count, **launch}
        if not variant.launches:
            yield {"kind": "launch", "of": variant.id, "count": variant.count}
    for name, error in capture.failed.items():
        yield {"kind": "failed", "name": name, "error": error}
    if capture.dropped:
        yield {"kind": "dropped", "count": capture.dropped}
