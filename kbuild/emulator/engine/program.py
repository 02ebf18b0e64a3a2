"""A kernel made ready to run: blocks of steps, each a numpy function with the slots of the lanes it works on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kbuild.emulator.engine import builtins
from kbuild.emulator.engine.register_block import RegisterBlock
from kbuild.emulator.engine.registers import Rows
from kbuild.emulator.isa.bits import opposite
from kbuild.emulator.isa.instruction_spec import Lanes
from kbuild.emulator.isa.table import Bound, Effects, Form, View, form_of
from kbuild.emulator.ptx import flow
from kbuild.emulator.ptx.inline import Flat, flatten
from kbuild.emulator.ptx.model import (
    Instruction,
    Operand,
    Pair,
    PtxError,
    PtxFunction,
    PtxModule,
    Register,
    Sink,
    Variable,
)
from kbuild.emulator.ptx.parser import parse
from kbuild.errors import Loc

_CARRY = Register("%carry")


@dataclass(frozen=True)
class Batching:
    """How several steps of this kind can run at once; see `Bound`."""

    of: Callable[..., Any]
    """The step's own function: steps with different functions cannot run together."""
    function: Callable[..., Any]
    results: int
    key: tuple[Any, ...]


@dataclass(frozen=True)
class Step:
    """One instruction, ready."""

    function: Callable[..., Any]
    """`function(*lanes, where=…)`, with the batch first if `wants_warps`."""
    slots: tuple[int, ...]
    wants_warps: bool
    guard: int | None
    """Slot of the predicate."""
    negated: bool
    instruction: Instruction
    effects: Effects
    is_pure: bool = False
    """Whether it only computes, from registers to registers."""
    several: Batching | None = None
    members: tuple[Step, ...] = ()
    """Of a step that does several at once: these; its instruction is that of the first."""


@dataclass(frozen=True)
class StepBlock:
    """Steps in a row, then perhaps a branch."""

    steps: tuple[Step, ...]
    target: int | None
    guard: int | None
    negated: bool
    reconvergence: int
    separates: bool
    branch: Instruction | None
    spins: bool = False
    """Whether the branch goes back to reload memory that other CTAs may change."""


@dataclass(frozen=True)
class Program:
    """A kernel, ready to be launched with any arguments."""

    module: PtxModule
    entry: PtxFunction
    blocks: tuple[StepBlock, ...]
    rows: Rows
    variables: tuple[Variable, ...]
    """Shared and local variables of the function; those of the module are in `module`."""
    flat: Flat

    @cached_property
    def known(self) -> dict[str, Any]:
        """What observers have found out about the code, by a key of theirs, for later launches."""
        return {}

    def steps_of(self, number: int, whole: bool) -> tuple[Step, ...]:
        """The steps of a block, as they are to run: from the second time on, with all lanes (`whole`), fused."""
        from kbuild.emulator.engine.fuse import fused  # It needs what this module has.

        plans: dict[int, tuple[Step, ...] | None] = self.known.setdefault("plans", {})
        if not whole or number not in plans:
            plans.setdefault(number, None)
            return self.blocks[number].steps
        found = plans[number]
        if found is None:
            found = plans[number] = fused(self, number)
        return found

    @property
    def required_threads(self) -> tuple[int, int, int] | None:
        """The CTA's shape that `.reqntid` requires."""
        for name, values in self.entry.directives:
            if name == "reqntid":
                x, y, z = (*values, 1, 1)[:3]
                return x, y, z
        return None

    @property
    def required_cluster(self) -> tuple[int, int, int]:
        """The cluster's shape that `.reqnctapercluster` requires; one CTA by default."""
        for name, values in self.entry.directives:
            if name == "reqnctapercluster":
                x, y, z = (*values, 1, 1)[:3]
                return x, y, z
        return 1, 1, 1


def load(text: str, entry: str | None = None, file: str = "<ptx>") -> Program:
    """The program of a kernel of a PTX text; `entry` may be left out where there is only one kernel.

    Raises PtxError for text that is wrong and for instructions that the table lacks.
    """
    module = parse(text, file)
    kernels = [function for function in module.functions if function.is_entry]
    if entry is None:
        if len(kernels) != 1:
            raise PtxError(
                f"the PTX has {len(kernels)} kernels; say which one",
                help=", ".join(kernel.name for kernel in kernels),
            )
        entry = kernels[0].name
    return decode(module, module.function(entry), file)


def decode(module: PtxModule, entry: PtxFunction, file: str = "<ptx>") -> Program:
    """The program of one kernel of a module."""
    flat = flatten(module, entry)
    rows = Rows(flat.registers)
    rows.parameters = frozenset(parameter.name for parameter in flat.parameters)
    decoder = _Decoder(rows, file)
    blocks = tuple(decoder.block(block) for block in flow.build(flat))
    return Program(module, entry, blocks, rows, flat.variables, flat)


def decode_step(program: Program, instruction: Instruction) -> Step:
    """One more instruction for a program that has not run yet, on the program's registers.  PtxError for
    unknown ones."""
    return _Decoder(program.rows, "<ptx>").step(instruction)


class _Decoder:
    def __init__(self, rows: Rows, file: str) -> None:
        self.rows = rows
        self.file = file

    def block(self, block: flow.BasicBlock) -> StepBlock:
        steps = []
        for instruction in block.instructions:
            try:
                steps.append(self.step(instruction))
            except PtxError as error:
                if error.loc is not None:
                    raise
                message = (
                    f"{error.message}: {instruction}"
                    if str(instruction) not in error.message
                    else error.message
                )
                raise PtxError(message, Loc(self.file, instruction.line), error.help) from None
        guard = None if block.guard is None else self.rows.slot(View(block.guard.register, "pred"))
        negated = block.guard is not None and block.guard.negated
        return StepBlock(
            tuple(steps),
            block.target,
            guard,
            negated,
            block.reconvergence,
            block.separates,
            block.branch,
            block.spins,
        )

    def step(self, instruction: Instruction) -> Step:
        form = form_of(instruction)
        if instruction.opcode == "call":
            bound = builtins.bind(instruction)
        elif form.row.handler is not None:
            bound = form.row.handler(form, instruction)
        else:
            bound = _bind_lanes(form, instruction)
        guard = instruction.guard
        return Step(
            bound.function,
            tuple(self.rows.slot(view) for view in bound.views),
            bound.wants_warps,
            None if guard is None else self.rows.slot(View(guard.register, "pred")),
            guard is not None and guard.negated,
            instruction,
            form.effects,
            form.row.meaning is not None and instruction.opcode != "call",
            None
            if bound.several is None
            else Batching(bound.function, bound.several, bound.results, bound.key),
        )


def _bind_lanes(form: Form, instruction: Instruction) -> Bound:
    """A row that only computes: sources in, results out."""
    assert form.row.meaning is not None
    results, sources = form.lists
    target, *given = instruction.operands
    targets: list[Operand] = [target.first, target.second] if isinstance(target, Pair) else [target]
    function = form.function
    assert function is not None
    if isinstance(target, Pair) and instruction.opcode == "setp":
        first, second = function, form.row.meaning(opposite(form))
        function = lambda *values: (first(*values), second(*values))  # noqa: E731
    result_keys = [key for key in results if not (key == "cc?" and not form.has("cc"))]
    if result_keys[-1] in ("cc", "cc?"):
        targets.append(_CARRY)
    if sources[-1] == "cc":
        given.append(_CARRY)
    result_keys = [key for key in result_keys if not (key == "pred?" and len(targets) == 1)]
    required = [key for key in sources if not key.endswith("?")]
    if len(targets) != len(result_keys) or not len(required) <= len(given) <= len(sources):
        raise PtxError(f"{form.name} takes {len(required)} sources and gives {len(result_keys)} results")
    converts = form.opcode == "cvt"
    source_views = [
        View(operand, _type(form, key), fit="low" if converts else "") for operand, key in zip(given, sources)
    ]
    kept = [index for index, operand in enumerate(targets) if not isinstance(operand, Sink)]
    target_views = [
        View(targets[index], _type(form, result_keys[index]), fit="extend" if converts else "")
        for index in kept
    ]
    views = (*source_views, *target_views)
    one = len(targets) == len(kept) == 1
    if isinstance(function, np.ufunc) and one:
        # Maximum and minimum take their result by keyword.
        plain = _into(function) if function in (np.maximum, np.minimum) else function
        return Bound(plain, views, False, _at_once(function), 1)
    several = len(targets) > 1 or result_keys[-1] == "cc?" or "cc?" in results
    if several or not one:
        return Bound(_storing(function, len(source_views), kept, several), views, wants_warps=False)
    uniform = tuple(given[3:]) if form.opcode == "lop3" else ()  # One table for all.
    return Bound(
        _storing(function, len(source_views), kept, several), views, False, _at_once(function), 1, uniform
    )


def _type(form: Form, key: str) -> str:
    return "pred" if key.rstrip("?") == "cc" else form.operand_type(key)


def _into(function: np.ufunc) -> Callable[..., None]:
    def store(a: np.ndarray, b: np.ndarray, target: np.ndarray, where: Any = True) -> None:
        function(a, b, out=target, where=where)

    return store


def _at_once(function: Lanes) -> Callable[..., None]:
    """A function of lanes for several instructions, whose lanes lie one after the other."""

    def store(*blocks: RegisterBlock) -> None:
        target = blocks[-1]
        result = function(*[block.read().reshape(-1) for block in blocks[:-1]])
        target.write(result.reshape(-1, len(target)))

    return store


def _storing(function: Lanes, sources: int, kept: list[int], several: bool) -> Callable[..., None]:
    """A function of lanes that copies its results to the lanes after its sources."""
    copy = np.copyto
    if not several:

        def store_one(*lanes: np.ndarray, where: Any = True) -> None:
            copy(lanes[-1], function(*lanes[:-1]), where=where, casting="unsafe")

        return store_one

    def store_all(*lanes: np.ndarray, where: Any = True) -> None:
        results = function(*lanes[:sources])
        for index, target in zip(kept, lanes[sources:]):
            copy(target, results[index], where=where, casting="unsafe")

    return store_all


def opcodes(program: Program) -> Mapping[str, int]:
    """How often each instruction name occurs."""
    counts: dict[str, int] = {}
    for instruction in program.flat.statements:
        if isinstance(instruction, Instruction):
            counts[instruction.name] = counts.get(instruction.name, 0) + 1
    return counts
