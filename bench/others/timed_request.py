"""A launch of Triton's as `kbuild.compile` and `kbuild.load` take it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kbuild.aot.capture.hook.specialization import specialization
from kbuild.options import TRITON, by_name

_CONSTANT = "constexpr"
"""What a signature has in the place of a tuple's elements that are constants."""


@dataclass(frozen=True)
class Request:
    """What is to be compiled."""

    signature: dict[str, Any] = field(default_factory=dict[str, Any])
    """Types and hints of the run-time arguments, in the order of the parameters."""
    constexprs: dict[str, Any] = field(default_factory=dict[str, Any])
    """Live values, as Triton got them; those of elements of tuples by names such as `strides_0`."""
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    """Those of Triton's options that kbuild has, too."""

    @property
    def key(self) -> str:
        """The same for the same request, for one compiled kernel of Triton's."""
        return repr(self.signature)


def request_of(kernel: Any, options: Mapping[str, Any], arguments: Mapping[str, Any]) -> Request:
    """The request that gives Triton's compiled kernel; `options` are those that Triton was given for it, and `arguments`
    those of a launch by name, whose descriptors say how they are padded."""
    source = kernel.src
    request = Request(options={name: value for name, value in options.items() if _is_ours(name, value)})
    # The words that `specialization` has for constants are those of a file.
    constants = {
        path if isinstance(path, tuple) else (path,): value for path, value in source.constants.items()
    }
    found = specialization(kernel)
    for index, name in enumerate(source.fn.arg_names):
        if name in found["constexprs"]:
            request.constexprs[name] = constants.get((index,))
            continue
        leaves = _Leaves(constants, request.constexprs)
        spelled = leaves.type_of(
            found["args"][name], (source.signature.get(name), arguments.get(name)), (index,), name
        )
        if spelled != _CONSTANT:
            request.signature[name] = spelled
    return request


def _is_ours(name: str, value: Any) -> bool:
    known = by_name(name)
    return known is not None and known.language in ("", TRITON) and value is not None


@dataclass(frozen=True)
class _Leaves:
    """The elements of one argument."""

    constants: Mapping[tuple[int, ...], Any]
    """By path."""
    constexprs: dict[str, Any]
    """Where the constants among them go."""

    def type_of(self, text: Any, known: tuple[Any, Any], path: tuple[int, ...], name: str) -> Any:
        """The type of an argument as signatures have it, from what `specialization` says of it; `known` are its type to
        Triton and its value."""
        type_, value = known
        if isinstance(text, list):
            items = [
                self.type_of(
                    one, (_item(type_, index), _item(value, index)), (*path, index), f"{name}_{index}"
                )
                for index, one in enumerate(text)
            ]
            names = getattr(type_, "_fields", None) or getattr(value, "_fields", None)
            return dict(zip(names, items)) if names else tuple(items)
        if isinstance(text, str) and text != "none":
            return text.replace("]", "]:nan", 1) if getattr(value, "padding", "") == "nan" else text
        self.constexprs[name] = self.constants[path]
        return _CONSTANT


def _item(values: Any, index: int) -> Any:
    return values[index] if isinstance(values, tuple | list) else None


def passed(value: Any) -> Any:
    """An argument of a launch of Triton's as one of `kbuild.load`, which takes arrays for tensor descriptors."""
    if isinstance(value, tuple | list):
        return tuple(map(passed, value))
    if hasattr(value, "block_shape"):
        return value.base.as_strided(tuple(value.shape), tuple(value.strides))
    return value
