"""Operators with numbers in place of names: what the launcher's tables are rendered from."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from kbuild.aot.artifact.selection import KernelTable
from kbuild.aot.manifest.model import Manifest
from kbuild.aot.op.expressions import OpExpression
from kbuild.aot.op.model import Op, OpLaunch
from kbuild.errors import ManifestError

NO_WORD, NOTHING_SAID = -1, -2
"""Of an option of a launch: it is bound to a number; nothing is bound to it."""


@dataclass(frozen=True)
class LaunchTable:
    """One launch of an operator."""

    kernel: int
    """Number of the kernel in the package."""
    tensors: tuple[int, ...]
    """For each parameter of the kernel the number of its tensor, or -1."""
    words: tuple[int, ...]
    """For each option of the kernel the scalar whose word it is, NO_WORD or NOTHING_SAID."""
    values: tuple[tuple[int, OpExpression], ...]
    """The expressions of parameters."""
    options: tuple[tuple[int, OpExpression], ...]
    """The expressions of options."""
    when: OpExpression | None


@dataclass(frozen=True)
class OperatorTable:
    """One operator."""

    op: Op
    constants: tuple[tuple[str, int], ...]
    """Compile-time values that its expressions name."""
    launches: tuple[LaunchTable, ...]
    agreements: tuple[tuple[OpExpression, OpExpression, str], ...]
    """Pairs of expressions that have to be equal, with the message where they are not."""

    @property
    def name(self) -> str:
        """The function's name."""
        return self.op.name

    @cached_property
    def dims(self) -> tuple[str, ...]:
        """The names of dimensions, those of computed values, then the other words of shapes, by number."""
        named = (*self.op.dims, *(value.name for value in self.op.values if not value.is_part))
        words = (word for tensor in self.op.tensors for word in tensor.dims)
        return (*named, *(word for word in dict.fromkeys(words) if word.removeprefix("*") not in named))

    def dim(self, word: str) -> int:
        """The number of a word of a shape."""
        return self.dims.index(word.removeprefix("*") if word.removeprefix("*") in self.op.dims else word)

    @cached_property
    def computed(self) -> tuple[tuple[str, OpExpression], ...]:
        """Computed values, then the dimensions of outputs and workspaces, and their expressions."""
        found = {value.name: value.expression for value in self.op.values}
        for tensor in self.op.tensors:
            for word, size in zip(tensor.dims, tensor.sizes):
                if size is not None:
                    found.setdefault(self.dims[self.dim(word)], size)
        return tuple(found.items())

    @property
    def fixed(self) -> tuple[int, ...]:
        """The sizes of dimensions that inputs have as numbers; -1 for others."""
        fixed = {word for tensor in self.op.inputs for word in tensor.dims if word.isdigit()}
        return tuple(int(word) if word in fixed else -1 for word in self.dims)

    @cached_property
    def first_strides(self) -> tuple[int, ...]:
        """The number of each tensor's first stride, and at the end how many there are."""
        return (0, *itertools.accumulate(len(tensor.dims) for tensor in self.op.tensors))

    def stride(self, tensor: str, dim: str) -> int:
        """The number of a stride."""
        names = [each.name for each in self.op.tensors]
        number = names.index(tensor)
        words = [word.removeprefix("*") for word in self.op.tensors[number].dims]
        return self.first_strides[number] + words.index(dim)

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """The axes of types."""
        return tuple(dict.fromkeys(tensor.group for tensor in self.op.tensors if tensor.group))

    @property
    def returned(self) -> tuple[int, ...]:
        """The numbers of the tensors that it returns."""
        names = [tensor.name for tensor in self.op.tensors]
        return tuple(names.index(name) for name in self.op.returns)

    @property
    def messages(self) -> tuple[str, ...]:
        """The messages of requirements, then those of agreements."""
        return (*(r.message for r in self.op.requirements), *(message for *_, message in self.agreements))


def make_operators(
    manifest: Manifest, kernels: Sequence[KernelTable], constants: Mapping[str, Mapping[str, set[int]]]
) -> tuple[OperatorTable, ...]:
    """The operators of a package whose kernels all have rows.

    `constants` are the values of compile-time integers in the rows of each kernel.  Raises ManifestError where an
    operator names one that differs between them.
    """
    numbers = {kernel.name: number for number, kernel in enumerate(kernels)}
    found = []
    for kernel in manifest.kernels:
        op = kernel.op
        if op is None or not all(launch.kernel in numbers for launch in op.launches):
            continue
        where = f'kernel "{kernel.name}": op'
        launches = tuple(
            _launch(op, launch, numbers[launch.kernel], kernels[numbers[launch.kernel]])
            for launch in op.launches
        )
        found.append(
            OperatorTable(
                op,
                tuple(_constants(op, constants.get(kernel.name, {}), where)),
                launches,
                tuple(_agreements(op)),
            )
        )
    return tuple(found)


def _launch(op: Op, launch: OpLaunch, number: int, kernel: KernelTable) -> LaunchTable:
    tensors = [tensor.name for tensor in op.tensors]
    pointers = dict(launch.pointers)
    values = dict(launch.values)
    scalars = [scalar.name for scalar in op.scalars]
    words, options = [], []
    for index, option in enumerate(kernel.options):
        expression = values[option.name][0] if option.name in values else None
        if expression is None:
            words.append(NOTHING_SAID)
        elif expression.kind == "str" and expression.plain in scalars:
            words.append(scalars.index(expression.plain))
        else:
            words.append(NO_WORD)
            options.append((index, expression))
    return LaunchTable(
        number,
        tuple(tensors.index(pointers[p.name]) if p.name in pointers else -1 for p in kernel.parameters),
        tuple(words),
        tuple((i, values[p.name][0]) for i, p in enumerate(kernel.parameters) if p.name in values),
        tuple(options),
        launch.when,
    )


def _agreements(op: Op) -> Iterator[tuple[OpExpression, OpExpression, str]]:
    for launch in op.launches:
        for name, several in launch.values:
            for other in several[1:]:
                message = f"{several[0].text} and {other.text} have to be equal: {launch.kernel} takes both as {name}"
                yield several[0], other, message


def _constants(op: Op, known: Mapping[str, set[int]], where: str) -> Iterator[tuple[str, int]]:
    """The compile-time values that the operator's expressions name."""
    for name in sorted({name for expression in op.expressions for name in expression.constants}):
        values = sorted(known.get(name, ()))
        if len(values) != 1:
            listed = " or ".join(map(str, values)) or "not there"
            raise ManifestError(
                f"{where}: {name} is {listed}, depending on the configuration; an operator needs one value"
            )
        yield name, values[0]
