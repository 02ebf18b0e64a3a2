"""The launches that a variant is verified with: those of `[kernel.verify]`, those its loops ask for, a
captured one, or a guessed one.

values = [{ M = 5, K = 80, stride = "K" }]      M=5, K=80, stride=80
loops = { K = "BLOCK_K" }   BLOCK_K = 64        K=0, K=1, K=128, K=129, K=256, …       up to 2 · (num_stages + 1)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kbuild.aot.manifest import expressions
from kbuild.aot.manifest.descriptors import expanded, hint_of
from kbuild.aot.manifest.expand import Variant
from kbuild.aot.manifest.expressions import ExpressionFault
from kbuild.aot.manifest.model import Guard, Kernel
from kbuild.aot.verify.recorded import Recorded, launches_of, numbers_of, recorded_of
from kbuild.errors import UsageError
from kbuild.targets import find_target

Launch = Mapping[str, int | float | str]
"""Scalars by name, or the expressions that give them."""

_GUESS_INTEGER, _GUESS_FLOAT = 40, 0.5
"""The scalars of a launch that the manifest does not describe; flags are 1."""
_GUESS_ROW = 48
"""Elements from one row of a descriptor's tensor to the next: 16 bytes divide them, whatever their type."""
FEW_SMS = 2
"""Multiprocessors of the device: so few that persistent programs have several tiles each."""


@dataclass(frozen=True)
class LaunchCase:
    """One launch of a kernel."""

    scalars: tuple[tuple[str, int | float], ...]
    """Values of the arguments that are not pointers, and of those that only the grid needs."""
    sizes: tuple[tuple[str, int], ...] | None
    """Elements of the array that each pointer points to; None where running the kernel finds them."""
    grid: tuple[int, ...]
    """Programs along each axis."""
    zeros: tuple[str, ...] = ()
    """The arrays initialized with zeros."""
    restored: tuple[str, ...] = ()
    """Other arrays that have their first numbers before every launch, where there are several."""
    recorded: Recorded | None = None
    """What is known of a launch that was captured."""

    def __str__(self) -> str:
        text = ", ".join(f"{name}={value}" for name, value in self.scalars)
        return f"{text}; programs {self.recorded}" if self.recorded and self.recorded.programs else text


def cases(kernel: Kernel, variant: Variant) -> list[LaunchCase]:
    """The launches for a variant, those of the manifest first, or the smallest that was captured; none where the kernel's
    integers cannot be guessed.

    Raises UsageError where an expression of the manifest has no value, ManifestError where it names
    something unknown.
    """
    if kernel.verify is None and (recorded := _recorded(kernel, variant)) is not None:
        return [recorded]
    launches = _launches(kernel, variant)
    found = [
        case_of(kernel, variant, launch) for launch in (*launches, *_loops(kernel, variant, launches[:1]))
    ]
    return list(dict.fromkeys(case for case in found if case is not None))


def _recorded(kernel: Kernel, variant: Variant) -> LaunchCase | None:
    """The smallest captured launch that the variant takes."""
    for launch in launches_of(kernel, variant):
        numbers = numbers_of(kernel, variant, launch)
        case = sized_case(kernel, variant, numbers, None, kernel.grid) if numbers is not None else None
        if case is not None:
            return replace(case, recorded=recorded_of(launch, case.grid))
    return None


def _launches(kernel: Kernel, variant: Variant) -> list[Launch]:
    """The launches of the manifest that dispatch could give to the variant; if there are none, one adapted to
    it."""
    given: list[Launch] = [_guessed(kernel)]
    if kernel.verify is not None:
        given = [dict(launch) for launch in kernel.verify.values]
        fitting = [launch for launch in given if case_of(kernel, variant, launch) is not None]
        if fitting:
            return fitting
    changed = (_fitted(variant, launch) for launch in given)
    return [launch for launch in changed if case_of(kernel, variant, launch) is not None][:1]


def _guessed(kernel: Kernel) -> Launch:
    """A guessed launch: sizes are alike, and the rows of descriptors lie one after the other, with gaps."""
    launch = {
        argument.name: _guess(argument.type)
        for argument in kernel.args + kernel.grid_args
        if not argument.is_pointer
    }
    for name, _, extent in expanded((argument.name, argument.type) for argument in kernel.args):
        if extent is not None:
            rows = _GUESS_INTEGER ** (extent.rank - 2 - extent.axis) if extent.stride_bytes else 1
            launch[name] = _GUESS_ROW * rows if extent.stride_bytes else _GUESS_INTEGER
    return launch


def _guess(type_: str) -> int | float:
    return _GUESS_FLOAT if type_[0] in "fb" else 1 if type_ == "i1" else _GUESS_INTEGER


def _loops(kernel: Kernel, variant: Variant, base: list[Launch]) -> Iterator[Launch]:
    """A launch for each number of rounds, full and ragged in turn."""
    for name, text in kernel.verify.loops if kernel.verify and base else ():
        hint = _hints(variant).get(name, "")
        step = _computed(kernel, f"loops.{name}", text, _integers(variant))
        if hint == "1" or step < 1:
            continue
        ragged = 16 if hint else 1
        for rounds in range(
            2 * variant.options.num_stages + 3
        ):  # A ring of buffers may have one more than there are stages.
            full = rounds % 2 == 0 or ragged >= step
            yield {**base[0], name: rounds * step if full else (rounds - 1) * step + ragged}


def _hints(variant: Variant) -> dict[str, str]:
    return {name: hint_of(type_) for name, type_ in variant.signature}


def _integers(variant: Variant) -> dict[str, int]:
    return {name: value for name, value in variant.values.items() if isinstance(value, int)}


def _fitted(variant: Variant, launch: Launch) -> Launch:
    """A launch whose numbers are changed to fulfil the variant's hints and guards, as far as that is
    simple."""
    hints, changed = _hints(variant), dict(launch)
    for name, value in launch.items():
        if isinstance(value, int):
            step = int(hints.get(name) or 1)
            low, high = _range([guard for guard in variant.guards if guard.argument == name], variant.arch)
            least = -(-low // step) * step
            changed[name] = (
                1
                if hints.get(name) == "1"
                else max(least, min(-(-value // step) * step, high // step * step))
            )
    return changed


def _range(guards: list[Guard], arch: str) -> tuple[int, int]:
    """The least and the greatest integer that comparisons allow."""
    low, high = -(2**31), 2**31 - 1
    for guard in guards:
        value = guard.bound(find_target(arch).multiprocessors)
        low = max(low, {">=": value, ">": value + 1, "==": value, "%": value}.get(guard.operator, low))
        high = min(high, {"<=": value, "<": value - 1, "==": value}.get(guard.operator, high))
    return low, high


def case_of(kernel: Kernel, variant: Variant, launch: Launch) -> LaunchCase | None:
    """The case of a launch of the manifest; None where the variant is not for it, or the launcher starts
    nothing."""
    if kernel.verify is None:
        return sized_case(kernel, variant, launch, None, kernel.grid)
    case = sized_case(kernel, variant, launch, kernel.verify.sizes, kernel.verify.grid or kernel.grid)
    return case and replace(case, zeros=kernel.verify.zeros)


def sized_case(
    kernel: Kernel,
    variant: Variant,
    launch: Launch,
    extents: Sequence[tuple[str, str]] | None,
    programs: Sequence[str],
    num_sms: int | None = None,
) -> LaunchCase | None:
    """A launch with arrays of `extents` and a grid of `programs`, expressions both, on a device of `num_sms`
    multiprocessors; by default its facts hold on a large device, and its grid is for one of FEW_SMS.

    None where it does not fulfil the variant's hints, or the grid is empty; raises as `cases`.
    """
    scalars = _scalars(kernel, variant, launch, num_sms or find_target(variant.arch).multiprocessors)
    if scalars is None:
        return None
    integers = {name: value for name, value in scalars.items() if isinstance(value, int)}
    known = {expressions.NUM_SMS: num_sms or FEW_SMS} | _integers(variant) | integers
    grid = tuple(_computed(kernel, "grid", text, known) for text in programs)
    sizes = None
    if extents is not None:
        # Extents such as (K - 1) * stride + 1 are below zero where there is nothing.
        sizes = tuple(
            (name, max(0, _computed(kernel, f"size of {name}", text, known))) for name, text in extents
        )
    return LaunchCase(tuple(scalars.items()), sizes, grid) if all(size > 0 for size in grid) else None


def _scalars(kernel: Kernel, variant: Variant, launch: Launch, num_sms: int) -> dict[str, int | float] | None:
    """The launch's values; None where they are not what the variant's types and guards say."""
    given = {name: value for name, value in launch.items() if not isinstance(value, str)}
    known = _integers(variant) | {name: value for name, value in given.items() if isinstance(value, int)}
    texts = {name: value for name, value in launch.items() if isinstance(value, str)}
    while texts:  # One may name any other, in whichever order they stand.
        ready = [
            name
            for name, text in texts.items()
            if not _names(kernel, name, text, {*known, *texts}) & texts.keys()
        ]
        if not ready:
            raise UsageError(f'kernel "{kernel.name}": the values of {", ".join(texts)} depend on each other')
        for name in ready:
            known[name] = given[name] = _computed(kernel, f"value of {name}", texts.pop(name), known)
    scalars = {name: given[name] for name in launch}
    for name, hint in _hints(variant).items():
        if (
            name in scalars
            and hint
            and not (scalars[name] == 1 if hint == "1" else scalars[name] % int(hint) == 0)
        ):
            return None
    return scalars if all(_holds(guard, scalars, num_sms) for guard in variant.guards) else None


def _holds(guard: Guard, scalars: Mapping[str, int | float], num_sms: int) -> bool:
    values = {expressions.NUM_SMS: num_sms} | {name: int(scalars[name]) for name in guard.arguments}
    return bool(expressions.evaluate(expressions.parse(guard.expression, values, "guard"), values))


def _names(kernel: Kernel, name: str, text: str, known: Collection[str]) -> set[str]:
    """The names in an expression of a launch's values."""
    return {*expressions.parse(text, known, f'kernel "{kernel.name}": value of {name}').names}


def _computed(kernel: Kernel, what: str, text: str, known: Mapping[str, int]) -> int:
    """The value of an expression of the manifest."""
    try:
        value = expressions.evaluate(expressions.parse(text, known, f'kernel "{kernel.name}": {what}'), known)
    except ExpressionFault as fault:
        raise UsageError(f'kernel "{kernel.name}": {what}: {text}: {fault}') from None
    if not -(2**31) <= value < 2**31:
        raise UsageError(
            f'kernel "{kernel.name}": {what}: {text} is {value}', help="expected a number of 32 bits"
        )
    return value
