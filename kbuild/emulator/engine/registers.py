"""The register file of a CTA: for each width one array [rows, threads], and the lanes that instructions work
on.

A row is a register, a constant, a special register or a parameter: whatever an instruction can name, its
lanes are a row. A slot is a row seen as a type; a batch of warps gets for each slot the part of the row that
holds its lanes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kbuild.emulator.engine.register_block import RegisterBlock
from kbuild.emulator.isa.instruction_spec import TYPES
from kbuild.emulator.isa.table import Fragment, View
from kbuild.emulator.ptx.model import Address, Immediate, Not, PtxError, Register, Special, Symbol

WIDTHS = (0, 1, 2, 4, 8)
"""Bytes of the classes of rows; 0 stands for predicates."""
_POISON = {0: True, 1: 0xFF, 2: 0xFFFF, 4: 0xFFFFFFFF, 8: 0xFFFFFFFFFFFFFFFF}


@dataclass(frozen=True)
class RegisterSlot:
    """A row of the file of one width, seen as a numpy type; of `parts` equal parts of each element, the one
    numbered `part`."""

    width: int
    row: int
    dtype: np.dtype
    part: int = 0
    parts: int = 1


@dataclass(frozen=True)
class BlockSlot:
    """Several rows of the file of one width."""

    width: int
    rows: tuple[int, ...]
    dtype: np.dtype


class Rows:
    """Assigns rows to operands; `constants` and `named` list what a launch must put into them."""

    def __init__(self, types: Mapping[str, str]) -> None:
        self.counts: dict[int, int] = dict.fromkeys(WIDTHS, 0)
        self.slots: list[RegisterSlot | BlockSlot] = []
        self.constants: list[tuple[int, int, int]] = []
        """Width, row and bits of each literal."""
        self.named: list[tuple[int, int, Special | Symbol | Address]] = []
        """Width and row of each thing whose value is known at launch."""
        self.storage: dict[tuple[str, int], tuple[int, int]] = {}
        """Width and row of each part of a parameter of a call."""
        self.parameters: frozenset[str] = frozenset()
        """The kernel's own parameters."""
        self.address_width = 8
        self._types = types
        self._rows: dict[tuple, tuple[int, int]] = {}
        self._register_slots: dict[tuple[str, str, int, int, str], int] = {}
        """The slots of views of registers, by register and type."""
        self._slot_numbers: dict[RegisterSlot | BlockSlot, int] = {}

    def slot(self, view: View | Fragment) -> int:
        """The number of the slot for a view.  Raises PtxError where the register does not fit the type."""
        if isinstance(view, Fragment):
            slots = [self._slot(each) for each in view.views]
            return self.number(
                BlockSlot(slots[0].width, tuple(slot.row for slot in slots), _bits(slots[0].width))
            )
        if not isinstance(view.operand, Register):
            return self.number(self._slot(view))
        key = view.operand.name, view.type, view.part, view.parts, view.fit
        found = self._register_slots.get(key)
        if found is None:
            found = self._register_slots[key] = self.number(self._slot(view))
        return found

    def _slot(self, view: View) -> RegisterSlot:
        operand = view.operand
        if isinstance(operand, Register):
            width, row = self._register(operand.name)
        else:
            width, row = self._other(view)
        return RegisterSlot(width, row, self._dtype(view, width), view.part, view.parts)

    def number(self, slot: RegisterSlot | BlockSlot) -> int:
        """The number of a slot."""
        number = self._slot_numbers.get(slot)
        if number is None:
            number = self._slot_numbers[slot] = len(self.slots)
            self.slots.append(slot)
        return number

    def width_of(self, name: str) -> int:
        """Bytes of a register."""
        kind = self._types.get(name)
        if kind is None:
            raise PtxError(f"register {name} is not declared")
        return 0 if kind == "pred" else TYPES[kind].itemsize

    def _new(self, width: int) -> tuple[int, int]:
        self.counts[width] += 1
        return width, self.counts[width] - 1

    def _register(self, name: str) -> tuple[int, int]:
        found = self._rows.get((name,))
        if found is None:
            found = self._rows[(name,)] = self._new(0 if name == "%carry" else self.width_of(name))
        return found

    def _other(self, view: View) -> tuple[int, int]:
        """The row of a literal, special register, symbol or parameter."""
        operand = view.operand
        if isinstance(operand, Not):
            raise PtxError(f"a negated predicate cannot stand here: {operand}")
        if view.type == "address":
            width = self.address_width
        else:
            width = 0 if view.type == "pred" else TYPES[view.type].itemsize
        if (
            isinstance(operand, Address)
            and isinstance(operand.base, Symbol)
            and operand.base.name not in self.parameters
        ):
            return self._stored(operand.base.name, operand.offset, width)
        key = (operand, width)
        found = self._rows.get(key)
        if found is None:
            found = self._rows[key] = self._new(width)
            if isinstance(operand, Immediate):
                self.constants.append((*found, self._bits(operand, view.type, width)))
            elif isinstance(operand, Special | Symbol | Address):
                self.named.append((*found, operand))
            else:
                raise PtxError(f"{operand} cannot be an operand here")
        return found

    def _stored(self, name: str, offset: int, width: int) -> tuple[int, int]:
        found = self.storage.setdefault((name, offset), (-1, -1))
        if found[0] == -1:
            found = self.storage[name, offset] = self._new(width)
        if found[0] != width:
            raise PtxError(f"parameter {name}+{offset} is used with {found[0]} and with {width} bytes")
        return found

    def _bits(self, operand: Immediate, kind: str, width: int) -> int:
        text = operand.text.lower()
        if operand.is_float and kind == "f64" and text.startswith("0f"):
            return int(np.array(np.uint32(operand.value).view(np.float32), np.float64).view(np.uint64))
        if operand.is_float and kind == "f32" and text.startswith("0d"):
            return int(np.array(np.uint64(operand.value).view(np.float64), np.float32).view(np.uint32))
        if not operand.is_float and kind in ("f32", "f64"):
            raise PtxError(f"the literal {operand} is not of type {kind}")
        return operand.value & ((1 << (8 * width)) - 1) if width else int(operand.value != 0)

    def _dtype(self, view: View, width: int) -> np.dtype:
        """How numpy sees the lanes."""
        if view.type == "address":
            return np.dtype(f"u{width}")
        dtype = TYPES[view.type]
        size = 0 if view.type == "pred" else dtype.itemsize
        if size == width:
            return dtype if view.parts == 1 else np.dtype(f"u{size // view.parts}")
        if view.fit and view.parts == 1 and 0 < size < width and (view.fit == "low" or dtype.kind in "iu"):
            return np.dtype(f"{dtype.kind}{width}") if view.fit == "extend" else dtype
        if view.fit == "predicate" and width == 0:
            return np.dtype(bool)
        return self._misfit(view, width)

    def _misfit(self, view: View, width: int) -> np.dtype:
        kind = f"a register of {8 * width} bits" if width else "a predicate"
        raise PtxError(f"{view.operand} is {kind} and cannot be used as .{view.type}")


def _bits(width: int) -> np.dtype:
    return np.dtype(f"u{width}" if width else bool)


class RegisterFile:
    """The rows of one CTA."""

    def __init__(self, rows: Rows, threads: int) -> None:
        self.rows = rows
        self.threads = threads
        self.arrays = {width: np.empty((rows.counts[width], threads), _bits(width)) for width in WIDTHS}
        self.clear()

    def clear(self) -> None:
        """Poison all registers and put the literals in place."""
        for width, array in self.arrays.items():
            array[:] = _POISON[width]
        for width, row, bits in self.rows.constants:
            self.arrays[width][row] = bits

    def put(self, width: int, row: int, values: np.ndarray | int) -> None:
        """Fill a row, with one value per thread or one for all."""
        self.arrays[width][row] = values

    def lanes(self, number: int, first: int, last: int) -> Any:
        """The lanes of threads `first` to `last` (exclusive) of a slot."""
        slot = self.rows.slots[number]
        if isinstance(slot, BlockSlot):
            return RegisterBlock(self.arrays[slot.width].view(slot.dtype)[:, first:last], slot.rows)
        lanes = self.arrays[slot.width][slot.row, first:last]
        size = slot.dtype.itemsize
        if slot.width in (0, size):
            return lanes.view(slot.dtype)
        return lanes.view(slot.dtype)[slot.part :: slot.width // size]
