"""`st.async`: stores to shared memory of a cluster that an mbarrier there tracks."""

from __future__ import annotations

from typing import Any

import numpy as np

from kbuild.emulator.async_ops import ByteExtent, agent_of
from kbuild.emulator.async_ops.transfers import Transfer
from kbuild.emulator.engine.findings import Fault
from kbuild.emulator.isa.access import address_of, items_of, space_of
from kbuild.emulator.isa.instruction_spec import Bound, Effects, Form, InstructionSpec, View
from kbuild.emulator.isa.places import active_lanes, shared_place
from kbuild.emulator.ptx.model import Instruction, PtxError


def _store(form: Form, instruction: Instruction) -> Bound:
    """`[shared], value or vector, [mbarrier]`, both in the same CTA: each thread's bytes land together."""
    target, value, barrier = instruction.operands
    (to, to_offset), (signal, signal_offset) = address_of(target), address_of(barrier)
    items, generic = items_of(value), space_of(form) == "generic"
    if len(items) != int(form.choose("v2", "v4", default="v1")[1:]):
        raise PtxError(f"{instruction.name} with {len(items)} registers")
    element = form.dtype.itemsize
    size = len(items) * element

    def function(
        warps: Any, start: np.ndarray, bar: np.ndarray, *values: np.ndarray, where: Any = True
    ) -> None:
        for lane in active_lanes(warps.size, where).tolist():
            agent, place = shared_place(warps, int(start[lane]) + to_offset, generic)
            owner, offset = shared_place(warps, int(bar[lane]) + signal_offset, generic)
            if owner is not agent:
                raise Fault(
                    "async-misuse",
                    "the mbarrier lies in the shared memory of another CTA than the destination",
                )
            if place % size:
                raise Fault(
                    "misaligned", f"shared address {place:#x} is not aligned to the {size} bytes stored"
                )
            places = place + np.arange(0, size, element, dtype=np.int64)
            agent_of(warps.cta).transfers.load(
                Transfer(
                    "store",
                    (warps, instruction, np.array([lane])),
                    (),
                    (ByteExtent(agent.cta.shared, places, element),),
                    barriers=((owner.barriers, offset),),
                    data=np.array([value[lane] for value in values]),
                )
            )

    return Bound(function, (to, signal, *(View(item, f"b{8 * element}") for item in items)))


ROWS = [
    InstructionSpec(
        "st.async[weak][shared::cluster].mbarrier::complete_tx::bytes[shared::cluster][v2|v4]"
        "{b32|b64|u32|u64|s32|s64|f32|f64}",
        "",
        "store to a CTA of the cluster, tracked by an mbarrier",
        handler=_store,
        effects=Effects(writes=("shared",), asynchronous=True),
    ),
]
