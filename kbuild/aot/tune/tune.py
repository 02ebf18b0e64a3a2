"""`kbuild tune`: times the configurations that a manifest lists, for each kind of calls, and keeps the
fastest.

    [kernel.tune] ─tasks─▶ variants ─build─▶ cubins ─facts─▶ those that can pay ─time, compare, time─▶
    kernels.tune.toml
                                                                                └──▶ journal, for a run that
                                                                                goes on

A task is one bucket at one point of architecture, matrix and specialisation.  Everything here knows the
device only through `Machine`; `gpu.py` has the real one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from kbuild.aot.manifest.expand import Variant
from kbuild.aot.manifest.model import Kernel
from kbuild.aot.manifest.tuned import TunedEntry
from kbuild.aot.tune.tasks import TuneTask, launch_of, short
from kbuild.aot.verify.cases import LaunchCase
from kbuild.errors import KbuildError
from kbuild.options import by_name
from kbuild.targets import nearest_target

FINALISTS = 4
"""Candidates that are checked, and timed again with the default, launch by launch."""
NEAR = 1.1
"""How much longer a finalist of a short trial may take than the fastest correct one: more exceeds the
noise."""
SECONDS = 0.3
"""Seconds of device time for the finalists."""
WORTH = 0.98
"""As a part of the default's time: a smaller gain is within the noise, and not worth another cubin."""


@dataclass(frozen=True)
class DeviceFacts:
    """The properties of a GPU."""

    name: str
    capability: int
    """10 * major + minor."""
    shared_bytes: int
    """Shared memory that a program may have."""
    num_sms: int
    """Multiprocessors."""


@dataclass(frozen=True, eq=False)
class TimedProgram:
    """A cubin and how it is launched."""

    variant: Variant
    facts: Mapping[str, Any]
    """The facts of its compilation."""
    cubin: bytes
    case: LaunchCase


class TimingDevice(Protocol):
    """A GPU: where programs run and are timed."""

    device: DeviceFacts

    def place(self, variant: Variant, case: LaunchCase) -> None:
        """Make the arrays of a launch, of zeros or random values, in place of earlier ones."""
        ...

    def results(self, program: TimedProgram) -> dict[str, Any]:
        """Launch once on fresh arrays, and return those that changed.  ToolError if the device refuses or
        is lost."""
        ...

    def difference(self, variant: Variant, expected: Mapping[str, Any], found: Mapping[str, Any]) -> str:
        """The error in results, in words; empty if there is none."""
        ...

    def times(self, programs: Sequence[TimedProgram], seconds: float = SECONDS) -> list[float]:
        """The median time of a launch of each in microseconds, in random order, with a cold cache and with the
        arrays as they were placed that the launch asks for, over about so many seconds of the device's; a few
        launches of each where they are 0."""
        ...


def obstacle(facts: Mapping[str, Any], device: DeviceFacts, most: int = 0) -> str:
    """Why a candidate is not worth running, by its facts; empty if it is.  It may spill `most` bytes, as many as
    the default."""
    if spilled(facts) > most:
        return f"spills {spilled(facts)} bytes"
    shared = _shared(facts)
    if shared > device.shared_bytes:
        return f"needs {shared} bytes of shared memory, {device.shared_bytes} are there"
    if programs_at_once(facts, device) == 0:
        return f"{facts['registers']} registers of {32 * facts['warps']} threads are more than there are"
    return ""


def spilled(facts: Mapping[str, Any]) -> int:
    """Bytes of register spills, stores and loads."""
    return int(facts["spill_stores"] + facts["spill_loads"])


def most_spilled(task: TuneTask, programs: Mapping[Variant, tuple[dict[str, Any], bytes]]) -> int:
    """The bytes that the default spills, if it compiles."""
    return spilled(programs[task.default][0]) if task.default in programs else 0


def programs_at_once(facts: Mapping[str, Any], device: DeviceFacts) -> int:
    """Programs that one multiprocessor holds."""
    limits = replace(nearest_target(device.capability).limits, shared_bytes=device.shared_bytes)
    return limits.programs(_shared(facts), facts["warps"], facts["registers"])


def _shared(facts: Mapping[str, Any]) -> int:
    """Bytes of shared memory of a program: what launches ask for, and what kernels in CUDA C++ declare."""
    return int(facts["shared"] + facts.get("static_shared", 0))


class Journal:
    """The results of a run so far, line by line, for a later run that continues it."""

    def __init__(self, file: Path, device: DeviceFacts) -> None:
        self.file = file
        self.device = device.name
        self.known: dict[tuple[str, str], float | str] = {}
        try:
            lines = file.read_text().splitlines()
        except OSError:
            lines = []
        for line in lines:
            try:
                entry = json.loads(line)
                if entry["device"] == self.device:
                    self.known[entry["task"], entry["identity"]] = entry["result"]
            except (ValueError, KeyError, TypeError):
                continue  # The line that was being written when the run ended.

    def note(self, task: TuneTask, identity: str, result: float | str) -> None:
        """Microseconds, or what was wrong."""
        self.known[str(task), identity] = result
        self.file.parent.mkdir(parents=True, exist_ok=True)
        line = {"device": self.device, "task": str(task), "identity": identity, "result": result}
        with self.file.open("a") as stream:
            stream.write(json.dumps(line) + "\n")


def tune(
    task: TuneTask,
    kernel: Kernel,
    programs: Mapping[Variant, tuple[dict[str, Any], bytes]],
    digest: str,
    machine: TimingDevice,
    journal: Journal,
    note: Callable[[str], None],
) -> TunedEntry | None:
    """The fastest configuration of a task; None where it is the manifest's own.

    `programs` are the facts and cubins of all variants that compiled, `digest` is that of the kernel's
    source.  ToolError where the default does not run, or the device is lost.
    """

    def program(variant: Variant) -> TimedProgram:
        facts, cubin = programs[variant]
        case = launch_of(kernel, variant, task.bucket, machine.device.num_sms)
        assert case is not None, "the default's hints are those of all candidates"
        return TimedProgram(variant, facts, cubin, case)

    default = program(task.default)
    machine.place(task.default, default.case)
    expected = machine.results(default)
    chosen = [program(variant) for variant in worth_running(task, programs, machine.device)]
    times = tried(task, default, chosen, machine, journal, note)
    finalists: list[TimedProgram] = []
    for one in sorted(times, key=lambda one: times[one]):
        if len(finalists) == FINALISTS or (finalists and times[one] > NEAR * times[finalists[0]]):
            break
        problem = machine.difference(one.variant, expected, machine.results(one))
        if problem:
            journal.note(task, one.facts["identity"], problem)
            note(f"  {short(one.variant)}: {problem}")
        else:
            finalists.append(one)
    if not finalists:
        return None
    default_us, *others = machine.times([default, *finalists])
    us, best = min(zip(others, finalists), key=lambda item: item[0])
    note(f"  best: {short(best.variant)}: {us:.2f} us; default {short(task.default)}: {default_us:.2f} us")
    if us > WORTH * default_us:
        return None
    meta = {name for name in kernel.meta_parameters if by_name(name, "variant") is None}
    config = [(name, value) for name, value in best.variant.constexprs if name in meta]
    config += best.variant.options.stated().items()
    device = machine.device
    return TunedEntry(
        task.kernel,
        device.name,
        device.capability,
        digest,
        task.when,
        task.facts_of(best.variant),
        tuple(config),
        round(us, 3),
        round(default_us, 3),
    )


def tried(
    task: TuneTask,
    default: TimedProgram,
    chosen: Sequence[TimedProgram],
    machine: TimingDevice,
    journal: Journal,
    note: Callable[[str], None],
) -> dict[TimedProgram, float]:
    """Microseconds of the programs that run, by a few launches of each; those that the journal knows are not
    launched again."""
    [default_us] = machine.times([default], 0)
    times: dict[TimedProgram, float] = {}
    for number, program in enumerate(chosen, 1):
        identity = program.facts["identity"]
        result = journal.known.get((str(task), identity))
        if result is None:
            # A lost device ends the run: by this line the next run knows what not to try.
            journal.note(task, identity, "was running when the run ended")
            try:
                [result] = machine.times([program], 0)
            except KbuildError as error:
                result = error.message
            journal.note(task, identity, result)
            if isinstance(result, str):
                machine.times([default], 0)  # ToolError if the program has broken the device: the run ends.
        if isinstance(result, float):
            times[program] = result
        shown = (
            f"{result:.2f} us, {default_us / result:.2f} of the default's speed"
            if isinstance(result, float)
            else result
        )
        note(f"  [{number}/{len(chosen)}] {short(program.variant)}: {shown}")
    return times


def worth_running(
    task: TuneTask, programs: Mapping[Variant, tuple[dict[str, Any], bytes]], device: DeviceFacts
) -> Iterator[Variant]:
    """The candidates that compiled and that their facts allow, each code once."""
    seen: set[str] = set()
    most = most_spilled(task, programs)
    for variant in task.candidates:
        if variant not in programs:
            continue
        facts = programs[variant][0]
        if not obstacle(facts, device, most) and facts["sha256"] not in seen:
            seen.add(facts["sha256"])
            yield variant
