"""What `timed.py` finds: a row for each launch that ran twice, their file, and the table of functions."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

MOST = 2e-2
"""The relative difference of results beyond which they are wrong."""
LEAST = 0.98
"""The ratio of times from which on ours counts as as fast as Triton's."""
BEGUN, DIED, TIMED = "begun", "died", "timed"


@dataclass(frozen=True)
class Difference:
    """How what our kernel wrote to the memory of one argument differs from what Triton's did."""

    argument: str
    relative: float
    """Of floating-point elements the relative L2 difference, of others the share of those that differ."""
    odd: int = 0
    """Elements that are infinite or NaN on one side, and not the same on the other."""
    nans: tuple[int, int] = (0, 0)
    """NaNs that ours wrote, and Triton's."""
    again: float = 0.0
    """The relative difference of Triton's own result when it ran once more, where ours differs; infinite where elements
    were finite once alone."""

    @property
    def differs(self) -> bool:
        """Whether it is more than rounding.  Where Triton's result has NaNs, nothing is known."""
        return not self.nans[1] and (self.odd > 0 or self.relative > MOST)

    @property
    def is_unstable(self) -> bool:
        """Whether Triton's differs from itself as well, as that of a kernel with a race or of one that reads what nobody
        wrote."""
        return self.differs and self.again > MOST

    def __str__(self) -> str:
        notes = [f"{self.argument} {self.relative:.1e}"]
        if self.odd:
            notes.append(f"{self.odd} not finite on one side alone")
        if any(self.nans):
            notes.append(f"NaNs {self.nans[0]}, Triton's {self.nans[1]}")
        if self.again:
            notes.append(f"Triton's once more {self.again:.1e}")
        return ", ".join(notes)


@dataclass(frozen=True)
class Side:
    """One of the two compiled kernels."""

    registers: int | None
    spills: int | None
    """Bytes: stores of ours, local memory of a thread for Triton's."""
    shared: int
    """Bytes, dynamic ones."""
    warps: int
    us: float | None = None
    """Median time of a launch, in microseconds."""


@dataclass(frozen=True)
class Row:
    """One launch of the command, the first of its kernel with its grid."""

    function: str
    """`ops/rms_norm.py:rms_norm_kernel`."""
    grid: tuple[int, ...]
    problem: str = ""
    """The same for launches with the same sizes, whichever configuration they have."""
    kind: str = BEGUN
    """`timed`; `begun`, while it runs, and `died`, where the process did not survive that; `large` and `memory`, where
    there was too much of its tensors; or where it failed: `request`, `compile`, `launch`, `compare`, `time`, and `triton`
    for Triton's own launch."""
    text: str = ""
    """Why it failed; of a row that was begun, what is done: `while both ran`."""
    ours: Side | None = None
    theirs: Side | None = None
    differences: tuple[Difference, ...] = ()
    """Of arguments whose memory they wrote differently, or wrote NaNs to."""
    poison: bool = False
    """Whether Triton's code takes a value for which there is none, such as a loop's variable after the loop, so that what
    it writes may be anything, and the same each time; ours is what Python would have."""

    @property
    def ratio(self) -> float:
        """Triton's time over ours; 0 where there are no times."""
        return self.their_us / self.our_us if self.our_us else 0.0

    @property
    def our_us(self) -> float:
        return (self.ours and self.ours.us) or 0.0

    @property
    def their_us(self) -> float:
        return (self.theirs and self.theirs.us) or 0.0

    @property
    def wrong(self) -> list[Difference]:
        return [one for one in self.differences if self.verdict(one) == "wrong"]

    def verdict(self, difference: Difference) -> str:
        """What one of its differences is: `wrong`; `poison`, `unstable` or `nan`, where that is not ours to be blamed for;
        or nothing, where it is rounding."""
        if difference.differs:
            return "poison" if self.poison else "unstable" if difference.is_unstable else "wrong"
        return "nan" if difference.nans[1] and difference.odd else ""

    def line(self) -> str:
        """The row as a line of JSON."""
        return json.dumps(asdict(self)) + "\n"


def row_of(made: dict[str, Any]) -> Row:
    """A row from what its line says."""
    parts: dict[str, Any] = {name: Side(**made[name]) for name in ("ours", "theirs") if made[name]}
    found = (Difference(**one | {"nans": tuple(one["nans"])}) for one in made["differences"])
    return Row(**made | parts | {"grid": tuple(made["grid"]), "differences": tuple(found)})


def read(folder: Path) -> list[Row]:
    """The rows of all processes.  A launch that was begun and says nothing more took its process with it."""
    return [row for file in sorted(folder.glob("*.jsonl")) for row in _of_process(file)]


def _of_process(file: Path) -> Iterator[Row]:
    begun: Row | None = None
    for line in file.read_text().splitlines():
        try:
            row = row_of(json.loads(line))
        except ValueError:  # The process was killed while it wrote.
            break
        if row.kind != BEGUN:
            yield row
        begun = row if row.kind == BEGUN else None
    if begun is not None:
        yield replace(begun, kind=DIED, text=f"the process ended {begun.text}")


def mean(values: Sequence[float]) -> float:
    """The geometric mean of positive numbers; NaN of none."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


@dataclass(frozen=True)
class Function:
    """The times of one function, over its grids and configurations."""

    name: str
    rows: Sequence[Row]
    """At least one."""

    @property
    def ratio(self) -> float:
        return mean([row.ratio for row in self.rows])

    @property
    def least(self) -> float:
        return min(row.ratio for row in self.rows)

    @property
    def best(self) -> float:
        """The ratio of the best configurations of both, over the problems that it was launched for."""
        problems: dict[str, list[Row]] = defaultdict(list)
        for row in self.rows:
            problems[row.problem].append(row)
        return mean(
            [
                min(one.their_us for one in rows) / min(one.our_us for one in rows)
                for rows in problems.values()
            ]
        )

    def __str__(self) -> str:
        longest = max(self.rows, key=lambda row: row.their_us)
        ours, theirs = longest.ours, longest.theirs
        assert ours is not None and theirs is not None
        facts = [
            f"{'-' if mine is None else mine}/{'-' if other is None else other}"
            for mine, other in (
                (ours.registers, theirs.registers),
                (ours.spills, theirs.spills),
                (ours.shared, theirs.shared),
                (ours.warps, theirs.warps),
            )
        ]
        times = f"{self.ratio:6.2f} {self.least:6.2f} {self.best:6.2f} {len(self.rows):5}"
        times += f" {longest.our_us:9.1f} {longest.their_us:9.1f}"
        return f"{times} {facts[0]:>9} {facts[1]:>11} {facts[2]:>13} {facts[3]:>5}  {self.name}"


def functions(rows: Iterable[Row], floor: float) -> list[Function]:
    """The functions with launches for which Triton takes at least so many microseconds, the slowest of ours first."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.ratio and row.their_us >= floor:
            found[row.function].append(row)
    return sorted((Function(name, own) for name, own in found.items()), key=lambda one: one.ratio)


def table(rows: Sequence[Row], floor: float) -> str:
    """All that is said: wrong results, then what failed, then a line for each function, then the summary."""
    lines: list[str] = []
    for row in sorted(
        rows, key=lambda row: max((one.relative for one in row.wrong), default=0.0), reverse=True
    ):
        lines += [f"wrong    {row.function} {_grid(row)}: {one}" for one in row.wrong]
    for row in rows:
        lines += [
            f"{verdict:8} {row.function} {_grid(row)}: {one}"
            for one in row.differences
            if (verdict := row.verdict(one)) not in ("", "wrong")
        ]
    failed = Counter((row.kind, row.function, row.text) for row in rows if row.kind != TIMED)
    for (kind, name, text), count in failed.most_common():
        lines.append(f"{kind:8} {name}: {text}" + (f" ({count} runs)" if count > 1 else ""))
    found = functions(rows, floor)
    if found:
        lines.append(
            f"{'ratio':>6} {'least':>6} {'best':>6} {'runs':>5} {'ours us':>9} {'theirs us':>9} "
            f"{'registers':>9} {'spills':>11} {'shared':>13} {'warps':>5}  function (ours/Triton's)"
        )
    lines += map(str, found)
    return "\n".join([*lines, summary(rows, floor)])


def _grid(row: Row) -> str:
    return "x".join(map(str, row.grid))


def summary(rows: Sequence[Row], floor: float) -> str:
    """Counts, the geometric mean over functions, and the least."""
    kinds = Counter(row.kind for row in rows)
    wrong = len({row.function for row in rows if row.wrong})
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()) or "none"
    lines = [f"launches: {counts}; functions with wrong results: {wrong}"]
    found = functions(rows, floor)
    if found:
        ratios = [one.ratio for one in found]
        best = mean([one.best for one in found])
        fast = sum(ratio >= LEAST for ratio in ratios)
        lines.append(
            f"{len(found)} functions of at least {floor:g} us: geometric mean {mean(ratios):.3f} "
            f"(best configurations {best:.3f}), least {min(ratios):.2f}, {fast} at {LEAST} or more"
        )
    return "\n".join(lines)
