"""The tables `[kernel.op]` of a manifest, checked against the kernels that they launch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kbuild.aot.manifest.model import Kernel
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.reader import ManifestReader, described, spread, suggestion
from kbuild.aot.manifest.table import checked, record
from kbuild.aot.op import schema
from kbuild.aot.op.expressions import OpExpression, OpScope, parse
from kbuild.aot.op.load_launch import LaunchLoader
from kbuild.aot.op.model import Op, OpBackward, OpRequirement, OpScalar, OpTensor
from kbuild.aot.op.shapes import check_words, words_of
from kbuild.errors import ManifestError

_KINDS = ("int", "float", "bool", "str")
_ARGUMENTS = ("stream", "torch", "_given")
"""Names that no argument may have: every operator has a stream, the module torch goes by its name, and XLA's calls say
what is given."""
_FUNCTIONS = ("sys", "annotations", "OPERATORS")
"""Names of the module of operators, which none of them may have."""


def load_ops(
    reader: ManifestReader, entries: Sequence[tuple[KeyPath, Mapping[str, Any]]], kernels: Sequence[Kernel]
) -> tuple[Kernel, ...]:
    """The kernels, which are right so far, with their operators; mistakes are noted in the reader."""
    by_name = {kernel.name: kernel for kernel in kernels}
    found: list[Kernel] = []
    taken: dict[str, str] = {}
    for (path, table), kernel in zip(entries, kernels):
        op = None
        if "op" in table:
            op = _OpLoader(reader, (*path, "op"), kernel, by_name).load(table["op"])
            name = op.name if op else kernel.name
            if name in taken or (name != kernel.name and name in by_name):
                reader.error((*path, "op", "name"), f"another function has the name {described(name)}")
            if name in _FUNCTIONS:
                reader.error(
                    (*path, "op", "name"), f"{described(name)} is a name that the package needs itself"
                )
            taken[name] = kernel.name
        found.append(replace(kernel, op=op))
    ops = {kernel.op.name: kernel.op for kernel in found if kernel.op}
    for (path, _), kernel in zip(entries, found):
        if kernel.op and kernel.op.backward:
            _check_backward(reader, (*path, "op", "backward"), kernel.op, kernel.op.backward, ops)
    return tuple(found)


class _OpLoader:
    """Reads the table of one operator."""

    def __init__(
        self, reader: ManifestReader, path: KeyPath, kernel: Kernel, kernels: Mapping[str, Kernel]
    ) -> None:
        self.reader, self.path, self.kernel, self.kernels = reader, path, kernel, kernels

    def load(self, given: Mapping[str, Any]) -> Op | None:
        """The operator; None, with the mistakes noted, if it is wrong."""
        before = len(self.reader.errors)
        values = checked(self.reader, self.path, given, schema.OP)
        if "inputs" not in values:
            return None
        tensors = self._tensors(values)
        inputs = [tensor for role, tensor in tensors if role == "inputs"]
        dims = list(dict.fromkeys(w.lstrip("*") for t in inputs for w in t.dims if not w.isdigit()))
        scalars = tuple(self._scalars(values.get("scalars", {}), dims, tensors))
        scope = OpScope(
            dims,
            {scalar.name: scalar.kind for scalar in scalars},
            {tensor.name: [word.lstrip("*") for word in tensor.dims] for _, tensor in tensors},
            [tensor.name for tensor in inputs if tensor.is_optional],
            _constants(self.kernel),
        )
        # Before outputs are made, nothing is known of them.
        early = replace(scope, tensors={tensor.name: scope.tensors[tensor.name] for tensor in inputs})
        requirements = tuple(self._requirements(values.get("require", {}), early))
        tensors = [(role, self._sized(role, tensor, early)) for role, tensor in tensors]
        launch_loader = LaunchLoader(
            self.reader, self.path, self.kernel, self.kernels, scope, self.expression
        )
        launches = launch_loader.load(values)
        if len(self.reader.errors) > before:
            return None
        op = record(
            Op,
            schema.OP,
            values,
            name=values.get("name", self.kernel.name),
            doc=values.get("doc") or self.kernel.doc,
            inputs=(),
            outputs=(),
            workspaces=(),
            scalars=scalars,
            requirements=requirements,
            launches=launches,
            returns=(),
            backward=self._backward(values["backward"]) if "backward" in values else None,
        )
        strides = {stride for expression in op.expressions for stride in expression.strides}
        typed = launch_loader.typed(
            [_with_free(tensor, strides) for _, tensor in tensors], inputs, values.get("dtypes", {})
        )
        by_role: dict[str, tuple[OpTensor, ...]] = {
            role: tuple(tensor for (r, _), tensor in zip(tensors, typed) if r == role)
            for role in ("inputs", "outputs", "workspaces")
        }
        op = replace(op, **by_role, returns=self._returns(values, by_role))
        return op if len(self.reader.errors) == before else None

    def _requirements(self, given: Mapping[str, Any], scope: OpScope) -> Iterator[OpRequirement]:
        """Conditions with their messages."""
        path = (*self.path, "require")
        names = {"<condition>": list(given)}
        for text, message in checked(self.reader, path, given, schema.REQUIRE, names).items():
            if condition := self.expression((*path, text), text, scope):
                yield OpRequirement(condition, message)

    def _returns(
        self, values: Mapping[str, Any], by_role: Mapping[str, Sequence[OpTensor]]
    ) -> tuple[str, ...]:
        """What the function returns."""
        mutated = [tensor.name for tensor in by_role["inputs"] if tensor.is_mutated]
        outputs = [tensor.name for tensor in by_role["outputs"]]
        if not outputs and not mutated:
            self.reader.error(self.path, "has neither outputs nor mutated inputs", "add outputs = { … }")
        for index, name in enumerate(values.get("returns", ())):
            if name not in (*outputs, *mutated):
                self.reader.error(
                    (*self.path, "returns", index),
                    f"{described(name)} is neither an output nor a mutated input",
                    suggestion(name, [*outputs, *mutated]),
                )
        return tuple(values.get("returns", outputs))

    def expression(self, key: KeyPath, text: str, scope: OpScope) -> OpExpression | None:
        """A checked expression; None, with the mistake noted."""
        try:
            return parse(text, scope, "")
        except ManifestError as error:
            self.reader.error(key, _written(error.message.removeprefix(": ")), _written(error.help))
            return None

    def _tensors(self, values: Mapping[str, Any]) -> list[tuple[str, OpTensor]]:
        """The tensors as far as they say themselves, with their roles."""
        flags = {
            field: set(values.get(key, ()))
            for key, field in (
                ("optional", "is_optional"),
                ("mutates", "is_mutated"),
                ("zeros", "is_zeroed"),
                ("aliases", "may_alias"),
            )
        }
        found: list[tuple[str, OpTensor]] = []
        for role in ("inputs", "outputs", "workspaces"):
            table = schema.OP.key(role, {})
            assert table is not None
            texts = checked(self.reader, (*self.path, role), values.get(role, {}), table.value)  # type: ignore[arg-type]
            for name, text in texts.items():
                key = (*self.path, role, name)
                words = words_of(text)
                try:
                    check_words(words, role == "inputs", "")
                except ManifestError as error:
                    self.reader.error(key, error.message.removeprefix(": "), error.help)
                    continue
                if name in _ARGUMENTS or any(name == tensor.name for _, tensor in found):
                    self.reader.error(key, "this name is taken, or one that every operator has")
                own: dict[str, Any] = {field: name in names for field, names in flags.items()}
                found.append((role, OpTensor(name, words, (), **own)))
        self._check_flags(values, found)
        self._check_packs(found)
        return found

    def _check_flags(self, values: Mapping[str, Any], tensors: Sequence[tuple[str, OpTensor]]) -> None:
        """Names in `optional`, `mutates`, … are those of tensors that can be so."""
        legal = {
            "optional": ("inputs",),
            "mutates": ("inputs",),
            "zeros": ("outputs", "workspaces"),
            "aliases": ("outputs",),
        }
        for key, roles in legal.items():
            known = [tensor.name for role, tensor in tensors if role in roles]
            for index, name in enumerate(values.get(key, ())):
                if name not in known:
                    place = (*self.path, key, index)
                    words = " or ".join(role.removesuffix("s") for role in roles)
                    self.reader.error(place, f"{described(name)} is no {words}", suggestion(name, known))

    def _check_packs(self, tensors: Sequence[tuple[str, OpTensor]]) -> None:
        """A name stands for one dimension everywhere, or for any number of them everywhere."""
        packs = {w[1:] for _, tensor in tensors for w in tensor.dims if w.startswith("*")}
        for role, tensor in tensors:
            for word in tensor.dims if role == "inputs" else ():
                if word in packs:
                    self.reader.error(
                        (*self.path, role, tensor.name),
                        f"*{word} stands for any number of dimensions elsewhere",
                        f"write *{word} here, too",
                    )

    def _scalars(
        self, given: Mapping[str, Any], dims: Sequence[str], tensors: Sequence[tuple[str, OpTensor]]
    ) -> list[OpScalar]:
        """The scalars; the default of each may name those before it."""
        path = (*self.path, "scalars")
        found: list[OpScalar] = []
        taken = {*dims, *(tensor.name for _, tensor in tensors), *_ARGUMENTS}
        by_tensor = {
            tensor.name: [w.lstrip("*") for w in tensor.dims] for r, tensor in tensors if r == "inputs"
        }
        optional = [tensor.name for _, tensor in tensors if tensor.is_optional]
        for name, value in checked(self.reader, path, given, schema.SCALARS).items():
            key = (*path, name)
            if name in taken:
                self.reader.error(key, "a tensor or a dimension has this name, or every operator")
            if not isinstance(value, str):
                found.append(OpScalar(name, type(value).__name__, value))
                continue
            if value in _KINDS:
                found.append(OpScalar(name, value))
                continue
            scope = OpScope(dims, {scalar.name: scalar.kind for scalar in found}, by_tensor, optional)
            computed = self.expression(key, value, scope)
            if computed is None:
                found.append(OpScalar(name, "float", 0.0))
            elif computed.kind == "str":
                found.append(OpScalar(name, "str", computed.tree.value))  # type: ignore[attr-defined]
            else:
                found.append(OpScalar(name, computed.kind, computed=computed))
        self._check_order(found, tensors)
        return found

    def _check_order(self, scalars: Sequence[OpScalar], tensors: Sequence[tuple[str, OpTensor]]) -> None:
        """What has to be given stands before what need not be."""
        optional = next((t.name for role, t in tensors if role == "inputs" and t.is_optional), "")
        for role, tensor in tensors:
            if (
                role == "inputs"
                and optional
                and not tensor.is_optional
                and _is_behind(tensors, tensor, optional)
            ):
                place = (*self.path, "inputs", tensor.name)
                self.reader.error(place, f"has to be given, and stands behind {optional}, which need not be")
        for scalar in scalars:
            if scalar.is_required and optional:
                self.reader.error(
                    (*self.path, "scalars", scalar.name),
                    f"has to be given, and stands behind {optional}, which need not be",
                    "give it a default",
                )
            optional = optional if scalar.is_required else optional or scalar.name

    def _sized(self, role: str, tensor: OpTensor, scope: OpScope) -> OpTensor:
        """An output or a workspace with the expressions of its sizes."""
        if role == "inputs":
            return tensor
        known = {*scope.dims}
        key = (*self.path, role, tensor.name)
        sizes: list[OpExpression | None] = []
        for word in tensor.dims:
            if word.removeprefix("*") in known:
                sizes.append(None)
                continue
            size = self.expression(key, word, scope)
            if size and size.kind != "int":
                self.reader.error(key, f'"{word}" is not a whole number')
            sizes.append(size)
        return replace(tensor, sizes=tuple(sizes))

    def _backward(self, given: Mapping[str, Any]) -> OpBackward:
        path = (*self.path, "backward")
        values = checked(self.reader, path, given, schema.BACKWARD)
        parts = {
            name: tuple((key, str(value)) for key, value in spread(values.get(name, {})).items())
            for name in ("bind", "grads")
        }
        return OpBackward(values.get("op", ""), **parts)


def _written(message: str) -> str:
    """A message with what is known of tensors as a manifest writes it."""
    message = re.sub(r"\bstride__(\w+?)__(\w+)", r"stride(\1, \2)", message)
    return re.sub(r"\b(given|aligned)__(\w+)", r"\1(\2)", message)


def _is_behind(tensors: Sequence[tuple[str, OpTensor]], tensor: OpTensor, other: str) -> bool:
    names = [each.name for _, each in tensors]
    return names.index(tensor.name) > names.index(other)


def _with_free(tensor: OpTensor, strides: set[tuple[str, str]]) -> OpTensor:
    """A tensor that knows which of its strides may be any."""
    free = tuple(
        place for place, word in enumerate(tensor.dims) if (tensor.name, word.lstrip("*")) in strides
    )
    return replace(tensor, free=free)


def _check_backward(
    reader: ManifestReader, path: KeyPath, op: Op, backward: OpBackward, ops: Mapping[str, Op]
) -> None:
    """The operator of the backward pass is there, all it needs is known, and its outputs are gradients."""
    other = ops.get(backward.op)
    if other is None:
        reader.error((*path, "op"), f"no operator {described(backward.op)}", suggestion(backward.op, ops))
        return
    known = [*(t.name for t in (*op.inputs, *op.outputs)), *(scalar.name for scalar in op.scalars)]
    known += [f"grad({tensor.name})" for tensor in op.outputs]
    arguments = [tensor.name for tensor in other.inputs] + [scalar.name for scalar in other.scalars]
    bind = dict(backward.bind)
    for name, source in bind.items():
        if name not in arguments:
            reader.error(
                (*path, "bind", name), f"{other.name} has no such argument", suggestion(name, arguments)
            )
        elif source.replace(" ", "") not in known:
            reader.error((*path, "bind", name), f"no {described(source)}", suggestion(source, known))
    needed = [tensor.name for tensor in other.inputs if not tensor.is_optional]
    needed += [scalar.name for scalar in other.scalars if scalar.is_required]
    for name in needed:
        if name not in bind and name not in known:
            reader.error(
                path,
                f"{other.name} needs {name}",
                f'write bind = {{ {name} = "grad({op.outputs[0].name})" }}' if op.outputs else "",
            )
    inputs = [tensor.name for tensor in op.inputs]
    outputs = [tensor.name for tensor in other.outputs]
    for name, gradient in backward.grads:
        if name not in inputs:
            reader.error((*path, "grads", name), f"{op.name} has no such input", suggestion(name, inputs))
        elif gradient not in outputs:
            message = f"{other.name} has no output {described(gradient)}"
            reader.error((*path, "grads", name), message, suggestion(gradient, outputs))


def _constants(kernel: Kernel) -> set[str]:
    """The compile-time integers that all configurations of a kernel have; whether they agree is known when the rows
    are."""
    common = [{name for name, value in each.constexprs if type(value) is int} for each in kernel.configs]
    return set.intersection(*common) if common else set()
