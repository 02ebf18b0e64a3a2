"""A kernel's text for the interpreter, and which of its arguments it may read through: their arrays have to hold something.

    %p = tt.addptr %x, %o ; %v = tt.load %p ; tt.store %out, %v        {x}
"""

from __future__ import annotations

from collections.abc import Iterator

from kbuild.compiler.ir.core import Func, Module, Op, Trait, Value
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ir.types import DescriptorType, Type, is_float, is_pointer, pointee_of

__all__ = ["Type", "is_float", "is_pointer", "loaded_arguments", "module_of", "pointee_of"]


def module_of(text: str) -> Module:
    """The module of a text of ttir or ttgir, to run with `interp.run`."""
    return parse_module(text)


def loaded_arguments(kernel: Func) -> frozenset[str]:
    """The names of pointer arguments that a load or an atomic operation may go through; where in doubt, an argument is named."""
    return frozenset(argument.hint for argument in kernel.arguments if is_pointer(argument.type) and _is_loaded(kernel, argument))


def _is_loaded(kernel: Func, argument: Value) -> bool:
    """Whether an address made of the argument reaches an operation that reads."""
    addresses: set[Value] = {argument}
    size = 0
    while size < len(addresses):  # Loops carry addresses backwards: until nothing is added.
        size = len(addresses)
        for op in kernel.walk():
            if op is kernel or not any(value in addresses for value in _given(op)):
                continue
            if op.has(Trait.READS):
                return True
            addresses.update(value for value in _defined(op) if is_pointer(value.type) or isinstance(value.type, DescriptorType))
    return False


def _given(op: Op) -> Iterator[Value]:
    """What an operation takes, and what its regions give back."""
    yield from op.operands
    for region in op.regions:
        for last in list(region)[-1:]:
            yield from last.operands


def _defined(op: Op) -> Iterator[Value]:
    """The results of an operation and the arguments of its regions."""
    yield from op.results
    for region in op.regions:
        yield from region.arguments
