"""The rows of the table of opcodes, and how an instruction finds its row.

A pattern names the forms of an opcode: `.a` is a fixed modifier, `{a|b}` is exactly one of several, `[a|b]`
at most one.  So `add{u32|s32}` stands for `add.u32` and `add.s32`, and `fma{rn|rz}[ftz].f32` for four forms.

An operand list says which operands a row has: results, `=`, sources.  Each is the name of a PTX type, or `t`,
the last type in the instruction's name, `t0`, its first, `wide`, the integer type of twice the width; `x?`
may be left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from kbuild.emulator.ptx.model import Operand

TYPES: dict[str, np.dtype] = {
    name: np.dtype(kind)
    for name, kind in {
        "pred": "bool",
        "b8": "u1",
        "b16": "u2",
        "b32": "u4",
        "b64": "u8",
        "u8": "u1",
        "u16": "u2",
        "u32": "u4",
        "u64": "u8",
        "s8": "i1",
        "s16": "i2",
        "s32": "i4",
        "s64": "i8",
        "f16": "f2",
        "f32": "f4",
        "f64": "f8",
        "bf16": "u2",
        "f16x2": "u4",
        "bf16x2": "u4",
        "e4m3": "u1",
        "e5m2": "u1",
        "e4m3x2": "u2",
        "e5m2x2": "u2",
        "tf32": "u4",
        "u16x2": "u4",
        "s16x2": "u4",
        "b128": "V16",
    }.items()
}
"""How the lanes of a register look to numpy under each PTX type; types that numpy lacks are their bits."""

_WIDE = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}


@dataclass(frozen=True)
class Effects:
    """The effects of an instruction besides writing registers."""

    reads: tuple[str, ...] = ()
    """State spaces; `generic` is any of them."""
    writes: tuple[str, ...] = ()
    atomic: bool = False
    asynchronous: bool = False
    """Its memory accesses may land later than the instruction."""
    collective: str = ""
    """`warp` or `cta`: all threads of it take part."""
    aligned: bool = False
    """All threads of the warp must be there."""
    waits: bool = False
    """The warp may wait here for others."""

    @property
    def communicates(self) -> bool:
        """Whether other warps may wait for this instruction, or it for them."""
        return self.waits or self.atomic or self.collective == "cta"


@dataclass(frozen=True)
class Accuracy:
    """How far a GPU's result may be from the exact one; the emulator gives the exact one, rounded once."""

    bound: float
    unit: str
    """`ulp`, units in the last place of the exact result; `relative` to it; `absolute`; `either`, relative or
    absolute."""
    measured: str
    """The largest error that an H200 made, over two million operands."""
    domain: str = ""
    """Where the bound holds, if not everywhere."""

    def __str__(self) -> str:
        size = f"{self.bound:g} ulp" if self.unit == "ulp" else f"2^{np.log2(self.bound):g}"
        kinds = {"relative": ", relative", "absolute": ", absolute", "either": ", relative or absolute"}
        domain = f" for {self.domain}" if self.domain else ""
        return f"within {size}{kinds.get(self.unit, '')}{domain}; an H200: {self.measured}"


@dataclass(frozen=True)
class Form:
    """An instruction's name with its row."""

    row: InstructionSpec
    opcode: str
    modifiers: tuple[str, ...]

    @cached_property
    def types(self) -> tuple[str, ...]:
        """The modifiers that are types, in order."""
        return tuple(modifier for modifier in self.modifiers if modifier in TYPES)

    @cached_property
    def function(self) -> Lanes | None:
        """What it computes, lane by lane."""
        return None if self.row.meaning is None else self.row.meaning(self)

    @cached_property
    def lists(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The words of the operand list: results and sources."""
        results, sources = (tuple(side.split()) for side in self.row.operands.split("="))
        return results, sources

    @property
    def type(self) -> str:
        """The last type, which most rows work on."""
        return self.types[-1]

    @property
    def dtype(self) -> np.dtype:
        return TYPES[self.type]

    @property
    def name(self) -> str:
        return ".".join((self.opcode, *self.modifiers))

    @cached_property
    def effects(self) -> Effects:
        """The effects of the row; an access with an order is visible to other warps, as an atomic one is."""
        if any(order in self.modifiers for order in ("volatile", "acquire", "release", "relaxed", "mmio")):
            return replace(self.row.effects, atomic=True)
        return self.row.effects

    def has(self, modifier: str) -> bool:
        return modifier in self.modifiers

    def choose(self, *modifiers: str, default: str = "") -> str:
        """The one of `modifiers` that the instruction has."""
        return next((modifier for modifier in modifiers if modifier in self.modifiers), default)

    def operand_type(self, key: str) -> str:
        """The PTX type that a word of an operand list means for this form."""
        key = key.rstrip("?")
        if key == "t":
            return self.types[-1]
        if key == "t0":
            return self.types[0]
        if key == "wide":
            return _WIDE[self.types[-1]]
        return key


Lanes = Callable[..., Any]
"""Works on one array per source, all of the same length; returns an array per result."""


@dataclass(frozen=True)
class InstructionSpec:
    """One row of the table of opcodes."""

    pattern: str
    operands: str
    """Results, `=`, sources; empty for rows whose handler reads the operands itself."""
    summary: str
    """One line for the reference page."""
    meaning: Callable[[Form], Lanes] | None = None
    """What it computes, lane by lane."""
    handler: Callable[..., Any] | None = None
    """`handler(form, instruction)` returns a `Bound`: for rows that do more than compute."""
    effects: Effects = field(default_factory=Effects)
    accuracy: Accuracy | None = None
    """For approximations."""
    unasked: str = ""
    """Why its results were not measured on a GPU; golden values alone check it then."""
    unordered: bool = False
    """Whether the modifiers before the type may come in any order, as assemblers allow for memory operations."""

    @property
    def opcode(self) -> str:
        return re.split(r"[.{\[]", self.pattern, maxsplit=1)[0]

    @cached_property
    def groups(self) -> list[tuple[tuple[str, ...], bool]]:
        """For each place in the pattern the modifiers that may stand there, and whether one must."""
        found = []
        for group in re.findall(r"\{[^}]*\}|\[[^\]]*\]|\.[\w:]+", self.pattern[len(self.opcode) :]):
            choices = (group[1:],) if group[0] == "." else tuple(group[1:-1].split("|"))
            found.append((choices, group[0] != "["))
        return found

    def matches(self, modifiers: tuple[str, ...]) -> bool:
        """Whether these modifiers are a form of this row."""
        rest = list(modifiers)
        for choices, required in self.groups:
            if self.unordered:
                index = next((index for index, modifier in enumerate(rest) if modifier in choices), None)
            else:
                index = 0 if rest and rest[0] in choices else None
            if index is not None:
                del rest[index]
            elif required:
                return False
        return not rest

    def forms(self) -> list[str]:
        """Every full name that the pattern stands for."""
        names = [self.opcode]
        for choices, required in self.groups:
            names = [
                name + ending
                for name in names
                for ending in (*("." + choice for choice in choices), *(() if required else ("",)))
            ]
        return names


@dataclass(frozen=True)
class View:
    """The lanes of an operand, seen as a PTX type; of `parts` equal parts of each register, the one numbered
    `part`."""

    operand: Operand
    type: str
    """`address` takes the width of the register or of the space's addresses."""
    part: int = 0
    parts: int = 1
    fit: str = ""
    """For a register wider than the type: `extend` fills all of it, `low` reads its low part; empty forbids
    it.  With `predicate` it may be a predicate instead."""


@dataclass(frozen=True)
class Fragment:
    """The lanes of several registers of one width, as one: what a warp holds of a matrix.  A step gets a
    `RegisterBlock`."""

    views: tuple[View, ...]


@dataclass(frozen=True)
class Bound:
    """A handler made ready for one instruction."""

    function: Callable[..., Any]
    """`function(*views, where=…)`, with the warps first if `wants_warps`; `where` is True or a mask over the
    lanes.

    A result other than None is a wait: it has `ready()` and `describe()`.
    """
    views: tuple[View | Fragment, ...] = ()
    wants_warps: bool = True
    several: Callable[..., Any] | None = None
    """`function` with all lanes, for several such instructions at once: it gets a `RegisterBlock`
    for each view, which has a row for each instruction (for a `Fragment` all first registers come first).
    None: it cannot."""
    results: int = 0
    """The views at the end that are written, where there is `several`; the others are read."""
    key: tuple[Any, ...] = ()
    """What instructions that run together must have in common, beside their names."""
