"""How a kernel uses its parameters: as pointers, as integers or as floating-point numbers, and which addresses
it computes."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from kbuild.aot.init.source import KernelSource
from kbuild.aot.manifest.configs.evaluate import last_name

ACCESSES = (
    "load",
    "store",
    *(f"atomic_{what}" for what in ("add", "max", "min", "and", "or", "xor", "cas", "xchg")),
)
_DESCRIPTOR_METHODS = ("load", "store", "gather", "scatter", *ACCESSES[2:])
_LANGUAGES = ("tl", "gl", "ttgl", "language", "tma")
"""Names of modules whose functions take addresses."""
_TMA_COPIES = ("async_copy_global_to_shared", "async_copy_shared_to_global")
_MADE = ("make_block_ptr", "make_tensor_descriptor", "_experimental_make_tensor_descriptor")
_TRANSPARENT = (
    "multiple_of",
    "max_contiguous",
    "max_constancy",
    "cast",
    "broadcast_to",
    "expand_dims",
    "advance",
)
_RANGES = ("range", "static_range")
_FLOATING = (
    "rand",
    "randn",
    "exp",
    "exp2",
    "log",
    "log2",
    "sqrt",
    "rsqrt",
    "sigmoid",
    "dot",
    "sin",
    "cos",
    "erf",
    "float",
)


@dataclass(frozen=True, eq=False)
class Access:
    """One access to memory, or one descriptor or block pointer that is made."""

    address: ast.expr
    kind: str
    """The function: `load`, `atomic_add`, `make_block_ptr` …"""
    call: ast.Call


@dataclass(eq=False)
class Uses:
    """What the body of a kernel says about its parameters."""

    kernel: KernelSource
    assigned: dict[str, list[ast.expr]] = field(default_factory=dict)
    """What is assigned to each name; `x += y` counts as an assignment of `x + y`."""
    ranges: dict[str, ast.Call] = field(default_factory=dict)
    """The loops over ranges, by variable."""
    accesses: list[Access] = field(default_factory=list)
    pointers: dict[str, set[str]] = field(default_factory=dict)
    """Parameters that are addresses, each with the kinds of its accesses."""
    descriptors: dict[str, int] = field(default_factory=dict)
    """Parameters that are tensor descriptors, with the number of their axes."""
    indices: set[str] = field(default_factory=set)
    """Pointers to integers that addresses are computed from."""
    integers: set[str] = field(default_factory=set)
    floats: set[str] = field(default_factory=set)

    @property
    def names(self) -> set[str]:
        return {parameter.name for parameter in self.kernel.parameters}

    def leaves(
        self, node: ast.expr, seen: frozenset[str] = frozenset(), whole: Collection[str] = ()
    ) -> Iterator[ast.expr]:
        """The terms of a sum, followed through assignments; what `ast.dump` shows as one of `whole` is a term."""
        if whole and ast.dump(node) in whole:
            yield node
            return
        match node:
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
                yield from self.leaves(left, seen, whole)
                yield from self.leaves(right, seen, whole)
            case ast.Name(id=name):
                values = self.assigned.get(name, []) if name not in seen else []
                if name in self.names or (not values and name not in seen):
                    yield node
                for value in values:
                    yield from self.leaves(value, seen | {name}, whole)
            case ast.Subscript(value=value):
                yield from self.leaves(value, seen, whole)
            case ast.IfExp(body=body, orelse=orelse):
                yield from self.leaves(body, seen, whole)
                yield from self.leaves(orelse, seen, whole)
            case ast.Call(func=ast.Attribute(value=value, attr="to")):
                yield from self.leaves(value, seen, whole)
            case ast.Call(func=function, args=[first, *_]) if last_name(function) in _TRANSPARENT:
                yield from self.leaves(first, seen, whole)
            case ast.Call(func=function, args=[_, then, otherwise]) if last_name(function) == "where":
                yield from self.leaves(then, seen, whole)
                yield from self.leaves(otherwise, seen, whole)
            case ast.Call(func=function) if last_name(function) in _MADE and (
                base := argument(node, 0, "base")
            ):
                yield from self.leaves(base, seen, whole)
            case _:
                yield node

    def below(self, node: ast.expr, seen: frozenset[str] = frozenset()) -> Iterator[ast.AST]:
        """All nodes of an expression and of what its names are assigned."""
        for inner in ast.walk(node):
            yield inner
            if isinstance(inner, ast.Name) and inner.id not in seen:
                seen = seen | {inner.id}
                for value in self.assigned.get(inner.id, ()):
                    yield from self.below(value, seen)

    def base_of(self, address: ast.expr) -> str:
        """The pointer that an address starts from; empty where it is not a parameter."""
        found = [
            leaf.id for leaf in self.leaves(address) if isinstance(leaf, ast.Name) and leaf.id in self.names
        ]
        named = [name for name in found if is_pointer_name(name)]
        others = [name for name in found if name not in self.integers]
        return next(iter(named or others or found), "")


def argument(call: ast.Call, place: int, name: str) -> ast.expr | None:
    """An argument of a call, by place or by keyword."""
    by_name = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
    return by_name or (call.args[place] if place < len(call.args) else None)


def is_pointer_name(name: str) -> bool:
    """Whether a parameter's name says that it is a pointer."""
    return name.lower().endswith(("_ptr", "ptr", "_ptrs", "_pointer")) or name.lower().startswith("ptr_")


def read_uses(kernel: KernelSource, jitted: Mapping[str, KernelSource]) -> Uses:
    """How a kernel, with the functions of the file that it calls, uses its parameters."""
    return _read(kernel, jitted, {})


def _read(kernel: KernelSource, jitted: Mapping[str, KernelSource], known: dict[str, Uses]) -> Uses:
    if kernel.name in known:
        return known[kernel.name]
    uses = known[kernel.name] = Uses(kernel)
    for node in ast.walk(kernel.node):
        _note_assignment(uses, node)
    for node in ast.walk(kernel.node):
        if isinstance(node, ast.Call):
            _note_access(uses, node)
    _note_integers(uses)
    for access in uses.accesses:
        if base := uses.base_of(access.address):
            uses.pointers.setdefault(base, set()).add(access.kind)
    for node in ast.walk(kernel.node):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in jitted:
            _note_call(uses, node, _read(jitted[node.func.id], jitted, known))
        if (
            isinstance(node, ast.Attribute)
            and node.attr == "element_ty"
            and isinstance(node.value, ast.Attribute)
        ):
            owner = node.value.value
            if isinstance(owner, ast.Name) and owner.id in uses.names and owner.id not in uses.descriptors:
                uses.pointers.setdefault(owner.id, set())
    for parameter in kernel.run_time:
        if is_pointer_name(parameter.name) and parameter.name not in uses.descriptors:
            uses.pointers.setdefault(parameter.name, set())
    _note_indices(uses)
    _note_floats(uses)
    return uses


def _note_assignment(uses: Uses, node: ast.AST) -> None:
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                if isinstance(target, ast.Name):
                    uses.assigned.setdefault(target.id, []).append(value)
                elif isinstance(target, ast.Tuple):
                    parts = value.elts if isinstance(value, ast.Tuple) else [value] * len(target.elts)
                    for item, part in zip(target.elts, parts):
                        if isinstance(item, ast.Name):
                            uses.assigned.setdefault(item.id, []).append(part)
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            uses.assigned.setdefault(name, []).append(value)
        case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
            total = ast.copy_location(ast.BinOp(ast.Name(name, ast.Load()), op, value), target)
            uses.assigned.setdefault(name, []).append(ast.fix_missing_locations(total))
        case ast.For(target=ast.Name(id=name), iter=ast.Call(func=function) as call) if (
            last_name(function) in _RANGES
        ):
            uses.ranges[name] = call


def _note_access(uses: Uses, call: ast.Call) -> None:
    name = last_name(call.func)
    place = call.func.value if isinstance(call.func, ast.Attribute) else None
    module = ast.unparse(place).rpartition(".")[2] if place is not None else ""
    if name in _DESCRIPTOR_METHODS and _note_descriptor(uses, place, argument(call, 0, "offsets")):
        return
    if name in _TMA_COPIES and module == "tma":
        _note_descriptor(uses, argument(call, 0, "tensor_desc"), argument(call, 1, "coord"))
    elif name in _TMA_COPIES and module == "async_copy":
        if (address := argument(call, 1, "pointer")) is not None:
            uses.accesses.append(Access(address, "load", call))
    elif uses.kernel.is_gluon and place is not None and module not in _LANGUAGES:
        return  # Shared memory has such methods, too.
    address = argument(call, 0, "base" if name in _MADE else "pointer")
    if name in (*ACCESSES, *_MADE) and address is not None:
        uses.accesses.append(Access(address, name, call))


def _note_descriptor(uses: Uses, descriptor: ast.expr | None, offsets: ast.expr | None) -> bool:
    """Whether an expression is a parameter, which is then a descriptor."""
    if not isinstance(descriptor, ast.Name) or descriptor.id not in uses.names:
        return False
    count = len(offsets.elts) if isinstance(offsets, ast.List | ast.Tuple) else 2
    uses.descriptors[descriptor.id] = count
    return True


def _note_integers(uses: Uses) -> None:
    """Parameters in factors of addresses, in bounds of loops, and in comparisons of integers."""

    def note(node: ast.AST) -> None:
        uses.integers |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in uses.names}

    for access in uses.accesses:
        for leaf in uses.leaves(access.address):
            if not isinstance(leaf, ast.Name):
                for node in uses.below(leaf):
                    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
                        note(node)
    for node in ast.walk(uses.kernel.node):
        match node:
            case ast.Call(func=function, args=args) if last_name(function) in (*_RANGES, "cdiv", "arange"):
                for given in args:
                    note(given)
            case ast.BinOp(left=left, op=ast.FloorDiv() | ast.Mod(), right=right):
                note(left)
                note(right)
            case ast.Compare(
                left=left,
                ops=[ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE() | ast.Eq() | ast.NotEq()],
                comparators=[right],
            ):
                if not any(_is_floating(uses, side) for side in (left, right)):
                    note(left)
                    note(right)


def _is_floating(uses: Uses, node: ast.expr) -> bool:
    """Whether an expression has to do with floating-point numbers: literals, values loaded, mathematics."""
    for inner in uses.below(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, float):
            return True
        if isinstance(inner, ast.Call) and last_name(inner.func) in ("load", *_FLOATING):
            return True
    return False


def _note_call(uses: Uses, call: ast.Call, callee: Uses) -> None:
    """What a function that is called says about the parameters handed to it."""
    parameters = [parameter.name for parameter in callee.kernel.parameters]
    given = [*zip(parameters, call.args), *((k.arg, k.value) for k in call.keywords if k.arg)]
    for name, value in given:
        if isinstance(value, ast.Name) and len(values := uses.assigned.get(value.id, ())) == 1:
            value = values[0] if isinstance(values[0], ast.Tuple) else value
        base = uses.base_of(value)
        if name in callee.pointers and base:
            uses.pointers.setdefault(base, set()).update(callee.pointers[name])
            uses.indices |= {base} if name in callee.indices else set()
        if isinstance(value, ast.Tuple):  # As a pointer with its strides.
            first, *rest = [item.id if isinstance(item, ast.Name) else "" for item in value.elts] or [""]
            if name in callee.pointers and first in uses.names:
                uses.pointers.setdefault(first, set()).update(callee.pointers[name])
            elif name in callee.integers:
                rest = [first, *rest]
            uses.integers |= uses.names & {*rest} if name in callee.integers else set()
        if isinstance(value, ast.Name) and value.id in uses.names:
            uses.integers |= {value.id} if name in callee.integers else set()
            uses.floats |= {value.id} if name in callee.floats else set()
            if name in callee.descriptors:
                uses.descriptors[value.id] = callee.descriptors[name]


def _note_indices(uses: Uses) -> None:
    for access in uses.accesses:
        own = uses.base_of(access.address)
        for node in uses.below(access.address):
            if (
                isinstance(node, ast.Call)
                and last_name(node.func) == "load"
                and node.args
                and node is not access.call
            ):
                base = uses.base_of(node.args[0])
                if base and base != own:
                    uses.indices.add(base)


def _note_floats(uses: Uses) -> None:
    """Parameters in arithmetic with floating-point numbers."""
    for node in ast.walk(uses.kernel.node):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="to"), args=[kind, *_]) if (
                name in uses.names and "float" in last_name(kind)
            ):
                uses.floats.add(name)
            case _:
                pass
        if isinstance(node, ast.BinOp | ast.Compare):
            sides = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.left, *node.comparators]
            for side, other in zip(sides, reversed(sides)):
                if isinstance(side, ast.Name) and side.id in uses.names and _is_floating(uses, other):
                    uses.floats.add(side.id)
