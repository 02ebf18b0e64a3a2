"""Control flow, barriers of a CTA or a cluster, fences and hints.

Branches, returns and calls are done by the engine itself; their rows list them with their effects.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kbuild.emulator.engine.findings import Fault
from kbuild.emulator.isa.collectives import whole_warps
from kbuild.emulator.isa.instruction_spec import Bound, Effects, Form, InstructionSpec, View
from kbuild.emulator.isa.moves import move
from kbuild.emulator.ptx.model import Immediate, Instruction, Operand, PtxError

_ZERO = Immediate("0")


def _engine(form: Form, instruction: Instruction) -> Bound:
    raise PtxError(f"{instruction.name} cannot stand here")


def one_value(values: np.ndarray, where: Any, what: str) -> int:
    """The value that all lanes taking part have.  Raises Fault when they differ."""
    chosen = values if where is True else values[where]
    if (chosen != chosen[0]).any():
        raise Fault(
            "barrier-misuse", f"threads give different {what}: {int(chosen.min())} and {int(chosen.max())}"
        )
    return int(chosen[0])


def _barrier(form: Form, instruction: Instruction) -> Bound:
    """`bar` and `barrier`: all warps arrive, then all continue; `.arrive` does not wait."""
    operands: tuple[Operand, ...] = instruction.operands
    number, count = operands[0] if operands else _ZERO, operands[1] if len(operands) > 1 else _ZERO
    arrive, aligned = form.has("arrive"), form.opcode == "bar" or form.has("aligned")

    def function(warps: Any, numbers: np.ndarray, counts: np.ndarray, where: Any = True) -> Any:
        if aligned:
            whole_warps(len(numbers), where)
        return warps.cta.barriers.arrive(
            warps,
            one_value(numbers, where, "barrier numbers"),
            one_value(counts, where, "thread counts"),
            where,
            not arrive,
        )

    return Bound(function, (View(number, "u32"), View(count, "u32")))


def _barrier_reduce(form: Form, instruction: Instruction) -> Bound:
    """`bar.red`: a barrier that also counts or combines predicates."""
    target, number, *rest = instruction.operands
    count, predicate = rest if len(rest) == 2 else (_ZERO, rest[0])
    operation = form.choose("popc", "and", "or")

    def function(
        warps: Any,
        numbers: np.ndarray,
        counts: np.ndarray,
        values: np.ndarray,
        out: np.ndarray,
        where: Any = True,
    ) -> Any:
        whole_warps(len(numbers), where)
        lanes = np.ones(len(values), bool) if where is True else where

        def finish(total: int, threads: int) -> None:
            found = {"popc": total, "and": total == threads, "or": total > 0}[operation]
            move(np.full(len(out), found), out, where)

        return warps.cta.barriers.arrive(
            warps,
            one_value(numbers, where, "barrier numbers"),
            one_value(counts, where, "thread counts"),
            where,
            True,
            (int((values & lanes).sum()), finish),
        )

    kind = "u32" if operation == "popc" else "pred"
    return Bound(
        function, (View(number, "u32"), View(count, "u32"), View(predicate, "pred"), View(target, kind))
    )


def _cluster_barrier(form: Form, instruction: Instruction) -> Bound:
    wait = form.has("wait")

    def function(warps: Any, where: Any = True) -> Any:
        if form.has("aligned"):
            whole_warps(warps.size, where)
        barrier = warps.cta.cluster.barrier
        return barrier.wait(warps, where) if wait else barrier.arrive(warps, where, not form.has("relaxed"))

    return Bound(function)


def _no_branch(form: Form, instruction: Instruction) -> Bound:
    """`brx.idx` after the branches that replace it: `index, number of labels`."""
    index, count = instruction.operands

    def function(values: np.ndarray, where: Any = True) -> None:
        value = int(values[0 if where is True else np.argmax(where)])
        raise Fault("branch-misuse", f"the index {value} of a branch is not one of its {count} labels")

    return Bound(function, (View(index, "u32"),), wants_warps=False)


def _trap(form: Form, instruction: Instruction) -> Bound:
    def function(where: Any = True) -> None:
        raise Fault("trap", "the kernel stopped itself")

    return Bound(function, wants_warps=False)


def _wait_for_launches(form: Form, instruction: Instruction) -> Bound:
    return Bound(lambda warps, where=True: warps.launch.wait_for_earlier())


def _nothing(form: Form, instruction: Instruction) -> Bound:
    return Bound(lambda where=True: None, wants_warps=False)


_CTA = Effects(collective="cta", waits=True)
_ALIGNED = Effects(collective="cta", aligned=True, waits=True)
_FENCE = Effects(reads=("generic",), writes=("generic",))
_LEVEL = "{cta|cluster|gpu|sys}"

ROWS = [
    InstructionSpec("bra[uni]", "", "branch", handler=_engine),
    InstructionSpec("brx.idx[uni]", "", "branch to one of a list of labels", handler=_no_branch),
    InstructionSpec("ret[uni]", "", "return, or the end of the kernel", handler=_engine),
    InstructionSpec("exit", "", "end of the thread", handler=_engine),
    InstructionSpec("call[uni]", "", "call of a function, which is inlined", handler=_engine),
    InstructionSpec("trap", "", "error that ends the kernel", handler=_trap),
    InstructionSpec("brkpt", "", "breakpoint", handler=_nothing),
    InstructionSpec(
        "bar[cta]{sync|arrive}", "", "barrier of the CTA's warps", handler=_barrier, effects=_ALIGNED
    ),
    InstructionSpec(
        "barrier[cta]{sync|arrive}[aligned]", "", "barrier of the CTA's warps", handler=_barrier, effects=_CTA
    ),
    InstructionSpec(
        "bar[cta].red.popc.u32",
        "",
        "barrier that counts predicates",
        handler=_barrier_reduce,
        effects=_ALIGNED,
    ),
    InstructionSpec(
        "bar[cta].red{and|or}.pred",
        "",
        "barrier that combines predicates",
        handler=_barrier_reduce,
        effects=_ALIGNED,
    ),
    InstructionSpec(
        "barrier[cta].red[aligned].popc.u32",
        "",
        "barrier that counts predicates",
        handler=_barrier_reduce,
        effects=_ALIGNED,
    ),
    InstructionSpec(
        "barrier[cta].red[aligned]{and|or}.pred",
        "",
        "barrier that combines predicates",
        handler=_barrier_reduce,
        effects=_ALIGNED,
    ),
    InstructionSpec(
        "barrier.cluster{arrive|wait}[release|relaxed|acquire][aligned]",
        "",
        "barrier of a cluster",
        handler=_cluster_barrier,
        effects=_CTA,
        unordered=True,
    ),
    InstructionSpec("membar{cta|gl|sys}", "", "memory fence", handler=_nothing, effects=_FENCE),
    InstructionSpec(
        "fence[sc|acq_rel|acquire|release]" + _LEVEL, "", "memory fence", handler=_nothing, effects=_FENCE
    ),
    InstructionSpec(
        "fence.mbarrier_init.release.cluster",
        "",
        "makes initialised barriers visible",
        handler=_nothing,
        effects=_FENCE,
    ),
    InstructionSpec(
        "fence.proxy.async[global|shared::cta|shared::cluster]",
        "",
        "fence between proxies",
        handler=_nothing,
        effects=_FENCE,
    ),
    InstructionSpec(
        "fence.proxy.tensormap::generic.release" + _LEVEL,
        "",
        "fence behind writes of tensor maps",
        handler=_nothing,
        effects=_FENCE,
    ),
    InstructionSpec("nanosleep.u32", "", "pause", handler=_nothing, effects=Effects(waits=True)),
    InstructionSpec(
        "griddepcontrol.wait", "", "waits for the launches before this one", handler=_wait_for_launches
    ),
    InstructionSpec("griddepcontrol.launch_dependents", "", "lets the next launch begin", handler=_nothing),
    InstructionSpec(
        "setmaxnreg{inc|dec}.sync.aligned.u32",
        "",
        "registers per thread",
        handler=_nothing,
        effects=Effects(collective="warp"),
    ),
    InstructionSpec("pmevent", "", "profiler event", handler=_nothing),
]
