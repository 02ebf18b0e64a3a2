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

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from kbuild.aot.manifest import expressions
from kbuild.aot.manifest.descriptors import expanded
from kbuild.aot.manifest.expand import Variant, expand_config, points
from kbuild.aot.manifest.launches.shape import LaunchShapeError, with_launch_shape
from kbuild.aot.manifest.model import (
    HINT_WEIGHTS,
    Bucket,
    Config,
    Guard,
    Kernel,
    Manifest,
    PointCondition,
    Tune,
    Value,
)
from kbuild.aot.manifest.tuned import TunedEntry
from kbuild.aot.verify.cases import LaunchCase, sized_case
from kbuild.aot.verify.recorded import launches_of, numbers_of
from kbuild.errors import KbuildError, ManifestError
from kbuild.options import by_name
from kbuild.targets import find_target, nearest_target

FINALISTS = 4
"""Candidates that are checked, and timed again with the default, launch by launch."""
NEAR = 1.1
"""How much longer a finalist of a short trial may take than the fastest correct one: more exceeds the
noise."""
SECONDS = 0.3
"""Seconds of device time for the finalists."""
_MOST_WARPS = 32
"""Warps of a program."""
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


@dataclass(frozen=True)
class TuneTask:
    """Calls to find a configuration for."""

    kernel: str
    when: tuple[tuple[str, Value], ...]
    """The point: `arch`, axes, `specialize`."""
    bucket: Bucket
    facts: tuple[Guard, ...]
    """The bucket's, and those of the configuration that the manifest has for its launch."""
    default: Variant
    """The manifest's choice."""
    candidates: tuple[Variant, ...]
    """What to try; with what each asks of the arguments besides `facts`, where that is not the same for all."""

    def facts_of(self, variant: Variant) -> tuple[Guard, ...]:
        """What holds of the arguments where a candidate may be used."""
        return tuple(dict.fromkeys((*self.facts, *variant.guards)))

    @property
    def places(self) -> set[object]:
        """The calls that entries of this task are for, as `TunedEntry.place` says them."""
        return {(self.kernel, self.when, self.facts_of(one)) for one in (self.default, *self.candidates)}

    def __str__(self) -> str:
        point = [f"{name}={value}" for name, value in self.when if value != "" and name != "arch"]
        return " ".join([f"{self.kernel}.{dict(self.when)['arch']}", *point, *map(str, self.facts)])


def tasks(manifest: Manifest, archs: Sequence[str], kernels: Sequence[str]) -> Iterator[TuneTask]:
    """Everything to tune, in the order of the manifest."""
    for kernel in manifest.kernels:
        if kernels and kernel.name not in kernels:
            continue
        if kernel.tune is None or not kernel.tune.buckets:
            yield from _recorded_tasks(kernel, archs)
            continue
        for arch, bucket, point in itertools.product(archs, kernel.tune.buckets, points(kernel)):
            facts = dict(point) | {"arch": arch}
            if any(condition.holds(facts) for condition in kernel.excludes):
                continue
            task = _task(kernel, arch, bucket, point)
            if task is not None:
                yield task


def _recorded_tasks(kernel: Kernel, archs: Sequence[str]) -> Iterator[TuneTask]:
    """The variants of a kernel that have captured launches, each with its largest; of those that entries of the table do
    not tell apart, for their hints have no name, the one with the largest."""
    found: dict[tuple[object, ...], tuple[int, TuneTask]] = {}
    every = itertools.product(archs, points(kernel), kernel.specializations) if kernel.recorded else ()
    for arch, point, specialization in every:
        facts = dict(point) | {"arch": arch, "specialize": specialization.name}
        when = (("arch", arch), *point, ("specialize", specialization.name))
        for config in kernel.configs:
            if not config.when.holds(facts):
                continue
            for default in expand_config(kernel, arch, point, config, [specialization]):
                bucket = _recorded_bucket(kernel, default)
                if bucket is None:
                    continue
                tried = dict.fromkeys(_candidates(kernel, default, config, bucket, facts))
                plain = replace(default, guards=())
                task = TuneTask(kernel.name, when, bucket, config.guards, plain, tuple(tried))
                size = sum(int(elements) for _, elements in bucket.sizes)
                known = found.get((when, config.guards))
                if known is None or known[0] < size:
                    found[when, config.guards] = size, task
    yield from (task for _, task in found.values())


def _recorded_bucket(kernel: Kernel, variant: Variant) -> Bucket | None:
    """The largest captured launch of a variant, if there is one, with what to try: half and twice the warps, unless the
    manifest says it."""
    launches = launches_of(kernel, variant, exactly=True)
    numbers = numbers_of(kernel, variant, launches[-1]) if launches else None
    if numbers is None:
        return None
    sizes = {array.name: str(array.elements) for array in launches[-1].arrays}
    pointers = {name for name, type_, _ in expanded(variant.signature) if type_.startswith("*")}
    warps = variant.options.num_warps
    some = tuple(count for count in (warps // 2, warps, 2 * warps) if 1 <= count <= _MOST_WARPS)
    tried = (kernel.tune.candidates if kernel.tune else ()) or (("num_warps", some),)
    bucket = Bucket(PointCondition(), (), tuple(numbers.items()), tried, sizes=tuple(sizes.items()))
    is_whole = sizes.keys() >= pointers and launch_of(kernel, variant, bucket) is not None
    return bucket if is_whole else None


def _task(kernel: Kernel, arch: str, bucket: Bucket, point: tuple[tuple[str, Value], ...]) -> TuneTask | None:
    """One point's task; None where the bucket is not for it, or no configuration would take its launch."""
    # Dispatch takes the strongest hints that a call fulfils.
    strongest = sorted(
        kernel.specializations, key=lambda one: -sum(HINT_WEIGHTS[hint] for _, hint in one.hints)
    )
    for specialization in strongest:
        facts = dict(point) | {"arch": arch, "specialize": specialization.name}
        for config in kernel.configs:
            if not config.when.holds(facts):
                continue
            for default in expand_config(kernel, arch, point, config, [specialization]):
                if launch_of(kernel, default, bucket) is None:
                    continue
                if not bucket.when.holds(facts):
                    return None
                found = _candidates(kernel, default, config, bucket, facts)
                found = (variant for variant in found if _is_asked_for(bucket, variant))
                when = (("arch", arch), *point, ("specialize", specialization.name))
                # Its code does not depend on its guards.
                guards = tuple(dict.fromkeys((*config.guards, *bucket.guards)))
                return TuneTask(
                    kernel.name,
                    when,
                    bucket,
                    guards,
                    replace(default, guards=()),
                    tuple(dict.fromkeys(found)),
                )
    return None


def launch_of(
    kernel: Kernel, variant: Variant, bucket: Bucket, num_sms: int | None = None
) -> LaunchCase | None:
    """The bucket's launch of a variant on so many multiprocessors, as in `sized_case`; None if it does not
    fulfil the variant's hints."""
    tune = kernel.tune or Tune((), ())
    sizes = bucket.sizes or tune.sizes
    case = sized_case(kernel, variant, dict(bucket.values), sizes, kernel.grid, num_sms)
    return case and replace(case, zeros=tune.zeros, restored=tune.restore)


def _candidates(
    kernel: Kernel, default: Variant, config: Config, bucket: Bucket, facts: Mapping[str, Value]
) -> Iterator[Variant]:
    """What is tried in place of the default: lists of the manifest, or the configurations of `@triton.autotune`,
    each as it is for the bucket's launch, with the facts that it asks for."""
    if bucket.candidates or not kernel.alternatives:
        for chosen in _choices(bucket):
            variant = _candidate(kernel, default, config, chosen)
            if variant is not None:
                yield variant
        return
    for row in kernel.alternatives:
        for one in row:
            if one.when.holds(dict(facts)):
                variant = _candidate(kernel, default, one, {})
                if variant is None:
                    continue
                variant = replace(variant, guards=one.guards)
                if launch_of(kernel, variant, bucket) is not None:
                    yield variant
                    break


def _choices(bucket: Bucket) -> Iterator[dict[str, Value]]:
    names = [name for name, _ in bucket.candidates]
    for values in itertools.product(*(values for _, values in bucket.candidates)):
        yield dict(zip(names, values))


def _candidate(
    kernel: Kernel, default: Variant, config: Config, chosen: Mapping[str, Value]
) -> Variant | None:
    """The default variant with other meta-parameters; None where no launch can have the block that they make,
    or the architecture lacks what they need."""
    named = {name: value for name, value in chosen.items() if by_name(name, "variant") is None}
    options = config.options.changed({name: value for name, value in chosen.items() if name not in named})
    values = dict(default.constexprs) | dict(config.constexprs) | named
    values |= {
        name: getattr(options, name) for name in values if by_name(name, "variant")
    }  # What the kernel takes as well.
    # In one order, whichever configuration is the default: buckets share the code of their candidates.
    own = tuple(sorted(values.items())) if values != dict(default.constexprs) else default.constexprs
    features = find_target(default.arch).features
    options = options.on(features)
    if options.lacking(features):
        return None
    try:
        options = with_launch_shape(kernel, options, dict(default.matrix) | values)
    except LaunchShapeError:
        return None
    return Variant(
        kernel=kernel.name,
        arch=default.arch,
        matrix=default.matrix,
        signature=default.signature,
        constexprs=own,
        options=options,
    )


def _is_asked_for(bucket: Bucket, variant: Variant) -> bool:
    """Whether a candidate is as the bucket requires it to be; it is not where an expression divides by zero."""
    numbers = {name: value for name, value in bucket.values if isinstance(value, int)}
    numbers |= {name: int(value) for name, value in variant.constexprs if isinstance(value, int)}
    numbers |= {
        name: int(value)
        for name, value in variant.options.values("variant").items()
        if isinstance(value, int)
    }
    for name in (name for expression in bucket.require for name in expression.names):
        if name not in numbers:
            raise ManifestError(
                f"{variant.kernel}: tune.require names {name}, which is not a whole number in {short(variant)}"
            )
    try:
        return all(expressions.evaluate(expression, numbers) for expression in bucket.require)
    except expressions.ExpressionFault:
        return False


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


def short(variant: Variant) -> str:
    """A variant's meta-parameters."""
    values = ",".join(f"{name}={value}" for name, value in variant.constexprs if value is not None)
    return f"{values} {variant.options.tags}"


def variants_of(found: Iterable[TuneTask]) -> tuple[Variant, ...]:
    """All variants that the tasks need."""
    return tuple(dict.fromkeys(variant for task in found for variant in (task.default, *task.candidates)))
