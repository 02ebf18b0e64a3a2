"""The tables `[kernel.op.backward]` of a manifest: the operator that computes gradients, and what it takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.reader import ManifestReader, described, spread, suggestion
from kbuild.aot.manifest.table import checked
from kbuild.aot.op import schema
from kbuild.aot.op.model import Op, OpBackward, OpScalar, OpTensor
from kbuild.aot.op.shapes import MAX_RANK, is_name

_WIDENED = {("bool", "int"), ("bool", "float"), ("int", "float"), ("int", "bool")}
"""Kinds of scalars, of which one is taken where another is expected."""


def read_backward(reader: ManifestReader, path: KeyPath, given: Mapping[str, Any]) -> OpBackward:
    """What the table says itself; mistakes are noted in the reader."""
    values = checked(reader, path, given, schema.BACKWARD)
    parts: dict[str, tuple[tuple[str, str], ...]] = {}
    for key, kind in (("bind", "<argument>"), ("grads", "<input>")):
        table = schema.BACKWARD.key(key, {})
        assert table is not None
        names = {kind: [*spread(values.get(key, {}))]}
        read = checked(reader, (*path, key), values.get(key, {}), table.value, names)  # type: ignore[arg-type]
        parts[key] = tuple((name, text.replace(" ", "")) for name, text in read.items())
    if values.get("grads") == {}:
        reader.error((*path, "grads"), "no input has a gradient", 'write grads = { x = "dx" }')
    return OpBackward(values.get("op", ""), **parts)


def check_backward(
    reader: ManifestReader, path: KeyPath, op: Op, backward: OpBackward, ops: Mapping[str, Op]
) -> None:
    """The operator of the backward pass is there, all it needs is known, and its outputs are gradients."""
    other = ops.get(backward.op)
    if other is None:
        reader.error((*path, "op"), f"no operator {described(backward.op)}", suggestion(backward.op, ops))
        return
    _BackwardChecker(reader, path, op, backward, other).check()


class _BackwardChecker:
    """Checks the backward pass of one operator against the other one that computes it."""

    def __init__(
        self, reader: ManifestReader, path: KeyPath, op: Op, backward: OpBackward, other: Op
    ) -> None:
        self.reader, self.path, self.op, self.backward, self.other = reader, path, op, backward, other
        self.scalars = {scalar.name: scalar for scalar in op.scalars}
        self.tensors = {tensor.name: tensor for tensor in (*op.inputs, *op.outputs)}
        self.grads = {f"grad({tensor.name})": tensor for tensor in op.outputs}

    def check(self) -> None:
        """Notes all mistakes; later checks are left out where they would say what an earlier one has said."""
        before = len(self.reader.errors)
        for check in (self._check_written, self._check_names, self._check_arguments, self._check_gradients):
            if len(self.reader.errors) == before:
                check()

    def _error(self, key: KeyPath, message: str, help: str = "") -> None:
        self.reader.error((*self.path, *key), message, help)

    def _check_written(self) -> None:
        """Nothing that autograd keeps is written, and there is something to differentiate."""
        written = [tensor.name for tensor in self.op.inputs if tensor.is_mutated]
        if written or not self.op.outputs:
            what = f"writes {written[0]}" if written else "has no outputs"
            self._error((), f"{self.op.name} {what}, and so has no gradient", "leave out backward")
        for tensor in self.other.inputs:
            if tensor.is_mutated:
                message = (
                    f"{self.other.name} writes {tensor.name}, and gradients and what is saved for them stay"
                )
                self._error(("op",), message, f"make {tensor.name} an output of it")

    def _check_names(self) -> None:
        """Names on both sides are there."""
        sources = [*self.tensors, *self.scalars, *self.grads]
        arguments = [each.name for each in (*self.other.inputs, *self.other.scalars)]
        known = True
        for name, source in self.backward.bind:
            if name not in arguments:
                known = False
                advice = suggestion(name, arguments)
                self._error(("bind", name), f"{self.other.name} has no such argument", advice)
            elif source not in sources:
                self._error(("bind", name), f"no {described(source)}", suggestion(source, sources))
        bound = dict(self.backward.bind)
        needed = [tensor.name for tensor in self.other.inputs if not tensor.is_optional]
        needed += [scalar.name for scalar in self.other.scalars if scalar.is_required]
        for name in needed if known else ():
            if name not in bound and name not in sources:
                grad = f"grad({self.op.outputs[0].name})" if self.op.outputs else ""
                advice = f'write bind = {{ {name} = "{grad}" }}' if grad else ""
                self._error((), f"{self.other.name} needs {name}", advice)
        inputs = [tensor.name for tensor in self.op.inputs]
        outputs = [tensor.name for tensor in self.other.outputs]
        for name, gradient in self.backward.grads:
            if name not in inputs:
                self._error(("grads", name), f"{self.op.name} has no such input", suggestion(name, inputs))
            elif gradient not in outputs:
                message = f"{self.other.name} has no output {described(gradient)}"
                self._error(("grads", name), message, suggestion(gradient, outputs))

    def _sources(self) -> Iterator[tuple[OpTensor | OpScalar, str]]:
        """The arguments of the backward operator, with what each is."""
        bound = dict(self.backward.bind)
        sources = {*self.tensors, *self.scalars, *self.grads}
        for argument in (*self.other.inputs, *self.other.scalars):
            source = bound.get(argument.name, argument.name)
            if source in sources:
                yield argument, source

    def _check_arguments(self) -> None:
        """Tensors are bound to tensors, and scalars to scalars, of fitting kinds."""
        bound = dict(self.backward.bind)
        before = len(self.reader.errors)
        is_differentiated = False
        for argument, source in self._sources():
            key = ("bind", argument.name) if argument.name in bound else ()
            is_differentiated = is_differentiated or source in self.grads
            if isinstance(argument, OpTensor):
                self._check_tensor(key, argument, source)
            else:
                self._check_scalar(key, argument, source)
        if not is_differentiated and len(self.reader.errors) == before:
            tensors = [tensor.name for tensor in self.other.inputs]
            self._error(
                (),
                f"{self.other.name} takes the gradient of no output of {self.op.name}",
                f'write bind = {{ {tensors[0]} = "grad({self.op.outputs[0].name})" }}' if tensors else "",
            )

    def _check_scalar(self, key: KeyPath, argument: OpScalar, source: str) -> None:
        found = self.scalars.get(source)
        if found is None:
            message = f"{argument.name} of {self.other.name} is a scalar, and {source} is a tensor"
            self._error(key, message, suggestion(source, self.scalars))
        elif found.kind != argument.kind and (found.kind, argument.kind) not in _WIDENED:
            message = f'{argument.name} of {self.other.name} is of kind "{argument.kind}", and {source} of kind "{found.kind}"'
            self._error(key, message)

    def _check_tensor(self, key: KeyPath, argument: OpTensor, source: str) -> None:
        name = f"{argument.name} of {self.other.name}"
        inputs = [tensor.name for tensor in self.op.inputs]
        found = self.tensors.get(source) or self.grads.get(source)
        if found is None:
            self._error(key, f"{name} is a tensor, and {source} is a scalar")
        elif source in inputs and found.is_optional and not argument.is_optional:
            self._error(key, f"{name} has to be given, and {source} may be None")
        elif source in self.grads and not _floats(found.types):
            self._error(key, f"{found.name} holds {' or '.join(found.types)}, and so has no gradient")
        elif not set(found.types) & set(argument.types):
            message = (
                f"{name} takes {' or '.join(argument.types)}, and {source} holds {' or '.join(found.types)}"
            )
            self._error(key, message)
        elif not _fits(found, argument):
            message = f"{name} has the shape ({argument.text}), and {source} has ({found.text})"
            self._error(key, message, "declare as many dimensions")

    def _check_gradients(self) -> None:
        """Gradients have the shapes of their inputs, and both hold numbers of floating point."""
        meanings = self._meanings()
        inputs = {tensor.name: tensor for tensor in self.op.inputs}
        outputs = {tensor.name: tensor for tensor in self.other.outputs}
        for name, gradient in self.backward.grads:
            one, other = inputs[name], outputs[gradient]
            wrong = next((tensor for tensor in (one, other) if not _floats(tensor.types)), None)
            if wrong:
                message = (
                    f"{wrong.name} holds {' or '.join(wrong.types)}, and gradients are of floating point"
                )
                self._error(("grads", name), message, "leave it out")
            elif not _fits(one, other) or not _may_be_same(one, other, meanings):
                message = f"{gradient} of {self.other.name} has the shape ({other.text}), and {name} has ({one.text})"
                self._error(("grads", name), message, "the gradient of a tensor has its shape")

    def _meanings(self) -> dict[str, set[str]]:
        """For dimensions of the backward operator those of this one, where one word stands for one in both."""
        found: dict[str, set[str]] = {}
        for argument, source in self._sources():
            tensor = self.tensors.get(source) or self.grads.get(source)
            if isinstance(argument, OpTensor) and tensor and len(tensor.dims) == len(argument.dims):
                for word, own in zip(argument.dims, tensor.dims):
                    if word.startswith("*") == own.startswith("*"):
                        found.setdefault(word.lstrip("*"), set()).add(own.lstrip("*"))
        return found


def _floats(types: Sequence[str]) -> list[str]:
    return [name for name in types if name.startswith(("fp", "bf"))]


def _fits(one: OpTensor, other: OpTensor) -> bool:
    """Whether two declarations allow one number of dimensions."""
    (least, most), (other_least, other_most) = _ranks(one), _ranks(other)
    return least <= other_most and other_least <= most


def _ranks(tensor: OpTensor) -> tuple[int, int]:
    """How few and how many dimensions it may have."""
    count = len(tensor.dims)
    return (count - 1, MAX_RANK) if tensor.pack >= 0 else (count, count)


def _may_be_same(one: OpTensor, other: OpTensor, meanings: Mapping[str, set[str]]) -> bool:
    """Whether a tensor may have the shape of its gradient, whose dimensions mean those of the operator."""
    if len(one.dims) != len(other.dims):
        return True
    pairs = [(own.lstrip("*"), word.lstrip("*")) for own, word in zip(one.dims, other.dims)]
    return all(own in meanings.get(word, (own,)) for own, word in pairs if is_name(own) and is_name(word))
