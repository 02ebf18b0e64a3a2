"""Choosing the row of a kernel's table that a call is launched with, and saying why.

This module is copied as it stands into every package that kbuild makes (as `_selection.py`), so it imports
only the standard library.  The launcher does the same in C; the tests compare the two.

A call is reduced to facts: one 64-bit word each for the device's targets, its shared memory, every parameter,
option and condition.  A row requires bits of each word.  The first row whose bits are all there is taken, or where it has
a cost, the cheapest of those of the same architecture, options and hints whose bits are all there and that have one:

    fact        bits                                            a row requires
    target      one for each target that runs on the device     its own target's
    shared      one for each level of shared memory there is    its level's
    pointer     its element type (all if unknown); divisible    its type; divisible by 4, 8 or 16, if specialised to it
    integer     every type that holds it; divisible; one        its type; divisible by 4, 8 or 16, or one
    float       every type                                      its type
    option      one for the value given (all if none)           its value's
    condition   1 if it holds                                   1, if it has the condition
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

_TYPE_NAMES = (
    "i1",
    "i8",
    "i16",
    "i32",
    "i64",
    "u8",
    "u16",
    "u32",
    "u64",
    "fp16",
    "bf16",
    "fp32",
    "fp64",
    "fp8e4nv",
    "fp8e5",
    "fp8e4b8",
    "fp8e4b15",
    "fp8e5b16",
)
TYPES = {name: 1 << bit for bit, name in enumerate(_TYPE_NAMES)}
"""The bit of each element type, by the name Triton's signatures use."""
TYPE_MASK = (1 << 32) - 1
HINT_16 = 1 << 62
"""Divisible by 16."""
HINT_1 = 1 << 61
"""Equal to one."""
HINT_8, HINT_4 = 1 << 60, 1 << 59
"""Divisible by 8, and by 4; what 16 divides has all three bits."""
FACT_TARGET, FACT_SHARED, DEVICE_FACTS = 0, 1, 2
NO_ROW, AMBIGUOUS, COST_FAULT = -1, -2, -3


@dataclass(frozen=True)
class CodeTarget:
    """The architecture that a row's code was made for."""

    name: str
    """Such as `sm_80`, `sm_90a`, or `sm_80+ptx` for code that the driver compiles."""
    first: int
    """The lowest compute capability, 10 * major + minor, of the devices that run it."""
    last: int
    """The highest one."""


@dataclass(frozen=True)
class LaunchParameter:
    """A run-time argument."""

    name: str
    kind: str
    """`pointer`, `integer` or `float`."""
    types: tuple[str, ...]
    """Element or scalar types that rows have, in the order of the rows."""
    mask: int
    """Bits that any row requires."""
    grid_only: bool = False
    """Whether only the grid needs it, so that a call which gives its grid may leave it out."""
    extent: tuple[int, int, int, int] | None = None
    """For a size or stride that is read from a tensor: the tensor's index, the axis, how many axes there are,
    and for a stride the bytes of an element, 0 for a size.  Such parameters come last."""


@dataclass(frozen=True)
class ConstexprOption:
    """A compile-time choice that the caller makes by keyword."""

    name: str
    values: tuple[bool | int | float | str, ...]
    required: bool
    """False where the types of the arguments imply the value, or it has a default."""
    default: int = -1
    """Index of the value where none is given; -1 if there is none."""

    def shown(self, argument: object) -> str:
        """What a call has chosen."""
        is_default = argument is None and self.default >= 0
        text = f"{self.values[self.default] if is_default else argument!s:.60}" or "''"
        return text + " (by default)" * is_default


@dataclass(frozen=True)
class VariantEntry:
    """One cubin, and what it takes to launch it."""

    name: str
    """Values and specialisations, for people."""
    archive: str
    """The archive's name, `cubins/<archive>.kbz`."""
    key: str
    """The cubin's name in the archive."""
    sha256: str
    """Digest of the cubin, hexadecimal; empty where the digest of the archive's index covers it."""
    target: int
    """Index in the package's targets."""
    entry: str
    """Symbol of the kernel in the cubin."""
    shared: int
    """Dynamic shared memory in bytes."""
    opts_in: bool
    """Whether its shared memory is more than a launch may have unless the function's attribute says so."""
    block: tuple[int, int, int]
    """Threads of a block along each axis."""
    registers: int
    required: tuple[int, ...]
    """Bits required of each fact."""
    passed: tuple[tuple[int, str], ...]
    """What the cubin takes: index of the parameter (-1: a null pointer, or a tensor map) and its type."""
    constants: tuple[int, ...]
    """Values of the names in `KernelTable.constants`."""
    cost: int = -1
    """Index in `KernelTable.costs` of what a call costs with it; -1 if it has no cost."""
    rival: int = -1
    """Index of the next row that it is compared with by cost; -1 if there is none."""
    cluster_size: int = 1
    """The first size of the grid has to be a multiple of this."""
    launch_pdl: bool = False
    """Whether the driver may begin it before the launch before it has ended."""
    spills: int = 0
    """Registers of a thread that it keeps in memory."""
    place: tuple[int, ...] = field(default=(0, 0, 0, 0), repr=False)
    """Where its code is in the archive, for the library of C: `archive.Place`."""

    @property
    def threads(self) -> str:
        """The threads of a block for people: `256`, or `16x16`."""
        axes = max((axis for axis, size in enumerate(self.block, 1) if size > 1), default=1)
        return "x".join(map(str, self.block[:axes]))


@dataclass(frozen=True)
class KernelTable:
    """One function of the package."""

    name: str
    doc: str
    parameters: tuple[LaunchParameter, ...]
    options: tuple[ConstexprOption, ...]
    conditions: tuple[str, ...]
    """Run-time conditions of any row, constants already put in."""
    costs: tuple[str, ...]
    """What calls cost with any row, as expressions with constants already put in."""
    levels: tuple[int, ...]
    """Amounts of shared memory that rows need, bytes."""
    grid: tuple[str, ...]
    constants: tuple[str, ...]
    """Names of the compile-time constants that the grid refers to."""
    rows: tuple[VariantEntry, ...]
    first_row: int
    """Number of the first row in the whole package."""

    @property
    def given(self) -> tuple[LaunchParameter, ...]:
        """The parameters that a call gives."""
        return tuple(parameter for parameter in self.parameters if parameter.extent is None)

    @property
    def fact_count(self) -> int:
        """Words of facts."""
        return DEVICE_FACTS + len(self.parameters) + len(self.options) + len(self.conditions)


@dataclass(frozen=True)
class Selection:
    """The answer to a call, with its reasons."""

    row: int
    """Index of the row in its kernel, or NO_ROW, AMBIGUOUS or COST_FAULT."""
    trace: tuple[tuple[int, ...], ...]
    """For each row the facts that failed; empty for one that matches."""
    compared: tuple[int, ...] = ()
    """The rows that were compared by cost, in order; none where the first that matches is the only one to compare."""


def select(kernel: KernelTable, facts: Sequence[int], costs: Sequence[int | None] = ()) -> Selection:
    """The first row that the facts allow, or the cheapest of those that it is compared with.

    AMBIGUOUS when a later one matches too and differs in the type of an argument whose type is unknown.  `costs` are the
    values of `kernel.costs`, None where one has no value: COST_FAULT when that would have to be compared.
    """
    trace = tuple(
        tuple(i for i, (have, need) in enumerate(zip(facts, row.required)) if have & need != need)
        for row in kernel.rows
    )
    matching = [index for index, failed in enumerate(trace) if not failed]
    if not matching:
        return Selection(NO_ROW, trace)
    unknown = [
        DEVICE_FACTS + i
        for i, parameter in enumerate(kernel.parameters)
        if parameter.kind != "integer" and (facts[DEVICE_FACTS + i] & TYPE_MASK).bit_count() > 1
    ]
    chosen = kernel.rows[matching[0]].required
    for index in matching[1:]:
        other = kernel.rows[index].required
        if any((chosen[i] ^ other[i]) & TYPE_MASK for i in unknown):
            return Selection(AMBIGUOUS, trace)
    return _cheapest(kernel, matching[0], trace, costs)


def _cheapest(
    kernel: KernelTable, first: int, trace: tuple[tuple[int, ...], ...], costs: Sequence[int | None]
) -> Selection:
    """Of the first row that matches and those that it is compared with, the cheapest, and of several the first."""
    compared, index = [first], kernel.rows[first].rival
    while index >= 0:
        compared += [index] * (not trace[index])
        index = kernel.rows[index].rival
    if len(compared) == 1:
        return Selection(first, trace)
    values = [costs[kernel.rows[row].cost] for row in compared]
    known = [value for value in values if value is not None]
    row = compared[known.index(min(known))] if len(known) == len(values) else COST_FAULT
    return Selection(row, trace, tuple(compared))


def device_facts(
    kernel: KernelTable, targets: Sequence[CodeTarget], capability: int, shared_limit: int
) -> tuple[int, int]:
    """The first two facts: bits of the targets that run on the device, and of the levels of shared memory it
    has."""
    runnable = sum(1 << i for i, target in enumerate(targets) if target.first <= capability <= target.last)
    return runnable, sum(1 << i for i, level in enumerate(kernel.levels) if shared_limit >= level)


@dataclass(frozen=True)
class AskedCall:
    """What was asked: for the words of an explanation."""

    facts: tuple[int, ...]
    arguments: tuple[object, ...]
    """Values of the parameters, then of the options (None: not given)."""
    device: str
    """Such as `device 0 (compute capability 9.0, 227 KB of shared memory)`."""
    num_sms: int = 0
    """Multiprocessors of the device, which conditions and costs may name."""
    costs: tuple[int | None, ...] = ()
    """The values of the kernel's costs; None where one overflows or divides by zero."""


def explain(
    kernel: KernelTable, targets: Sequence[CodeTarget], call: AskedCall, limit: int | None = None
) -> str:
    """Why a row is taken, and which facts fail for the others.

    Rows that are for another device, type or option stand together in one line; the rest have a line each,
    the nearest `limit` of them where there are more.
    """
    selection = select(kernel, call.facts, call.costs)
    groups: dict[str, list[int]] = {}
    for index, failed in enumerate(selection.trace):
        groups.setdefault(_coarse_failure(kernel, targets, call, kernel.rows[index], failed), []).append(
            index
        )
    near = sorted(groups.pop("", []), key=lambda index: len(selection.trace[index]))
    shown = sorted(near if limit is None else near[:limit])
    lines = [f"  {kernel.rows[index].name}: {_verdict(kernel, call, selection, index)}" for index in shown]
    lines += [f"  and {len(near) - len(shown)} rows that are further off"] * (len(shown) < len(near))
    for text, members in groups.items():
        subject = kernel.rows[members[0]].name if len(members) == 1 else f"{len(members)} rows"
        lines.append(f"  {subject}: no: {text}")
    return "\n".join(lines)


def _verdict(kernel: KernelTable, call: AskedCall, selection: Selection, index: int) -> str:
    """Whether a row for the call's device, types and options is taken, and why not."""
    if failed := selection.trace[index]:
        return "no: " + "; ".join(_fine_failures(kernel, call, kernel.rows[index], failed))
    if index in selection.compared:
        return _verdict_on_cost(kernel, call, selection, index)
    if index == selection.row:
        return "taken"
    return "matches too" if selection.row < 0 else "matches, behind the one taken"


def _verdict_on_cost(kernel: KernelTable, call: AskedCall, selection: Selection, index: int) -> str:
    """Whether the cost of a row is the least of those that are compared."""
    text = kernel.costs[kernel.rows[index].cost]
    cost = call.costs[kernel.rows[index].cost]
    if cost is None:
        return f"no cost: {text} overflows 64 bits, or divides by zero"
    if index == selection.row:
        return f"taken, for it costs {cost}: {text}"
    return f"matches, and costs {cost}: {text}"


def _coarse_failure(
    kernel: KernelTable,
    targets: Sequence[CodeTarget],
    call: AskedCall,
    row: VariantEntry,
    failed: tuple[int, ...],
) -> str:
    """Why a row cannot match: device, shared memory, options, types; empty if it can."""
    if FACT_TARGET in failed:
        return f"{targets[row.target].name} does not run on {call.device}"
    if FACT_SHARED in failed:
        return f"needs {row.shared} bytes of shared memory, more than {call.device} has"
    words = []
    for fact in failed:
        position = fact - DEVICE_FACTS
        missing = row.required[fact] & ~call.facts[fact]
        if position < len(kernel.parameters):
            words += _type_failures(
                kernel.parameters[position], call.arguments[position], missing, call.facts[fact]
            )
        elif position - len(kernel.parameters) < len(kernel.options):
            option = kernel.options[position - len(kernel.parameters)]
            wanted = option.values[row.required[fact].bit_length() - 1]
            words.append(f"{option.name} = {option.shown(call.arguments[position])} is not {wanted}")
    return "; ".join(words)


def _fine_failures(
    kernel: KernelTable, call: AskedCall, row: VariantEntry, failed: tuple[int, ...]
) -> list[str]:
    """Which specialisations and conditions of a row fail."""
    subjects: dict[int, list[str]] = {hint: [] for hint in (HINT_16, HINT_8, HINT_4, HINT_1)}
    words = []
    for fact in failed:
        position = fact - DEVICE_FACTS
        if position < len(kernel.parameters):
            parameter, argument = kernel.parameters[position], call.arguments[position]
            missing = row.required[fact] & ~call.facts[fact]
            text = (
                f"the address of {parameter.name}"
                if parameter.kind == "pointer"
                else f"{parameter.name} = {argument!s:.30}"
            )
            for hint, names in subjects.items():
                names += [text] * bool(missing & hint)
        else:
            condition = kernel.conditions[position - len(kernel.parameters) - len(kernel.options)]
            given: dict[str, object] = {"num_sms": call.num_sms}
            given |= {p.name: argument for p, argument in zip(kernel.parameters, call.arguments)}
            values = ", ".join(
                f"{name} = {argument!s:.30}" for name, argument in given.items() if _names(condition, name)
            )
            words.append(f"{condition} does not hold ({values})")
    predicates = (*(f"not divisible by {number}" for number in (16, 8, 4)), "not 1")
    for names, predicate in zip(subjects.values(), predicates):
        words += [f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} {predicate}"] * bool(names)
    return words


def no_variant_message(kernel: KernelTable, targets: Sequence[CodeTarget], call: AskedCall) -> str:
    """The error message for a call that no row matches, that rows of different types match, or whose costs have no value."""
    # Where some row matches, one of the costs that are compared has no value.
    call = replace(call, costs=call.costs or (None,) * len(kernel.costs))
    selection = select(kernel, call.facts, call.costs)
    if selection.row == COST_FAULT:
        head = f"{kernel.name}(): a cost of its rows overflows 64 bits, or divides by zero"
    elif selection.row == AMBIGUOUS:
        names = [option.name for option in kernel.options if not option.required and option.default < 0]
        advice = f"; say {names[0]}=..." if names else ""
        head = f"{kernel.name}(): the element type of an argument is unknown, and rows for more than one type match{advice}"
    elif not any(runs_on_call(call, row) for row in kernel.rows):
        names = sorted({targets[row.target].name for row in kernel.rows})
        head = f"{kernel.name}(): nothing was built for {call.device}; there is {', '.join(names)}"
    else:
        head = f"{kernel.name}(): no row of its table takes these arguments on {call.device}"
    return f"{head}\n{explain(kernel, targets, call, limit=12)}"


def runs_on_call(call: AskedCall, row: VariantEntry) -> bool:
    """Whether the row's target runs on the call's device."""
    return call.facts[FACT_TARGET] & row.required[FACT_TARGET] != 0


def _type_failures(parameter: LaunchParameter, argument: object, missing: int, fact: int) -> list[str]:
    """Says that an argument is of another type than the row's, or does not fit it."""
    wanted = [name for name, bit in TYPES.items() if missing & bit]
    if not wanted:
        return []
    if parameter.kind != "pointer":
        return [f"{parameter.name} = {argument!s:.30} does not fit {wanted[0]}"]
    found = [name for name, bit in TYPES.items() if fact & bit]
    given = (
        found[0] if len(found) == 1 else _type_name(str(getattr(argument, "dtype", type(argument).__name__)))
    )
    return [f"{parameter.name} holds {given}, not {wanted[0]}"]


def _type_name(dtype: str) -> str:
    """The name in signatures of a numpy or torch type, if it has one."""
    name = dtype.removeprefix("torch.")
    for long, short in (("uint", "u"), ("int", "i"), ("bfloat", "bf"), ("float", "fp")):
        if name.removeprefix(long).isdigit():
            return name.replace(long, short)
    return {"bool": "i1", "float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5"}.get(name, name)


def _names(condition: str, name: str) -> bool:
    """Whether an expression mentions a name."""
    words = "".join(letter if letter.isalnum() or letter == "_" else " " for letter in condition).split()
    return name in words


def signature(kernel: KernelTable) -> str:
    """The function's signature, as `inspect` prints it."""
    names = (parameter.name + "=None" * parameter.grid_only for parameter in kernel.given)
    return f"({', '.join([*names, *keyword_texts(kernel, {})])})"


def keyword_texts(kernel: KernelTable, annotations: Mapping[str, str]) -> list[str]:
    """The keyword-only half of a signature, after `*`, with annotations where given."""

    def text(name: str, default: str) -> str:
        annotation = annotations.get(name)
        equals = f" = {default}" if annotation else f"={default}"
        return (
            f"{name}: {annotation}{equals if default else ''}"
            if annotation
            else f"{name}{equals if default else ''}"
        )

    options = [text(option.name, _default_text(option)) for option in kernel.options]
    return ["*", *options, text("stream", "None"), text("grid", "" if not kernel.grid else "None")]


def _default_text(option: ConstexprOption) -> str:
    """The default shown after an option's `=`; empty where it is required."""
    return repr(option.values[option.default]) if option.default >= 0 else "" if option.required else "None"
