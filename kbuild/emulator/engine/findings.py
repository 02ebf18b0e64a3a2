"""What the emulator reports about a run: faults, misuse, deadlocks."""

from __future__ import annotations

from dataclasses import dataclass

from kbuild.emulator.ptx.model import Instruction, own_place
from kbuild.errors import KbuildError, Loc

_WIDTH = 110


@dataclass(frozen=True)
class Finding:
    """One error of a kernel, and the instruction where it showed."""

    kind: str
    """A fixed word, such as `out-of-bounds`, `misaligned`, `divergent-collective`, `deadlock` or
    `step-budget`."""
    message: str
    instruction: Instruction | None = None
    place: Loc | None = None
    """The kernel source line, where the PTX has it."""
    cta: tuple[int, int, int] | None = None
    warps: tuple[int, ...] = ()
    other: Instruction | None = None
    """The instruction before it that it conflicts with."""
    other_place: Loc | None = None
    count: int = 1
    """How often this was found."""

    def __str__(self) -> str:
        lines = [f"{self.kind}: {self.message}"]
        if self.instruction is not None:
            lines.append(f"  at PTX line {self.instruction.line}: {_short(self.instruction)}")
        if self.place is not None:
            lines.append(f"  from {_shown(self.place)}")
        if self.other is not None:
            lines.append(f"  against PTX line {self.other.line}: {_short(self.other)}")
        if self.other_place is not None:
            lines.append(f"  from {_shown(self.other_place)}")
        if self.cta is not None:
            warps = f", warp {', '.join(map(str, self.warps))}" if self.warps else ""
            times = f"; {self.count} times" if self.count > 1 else ""
            lines.append(f"  in CTA {self.cta}{warps}{times}")
        return "\n".join(lines)


def _shown(place: Loc) -> str:
    """A place, and where it is in another file than the kernel's, the line there that leads to it."""
    own = own_place(place)
    return str(place) if own.file == place.file else f"{place}, called from {own}"


def _short(instruction: Instruction) -> str:
    """An instruction without most of a long list of registers."""
    text = str(instruction)
    return text if len(text) <= _WIDTH else text[:_WIDTH] + " …"


class Fault(Exception):
    """Raised where a rule is broken; the engine adds the place and ends the run."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class EmulationError(KbuildError):
    """A run that could not be done, or that `Report.check` found wrong."""
