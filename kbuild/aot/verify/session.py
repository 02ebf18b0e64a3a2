"""Verifies variants of a manifest: those that the cache lacks go to workers."""

from __future__ import annotations

import importlib.metadata
import os
import shlex
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from kbuild.aot import toolchain
from kbuild.aot.build import project as builder
from kbuild.aot.build.cache import Cache
from kbuild.aot.build.compile_variant import resolve
from kbuild.aot.build.plan import job_of
from kbuild.aot.files import write_if_changed
from kbuild.aot.identity import FileDigests, compiler_digest, digest, tree_digest
from kbuild.aot.manifest.expand import Variant
from kbuild.aot.manifest.model import Manifest, below
from kbuild.aot.verify.cases import cases
from kbuild.aot.verify.pool import Crash, run_jobs
from kbuild.aot.verify.reference_task import reference_task
from kbuild.aot.verify.remember import recall, remember
from kbuild.aot.verify.verdict import EVERYTHING, Verdict, VerifyTask, Wanted, runs_of
from kbuild.errors import KbuildError, UsageError

LONGEST_VARIANT = 300.0
"""Seconds after which a variant is taken to hang; the slowest known take a thirtieth."""

_KBUILD = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class VerifyOptions:
    """How to verify."""

    jobs: int = 1
    """Processes."""
    cache: Path | None = None
    """Directory of the cache; None for no cache."""
    limit: float = LONGEST_VARIANT
    """Seconds that one variant may take."""
    wanted: Wanted = EVERYTHING
    """Which runs."""
    lenient: bool = False
    """Whether to leave out races that hardware is known to forgive."""
    ptxas: str | None = None
    """The program that assembles what ships, to whose version the PTX is fitted; None for the version that is
    preferred."""
    note: Callable[[str], None] = lambda text: None
    """Called with what is under way."""


@dataclass(frozen=True)
class _Known:
    """A task, and the digest of everything that its verdict depends on."""

    task: VerifyTask
    key: str


def verify(
    project: Path, manifest: Manifest, variants: Sequence[Variant], options: VerifyOptions
) -> Generator[Verdict, None, None]:
    """The verdicts on variants, as they come: first those that the cache has.

    Raises KbuildError for sources that cannot be read; a variant that cannot be verified has a verdict that
    says so.
    """
    _check_orders(options.wanted)
    cache = Cache(options.cache)
    tools = tools_digest(options.cache)
    sources = {
        kernel.name: resolve(builder.SOURCE_DIGEST)(*kernel.source_in(project))
        for kernel in manifest.kernels
        if any(variant.kernel == kernel.name for variant in variants)
    }
    groups: dict[tuple[object, ...], list[_Known]] = {}
    for variant in variants:
        try:
            known = _known(project, manifest, variant, tools, sources, options)
        except KbuildError as error:
            yield Verdict(variant.name, variant.kernel, variant.arch, problem=str(error))
            continue
        checks = recall(cache, known.key)
        if checks is not None:
            yield Verdict(variant.name, variant.kernel, variant.arch, checks, cached=True)
        # Variants for several architectures often have the same PTX, those that differ in facts of dispatch alone always:
        # one process takes them, and repeats no run.
        else:
            groups.setdefault(_code(known.task), []).append(known)
    yield from _worked(list(groups.values()), tools, cache, options)


def _check_orders(wanted: Wanted) -> None:
    """UsageError for an unknown schedule or timing: before any run, rather than in each."""
    if wanted.schedule or wanted.timing:
        # Here, for few ask, and it takes a tenth of a second.
        from kbuild.emulator.async_ops.timing import timing_named
        from kbuild.emulator.engine.findings import EmulationError
        from kbuild.emulator.engine.schedule import schedule_named

        try:
            schedule_named(wanted.schedule or "lockstep")
            timing_named(wanted.timing or "late")
        except EmulationError as error:
            raise UsageError(error.message, help=error.help) from None


def _worked(
    groups: Sequence[Sequence[_Known]], tools: str, cache: Cache, options: VerifyOptions
) -> Iterator[Verdict]:
    """The verdicts of workers."""

    def work(known: _Known) -> Verdict:
        from kbuild.aot.verify.check import verify_task  # Only workers need numpy and the compiler.

        return verify_task(known.task, tools, cache)

    def results(groups: Sequence[Sequence[_Known]]) -> Iterator[Verdict]:
        for known, result in run_jobs(groups, work, options.jobs, options.limit, options.note):
            task = known.task
            if isinstance(result, Crash):
                help = f"repeat it with: kbuild verify --variant {shlex.quote(task.name)}"
                why, is_slow = f"{result.why}\n{help}", result.is_late and (task.guessed or task.captured)
                verdict = Verdict(task.name, task.kernel, task.arch, unguessed=is_slow and task.guessed)
                yield replace(verdict, unfinished=why) if is_slow else replace(verdict, problem=why)
                continue
            if result.state != "failed" and result.checks:
                remember(cache, known.key, result.checks)
            yield result

    if options.jobs > 1:  # The longest begin first, so that none is left to run alone at the end.
        groups = sorted(groups, key=_size, reverse=True)
    # Where launches are guessed, one variant shows whether that works, so that it is not tried in vain for
    # all of them.
    guessed = {
        group[0].task.kernel: place
        for place, group in reversed(list(enumerate(groups)))
        if group[0].task.guessed
    }
    firsts = [groups[place][:1] for place in guessed.values()]
    rest = [
        group[1:] if guessed.get(group[0].task.kernel) == place else group
        for place, group in enumerate(groups)
    ]
    in_vain: dict[str, Verdict] = {}
    for verdict in results([*firsts, *(group for group in rest if group and not group[0].task.guessed)]):
        if verdict.unguessed:
            in_vain[verdict.kernel] = verdict
        yield verdict
    left = [group for group in rest if group and group[0].task.guessed]
    for task in (known.task for group in left for known in group if known.task.kernel in in_vain):
        first = in_vain[task.kernel]
        why = f"its launch is not tried: that of {first.variant} was guessed in vain"
        verdict = Verdict(task.name, task.kernel, task.arch, unguessed=True)
        yield replace(verdict, problem=why) if first.problem else replace(verdict, unfinished=why)
    yield from results([group for group in left if group[0].task.kernel not in in_vain])


def _code(task: VerifyTask) -> tuple[object, ...]:
    """What a variant's code is made from, but for the architecture."""
    return task.kernel, task.signature, task.constexprs, task.options


def _size(group: Sequence[_Known]) -> int:
    """The elements that the runs of variants have in their arrays, each run once, as an estimate of how long they take."""
    runs = {
        (task.cases[run.case - 1], run.data, run.schedule, run.timing)
        for task in (known.task for known in group)
        for run in task.runs
    }
    return sum(size for case, *_ in runs for _, size in case.sizes or ())


def _known(
    project: Path,
    manifest: Manifest,
    variant: Variant,
    tools: str,
    sources: dict[str, str],
    options: VerifyOptions,
) -> _Known:
    """The task for a variant."""
    kernel = manifest.kernel(variant.kernel)
    job = job_of(kernel, variant, sources, tools, {"ptxas": _version_of(options.ptxas)})
    launches = tuple(cases(kernel, variant))
    runs = tuple(options.wanted.of(runs_of(launches)))
    if not launches:
        what = "values of [kernel.verify] give" if kernel.verify else "guess gives"
        raise UsageError(
            f"no launch that the {what} fits this variant's types and facts",
            help="add one to [kernel.verify]",
        )
    if not runs:
        raise UsageError(
            f"{variant.name} has {len(launches)} launches, and no such run",
            help="leave some of the options out",
        )
    reference = reference_task(project, kernel)
    ready = kernel.verify.ready if kernel.verify else ()
    pointers = [
        argument.name for argument in kernel.args if argument.is_pointer and argument.name not in ready
    ]
    early = tuple(pointers) if variant.options.launch_pdl else ()
    task = VerifyTask(
        f"{project / kernel.source}:{kernel.function}",
        variant.name,
        variant.kernel,
        variant.arch,
        variant.signature,
        job.constexprs,
        replace(
            variant.options,
            lineinfo=True,
            ptxas=options.ptxas,
            include=below(variant.options.include, project),
        ),
        launches,
        runs,
        kernel.verify is None and not any(launch.recorded for launch in launches),
        job.source_digest,
        options.lenient,
        reference,
        kernel.verify.tolerance if kernel.verify else None,
        any(launch.recorded for launch in launches),
        early,
    )
    made = [repr(launch) for launch in launches], [repr(run) for run in runs], repr(reference), task.tolerance
    return _Known(task, digest([job.identity, *made, options.lenient, early]))


def _version_of(ptxas: str | None) -> str:
    """The version of a ptxas, or the preferred one: PTX fits what that guarantees, and has more warps where that spills."""
    # Here, for they bring what runs programs.
    from kbuild.compiler.backend.cubin import ptxas_version
    from kbuild.compiler.backend.ptxas_wheels import TESTED

    return ptxas_version(ptxas) if ptxas else TESTED[0]


def tools_digest(directory: Path | None) -> str:
    """The digest of everything that makes and judges PTX: compiler, interpreter, emulator, LLVM, numpy and
    this package.

    `directory` is where digests of large files are remembered.
    """
    record = None if directory is None else directory / "digests.json"
    digests = FileDigests(record or Path(os.devnull))
    llvm = digests.get(Path(toolchain.find_llvm().path))
    if record is not None:
        with suppress(OSError):  # The next time it is read again.
            write_if_changed(record, digests.record())
    parts = [tree_digest(_KBUILD / "emulator", ["*.py"]), tree_digest(_KBUILD / "aot" / "verify", ["*.py"])]
    return digest([compiler_digest(), llvm, importlib.metadata.version("numpy"), *parts])
