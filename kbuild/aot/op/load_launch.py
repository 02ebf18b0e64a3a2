"""The launches of an operator: every argument of their kernels is bound to a tensor or to expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kbuild.aot.manifest import descriptors
from kbuild.aot.manifest.model import DTYPES, Argument, Axis, Kernel
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.reader import ManifestReader, described, spread, suggestion
from kbuild.aot.manifest.table import checked
from kbuild.aot.op import schema
from kbuild.aot.op.expressions import OpExpression, OpScope
from kbuild.aot.op.model import OpLaunch, OpTensor

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


class LaunchLoader:
    """Reads the launches of one operator, and learns from them the types of its tensors."""

    def __init__(
        self,
        reader: ManifestReader,
        path: KeyPath,
        kernel: Kernel,
        kernels: Mapping[str, Kernel],
        scope: OpScope,
        read: _Read,
    ) -> None:
        self.reader, self.path, self.kernel, self.kernels = reader, path, kernel, kernels
        self.scope, self.read = scope, read
        self.bound: list[_Bound] = []

    def load(self, values: Mapping[str, Any]) -> tuple[OpLaunch, ...]:
        """The launches; mistakes are noted in the reader."""
        entries = values.get("launch") or [(self.path, {})]
        launched = [self._kernel(key, entry) for key, entry in entries]
        names = [name for kernel in launched if kernel for name in _arguments(kernel)]
        shared_path = (*self.path, "bind")
        shared = checked(
            self.reader,
            shared_path,
            values.get("bind", {}),
            schema.BIND,
            {"<argument>": [*dict.fromkeys(names)]},
        )
        return tuple(
            self._launch(key, entry, kernel, shared)
            for (key, entry), kernel in zip(entries, launched)
            if kernel
        )

    def _kernel(self, key: KeyPath, entry: Mapping[str, Any]) -> Kernel | None:
        name = entry.get("kernel", self.kernel.name)
        if name not in self.kernels:
            self.reader.error(
                (*key, "kernel"), f"no kernel {described(name)}", suggestion(name, self.kernels)
            )
        return self.kernels.get(name)

    def _launch(
        self, key: KeyPath, entry: Mapping[str, Any], kernel: Kernel, shared: Mapping[str, Any]
    ) -> OpLaunch:
        own: Mapping[str, Any] = {}
        when = None
        if key != self.path:
            table = checked(self.reader, key, entry, schema.LAUNCH)
            own = checked(
                self.reader,
                (*key, "bind"),
                table.get("bind", {}),
                schema.BIND,
                {"<argument>": [*_arguments(kernel)]},
            )
            if "when" in table:
                when = self.read((*key, "when"), table["when"], self.scope)
        places = {name: (*self.path, "bind", name) for name in shared}
        places |= {name: (*key, "bind", name) for name in own}
        texts = {**shared, **own}
        pointers: list[tuple[str, str]] = []
        values: list[tuple[str, tuple[OpExpression, ...]]] = []
        for argument in kernel.args + kernel.grid_args:
            place = places.get(argument.name, (*self.path, "bind"))
            given = texts.get(argument.name, ())
            if argument.is_pointer:
                pointers += self._pointer(place, argument, given, kernel)
            elif bound := self._value(place, argument.name, given, kernel):
                self._check_kinds(place, argument.name, argument.type, bound)
                values.append((argument.name, bound))
        for axis in kernel.matrix:
            place = places.get(axis.name, (*self.path, "bind"))
            given = texts.get(axis.name, ())
            is_known = axis.name in self.scope.dims or axis.name in self.scope.scalars
            if not given and not is_known and _is_implied(axis):
                continue
            if bound := self._value(place, axis.name, given, kernel):
                values.append((axis.name, bound))
        return OpLaunch(kernel.name, tuple(pointers), tuple(values), when)

    def _pointer(
        self, place: KeyPath, argument: Argument, given: Sequence[str], kernel: Kernel
    ) -> Iterator[tuple[str, str]]:
        """The tensor that a pointer is bound to."""
        tensor = given[0].strip() if given else argument.name
        if len(given) > 1 or tensor not in self.scope.tensors:
            message = f"{described(tensor)} is no tensor of the operator"
            if not given:
                message = f'nothing is bound to the pointer "{argument.name}" of {kernel.name}'
            self.reader.error(place, message, suggestion(tensor, self.scope.tensors))
            return
        found = descriptors.parts(argument.type)
        type_ = found[0] if found else argument.type.lstrip("*")
        self.bound.append(_Bound(tensor, type_, kernel, place))
        yield argument.name, tensor

    def _value(
        self, place: KeyPath, name: str, given: Sequence[str], kernel: Kernel
    ) -> tuple[OpExpression, ...]:
        """The expressions that an argument or axis is bound to."""
        if not given and name not in self.scope.dims and name not in self.scope.scalars:
            known = ", ".join([*self.scope.dims, *self.scope.scalars])
            self.reader.error(
                place,
                f'nothing is bound to the argument "{name}" of {kernel.name}',
                f'write {name} = "…", an expression over {known}',
            )
            return ()
        texts = given or (name,)
        found = [self.read(place, text, self.scope) for text in texts]
        return tuple(expression for expression in found if expression)

    def _check_kinds(self, place: KeyPath, name: str, type_: str, bound: Sequence[OpExpression]) -> None:
        """An argument that is an integer takes no number with a fraction, and none takes a word."""
        is_integer = type_[:1] in ("i", "u")
        for expression in bound:
            if expression.kind == "str" or (is_integer and expression.kind == "float"):
                what = {"str": "a word", "float": "a number with a fraction"}[expression.kind]
                self.reader.error(
                    place, f"{described(expression.text)} is {what}, and {name} is of type {type_}"
                )

    def typed(
        self, tensors: Sequence[OpTensor], inputs: Sequence[OpTensor], dtypes: Mapping[str, Any]
    ) -> list[OpTensor]:
        """The tensors with the types that the kernels take."""
        given = spread(dtypes)
        made = {tensor.name for tensor in tensors} - {tensor.name for tensor in inputs}
        given = checked(self.reader, (*self.path, "dtypes"), given, schema.DTYPES, {"<tensor>": sorted(made)})
        groups = {
            axis[1]
            for bound in self.bound
            if bound.tensor not in made and (axis := _AXIS.fullmatch(bound.type))
        }
        return [
            self._typed(tensor, given.get(tensor.name), tensor.name in made, groups) for tensor in tensors
        ]

    def _typed(self, tensor: OpTensor, given: str | None, is_made: bool, groups: set[str]) -> OpTensor:
        uses = [bound for bound in self.bound if bound.tensor == tensor.name]
        if not uses:
            role = "inputs" if not is_made else "outputs"
            self.reader.error(
                (*self.path, role, tensor.name),
                "no launch takes this tensor",
                "bind a pointer of a kernel to it, or leave it out",
            )
            return tensor
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
            return replace(tensor, types=(given,))
        if len(types) > 1 and is_made and group not in groups:
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
