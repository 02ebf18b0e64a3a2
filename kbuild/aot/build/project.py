"""`kbuild build`: from a project's directory to cubins, package and wheel."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbuild.aot import toolchain
from kbuild.aot.artifact import sources
from kbuild.aot.artifact.distribution import read_distribution
from kbuild.aot.artifact.platforms import machine_of, parse_platform
from kbuild.aot.build import ninja, records
from kbuild.aot.build.cache import Cache
from kbuild.aot.build.compile_variant import resolve
from kbuild.aot.build.launcher import core_commands, foreign_headers
from kbuild.aot.build.plan import HEADERS, LAUNCHER, STATE, WHEEL, Job, Plan, made_of, manifest_digest, plan
from kbuild.aot.build.progress import Progress
from kbuild.aot.build.serve import LONGEST_COMPILE
from kbuild.aot.build.service import Service
from kbuild.aot.build.step import CACHED
from kbuild.aot.environment import dump_of
from kbuild.aot.files import write_files, write_if_changed
from kbuild.aot.history.extend import extend
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

MANIFEST = "kernels.toml"
BUILD = "build"
COMPILER = "kbuild.compiler.driver:compile"
SOURCE_DIGEST = "kbuild.compiler.sources:source_digest"

_KBUILD = Path(__file__).resolve().parents[2]
_LARGEST_TEXT = 8000
"""Characters of one failure that are shown."""
_MAX_NAMES = 5
"""Variants named of those that fail with the same error."""


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


class VariantError(ToolError):
    """A variant that could not be compiled."""

    def __init__(self, variant: str, text: str, command: str) -> None:
        super().__init__(f"{variant} failed\n{text}", help=f"this repeats it: {command}")
        self.variant = variant
        self.text = text
        """The output of its compilation."""


@dataclass(frozen=True)
class BuildResult:
    """The outcome of a build."""

    jobs: tuple[Job, ...]
    """Everything asked for."""
    compiled: tuple[str, ...]
    """Names of the variants that were compiled now."""
    cached: int
    """Variants that came from the cache."""
    failures: tuple[KbuildError, ...]
    """A VariantError per variant that failed, and another error if the package did."""
    expansion: Expansion
    """All variants of the manifest, and what it leaves out."""
    wheel: Path | None = None
    """The wheel, unless something failed or kernels were named."""
    facts: tuple[dict[str, Any], ...] = ()
    """Facts of the variants that are built, in order."""


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
    with _lock(directory, progress) as lock, _service(options, directory, lock) as service:
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
        program, environment = (
            toolchain.find_ninja(options.environment).path,
            _environment(options.environment),
        )

        def run_ninja() -> ninja.NinjaOutcome:
            return ninja.run(
                program, directory, (), environment, progress, options.jobs, options.keep_going, lock
            )

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
        if run.code != 0 and not run.failures:
            how = f"was ended by signal {-run.code}" if run.code < 0 else f"ended with exit code {run.code}"
            raise ToolError(f"ninja {how}: {run.text}".removesuffix(": "))
        if left := _is_missing(planned, made, run):
            raise ToolError(
                f"{directory / left}: the step that makes it succeeded, but the file differs from its record",
                help="is the disk in order, and does anything else write there? kbuild clean makes room for a new build",
            )
        extend(options.project, directory, planned, run, made, resolve(options.source_digest))
        return _result(options, manifest, expansion, planned, run, made, directory)


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
    tools = {tool.name: digests.get(Path(tool.path)) for tool in (ptxas, toolchain.find_llvm())}
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
    closures = source_digests(options, manifest, {variant.kernel for variant in expansion.variants})
    with_places = {variant.kernel for variant in expansion.variants if variant.options.names_lines}
    places = source_digests(options, manifest, with_places, True) if with_places else {}
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


def source_digests(
    options: BuildOptions, manifest: Manifest, wanted: Collection[str], places: bool = False
) -> dict[str, str]:
    """The digest of each wanted kernel's source closure, by kernel; of the places of its statements, too, if asked for."""
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
        "cache": str(options.cache.absolute()) if options.cache else None,
        "package": not options.kernels,
        "ptxas": ptxas.path,
        "compiler": options.compiler,
        "source_digest": options.source_digest,
        "strict": options.compile.strict,
        "verbose": options.verbose,
        "path": [entry for entry in sys.path if entry and os.path.isdir(entry)],
    }
    write_if_changed(directory / STATE / "settings.json", canonical_json(settings))


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
        _failure(failure, by_output.get(failure.output), manifest, options.compile.strict)
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
        Cache(options.cache).trim()
    facts = tuple(made[job.record] for job in planned.jobs if job.record in made)
    wheel = None
    if run.code == 0 and WHEEL in made:
        wheel = _publish(directory / made[WHEEL]["wheel"], options.dist or options.project / "dist")
    return BuildResult(planned.jobs, compiled, cached, failures, expansion, wheel, facts)


def _failure(failure: ninja.Failure, job: Job | None, manifest: Manifest, is_strict: bool) -> KbuildError:
    """The error of a failed step: which variant, what it said, and the command that repeats it."""
    text = failure.text if len(failure.text) <= _LARGEST_TEXT else failure.text[:_LARGEST_TEXT] + "\n[cut]"
    if failure.code == 128 + signal.SIGALRM:
        text = f"{text}\nit was not done after {LONGEST_COMPILE} seconds".strip()
    elif failure.code >= 126 and "error:" not in text:
        text = f"{text}\nthe compiler was ended by signal {failure.code - 128}, or could not run".strip()
    if job is not None:
        # Only ninja from 1.12 on reports the exit code; a process that was killed has printed nothing.
        text = text or "the compiler ended without a word, as it does when the system runs out of memory"
        return VariantError(job.variant.name, text, job.command() + " --strict" * is_strict)
    what = "compiling its launcher failed" if failure.output == LAUNCHER else "failed"
    text = text or f"the step ended with exit code {failure.code} and said nothing"
    return ToolError(f"the package {manifest.package.name}: {what}\n{text}")


def grouped(failures: Sequence[KbuildError]) -> list[KbuildError]:
    """The failures of a build, with equal failures of several variants reported once."""
    alike: dict[str, list[VariantError]] = {}
    reported: list[KbuildError] = []
    for failure in failures:
        if not isinstance(failure, VariantError):
            reported.append(failure)
        elif failure.text not in alike:
            alike[failure.text] = [failure]
            reported.append(failure)
        else:
            alike[failure.text].append(failure)
    for text, variants in alike.items():
        if len(variants) > 1:
            first, more = variants[0], len(variants) - 1
            names = "\n".join(f"  {one.variant}" for one in variants[1 : 1 + _MAX_NAMES])
            names += f"\n  and {more - _MAX_NAMES} more" if more > _MAX_NAMES else ""
            reported[reported.index(first)] = ToolError(
                f"{first.variant} failed\n{text}\nlikewise:\n{names}", help=first.help
            )
    return reported


def _publish(source: Path, dist: Path) -> Path:
    """Puts the wheel into `dist`, in place of those of the same version for this machine; equal bytes are left
    alone, and so are wheels for other machines."""
    target = dist / source.name
    name, version, *_ = source.name.split("-")
    write_files({target: source.read_bytes()})
    for other in dist.glob(f"{name}-{version}-*.whl"):
        if other != target and machine_of(_platform(other)) == machine_of(_platform(target)):
            other.unlink()
    return target


def _platform(wheel: Path) -> str:
    return wheel.stem.rpartition("-")[2]
