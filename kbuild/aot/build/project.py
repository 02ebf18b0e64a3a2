"""`kbuild build`: from a project's directory to cubins, package and wheel."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbuild.aot import toolchain
from kbuild.aot.artifact import sources
from kbuild.aot.artifact.distribution import read_distribution
from kbuild.aot.artifact.platforms import parse_platform
from kbuild.aot.build import ninja, records
from kbuild.aot.build.cache import CAPACITY, Cache
from kbuild.aot.build.compile_variant import resolve
from kbuild.aot.build.launcher import core_commands, foreign_headers
from kbuild.aot.build.plan import HEADERS, STATE, WHEEL, Job, Plan, made_of, manifest_digest, plan
from kbuild.aot.build.progress import Progress
from kbuild.aot.build.results import BuildResult, failure_of, publish
from kbuild.aot.build.service import Service
from kbuild.aot.build.step import CACHED
from kbuild.aot.environment import Remote, dump_of
from kbuild.aot.files import write_if_changed
from kbuild.aot.identity import (
    FileDigests,
    bytes_digest,
    canonical_json,
    compiler_digest,
    kbuild_identity,
    templates_digest,
)
from kbuild.aot.manifest.expand import Expansion, expand, notes_on_size, notes_on_sources
from kbuild.aot.manifest.load import load
from kbuild.aot.manifest.model import Manifest
from kbuild.aot.manifest.reader import suggestion
from kbuild.aot.manifest.tuned import FILE as TUNED
from kbuild.aot.manifest.tuned import with_table
from kbuild.errors import ErrorGroup, KbuildError, ToolError, UsageError
from kbuild.options import DEFAULTS, CompileOptions

if TYPE_CHECKING:
    from kbuild.aot.remote.exchange import Exchange

MANIFEST = "kernels.toml"
BUILD = "build"
COMPILER = "kbuild.compiler.driver:compile"
SOURCE_DIGEST = "kbuild.compiler.sources:source_digest"

_KBUILD = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class BuildOptions:
    """The request for a build."""

    project: Path
    """Directory with the manifest."""
    environment: Mapping[str, str]
    """Where tools are found, and what they run with."""
    archs: tuple[str, ...] = ()
    """Architectures to build for; all of the manifest when empty."""
    kernels: tuple[str, ...] = ()
    """Kernels to build, without a package; all, with it, when empty."""
    jobs: int = 0
    """Steps at a time; 0 leaves it to ninja."""
    keep_going: bool = False
    """Whether to go on with other variants when one fails."""
    platform: str = ""
    """The platform of the wheel, `aarch64` or `manylinux_2_28_aarch64`; this machine when empty."""
    compile: CompileOptions = DEFAULTS
    """Options for all variants in addition to the manifest's, such as `debug` and `strict`."""
    verbose: bool = False
    """Whether failures show where in kbuild they happened."""
    dry_run: bool = False
    """Whether to stop before anything is compiled."""
    cache: Path | None = None
    """Directory of the cache; None for no cache."""
    capacity: int = CAPACITY
    """Bytes that the cache may have."""
    remote: Remote | None = None
    """What is shared with other machines."""
    dist: Path | None = None
    """Where to put the wheel; `dist` of the project when None."""
    epoch: int | None = None
    """SOURCE_DATE_EPOCH."""
    display: str = MANIFEST
    """The manifest's name in messages."""
    compiler: str = field(default_factory=lambda: COMPILER)
    """The function that compiles, as `module:function`."""
    source_digest: str = field(default_factory=lambda: SOURCE_DIGEST)
    """The function that gives the digest of a kernel's source closure."""


def build(options: BuildOptions, progress: Progress) -> BuildResult:
    """Builds a project; raises KbuildError if it cannot begin; failures of single variants are in the result."""
    manifest = load(options.project / MANIFEST, options.display)
    # The table only adds variants: everything else of the manifest stays as written.
    tuned, warnings = with_table(
        manifest, options.project, lambda *source: resolve(options.source_digest)(*source)
    )
    for warning in warnings:
        progress.message(f"warning: {warning}")
    expansion = expand_known(tuned, options.archs, options.kernels, options.compile)
    for note in notes_on_sources(manifest, options.kernels):
        progress.message(f"note: {note}")
    for note in notes_on_size(tuned, expansion):
        progress.message(f"warning: {note}")
    archs = ", ".join(_archs(options, manifest))
    for kernel in expansion.kernels_left_out:
        progress.message(f"note: {kernel} is left out: the manifest excludes it everywhere on {archs}")
    return build_variants(options, manifest, expansion, options.project / BUILD, progress)


def build_variants(
    options: BuildOptions, manifest: Manifest, expansion: Expansion, directory: Path, progress: Progress
) -> BuildResult:
    """Builds some variants of a manifest in a directory; as `build`."""
    with (
        _lock(directory, progress) as lock,
        _service(options, directory, lock) as service,
        ExitStack() as sharing,
    ):
        ptxas = toolchain.find_ptxas(options.environment, manifest.package.ptxas, manifest.package.min_driver)
        if not options.dry_run:
            _write_settings(options, ptxas, directory)
            if not (directory / STATE / "build.ninja").exists():  # Everything has to be done.
                service.expect(len(expansion.variants))
        planned = _plan(options, manifest, expansion, ptxas, directory)
        if options.dry_run:
            return BuildResult(planned.jobs, (), 0, (), expansion)
        made = _prepare(options, planned, directory)
        service.expect(len(planned.edges) - len(made))
        service.get_ready()
        left = [job for job in planned.jobs if job.record not in made]
        if (exchange := _exchange(options, left, ptxas, directory, progress)) is not None:
            sharing.enter_context(exchange)
        program, environment = (
            toolchain.find_ninja(options.environment).path,
            _environment(options.environment),
        )

        def run_ninja() -> ninja.NinjaOutcome:
            return ninja.run(
                program, directory, (), environment, progress, options.jobs, options.keep_going, lock
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
        result = _result(options, manifest, expansion, planned, run, made, directory)
        return replace(result, exchanged=exchange.outcome) if exchange is not None else result


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
    project: Path, archs: Iterable[str], kernels: Iterable[str], options: CompileOptions
) -> tuple[Manifest, Expansion]:
    """A project's manifest, and its variants as `build` makes them with these options."""
    manifest = load(project / MANIFEST, (project / MANIFEST).as_posix())
    tuned, _ = with_table(manifest, project, resolve(SOURCE_DIGEST))
    return manifest, expand_known(tuned, archs, kernels, options)


def expand_known(
    manifest: Manifest, archs: Iterable[str], kernels: Iterable[str], options: CompileOptions
) -> Expansion:
    """The variants of architectures and kernels named on the command line, with the options given there;
    UsageError if the manifest has no such ones."""
    known = {
        "architecture": manifest.package.archs,
        "kernel": tuple(kernel.name for kernel in manifest.kernels),
    }
    for what, names in (("architecture", archs), ("kernel", kernels)):
        for name in names:
            if name not in known[what]:
                raise UsageError(f"no {what} {name} in the manifest", help=suggestion(name, known[what]))
    expansion = expand(manifest, archs, kernels)
    if not expansion.variants:
        raise UsageError("the manifest excludes every variant of the architectures and kernels named")
    return expansion.requested(options)


def _plan(
    options: BuildOptions, manifest: Manifest, expansion: Expansion, ptxas: toolchain.Tool, directory: Path
) -> Plan:
    digests = FileDigests(directory / STATE / "digests.json")
    tools = _tool_digests(digests, ptxas)
    package = None
    if not options.kernels:
        platform = parse_platform(options.platform) if options.platform else None
        cc = toolchain.find_cc(options.environment, platform)
        headers = foreign_headers(platform.machine) if platform and platform.is_foreign else {}
        for name, data in headers.items():
            write_if_changed(directory / HEADERS / name, data)
        package = {
            "archs": _archs(options, manifest),
            "inputs": _inputs(options, manifest, tools),
            "templates": templates_digest(),
            "cc": [cc.path, *cc.arguments],
            "cc_digest": digests.get(Path(cc.path)),
            "launcher": core_commands([cc.path, *cc.arguments], HEADERS if headers else ""),
        }
    write_if_changed(directory / STATE / "digests.json", digests.record())
    closures = _source_digests(options, manifest, {variant.kernel for variant in expansion.variants})
    with_places = {variant.kernel for variant in expansion.variants if variant.options.names_lines}
    places = _source_digests(options, manifest, with_places, True) if with_places else {}
    return plan(manifest, expansion, closures, compiler_digest(), tools, package, places)


def _inputs(options: BuildOptions, manifest: Manifest, tools: Mapping[str, str]) -> dict[str, Any]:
    """What a package is made of, whatever the architectures; wheels where it is the same can be joined."""
    table = options.project / TUNED
    return {
        "project": manifest.package.distribution or manifest.package.name,
        "version": manifest.package.version,
        "kbuild": kbuild_identity(),
        "manifest": manifest_digest(manifest),
        "tuned": bytes_digest(table.read_bytes()) if table.is_file() else None,
        "sources": {
            name: found
            for kernel in manifest.kernels
            for name, found in sources.digests([kernel.source], options.project, kernel.include).items()
        },
        "options": options.compile.requested(),
        "tools": tools,
        "distribution": read_distribution(options.project, manifest.package).digest,
        "epoch": options.epoch,
        "platform": options.platform or None,
    }


def _archs(options: BuildOptions, manifest: Manifest) -> list[str]:
    """The architectures that are built for, in the manifest's order."""
    return [arch for arch in manifest.package.archs if not options.archs or arch in options.archs]


def _source_digests(
    options: BuildOptions, manifest: Manifest, wanted: Collection[str], places: bool = False
) -> dict[str, str]:
    """The digest of each wanted kernel's source closure, by kernel; with the places of its statements if
    asked for."""
    function = resolve(options.source_digest)
    found: dict[str, str] = {}
    errors: list[KbuildError] = []
    for kernel in manifest.kernels:
        if kernel.name in wanted:
            try:
                found[kernel.name] = function(*kernel.source_in(options.project, places))
            except KbuildError as error:
                errors.append(error)
    if errors:
        raise ErrorGroup(errors)
    return found


def _write_settings(options: BuildOptions, ptxas: toolchain.Tool, directory: Path) -> None:
    """Writes the files that all steps read."""
    dump = dump_of(options.environment)
    settings = {
        "dump": [os.path.abspath(dump.folder), dump.only] if dump is not None else None,
        "project": os.path.abspath(options.project),
        "manifest": options.display,
        "cache": str(cache.absolute()) if (cache := _cache(options, directory)) else None,
        "shares": options.remote is not None,
        "package": not options.kernels,
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
    options: BuildOptions, jobs: Sequence[Job], ptxas: toolchain.Tool, directory: Path, progress: Progress
) -> Exchange | None:
    """What the build does with other machines for the jobs that are left; None where it shares nothing."""
    if options.remote is None or not jobs:
        return None
    from kbuild.aot.remote.sharing import exchange  # Other builds do without.

    tools = _tool_digests(FileDigests(directory / STATE / "digests.json"), ptxas)
    request = {
        "project": options.project,
        "compiler": options.compiler,
        "source_digest": options.source_digest,
        "tools": tools,
    }
    return exchange(options.remote, directory, Cache(_cache(options, directory)), jobs, request, progress)


def _tool_digests(digests: FileDigests, ptxas: toolchain.Tool) -> dict[str, str]:
    return {tool.name: digests.get(Path(tool.path)) for tool in (ptxas, toolchain.find_llvm())}


def _prepare(options: BuildOptions, planned: Plan, directory: Path) -> dict[str, dict[str, Any]]:
    """Writes what ninja and the edges read, where it changed, and removes files of an earlier build that are
    unused now or damaged.  Returns the records of what need not be made.
    """
    for name, data in planned.files:
        write_if_changed(directory / name, data)
    write_if_changed(directory / STATE / "build.ninja", ninja.text(planned).encode())
    _sweep(planned, directory, is_whole=not options.archs and not options.kernels)
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
            found = records.read(
                directory, edge.record, made_of(edge.identity, read) if read else edge.identity
            )
            if found is not None:
                made[edge.record] = found[0]
    return made


def _is_missing(planned: Plan, made: Mapping[str, Any], run: ninja.NinjaOutcome) -> str:
    """The first record that is missing without a failure that explains it; else empty."""
    missing = [edge.record for edge in planned.edges if edge.record not in made]
    others = {failure.output for failure in run.failures} - {WHEEL}
    is_blamed = bool(others) or (run.code != 0 and missing == [WHEEL]) or (run.code != 0 and not run.failures)
    return "" if is_blamed or not missing else missing[0]


def _sweep(planned: Plan, directory: Path, is_whole: bool) -> None:
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


@contextmanager
def _lock(directory: Path, progress: Progress) -> Iterator[tuple[int, ...]]:
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


def _result(
    options: BuildOptions,
    manifest: Manifest,
    expansion: Expansion,
    planned: Plan,
    run: ninja.NinjaOutcome,
    made: Mapping[str, dict[str, Any]],
    directory: Path,
) -> BuildResult:
    by_output = {f"{job.stem}.cubin": job for job in planned.jobs}
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
    if compiled and options.cache:
        Cache(options.cache, options.capacity).trim()
    facts = tuple(made[job.record] for job in planned.jobs if job.record in made)
    wheel = None
    if run.code == 0 and WHEEL in made:
        wheel = publish(directory / made[WHEEL]["wheel"], options.dist or options.project / "dist")
    return BuildResult(planned.jobs, compiled, cached, failures, expansion, wheel, facts)
