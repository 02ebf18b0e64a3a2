"""The launches of an operator: every argument of their kernels is bound to a tensor or to expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kbuild.aot.manifest import descriptors
from kbuild.aot.manifest.model import DTYPES, Argument, Axis, Kernel
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.reader import ManifestReader, described, one_line, spread, suggestion
from kbuild.aot.manifest.table import checked
from kbuild.aot.op import schema
from kbuild.aot.op.expressions import OpExpression, OpScope, given_name
from kbuild.aot.op.model import OpLaunch, OpScalar, OpTensor

_AXIS = re.compile(r"\{(\w+)\}")
_Read = Callable[[KeyPath, str, OpScope], "OpExpression | None"]


@dataclass(frozen=True)
class _Bound:
    """A tensor that a pointer of a kernel is bound to, with the pointer's type."""

    tensor: str
    type: str
    """Such as `fp32` or `{dtype}`."""
    kernel: Kernel
    place: KeyPath


@dataclass(frozen=True)
class _Given:
    """What a manifest says of an argument of a kernel."""

    place: KeyPath
    texts: tuple[str, ...]
    """Empty where it says nothing, and the tensor, dimension or scalar of the same name is meant."""
    is_wrong: bool


class LaunchLoader:
    """Reads the launches of one operator, and learns from them the types of its tensors."""

    def __init__(
        self,
        reader: ManifestReader,
        path: KeyPath,
        kernel: Kernel,
        kernels: Mapping[str, Kernel],
        scope: OpScope,
        scalars: Sequence[OpScalar],
        read: _Read,
    ) -> None:
        self.reader, self.path, self.kernel, self.kernels = reader, path, kernel, kernels
        self.scope, self.read = scope, read
        self.defaults = {scalar.name: scalar.value for scalar in scalars}
        self.bound: list[_Bound] = []

    def load(self, values: Mapping[str, Any], condition: _Read) -> tuple[OpLaunch, ...]:
        """The launches; mistakes are noted in the reader.  `condition` reads what holds or not."""
        before = len(self.reader.errors)
        if values.get("launch") == []:
            self.reader.error(
                (*self.path, "launch"), "no launch is given", "leave it out for one of this kernel"
            )
        entries = [
            (key, checked(self.reader, key, entry, schema.LAUNCH)) for key, entry in values.get("launch", ())
        ] or [(self.path, {})]
        launched = [kernel for key, entry in entries if (kernel := self._kernel(key, entry))]
        if len(self.reader.errors) > before:
            return ()
        names = [name for kernel in launched for name in _arguments(kernel)]
        shared = self._bindings(self.path, values, names)
        return tuple(
            self._launch(key, entry, kernel, shared, condition)
            for (key, entry), kernel in zip(entries, launched)
        )

    def _kernel(self, key: KeyPath, entry: Mapping[str, Any]) -> Kernel | None:
        name = entry.get("kernel", self.kernel.name)
        if name not in self.kernels:
            self.reader.error(
                (*key, "kernel"), f"no kernel {described(name)}", suggestion(name, self.kernels)
            )
        return self.kernels.get(name)

    def _bindings(self, key: KeyPath, table: Mapping[str, Any], names: Iterable[str]) -> dict[str, _Given]:
        """What a table `bind` says of each argument; of one that it is wrong about, nothing is asked any more."""
        key, given = (*key, "bind"), table.get("bind", {})
        known = {"<argument>": [*dict.fromkeys(names)]}
        right = checked(self.reader, key, given, schema.BIND, known)
        found: dict[str, _Given] = {}
        for name, value in spread(given).items():
            count = len(value) if isinstance(value, list) else 1
            texts = tuple(right.get(name, ()))
            found[name] = _Given((*key, name), texts, not texts or len(texts) < count)
        return found

    def _launch(
        self,
        key: KeyPath,
        entry: Mapping[str, Any],
        kernel: Kernel,
        shared: Mapping[str, _Given],
        condition: _Read,
    ) -> OpLaunch:
        own: Mapping[str, _Given] = {}
        scope, when = self.scope, None
        if key != self.path:
            own = self._bindings(key, entry, _arguments(kernel))
            if "when" in entry:
                when = condition((*key, "when"), entry["when"], scope)
                # A launch that is left out without a tensor may name the dimensions of that tensor.
                asked = {name for name in scope.optional if when and given_name(name) in when.plain}
                unsure = {dim: names for dim, names in scope.unsure.items() if not asked & {*names}}
                scope = replace(scope, unsure=unsure)
        nothing = _Given((*self.path, "bind"), (), False)
        all_given = {**shared, **own}
        pointers: list[tuple[str, str]] = []
        values: list[tuple[str, tuple[OpExpression, ...]]] = []
        for argument in kernel.args + kernel.grid_args:
            given = all_given.get(argument.name, nothing)
            if given.is_wrong:
                continue
            if argument.is_pointer:
                pointers += self._pointer(given, argument, kernel)
            elif bound := self._value(given, argument.name, kernel, scope):
                self._check_kinds(given.place, argument.name, argument.type, bound)
                values.append((argument.name, bound))
        for axis in kernel.matrix:
            given = all_given.get(axis.name, nothing)
            is_known = axis.name in scope.names
            if given.is_wrong or (not given.texts and not is_known and _is_implied(axis)):
                continue
            if bound := self._value(given, axis.name, kernel, scope):
                self._check_axis(given.place, axis, bound)
                values.append((axis.name, bound))
        return OpLaunch(kernel.name, tuple(pointers), tuple(values), when)

    def _pointer(self, given: _Given, argument: Argument, kernel: Kernel) -> Iterator[tuple[str, str]]:
        """The tensor that a pointer is bound to."""
        place = given.place
        tensor = given.texts[0].strip() if given.texts else argument.name
        if len(given.texts) > 1:
            self.reader.error(
                place, f'the pointer "{argument.name}" of {kernel.name} is one tensor, not several'
            )
            return
        if tensor not in self.scope.tensors:
            message = f"{described(tensor)} is no tensor of the operator"
            if not given.texts:
                message = f'nothing is bound to the pointer "{argument.name}" of {kernel.name}'
            self.reader.error(place, message, suggestion(tensor, self.scope.tensors))
            return
        type_ = argument.type.lstrip("*")
        if found := descriptors.parts(argument.type):
            type_, sizes = found
            self._check_descriptor(place, argument.name, tensor, len(sizes))
        self.bound.append(_Bound(tensor, type_, kernel, place))
        yield argument.name, tensor

    def _check_descriptor(self, place: KeyPath, name: str, tensor: str, rank: int) -> None:
        """A tensor descriptor is of a tensor that is there, and has its dimensions."""
        words = self.scope.tensors[tensor]
        if len(words) != rank:
            plural = "s" * (rank != 1)
            message = f"{name} is a descriptor of {rank} dimension{plural}, and {tensor} has {len(words)}: {' '.join(words)}"
            self.reader.error(place, message)
        if tensor in self.scope.optional:
            self.reader.error(place, f"{name} is a descriptor, and {tensor} may be None")

    def _value(self, given: _Given, name: str, kernel: Kernel, scope: OpScope) -> tuple[OpExpression, ...]:
        """The expressions that an argument or axis is bound to."""
        if not given.texts and name not in scope.names:
            known = ", ".join(scope.names)
            self.reader.error(
                given.place,
                f'nothing is bound to the argument "{name}" of {kernel.name}',
                f'write {name} = "…", an expression over {known}',
            )
            return ()
        found = [self.read(given.place, text, scope) for text in given.texts or (name,)]
        return tuple(expression for expression in found if expression)

    def _check_axis(self, place: KeyPath, axis: Axis, bound: Sequence[OpExpression]) -> None:
        """What an axis is bound to may be one of its values."""
        words = [value for value in axis.values if isinstance(value, str)]
        has_numbers = any(isinstance(value, float) for value in axis.values)
        listed = " or ".join(map(one_line, axis.values))
        for expression in bound:
            is_word = expression.kind == "str"
            what = {"str": "a word", "float": "a number with a fraction"}.get(
                expression.kind, "a whole number"
            )
            default = self.defaults.get(expression.plain)
            if is_word and (expression.plain not in self.defaults or len(bound) > 1):
                message = f"{described(expression.text)} is a word, and {axis.name} takes that of one scalar"
                advice = f'write scalars = {{ {axis.name.lower()} = "{expression.text}" }}'
            elif is_word is not (len(words) > 0) or (expression.kind == "float" and not has_numbers):
                message = f"{described(expression.text)} is {what}, and {axis.name} is {listed}"
                advice = "it follows from the types of tensors" if _is_implied(axis) and words else ""
            elif default is not None and default not in axis.values:
                place = (*self.path, "scalars", expression.plain)
                message = (
                    f"the default of {expression.plain} is {one_line(default)}, and {axis.name} is {listed}"
                )
                advice = suggestion(default, words)
            else:
                continue
            self.reader.error(place, message, advice)
            return

    def _check_kinds(self, place: KeyPath, name: str, type_: str, bound: Sequence[OpExpression]) -> None:
        """An argument that is an integer takes no number with a fraction, and none takes a word."""
        is_integer = type_[:1] in ("i", "u")
        for expression in bound:
            if expression.kind == "str" or (is_integer and expression.kind == "float"):
                what = {"str": "a word", "float": "a number with a fraction"}[expression.kind]
                self.reader.error(
                    place, f"{described(expression.text)} is {what}, and {name} is of type {type_}"
                )

    def typed(self, tensors: Sequence[tuple[str, OpTensor]], dtypes: Mapping[str, Any]) -> list[OpTensor]:
        """The tensors, which come with their roles, with the types that the kernels take."""
        made = sorted(tensor.name for role, tensor in tensors if role != "inputs")
        given = checked(self.reader, (*self.path, "dtypes"), dtypes, schema.DTYPES, {"<tensor>": made})
        sure = [tensor.name for role, tensor in tensors if role == "inputs" and not tensor.is_optional]
        deciding = {
            (bound.kernel.name, bound.type): bound.tensor for bound in self.bound if bound.tensor in sure
        }
        before = len(self.reader.errors)
        for role, tensor in tensors:
            if all(bound.tensor != tensor.name for bound in self.bound):
                key, advice = (
                    (*self.path, role, tensor.name),
                    "bind a pointer of a kernel to it, or leave it out",
                )
                self.reader.error(key, "no launch takes this tensor", advice)
        if len(self.reader.errors) > before:
            return [tensor for _, tensor in tensors]
        return [self._typed(role, tensor, given.get(tensor.name), deciding) for role, tensor in tensors]

    def _typed(
        self, role: str, tensor: OpTensor, given: str | None, deciding: Mapping[tuple[str, str], str]
    ) -> OpTensor:
        """`deciding` are inputs by the kernels and axes that their types decide."""
        uses = [bound for bound in self.bound if bound.tensor == tensor.name]
        is_made = role != "inputs"
        types: list[str] | None = None
        group = ""
        for use in uses:
            axis = _AXIS.fullmatch(use.type)
            found = [use.type]
            if axis:
                group = group or axis[1]
                found = [str(v) for each in use.kernel.matrix if each.name == axis[1] for v in each.values]
            types = found if types is None else [name for name in types if name in found]
        assert types is not None
        place = uses[0].place
        if not types:
            words = " and ".join(f"{use.kernel.name} takes {use.type}" for use in uses)
            self.reader.error(place, f"no element type of {tensor.name} fits all launches: {words}")
        if given is not None:
            if given not in types:
                key = (*self.path, "dtypes", tensor.name)
                advice = suggestion(given, types if given in DTYPES else DTYPES)
                self.reader.error(key, f"the kernel takes no {described(given)}", advice)
            elif other := next(
                (deciding[pair] for use in uses if (pair := (use.kernel.name, use.type)) in deciding), ""
            ):
                message = f"{uses[0].kernel.name} takes it as of the type of {other}"
                self.reader.error((*self.path, "dtypes", tensor.name), message, "leave it out")
            return replace(tensor, types=(given,))
        if len(types) > 1 and is_made and not any(type_ == f"{{{group}}}" for _, type_ in deciding):
            self.reader.error(
                (*self.path, "dtypes"),
                f"no input decides the element type of {tensor.name}",
                f'write dtypes = {{ {tensor.name} = "{types[0]}" }}',
            )
        return replace(tensor, types=tuple(types), group=group if len(types) > 1 else "")


def _arguments(kernel: Kernel) -> Iterator[str]:
    """What may be bound of a kernel."""
    for argument in kernel.args + kernel.grid_args:
        yield argument.name
    for axis in kernel.matrix:
        yield axis.name


def _is_implied(axis: Axis) -> bool:
    """Whether a launch need not say the value of an axis."""
    is_decided = not axis.is_parameter or axis.default is not None or len(axis.values) == 1
    return is_decided or all(value in DTYPES for value in axis.values)
