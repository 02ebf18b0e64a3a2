"""The functions that PTX declares but does not define: printing and failed assertions."""

from __future__ import annotations

import re
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from kbuild.emulator.engine.findings import Fault
from kbuild.emulator.isa.table import Bound, View
from kbuild.emulator.ptx.model import Address, Instruction, Operand, PtxError, Symbol, Vector

_CONVERSION = re.compile(r"%[-+ #0]*\d*(?:\.\d+)?(hh|h|ll|l|z)?([diuoxXcfFeEgGaAsp%])")


def bind(instruction: Instruction) -> Bound:
    """The handler of a call of `vprintf` or `__assertfail`.  Raises PtxError for any other function."""
    name = next((operand.name for operand in instruction.operands if isinstance(operand, Symbol)), "")
    arguments = next(
        (operand.items for operand in reversed(instruction.operands) if isinstance(operand, Vector)), ()
    )
    if name == "vprintf" and len(arguments) == 2:
        return Bound(
            partial(_print, instruction), tuple(View(_parameter(argument), "b64") for argument in arguments)
        )
    if name == "__assertfail" and len(arguments) >= 4:
        kinds = ("b64", "b64", "b32", "b64")
        views = tuple(View(_parameter(argument), kind) for argument, kind in zip(arguments, kinds))
        return Bound(partial(_assert_fail, instruction), views)
    raise PtxError(f"line {instruction.line}: {name or 'an unnamed function'} is called but not defined")


def _parameter(operand: Operand) -> Address:
    if not isinstance(operand, Symbol):
        raise PtxError(f"expected a parameter, found {operand}")
    return Address(Symbol(operand.name))


class _Reader(NamedTuple):
    """What a function reads for one lane that calls it."""

    warps: Any
    call: Instruction
    lane: int

    def load(self, address: int, size: int) -> np.ndarray:
        site = self.warps, self.call, np.array([self.lane])
        return self.warps.memory.load("generic", np.array([address], np.uint64), size, True, site)

    def text(self, address: int) -> str:
        """The string at a generic address."""
        found = bytearray()
        while len(found) < 4096:
            byte = int(self.load(address + len(found), 1)[0])
            if byte == 0:
                break
            found.append(byte)
        return found.decode("utf-8", "replace")


def _print(
    call: Instruction, warps: Any, template: np.ndarray, values: np.ndarray, where: Any = True
) -> None:
    lanes = range(len(template)) if where is True else np.flatnonzero(where).tolist()
    for lane in lanes:
        reader = _Reader(warps, call, lane)
        warps.launch.printed.append(_format(reader, reader.text(int(template[lane])), int(values[lane])))


def _format(reader: _Reader, template: str, address: int) -> str:
    """A line of output: arguments lie one after the other, each aligned to its size."""
    position = address

    def take(size: int) -> np.ndarray:
        nonlocal position
        position = -(-position // size) * size
        found = reader.load(position, size)
        position += size
        return found

    def convert(match: re.Match[str]) -> str:
        length, kind = match[1] or "", match[2]
        if kind == "%":
            return "%"
        plain = match[0].replace(length, "") if length else match[0]
        if kind == "s":
            return plain % reader.text(int(take(8)[0]))
        if kind in "fFeEgGaA":
            return (plain[:-1] + ("f" if kind in "aA" else kind)) % float(take(8).view(np.float64)[0])
        bits = take(8 if length in ("l", "ll", "z") or kind == "p" else 4)
        value = int(bits.view(f"i{bits.itemsize}")[0]) if kind in "di" else int(bits[0])
        return f"{value:#x}" if kind == "p" else plain % value

    return _CONVERSION.sub(convert, template)


def _assert_fail(
    call: Instruction,
    warps: Any,
    message: np.ndarray,
    file: np.ndarray,
    line: np.ndarray,
    function: np.ndarray,
    where: Any = True,
) -> None:
    lane = 0 if where is True else int(np.argmax(where))
    reader = _Reader(warps, call, lane)
    what, path, name = (reader.text(int(address[lane])) for address in (message, file, function))
    raise Fault("assertion", f"{path}:{int(line[lane])}: {what} in {name}")
