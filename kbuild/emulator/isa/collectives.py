"""Instructions in which the threads of a warp communicate.

Lanes come as [32 * k]: k consecutive warps side by side.  `where` has the lanes that take part; a warp
takes part with all the threads that its member mask names, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kbuild.emulator.engine.findings import Fault
from kbuild.emulator.engine.register_block import RegisterBlock
from kbuild.emulator.isa.instruction_spec import Bound, Effects, Form, InstructionSpec, View
from kbuild.emulator.isa.moves import move
from kbuild.emulator.ptx.model import Immediate, Instruction, Operand, Pair, Sink

_LANE = np.arange(32)
_WARP = Effects(collective="warp")


def whole_warps(count: int, where: Any) -> np.ndarray:
    """For a collective of all 32 threads: which warps take part.  Raises Fault when a warp comes with only
    some."""
    if where is True:
        return np.ones(count // 32, bool)
    lanes = where.reshape(-1, 32)
    whole = lanes.all(1)
    if (lanes.any(1) != whole).any():
        partial = lanes[np.argmax(lanes.any(1) != whole)]
        raise Fault(
            "divergent-collective",
            f"only {int(partial.sum())} of the warp's 32 threads are here, all must be",
        )
    return whole


def check_members(members: np.ndarray, where: Any) -> np.ndarray:
    """The lanes named by the member masks, bool [k, 32].  Raises Fault unless those lanes are the ones that
    are here."""
    if where is True and members[0] == 0xFFFFFFFF and (members == 0xFFFFFFFF).all():
        return np.ones((len(members) // 32, 32), bool)
    here = np.ones((len(members) // 32, 32), bool) if where is True else where.reshape(-1, 32)
    masks = members.reshape(-1, 32)
    named = (masks[:, :, None] >> _LANE.astype(np.uint32) & 1).astype(
        bool
    )  # [warp, lane that names, lane named]
    for warp in np.flatnonzero(here.any(1)):
        lanes = here[warp]
        for lane in np.flatnonzero(lanes):
            names = named[warp, lane]
            if not names[lane]:
                raise Fault(
                    "divergent-collective",
                    f"lane {lane} executes it with a member mask without itself ({masks[warp, lane]:#010x})",
                )
            missing = names & ~lanes
            if missing.any():
                raise Fault(
                    "divergent-collective",
                    f"the member mask {masks[warp, lane]:#010x} names lane {int(np.argmax(missing))}, which is not here",
                )
    return here


def _shuffle(form: Form, instruction: Instruction) -> Bound:
    """`shfl.sync`: each lane takes the value of another lane of its segment."""
    mode = form.choose("up", "down", "bfly", "idx")
    target, *sources = instruction.operands
    outputs = (target.first, target.second) if isinstance(target, Pair) else (target,)
    views = [View(sources[0], "b32"), *(View(operand, "u32") for operand in sources[1:])]
    kinds = [(item, kind) for item, kind in zip(outputs, ("b32", "pred")) if not isinstance(item, Sink)]
    fixed = all(isinstance(operand, Immediate) for operand in sources[1:])
    known: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def function(
        value: np.ndarray,
        b: np.ndarray,
        c: np.ndarray,
        members: np.ndarray,
        *out: np.ndarray,
        where: Any = True,
    ) -> None:
        here = check_members(members, where)
        found = known.get(len(value)) if fixed else None
        if found is None:
            found = _shuffle_lanes(mode, b.reshape(-1, 32), c.reshape(-1, 32))
            known[len(value)] = found
        source, valid = found
        if where is not True and not np.take(here.ravel(), source)[here.ravel()].all():
            raise Fault("divergent-collective", "a lane reads the value of a lane that is not here")
        result = value[source]
        for (_, kind), view in zip(kinds, out):
            np.copyto(view, result if kind == "b32" else valid, where=where)

    def several(
        values: RegisterBlock, b: RegisterBlock, c: RegisterBlock, members: RegisterBlock, *out: RegisterBlock
    ) -> None:
        check_members(members.read()[0], True)  # The same for all.
        source, valid = _shuffle_lanes(mode, b.read().reshape(-1, 32), c.read().reshape(-1, 32))
        result = values.read().reshape(-1)[source]
        for (_, kind), block in zip(kinds, out):
            block.write((result if kind == "b32" else valid).reshape(-1, len(block)))

    given = (*views, *(View(item, kind) for item, kind in kinds))
    return Bound(function, given, False, several, len(kinds), (str(sources[-1]),))


def _shuffle_lanes(mode: str, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each lane the index of the lane it reads, and whether that lies in range."""
    clamp, segment = c & 31, c >> 8 & 31
    bottom = _LANE & segment
    top = bottom | (clamp & ~segment)
    amount = (b & 31).astype(np.int64)
    lane = {
        "up": _LANE - amount,
        "down": _LANE + amount,
        "bfly": _LANE ^ amount,
        "idx": bottom | (amount & ~segment.astype(np.int64) & 31),
    }[mode]
    valid = lane >= (_LANE & segment | clamp & ~segment) if mode == "up" else lane <= top
    lane = np.where(valid, lane, _LANE)
    return (lane + 32 * np.arange(len(b))[:, None]).ravel().astype(np.intp), valid.ravel()


def _per_warp(
    compute: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray], source_type: str, result_type: str
) -> Any:
    """A collective of `value, members` whose result `compute(values, named, here)` gives per lane, [k, 32]."""

    def handler(form: Form, instruction: Instruction) -> Bound:
        target, value, members = instruction.operands
        first = target.first if isinstance(target, Pair) else target
        kind, result = (form.type if name == "t" else name for name in (source_type, result_type))

        def function(values: np.ndarray, masks: np.ndarray, out: np.ndarray, where: Any = True) -> None:
            here = check_members(masks, where)
            named = (masks.reshape(-1, 32)[:, :, None] >> _LANE.astype(np.uint32) & 1).astype(bool)
            move(np.ascontiguousarray(compute(values.reshape(-1, 32), named, here)).ravel(), out, where)

        return Bound(
            function, (View(value, kind), View(members, "u32"), View(first, result)), wants_warps=False
        )

    return handler


def _ballot(values: np.ndarray, named: np.ndarray, here: np.ndarray) -> np.ndarray:
    bits = (values & here)[:, None, :] & named
    return (bits.astype(np.uint64) << _LANE.astype(np.uint64)).sum(2).astype(np.uint32)


def _all(values: np.ndarray, named: np.ndarray, here: np.ndarray) -> np.ndarray:
    return np.all(values[:, None, :] | ~named, axis=2)


def _any(values: np.ndarray, named: np.ndarray, here: np.ndarray) -> np.ndarray:
    return np.any(values[:, None, :] & named, axis=2)


def _uniform(values: np.ndarray, named: np.ndarray, here: np.ndarray) -> np.ndarray:
    return _all(values, named, here) | ~_any(values, named, here)


def _match_any(values: np.ndarray, named: np.ndarray, here: np.ndarray) -> np.ndarray:
    equal = (values[:, None, :] == values[:, :, None]) & named
    return (equal.astype(np.uint64) << _LANE.astype(np.uint64)).sum(2).astype(np.uint32)


def _match_all(form: Form, instruction: Instruction) -> Bound:
    """`match.all`: the member mask where all values are the same, else 0; the predicate says which."""
    target, value, members = instruction.operands
    outputs = (target.first, target.second) if isinstance(target, Pair) else (target,)
    kinds = [(item, kind) for item, kind in zip(outputs, ("b32", "pred")) if not isinstance(item, Sink)]

    def function(values: np.ndarray, masks: np.ndarray, *out: np.ndarray, where: Any = True) -> None:
        check_members(masks, where)
        named = (masks.reshape(-1, 32)[:, :, None] >> _LANE.astype(np.uint32) & 1).astype(bool)
        lanes = values.reshape(-1, 32)
        same = ((lanes[:, None, :] == lanes[:, :, None]) | ~named).all(2).ravel()
        for (_, kind), view in zip(kinds, out):
            move(same if kind == "pred" else np.where(same, masks, 0).astype(np.uint32), view, where)

    views = (View(value, form.type), View(members, "u32"), *(View(item, kind) for item, kind in kinds))
    return Bound(function, views, wants_warps=False)


def _reduction(form: Form) -> Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    operation = form.choose("add", "min", "max", "and", "or", "xor")
    function = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }[operation]
    dtype = form.dtype
    limits = np.iinfo(dtype)
    neutral = {"min": limits.max, "max": limits.min, "and": limits.max if dtype.kind == "u" else -1}.get(
        operation, 0
    )

    def compute(values: np.ndarray, named: np.ndarray, here: np.ndarray) -> np.ndarray:
        spread = np.where(named, values[:, None, :], dtype.type(neutral))
        return function.reduce(spread, axis=2, dtype=dtype)

    return compute


def _reduce(form: Form, instruction: Instruction) -> Bound:
    return _per_warp(_reduction(form), "t", "t")(form, instruction)


def _elect(form: Form, instruction: Instruction) -> Bound:
    """`elect.sync`: the lowest lane named is the leader."""
    target, members = instruction.operands
    outputs = (target.first, target.second) if isinstance(target, Pair) else (target, Sink())
    kinds: list[tuple[Operand, str]] = [
        (item, kind) for item, kind in zip(outputs, ("b32", "pred")) if not isinstance(item, Sink)
    ]

    def function(masks: np.ndarray, *out: np.ndarray, where: Any = True) -> None:
        here = check_members(masks, where)
        leader = np.repeat(here.argmax(1), 32)
        for (_, kind), view in zip(kinds, out):
            move(
                leader == np.tile(_LANE, len(here)) if kind == "pred" else leader.astype(np.uint32),
                view,
                where,
            )

    return Bound(
        function, (View(members, "u32"), *(View(item, kind) for item, kind in kinds)), wants_warps=False
    )


def _active_mask(form: Form, instruction: Instruction) -> Bound:
    def function(out: np.ndarray, where: Any = True) -> None:
        here = np.ones((len(out) // 32, 32), bool) if where is True else where.reshape(-1, 32)
        mask = (here.astype(np.uint64) << _LANE.astype(np.uint64)).sum(1).astype(np.uint32)
        move(np.repeat(mask, 32), out, where)

    return Bound(function, (View(instruction.operands[0], "b32"),), wants_warps=False)


def _warp_barrier(form: Form, instruction: Instruction) -> Bound:
    def function(members: np.ndarray, where: Any = True) -> None:
        check_members(members, where)

    return Bound(function, (View(instruction.operands[0], "u32"),), wants_warps=False)


ROWS = [
    InstructionSpec(
        "shfl.sync{up|down|bfly|idx}.b32", "", "value of another lane", handler=_shuffle, effects=_WARP
    ),
    InstructionSpec(
        "vote.sync.ballot.b32",
        "",
        "predicates of the warp as bits",
        handler=_per_warp(_ballot, "pred", "b32"),
        effects=_WARP,
    ),
    InstructionSpec(
        "vote.sync.all.pred",
        "",
        "whether all predicates hold",
        handler=_per_warp(_all, "pred", "pred"),
        effects=_WARP,
    ),
    InstructionSpec(
        "vote.sync.any.pred",
        "",
        "whether any predicate holds",
        handler=_per_warp(_any, "pred", "pred"),
        effects=_WARP,
    ),
    InstructionSpec(
        "vote.sync.uni.pred",
        "",
        "whether all predicates are the same",
        handler=_per_warp(_uniform, "pred", "pred"),
        effects=_WARP,
    ),
    InstructionSpec(
        "match.any.sync{b32|b64}",
        "",
        "lanes with the same value",
        handler=_per_warp(_match_any, "t", "b32"),
        effects=_WARP,
    ),
    InstructionSpec(
        "match.all.sync{b32|b64}",
        "",
        "whether all lanes have the same value",
        handler=_match_all,
        effects=_WARP,
    ),
    InstructionSpec(
        "redux.sync{add|min|max}{u32|s32}", "", "reduction over the warp", handler=_reduce, effects=_WARP
    ),
    InstructionSpec(
        "redux.sync{and|or|xor}.b32", "", "bitwise reduction over the warp", handler=_reduce, effects=_WARP
    ),
    InstructionSpec("elect.sync", "", "a leader of the warp", handler=_elect, effects=_WARP),
    InstructionSpec("activemask.b32", "", "lanes that are here", handler=_active_mask),
    InstructionSpec(
        "bar.warp.sync", "", "meeting of the threads of a warp", handler=_warp_barrier, effects=_WARP
    ),
]
