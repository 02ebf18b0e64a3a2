"""How many iterations before its use each load is issued, and how many buffers that takes.

With n stages a copy is issued n - 1 iterations early.  Where its address needs loads of the same iteration (a
gather through a table), these go early too, and the distance is shared out: n - 1 = distance * levels.

In an iteration the wait comes first, then a barrier, then the next copies, then the reads.  While buffer t is
read, the copies of iterations t + 1 … t + distance are on their way, and all threads have passed the barrier
of iteration t, so have read buffer t - 1: `distance + 1` buffers are enough for one barrier per iteration,
and no fewer are.

Tiles that are `stored` come into registers two iterations early, and into their buffers one iteration early, after
the wait and the barrier: that of the next iteration, which they need, is there anyway.

Where there is room for one buffer only, the copies of the next iteration are issued when this one's reads are
done, after a barrier of their own: `in_place`.

A dot of warpgroups that sums in place still reads buffer t - 1 then, and ends while that of iteration t runs.
Where all copies feed such dots, they are issued behind the last of them (`issue_after`), once those of
iteration t - 1 have ended and all threads know it: a second barrier for each iteration, but n stages are n
buffers with n - 1 copies on their way.  Where only some do, these are `lagging`, and have one buffer more.  So
that n stages still mean n buffers, the distance is one less, but 1 at least; and for n = 3 it is 2 where an iteration
takes less time than a copy, and the buffers keep no other program out.

An iteration that takes long, and has three copies by threads on their way (for which it gets a buffer more where that is
free), waits for those of the next one, not for its own: behind its dot, and before it issues more (`waits_ahead`).  Then
one barrier shows what has landed and that the dot before has ended; and the fence that dots need before they read what
threads have copied comes before the new copies, for which it would wait, too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from kbuild.compiler.ir.core import Op, Value
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.tensor import Load
from kbuild.compiler.transforms.gpu.pipeline.loads import Slice, backward_slice

MIN_STAGES = 2


class Stage(NamedTuple):
    """Loads that are issued `lookahead` iterations early, and give their values `use` iterations early."""

    loads: tuple[Load, ...]
    lookahead: int
    use: int
    slice: Slice
    """The operations that compute their addresses; where `asynchronous` is false, with the loads
    themselves."""
    known: frozenset[Load]
    """Loads of an earlier stage whose values the slice uses."""
    asynchronous: bool


class LoopSchedule(NamedTuple):
    """The stages of a loop, those issued earliest first."""

    stages: tuple[Stage, ...]
    distance: int
    lagging: frozenset[Load] = frozenset()
    """Those that dots still read in the iteration after their own."""
    in_place: bool = False
    """Whether the next copies go into the buffer that the iteration has just read."""
    issue_after: Op | None = None
    """The last dot behind which the copies are issued; None for right after the wait."""
    waits_ahead: bool = False
    """Whether an iteration waits for the next one's copies, behind that dot."""
    stored: frozenset[Load] = frozenset()
    """Those that come into registers, and are stored into their buffers an iteration before they are used."""

    def buffers(self, load: Load) -> int:
        """The size of a load's ring of buffers."""
        return self.distance + 1 + (load in self.lagging) - self.in_place

    @property
    def start(self) -> int:
        """Iterations before the first at which something is issued."""
        return max((stage.lookahead for stage in self.stages), default=0)


def ring_bytes(num_stages: int, stage_bytes: int, lagging_bytes: int = 0) -> int:
    """Shared memory for so many stages, where the tiles of an iteration take `stage_bytes`, those of them
    that are lagging `lagging_bytes`."""
    return (_distance(num_stages, lagging_bytes > 0) + 1) * stage_bytes + lagging_bytes


def _distance(num_stages: int, lags: bool) -> int:
    return max(num_stages - 1 - lags, MIN_STAGES - 1)


def fitting_stages(
    num_stages: int, stage_bytes: int, other_bytes: int, limit: int, lagging_bytes: int = 0
) -> int:
    """The number of stages, at most `num_stages`, whose buffers fit in shared memory; below 2 when pipelining
    does not."""
    while (
        num_stages >= MIN_STAGES and ring_bytes(num_stages, stage_bytes, lagging_bytes) + other_bytes > limit
    ):
        num_stages -= 1
    return num_stages


def make_schedule(
    loop: For,
    copied: Sequence[Load],
    held: Sequence[Load],
    num_stages: int,
    lagging: Collection[Load] = (),
    by_tma: bool = False,
    stored: Collection[Load] = (),
) -> LoopSchedule:
    """The stages of a loop with `copied` loads, which become asynchronous, but for those of them that are
    `stored`, and `held` ones, which stay in registers. Copies `by_tma` have indices for addresses.

    Values held in registers take registers for every iteration that they are early, so they are early by one
    only.
    """
    stages: list[Stage] = []
    distance = _distance(num_stages, bool(lagging))
    if stored:
        stages.append(_register_stage(loop, tuple(stored), 2, 1))
    copied = [load for load in copied if load not in stored]
    if copied:
        direct = _union(loop, copied, frozenset(), by_tma=by_tma)
        tables = tuple(op for op in direct.ops if isinstance(op, Load))
        known: frozenset[Load] = frozenset()
        if tables and distance >= 2:
            distance //= 2
            known = frozenset(tables)
            stages.append(_register_stage(loop, tables, 2 * distance, distance))
        stages.append(
            Stage(tuple(copied), distance, 0, _union(loop, copied, known, by_tma=by_tma), known, True)
        )
    early = frozenset(load for stage in stages for load in stage.loads)
    held = [
        load for load in held if load not in early
    ]  # A table of addresses is loaded again for its own iteration.
    if held:
        stages.append(_register_stage(loop, held, 1, 0))
    return LoopSchedule(
        tuple(sorted(stages, key=lambda stage: -stage.lookahead)),
        distance,
        frozenset(lagging),
        stored=frozenset(stored),
    )


def _register_stage(loop: For, loads: Sequence[Load], lookahead: int, use: int) -> Stage:
    found = _union(loop, loads, frozenset(), itself=True)
    return Stage(tuple(loads), lookahead, use, found, frozenset(), asynchronous=False)


def _union(
    loop: For, loads: Sequence[Load], known: frozenset[Load], itself: bool = False, by_tma: bool = False
) -> Slice:
    """The slice that all of the loads need, with or without the loads."""
    roots: list[Value] = []
    for load in loads:
        address = load.indices if by_tma else [value for value in (load.ptr, load.mask) if value is not None]
        roots.extend([load.result] if itself else address)
    found = backward_slice(loop, roots, known)
    assert found is not None, "loads were chosen by their slices"
    return found
