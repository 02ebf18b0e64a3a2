"""Writes LLVM text: scalar SSA instructions, each where the operation that needs it stands.

A tensor is the list of its registers in layout order (register index = the layout's `register` bits), each an
SSA name (`%v17`) or a constant (`0`).  Handlers of pure operations return *lazy* registers: a register is
written when something asks for it, and then into the chunk of the operation that defines it, so definitions
stay before uses:

    chunk 3  (tt.make_range)     %v9 = add i32 %v2, 1         written when chunk 5 asked for register 1
    chunk 4  (arith.muli)
    chunk 5  (tt.load)           %v10 = load …

Equal instructions are written once: a chunk sees what earlier chunks of its own scope and of enclosing ones
computed. So copies (broadcast or replicated elements) cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, overload

from kbuild.compiler.analysis.wrapping import WrappingOffsets
from kbuild.compiler.ir.core import Func, Op, Value
from kbuild.compiler.ir.types import Type
from kbuild.compiler.lower.core.consumed import consumed_late, stored_together
from kbuild.compiler.lower.core.literals import SHARED, SHARED_POINTER, asm_string, constant
from kbuild.compiler.lower.core.warps import Warps
from kbuild.compiler.ops.elementwise import wrap
from kbuild.errors import InternalError, Loc
from kbuild.targets import Target

Operand = tuple[str, str]
"""LLVM type and register."""

LAZY_DEPTH = 64
"""Longest chain of unwritten registers: forcing one recurses along the chain, and Python's stack is finite."""


class Scope:
    """The instructions computed in one region: instruction text → register and number of the chunk that holds
    it."""

    __slots__ = ("known", "parent")

    def __init__(self, parent: Scope | None) -> None:
        self.parent = parent
        self.known: dict[str, tuple[str, int]] = {}


class Chunk:
    """The lines of one operation, or of a part of it, all in one LLVM block.  Numbers grow in program order."""

    __slots__ = ("label", "lines", "number", "scope", "suffix")

    def __init__(self, number: int, scope: Scope, label: str, suffix: str) -> None:
        self.number, self.scope, self.label, self.suffix = number, scope, label, suffix
        self.lines: list[str] = []


class LazyRegisters(Sequence[str]):
    """Registers that are written when they are first asked for, into the chunk where they were defined."""

    __slots__ = ("chunk", "depth", "emit", "known", "make")

    def __init__(self, emit: Emitter, count: int, make: Callable[[int], str]) -> None:
        self.emit, self.make, self.depth = emit, make, 0
        self.chunk: Chunk | None = emit.chunk  # None for wherever they are asked for.
        self.known: list[str | None] = [None] * count
        emit.lazies.append(self)

    def __len__(self) -> int:
        return len(self.known)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self.known)))]
        register = self.known[index]
        if register is None:
            emit, saved = self.emit, self.emit.chunk
            emit.chunk = self.chunk or saved
            register = self.known[index] = self.make(index)
            emit.chunk = saved
        return register


class Emitter:
    """The text of one function under construction."""

    def __init__(self, func: Func, target: Target) -> None:
        self.func = func
        self.target = target
        self.extra_warps: int = func.attrs.get("extra_warps", 0)
        """Warps that a launch has besides the program's, after them."""
        self.explicit_layouts: bool = func.attrs.get("explicit_layouts", False)
        self.warps = Warps(func.attrs.get("num_warps", 4))
        """The warps that run the code."""
        self.is_short = False
        """Whether the code is of warps that have all the registers that a thread can have, and need them."""
        self.loc: Loc | None = func.loc
        self.location_suffix: Callable[[Loc | None], str] = lambda loc: ""
        """The end of every line of an operation: its debug location."""
        self.values: dict[Value, Sequence[str]] = {}
        self.homes: dict[Value, Chunk] = {}
        """The chunks in which values were bound."""
        self.packed: dict[tuple[str, ...], str] = {}
        """Elements of 8 or 16 bits that came out of one 32-bit word, all that it holds, and that word."""
        self.parts: dict[tuple[Value, int], tuple[str, int]] = {}
        """Registers of offsets and pointers as a base plus a constant."""
        self.wrapping = WrappingOffsets(func.body)
        self.late = consumed_late(func) | stored_together(func)
        self.views: dict[Op, Sequence[int]] = {}
        """How operations that only reorder registers do it."""
        self.accumulators: dict[Op, Any] = {}
        """The accumulators of warpgroup dots, including some that are not lowered yet."""
        self.axis_info: Any = None
        """The function's `AxisInfo`, once something has asked for it."""
        self.declarations: dict[str, str] = {}
        self.globals: list[str] = []
        """Lines of global definitions: strings."""
        self.metadata: list[str] = []
        """Lines of numbered metadata; line i defines `!i`."""
        self.lazies: list[LazyRegisters] = []
        """All that were made."""
        self.later: list[Callable[[], None]] = []
        """What remains to be written once all requested registers are known: operands of phis."""
        self.chunks: list[Chunk] = []
        self._unknown_zero: str | None = None
        self._count = 0
        self._dots = 0
        self.chunk = self._add_chunk(Scope(None), "entry", "")
        self.entry = self.root = self.chunk
        """Where values that depend only on the thread are computed: of the warps that run the code, and of all."""
        self.chunk = self.new_chunk()

    @property
    def num_warps(self) -> int:
        """The number of warps that run the code."""
        return self.warps.count

    # -- values ----------------------------------------------------------------------------------------------------

    def registers(self, value: Value) -> Sequence[str]:
        """The registers of a tensor, or the one of a scalar; indexing writes what is not written yet."""
        return self.values[value]

    def scalar(self, value: Value) -> str:
        """The register of a scalar."""
        return self.values[value][0]

    def lazy(self, count: int, make: Callable[[int], str]) -> LazyRegisters:
        """Registers that `make(index)` writes on demand.  `make` must not use `emit.values` of operations
        inside combine functions (they are rebound for every use): fetch operands' registers first, and
        branch never."""
        return LazyRegisters(self, count, make)

    def bind(self, value: Value, registers: Sequence[str], depth: int = 0) -> None:
        """Set the registers of a value."""
        self.values[value] = registers
        self.homes[value] = self.chunk
        if isinstance(registers, LazyRegisters):
            registers.depth = depth
            if value in self.late:
                registers.chunk = None
            if depth >= LAZY_DEPTH:  # What writes them may ask for the value itself.
                self.values[value] = registers[:]

    def depth(self, values: Sequence[Value]) -> int:
        """The longest chain of unwritten registers behind some values."""
        return max(
            (r.depth for r in map(self.values.__getitem__, values) if isinstance(r, LazyRegisters)), default=0
        )

    # -- chunks, scopes and blocks ---------------------------------------------------------------------------------

    def _add_chunk(self, scope: Scope, label: str, suffix: str) -> Chunk:
        chunk = Chunk(len(self.chunks), scope, label, suffix)
        self.chunks.append(chunk)
        return chunk

    def new_chunk(self) -> Chunk:
        """Continue the current block in a new chunk; each operation begins one."""
        self.chunk = self._add_chunk(self.chunk.scope, self.chunk.label, self.location_suffix(self.loc))
        return self.chunk

    def new_label(self, name: str) -> str:
        """A label not yet used; `start_block` puts it in place."""
        self._count += 1
        return f"{name}{self._count}"

    def start_block(self, label: str) -> Chunk:
        """Begin an LLVM block; the one before must have ended in a branch.  Never inside lazy registers."""
        self.chunk = self._add_chunk(self.chunk.scope, label, self.location_suffix(self.loc))
        self.chunk.lines.append(f"{label}:")
        return self.new_chunk()

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Values computed inside are not visible outside: for code under a condition or in a loop."""
        outer = self.chunk.scope
        self.chunk = self._add_chunk(Scope(outer), self.chunk.label, self.chunk.suffix)
        yield
        self.chunk = self._add_chunk(outer, self.chunk.label, self.chunk.suffix)

    @contextmanager
    def run_by(self, warps: Warps) -> Iterator[None]:
        """The code inside is of some warps only."""
        outer, self.warps = self.warps, warps
        yield
        self.warps = outer

    @contextmanager
    def branch_of(self, label: str, warps: Warps) -> Iterator[None]:
        """A block that some warps enter from the entry's, and what follows: it sees nothing else, and has an entry of
        its own for what depends only on the thread."""
        outer, entry = self.chunk.scope, self.entry
        self.chunk = self._add_chunk(Scope(entry.scope), label, self.location_suffix(self.loc))
        self.entry = self.start_block(label)
        self.new_chunk()
        with self.run_by(warps):
            yield
        self.entry = entry
        self.chunk = self._add_chunk(outer, self.chunk.label, self.chunk.suffix)

    @contextmanager
    def at_entry(self) -> Iterator[None]:
        """Write into the entry block, whose registers are visible everywhere: for values that depend only on the
        thread."""
        saved, self.chunk = self.chunk, self.entry
        yield
        self.chunk = saved

    @contextmanager
    def at_root(self) -> Iterator[None]:
        """Write into the kernel's entry block: for values that are the same for all warps."""
        saved, self.chunk = self.chunk, self.root
        yield
        self.chunk = saved

    @contextmanager
    def at_home(self, value: Value) -> Iterator[None]:
        """Write where a value was bound: computations there, outside of loops that do not change it, happen
        once."""
        saved, self.chunk = self.chunk, self.homes[value]
        yield
        self.chunk = saved

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """Code that runs only where an i1 register holds."""
        if condition == "true":
            yield
            return
        inside, after = self.new_label("then"), self.new_label("after")
        self.branch(inside, condition, after)
        with self.scope():
            self.start_block(inside)
            yield
            self.branch(after)
        self.start_block(after)

    def branch(self, label: str, condition: str = "", other: str = "", metadata: str = "") -> None:
        """End the block: go to `label`, or to `other` where `condition` is false."""
        # In a chunk of its own: lazy registers of this operation may still be written, and must come before.
        self.new_chunk()
        target = f"br i1 {condition}, label %{label}, label %{other}" if condition else f"br label %{label}"
        self.line(target + metadata)

    # -- instructions ----------------------------------------------------------------------------------------------

    def fresh(self) -> str:
        """A register name not yet used."""
        self._count += 1
        return f"%v{self._count}"

    def next_dot(self) -> int:
        """The number of a dot by warpgroups that is lowered now: each once, in program order."""
        self._dots += 1
        return self._dots - 1

    def line(self, text: str) -> None:
        """Write an instruction without a result."""
        self.chunk.lines.append(f"  {text}{self.chunk.suffix}")

    def effect(self, text: str) -> str:
        """Write an instruction with a result that must not be merged with equal ones; its register."""
        self._count += 1  # As `fresh` does: nearly all of a kernel's text comes through here.
        register, chunk = f"%v{self._count}", self.chunk
        chunk.lines.append(f"  {register} = {text}{chunk.suffix}")
        return register

    def instruction(self, text: str) -> str:
        """The register of a pure instruction (`add i32 %v1, 4`), written unless an equal one is visible."""
        chunk = self.chunk
        number, scope = chunk.number, chunk.scope
        while scope is not None:
            if text in scope.known:
                register, place = scope.known[text]
                if place <= number:
                    return register
            scope = scope.parent
        register = self.effect(text)
        chunk.scope.known[text] = (register, number)
        return register

    def call(
        self, name: str, result: str, operands: Sequence[Operand], effect: bool = False, flags: str = ""
    ) -> str:
        """Call a function or intrinsic (`llvm.fma.f32`), declaring it; `result` may be `void`, then "" is
        returned."""
        types = ", ".join(type_ for type_, _ in operands)
        self.declarations[name] = f"declare {result} @{name}({types})"
        arguments = ", ".join(f"{type_} {register}" for type_, register in operands)
        text = f"call {flags + ' ' if flags else ''}{result} @{name}({arguments})"
        if result == "void":
            self.line(text)
            return ""
        return self.effect(text) if effect else self.instruction(text)

    def asm(
        self,
        template: str,
        constraints: str,
        operands: Sequence[Operand],
        results: Sequence[str],
        effect: bool = False,
    ) -> list[str]:
        """Inline PTX (`$0` … are results, then operands); the registers of its results.

        `constraints` in LLVM's form (`=r,r,l`); with `effect` the asm is kept, in order, executed by all
        threads together where the program has it so, and may touch memory.
        """
        kind = "asm sideeffect" if effect else "asm"
        if effect:
            constraints = f"{constraints},~{{memory}}" if constraints else "~{memory}"
        arguments = ", ".join(f"{type_} {register}" for type_, register in operands)
        result = "void" if not results else results[0] if len(results) == 1 else f"{{{', '.join(results)}}}"
        suffix = " convergent" if effect else ""
        text = f'call {result} {kind} "{asm_string(template)}", "{constraints}"({arguments}){suffix}'
        if not results:
            self.line(text)
            return []
        value = self.effect(text) if effect else self.instruction(text)
        return [value] if len(results) == 1 else self.unpack(value, results)

    def opaque(self, register: str, type_: str) -> str:
        """A copy of an integer (i16, i32, i64) that hides its value from LLVM, and the original from
        conclusions about the copy; ptxas removes the move."""
        width, constraint = {"i16": ("b16", "h"), "i32": ("b32", "r"), "i64": ("b64", "l")}[type_]
        constraints = f"={constraint},{constraint}"
        return self.asm(f"mov.{width} $0, $1;", constraints, [(type_, register)], [type_])[0]

    def unknown_zero(self) -> str:
        """Zero (i32), unknown to LLVM and ptxas: the highest bit of the mask of lanes below a thread's."""
        if self._unknown_zero is None:
            with self.at_root():
                (below,) = self.asm("mov.u32 $0, %lanemask_lt;", "=r", [], ["i32"])
                self._unknown_zero = self.instruction(f"lshr i32 {below}, 31")
        return self._unknown_zero

    def unpack(self, value: str, types: Sequence[str]) -> list[str]:
        """The members of a struct, such as asm and intrinsics return."""
        struct = f"{{{', '.join(types)}}}"
        return [self.instruction(f"extractvalue {struct} {value}, {index}") for index in range(len(types))]

    def constant(self, value: float, type_: Type) -> str:
        """A number as a constant of an IR type."""
        return constant(value, type_)

    # -- integers --------------------------------------------------------------------------------------------------

    def add(self, a: str, b: str, type_: str = "i32") -> str:
        return self._folded("add", a, b, type_)

    def mul(self, a: str, b: str, type_: str = "i32") -> str:
        return self._folded("mul", a, b, type_)

    def and_(self, a: str, b: str, type_: str = "i32") -> str:
        return self._folded("and", a, b, type_)

    def or_(self, a: str, b: str, type_: str = "i32") -> str:
        return self._folded("or", a, b, type_)

    def xor(self, a: str, b: str, type_: str = "i32") -> str:
        return self._folded("xor", a, b, type_)

    def shift(self, a: str, left: int, type_: str = "i32") -> str:
        """`a` shifted left by `left` bits, or right (unsigned) when negative."""
        if not left or a == "0":
            return a
        return self.instruction(f"shl {type_} {a}, {left}" if left > 0 else f"lshr {type_} {a}, {-left}")

    def compare(self, predicate: str, a: str, b: str, type_: str = "i32") -> str:
        """An integer comparison (`eq`, `slt`, `ult`, …); an i1 register."""
        return self.instruction(f"icmp {predicate} {type_} {a}, {b}")

    def holds(self, predicate: str, a: str, b: str, type_: str = "i32") -> str:
        """A signed comparison like `compare`, decided at once (`true` or `false`) when both are constants."""
        if a[0] == "%" or b[0] == "%":
            return self.compare(predicate, a, b, type_)
        x, y = int(a), int(b)
        return str(
            {"slt": x < y, "sle": x <= y, "sgt": x > y, "sge": x >= y, "eq": x == y, "ne": x != y}[predicate]
        ).lower()

    def select(self, condition: str, a: str, b: str, type_: str) -> str:
        if condition in ("true", "false") or a == b:
            return b if condition == "false" else a
        return self.instruction(f"select i1 {condition}, {type_} {a}, {type_} {b}")

    def all_of(self, conditions: Sequence[str | None]) -> str:
        """The conjunction of i1 registers; None and `true` do not count."""
        result = "true"
        for condition in conditions:
            if condition is not None and condition != "true":
                result = condition if result == "true" else self.instruction(f"and i1 {result}, {condition}")
        return result

    def _folded(self, opcode: str, a: str, b: str, type_: str) -> str:
        if a[0] not in "%@<" and b[0] not in "%@<":
            x, y = int(a), int(b)
            results = {"add": x + y, "mul": x * y, "and": x & y, "or": x | y, "xor": x ^ y}
            return str(wrap(results[opcode], int(type_[1:])))
        if a[0] not in "%@<":
            a, b = b, a
        if b == "0":
            return "0" if opcode in ("mul", "and") else a
        if b == "1" and opcode == "mul":
            return a
        return self.instruction(f"{opcode} {type_} {a}, {b}")

    # -- the thread and shared memory ------------------------------------------------------------------------------

    def thread_id(self) -> str:
        """The number of the thread among those that run the code: 32 · warp + lane."""
        with self.at_entry():
            return self._among_own(self.call("llvm.nvvm.read.ptx.sreg.tid.x", "range(i32 0, 1024) i32", []))

    def thread_id_again(self) -> str:
        """The same, read anew here: what is computed from it takes no register before, and LLVM does not move it."""
        return self._among_own(self.effect('call i32 asm sideeffect "mov.u32 $0, %tid.x;", "=r"()'))

    def _among_own(self, thread: str) -> str:
        """A number of a thread in the launch, counted from the first of those that run the code."""
        return self.add(thread, str(-32 * self.warps.first)) if self.warps.first else thread

    def lane_id(self) -> str:
        """The number of the thread in its warp."""
        with self.at_entry():
            return self.and_(self.thread_id(), "31")

    def warp_id(self) -> str:
        """The number of the warp among those that run the code, uniform."""
        with self.at_entry():
            return self.uniform(self.shift(self.thread_id(), -5))

    def uniform(self, register: str) -> str:
        """An i32 that is the same for all threads of a warp, as a value of which ptxas knows that."""
        operands = [("i32", "-1"), ("i32", register), ("i32", "0"), ("i32", "31")]
        return self.call("llvm.nvvm.shfl.sync.idx.i32", "i32", operands)

    def warp_barrier(self) -> None:
        """All threads of the warp wait for each other; memory written before is seen after."""
        self.call("llvm.nvvm.bar.warp.sync", "void", [("i32", "-1")], effect=True)

    def barrier(self) -> None:
        """All threads of the program wait for each other; memory written before is seen after."""
        if self.num_warps == 1:
            self.warp_barrier()
        elif self.warps.barrier is not None:
            operands = [("i32", str(self.warps.barrier)), ("i32", str(32 * self.num_warps))]
            self.call("llvm.nvvm.barrier.cta.sync.aligned.count", "void", operands)
        else:
            self.call("llvm.nvvm.barrier.cta.sync.aligned.all", "void", [("i32", "0")])

    def shared_pointer(self, offset: int) -> str:
        """A pointer (addrspace 3) to a place in bytes of the program's shared memory, which is declared where used."""
        self.declarations["shared"] = SHARED
        with self.at_root():
            return self.offset_pointer("@shared", offset, SHARED_POINTER)

    def offset_pointer(self, pointer: str, offset: int | str, type_: str) -> str:
        """A pointer moved by bytes, a number or an i32 register."""
        if offset in (0, "0"):
            return pointer
        width = "i32" if str(offset).startswith("%") else "i64"
        return self.instruction(f"getelementptr i8, {type_} {pointer}, {width} {offset}")

    def finish(self) -> list[str]:
        """Write what remains, and give all lines of the body in order."""
        for write in self.later:  # grows while it is gone through
            write()
        if self.chunks[-1].scope.parent is not None:
            raise InternalError(f"{self.func.name}: a scope is still open")
        return [line for chunk in self.chunks for line in chunk.lines]
