"""The functions of Python that kernels may call."""

from __future__ import annotations

from typing import Any

from kbuild.compiler.frontend.sources.aggregates import Aggregate, AggregateClass
from kbuild.compiler.frontend.sources.files import NamedTupleClass
from kbuild.compiler.semantic.arith import as_condition, maximum, minimum
from kbuild.compiler.semantic.cast import cast_to
from kbuild.compiler.semantic.context import BuildContext
from kbuild.compiler.semantic.debug import device_print
from kbuild.compiler.semantic.gluon.shared import SharedMemory
from kbuild.compiler.semantic.math import abs as absolute
from kbuild.compiler.semantic.registry import TABLES, builtin
from kbuild.compiler.semantic.types import (
    FP32,
    INT32,
    BlockType,
    ConstexprType,
    DescriptorDtype,
    DType,
    PointerDtype,
)
from kbuild.compiler.semantic.values import ClassMarker, NamedTuple, Range, Tensor, TensorDescriptor, describe
from kbuild.errors import CompileError


@builtin("python", "range")
def range_(
    ctx: BuildContext,
    start,
    stop=None,
    step=1,
    *,
    num_stages=None,
    loop_unroll_factor=None,
    disallow_acc_multi_buffer=False,
    flatten=False,
    warp_specialize=False,
    disable_licm=False,
):
    """A loop over integers.  Options are those of `tl.range`, and mean nothing here, as in Triton: kernels give them to the wrong
    function."""
    return Range(0, start, step) if stop is None else Range(start, stop, step)


def _extreme(ctx: BuildContext, values: tuple[Any, ...], name: str, choose: Any, static: Any) -> Any:
    items = values[0] if len(values) == 1 and isinstance(values[0], tuple) else values
    if not items:
        ctx.error(f"{name}() needs at least one value")
    if not any(isinstance(item, Tensor) for item in items):
        return static(items)
    result = items[0]
    for item in items[1:]:
        result = choose(ctx, result, item)
    return result


@builtin("python", "max")
def max_(ctx: BuildContext, *values):
    """The greatest of several values."""
    return _extreme(ctx, values, "max", maximum, max)


@builtin("python", "min")
def min_(ctx: BuildContext, *values):
    """The least of several values."""
    return _extreme(ctx, values, "min", minimum, min)


@builtin("python", "abs")
def abs_(ctx: BuildContext, x):
    """The absolute value."""
    return absolute(ctx, x) if isinstance(x, Tensor) else abs(x)


@builtin("python", "len")
def len_(ctx: BuildContext, x):
    """The number of items; of a tensor, its first dimension."""
    if isinstance(x, Tensor) and x.shape:
        return x.shape[0]
    if not isinstance(x, tuple | str):
        ctx.error(f"{describe(x)} has no length", "x")
    return len(x)


def _converted(ctx: BuildContext, x: Any, name: str, dtype: Any, static: Any) -> Any:
    if isinstance(x, Tensor):
        return cast_to(ctx, x, dtype)
    try:
        return static(x)
    except (TypeError, ValueError, OverflowError) as error:
        ctx.error(f"{name}({describe(x)}): {error}", "x")


@builtin("python", "int")
def int_(ctx: BuildContext, x=0):
    """A number as an integer; a value of run time as int32."""
    return _converted(ctx, x, "int", INT32, int)


@builtin("python", "float")
def float_(ctx: BuildContext, x=0.0):
    """A number, or text such as "-inf", as a float; a value of run time as fp32."""
    return _converted(ctx, x, "float", FP32, float)


@builtin("python", "bool")
def bool_(ctx: BuildContext, x=False):
    """A truth value."""
    return as_condition(ctx, x) if isinstance(x, Tensor) else bool(x)


@builtin("python", "str")
def str_(ctx: BuildContext, x=""):
    """Text of a value known while compiling."""
    return describe(x) if isinstance(x, Tensor) else str(x)


@builtin("python", "tuple")
def tuple_(ctx: BuildContext, x=()):
    """The items in a tuple."""
    return _sequence(ctx, x)


@builtin("python", "list")
def list_(ctx: BuildContext, x=()):
    """The items in a tuple: kernels have no lists that change."""
    return _sequence(ctx, x)


def _sequence(ctx: BuildContext, x: Any) -> tuple[Any, ...]:
    if isinstance(x, Range) and all(isinstance(part, int) for part in (x.start, x.stop, x.step)):
        return tuple(range(x.start, x.stop, x.step))
    if not isinstance(x, tuple):
        ctx.error(f"{describe(x)} is not a sequence known while compiling", "x")
    return tuple(x)


@builtin("python", "zip")
def zip_(ctx: BuildContext, *sequences):
    """Tuples of the items at equal places."""
    return tuple(zip(*(_sequence(ctx, item) for item in sequences)))


@builtin("python", "enumerate")
def enumerate_(ctx: BuildContext, x, start=0):
    """Tuples of number and item."""
    return tuple(enumerate(_sequence(ctx, x), start))


@builtin("python", "reversed")
def reversed_(ctx: BuildContext, x):
    """The items in reverse order."""
    return _sequence(ctx, x)[::-1]


@builtin("python", "sum")
def sum_(ctx: BuildContext, x, start=0):
    """The sum of a tuple of numbers known while compiling."""
    items = _sequence(ctx, x)
    if any(isinstance(item, Tensor) for item in items):
        ctx.error("sum() adds numbers known while compiling", "x", help="use tl.sum for a tensor")
    return sum(items, start)


@builtin("python", "round")
def round_(ctx: BuildContext, x, digits=None):
    """A number known while compiling, rounded."""
    if isinstance(x, Tensor):
        ctx.error("round() takes numbers known while compiling", "x", help="use libdevice.rint")
    return round(x, digits)


@builtin("python", "divmod")
def divmod_(ctx: BuildContext, x, y):
    """Quotient and remainder of numbers known while compiling."""
    if isinstance(x, Tensor) or isinstance(y, Tensor):
        ctx.error("divmod() takes numbers known while compiling", help="write x // y, x % y")
    return divmod(x, y)


@builtin("python", "any")
def any_(ctx: BuildContext, x):
    """Whether one of several values known while compiling holds."""
    return any(_sequence(ctx, x))


@builtin("python", "all")
def all_(ctx: BuildContext, x):
    """Whether all of several values known while compiling hold."""
    return all(_sequence(ctx, x))


@builtin("python", "print")
def print_(ctx: BuildContext, *values, sep=" ", end="\n"):
    """Prints from the device: text first, then values."""
    label = " ".join(str(item) for item in values if not isinstance(item, Tensor))
    device_print(ctx, label, *(item for item in values if isinstance(item, Tensor)))


_CLASSES: dict[str, Any] = {
    "tensor": Tensor,
    "dtype": DType | PointerDtype | BlockType,
    "tuple": tuple,
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "list": tuple,
    "tensor_descriptor": TensorDescriptor,
    "block_type": BlockType,
    "pointer_type": PointerDtype,
    "constexpr_type": ConstexprType,
    "tensor_descriptor_type": DescriptorDtype,
    "slice": slice,
    "shared_memory_descriptor": SharedMemory,
}
"""The classes that a kernel may check with `isinstance`, by the last part of their names; `tl.constexpr` is
everything known while compiling."""


def _is_instance(ctx: BuildContext, value: Any, kind: Any) -> bool:
    if isinstance(kind, tuple):
        return any(_is_instance(ctx, value, item) for item in kind)
    if isinstance(kind, ClassMarker) and kind.name == "constexpr":
        return not isinstance(value, Tensor | TensorDescriptor)
    if isinstance(kind, NamedTupleClass):
        return isinstance(value, NamedTuple) and value.fields == kind.fields
    if isinstance(kind, type):  # a layout of Gluon
        return isinstance(value, kind)
    if isinstance(kind, AggregateClass):
        return isinstance(value, Aggregate) and value.cls is kind
    name = getattr(kind, "name", "").rpartition(".")[2]
    if name not in _CLASSES:
        of_gluon = {"shared_memory_descriptor"} if not ctx.explicit_layouts else set[str]()
        known = ", ".join(["constexpr", *(name for name in _CLASSES if name not in of_gluon)])
        ctx.error(
            f"{describe(kind)} is not a class that a kernel may check for", "kind", help=f"known: {known}"
        )
    return isinstance(value, _CLASSES[name]) and not (name == "tuple" and isinstance(value, TensorDescriptor))


@builtin("python", "isinstance")
def isinstance_(ctx: BuildContext, x, kind):
    """Whether a value is of a class: tl.tensor, tl.constexpr, tl.dtype, or one of Python's."""
    return _is_instance(ctx, x, kind)


@builtin("python", "getattr")
def getattr_(ctx: BuildContext, x, name, *default):
    """An attribute by its name."""
    try:
        return ctx.frontend.attribute(x, name)
    except CompileError:
        if default:
            return default[0]
        raise


@builtin("python", "hasattr")
def hasattr_(ctx: BuildContext, x, name):
    """Whether a value has an attribute."""
    try:
        ctx.frontend.attribute(x, name)
    except CompileError:
        return False
    return True


PYTHON = TABLES["python"]
EXCEPTIONS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    Exception,
    IndexError,
    KeyError,
    LookupError,
    NotImplementedError,
    OverflowError,
    RuntimeError,
    TypeError,
    ValueError,
    ZeroDivisionError,
)
HOST: dict[str, Any] = {
    function.__name__: function
    for function in (
        *(
            abs,
            all,
            any,
            bin,
            bool,
            chr,
            dict,
            divmod,
            enumerate,
            filter,
            float,
            frozenset,
            hex,
            int,
            len,
            list,
            map,
        ),
        *(max, min, ord, pow, range, repr, reversed, round, set, slice, sorted, str, sum, tuple, zip),
        *EXCEPTIONS,
    )
}
"""Python's own functions and exceptions, as code that runs while compiling knows them."""
