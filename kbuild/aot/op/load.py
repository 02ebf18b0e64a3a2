"""The tables `[kernel.op]` of a manifest, checked against the kernels that they launch."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kbuild.aot.manifest.expressions import NUM_SMS
from kbuild.aot.manifest.model import Kernel
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.reader import ManifestReader, described, suggestion
from kbuild.aot.manifest.table import checked, record
from kbuild.aot.op import schema
from kbuild.aot.op.expressions import OpExpression, OpScope, parse
from kbuild.aot.op.load_backward import check_backward, read_backward
from kbuild.aot.op.load_launch import LaunchLoader
from kbuild.aot.op.load_values import ValueLoader, named
from kbuild.aot.op.model import Op, OpRequirement, OpScalar, OpTensor, OpValue
from kbuild.aot.op.shapes import MAX_TENSORS, check_words, is_name, words_of
from kbuild.errors import ManifestError, nearest

_KINDS = ("int", "float", "bool", "str")
FUNCTIONS = (
    *("sys", "annotations", "OPERATORS", "any", "bool", "dict", "getattr", "hasattr", "int", "isinstance"),
    *("object", "property", "str", "tuple", "type", "AttributeError", "TypeError"),
    *("Any", "Literal", "Protocol", "SupportsFloat", "SupportsIndex", "TypeVar"),
    *("MIN_DRIVER", "ArchiveError", "DriverError", "LaunchError", "NoVariantError"),
)
"""Names that the modules of a package use beside the functions of operators."""


def load_ops(
    reader: ManifestReader, entries: Sequence[tuple[KeyPath, Mapping[str, Any]]], kernels: Sequence[Kernel]
) -> tuple[Kernel, ...]:
    """The kernels, which are right so far, with their operators; mistakes are noted in the reader."""
    by_name = {kernel.name: kernel for kernel in kernels}
    found: list[Kernel] = []
    taken = set[str]()
    for (path, table), kernel in zip(entries, kernels):
        op = None
        if "op" in table:
            op = _OpLoader(reader, (*path, "op"), kernel, by_name).load(table["op"])
            name = op.name if op else kernel.name
            if name in taken or (name != kernel.name and name in by_name):
                reader.error((*path, "op", "name"), f"another function has the name {described(name)}")
            elif name in FUNCTIONS or name.startswith("_"):
                message = f"{described(name)} is a name that the package needs itself"
                reader.error((*path, "op", "name"), message, 'give the operator another, name = "…"')
            else:
                taken.add(name)
        found.append(replace(kernel, op=op))
    # A wrong operator is none that a gradient could name, so gradients wait until all are right.
    ops = {kernel.op.name: kernel.op for kernel in found if kernel.op}
    for (path, _), kernel in zip(entries, found) if not reader.errors else ():
        if kernel.op and kernel.op.backward:
            check_backward(reader, (*path, "op", "backward"), kernel.op, kernel.op.backward, ops)
    return tuple(found)


class _OpLoader:
    """Reads the table of one operator."""

    def __init__(
        self, reader: ManifestReader, path: KeyPath, kernel: Kernel, kernels: Mapping[str, Kernel]
    ) -> None:
        self.reader, self.path, self.kernel, self.kernels = reader, path, kernel, kernels

    def load(self, given: Mapping[str, Any]) -> Op | None:
        """The operator; None, with the mistakes noted, if it is wrong.

        It is read in steps, each of which takes what those before it have found: where one of them notes a mistake,
        the others would do no more than repeat it.
        """
        before = len(self.reader.errors)
        values = checked(self.reader, self.path, given, schema.OP)
        tensors = [*self._tensors(values)]
        for check in (self._check_flags, self._check_packs, self._check_inputs):
            if len(self.reader.errors) > before:
                return None
            check(values, tensors)
        if len(self.reader.errors) > before:
            return None
        inputs = [tensor for role, tensor in tensors if role == "inputs"]
        scope = self._scope(tensors)
        scalars = tuple(self._scalars(values.get("scalars", {}), scope, tensors))
        if len(self.reader.errors) > before:
            return None
        kinds = {scalar.name: scalar.value_kind for scalar in scalars}
        scope = replace(scope, scalars=kinds, constants=_constants(self.kernel))
        # Before outputs are made, nothing is known of them.
        early = scope.of([tensor.name for tensor in inputs])
        requirements = tuple(self._requirements(values.get("require", {}), early))
        let = self._values(values, early, [*scope.tensors])
        scope = replace(scope, values=named(let))
        # Outputs are known while a call is traced, when there are no strides and no device.
        late = replace(early, values=scope.values)
        tensors = [
            (role, self._sized(role, tensor, late if role == "workspaces" else early))
            for role, tensor in tensors
        ]
        launch_loader = LaunchLoader(
            self.reader, self.path, self.kernel, self.kernels, scope, scalars, self.expression
        )
        launches = launch_loader.load(values, self.condition)
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
            values=let,
            requirements=requirements,
            launches=launches,
            returns=(),
            backward=read_backward(self.reader, (*self.path, "backward"), values["backward"])
            if "backward" in values
            else None,
        )
        op = self._with_tensors(op, tensors, launch_loader, values)
        return op if len(self.reader.errors) == before else None

    def _scope(self, tensors: Sequence[tuple[str, OpTensor]]) -> OpScope:
        """What expressions may name, as far as tensors say it; scalars have first to be read."""
        inputs = [tensor for role, tensor in tensors if role == "inputs"]
        having = {
            word.lstrip("*"): [tensor for tensor in inputs if word.lstrip("*") in _names(tensor)]
            for tensor in inputs
            for word in tensor.dims
            if not word.isdigit()
        }
        return OpScope(
            list(having),
            tensors={tensor.name: _names(tensor) for _, tensor in tensors},
            optional=[tensor.name for _, tensor in tensors if tensor.is_optional],
            unsure={
                word: [tensor.name for tensor in found]
                for word, found in having.items()
                if all(tensor.is_optional for tensor in found)
            },
        )

    def _with_tensors(
        self,
        op: Op,
        tensors: Sequence[tuple[str, OpTensor]],
        launch_loader: LaunchLoader,
        values: Mapping[str, Any],
    ) -> Op:
        """The operator with its tensors, whose types and strides follow from the launches."""
        strides = {stride for expression in op.expressions for stride in expression.strides}
        typed = launch_loader.typed(
            [(role, _with_free(tensor, strides)) for role, tensor in tensors], values.get("dtypes", {})
        )
        by_role: dict[str, tuple[OpTensor, ...]] = {
            role: tuple(tensor for (r, _), tensor in zip(tensors, typed) if r == role)
            for role in ("inputs", "outputs", "workspaces")
        }
        op = replace(op, **by_role, returns=self._returns(values, by_role))
        self._check_scalars(op)
        self._check_autocast(op)
        return op

    def _check_scalars(self, op: Op) -> None:
        """Each scalar is of some use; a word is so where it is bound, and any where gradients need it."""
        named = {
            node.id for each in op.expressions for node in ast.walk(each.tree) if isinstance(node, ast.Name)
        }
        for scalar in op.scalars if op.backward is None else ():
            if scalar.name not in named:
                key = (*self.path, "scalars", scalar.name)
                self.reader.error(
                    key, "nothing takes this scalar", "name it in an expression, or leave it out"
                )

    def _check_autocast(self, op: Op) -> None:
        """What autocast casts may be of the other type, and is not written."""
        wanted = {"lower": ("fp16", "bf16"), "fp32": ("fp32",)}.get(op.autocast, ())
        for tensor in op.inputs if wanted else ():
            if not {"fp16", "bf16", "fp32"} & {*tensor.types}:
                continue
            if tensor.is_mutated:
                message = f"{tensor.name} is written, and autocast would give the operator a copy of it"
            elif not {*wanted} & {*tensor.types}:
                message = f"{tensor.name} holds {' or '.join(tensor.types)}, and autocast makes it {' or '.join(wanted)}"
            else:
                continue
            self.reader.error((*self.path, "autocast"), message, "leave out autocast")
            return

    def _values(
        self, values: Mapping[str, Any], scope: OpScope, tensors: Sequence[str]
    ) -> tuple[OpValue, ...]:
        """The numbers that the operator computes first."""
        loader = ValueLoader(self.reader, self.path, self.expression, self.condition, self._check_name)
        return loader.load(values, scope, tensors)

    def _requirements(self, given: Mapping[str, Any], scope: OpScope) -> Iterator[OpRequirement]:
        """Conditions with their messages."""
        path = (*self.path, "require")
        names = {"<condition>": list(given)}
        for text, message in checked(self.reader, path, given, schema.REQUIRE, names).items():
            if condition := self.condition((*path, text), text, scope):
                yield OpRequirement(condition, message)

    def _returns(
        self, values: Mapping[str, Any], by_role: Mapping[str, Sequence[OpTensor]]
    ) -> tuple[str, ...]:
        """What the function returns."""
        mutated = [tensor.name for tensor in by_role["inputs"] if tensor.is_mutated]
        outputs = [tensor.name for tensor in by_role["outputs"]]
        if not outputs and not mutated:
            self.reader.error(self.path, "has neither outputs nor mutated inputs", "add outputs = { … }")
        optional = [tensor.name for tensor in by_role["inputs"] if tensor.is_optional]
        for index, name in enumerate(values.get("returns", ())):
            key = (*self.path, "returns", index)
            if name not in (*outputs, *mutated):
                message = f"{described(name)} is neither an output nor a mutated input"
                self.reader.error(key, message, suggestion(name, [*outputs, *mutated]))
            elif name in optional:
                self.reader.error(key, f"{name} may be None, and is not there to be returned", "leave it out")
        return tuple(values.get("returns", outputs))

    def expression(self, key: KeyPath, text: str, scope: OpScope) -> OpExpression | None:
        """A checked expression; None, with the mistake noted."""
        try:
            found = parse(text, scope, "")
        except ManifestError as error:
            self.reader.error(key, _written(error.message.removeprefix(": ")), _written(error.help))
            return None
        for name in found.constants:
            given = [dict(config.constexprs)[name] for config in self.kernel.configs]
            values = {value for value in given if isinstance(value, int)}
            if len(values) > 1:
                listed = " or ".join(map(str, sorted(values)))
                message = f"{name} is {listed}, depending on the configuration; an operator needs one value"
                self.reader.error(key, message, "name no constant here, or give all configurations one value")
                return None
        return found

    def condition(self, key: KeyPath, text: str, scope: OpScope) -> OpExpression | None:
        """An expression that holds or not; None, with the mistake noted."""
        found = self.expression(key, text, scope)
        if found and found.kind not in ("int", "bool"):
            what = {"str": "a word", "float": "a number with a fraction"}[found.kind]
            self.reader.error(key, f"{described(text)} is {what}, and no condition", "write a comparison")
            return None
        return found

    def _tensors(self, values: Mapping[str, Any]) -> Iterator[tuple[str, OpTensor]]:
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
        taken: dict[str, str] = {}
        wrong = set[str]()
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
                    if text not in wrong:  # One key may be for several tensors.
                        self.reader.error(key, error.message.removeprefix(": "), error.help)
                    wrong.add(text)
                    continue
                self._check_name(key, name, taken)
                taken[name] = "tensor"
                own: dict[str, Any] = {field: name in names for field, names in flags.items()}
                yield role, OpTensor(name, words, (), **own)

    def _check_name(self, key: KeyPath, name: str, taken: Mapping[str, str]) -> bool:
        """Whether the name of an argument is free; `taken` says what has each of the others."""
        if name.startswith("_"):
            self.reader.error(key, f"{described(name)} is a name that the package needs itself")
        elif name in taken:
            self.reader.error(key, f"a {taken[name]} has the name {described(name)}", "give it another")
        else:
            return True
        return False

    def _check_inputs(self, values: Mapping[str, Any], tensors: Sequence[tuple[str, OpTensor]]) -> None:
        """There are no more tensors than a call can have, one input is always there, and no tensor is called as a
        dimension."""
        inputs = [tensor for role, tensor in tensors if role == "inputs"]
        if all(tensor.is_optional for tensor in inputs):
            key = (*self.path, "optional" if inputs else "inputs")
            message = "no input has to be given, and outputs are made beside one that is there"
            self.reader.error(key, message, "leave one of them out" if inputs else "")
        if len(tensors) > MAX_TENSORS:
            self.reader.error(self.path, f"has {len(tensors)} tensors; {MAX_TENSORS} are allowed")
        dims = {word for tensor in inputs for word in _names(tensor)}
        for role, tensor in tensors:
            if tensor.name in dims:
                key = (*self.path, role, tensor.name)
                self.reader.error(
                    key, f"a dimension has the name {described(tensor.name)}", "give it another"
                )

    def _check_flags(self, values: Mapping[str, Any], tensors: Sequence[tuple[str, OpTensor]]) -> None:
        """Names in `optional`, `mutates`, … are those of tensors that can be so."""
        legal = {
            "optional": ("inputs", "outputs"),
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

    def _check_packs(self, values: Mapping[str, Any], tensors: Sequence[tuple[str, OpTensor]]) -> None:
        """A name stands for one dimension in all inputs, or for any number of them; others have what inputs have."""
        inputs = {word for role, tensor in tensors if role == "inputs" for word in tensor.dims}
        packs = [word for word in inputs if word.startswith("*")]
        wrong: list[tuple[str, ...]] = []
        for role, tensor in tensors:
            key = (*self.path, role, tensor.name)
            for word in tensor.dims:
                if role == "inputs" and f"*{word}" in packs and tensor.dims not in wrong:
                    wrong.append(tensor.dims)  # One key may be for several tensors.
                    message = f"*{word} stands for any number of dimensions elsewhere"
                    self.reader.error(key, message, f"write *{word} here, too")
                elif role != "inputs" and is_name(word[1:]) and word.startswith("*") and word not in packs:
                    advice = f"write {word[1:]}" if word[1:] in inputs else suggestion(word, packs)
                    self.reader.error(key, f"no input has {word}, any number of dimensions", advice)

    def _scalars(
        self, given: Mapping[str, Any], scope: OpScope, tensors: Sequence[tuple[str, OpTensor]]
    ) -> list[OpScalar]:
        """The scalars; the default of each may name those before it, and nothing of what is made."""
        path = (*self.path, "scalars")
        found: list[OpScalar] = []
        taken = {tensor.name: "tensor" for _, tensor in tensors} | dict.fromkeys(scope.dims, "dimension")
        scope = scope.of([tensor.name for role, tensor in tensors if role == "inputs"])
        for name, value in checked(self.reader, path, given, schema.SCALARS).items():
            key = (*path, name)
            if not self._check_name(key, name, taken):
                continue
            if isinstance(value, str):
                scope = replace(scope, scalars={scalar.name: scalar.value_kind for scalar in found})
                found += self._scalar(key, name, value, scope)
            elif isinstance(value, tuple):
                found += self._words(key, name, value)
            elif isinstance(value, float) and not math.isfinite(value):
                self.reader.error(key, f"expected a finite number, found {described(value)}")
            elif isinstance(value, int) and not -(2**63) <= value < 2**63:
                self.reader.error(key, f"expected a number of 64 bits, found {described(value)}")
            else:
                found.append(OpScalar(name, type(value).__name__, value))
        self._check_order(found, tensors)
        return found

    def _scalar(self, key: KeyPath, name: str, text: str, scope: OpScope) -> Iterator[OpScalar]:
        """The scalar whose value is a text: a kind, a word in quotes, or an expression."""
        if text in _KINDS:
            yield OpScalar(name, text)
            return
        lone = text.strip()
        if lone.isidentifier() and lone not in scope.dims and lone not in scope.scalars:
            near = suggestion(lone, _KINDS) if nearest(lone, _KINDS) else ""
            advice = near or f"write \"'{lone}'\" for a word; the kinds are {', '.join(_KINDS)}"
            self.reader.error(
                key, f"{described(lone)} is neither a kind nor a dimension or scalar before it", advice
            )
        elif computed := self.expression(key, text, scope):
            if computed.kind != "str":
                yield OpScalar(name, computed.kind, computed=computed)
                return
            word = getattr(computed.tree, "value", None)
            if word is None:
                self.reader.error(
                    key, f"{described(lone)} is a word, which no default follows from", "write \"'…'\""
                )
                return
            if word and not is_name(word):
                self.reader.error(
                    key, f"{described(word)} is no plain word", "words are like the values of an axis"
                )
            yield OpScalar(name, "str", word)

    def _words(self, key: KeyPath, name: str, words: Sequence[str]) -> Iterator[OpScalar]:
        """The scalar that is one of several words."""
        wrong = [index for index, word in enumerate(words) if not is_name(word)]
        for index in wrong:
            self.reader.error((*key, index), f"{described(words[index])} is no plain word")
        if words and not wrong:
            yield OpScalar(name, "str", words[0], words=tuple(words))

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
        key = (*self.path, role, tensor.name)
        sizes: list[OpExpression | None] = []
        for word in tensor.dims:
            name = word.removeprefix("*")
            if name in scope.unsure:
                self.expression(key, name, scope)
            if name in scope.dims:
                sizes.append(None)
                continue
            size = self.expression(key, word, scope)
            if size and size.kind != "int":
                self.reader.error(key, f'"{word}" is not a whole number')
            elif size and isinstance(size.tree, ast.UnaryOp) and isinstance(size.tree.operand, ast.Constant):
                self.reader.error(key, f'"{word}" is below zero')
            if size and role == "outputs":
                self._check_output_size(key, word, size)
            sizes.append(size)
        return replace(tensor, sizes=tuple(sizes))

    def _check_output_size(self, key: KeyPath, word: str, size: OpExpression) -> None:
        """Sizes of outputs follow from sizes and scalars alone, for that is what there is where torch traces a call."""
        nodes = [*ast.walk(ast.parse(size.text.strip(), mode="eval"))]
        calls = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
        if calls & {"stride", "aligned"}:
            message = f'"{word}" depends on where a tensor lies'
            self.reader.error(key, message, "sizes of outputs follow from sizes and scalars")
        if any(isinstance(node, ast.Name) and node.id == NUM_SMS for node in nodes):
            message = f'"{word}" depends on the device'
            self.reader.error(key, message, "sizes of outputs follow from sizes and scalars")


def _written(message: str) -> str:
    """A message with what is known of tensors as a manifest writes it."""
    message = re.sub(r"\bstride__(\w+?)__(\w+)", r"stride(\1, \2)", message)
    return re.sub(r"\b(given|aligned)__(\w+)", r"\1(\2)", message)


def _names(tensor: OpTensor) -> list[str]:
    """The names of its dimensions, and its other words."""
    return [word.lstrip("*") for word in tensor.dims]


def _is_behind(tensors: Sequence[tuple[str, OpTensor]], tensor: OpTensor, other: str) -> bool:
    names = [each.name for _, each in tensors]
    return names.index(tensor.name) > names.index(other)


def _with_free(tensor: OpTensor, strides: set[tuple[str, str]]) -> OpTensor:
    """A tensor that knows which of its strides may be any."""
    free = tuple(
        place for place, word in enumerate(tensor.dims) if (tensor.name, word.lstrip("*")) in strides
    )
    return replace(tensor, free=free)


def _constants(kernel: Kernel) -> set[str]:
    """The compile-time integers that all configurations of a kernel have; one that is named has one value in all."""
    common = [{name for name, value in each.constexprs if type(value) is int} for each in kernel.configs]
    return set.intersection(*common) if common else set()
