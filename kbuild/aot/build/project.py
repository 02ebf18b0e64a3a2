"""`kbuild build`: from a project's directory to cubins, package and wheel."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbuild.aot import toolchain
from kbuild.aot.artifact.record import Coverage
from kbuild.aot.build import ninja, records, unchanged
from kbuild.aot.build.cache import Cache
from kbuild.aot.build.compile_variant import resolve
from kbuild.aot.build.directory import lock, sweep
from kbuild.aot.build.inputs import (
    BuildOptions,
    PlanInputs,
    archs_of,
    closure_digests,
    plan_inputs,
    request_of,
)
from kbuild.aot.build.plan import STATE, WHEEL, Job, Plan, made_of, plan
from kbuild.aot.build.progress import Progress
from kbuild.aot.build.results import BuildResult, Details, failure_of, publish, totals_of
from kbuild.aot.build.service import Service
from kbuild.aot.build.step import CACHED
from kbuild.aot.environment import dump_of
from kbuild.aot.files import write_if_changed
from kbuild.aot.history.extend import extend
from kbuild.aot.identity import (
    canonical_json,
    unseal,
)
from kbuild.aot.manifest.expand import Expansion, expand, notes_on_size, notes_on_sources
from kbuild.aot.manifest.load import load
from kbuild.aot.manifest.model import Manifest
from kbuild.aot.manifest.reader import suggestion
from kbuild.aot.manifest.tuned import with_table
from kbuild.aot.shards import costs
from kbuild.aot.shards.complete import coverage
from kbuild.aot.shards.shard import WHOLE, Shard
from kbuild.errors import ToolError, UsageError
from kbuild.options import CompileOptions

if TYPE_CHECKING:
    from kbuild.aot.remote.exchange import Exchange

MANIFEST = "kernels.toml"
BUILD = "build"
COMPILER = "kbuild.compiler.driver:compile"
SOURCE_DIGEST = "kbuild.compiler.sources:source_digest"

_KBUILD = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Prepared:
    """What `build` knows before it plans."""

    inputs: PlanInputs
    request: str = ""
    """Digest of all that the plan is made from, by which `unchanged.py` knows the build; empty where that is not known."""
    notes: tuple[str, ...] = ()
    """What was said of the variants."""
    part: Coverage | None = None
    """Of a shard, which variants it has."""


def build(options: BuildOptions, progress: Progress) -> BuildResult:
    """Builds a project; raises KbuildError if it cannot begin; failures of single variants are in the result."""
    if options.shard and options.platform:
        raise UsageError(
            "a shard has no launcher, which alone is of a platform", help="kbuild merge takes --platform"
        )
    options = completed(options)
    manifest = load(options.project / MANIFEST, options.display)
    # The table only adds variants: everything else of the manifest stays as written.
    tuned, warnings = with_table(
        manifest, options.project, lambda *source: resolve(options.source_digest)(*source)
    )
    _check_names(tuned, options.archs, options.kernels)
    for warning in warnings:
        progress.message(f"warning: {warning}")
    for note in notes_on_sources(manifest, options.kernels):
        progress.message(f"note: {note}")
    directory = options.project / BUILD
    with lock(directory, progress):
        inputs = plan_inputs(options, manifest, directory)
        request = "" if options.dry_run else request_of(options, tuned, inputs)
        totals = unchanged.noted(directory, request) if request else None
        if totals is not None:
            for note in totals.notes:
                progress.message(note)
            return _unchanged(options, manifest, tuned, directory, totals)
    expansion = expand_known(tuned, options.archs, options.kernels, options.compile)
    notes = tuple(_notes(options, tuned, expansion))
    for note in notes:
        progress.message(note)
    part = None
    if options.shard:
        whole = expand_known(tuned, options.archs, (), options.compile) if options.kernels else expansion
        expansion = options.shard.of_expansion(expansion)
        named = tuple(kernel.name for kernel in manifest.kernels if kernel.name in options.kernels)
        part = coverage(options.shard, named, whole, expansion)
    prepared = Prepared(inputs, request, notes, part)
    return build_variants(options, manifest, expansion, directory, progress, prepared)


def completed(options: BuildOptions) -> BuildOptions:
    """Options with kbuild's functions where they name none."""
    compiler, source_digest = options.compiler or COMPILER, options.source_digest or SOURCE_DIGEST
    return replace(options, compiler=compiler, source_digest=source_digest)


def _notes(options: BuildOptions, manifest: Manifest, expansion: Expansion) -> Iterator[str]:
    """What a build says of its variants before it makes them."""
    for note in notes_on_size(manifest, expansion):
        yield f"warning: {note}"
    archs = ", ".join(archs_of(options, manifest))
    for kernel in expansion.kernels_left_out:
        yield f"note: {kernel} is left out: the manifest excludes it everywhere on {archs}"


def _unchanged(
    options: BuildOptions, manifest: Manifest, tuned: Manifest, directory: Path, totals: unchanged.Totals
) -> BuildResult:
    """The result of a build that has nothing to do."""

    def details() -> Details:
        expansion = expand_known(tuned, options.archs, options.kernels, options.compile)
        if options.shard:
            expansion = options.shard.of_expansion(expansion)
        planned = _plan(options, manifest, expansion, plan_inputs(options, manifest, directory), None)
        facts = (unseal((directory / job.record).read_bytes()) for job in planned.jobs)
        return Details(planned.jobs, expansion, tuple(fact for fact in facts if fact is not None))

    made = unseal((directory / WHEEL).read_bytes()) if options.packs else None
    wheel = _published(options, directory, made["wheel"]) if made else None
    return BuildResult((), 0, (), totals, details, wheel)


def build_variants(
    options: BuildOptions,
    manifest: Manifest,
    expansion: Expansion,
    directory: Path,
    progress: Progress,
    prepared: Prepared | None = None,
) -> BuildResult:
    """Builds some variants of a manifest in a directory; as `build`, which has `prepared` it."""
    options = completed(options)
    with (
        lock(directory, progress) as held,
        _service(options, directory, held) as service,
        ExitStack() as sharing,
    ):
        prepared = prepared or Prepared(plan_inputs(options, manifest, directory))
        if not options.dry_run:
            _write_settings(options, prepared.inputs.ptxas, directory)
            if not (directory / STATE / "build.ninja").exists():  # Everything has to be done.
                service.expect(len(expansion.variants))
        planned = _plan(options, manifest, expansion, prepared.inputs, prepared.part)
        if options.dry_run:
            totals = unchanged.Totals(len(planned.jobs))
            return BuildResult((), 0, (), totals, lambda: Details(planned.jobs, expansion))
        made = _prepare(options, planned, directory)
        service.expect(len(planned.edges) - len(made))
        service.get_ready()
        left = [job for job in planned.jobs if job.record not in made and not job.like]
        if (exchange := _exchange(options, left, prepared.inputs, directory, progress)) is not None:
            sharing.enter_context(exchange)
        program, environment = (
            toolchain.find_ninja(options.environment).path,
            _environment(options.environment),
        )

        def run_ninja() -> ninja.NinjaOutcome:
            return ninja.run(
                program, directory, (), environment, progress, options.jobs, options.keep_going, held
            )

        run, made = _run(planned, directory, made, service, run_ninja)
        sharing.close()
        if run.code != 0 and not run.failures:
            how = f"was ended by signal {-run.code}" if run.code < 0 else f"ended with exit code {run.code}"
            raise ToolError(f"ninja {how}: {run.text}".removesuffix(": "))
        if lost := _is_missing(planned, made, run):
            raise ToolError(
                f"{directory / lost}: the step that makes it succeeded, but the file differs from its record",
                help="is the disk in order, and does anything else write there? kbuild clean makes room for a new build",
            )
        extend(options.project, directory, planned, run, made, resolve(options.source_digest))
        result = _result(options, manifest, Details(planned.jobs, expansion), run, made, directory)
        totals = replace(result.totals, notes=prepared.notes)
        if prepared.request and run.code == 0 and len(made) == len(planned.edges):
            unchanged.note(directory, prepared.request, totals)
        return replace(result, totals=totals, exchanged=exchange.outcome if exchange is not None else None)


def _run(
    planned: Plan,
    directory: Path,
    made: dict[str, dict[str, Any]],
    service: Service,
    run_ninja: Callable[[], ninja.NinjaOutcome],
) -> tuple[ninja.NinjaOutcome, dict[str, dict[str, Any]]]:
    """Runs the steps that are left, and gives the records of all that are made then."""
    run = run_ninja()
    if run.code != 0 and not run.failures and ".ninja_log" in run.text:
        (directory / STATE / ".ninja_log").unlink(missing_ok=True)
        run = run_ninja()
    if run.steps or len(made) < len(planned.edges):
        made = _made(planned, directory)
    if _is_missing(planned, made, run):
        # Steps succeeded and left nothing, or something was damaged since: once more, with as little in
        # between as possible.
        service.drop_client()
        run = run_ninja().after(run)
        made = _made(planned, directory)
    return run, made


def _service(options: BuildOptions, directory: Path, held: Sequence[int]) -> Service:
    """The processes that run the steps of the build."""
    try:
        # These run here, whatever machine the launcher is for.
        here = {name: value for name, value in options.environment.items() if name != "CC"}
        tool = toolchain.find_cc(here if options.platform else options.environment)
        cc = [tool.path, *tool.arguments]
    except ToolError:
        cc = []
    return Service(directory, sys.executable, _environment(options.environment), cc, held)


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of the build's steps, which run in another directory and must find this same kbuild."""
    paths = [os.path.abspath(path) for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    if _KBUILD.parent.name not in ("site-packages", "dist-packages"):
        paths.insert(0, str(_KBUILD.parent))
    return {**environment, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


def load_variants(
    project: Path,
    archs: Iterable[str],
    kernels: Iterable[str],
    options: CompileOptions,
    shard: Shard = WHOLE,
) -> tuple[Manifest, Expansion]:
    """A project's manifest, and its variants as `build` makes them with these options."""
    manifest = load(project / MANIFEST, (project / MANIFEST).as_posix())
    tuned, _ = with_table(manifest, project, resolve(SOURCE_DIGEST))
    return manifest, shard.of_expansion(expand_known(tuned, archs, kernels, options))


def expand_known(
    manifest: Manifest, archs: Iterable[str], kernels: Iterable[str], options: CompileOptions
) -> Expansion:
    """The variants of architectures and kernels named on the command line, with the options given there;
    UsageError if the manifest has no such ones."""
    _check_names(manifest, archs, kernels)
    expansion = expand(manifest, archs, kernels)
    if not expansion.variants:
        raise UsageError("the manifest excludes every variant of the architectures and kernels named")
    return expansion.requested(options)


def _check_names(manifest: Manifest, archs: Iterable[str], kernels: Iterable[str]) -> None:
    """UsageError unless the manifest has these architectures and kernels."""
    known = {
        "architecture": manifest.package.archs,
        "kernel": tuple(kernel.name for kernel in manifest.kernels),
    }
    for what, names in (("architecture", archs), ("kernel", kernels)):
        for name in names:
            if name not in known[what]:
                raise UsageError(f"no {what} {name} in the manifest", help=suggestion(name, known[what]))


def _plan(
    options: BuildOptions,
    manifest: Manifest,
    expansion: Expansion,
    inputs: PlanInputs,
    part: Coverage | None,
) -> Plan:
    package = {**inputs.package, "part": asdict(part)} if inputs.package and part else inputs.package
    closures, places = closure_digests(options, manifest, expansion.variants)
    return plan(manifest, expansion, closures, inputs.compiler, inputs.tools, package, places)


def _write_settings(options: BuildOptions, ptxas: toolchain.Tool, directory: Path) -> None:
    """Writes the files that all steps read."""
    dump = dump_of(options.environment)
    settings = {
        "dump": [os.path.abspath(dump.folder), dump.only] if dump is not None else None,
        "project": os.path.abspath(options.project),
        "manifest": options.display,
        "cache": str(cache.absolute()) if (cache := _cache(options, directory)) else None,
        "shares": options.remote is not None,
        "package": options.packs,
        "ptxas": ptxas.path,
        "compiler": options.compiler,
        "source_digest": options.source_digest,
        "strict": options.compile.strict,
        "verbose": options.verbose,
        "path": [entry for entry in sys.path if entry and os.path.isdir(entry)],
    }
    write_if_changed(directory / STATE / "settings.json", canonical_json(settings))


def _cache(options: BuildOptions, directory: Path) -> Path | None:
    """The cache of the build's steps; where only other machines have one, what comes from there has to lie somewhere."""
    return options.cache or (directory / STATE / "shared" if options.remote else None)


def _exchange(
    options: BuildOptions, jobs: Sequence[Job], inputs: PlanInputs, directory: Path, progress: Progress
) -> Exchange | None:
    """What the build does with other machines for the jobs that are left; None where it shares nothing."""
    if options.remote is None or not jobs:
        return None
    from kbuild.aot.remote.sharing import exchange  # Other builds do without.

    request = {
        "project": options.project,
        "compiler": options.compiler,
        "source_digest": options.source_digest,
        "tools": dict(inputs.tools),
    }
    return exchange(options.remote, directory, Cache(_cache(options, directory)), jobs, request, progress)


def _prepare(options: BuildOptions, planned: Plan, directory: Path) -> dict[str, dict[str, Any]]:
    """Writes what ninja and the edges read, where it changed, and removes files of an earlier build that are
    unused now or damaged.  Returns the records of what need not be made.
    """
    for name, data in planned.files:
        write_if_changed(directory / name, data)
    write_if_changed(directory / STATE / "build.ninja", ninja.text(planned).encode())
    sweep(planned, directory, options.is_whole)
    made = _made(planned, directory)
    if options.compile.strict:  # Variants compiled when that was a warning are compiled again.
        made = {name: record for name, record in made.items() if not record.get("serialized")}
    for edge in planned.edges:
        for output in edge.outputs if edge.record not in made else ():
            (directory / output).unlink(missing_ok=True)
    return made


def _made(planned: Plan, directory: Path) -> dict[str, dict[str, Any]]:
    """The records of the steps that need not run: their files are there, undamaged and from the right
    inputs."""
    made: dict[str, dict[str, Any]] = {}
    for edge in planned.edges:
        if all(name in made for name in edge.reads):
            read = [(directory / name).read_bytes() for name in edge.reads]
            found = records.read(directory, edge.record, made_of(edge.identity, read))
            if found is not None:
                made[edge.record] = found[0]
    return made


def _is_missing(planned: Plan, made: Mapping[str, Any], run: ninja.NinjaOutcome) -> str:
    """The first record that is missing without a failure that explains it; else empty."""
    missing = [edge.record for edge in planned.edges if edge.record not in made]
    others = {failure.output for failure in run.failures} - {WHEEL}
    is_blamed = bool(others) or (run.code != 0 and missing == [WHEEL]) or (run.code != 0 and not run.failures)
    return "" if is_blamed or not missing else missing[0]


def _result(
    options: BuildOptions,
    manifest: Manifest,
    details: Details,
    run: ninja.NinjaOutcome,
    made: Mapping[str, dict[str, Any]],
    directory: Path,
) -> BuildResult:
    by_output = {f"{job.stem}.cubin": job for job in details.jobs}
    places = {output: place for place, output in enumerate(by_output)}
    in_order = sorted(run.failures, key=lambda failure: places.get(failure.output, len(places)))
    failures = tuple(
        failure_of(failure, by_output.get(failure.output), manifest, options.compile.strict)
        for failure in in_order
    )
    failed = {failure.output for failure in run.failures}
    steps = {step.removeprefix("compile ") for step in run.steps if step.startswith("compile ")}
    compiled = tuple(
        job.variant.name
        for output, job in by_output.items()
        if job.variant.name in steps and output not in failed
    )
    cached = run.printed.count(CACHED)
    costs.remember(directory, run.printed)
    if compiled and options.cache:
        Cache(options.cache, options.capacity).trim()
    facts = tuple(made[job.record] for job in details.jobs if job.record in made)
    wheel = None
    if run.code == 0 and WHEEL in made:
        wheel = _published(options, directory, made[WHEEL]["wheel"])
    details = replace(details, facts=facts)
    return BuildResult(compiled, cached, failures, totals_of(details), lambda: details, wheel)


def _published(options: BuildOptions, directory: Path, made: str) -> Path:
    return publish(directory / made, options.dist or options.project / "dist")
