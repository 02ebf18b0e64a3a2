"""Which tensors of pointers are a scalar base plus offsets, and how wide the offsets must be."""

from __future__ import annotations

from kbuild.compiler.analysis.carried import carried_groups
from kbuild.compiler.ir.core import Func, Op, Value
from kbuild.compiler.ir.types import I32, I64, PointerType, TensorType, Type, bit_width, pointee_of
from kbuild.compiler.ops.control import For, If, While
from kbuild.compiler.ops.elementwise import AddI, AddPtr, Bitcast, Constant, ExtSI, MulI, Select, SubI
from kbuild.compiler.ops.tensor import Broadcast, ExpandDims, Reshape, Splat, Trans


class PointerTensors:
    """For each tensor of pointers whether it can be split, through loops and branches.

    Optimistic: everything is taken to split until a pointer of unknown origin reaches it.
    """

    def __init__(self, function: Func) -> None:
        self._sources: dict[Value, list[Value]] = {}
        """The tensors of pointers of which each is made."""
        self._widths: dict[Value, int] = {}
        """Bits of the offsets; 0 where all are zero."""
        self._whole: set[Value] = set()
        """Those that cannot be split."""
        for argument in function.arguments:
            self._define(argument, None)
        for op in function.body.walk():
            self._operation(op)
        self._settle()

    @property
    def found(self) -> bool:
        """Whether there is any tensor of pointers that splits."""
        return len(self._whole) < len(self._sources)

    def is_split(self, value: Value) -> bool:
        return value in self._sources and value not in self._whole

    def offset_type(self, value: Value) -> Type | None:
        """The element type of the offsets; None when there are none."""
        return {0: None, 32: I32, 64: I64}[self._widths[value]]

    def _define(self, value: Value, sources: list[Value] | None, width: int = 0) -> None:
        """Note of what a tensor of pointers is made; None when it comes from nowhere known."""
        if not _is_pointer_tensor(value):
            return
        self._sources[value] = sources or []
        self._widths[value] = width
        if sources is None:
            self._whole.add(value)

    def _operation(self, op: Op) -> None:
        match op:
            case For() | If() | While():
                for group in carried_groups(op):
                    for target in group.targets:
                        self._define(target, group.sources())
            case _:
                for result in op.results:
                    self._define(result, *_origin(op))

    def _settle(self) -> None:
        """Spread what is known until nothing changes."""
        changed = True
        while changed:
            changed = False
            for value, sources in self._sources.items():
                width = max([self._widths[value], *(self._widths.get(source, 0) for source in sources)])
                if width != self._widths[value]:
                    self._widths[value], changed = width, True
                if value not in self._whole and any(source in self._whole for source in sources):
                    self._whole.add(value)
                    changed = True


def _origin(op: Op) -> tuple[list[Value] | None, int]:
    """The tensors of pointers of which an operation makes one, and the bits of the offsets that it adds."""
    match op:
        case Splat():
            return [], 0
        case AddPtr():
            return [op.ptr], 0 if is_uniform(op.offset) else bit_width(op.offset.type)
        case Broadcast() | ExpandDims() | Reshape() | Trans():
            return [op.src], 0
        case Bitcast() if isinstance(op.src.type, TensorType) and isinstance(
            op.src.type.element, PointerType
        ):
            same = bit_width(pointee_of(op.src.type)) == bit_width(pointee_of(op.type))
            return [op.src] if same else None, 0
        case Select() if isinstance(op.condition.op, Splat):
            return [op.true_value, op.false_value], 0
    return None, 0


def is_uniform(value: Value) -> bool:
    """Whether a tensor of integers is made of splats and constants alone."""
    op = value.op
    match op:
        case Splat() | Constant():
            return True
        case AddI() | SubI() | MulI():
            return is_uniform(op.lhs) and is_uniform(op.rhs)
        case ExtSI() | Broadcast() | ExpandDims() | Reshape() | Trans():
            return is_uniform(op.operands[0])
    return False


def _is_pointer_tensor(value: Value) -> bool:
    return isinstance(value.type, TensorType) and isinstance(value.type.element, PointerType)
