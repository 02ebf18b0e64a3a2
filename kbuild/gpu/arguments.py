"""The arguments of a launch: bound to those of the kernel's signature, and compared with what was assumed of them when it
was compiled.

    x: *fp32:16    n: i32:16     scale(x, 1000)     x is an address that 16 divides, of float32; 1000 is not divisible by 16
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbuild.compiler.frontend.argument_tuples import CONSTANT, Known, TupleType, tuple_type
from kbuild.compiler.frontend.signature import DESCRIPTOR_ALIGNMENT, ArgumentType, parse_type
from kbuild.compiler.semantic.types import BY_TL_NAME, FP8E4NV, FP8E5, INT1
from kbuild.errors import UsageError
from kbuild.gpu.cuda import core, device_of, utils

_ELEMENTS = BY_TL_NAME | {"bool": INT1, "float8_e4m3fn": FP8E4NV, "float8_e5m2": FP8E5}
"""Types of elements by the names of the dtypes of numpy, torch and ml_dtypes."""
HOST = -1
_ON_GPU = (2, 13)
"""DLPack's numbers for memory of a GPU, and for managed memory."""


@dataclass(frozen=True)
class ArrayView:
    """What is known of an array."""

    address: int
    device: int | None
    """The ordinal of its device; HOST for memory of the host that devices do not reach, None where it does not say."""
    dtype: str = ""
    """The name of its elements' type; empty where that is not known."""
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    """Elements from one index to the next; None where they lie one after the other."""
    stream: int | None = None
    """The stream whose work is to be waited for."""


@dataclass(frozen=True)
class BoundArgument:
    """One argument, of a kernel or of a tuple."""

    name: str
    spelled: str
    """Its type, as in the signature."""
    type: ArgumentType
    value: Any


class Arguments:
    """The arguments that a kernel takes."""

    def __init__(self, kernel: str, signature: Sequence[tuple[str, str]]) -> None:
        self.kernel = kernel
        self.spelled = dict(signature)
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        # The parameters of a text of IR may have names that Python does not take.
        self._names = {name if name.isidentifier() else f"argument_{name}": name for name in self.spelled}
        self._signature = inspect.Signature([inspect.Parameter(name, kind) for name in self._names])
        self._tuples = {
            name: found for name, text in self.spelled.items() if (found := tuple_type(text)) is not None
        }
        self._types = {
            element: parse_type(text, element)
            for name, text in self.spelled.items()
            for element, text in (self._tuples[name].leaves(name) if name in self._tuples else [(name, text)])
            if not _is_constant(text)
        }

    def bind(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[BoundArgument]:
        """The arguments of a call, those in tuples one by one.  Raises `UsageError` where they are other ones."""
        try:
            bound = self._signature.bind(*args, **named)
        except TypeError as error:
            expected = ", ".join(f"{name}: {text}" for name, text in self.spelled.items())
            help = f"it takes {expected}; constants are compiled in" if expected else "it takes none"
            raise UsageError(f"{self.kernel}: {error}", help=help) from None
        given = {self._names[name]: value for name, value in bound.arguments.items()}
        return [item for name, value in given.items() for item in self._items(name, value)]

    def _items(self, name: str, value: Any) -> Iterator[BoundArgument]:
        found = self._tuples.get(name)
        yield from self._bound(name, self.spelled[name] if found is None else found, value)

    def _bound(self, name: str, type_: Any, value: Any) -> Iterator[BoundArgument]:
        """An argument, or the elements of one, which are compared with the constants that were compiled in."""
        if isinstance(type_, TupleType):
            count = len(type_.items)
            if not isinstance(value, tuple | list) or len(value) != count:
                raise UsageError(
                    f"{self.kernel}: argument {name} is {shown(value)}, and the kernel takes a tuple "
                    f"{type_} of {count}"
                )
            for index, (inner, one) in enumerate(zip(type_.items, value)):
                yield from self._bound(f"{name}_{index}", inner, one)
        elif isinstance(type_, Known):
            if not (value is type_.value or value == type_.value):
                text = f"{self.kernel}: argument {name} is {shown(value)}, but it was compiled as {type_}"
                raise UsageError(text, help=f"pass {type_}, or compile the kernel for another value")
        elif not _is_constant(type_):
            yield BoundArgument(name, type_, self._types[name], value)


def _is_constant(type_: Any) -> bool:
    return isinstance(type_, Known) or type_ == CONSTANT


def view_of(value: Any) -> ArrayView | None:
    """What is known of an array; None where the value is none."""
    if isinstance(value, core.Buffer):
        return _view_of_buffer(value)
    dtype = str(getattr(value, "dtype", "")).removeprefix("torch.")
    if hasattr(value, "data_ptr") and hasattr(value, "stride"):  # A tensor of torch.
        where = value.device.index if value.device.type == "cuda" else HOST
        return ArrayView(value.data_ptr(), where, dtype, tuple(value.shape), tuple(value.stride()))
    interface = getattr(value, "__cuda_array_interface__", None)
    has_dlpack = hasattr(value, "__dlpack_device__")
    # An interface without a stream, such as JAX's of version 2, does not say when its array is written.
    if interface is not None and ("stream" in interface or not has_dlpack):
        return _view_of_interface(interface, dtype)
    if not has_dlpack:
        return None
    kind, device = value.__dlpack_device__()
    if int(kind) not in _ON_GPU:
        return ArrayView(0, HOST, dtype)
    # Its producer lets this stream wait for what writes the array, and a launch waits for this stream.
    stream = int(core.LEGACY_DEFAULT_STREAM.handle)
    view = utils.StridedMemoryView.from_dlpack(value, stream_ptr=stream)
    return ArrayView(view.ptr, int(device), dtype, tuple(view.shape), view.strides, stream)


def _view_of_buffer(buffer: Any) -> ArrayView:
    if buffer.is_closed:
        return ArrayView(0, None)
    if not buffer.is_device_accessible:
        return ArrayView(int(buffer.handle), HOST)
    # All devices reach memory of the host that is mapped for one.
    return ArrayView(int(buffer.handle), None if buffer.is_host_accessible else buffer.device_id)


def _view_of_interface(interface: Mapping[str, Any], dtype: str) -> ArrayView:
    address, shape = interface["data"][0], tuple(interface["shape"])
    size = int(interface["typestr"][2:])
    strides = interface.get("strides")
    return ArrayView(
        address,
        device_of(address) if address else None,
        dtype,
        shape,
        None if strides is None else tuple(stride // size for stride in strides),
        interface.get("stream"),
    )


def values_of(
    kernel: str, arguments: Sequence[BoundArgument], arrays: Mapping[str, ArrayView]
) -> dict[str, int | float]:
    """The values of the kernel's parameters, by name.  Raises `UsageError` for the first argument that is not as was
    assumed when the kernel was compiled."""
    values: dict[str, int | float] = {}
    for one in arguments:
        checked = _Checked(kernel, one)
        if one.type.block is not None:
            values |= checked.descriptor(arrays.get(one.name))
        elif one.type.dtype.is_ptr():
            values[one.name] = checked.pointer(arrays.get(one.name))
        elif one.type.one:
            checked.one()
        else:
            values[one.name] = checked.number()
    return values


@dataclass(frozen=True)
class _Checked:
    """One argument, while it is compared with its type."""

    kernel: str
    argument: BoundArgument

    def wrong(self, found: str, expected: str, help: str = "") -> UsageError:
        one = self.argument
        return UsageError(
            f'{self.kernel}: argument {one.name} is {found}, but it was compiled as "{one.spelled}": {expected}',
            help=help,
        )

    def assumed(self, found: str, expected: str) -> UsageError:
        """Where an assumption does not hold, which another compilation need not make."""
        one = self.argument
        plain = one.spelled.rpartition(":")[0] or one.spelled
        return self.wrong(
            found, expected, f'pass such a value, or compile the kernel with {one.name} = "{plain}"'
        )

    def pointer(self, view: ArrayView | None) -> int:
        """The address."""
        one, divisor = self.argument, self.argument.type.divisibility
        if view is None:
            address = 0 if one.value is None else self.whole("an array, or the address of one")
            if not 0 <= address < 1 << 64:
                raise self.wrong(str(address), "an address has 64 bits")
        else:
            address = view.address
            if isinstance(one.value, core.Buffer) and one.value.is_closed:
                raise self.wrong("a buffer that was closed", "it is memory of a device")
            self.elements(view)
        if divisor and address % divisor:
            raise self.assumed(f"at address {address:#x}", f"{divisor} divides its address")
        return address

    def elements(self, view: ArrayView) -> None:
        """Check the array's elements."""
        expected: Any = self.argument.type.dtype.scalar
        expected = expected.element_ty
        known = _ELEMENTS.get(view.dtype)
        if known is not None and known != expected:
            raise self.wrong(f"an array of {view.dtype}", f"its elements are {expected.name}")

    def descriptor(self, view: ArrayView | None) -> dict[str, int]:
        """The parameters of a tensor that is read and written in blocks."""
        one = self.argument
        assert one.type.block is not None
        rank, size = len(one.type.block.shape), one.type.block.element_ty.itemsize  # type: ignore[union-attr]
        if view is None or view.shape is None:
            raise self.wrong(shown(one.value), "it is an array, whose sizes and strides are passed with it")
        self.elements(view)
        if len(view.shape) != rank:
            raise self.wrong(f"an array of {len(view.shape)} dimensions", f"its blocks have {rank}")
        strides = view.strides or tuple(_contiguous(view.shape))
        if strides[-1] != 1 and view.shape[-1] > 1:
            raise self.wrong(f"an array of strides {strides}", "the elements of a row are neighbours")
        if view.address % DESCRIPTOR_ALIGNMENT:
            raise self.wrong(f"at address {view.address:#x}", f"{DESCRIPTOR_ALIGNMENT} divides its address")
        for axis, stride in enumerate(strides[:-1]):
            if stride * size % DESCRIPTOR_ALIGNMENT:
                raise self.wrong(
                    f"an array of strides {strides}",
                    f"{DESCRIPTOR_ALIGNMENT} divides the bytes of stride {axis}",
                )
        if one.type.divisibility and view.shape[-1] % one.type.divisibility:
            raise self.assumed(f"an array of {view.shape}", f"{one.type.divisibility} divides its last size")
        names = [name for name, _, _ in one.type.parameters(one.name)]
        return dict(zip(names, (view.address, *view.shape, *strides[:-1])))

    def one(self) -> None:
        if self.whole("the number 1") != 1:
            raise self.assumed(shown(self.argument.value), "it is 1")

    def number(self) -> int | float:
        dtype, divisor = self.argument.type.dtype, self.argument.type.divisibility
        if dtype.is_floating():
            return self.real()
        value = self.whole("a whole number")
        bits, signed = dtype.primitive_bitwidth, dtype.is_int_signed()  # type: ignore[union-attr]
        low, high = (-(1 << bits - 1), 1 << bits - 1) if signed else (0, 1 << bits)
        if not low <= value < high:
            raise self.wrong(str(value), f"it lies from {low} to {high - 1}")
        if divisor and value % divisor:
            raise self.assumed(str(value), f"{divisor} divides it")
        return value

    def real(self) -> float:
        value = self.argument.value
        try:
            if isinstance(value, str | bytes):
                raise TypeError
            return float(value)
        except (TypeError, ValueError):
            raise self.wrong(shown(value), "it is a number") from None

    def whole(self, expected: str) -> int:
        value = self.argument.value
        try:
            # Truth values of numpy are whole numbers, too.
            return operator.index(value.item() if type(value).__module__ == "numpy" else value)
        except (TypeError, ValueError):
            raise self.wrong(shown(value), f"it is {expected}") from None


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
