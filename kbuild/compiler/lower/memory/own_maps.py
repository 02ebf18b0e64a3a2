"""Tensor maps that a kernel makes: put together in shared memory, and published in global memory, where TMA reads them.

The memory is the module's own, so that no launcher has to bring it.  As many programs as may run at once find a place in
it, which they claim by an atomic.  One warp makes a map: one thread sets its fields, all copy it, and after a fence the
first one starts the copies that use it.
"""

from __future__ import annotations

from collections.abc import Callable

from kbuild.compiler.analysis.scratch import TENSOR_MAP_BYTES
from kbuild.compiler.ir.core import Value
from kbuild.compiler.ir.types import DescriptorType, bit_width
from kbuild.compiler.lower.core.emit import Emitter, Operand
from kbuild.compiler.lower.core.literals import GLOBAL_POINTER, SHARED_POINTER
from kbuild.compiler.lower.core.lowering import lower
from kbuild.compiler.lower.memory.mbarriers import first_thread
from kbuild.compiler.ops.nvidia import AcquireMaps, ClaimMaps, MakeTensorMap, ReleaseMaps
from kbuild.errors import InternalError
from kbuild.tensor_map import SWIZZLES, device_element

MULTIPROCESSORS = 256
"""More than any GPU has.  With more of them programs would have to wait for places."""
_WARP = 32
_WORD = 4
_CLAIM = """{
.reg .pred other, taken;
.reg .b32 was;
.reg .b64 at;
setp.ne.u32 other, $2, 0;
mov.u32 $0, $3;
@other bra done${:uid};
again${:uid}:
and.b32 $0, $0, $4;
mad.wide.u32 at, $0, 4, $1;
atom.acquire.gpu.global.exch.b32 was, [at], 1;
setp.ne.u32 taken, was, 0;
@taken add.u32 $0, $0, 1;
@taken bra again${:uid};
done${:uid}:
}"""
"""The first thread takes the first place from one on whose word was zero."""
_PUBLISH = (
    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [$0], [$1], 128;"
)
_ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [$0], 128;"
_WAIT = "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;"
"""For no copies: ptxas up to 12.8 lets copies overtake a fence between which and them no wait is."""


@lower(ClaimMaps)
def lower_claim_maps(emit: Emitter, op: ClaimMaps) -> list[str]:
    """Programs of a multiprocessor begin to look at different places: each at that of its first warp."""
    warps = emit.num_warps + emit.extra_warps
    places, each = _places(emit), _programs(emit)
    size = op.maps * places * TENSOR_MAP_BYTES
    emit.globals += [
        f"@__tensor_map_owners = internal addrspace(1) global [{places} x i32] zeroinitializer, align {_WORD}",
        f"@__tensor_maps = internal addrspace(1) global [{size} x i8] zeroinitializer, align {TENSOR_MAP_BYTES}",
    ]
    number, warp = (emit.call(f"llvm.nvvm.read.ptx.sreg.{name}", "i32", []) for name in ("smid", "warpid"))
    own = emit.and_(emit.instruction(f"udiv i32 {warp}, {warps}"), str(each - 1))
    start = emit.add(emit.mul(number, str(each)), own)
    operands = [
        (GLOBAL_POINTER, "@__tensor_map_owners"),
        ("i32", emit.thread_id()),
        ("i32", start),
        ("i32", str(places - 1)),
    ]
    (place,) = emit.asm(_CLAIM, "=&r,l,r,r,r", operands, ["i32"], effect=True)
    return [emit.uniform(place)]


def _places(emit: Emitter) -> int:
    """The places for the maps of a program, a power of two."""
    return MULTIPROCESSORS * _programs(emit)


def _programs(emit: Emitter) -> int:
    """How many programs a multiprocessor holds at most, rounded up to a power of two."""
    limits, warps = emit.target.limits, emit.num_warps + emit.extra_warps
    programs = min(limits.programs(emit.func.attrs["shared"], warps), limits.max_programs)
    return 1 << (programs - 1).bit_length()


@lower(ReleaseMaps)
def lower_release_maps(emit: Emitter, op: ReleaseMaps) -> None:
    word = emit.instruction(
        f"getelementptr i32, {GLOBAL_POINTER} @__tensor_map_owners, i64 {_index(emit, op.place)}"
    )
    with emit.when(first_thread(emit)):
        emit.asm("st.release.gpu.global.b32 [$0], 0;", "l", [(GLOBAL_POINTER, word)], [], effect=True)


def _index(emit: Emitter, place: Value) -> str:
    return emit.instruction(f"zext i32 {emit.scalar(place)} to i64")


@lower(MakeTensorMap)
def lower_make_tensor_map(emit: Emitter, op: MakeTensorMap) -> list[str]:
    """The maps of one number lie together, those of all programs."""
    if op.scratch is None:
        raise InternalError("a tensor map has no memory in which it is put together", op.loc)
    index = emit.add(_index(emit, op.place), str(op.number * _places(emit)), "i64")
    type_ = f"[{TENSOR_MAP_BYTES} x i8]"
    place = emit.instruction(f"getelementptr {type_}, {GLOBAL_POINTER} @__tensor_maps, i64 {index}")
    generic = emit.instruction(f"addrspacecast {GLOBAL_POINTER} {place} to ptr")
    draft, thread = emit.shared_pointer(op.scratch), emit.thread_id()
    fields = _fields(emit, op)
    with emit.when(emit.compare("ult", thread, str(_WARP))):
        emit.warp_barrier()  # The warp may have read what it has put together there before.
        word = emit.offset_pointer(draft, emit.mul(thread, str(_WORD)), SHARED_POINTER)
        emit.line(f"store i32 0, {SHARED_POINTER} {word}")
        emit.warp_barrier()
        with emit.when(first_thread(emit)):
            for field, number in _SETTINGS.items():
                text = f"tensormap.replace.tile.{field}.shared::cta.b1024.b32 [$0], {number(op)};"
                emit.asm(text, "r", [(SHARED_POINTER, draft)], [], effect=True)
            for field, value in fields:
                kind, constraint = ("b64", "l") if value[0] != "i32" else ("b32", "r")
                name, _, ordinal = field.partition(" ")
                text = f"tensormap.replace.tile.{name}.shared::cta.b1024.{kind} [$0], {ordinal}$1;"
                emit.asm(text, f"r,{constraint}", [(SHARED_POINTER, draft), value], [], effect=True)
        emit.warp_barrier()
        emit.asm(_PUBLISH, "l,r", [(GLOBAL_POINTER, place), (SHARED_POINTER, draft)], [], effect=True)
    return [generic]


@lower(AcquireMaps)
def lower_acquire_maps(emit: Emitter, op: AcquireMaps) -> None:
    """A fence for each map, once all of them are on their way to memory, by the warp whose first thread copies."""
    with emit.when(emit.compare("ult", emit.thread_id(), str(_WARP))):
        for map_ in op.maps:
            emit.asm(_ACQUIRE, "l", [("ptr", emit.scalar(map_))], [], effect=True)
        emit.asm(_WAIT, "", [], [], effect=True)


_SETTINGS: dict[str, Callable[[MakeTensorMap], int]] = {
    "rank": lambda op: len(op.shape) - 1,
    "elemtype": lambda op: device_element(op.element),
    "interleave_layout": lambda op: 0,
    "swizzle_mode": lambda op: SWIZZLES[op.swizzle],
    "fill_mode": lambda op: int(op.fill_nan),
}
"""The fields that are set to constants."""


def _fields(emit: Emitter, op: MakeTensorMap) -> list[tuple[str, Operand]]:
    """The other fields and their values, the contiguous axis first.  A size of zero is taken for one, as launchers do."""
    assert isinstance(op.type, DescriptorType)
    size = bit_width(op.type.block) // 8
    found: list[tuple[str, Operand]] = [("global_address", (GLOBAL_POINTER, emit.scalar(op.base)))]
    for axis, (extent, box) in enumerate(zip(reversed(op.shape), reversed(op.box))):
        extent = emit.call("llvm.smax.i32", "i32", [("i32", emit.scalar(extent)), ("i32", "1")])
        found.append((f"global_dim {axis}, ", ("i32", extent)))
        found.append((f"box_dim {axis}, ", ("i32", str(box))))
        found.append((f"element_stride {axis}, ", ("i32", "1")))
    for axis, stride in enumerate(reversed(op.strides)):
        found.append((f"global_stride {axis}, ", ("i64", emit.mul(emit.scalar(stride), str(size), "i64"))))
    return found
