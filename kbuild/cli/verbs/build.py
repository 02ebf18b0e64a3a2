"""`kbuild build` and `kbuild wheel`: the whole project, with progress and a summary."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from kbuild.aot.artifact.platforms import parse_platform
from kbuild.aot.build import project as builder
from kbuild.aot.build import results
from kbuild.aot.build.cache import CAPACITY, usable
from kbuild.aot.build.progress import Bar, Lines, Progress
from kbuild.aot.environment import Remote, cache_capacity, cache_directory, epoch, number, remote
from kbuild.cli.verbs.show import compile_options, size_of
from kbuild.errors import ErrorGroup, KbuildError, ToolError

MAX_WARNINGS = 20
"""Lines of warnings that a build prints."""


def run(options: argparse.Namespace) -> int:
    started = time.monotonic()
    only_path = getattr(options, "only_path", False)
    progress = progress_of(options)
    asked = request_of(options)
    result = builder.build(asked, progress)
    if options.json:
        print(json.dumps(_result_json(result, time.monotonic() - started), indent=1))
    elif only_path and result.wheel:
        print(result.wheel)
    elif options.dry_run:
        print("\n".join(job.variant.name for job in result.jobs))
    if not options.quiet and not options.dry_run:
        progress.message(_summary(result, asked.project / builder.BUILD, time.monotonic() - started))
    if result.failures:
        raise ErrorGroup([*results.grouped(result.failures), *_failed(result, options.keep_going)])
    return 0


def progress_of(options: argparse.Namespace) -> Progress:
    """How the build shows what it does."""
    wished = any(options.environment.get(name) for name in ("CI", "NO_COLOR"))
    plain = wished or options.color == "never" or not sys.stderr.isatty()
    return Progress() if options.quiet else Bar() if not plain or options.color == "always" else Lines()


def request_of(options: argparse.Namespace) -> builder.BuildOptions:
    """The build that the command line asks for."""
    project = Path(options.directory)
    return builder.BuildOptions(
        project=project,
        environment=options.environment,
        archs=tuple(options.archs),
        kernels=tuple(options.kernels),
        shard=getattr(options, "shard", None),
        jobs=options.jobs or number(options.environment, "MAX_JOBS") or 0,
        keep_going=options.keep_going,
        platform=parse_platform(options.platform).text if options.platform else "",
        compile=compile_options(options),
        verbose=options.verbose,
        dry_run=options.dry_run,
        cache=_cache(options),
        capacity=cache_capacity(options.environment, CAPACITY),
        remote=remote_of(options),
        dist=Path(options.output) if options.output else None,
        epoch=epoch(options.environment),
        display=(project / builder.MANIFEST).as_posix(),
    )


def remote_of(options: argparse.Namespace) -> Remote | None:
    """What the command line and the environment share with other machines."""
    environment = {**options.environment, **({"KBUILD_DISABLE_CACHE": "1"} if options.no_cache else {})}
    found = remote(
        environment,
        options.cache_url,
        options.remote,
        options.remote_jobs,
        options.remote_only,
        options.cache_read_only,
    )
    if found is not None:
        from kbuild.aot.remote.address import check  # Other builds do without.

        check(found)
    return found


def _cache(options: argparse.Namespace) -> Path | None:
    directory = None if options.no_cache else cache_directory(options.environment)
    if directory is not None and (why := usable(directory)):
        print(f"warning: building without a cache: {why}", file=sys.stderr)
        return None
    return directory


def _failed(result: results.BuildResult, keep_going: bool) -> list[KbuildError]:
    """How many variants failed, if any did."""
    variants = _variants_failed(result)
    left = result.totals.variants - result.totals.built - variants
    text = f"{variants} of {result.totals.variants} variants failed"
    help = "" if keep_going or left <= 0 else f"-k builds the {left} that were not tried"
    return [ToolError(text, help=help)] if variants else []


def _variants_failed(result: results.BuildResult) -> int:
    return sum(isinstance(failure, results.VariantError) for failure in result.failures)


def _summary(result: results.BuildResult, build: Path, seconds: float) -> str:
    fresh = len(result.compiled)
    elsewhere = result.exchanged.executed if result.exchanged else 0
    done = [f"{fresh - result.cached} compiled"] if fresh else []
    done += [f"{elsewhere} executed elsewhere"] if elsewhere else []
    done += [f"{max(result.cached - elsewhere, 0)} from the cache"] if fresh else []
    done += [f"{failed} failed"] if (failed := _variants_failed(result)) else []
    compiled = set(result.compiled)
    own = [fact for fact in result.facts if fact["name"] in compiled] if compiled else []
    new = [f"warning: {fact['name']}: {text}" for fact in own for text in results.warnings_of(fact)]
    older = result.totals.warned - sum(bool(results.warnings_of(fact)) for fact in own)
    lines = new[:MAX_WARNINGS]
    if len(new) > MAX_WARNINGS:
        lines.append(f"and {len(new) - MAX_WARNINGS} warnings more; kbuild list -v shows them all")
    if older:
        lines.append(f"{older} variants compiled before have warnings; kbuild list -v shows them")
    summary = ", ".join(done) or "nothing had to be compiled"
    totals = result.totals
    lines.append(f"{totals.built} cubins in {build}, {size_of(totals.size)}; {summary}; {seconds:.1f} s")
    if (moved := result.exchanged) and (moved.received_bytes or moved.sent_bytes):
        fetched = f"{moved.fetched} entries fetched, {size_of(moved.received_bytes)} received"
        lines.append(f"shared: {fetched}; {moved.sent} entries sent, {size_of(moved.sent_bytes)}")
    if result.wheel:
        what = "wheel" if result.wheel.suffix == ".whl" else "part"
        lines.append(f"{what}: {result.wheel}, {size_of(result.wheel.stat().st_size)}")
    return "\n".join(lines)


def _result_json(result: results.BuildResult, seconds: float) -> dict[str, object]:
    return {
        "variants": len(result.jobs),
        "compiled": list(result.compiled),
        "cached": result.cached,
        "failed": [failure.message.splitlines()[0] for failure in result.failures],
        "facts": list(result.facts),
        "wheel": str(result.wheel) if result.wheel else None,
        "wheel_bytes": result.wheel.stat().st_size if result.wheel else None,
        "seconds": round(seconds, 3),
        **({"shared": asdict(result.exchanged)} if result.exchanged else {}),
    }
