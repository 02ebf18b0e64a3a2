"""The launches that `[kernel.verify]` asks for, fitted to variants: which a variant may take, grid, and sizes of arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kbuild.aot import expressions
from kbuild.aot.expressions import ExpressionFault
from kbuild.aot.manifest import Guard, Kernel
from kbuild.aot.matrix import Variant
from kbuild.errors import UsageError


@dataclass(frozen=True)
class Case:
    """One launch of a kernel."""

    scalars: tuple[tuple[str, int | float], ...]
    """Values of the arguments that are no pointers, and of those that the grid alone needs."""
    sizes: tuple[tuple[str, int], ...]
    """Elements of the array that each pointer points to."""
    grid: tuple[int, ...]
    """Programs along each axis."""

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.scalars)


def cases(kernel: Kernel, variant: Variant) -> Iterator[Case]:
    """Those launches of the manifest that dispatch could give to the variant.  UsageError where a size cannot be computed."""
    if kernel.verify is None:
        return
    for scalars in kernel.verify.values:
        if not _keeps_promises(variant, dict(scalars)):
            continue
        known = {name: value for name, value in {**variant.values, **dict(scalars)}.items() if isinstance(value, int)}
        sizes = tuple((name, _computed(kernel, f"size of {name}", text, known)) for name, text in kernel.verify.sizes)
        grid = tuple(_computed(kernel, "grid", text, known) for text in kernel.grid)
        if all(grid):  # The launcher does not start a grid of no programs.
            yield Case(scalars, sizes, grid)


def _keeps_promises(variant: Variant, scalars: Mapping[str, int | float]) -> bool:
    """Whether the scalars are what the variant's types and guards say."""
    for name, type_ in variant.signature:
        hint = type_.partition(":")[2]
        if name in scalars and hint and not (scalars[name] == 1 if hint == "1" else scalars[name] % 16 == 0):
            return False
    return all(_holds(guard, scalars) for guard in variant.guards)


def _holds(guard: Guard, scalars: Mapping[str, int | float]) -> bool:
    values = {guard.argument: int(scalars[guard.argument])}
    return bool(expressions.evaluate(expressions.parse(guard.expression, values, "guard"), values))


def _computed(kernel: Kernel, what: str, text: str, known: Mapping[str, int]) -> int:
    """The value of an expression of the manifest."""
    try:
        value = expressions.evaluate(expressions.parse(text, known, f'kernel "{kernel.name}": {what}'), known)
    except ExpressionFault as fault:
        raise UsageError(f'kernel "{kernel.name}": {what}: {text}: {fault}') from None
    if not 0 <= value < 2**31:
        raise UsageError(f'kernel "{kernel.name}": {what}: {text} is {value}', hint="expected a number from 0 to 2^31 - 1")
    return value
