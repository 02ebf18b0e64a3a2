"""Bulk copies, tensor copies and tensor maps."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from kbuild.emulator.async_ops import ByteExtent, TensorMap, TensorMapError, agent_of, replace
from kbuild.emulator.async_ops.operation import notify
from kbuild.emulator.async_ops.tma import box_at, fill_bits
from kbuild.emulator.async_ops.transfers import Transfer
from kbuild.emulator.engine.findings import Fault
from kbuild.emulator.isa.access import address_of, space_of
from kbuild.emulator.isa.collectives import whole_warps
from kbuild.emulator.isa.instruction_spec import TYPES, Bound, Effects, Form, InstructionSpec, View
from kbuild.emulator.isa.places import active_lanes, count_view, living, number, shared_place
from kbuild.emulator.ptx.model import Address, Instruction, Operand, PtxError

STORED_UNIT = 16
"""Bytes that a tensor copy to global memory writes together: it overruns rows that are not multiples of
them, and may not begin elsewhere (seen on an H200)."""
_MAP_WORDS = np.arange(0, 128, 8)
_REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")


def _coordinates(operand: Operand) -> tuple[View, int, tuple[View, ...]]:
    """`[map, {coordinates}]`: the views of the map's address and of the coordinates."""
    if not isinstance(operand, Address) or operand.coordinates is None:
        raise PtxError(f"expected a tensor map with coordinates, found {operand}")
    view, offset = address_of(operand)
    return view, offset, tuple(View(item, "s32") for item in operand.coordinates.items)


def read_map(warps: Any, address: int, lane: int, instruction: Instruction) -> TensorMap:
    """The tensor map at a generic address.  Raises Fault for an address or a map that TMA cannot use."""
    if address % 64:
        raise Fault("misaligned", f"the tensor map at {address:#x} is not aligned to 64 bytes")
    site = (warps, instruction, np.full(16, lane))
    data = warps.memory.load("generic", np.uint64(address) + _MAP_WORDS.astype(np.uint64), 8, True, site)
    try:
        return _decoded(data.tobytes())
    except TensorMapError as error:
        raise Fault("tensor-map", error.message) from None


@lru_cache(maxsize=64)
def _decoded(data: bytes) -> TensorMap:
    return TensorMap.decode(data)


def _load_of(
    warps: Any,
    site: Any,
    tensor_map: TensorMap,
    corner: list[int],
    targets: list[tuple[Any, int, int]],
    wide: bool,
) -> Transfer:
    """The copy of a box to all its destinations."""
    box, heap = box_at(tensor_map, corner, targets[0][1], wide=wide), warps.memory.heap
    return Transfer(
        "load",
        site,
        (ByteExtent(heap, box.sources[box.inside] - heap.base, box.size),),
        tuple(ByteExtent(agent.cta.shared, box.places, box.size) for agent, _, _ in targets),
        box.inside,
        fill_bits(tensor_map),
        tensor_map.element,
        tuple((agent.barriers, signal) for agent, _, signal in targets),
    )


def _store_of(
    warps: Any,
    site: Any,
    tensor_map: TensorMap,
    corner: list[int],
    source: tuple[Any, int],
    reduction: str,
    wide: bool,
) -> Transfer:
    """The copy of a box from the shared memory of a CTA (agent, offset)."""
    box, heap = box_at(tensor_map, corner, source[1], STORED_UNIT, wide), warps.memory.heap
    return Transfer(
        "reduce" if reduction else "store",
        site,
        (ByteExtent(source[0].cta.shared, box.places[box.inside], box.size),),
        (ByteExtent(heap, box.sources[box.inside] - heap.base, box.size),),
        reduction=(reduction, tensor_map.element) if reduction else None,
        thread=warps.first_thread + int(site[2][0]),
    )


def _widest(make: Callable[[bool], Transfer]) -> Transfer:
    """A copy in entries as large as possible; of elements where it faults, as reports count in these."""
    wide = make(True)
    try:
        wide.check()
    except Fault:
        return make(False)
    return wide


def _targets(
    warps: Any, form: Form, address: int, barrier: int, mask: int | None
) -> list[tuple[Any, int, int]]:
    """(agent, offset of the data, offset of the mbarrier) for every CTA that a load writes to."""
    agent, place = shared_place(warps, address)
    owner, signal = shared_place(warps, barrier)
    if mask is None:
        if owner is not agent:
            raise Fault(
                "async-misuse", "the mbarrier lies in the shared memory of another CTA than the destination"
            )
        return [(agent, place, signal)]
    ctas = warps.cta.cluster.ctas
    if mask >> len(ctas):
        raise Fault(
            "async-misuse", f"the multicast mask {mask:#x} names a CTA outside the cluster of {len(ctas)}"
        )
    return [(agent_of(living(cta)), place, signal) for rank, cta in enumerate(ctas) if mask >> rank & 1]


def _tensor_load(form: Form, instruction: Instruction) -> Bound:
    """`[shared], [map, {…}], [mbarrier]{, mask}{, cache policy}`."""
    target, source, barrier, *rest = instruction.operands
    (to, to_offset), (signal, signal_offset) = address_of(target), address_of(barrier)
    map_view, map_offset, coordinates = _coordinates(source)
    mask_views = (View(rest[0], "b16"),) if form.has("multicast::cluster") else ()

    def function(
        warps: Any,
        start: np.ndarray,
        bar: np.ndarray,
        maps: np.ndarray,
        *views: np.ndarray,
        where: Any = True,
    ) -> None:
        for lane in active_lanes(warps.size, where).tolist():
            tensor_map = read_map(warps, int(maps[lane]) + map_offset, lane, instruction)
            mask = int(views[-1][lane]) if mask_views else None
            targets = _targets(
                warps, form, int(start[lane]) + to_offset, int(bar[lane]) + signal_offset, mask
            )
            corner = [int(view[lane]) for view in views[: len(coordinates)]]
            site = warps, instruction, np.array([lane])
            plain = tensor_map.element != "tf32" and not fill_bits(tensor_map)
            make = partial(_load_of, warps, site, tensor_map, corner, targets)
            agent_of(warps.cta).transfers.load(_widest(make) if plain else make(False))

    return Bound(function, (to, signal, map_view, *coordinates, *mask_views))


def _tensor_store(form: Form, instruction: Instruction) -> Bound:
    """`[map, {…}], [shared]`, copied or combined."""
    target, source = instruction.operands[:2]
    map_view, map_offset, coordinates = _coordinates(target)
    origin, origin_offset = address_of(source)
    reduction = form.choose(*_REDUCTIONS)

    def function(
        warps: Any, start: np.ndarray, maps: np.ndarray, *views: np.ndarray, where: Any = True
    ) -> None:
        for lane in active_lanes(warps.size, where).tolist():
            tensor_map = read_map(warps, int(maps[lane]) + map_offset, lane, instruction)
            agent, place = shared_place(warps, int(start[lane]) + origin_offset)
            corner = [int(view[lane]) for view in views]
            site = warps, instruction, np.array([lane])
            make = partial(_store_of, warps, site, tensor_map, corner, (agent, place), reduction)
            agent.transfers.store(make(False) if reduction else _widest(make))

    return Bound(function, (origin, map_view, *coordinates))


def _run(space: Any, start: int, size: int, element: int) -> ByteExtent:
    """A run of bytes, in elements.  Raises Fault unless start and size are multiples of 16."""
    if start % 16 or size % 16:
        raise Fault(
            "misaligned",
            f"a bulk copy of {size} bytes at {space.name} address {start:#x}: both must be multiples of 16",
        )
    return ByteExtent(space, start + np.arange(0, size, element, dtype=np.int64), element)


def _bulk_load(form: Form, instruction: Instruction) -> Bound:
    """`[shared], [global or shared], size, [mbarrier]{, mask}{, cache policy}`."""
    target, source, size, barrier, *rest = instruction.operands
    (to, to_offset), (origin, origin_offset), (signal, signal_offset) = map(
        address_of, (target, source, barrier)
    )
    mask_views = (View(rest[0], "b16"),) if form.has("multicast::cluster") else ()
    inner = not form.has("global")

    def function(
        warps: Any,
        start: np.ndarray,
        begin: np.ndarray,
        sizes: np.ndarray,
        bar: np.ndarray,
        *masks: np.ndarray,
        where: Any = True,
    ) -> None:
        for lane in active_lanes(warps.size, where).tolist():
            count = int(sizes[lane])
            mask = int(masks[0][lane]) if masks else None
            targets = _targets(
                warps, form, int(start[lane]) + to_offset, int(bar[lane]) + signal_offset, mask
            )
            space = warps.cta.shared if inner else warps.memory.heap
            first = int(begin[lane]) + origin_offset - space.base
            agent_of(warps.cta).transfers.load(
                Transfer(
                    "load",
                    (warps, instruction, np.array([lane])),
                    (_run(space, first, count, 8),),
                    tuple(_run(agent.cta.shared, place, count, 8) for agent, place, _ in targets),
                    barriers=tuple((agent.barriers, signal) for agent, _, signal in targets),
                )
            )

    return Bound(function, (to, origin, count_view(size), signal, *mask_views))


def _bulk_store(form: Form, instruction: Instruction) -> Bound:
    """`[global], [shared], size`, copied or combined."""
    target, source, size = instruction.operands[:3]
    (to, to_offset), (origin, origin_offset) = address_of(target), address_of(source)
    reduction = form.choose(*_REDUCTIONS)
    kind = {"b32": "u32", "b64": "u64"}.get(form.type, form.type) if reduction else ""
    element = TYPES[form.type].itemsize if reduction else 8

    def function(
        warps: Any, start: np.ndarray, begin: np.ndarray, sizes: np.ndarray, where: Any = True
    ) -> None:
        for lane in active_lanes(warps.size, where).tolist():
            agent, place = shared_place(warps, int(begin[lane]) + origin_offset)
            heap = warps.memory.heap
            first, count = int(start[lane]) + to_offset - heap.base, int(sizes[lane])
            agent.transfers.store(
                Transfer(
                    "reduce" if reduction else "store",
                    (warps, instruction, np.array([lane])),
                    (_run(agent.cta.shared, place, count, element),),
                    (_run(heap, first, count, element),),
                    reduction=(reduction, kind) if reduction else None,
                    thread=warps.first_thread + lane,
                )
            )

    return Bound(function, (to, origin, count_view(size)))


def _group(form: Form, instruction: Instruction) -> Bound:
    """`cp.async.bulk.commit_group` and `wait_group`."""
    allowed = number(instruction.operands[0]) if form.has("wait_group") else None

    def function(warps: Any, where: Any = True) -> None:
        lanes = active_lanes(warps.size, where)
        transfers, threads = agent_of(warps.cta).transfers, warps.first_thread + lanes
        if allowed is None:
            transfers.commit(threads)
        else:
            transfers.wait(threads, allowed, form.has("read"), (warps, instruction, lanes))

    return Bound(function)


def _replace(form: Form, instruction: Instruction) -> Bound:
    """`tensormap.replace.tile.FIELD [map]{, ordinal}, value`."""
    view, offset = address_of(instruction.operands[0])
    ordinal = number(instruction.operands[1]) if len(instruction.operands) == 3 else 0
    field, space = form.choose(*_FIELDS), space_of(form)
    value_view = View(instruction.operands[-1], form.type)

    def function(warps: Any, start: np.ndarray, values: np.ndarray, where: Any = True) -> None:
        for lane in active_lanes(warps.size, where).tolist():
            site = (warps, instruction, np.full(16, lane))
            words = start[lane : lane + 1].astype(np.int64) + offset + _MAP_WORDS
            data = warps.memory.load(space, words, 8, True, site).tobytes()
            try:
                data = replace(data, field, ordinal, int(values[lane]))
            except TensorMapError as error:
                raise Fault("tensor-map", error.message) from None
            warps.memory.store(space, words, np.frombuffer(data, np.uint64), 8, True, site)

    return Bound(function, (view, value_view))


def _publish(form: Form, instruction: Instruction) -> Bound:
    """`tensormap.cp_fenceproxy [global], [shared], 128`: the warp copies a map and makes it visible
    to TMA."""
    (to, to_offset), (origin, origin_offset) = map(address_of, instruction.operands[:2])
    if number(instruction.operands[2]) != 128:
        raise PtxError(f"{instruction.name} copies 128 bytes")

    def function(warps: Any, start: np.ndarray, begin: np.ndarray, where: Any = True) -> None:
        for warp in np.flatnonzero(whole_warps(warps.size, where)).tolist():
            lane = 32 * warp
            site = (warps, instruction, np.full(16, lane))
            words = begin[lane : lane + 1].astype(np.int64) + origin_offset + _MAP_WORDS
            data = warps.memory.load("shared", words, 8, True, site)
            words = start[lane : lane + 1].astype(np.int64) + to_offset + _MAP_WORDS
            warps.memory.store("global", words, data, 8, True, site)

    return Bound(function, (to, origin))


def _acquire(form: Form, instruction: Instruction) -> Bound:
    """`fence.proxy.tensormap::generic.acquire [map], 128`: copies after it see what was written to the map
    and released."""
    view, offset = address_of(instruction.operands[0])
    if number(instruction.operands[1]) != 128:
        raise PtxError(f"{instruction.name} is for 128 bytes")

    def function(warps: Any, start: np.ndarray, where: Any = True) -> None:
        lanes = active_lanes(warps.size, where)
        notify(
            warps.memory.observers,
            "map_acquired",
            start[lanes].astype(np.int64) + offset,
            (warps, instruction, lanes),
        )

    return Bound(function, (view,))


def _nothing(form: Form, instruction: Instruction) -> Bound:
    return Bound(lambda where=True: None, wants_warps=False)


_DIMENSIONS = "{1d|2d|3d|4d|5d}"
_LOAD = Effects(reads=("global",), writes=("shared",), asynchronous=True)
_STORE = Effects(reads=("shared",), writes=("global",), asynchronous=True)
_HINT = "[L2::cache_hint]"
_SIGNAL = ".mbarrier::complete_tx::bytes"
_FIELDS = (
    "global_address",
    "rank",
    "box_dim",
    "global_dim",
    "global_stride",
    "element_stride",
    "elemtype",
    "interleave_layout",
    "swizzle_mode",
    "fill_mode",
)

ROWS = [
    InstructionSpec(
        f"cp.async.bulk.tensor{_DIMENSIONS}{{shared::cluster|shared::cta}}.global[tile]{_SIGNAL}[multicast::cluster]{_HINT}",
        "",
        "box of an array to shared memory",
        handler=_tensor_load,
        effects=_LOAD,
    ),
    InstructionSpec(
        f"cp.async.bulk.tensor{_DIMENSIONS}.global.shared::cta[tile].bulk_group{_HINT}",
        "",
        "box of an array from shared memory",
        handler=_tensor_store,
        effects=_STORE,
    ),
    InstructionSpec(
        f"cp.reduce.async.bulk.tensor{_DIMENSIONS}.global.shared::cta{{{'|'.join(_REDUCTIONS)}}}[tile].bulk_group{_HINT}",
        "",
        "box of an array combined with shared memory",
        handler=_tensor_store,
        effects=_STORE,
    ),
    InstructionSpec(
        f"cp.async.bulk.prefetch.tensor{_DIMENSIONS}.L2.global[tile]{_HINT}", "", "hint", handler=_nothing
    ),
    InstructionSpec(
        f"cp.async.bulk{{shared::cluster|shared::cta}}.global{_SIGNAL}[multicast::cluster]{_HINT}",
        "",
        "bytes to shared memory",
        handler=_bulk_load,
        effects=_LOAD,
    ),
    InstructionSpec(
        f"cp.async.bulk.shared::cluster.shared::cta{_SIGNAL}",
        "",
        "bytes to shared memory of a CTA of the cluster",
        handler=_bulk_load,
        effects=Effects(reads=("shared",), writes=("shared",), asynchronous=True),
    ),
    InstructionSpec(
        f"cp.async.bulk.global.shared::cta.bulk_group{_HINT}",
        "",
        "bytes from shared memory",
        handler=_bulk_store,
        effects=_STORE,
    ),
    InstructionSpec(
        f"cp.reduce.async.bulk.global.shared::cta.bulk_group{_HINT}{{{'|'.join(_REDUCTIONS)}}}[noftz]"
        "{f16|bf16|b32|u32|s32|b64|u64|s64|f32|f64}",
        "",
        "bytes combined with shared memory",
        handler=_bulk_store,
        effects=_STORE,
    ),
    InstructionSpec(f"cp.async.bulk.prefetch.L2.global{_HINT}", "", "hint", handler=_nothing),
    InstructionSpec("cp.async.bulk.commit_group", "", "end a group of bulk copies", handler=_group),
    InstructionSpec(
        "cp.async.bulk.wait_group[read]",
        "",
        "wait for all groups of bulk copies but the last few",
        handler=_group,
        effects=Effects(reads=("shared",), writes=("global",)),
    ),
    InstructionSpec(
        f"tensormap.replace.tile{{{'|'.join(_FIELDS)}}}{{global|shared::cta}}.b1024{{b32|b64}}",
        "",
        "set a field of a tensor map",
        handler=_replace,
        effects=Effects(reads=("generic",), writes=("generic",)),
    ),
    InstructionSpec(
        "fence.proxy.tensormap::generic.acquire{cta|cluster|gpu|sys}",
        "",
        "fence before uses of a tensor map",
        handler=_acquire,
        effects=Effects(reads=("generic",), writes=("generic",)),
    ),
    InstructionSpec(
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release{cta|cluster|gpu|sys}.sync.aligned",
        "",
        "publish a tensor map",
        handler=_publish,
        effects=Effects(reads=("shared",), writes=("global",), collective="warp", aligned=True),
    ),
]
