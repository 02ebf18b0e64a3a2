"""`cp.async` and `mbarrier`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kbuild.emulator.async_ops import Asynchronous, agent_of
from kbuild.emulator.async_ops.operation import notify
from kbuild.emulator.engine.findings import Fault
from kbuild.emulator.isa.access import address_of, space_of
from kbuild.emulator.isa.instruction_spec import Bound, Effects, Form, InstructionSpec, View
from kbuild.emulator.isa.places import active_lanes, count_view, number, shared_place, touch
from kbuild.emulator.ptx.model import Address, Instruction, PtxError, Sink


def _copy(form: Form, instruction: Instruction) -> Bound:
    """`cp.async [shared], [global], size{, bytes read or predicate to read none}{, cache policy}`."""
    target, source, *rest = instruction.operands
    (to, to_offset), (origin, origin_offset) = address_of(target), address_of(source)
    size = number(rest[0])
    if size not in (4, 8, 16) or (form.has("cg") and size != 16):
        raise PtxError(f"{instruction.name} cannot copy {size} bytes")
    rest = rest[1:-1] if form.has("L2::cache_hint") else rest[1:]
    amount_views = tuple(View(operand, "u32", fit="predicate") for operand in rest)

    def function(
        warps: Any, start: np.ndarray, begin: np.ndarray, *amounts: np.ndarray, where: Any = True
    ) -> None:
        lanes = active_lanes(warps.size, where)
        moved = amounts[0][lanes].astype(np.int64) if amounts else np.full(len(lanes), size)
        if amounts and amounts[0].dtype == bool:
            moved = size * (1 - moved)
        if (moved > size).any():
            raise Fault("async-misuse", f"reads {int(moved.max())} bytes to fill {size}")
        agent_of(warps.cta).copies.issue(
            (warps, instruction, lanes),
            warps.first_thread + lanes,
            start[lanes].astype(np.int64) + to_offset,
            begin[lanes].astype(np.int64) + origin_offset,
            size,
            moved,
        )

    return Bound(function, (to, origin, *amount_views))


def _copy_commit(form: Form, instruction: Instruction) -> Bound:
    def function(warps: Any, where: Any = True) -> None:
        agent_of(warps.cta).copies.commit(warps.first_thread + active_lanes(warps.size, where))

    return Bound(function)


def _copy_wait(form: Form, instruction: Instruction) -> Bound:
    allowed = None if form.has("wait_all") else number(instruction.operands[0])

    def function(warps: Any, where: Any = True) -> None:
        lanes = active_lanes(warps.size, where)
        agent_of(warps.cta).copies.wait(warps.first_thread + lanes, allowed, (warps, instruction, lanes))

    return Bound(function)


def _copy_arrive(form: Form, instruction: Instruction) -> Bound:
    """`cp.async.mbarrier.arrive`: each thread arrives when its copies so far have landed."""
    view, offset = address_of(instruction.operands[0])
    generic = space_of(form) == "generic"

    def function(warps: Any, start: np.ndarray, where: Any = True) -> None:
        agent = agent_of(warps.cta)
        for lane in active_lanes(warps.size, where).tolist():
            owner, place = shared_place(warps, int(start[lane]) + offset, generic)
            if not form.has("noinc"):
                owner.barriers.more(place, 1)
            site = (warps, instruction, np.array([lane]))
            touch("atomic", owner, place, site)
            agent.copies.when_landed(warps.first_thread + lane, _arrival(owner, place, site))

    return Bound(function, (view,))


def _arrival(owner: Asynchronous, place: int, site: Any) -> Callable[[], None]:
    def arrive() -> None:
        phase = owner.barriers.arrive(place)
        notify(owner.cta.memory.observers, "arrived", (owner.cta.shared, place), phase, site, None)

    return arrive


def _barrier_manage(form: Form, instruction: Instruction) -> Bound:
    """`mbarrier.init` and `mbarrier.inval`."""
    view, offset = address_of(instruction.operands[0])
    generic, views = space_of(form) == "generic", tuple(map(count_view, instruction.operands[1:]))

    def function(warps: Any, start: np.ndarray, *counts: np.ndarray, where: Any = True) -> None:
        for lane in active_lanes(warps.size, where).tolist():
            agent, place = shared_place(warps, int(start[lane]) + offset, generic)
            touch("store", agent, place, (warps, instruction, np.array([lane])))
            if counts:
                if agent.barriers.init(place, int(counts[0][lane])):
                    notify(
                        warps.memory.observers,
                        "reused",
                        (agent.cta.shared, place),
                        (warps, instruction, np.array([lane])),
                    )
            else:
                _check_waiters(agent, place)
                agent.barriers.invalidate(place)

    return Bound(function, (view, *views))


def _barrier_arrive(form: Form, instruction: Instruction) -> Bound:
    """Arrivals, announcements of bytes, and both at once; returns the phase as the state."""
    arrives = form.has("arrive") or form.has("arrive_drop")
    gives = arrives and not isinstance(instruction.operands[0], Address)
    result, operands = (
        (instruction.operands[0] if gives else Sink()),
        instruction.operands[1 if gives else 0 :],
    )
    view, offset = address_of(operands[0])
    generic, given = space_of(form) == "generic", tuple(map(count_view, operands[1:]))
    states = () if isinstance(result, Sink) else (View(result, "b64"),)
    transfer, completes, completes_phase = (
        form.has("expect_tx"),
        form.has("complete_tx"),
        not form.has("noComplete"),
    )
    if (transfer or completes) and not given:
        raise PtxError(f"{instruction.name} lacks a number of bytes")

    def function(warps: Any, start: np.ndarray, *views: np.ndarray, where: Any = True) -> None:
        for lane in active_lanes(warps.size, where).tolist():
            agent, place = shared_place(warps, int(start[lane]) + offset, generic)
            amount = int(views[0][lane]) if given else 1
            site = (warps, instruction, np.array([lane]))
            touch("atomic", agent, place, site)
            if transfer:
                agent.barriers.expect(place, amount)
            if completes:
                agent.barriers.complete(place, amount)
            if arrives:
                phase = agent.barriers.arrive(
                    place, 1 if transfer else amount, form.has("arrive_drop"), completes_phase
                )
                notify(warps.memory.observers, "arrived", (agent.cta.shared, place), phase, site, None)
                if states:
                    views[-1][lane] = phase

    return Bound(function, (view, *given, *states))


def _check_waiters(agent: Asynchronous, place: int) -> None:
    """Raise Fault where warps wait for the mbarrier there."""
    for cta in agent.cta.cluster.ctas:
        for batch in cta.batches:
            waits = batch.waiting.waits if isinstance(batch.waiting, MbarrierWait) else ()
            if any(owner is agent and offset == place for owner, offset, _, _ in waits):
                text = f"the mbarrier at {place:#x} is invalidated while warp {batch.first} waits for it"
                raise Fault("mbarrier-misuse", text)


@dataclass(frozen=True)
class MbarrierWait:
    """Threads waiting for phases of mbarriers."""

    waits: tuple[tuple[Asynchronous, int, int, int], ...]
    """Owner, offset, phase and lane."""
    site: Any

    def ready(self) -> bool:
        if not all(agent.barriers.at(place).phase > phase for agent, place, phase, _ in self.waits):
            return False
        _tell_passed(self.waits, self.site)
        return True

    def describe(self) -> str:
        agent, place, _, _ = next(
            wait for wait in self.waits if wait[0].barriers.at(wait[1]).phase <= wait[2]
        )
        return f"waits {agent.barriers.describe(place)}"


def _tell_passed(waits: Any, site: Any) -> None:
    for (agent, place, phase), lanes in _lanes_by_phase(waits).items():
        where = (site[0], site[1], np.array(lanes))
        notify(agent.cta.memory.observers, "passed", (agent.cta.shared, place), phase, where)


def _lanes_by_phase(waits: Any) -> dict[tuple[Asynchronous, int, int], list[int]]:
    """The lanes that test each phase of an mbarrier."""
    found: dict[tuple[Asynchronous, int, int], list[int]] = {}
    for agent, place, phase, lane in waits:
        found.setdefault((agent, place, phase), []).append(lane)
    return found


def _barrier_wait(form: Form, instruction: Instruction) -> Bound:
    """`test_wait` tests; `try_wait` blocks until the phase is complete, or fails once to expose a missing
    loop."""
    target, address, state = instruction.operands[:3]
    view, offset = address_of(address)
    generic, parity, tries = space_of(form) == "generic", form.has("parity"), form.has("try_wait")

    def function(
        warps: Any, start: np.ndarray, states: np.ndarray, out: np.ndarray, where: Any = True
    ) -> Any:
        own, site = agent_of(warps.cta), (warps, instruction)
        open_waits, passed = [], []
        looked: dict[tuple[int, int], tuple[bool, tuple[Asynchronous, int, int]]] = {}
        for lane in active_lanes(warps.size, where).tolist():
            key = int(start[lane]), int(states[lane])
            if key not in looked:  # Most often all lanes test the same one.
                agent, place = shared_place(warps, key[0] + offset, generic)
                current = agent.barriers.at(place).phase
                done = (
                    agent.barriers.passed(place, key[1] & 1)
                    if parity
                    else agent.barriers.passed_token(place, key[1])
                )
                looked[key] = done, (agent, place, current - 1 if done else current)
            done, phase = looked[key]
            out[lane] = done
            (passed if done else open_waits).append((*phase, lane))
        for (agent, place, _), lanes in _lanes_by_phase(passed + open_waits).items():
            touch("atomic", agent, place, (*site, np.array(lanes)))
        _tell_passed(passed, site)
        if not open_waits:
            return None
        key = (warps.first, open_waits[0][1], open_waits[0][2])
        if not tries or (own.timing.adversarial and key not in own.looked):
            own.looked.add(key)
            own.looked_in_vain()
            return None
        for _, _, _, lane in open_waits:
            out[lane] = True
        return MbarrierWait(tuple(open_waits), site)

    return Bound(function, (view, View(state, "u32" if parity else "b64"), View(target, "pred")))


_ORDER = "[release|relaxed|acquire][cta|cluster]"
_PLACE = "[shared|shared::cta|shared::cluster]"
_COPY = Effects(reads=("global",), writes=("shared",), asynchronous=True)
_ARRIVE = Effects(reads=("shared",), writes=("shared",), atomic=True)
_WAIT = Effects(reads=("shared",), waits=True)
_STATE = Effects(writes=("shared",))

ROWS = [
    InstructionSpec(
        "cp.async{ca|cg}{shared|shared::cta}.global[L2::cache_hint][L2::64B|L2::128B|L2::256B]",
        "",
        "copy from global to shared memory",
        handler=_copy,
        effects=_COPY,
    ),
    InstructionSpec("cp.async.commit_group", "", "end a group of copies", handler=_copy_commit),
    InstructionSpec(
        "cp.async.wait_group",
        "",
        "wait for all groups of copies but the last few",
        handler=_copy_wait,
        effects=Effects(writes=("shared",)),
    ),
    InstructionSpec(
        "cp.async.wait_all",
        "",
        "wait for all copies",
        handler=_copy_wait,
        effects=Effects(writes=("shared",)),
    ),
    InstructionSpec(
        "cp.async.mbarrier.arrive[noinc][shared|shared::cta].b64",
        "",
        "arrive when all copies have landed",
        handler=_copy_arrive,
        effects=_ARRIVE,
    ),
    InstructionSpec(
        "mbarrier.init[shared|shared::cta].b64",
        "",
        "make an mbarrier",
        handler=_barrier_manage,
        effects=_STATE,
    ),
    InstructionSpec(
        "mbarrier.inval[shared|shared::cta].b64",
        "",
        "end the use of an mbarrier",
        handler=_barrier_manage,
        effects=_STATE,
    ),
    *(
        InstructionSpec(
            f"mbarrier{operation}{_ORDER}{_PLACE}.b64", "", summary, handler=_barrier_arrive, effects=_ARRIVE
        )
        for operation, summary in (
            ("{arrive|arrive_drop}[expect_tx]", "arrive at an mbarrier, perhaps announcing bytes"),
            (".expect_tx", "announce bytes to an mbarrier"),
            (".complete_tx", "report bytes to an mbarrier"),
        )
    ),
    InstructionSpec(
        "mbarrier{arrive|arrive_drop}.noComplete[release|relaxed][cta][shared|shared::cta].b64",
        "",
        "arrive at an mbarrier without completing its phase",
        handler=_barrier_arrive,
        effects=_ARRIVE,
        unordered=True,
    ),
    InstructionSpec(
        f"mbarrier{{test_wait|try_wait}}[parity]{_ORDER}{_PLACE}.b64",
        "",
        "test whether a phase is complete",
        handler=_barrier_wait,
        effects=_WAIT,
    ),
]
