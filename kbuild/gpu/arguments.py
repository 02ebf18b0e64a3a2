"""The arguments of a launch: bound to those of the kernel's signature, and compared with what was assumed of them when it
was compiled.

    x: *fp32:16    n: i32:16     scale(x, 1000)     x is an address that 16 divides, of float32; 1000 is not divisible by 16

What follows from the signature alone is computed once: an `Argument` checks what each call gives for it.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kbuild.compiler.frontend.argument_tuples import CONSTANT, Known, TupleType, tuple_type
from kbuild.compiler.frontend.signature import DESCRIPTOR_ALIGNMENT, ArgumentType, parse_type
from kbuild.compiler.semantic.types import BY_TL_NAME, FP8E4NV, FP8E5, INT1
from kbuild.errors import UsageError
from kbuild.gpu.cuda import core
from kbuild.gpu.views import HOST, ArrayView, view_of

_ELEMENTS = BY_TL_NAME | {"bool": INT1, "float8_e4m3fn": FP8E4NV, "float8_e5m2": FP8E5}
"""Types of elements by the names of the dtypes of numpy, torch and ml_dtypes."""


class Taken:
    """What a call gives."""

    __slots__ = ("arrays", "objects", "values")

    def __init__(self) -> None:
        self.values: dict[str, int | float] = {}
        """Of the kernel's parameters, by name."""
        self.arrays: dict[str, ArrayView] = {}
        """By the names of the arguments."""
        self.objects: list[Any] = []
        """The arguments that are not plain numbers."""


class Arguments:
    """The arguments that a kernel takes."""

    def __init__(self, kernel: str, signature: Sequence[tuple[str, str]]) -> None:
        self._kernel, self._spelled = kernel, dict(signature)
        # The parameters of a text of IR may have names that Python does not take.
        self._names = [name if name.isidentifier() else f"argument_{name}" for name in self._spelled]
        self._arguments = [
            _argument(kernel, name, tuple_type(text) or text) for name, text in self._spelled.items()
        ]

    def take(self, args: Sequence[Any], named: Mapping[str, Any]) -> Taken:
        """The values of the kernel's parameters, and the arrays.  Raises `UsageError` where the arguments are other ones,
        and for the first that is not as was assumed when the kernel was compiled."""
        if named or len(args) != len(self._names):
            args = self._in_order(args, named)
        taken = Taken()
        for argument, value in zip(self._arguments, args):
            argument.take(value, taken)
        return taken

    def _in_order(self, args: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Any]:
        rest = self._names[len(args) :]
        if len(args) + len(named) == len(self._names) and all(name in named for name in rest):
            return (*args, *(named[name] for name in rest))
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        signature = inspect.Signature([inspect.Parameter(name, kind) for name in self._names])
        try:
            return signature.bind(*args, **named).args
        except TypeError as error:
            expected = ", ".join(f"{name}: {text}" for name, text in self._spelled.items())
            help = f"it takes {expected}; constants are compiled in" if expected else "it takes none"
            raise UsageError(f"{self._kernel}: {error}", help=help) from None


def _argument(kernel: str, name: str, type_: Any) -> Argument:
    """The argument of a type: the text of one, a tuple's, or a constant."""
    if isinstance(type_, TupleType):
        items = tuple(_argument(kernel, f"{name}_{index}", item) for index, item in enumerate(type_.items))
        return _Tuple(kernel, name, type_, items)
    if isinstance(type_, Known):
        return _Known(kernel, name, type_)
    if type_ == CONSTANT:
        return Argument(kernel, name, type_)
    parsed = parse_type(type_, name)
    if parsed.block is not None:
        return _Descriptor(kernel, name, type_, parsed)
    if parsed.dtype.is_ptr():
        return _Pointer(kernel, name, type_, parsed)
    if parsed.one:
        return _One(kernel, name, type_, parsed)
    return (_Real if parsed.dtype.is_floating() else _Whole)(kernel, name, type_, parsed)


class Argument:
    """One argument, of a kernel or of a tuple; this one is a constant, of which any value is taken for the right one."""

    def __init__(self, kernel: str, name: str, spelled: Any) -> None:
        self.kernel, self.name = kernel, name
        self.spelled = spelled
        """Its type, as in the signature."""

    def take(self, value: Any, taken: Taken) -> None:
        """Compare a value with the type, and keep it.  Raises `UsageError` where it is not as was assumed."""


class _Tuple(Argument):
    def __init__(self, kernel: str, name: str, spelled: TupleType, items: Sequence[Argument]) -> None:
        super().__init__(kernel, name, spelled)
        self._items = items

    def take(self, value: Any, taken: Taken) -> None:
        count = len(self._items)
        if not isinstance(value, tuple | list) or len(value) != count:
            raise UsageError(
                f"{self.kernel}: argument {self.name} is {shown(value)}, and the kernel takes a tuple "
                f"{self.spelled} of {count}"
            )
        for item, one in zip(self._items, value):
            item.take(one, taken)


class _Known(Argument):
    """A constant that was compiled in."""

    def take(self, value: Any, taken: Taken) -> None:
        known = self.spelled.value
        if not (value is known or value == known):
            raise UsageError(
                f"{self.kernel}: argument {self.name} is {shown(value)}, but it was compiled as {self.spelled}",
                help=f"pass {self.spelled}, or compile the kernel for another value",
            )


class _Typed(Argument):
    """An argument with a type of the signature."""

    def __init__(self, kernel: str, name: str, spelled: str, type_: ArgumentType) -> None:
        super().__init__(kernel, name, spelled)
        self.type = type_
        self.divisor = type_.divisibility or 1

    def wrong(self, found: str, expected: str, help: str = "") -> UsageError:
        return UsageError(
            f'{self.kernel}: argument {self.name} is {found}, but it was compiled as "{self.spelled}": {expected}',
            help=help,
        )

    def assumed(self, found: str, expected: str) -> UsageError:
        """Where an assumption does not hold, which another compilation need not make."""
        plain = self.spelled.rpartition(":")[0] or self.spelled
        return self.wrong(
            found, expected, f'pass such a value, or compile the kernel with {self.name} = "{plain}"'
        )

    def whole(self, value: Any, expected: str) -> int:
        try:
            # Truth values of numpy are whole numbers, too.
            return operator.index(value.item() if type(value).__module__ == "numpy" else value)
        except (TypeError, ValueError):
            raise self.wrong(shown(value), f"it is {expected}") from None


class _Array(_Typed):
    """An array: its address, or also its sizes and strides, are passed."""

    def __init__(self, kernel: str, name: str, spelled: str, type_: ArgumentType) -> None:
        super().__init__(kernel, name, spelled, type_)
        pointed: Any = type_.dtype.scalar
        self.element = pointed.element_ty
        self._others = frozenset(name for name, element in _ELEMENTS.items() if element != self.element)
        """Names of other types of elements."""

    def view(self, value: Any, taken: Taken, with_shape: bool) -> ArrayView | None:
        """What is known of the array, of which place and elements are checked; None for a value that is none."""
        view = view_of(value, with_shape)
        if view is None:
            return None
        if view.device == HOST:
            raise UsageError(
                f"{self.kernel}: argument {self.name} is in the host's memory", help="copy it to the device"
            )
        if view.dtype in self._others:
            raise self.wrong(f"an array of {view.dtype}", f"its elements are {self.element.name}")
        taken.arrays[self.name] = view
        taken.objects.append(value)
        return view


class _Pointer(_Array):
    """An array or the address of one, of which the address is passed."""

    def take(self, value: Any, taken: Taken) -> None:
        view = self.view(value, taken, with_shape=False)
        if view is None:
            address = 0 if value is None else self.whole(value, "an array, or the address of one")
            if not 0 <= address < 1 << 64:
                raise self.wrong(str(address), "an address has 64 bits")
        else:
            address = view.address
            if not address and isinstance(value, core.Buffer) and value.is_closed:
                raise self.wrong("a buffer that was closed", "it is memory of a device")
        if address % self.divisor:
            raise self.assumed(f"at address {address:#x}", f"{self.divisor} divides its address")
        taken.values[self.name] = address


class _Descriptor(_Array):
    """A tensor that is read and written in blocks."""

    def __init__(self, kernel: str, name: str, spelled: str, type_: ArgumentType) -> None:
        super().__init__(kernel, name, spelled, type_)
        block: Any = type_.block
        self._rank, self._size = len(block.shape), block.element_ty.itemsize
        self._names = [parameter for parameter, _, _ in type_.parameters(name)]

    def take(self, value: Any, taken: Taken) -> None:
        view = self.view(value, taken, with_shape=True)
        if view is None or view.shape is None:
            raise self.wrong(shown(value), "it is an array, whose sizes and strides are passed with it")
        if len(view.shape) != self._rank:
            raise self.wrong(f"an array of {len(view.shape)} dimensions", f"its blocks have {self._rank}")
        strides = view.strides or tuple(_contiguous(view.shape))
        if strides[-1] != 1 and view.shape[-1] > 1:
            raise self.wrong(f"an array of strides {strides}", "the elements of a row are neighbours")
        if view.address % DESCRIPTOR_ALIGNMENT:
            raise self.wrong(f"at address {view.address:#x}", f"{DESCRIPTOR_ALIGNMENT} divides its address")
        for axis, stride in enumerate(strides[:-1]):
            if stride * self._size % DESCRIPTOR_ALIGNMENT:
                raise self.wrong(
                    f"an array of strides {strides}",
                    f"{DESCRIPTOR_ALIGNMENT} divides the bytes of stride {axis}",
                )
        if view.shape[-1] % self.divisor:
            raise self.assumed(f"an array of {view.shape}", f"{self.divisor} divides its last size")
        taken.values.update(zip(self._names, (view.address, *view.shape, *strides[:-1])))


class _One(_Typed):
    """A number that is no parameter, because it is known to be one."""

    def take(self, value: Any, taken: Taken) -> None:
        if type(value) is not int:
            taken.objects.append(value)
        if self.whole(value, "the number 1") != 1:
            raise self.assumed(shown(value), "it is 1")


class _Whole(_Typed):
    def __init__(self, kernel: str, name: str, spelled: str, type_: ArgumentType) -> None:
        super().__init__(kernel, name, spelled, type_)
        dtype: Any = type_.dtype
        bits = dtype.primitive_bitwidth
        self._low, self._end = (-(1 << bits - 1), 1 << bits - 1) if dtype.is_int_signed() else (0, 1 << bits)

    def take(self, value: Any, taken: Taken) -> None:
        if type(value) is not int:
            taken.objects.append(value)
            value = self.whole(value, "a whole number")
        if not self._low <= value < self._end:
            raise self.wrong(str(value), f"it lies from {self._low} to {self._end - 1}")
        if value % self.divisor:
            raise self.assumed(str(value), f"{self.divisor} divides it")
        taken.values[self.name] = value


class _Real(_Typed):
    def take(self, value: Any, taken: Taken) -> None:
        if type(value) is not float:
            taken.objects.append(value)
            value = self._real(value)
        taken.values[self.name] = value

    def _real(self, value: Any) -> float:
        try:
            if isinstance(value, str | bytes):
                raise TypeError
            return float(value)
        except (TypeError, ValueError):
            raise self.wrong(shown(value), "it is a number") from None


def _contiguous(shape: Sequence[int]) -> Iterator[int]:
    """The strides of an array whose elements lie one after the other."""
    for axis in range(len(shape)):
        stride = 1
        for size in shape[axis + 1 :]:
            stride *= size
        yield stride


def shown(value: Any) -> str:
    """A value in a message: numbers and short texts as they are, of all others the type."""
    if value is None or (isinstance(value, int | float | str) and len(repr(value)) < 40):
        return repr(value)
    return f"a {type(value).__module__}.{type(value).__qualname__}".replace("builtins.", "")
