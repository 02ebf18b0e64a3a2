"""Values, operations and blocks: the data of the IR.

An operation is a class whose annotated fields are its operands, attributes and regions:

    class ExpandDims(Op, name="tt.expand_dims", traits=PURE):
        src: Value                       # an operand; `Value | None` is optional, `tuple[Value, ...]` any number
        axis: int                        # an attribute: any frozen plain value
        def infer(self):                 # the types of its results
            return [insert_axis(self.src.type, self.axis)]

The base class registers it and gives it construction, printing, parsing, cloning and matching.  An operation
whose result types do not follow from its operands declares `type: Type` or `types: tuple[Type, ...]` as a
field. A region is one `Block` field.  Control flow is structured: there are no successors and no dominance to
compute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from kbuild.compiler.ir.changes import tick
from kbuild.compiler.ir.lifetime import MADE
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import Type
from kbuild.errors import InternalError, Loc

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: object) -> Callable[[Any], Any]:
        return lambda cls: cls


class Value:
    """A result of an operation or an argument of a block."""

    __slots__ = ("index", "name", "owner", "type", "users")

    def __init__(self, type_: Type, owner: Op | Block, index: int, name: str = "") -> None:
        self.type = type_
        self.owner = owner
        self.index = index
        self.name = name
        """Name in the user's source, for printing."""
        self.users: dict[Op, int] = {}
        """Operations that use it, with how often each does."""

    @property
    def op(self) -> Op | None:
        """The operation that defines it; None for a block argument."""
        return self.owner if isinstance(self.owner, Op) else None

    @property
    def block(self) -> Block:
        """The block in which it is defined."""
        return self.owner if isinstance(self.owner, Block) else self.owner.parent_block

    def replace_by(self, other: Value) -> None:
        """Make every user use `other` instead."""
        if not other.name:
            other.name = self.name
        for user in list(self.users):
            user.replace_operand(self, other)

    def __repr__(self) -> str:
        return f"%{self.name or '?'}: {self.type}"


class Block:
    """A sequence of operations with arguments: the body of a function, loop, branch or combine function."""

    def __init__(self, argument_types: Sequence[Type] = (), hints: Sequence[str] = ()) -> None:
        self.parent: Op | None = None
        self.arguments = [Value(type_, self, index) for index, type_ in enumerate(argument_types)]
        for argument, name in zip(self.arguments, hints):
            argument.name = name
        self.first: Op | None = None
        self.last: Op | None = None

    def __iter__(self) -> Iterator[Op]:
        """The operations in order; the current one may be erased or moved while iterating."""
        op = self.first
        while op is not None:
            following = op.next
            yield op
            op = following

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def terminator(self) -> Op:
        assert self.last is not None, "an empty block has no terminator"
        return self.last

    def add_argument(self, type_: Type, name: str = "") -> Value:
        tick()
        self.arguments.append(Value(type_, self, len(self.arguments), name))
        return self.arguments[-1]

    def erase_argument(self, index: int) -> None:
        assert not self.arguments[index].users, "erasing an argument that is used"
        tick()
        del self.arguments[index]
        for position, argument in enumerate(self.arguments):
            argument.index = position

    def append(self, op: Op) -> Op:
        return self.insert(op, None)

    def insert(self, op: Op, before: Op | None) -> Op:
        """Put an operation that is in no block before another one of this block, or last."""
        assert op.parent is None, "the operation is in a block already"
        tick()
        op.parent = self
        op.next = before
        op.prev = before.prev if before is not None else self.last
        if op.prev is not None:
            op.prev.next = op
        else:
            self.first = op
        if before is not None:
            before.prev = op
        else:
            self.last = op
        return op

    def walk(self) -> Iterator[Op]:
        """All operations inside, outer before inner; the current one may be erased or moved while iterating."""
        op = self.first
        while op is not None:
            following = op.next
            yield op
            if op.region_fields:
                for region in op.regions:
                    yield from region.walk()
            op = following


_REGISTRY: dict[str, type[Op]] = {}


def op_class(name: str) -> type[Op] | None:
    """The class of an operation, by its mnemonic."""
    return _REGISTRY.get(name)


def registered_ops() -> dict[str, type[Op]]:
    """All operations, by mnemonic."""
    return dict(_REGISTRY)


class _OperandField:
    """Reads one operand field out of the flat list of operands."""

    def __init__(self, position: int, kind: str) -> None:
        self.position = position
        self.kind = kind

    def __get__(self, op: Op | None, owner: type[Op]) -> Any:
        if op is None:
            return self
        start, count = op._segments[self.position]
        if self.kind == "tuple":
            return tuple(op.operands[start : start + count])
        return op.operands[start] if count else None

    def __set__(self, op: Op, value: Any) -> None:
        op._set_operands(self.position, _as_operands(value))


def _as_operands(value: Any) -> tuple[Value, ...]:
    if value is None:
        return ()
    if isinstance(value, Op):
        return (value.result,)
    if isinstance(value, Value):
        return (value,)
    return tuple(item.result if isinstance(item, Op) else item for item in value)


class _ResultType:
    """`op.type` and `op.types`: read from the results."""

    def __init__(self, single: bool) -> None:
        self.single = single

    def __get__(self, op: Op | None, owner: type[Op]) -> Any:
        if op is None:
            return self
        return op.results[0].type if self.single else tuple(result.type for result in op.results)


_OPERAND_KINDS = {"Value": "one", "Value | None": "optional", "tuple[Value, ...]": "tuple"}
_SelfOp = TypeVar("_SelfOp", bound="Op")


@dataclass_transform(kw_only_default=False)
class Op:
    """One operation.  Subclasses declare fields; see the module's text."""

    op_name: ClassVar[str] = ""
    traits: ClassVar[Trait] = Trait.NONE
    _trait_bits: ClassVar[int] = 0
    is_terminator: ClassVar[bool] = False
    is_elementwise: ClassVar[bool] = False
    has_rules: ClassVar[bool] = False
    """Whether `verify` does anything."""
    operand_fields: ClassVar[dict[str, str]] = {}
    attribute_fields: ClassVar[tuple[str, ...]] = ()
    region_fields: ClassVar[tuple[str, ...]] = ()
    fields: ClassVar[tuple[str, ...]] = ()
    defaults: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls, name: str = "", traits: Trait = Trait.NONE) -> None:
        annotations: dict[str, str] = {}
        for base in reversed(cls.__mro__):
            annotations.update(
                {k: v for k, v in vars(base).get("__annotations__", {}).items() if "ClassVar" not in v}
            )
        cls.op_name, cls.traits, cls._trait_bits = name, traits, traits.value
        cls.is_terminator, cls.is_elementwise = Trait.TERMINATOR in traits, Trait.ELEMENTWISE in traits
        cls.has_rules = cls.verify is not Op.verify
        cls.fields = tuple(annotations)
        cls.operand_fields = {k: _OPERAND_KINDS[v] for k, v in annotations.items() if v in _OPERAND_KINDS}
        cls.region_fields = tuple(k for k, v in annotations.items() if v == "Block")
        cls.attribute_fields = tuple(
            k
            for k in annotations
            if k not in cls.operand_fields and k not in cls.region_fields and k not in ("type", "types")
        )
        cls.defaults = {
            k: getattr(cls, k) for k in annotations if hasattr(cls, k) and not _is_descriptor(getattr(cls, k))
        }
        cls.defaults.update({k: None for k, kind in cls.operand_fields.items() if kind == "optional"})
        cls.__match_args__ = cls.fields
        for position, (field, kind) in enumerate(cls.operand_fields.items()):
            setattr(cls, field, _OperandField(position, kind))
        for field in ("type", "types"):
            if field in annotations:
                setattr(cls, field, _ResultType(field == "type"))
        if name:
            assert name not in _REGISTRY, f"{name} is declared twice"
            _REGISTRY[name] = cls

    if not TYPE_CHECKING:

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            given = dict(zip(self.fields, args))
            given.update(kwargs)
            given = {**self.defaults, **given}
            missing = [field for field in self.fields if field not in given]
            if missing or len(given) > len(self.fields):
                raise TypeError(
                    f"{self.op_name}: fields {self.fields}, missing {missing}, given {list(given)}"
                )
            self._create(given)

    def _create(self, given: dict[str, Any]) -> None:
        self.parent: Block | None = None
        self.prev: Op | None = None
        self.next: Op | None = None
        self.loc: Loc | None = None
        self.operands: list[Value] = []
        self._segments: list[tuple[int, int]] = []
        for field in self.operand_fields:
            values = _as_operands(given[field])
            self._segments.append((len(self.operands), len(values)))
            self.operands.extend(values)
            for value in values:
                value.users[self] = value.users.get(self, 0) + 1
        for field in self.attribute_fields:
            self.__dict__[field] = given[field]
        for field in self.region_fields:
            given[field].parent = self
            self.__dict__[field] = given[field]
        types = (given["type"],) if "type" in given else given["types"] if "types" in given else self.infer()
        self.results = [Value(type_, self, index) for index, type_ in enumerate(types)]
        if (made := MADE.ops) is not None:
            made.append(self)

    def infer(self) -> Sequence[Type]:
        """The types of the results; none unless a subclass says so."""
        return ()

    def verify(self) -> None:
        """Raise `InternalError` when the operation breaks its own rules."""

    @property
    def result(self) -> Value:
        """The only result."""
        assert len(self.results) == 1, f"{self.op_name} has {len(self.results)} results"
        return self.results[0]

    @property
    def regions(self) -> list[Block]:
        return [self.__dict__[field] for field in self.region_fields] if self.region_fields else []

    @property
    def attributes(self) -> dict[str, Any]:
        return {field: self.__dict__[field] for field in self.attribute_fields}

    @property
    def parent_block(self) -> Block:
        assert self.parent is not None, f"{self.op_name} is in no block"
        return self.parent

    @property
    def parent_op(self) -> Op | None:
        """The operation whose region holds this one."""
        return self.parent.parent if self.parent is not None else None

    def has(self, trait: Trait) -> bool:
        """Whether the operation itself (not what its regions hold) has the trait."""
        return (self._trait_bits & trait._value_) != 0

    def is_speculatable(self) -> bool:
        """Whether the operation, and all that its regions hold, may run where the program would not have run
        it."""
        inside = (op for region in self.regions for op in region.walk() if not op.has(Trait.TERMINATOR))
        return self.has(Trait.SPECULATABLE) and all(op.is_speculatable() for op in inside)

    def replace_operand(self, old: Value, new: Value) -> None:
        """Use `new` wherever `old` was used."""
        count = old.users.pop(self, 0)
        if count:
            tick()
            self.operands = [new if operand is old else operand for operand in self.operands]
            new.users[self] = new.users.get(self, 0) + count

    def set_operand(self, index: int, new: Value) -> None:
        """Replace the operand at one place of the flat list."""
        tick()
        old = self.operands[index]
        self._drop_use(old)
        self.operands[index] = new
        new.users[self] = new.users.get(self, 0) + 1

    def _drop_use(self, value: Value) -> None:
        value.users[self] -= 1
        if not value.users[self]:
            del value.users[self]

    def _set_operands(self, position: int, values: tuple[Value, ...]) -> None:
        tick()
        start, count = self._segments[position]
        for value in self.operands[start : start + count]:
            self._drop_use(value)
        self.operands[start : start + count] = values
        for value in values:
            value.users[self] = value.users.get(self, 0) + 1
        change = len(values) - count
        self._segments[position] = (start, len(values))
        for later in range(position + 1, len(self._segments)):
            self._segments[later] = (self._segments[later][0] + change, self._segments[later][1])

    def erase_result(self, index: int) -> None:
        assert not self.results[index].users, "erasing a result that is used"
        tick()
        del self.results[index]
        for position, result in enumerate(self.results):
            result.index = position

    def detach(self: _SelfOp) -> _SelfOp:
        """Take the operation out of its block, keeping operands and users."""
        if self.parent is not None:
            tick()
            if self.prev is not None:
                self.prev.next = self.next
            else:
                self.parent.first = self.next
            if self.next is not None:
                self.next.prev = self.prev
            else:
                self.parent.last = self.prev
            self.parent = self.prev = self.next = None
        return self

    def move_before(self, other: Op) -> None:
        self.detach()
        other.parent_block.insert(self, other)

    def erase(self) -> None:
        """Remove the operation and everything inside it; its results must be unused."""
        for result in self.results:
            if result.users:
                raise InternalError(
                    f"erasing {self.op_name} while {next(iter(result.users)).op_name} uses it", self.loc
                )
        for region in self.regions:
            for inner in reversed(list(region)):
                inner.erase()
        for operand in list(self.operands):
            operand.users.pop(self, None)
        self.detach()

    def replace_by(self, values: Sequence[Value] | Value | Op) -> None:
        """Make users of the results use other values, and erase the operation."""
        new = (
            values.results
            if isinstance(values, Op)
            else [values]
            if isinstance(values, Value)
            else list(values)
        )
        for result, value in zip(self.results, new, strict=True):
            result.replace_by(value)
        self.erase()

    def clone(self: _SelfOp, mapping: dict[Value, Value] | None = None) -> _SelfOp:
        """A copy in no block, operands replaced by `mapping`, which gains the copies of results and block
        arguments."""
        mapping = {} if mapping is None else mapping
        copy = object.__new__(type(self))
        given: dict[str, Any] = dict(self.attributes)
        for field, kind in self.operand_fields.items():
            value = getattr(self, field)
            if kind == "tuple":
                given[field] = tuple(mapping.get(v, v) for v in value)
            else:
                given[field] = mapping.get(value, value) if value is not None else None
        for field in self.region_fields:
            given[field] = _clone_block(self.__dict__[field], mapping)
        given["types"] = tuple(result.type for result in self.results)
        copy._create(given)
        copy.loc = self.loc
        for old, new in zip(self.results, copy.results):
            new.name = old.name
            mapping[old] = new
        return copy

    def walk(self) -> Iterator[Op]:
        """This operation and all inside it, outer before inner."""
        yield self
        for region in self.regions:
            yield from region.walk()

    def __repr__(self) -> str:
        return f"<{self.op_name}>"


def _is_descriptor(value: Any) -> bool:
    return isinstance(value, _OperandField | _ResultType | property)


def _clone_block(block: Block, mapping: dict[Value, Value]) -> Block:
    copy = Block(
        [argument.type for argument in block.arguments], [argument.name for argument in block.arguments]
    )
    mapping.update(zip(block.arguments, copy.arguments))
    for op in block:
        copy.append(op.clone(mapping))
    return copy


class Func(Op, name="tt.func"):
    """A kernel, or a function that a kernel calls."""

    name: str
    body: Block
    attrs: dict[str, Any]
    """Facts of the whole function: `num_warps`, `num_stages`, after allocation `shared` (bytes)."""
    argument_hints: tuple[dict[str, Any], ...] = ()
    """The hints of each argument: `divisibility`, of a pointer in bytes, of an integer as a factor."""

    @property
    def arguments(self) -> list[Value]:
        return self.body.arguments


class Module:
    """The functions of one compilation, by name; the kernel comes first."""

    def __init__(self, functions: Sequence[Func] = ()) -> None:
        self.functions: dict[str, Func] = {function.name: function for function in functions}
        self.signature: tuple[tuple[str, str], ...] = ()
        """Of a kernel that was read from Python, name and type of each run-time argument, as signatures spell them.
        The text of a module does not have it."""

    def add(self, function: Func) -> Func:
        self.functions[function.name] = function
        return function

    @property
    def kernel(self) -> Func:
        return next(iter(self.functions.values()))
