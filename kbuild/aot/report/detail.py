"""What the page shows of one variant besides its facts: compiled again for it, with the IR after every pass, and with
line numbers in its machine code.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kbuild.aot import toolchain
from kbuild.aot.build.cache import Cache
from kbuild.aot.build.plan import Job
from kbuild.aot.history.ledger import SourcePart
from kbuild.aot.identity import digest, tree_digest
from kbuild.aot.report import layouts, lines, pipeline
from kbuild.aot.report.pipeline import Place, Stage
from kbuild.aot.report.sections import packed
from kbuild.aot.verify.pool import Crash, run_jobs
from kbuild.compiler import driver
from kbuild.errors import KbuildError

LONGEST = 300.0
"""Seconds after which a variant is taken to hang."""


@dataclass(frozen=True)
class DetailTask:
    """A variant to compile for the page."""

    job: Job
    source: tuple[SourcePart, ...]
    """The text of the kernel and what it reaches."""
    project: str
    """Absolute path."""
    ptxas: str
    nvdisasm: str
    """Empty where there is none; the page then has no machine code."""
    cubin: str
    """The cubin of the build, relative to the project, with which what is shown is compared."""

    @property
    def name(self) -> str:
        return self.job.variant.name


def key_of(task: DetailTask) -> str:
    """The digest of all that the detail of a variant is made of."""
    source = [[part.file, part.name, part.line, part.text] for part in task.source]
    nvdisasm = Path(task.nvdisasm).stat().st_size if task.nvdisasm else 0
    made_by = tree_digest(Path(__file__).parent, ["*.py"])
    return digest(["detail", task.job.identity, source, nvdisasm, made_by])


def details(
    tasks: Sequence[DetailTask],
    cache: Cache,
    jobs: int,
    limit: int,
    note: Callable[[str], None],
) -> Iterator[tuple[str, str]]:
    """The details of variants by name, packed, in the order of the tasks, as far as they fit `limit` bytes.

    Those that the cache has cost nothing; a variant that cannot be compiled has `error` for its detail.  `note` is
    called with the name of each that was compiled.
    """
    keys = {task.name: key_of(task) for task in tasks}
    found: dict[str, str] = {}
    for task in tasks:
        parts = cache.get(keys[task.name])
        if parts is not None and "detail" in parts:
            found[task.name] = parts["detail"].decode()
    missing = [[task] for task in tasks if task.name not in found]
    working = run_jobs(missing, detail_of, jobs, LONGEST)
    total = 0
    try:
        for task in tasks:
            while total < limit and task.name not in found:
                done, result = next(working)
                if isinstance(result, Crash):
                    result = packed({"error": result.why})
                else:
                    cache.put(keys[done.name], {"detail": result.encode()})
                found[done.name] = result
                note(done.name)
            total += len(found.get(task.name, ""))
            if total > limit or task.name not in found:
                return
            yield task.name, found.pop(task.name)
    finally:
        working.close()


def detail_of(task: DetailTask) -> str:
    """The detail of a variant, packed; changes to the project's directory, as a step of a build does, so that
    locations name files as the manifest does."""
    os.chdir(task.project)
    try:
        with tempfile.TemporaryDirectory(prefix="kbuild-report-") as folder:
            found = _compiled(task, Path(folder))
    except KbuildError as error:
        found = {"error": str(error)}
    return packed(found)


def _compiled(task: DetailTask, folder: Path) -> dict[str, Any]:
    job = task.job
    artifact = driver.compile(
        f"{job.source}:{job.function}",
        signature=dict(job.variant.signature),
        constexprs=dict(job.constexprs),
        target=job.variant.arch,
        options=replace(job.variant.options, ptxas=task.ptxas, lineinfo=True),
        dump=folder,
    )
    stages = pipeline.stages_of(folder)
    cubin, ptx = artifact.asm["cubin"], artifact.asm["ptx"]
    sass = ""
    if task.nvdisasm:
        (folder / "kernel.cubin").write_bytes(cubin)
        sass = toolchain.disassembled(task.nvdisasm, folder / "kernel.cubin")
    tables = _Tables(task.project)
    last = stages[-1] if stages else Stage("", "", (), ())  # CUDA C++ has no passes.
    of_ptx = lines.ptx_lines(ptx)
    of_sass = lines.with_dots([*lines.sass_lines(sass, lines.assembled_lines(cubin, ptx))], of_ptx)
    shown = _Lines(ttgir=last, ptx=of_ptx, sass=of_sass)
    with_layouts = (stage.lines for stage in stages if stage.stage == "ttgir")
    return {
        "passes": pipeline.encoded(stages),
        "layouts": layouts.merged(with_layouts),
        "code": shown.encoded(tables, task.source),
        "files": tables.files,
        "places": tables.places,
        "seconds": {stage: round(seconds, 4) for stage, seconds in artifact.metadata.stage_seconds.items()},
        "is_built": _is_same(Path(task.cubin), cubin),
    }


def _is_same(built: Path, cubin: bytes) -> bool | None:
    """Whether the machine code is that of the build; None where there is none to compare with."""
    try:
        return lines.code_of(built.read_bytes()) == lines.code_of(cubin)
    except (OSError, KbuildError):
        return None


class _Tables:
    """Files and places, each by its number."""

    def __init__(self, project: str) -> None:
        self._project = project.rstrip("/") + "/"
        self.files: list[str] = []
        self.places: list[list[list[int]]] = []
        """Each a chain of file, line and column, the innermost first."""
        self._files: dict[str, int] = {}
        self._places: dict[tuple[Place, ...], int] = {}

    def file(self, name: str) -> int:
        name = name.removeprefix(self._project)
        if name not in self._files:
            self._files[name] = len(self.files)
            self.files.append(name)
        return self._files[name]

    def place(self, chain: Sequence[Place]) -> int:
        """The number of a chain of places; -1 for none."""
        if not chain:
            return -1
        key = tuple(chain)
        if key not in self._places:
            self._places[key] = len(self.places)
            self.places.append([[self.file(place.file), place.line, place.column] for place in chain])
        return self._places[key]


@dataclass(frozen=True)
class _Lines:
    """The texts that are linked line by line."""

    ttgir: Stage
    ptx: Sequence[lines.PtxLine]
    sass: Sequence[lines.SassLine]

    def encoded(self, tables: _Tables, source: Sequence[SourcePart]) -> Mapping[str, Any]:
        """Each text with the numbers of its lines' places; of PTX and SASS the numbers, in the list of PTX, of the lines
        on which their instructions begin."""
        numbers = {line.number: place for place, line in enumerate(self.ptx)}
        begin = {line.number: numbers[line.first] for line in self.ptx}
        return {
            "source": [
                {"file": tables.file(part.file), "name": part.name, "line": part.line, "text": part.text}
                for part in source
            ],
            "ttgir": {
                "lines": list(self.ttgir.lines),
                "places": [tables.place(chain) for chain in self.ttgir.places],
            },
            "ptx": {
                "lines": [line.text.replace("\t", "  ").rstrip() for line in self.ptx],
                "places": [tables.place([line.place] if line.place else []) for line in self.ptx],
                "ptx": [begin[line.number] for line in self.ptx],
            },
            "sass": {
                "lines": [line.text for line in self.sass],
                "addresses": [line.address for line in self.sass],
                "ptx": [begin.get(line.ptx, -1) for line in self.sass],
            },
        }
