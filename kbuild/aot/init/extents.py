"""How far a kernel's addresses reach: the elements that each pointer points to, as expressions over the kernel's
arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kbuild.aot.init.uses import Access, Uses, argument
from kbuild.aot.manifest.configs.evaluate import last_name


class NoExtent(Exception):
    """The reach of an address cannot be read from the source; the text says of what."""


@dataclass(frozen=True)
class Term:
    """A part of an address: an index times strides."""

    extent: str
    """One more than the largest index."""
    strides: tuple[str, ...]
    """Arguments and constants that it is multiplied by; none for the elements of a row."""

    @property
    def last(self) -> str:
        """The largest offset."""
        if not self.strides:
            return f"{_factor(self.extent)} - 1"
        index = f"({self.extent} - 1)" if self.extent != "1" else "0"
        return " * ".join([index, *self.strides])


@dataclass(eq=False)
class ExtentsReader:
    """Reads one kernel's addresses."""

    uses: Uses
    grid: Sequence[str]
    integers: Sequence[str]
    constants: Sequence[str]
    """Constexpr parameters that are integers."""

    def __post_init__(self) -> None:
        self.bounds: dict[str, str] = {}
        for node in ast.walk(self.uses.kernel.node):
            match node:
                case ast.Compare(left=left, ops=[ast.Lt() | ast.LtE()], comparators=[right]):
                    self._note_bound(left, right)
                case ast.Compare(left=left, ops=[ast.Gt() | ast.GtE()], comparators=[right]):
                    self._note_bound(right, left)

    def _note_bound(self, index: ast.expr, bound: ast.expr) -> None:
        """`offsets < n`, and `k < K - step * BLOCK` as well."""
        while isinstance(bound, ast.BinOp) and isinstance(bound.op, ast.Sub):
            bound = bound.left
        if isinstance(bound, ast.Name) and bound.id in (*self.integers, *self.constants):
            for one in (index, _plain(index)):
                self.bounds.setdefault(ast.dump(_plain(one)), bound.id)

    def terms(self, pointer: str) -> list[Term]:
        """The terms of a pointer's addresses; raises NoExtent."""
        found: list[list[Term]] = []
        for access in self.uses.accesses:
            if self.uses.base_of(access.address) == pointer:
                terms = self._made(access) if access.kind.startswith("make") else None
                if terms is None:
                    terms = self._terms(access.address, pointer)
                if terms not in found:
                    found.append(terms)
        if not found:
            raise NoExtent(pointer)
        return max(found, key=len)

    def _made(self, access: Access) -> list[Term] | None:
        """The terms that a block pointer or a descriptor says."""
        shape, strides = argument(access.call, 1, "shape"), argument(access.call, 2, "strides")
        if not isinstance(shape, ast.Tuple | ast.List) or not isinstance(strides, ast.Tuple | ast.List):
            raise NoExtent(ast.unparse(access.call)[:60])
        known = (*self.integers, *self.constants)
        found: list[Term] = []
        for size, stride in zip(shape.elts, strides.elts):
            texts = [ast.unparse(size), ast.unparse(stride)]
            if any(
                n.id not in known
                for part in (size, stride)
                for n in ast.walk(part)
                if isinstance(n, ast.Name)
            ):
                raise NoExtent(ast.unparse(access.call)[:60])
            found.append(Term(texts[0], () if texts[1] == "1" else (texts[1],)))
        if any(not isinstance(leaf, ast.Name) for leaf in self.uses.leaves(access.address)):
            outer = self._terms(access.address, self.uses.base_of(access.address))
            found = [term for term in outer if term not in found] + found
        return found

    def _terms(self, address: ast.expr, pointer: str) -> list[Term]:
        found: dict[tuple[str, ...], Term] = {}
        moves: list[tuple[str, ...]] = []
        for leaf in self.uses.leaves(address, whole=self.bounds):
            if isinstance(leaf, ast.Name) and leaf.id == pointer:
                continue
            term, is_index = self._term(leaf)
            if is_index:
                found.setdefault(term.strides, term)
            else:
                moves.append(term.strides)
        # A pointer that moves on in a loop stays within what the mask of its offsets allows.
        for strides in moves:
            if not any(
                set(term.strides) <= set(strides) and term.extent in self.integers for term in found.values()
            ):
                raise NoExtent(f"{pointer}, which moves by {' * '.join(strides)}")
        return [*found.values()]

    def _term(self, leaf: ast.expr) -> tuple[Term, bool]:
        """One term, and whether it has an index rather than numbers of the call alone."""
        strides: list[str] = []
        extents: list[str] = []
        for factor in self._factors(leaf):
            plain = _plain(factor)
            bound = self.bounds.get(ast.dump(plain))
            if (
                bound is None
                and isinstance(plain, ast.Name)
                and plain.id in (*self.integers, *self.constants)
            ):
                strides.append(plain.id)
            elif bound is None and isinstance(plain, ast.Constant) and isinstance(plain.value, int):
                strides.append(str(plain.value))
            else:
                extents.append(self._extent(plain))
        if len(extents) > 1:
            raise NoExtent(ast.unparse(leaf)[:60])
        return Term(extents[0] if extents else "1", tuple(strides)), bool(extents)

    def _factors(self, node: ast.expr) -> Iterator[ast.expr]:
        plain = _plain(node)
        if ast.dump(plain) in self.bounds:
            yield plain
        elif isinstance(plain, ast.BinOp) and isinstance(plain.op, ast.Mult):
            yield from self._factors(plain.left)
            yield from self._factors(plain.right)
        else:
            yield plain

    def _extent(self, node: ast.expr, depth: int = 0) -> str:
        """One more than the largest value of an index; raises NoExtent."""
        node = _plain(node)
        if bound := self.bounds.get(ast.dump(node)):
            return bound
        known = (*self.integers, *self.constants)
        if depth < 12:
            match node:
                case ast.Name(id=name) if name in self.uses.ranges:
                    limits = self.uses.ranges[name].args
                    end = limits[1] if len(limits) > 1 else limits[0]
                    if isinstance(end, ast.Name) and end.id in known:
                        return end.id
                case ast.Name(id=name) if len(self.uses.assigned.get(name, ())) == 1 and name not in known:
                    return self._extent(self.uses.assigned[name][0], depth + 1)
                case ast.BinOp(op=ast.Mod(), right=ast.Name(id=name)) if name in known:
                    return name
                case ast.BinOp(left=left, op=ast.Add(), right=right):
                    first, second = self._extent(left, depth + 1), self._extent(right, depth + 1)
                    return f"{_factor(first)} - 1 + {second}"
                case ast.BinOp(left=left, op=ast.Mult(), right=ast.Name(id=name)) if name in known:
                    return f"({self._extent(left, depth + 1)} - 1) * {name} + 1"
                case ast.Call(func=function, args=[_, ast.Name(id=name)]) if last_name(function) == "arange":
                    if name in known:
                        return name
                case ast.Call(func=function, args=[_, ast.Constant(value=int() as size)]) if (
                    last_name(function) == "arange"
                ):
                    return str(size)
                case ast.Call(func=function) if last_name(function) == "program_id":
                    axis = argument(node, 0, "axis")
                    if (
                        isinstance(axis, ast.Constant)
                        and isinstance(axis.value, int)
                        and axis.value < len(self.grid)
                    ) and "num_sms" not in self.grid[axis.value]:
                        return self.grid[axis.value]
                case _:
                    pass
        raise NoExtent(ast.unparse(node)[:60])


def _plain(node: ast.expr) -> ast.expr:
    """An index without `[:, None]` and conversions."""
    while True:
        match node:
            case ast.Subscript(value=value):
                node = value
            case ast.Call(func=ast.Attribute(value=value, attr="to")):
                node = value
            case ast.Call(func=ast.Attribute(attr="multiple_of" | "max_contiguous"), args=[first, *_]):
                node = first
            case _:
                return node


def _factor(text: str) -> str:
    return f"({text})" if " if " in text else text


def size_of(terms: Sequence[Term]) -> str:
    """The number of elements that terms of addresses reach."""
    rows = [term for term in terms if not term.strides]
    if len(rows) == 1:  # The last row ends where its own elements do.
        others = [term.last for term in terms if term.strides]
        return " + ".join([*others, _factor(rows[0].extent)])
    return " + ".join([*(term.last for term in terms), "1"])
