"""`kbuild tune`: the fastest configurations of the manifest's kernels, on the GPU at hand."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kbuild.aot.build import project as builder
from kbuild.aot.build.compile_variant import resolve
from kbuild.aot.build.progress import Bar, Lines, Progress
from kbuild.aot.environment import LIBCUDA, PRINT_TUNING, cache_directory, flag, number
from kbuild.aot.manifest import tuned
from kbuild.aot.manifest.expand import Expansion, Variant, notes_on_sources
from kbuild.aot.manifest.load import load
from kbuild.aot.manifest.model import Manifest
from kbuild.aot.tune import tune as tuner
from kbuild.aot.tune.tasks import TuneTask, short, tasks, variants_of
from kbuild.aot.tune.tune import DeviceFacts, TimingDevice
from kbuild.aot.verify.cases import FEW_SMS
from kbuild.errors import UsageError
from kbuild.targets import capability_of, find_target

DIRECTORY = "tune"
"""Within the build directory."""
JOURNAL = "journal.jsonl"

Programs = Mapping[Variant, tuple[dict[str, Any], bytes]]


def run(options: argparse.Namespace) -> int:
    project = Path(options.directory)
    display = (project / builder.MANIFEST).as_posix()
    manifest = load(project / builder.MANIFEST, display)
    file = project / tuned.FILE
    if options.merge:
        entries = [entry for name in options.merge for entry in tuned.read(existing(Path(name)))]
        tuned.write(file, tuned.merged(tuned.read(file), entries))
        _say(options, f"{file}: {len(entries)} entries taken in")
        return 0
    machine = None if options.dry_run else open_machine(options.device, options.environment)
    archs = chosen_archs(manifest, tuple(options.archs), machine.device if machine else None)
    found = list(tasks(manifest, archs, known_kernels(manifest, options.kernels)))
    if not found:
        raise UsageError(
            "there is nothing to tune",
            help="[kernel.tune] of a kernel says what, or launches that were captured: docs/tune.md",
        )
    for note in notes_on_sources(manifest, [task.kernel for task in found]):
        _say(options, f"note: {note}")
    programs = compiled(options, manifest, found, display)
    if machine is None:
        _show(found, programs)
        return 0
    journal = project / builder.BUILD / DIRECTORY / JOURNAL
    if options.fresh:
        journal.unlink(missing_ok=True)
    return tune_all(options, manifest, found, programs, machine, tuner.Journal(journal, machine.device), file)


def tune_all(
    options: argparse.Namespace,
    manifest: Manifest,
    found: list[TuneTask],
    programs: Programs,
    machine: TimingDevice,
    journal: tuner.Journal,
    file: Path,
) -> int:
    """Tunes task after task; each result is in the table as soon as it is known."""
    digest = resolve(builder.SOURCE_DIGEST)
    for number_, task in enumerate(found, 1):
        kernel = manifest.kernel(task.kernel)
        _say(options, f"[{number_}/{len(found)}] {task}")
        if task.default not in programs:
            raise UsageError(f"{task.default.name} does not compile", help="kbuild build says why")
        source = digest(*kernel.source_in(Path(options.directory)))
        entry = tuner.tune(task, kernel, programs, source, machine, journal, lambda text: _say(options, text))
        kept = [
            one
            for one in tuned.read(file)
            if one.device != machine.device.name or one.place not in task.places
        ]
        tuned.write(file, [*kept, entry] if entry else kept)
    _say(options, f"{file}: {len(tuned.read(file))} entries")
    return 0


def open_machine(ordinal: int, environment: Mapping[str, str]) -> TimingDevice:
    """The GPU; ToolError where there is none, or no cuda-core."""
    # It takes cuda-core, which is an extra, and numpy: merging needs neither.
    from kbuild.aot.tune.gpu import TuningGpu

    return TuningGpu(ordinal, environment.get(LIBCUDA))


def chosen_archs(manifest: Manifest, asked: tuple[str, ...], device: DeviceFacts | None) -> tuple[str, ...]:
    """The architectures to tune: those asked for, or what the device runs of the manifest's."""
    for arch in asked:
        if arch not in manifest.package.archs:
            raise UsageError(f"no architecture {arch} in the manifest")
    if device is None:
        return asked or manifest.package.archs
    runs = [
        arch
        for arch in manifest.package.archs
        if find_target(arch).runs_on(device.capability) and arch in (asked or (arch,))
    ]
    if not runs:
        names = ", ".join(asked or manifest.package.archs)
        raise UsageError(
            f"{device.name} has capability {device.capability / 10}, and runs no cubins for {names}"
        )
    return (max(runs, key=capability_of),)


def known_kernels(manifest: Manifest, names: list[str]) -> tuple[str, ...]:
    for name in names:
        if name not in [kernel.name for kernel in manifest.kernels]:
            raise UsageError(f"no kernel {name} in the manifest")
    return tuple(names)


def existing(file: Path) -> Path:
    if not file.is_file():
        raise UsageError(f"--merge {file}: no such file")
    return file


def compiled(
    options: argparse.Namespace, manifest: Manifest, found: list[TuneTask], display: str
) -> Programs:
    """Facts and cubins of all variants of the tasks that compile; most that do not ask for too much shared
    memory."""
    project = Path(options.directory)
    directory = project / builder.BUILD / DIRECTORY
    asked = builder.BuildOptions(
        project=project,
        environment=options.environment,
        kernels=tuple(dict.fromkeys(task.kernel for task in found)),
        jobs=options.jobs or number(options.environment, "MAX_JOBS") or 0,
        keep_going=True,
        cache=None if options.no_cache else cache_directory(options.environment),
        display=display,
    )
    progress = Progress() if options.quiet else Bar() if sys.stderr.isatty() else Lines()
    variants = variants_of(found)
    manifest = replace(manifest, package=replace(manifest.package, ptx_archs=()))  # Only cubins are timed.
    result = builder.build_variants(asked, manifest, Expansion(variants, ()), directory, progress)
    made: dict[Variant, tuple[dict[str, Any], bytes]] = {}
    facts = {fact["variant"]: fact for fact in result.facts}
    failed = {failure.message.split(" ")[0] for failure in result.failures}
    for job in result.jobs:
        if str(job.variant) in facts and job.variant.name not in failed:
            made[job.variant] = facts[str(job.variant)], (directory / f"{job.stem}.cubin").read_bytes()
    _say(options, f"{len(made)} of {len(variants)} variants compile, for {len(found)} kinds of calls")
    return made


def _show(found: list[TuneTask], programs: Programs) -> None:
    """What would be tried, and why not the rest."""
    for task in found:
        target = find_target(task.default.arch)
        device = DeviceFacts(target.arch, target.capability, target.limits.shared_bytes, FEW_SMS)
        kept = list(tuner.worth_running(task, programs, device))
        most = tuner.most_spilled(task, programs)
        print(f"{task}: {len(kept)} of {len(task.candidates)} candidates")
        for variant in task.candidates:
            if variant in kept:
                facts = programs[variant][0]
                state = f"{facts['registers']} registers, {facts['shared']} bytes of shared memory, "
                state += f"{tuner.programs_at_once(facts, device)} at once"
            elif variant not in programs:
                state = "does not compile"
            else:
                state = tuner.obstacle(programs[variant][0], device, most) or "the same code as another"
            print(f"  {'+' if variant in kept else '-'} {short(variant)}: {state}")


def _say(options: argparse.Namespace, text: str) -> None:
    if not options.quiet or flag(options.environment, PRINT_TUNING):
        print(text, file=sys.stderr, flush=True)
