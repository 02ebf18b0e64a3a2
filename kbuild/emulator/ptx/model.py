"""PTX as plain data: what the parser makes, the printer writes and the engine runs.

Only what LLVM's NVPTX backend and inline assembly emit is known; anything else is an error that names it.  Brace
scopes are flattened by the parser: a name declared in an inner scope gets a suffix, so that within a function
every name means one thing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from kbuild.errors import KbuildError, Loc


class PtxError(KbuildError):
    """PTX text that is wrong, or that the emulator does not support; the place is a line of the PTX."""


@dataclass(frozen=True)
class Register:
    """A declared virtual register, by its whole name (`%r12`)."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Special:
    """A special register such as `%tid.x`, `%laneid` or the constant `WARP_SZ`."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Immediate:
    """A literal, kept as written; `value` is an int, or a float for a `0f…`/`0d…` literal whose bits are
    `bits`."""

    text: str

    @property
    def is_float(self) -> bool:
        return self.text[:2].lower() in ("0f", "0d") or "." in self.text

    @property
    def value(self) -> int:
        """The bits of a float literal, or the integer itself (which may be negative)."""
        text = self.text
        if text[:2].lower() in ("0f", "0d"):
            return int(text[2:], 16)
        return int(text.rstrip("U"), 0)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Symbol:
    """A variable, function or label, plus an offset in bytes."""

    name: str
    offset: int = 0

    def __str__(self) -> str:
        return self.name + (f"{self.offset:+d}" if self.offset else "")


@dataclass(frozen=True)
class Address:
    """`[base + offset]`, with the coordinates of a tensor map's tile where there are any."""

    base: Register | Symbol | Immediate
    offset: int = 0
    coordinates: Vector | None = None

    def __str__(self) -> str:
        offset = f"{self.offset:+d}" if self.offset else ""
        return f"[{self.base}{offset}{f', {self.coordinates}' if self.coordinates else ''}]"


@dataclass(frozen=True)
class Vector:
    """`{a, b, …}`, or the parenthesised lists of a call."""

    items: tuple[Operand, ...]
    brackets: str = "{}"

    def __str__(self) -> str:
        return self.brackets[0] + ", ".join(map(str, self.items)) + self.brackets[1]


@dataclass(frozen=True)
class Sink:
    """`_`: a result that is not used."""

    def __str__(self) -> str:
        return "_"


@dataclass(frozen=True)
class Pair:
    """`a|b`: two results."""

    first: Register | Sink
    second: Register | Sink

    def __str__(self) -> str:
        return f"{self.first}|{self.second}"


@dataclass(frozen=True)
class Not:
    """`!p`: a negated predicate as an operand."""

    register: Register

    def __str__(self) -> str:
        return f"!{self.register}"


Operand = Register | Special | Immediate | Symbol | Address | Vector | Sink | Pair | Not


@dataclass(frozen=True)
class Predicate:
    """`@p` or `@!p` before an instruction."""

    register: Register
    negated: bool = False

    def __str__(self) -> str:
        return f"@{'!' if self.negated else ''}{self.register} "


@dataclass(frozen=True)
class SourceLine:
    """A `.loc`: the kernel source line that the instructions after it come from, and the calls that led
    there."""

    file: int
    line: int
    column: int
    attributes: str = ""
    """What follows the column, such as `function_name $L__info_string0, inlined_at 1 30 18`, as written."""
    caller: SourceLine | None = field(default=None, compare=False, repr=False)
    """The place of the call that was inlined to get here."""


@dataclass(frozen=True)
class Instruction:
    """One instruction; equal to another that does the same elsewhere."""

    opcode: str
    """The first word of the name, such as `mma`."""
    modifiers: tuple[str, ...]
    """The words after it without their dots, such as `shared::cta`."""
    operands: tuple[Operand, ...]
    guard: Predicate | None = None
    source: SourceLine | None = None
    line: int = field(default=0, compare=False)
    """1-based line of the PTX text."""

    @cached_property
    def name(self) -> str:
        return ".".join((self.opcode, *self.modifiers))

    def __str__(self) -> str:
        operands = ", ".join(map(str, self.operands))
        return f"{self.guard or ''}{self.name}{' ' if operands else ''}{operands};"


@dataclass(frozen=True)
class Label:
    """A place to branch to."""

    name: str


@dataclass(frozen=True)
class BranchTargets:
    """`name: .branchtargets a, b, …;`: the labels that `brx.idx` chooses from."""

    name: str
    labels: tuple[str, ...]


@dataclass(frozen=True)
class CallPrototype:
    """`name: .callprototype (…) _ (…);`: what functions that a call by address may reach have for parameters."""

    name: str
    text: str
    """After the word `.callprototype`, as written."""


@dataclass(frozen=True)
class Pragma:
    """`.pragma "…";`: no meaning here, but kept."""

    text: str


@dataclass(frozen=True)
class RegisterDeclaration:
    """`.reg .b32 %r<10>;` declares `%r0` to `%r9`; without a count it declares the one name."""

    type: str
    name: str
    count: int | None = None


@dataclass(frozen=True)
class Variable:
    """A variable in a state space, or a parameter."""

    space: str
    """`global`, `const`, `shared`, `local` or `param`."""
    type: str
    name: str
    align: int = 0
    """Bytes; 0 where not stated."""
    size: int | None = None
    """Number of elements; None for a scalar, 0 for an array of unknown size."""
    initial: tuple[int | str, ...] = ()
    """Element values; a string is the name of another variable, whose address it stands for."""
    linkage: str = ""
    attributes: tuple[str, ...] = ()
    """For a kernel's parameter what `.ptr` says: its space and alignment."""


Statement = Instruction | Label | BranchTargets | CallPrototype | Pragma | RegisterDeclaration | Variable


@dataclass(frozen=True)
class PtxFunction:
    """A kernel (`.entry`) or a device function (`.func`)."""

    name: str
    is_entry: bool
    parameters: tuple[Variable, ...]
    results: tuple[Variable, ...] = ()
    linkage: str = ""
    directives: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Performance directives such as `("reqntid", (128,))`."""
    body: tuple[Statement, ...] | None = None
    """None for a declaration."""
    line: int = field(default=0, compare=False)

    @property
    def registers(self) -> dict[str, str]:
        """The type of every declared register, by name."""
        found: dict[str, str] = {}
        for statement in self.body or ():
            if isinstance(statement, RegisterDeclaration):
                if statement.count is None:
                    found[statement.name] = statement.type
                else:
                    found.update(
                        (f"{statement.name}{index}", statement.type) for index in range(statement.count)
                    )
        return found

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        return tuple(statement for statement in self.body or () if isinstance(statement, Instruction))


@dataclass(frozen=True)
class PtxModule:
    """A PTX text."""

    version: str
    target: tuple[str, ...]
    address_size: int
    variables: tuple[Variable, ...] = ()
    functions: tuple[PtxFunction, ...] = ()
    files: tuple[tuple[int, str], ...] = ()
    """The numbered source files that `.loc` refers to."""
    sections: tuple[str, ...] = ()
    """Debug sections, as written."""

    @property
    def arch(self) -> str:
        return self.target[0]

    def function(self, name: str) -> PtxFunction:
        """The definition of a function, or its declaration.  Raises PtxError when there is neither."""
        matching = [function for function in self.functions if function.name == name]
        if not matching:
            known = ", ".join(function.name for function in self.functions if function.is_entry) or "none"
            raise PtxError(f"the PTX has no function {name}", help=f"its kernels are: {known}")
        return next((function for function in matching if function.body is not None), matching[0])

    def place(self, instruction: Instruction) -> Loc | None:
        """The source line of an instruction, with the calls that were inlined to get there, where the PTX has line
        information."""
        names = dict(self.files)

        def of(source: SourceLine | None) -> Loc | None:
            if source is None:
                return None
            return Loc(names.get(source.file, "?"), source.line, source.column, caller=of(source.caller))

        return of(instruction.source)


def own_place(place: Loc) -> Loc:
    """The line of the kernel's own file that an instruction comes from: the place itself, or the innermost call on the way
    to a place in another file."""
    frames = place.frames()
    return next(frame for frame in reversed(frames) if frame.file == frames[0].file)
