"""What `kbuild tune` tries: a task for each bucket at each point of architecture, matrix and specialisation, and for the
captured launches of kernels without buckets.

    [kernel.tune] ─tasks─▶ the variant that dispatch takes for a launch, and candidates for its place
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

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
    Specialization,
    Tune,
    Value,
)
from kbuild.aot.verify.cases import LaunchCase, sized_case
from kbuild.aot.verify.recorded import launches_of, numbers_of
from kbuild.errors import ManifestError
from kbuild.options import by_name
from kbuild.targets import find_target

_MOST_WARPS = 32
"""Warps of a program."""


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
                plain = _of_code(default)
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
        taken = _taken(kernel, arch, bucket, point, specialization)
        if taken is None:
            continue
        if not bucket.when.holds(facts):
            return None
        config, default = taken
        found = _candidates(kernel, default, config, bucket, facts)
        found = (variant for variant in found if _is_asked_for(bucket, variant))
        when = (("arch", arch), *point, ("specialize", specialization.name))
        guards = tuple(dict.fromkeys((*config.guards, *bucket.guards)))
        plain = _of_code(default)
        return TuneTask(kernel.name, when, bucket, guards, plain, tuple(dict.fromkeys(found)))
    return None


def _of_code(variant: Variant) -> Variant:
    """A variant without what dispatch alone asks of it, on which its code does not depend."""
    return replace(variant, guards=(), cost="")


def _taken(
    kernel: Kernel,
    arch: str,
    bucket: Bucket,
    point: tuple[tuple[str, Value], ...],
    specialization: Specialization,
) -> tuple[Config, Variant] | None:
    """The configuration that the bucket's launch takes at a point, and its variant: the first that applies, or where that has
    a cost, the cheapest."""
    facts = dict(point) | {"arch": arch, "specialize": specialization.name}
    applying = (
        (config, variant, case)
        for config in kernel.configs
        if config.when.holds(facts)
        for variant in expand_config(kernel, arch, point, config, [specialization])
        if (case := launch_of(kernel, variant, bucket)) is not None
    )
    first = next(applying, None)
    if first is None or not first[0].cost:
        return first and first[:2]
    rivals = [first, *(one for one in applying if one[0].cost)]
    return min(rivals, key=lambda one: _cost(one[1], one[2]))[:2] if len(rivals) > 1 else first[:2]


def _cost(variant: Variant, case: LaunchCase) -> int:
    """What a launch costs with a variant on the largest GPU of its architecture."""
    known = {name: value for name, value in case.scalars if isinstance(value, int)}
    known[expressions.NUM_SMS] = find_target(variant.arch).multiprocessors
    try:
        return expressions.evaluate(expressions.parse(variant.cost, known, "cost"), known)
    except expressions.ExpressionFault as fault:
        raise ManifestError(f'kernel "{variant.kernel}": cost: {variant.cost}: {fault}') from None


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


def short(variant: Variant) -> str:
    """A variant's meta-parameters."""
    values = ",".join(f"{name}={value}" for name, value in variant.constexprs if value is not None)
    return f"{values} {variant.options.tags}"


def variants_of(found: Iterable[TuneTask]) -> tuple[Variant, ...]:
    """All variants that the tasks need."""
    return tuple(dict.fromkeys(variant for task in found for variant in (task.default, *task.candidates)))
