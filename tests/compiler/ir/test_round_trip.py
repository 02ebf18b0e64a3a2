"""Every operation prints, and what is printed reads back."""

import re

import pytest

from kbuild.compiler.ir.core import registered_ops
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ir.printer import print_module
from kbuild.compiler.ir.verify import verify
from kbuild.compiler.ops import control, elementwise, gpu, tensor  # noqa: F401  registers the operations

TENSORS = """\
tt.func @callee(%x: i32) {
  tt.return %x
}

tt.func @tensors(%p: !tt.ptr<f32> {divisibility = 16}, %n: i32, %s: f32, %l: i64) attributes {num_warps = 4, num_stages = 3} {
  %pid: i32 = tt.get_program_id {axis = 0}
  %count: i32 = tt.get_num_programs {axis = 1}
  %c: i1 = arith.constant {value = true}
  %range: tensor<8xi32> = tt.make_range {start = 0, end = 8}
  %x: tensor<8xf32> = tt.splat %s
  %0: tensor<8xi32> = tt.axis_attributes %range {divisibility = [8], contiguity = [8]}
  %1: tensor<8x1xf32> = tt.expand_dims %x {axis = 1}
  %x2: tensor<8x4xf32> = tt.broadcast %1
  %2: tensor<32xf32> = tt.reshape %x2 {allow_reorder = true}
  %3: tensor<4x8xf32> = tt.trans %x2 {order = [1, 0]}
  %4: tensor<8x2xf32> = tt.join %x, %x
  %left, %right: tensor<8xf32>, tensor<8xf32> = tt.split %4
  %5: tensor<16xf32> = tt.cat %left, %right
  %one: tensor<1xf32> = tt.splat %s
  %6: f32 = tt.unsplat %one
  %7: tensor<8x!tt.ptr<f32>> = tt.splat %p
  %8: tensor<8x!tt.ptr<f32>> = tt.addptr %7, %range
  %mask: tensor<8xi1> = arith.constant {value = true}
  %9: tensor<8xf32> = tt.load %8, mask=%mask, other=%x {cache = ".cg", eviction = "evict_last"}
  tt.store %8, %9, mask=%mask {cache = ".cs"}
  %10: tensor<8xf32> = tt.atomic_rmw %8, %9, mask=%mask {kind = "fadd", sem = "relaxed"}
  %11: tensor<8xf32> = tt.atomic_cas %8, %9, %10 {scope = "sys"}
  %block: !tt.ptr<tensor<8x8xf32>> = tt.make_tensor_ptr %p, shape=[%l, %l], strides=[%l, %l], offsets=[%n, %n] {order = [1, 0]}
  %12: !tt.ptr<tensor<8x8xf32>> = tt.advance %block, offsets=[%n, %pid]
  %13: tensor<8x8xf32> = tt.load %12 {boundary_check = [0, 1], padding = "zero"}
  %desc: !tt.tensordesc<tensor<8x8xf32>> = tt.make_tensor_descriptor %p, shape=[%n, %n], strides=[%l, %l] {padding = "nan"}
  %near: tensor<8x8xf32> = tt.descriptor_load %desc, indices=[%n, %pid]
  tt.descriptor_store %desc, %near, indices=[%n, %n]
  tt.descriptor_reduce %desc, %near, indices=[%n, %n] {kind = "fadd"}
  %row: !tt.tensordesc<tensor<1x8xf32>> = tt.make_tensor_descriptor %p, shape=[%n, %n], strides=[%l, %l]
  %picked: tensor<8x8xf32> = tt.descriptor_gather %row, %range, %n
  tt.descriptor_scatter %row, %picked, %range, %n
  %14: tensor<8x4xf32> = tt.dot %13, %x2, %x2 {input_precision = "ieee"}
  %15: f32 = tt.reduce %9 {axis = 0} combine(%16: f32, %17: f32) {
    %18: f32 = arith.addf %16, %17
    tt.reduce.return %18
  }
  %19: tensor<8xf32> = tt.scan %9 {axis = 0, reverse = true} combine(%20: f32, %21: f32) {
    %22: f32 = arith.mulf %20, %21
    tt.reduce.return %22
  }
  %mapped: tensor<8xf32> = tt.map_elementwise %9 {packed = 2} body(%m0: f32, %m1: f32) {
    %m2: f32 = arith.mulf %m0, %m1
    tt.reduce.return %m2, %m0
  }
  %23: tensor<8xf32> = tt.gather %9, %range {axis = 0}
  %24: tensor<16xi32> = tt.histogram %range, mask=%mask
  gpu.barrier
  gpu.grid_dependency_wait
  gpu.launch_dependents
  tt.assert %c {message = "n must be \\"even\\""}
  tt.print %9, %n {prefix = "x", signed = [true, false]}
  %25: tensor<8xf32> = tt.elementwise_inline_asm %9 {asm = "mov.b32 $0, $1;\\n", constraints = "=r,r"}
  %26: i32 = tt.call %n {callee = "callee"}
  tt.return
}
"""

CONTROL = """\
tt.func @control(%n: i32, %c: i1, %x: f32) {
  %zero: i32 = arith.constant {value = 0}
  %one: i32 = arith.constant {value = 1}
  %sum, %y: i32, f32 = scf.for %zero, %n, %one, init=[%zero, %x] {flatten = true} body(%i: i32, %a: i32, %b: f32) {
    %next: i32 = arith.addi %a, %i
    scf.yield %next, %b
  }
  %z: f32 = scf.if %c then_body() {
    scf.yield %y
  } else_body() {
    scf.yield %x
  }
  %w: f32 = scf.while %z before(%v: f32) {
    scf.condition %c, values=[%v]
  } after(%u: f32) {
    scf.yield %u
  }
  tt.return
}
"""

GPU = """\
#linear = linear{register=[[1,0],[0,1]], lane=[[0,2],[0,4],[2,0],[4,0],[8,0]], warp=[[0,0]]}
#shared = swizzled{vector=1, perPhase=2, maxPhase=8, order=[1,0]}
#blocked = blocked{sizePerThread=[1,2], threadsPerWarp=[8,4], warpsPerCTA=[2,1], order=[1,0]}
#shared1 = swizzled{vector=1, perPhase=2, maxPhase=8, order=[0,1]}
#shared2 = linear{offset=[[0,1],[0,2],[0,0],[1,0],[2,1],[4,2],[8,0]]}
#shared3 = linear{offset=[[1],[2],[4],[8],[17],[34],[68]]}
#shared4 = swizzled{vector=1, perPhase=1, maxPhase=1, order=[0]}
#auto = auto{}
#blocked1 = blocked{sizePerThread=[1], threadsPerWarp=[32], warpsPerCTA=[2], order=[0]}
#blocked2 = blocked{sizePerThread=[2,2], threadsPerWarp=[8,4], warpsPerCTA=[1,2], order=[1,0]}

tt.func @gpu(%x: tensor<16x8xf16, #linear>, %p: tensor<16x8x!tt.ptr<f16>, #linear>, %m: tensor<16x8xi1, #linear>, %i: i32) {
  %tile: !ttg.memdesc<16x8xf16, #shared> = ttg.local_alloc src=%x {offset = 0}
  %0: tensor<16x8xf16, #blocked> = ttg.local_load %tile
  %1: tensor<16x8xf16, #linear> = ttg.convert_layout %0 {scratch = 256}
  %same: tensor<16x8xf16, #linear> = ttg.again %1 {number = 1}
  %buffers: !ttg.memdesc<3 x 16x8xf16, #shared> = ttg.local_alloc
  %2: !ttg.memdesc<16x8xf16, #shared> = ttg.memdesc_index %buffers, %i
  %3: !ttg.memdesc<8x16xf16, #shared1> = ttg.memdesc_trans %2 {order = [1, 0]}
  %4: !ttg.memdesc<16x4xf16, #shared2> = ttg.memdesc_subslice %2 {offsets = [0, 4]}
  %flat: !ttg.memdesc<128xf16, #shared3> = ttg.memdesc_reshape %2 {shape = [128]}
  %words: !ttg.memdesc<64xf32, #shared4> = ttg.memdesc_reinterpret %flat
  %open: tensor<16xi32, #auto> = tt.make_range {start = 0, end = 16}
  %fixed: tensor<16xi32, #blocked1> = gluon.set_auto_layout %open
  %scaled: tensor<16x8xf16, #linear> = ttg.warp_if %m, otherwise=[%same] body() {
    %twice: tensor<16x8xf16, #linear> = arith.addf %same, %same
    scf.yield %twice
  }
  ttg.local_store %scaled, %2
  ttg.async_copy_global_to_local %p, %2, mask=%m, other=%x {cache = ".cg"}
  ttg.async_commit_group
  ttg.async_wait {num = 0}
  ttg.local_dealloc %buffers
  ttng.fence_async_shared
  %c: tensor<16x16xf32, #blocked2> = arith.constant {value = 0.0}
  %product: tensor<16x16xf32, #blocked2> = ttg.local_dot %2, %3, %c
  %5: tensor<16x16xf32, #blocked2> = ttng.warp_group_dot %0, %3, %c {atom = "m64n16k16.f16", is_async = true}
  %6: tensor<16x16xf32, #blocked2> = ttng.warp_group_dot_wait %5 {pendings = 1}
  tt.return
}
"""

COPIES = """\
#shared = swizzled{vector=8, perPhase=4, maxPhase=2, order=[1,0]}
#shared1 = swizzled{vector=1, perPhase=1, maxPhase=1, order=[0]}

tt.func @copies(%x: !tt.ptr<f16>, %i: i32, %c: i1, %map: !tt.tensordesc<tensor<16x16xf16>> {tensor_map = [0, 1, 1, 1]}) {
  %buffers: !ttg.memdesc<3 x 16x16xf16, #shared> = ttg.local_alloc
  %barriers: !ttg.memdesc<3 x 1xi64, #shared1> = ttg.local_alloc
  ttng.init_barrier %barriers
  %0: !ttg.memdesc<1xi64, #shared1> = ttg.memdesc_index %barriers, %i
  ttng.barrier_expect %0, %c {bytes = 512}
  ttng.async_copy_mbarrier_arrive %0 {no_increment = true}
  %1: !ttg.memdesc<16x16xf16, #shared> = ttg.memdesc_index %buffers, %i
  ttng.async_tma_copy_global_to_local %map, %1, %0, %c, indices=[%i, %i]
  ttng.wait_barrier %0, %i, tiles=[%1]
  ttng.async_tma_copy_local_to_global %map, %1, %c, indices=[%i, %i] {kind = "fadd"}
  ttng.tma_store_wait %1 {pendings = 1, only_reads = true}
  ttng.warp_specialize producer() {
    ttng.wait_barrier %0, %i, tiles=[%1]
    scf.yield
  } default() {
    ttng.arrive_barrier %0, %c, tiles=[%1]
    scf.yield
  }
  ttng.inval_barrier %barriers, tiles=[%buffers]
  %place: i32 = ttng.claim_maps {maps = 1}
  %made: !tt.tensordesc<tensor<16xf16>> = ttng.make_tensor_map %place, %x, shape=[%i] {number = 0, swizzle = 0, element = "f16"}
  ttng.acquire_maps %made
  ttng.release_maps %place
  tt.return
}
"""

PARTITIONS = """\
tt.func @partitions(%p: !tt.ptr<i32>, %n: i32) attributes {num_warps = 4} {
  %sum: i32 = ttg.warp_specialize %n default() {
    %0: i32 = arith.addi %n, %n
    ttg.warp_yield %0
  } partitions() {
    ttg.warp_partition {num_warps = 1, registers = 24} body(%n_1: i32) {
      tt.store %p, %n_1
      ttg.warp_return
    }
    ttg.warp_return
  }
  ttg.warp_dismiss
  tt.return
}
"""

ELEMENTWISE = """\
tt.func @elementwise(%i: i32, %l: i64, %f: f32, %h: f16, %c: i1, %p: !tt.ptr<f32>) {
  %0: f32 = arith.constant {value = -1.5e-07}
  %1: f32 = arith.constant {value = inf}
  %2: i1 = arith.cmpi %i, %i {predicate = "slt"}
  %3: i1 = arith.cmpf %f, %f {predicate = "olt"}
  %4: f32 = math.fma %f, %f, %f
  %5: f32 = tt.clampf %f, %f, %f {propagate_nan = true}
  %6: i32 = arith.select %c, %i, %i
  %7: i64 = arith.extsi %i
  %8: i64 = arith.extui %i
  %9: i32 = arith.trunci %l
  %10: f32 = arith.sitofp %i
  %11: f32 = arith.uitofp %i
  %12: i32 = arith.fptosi %f
  %13: i32 = arith.fptoui %f
  %14: f32 = arith.extf %h
  %15: f16 = arith.truncf %f {rounding = "rtz"}
  %16: i32 = tt.bitcast %f
  %17: !tt.ptr<f16> = tt.int_to_ptr %l
  %18: i64 = tt.ptr_to_int %p
  %19: !tt.ptr<f32> = tt.addptr %p, %l
"""


def elementwise_text() -> str:
    """All elementwise operations: those above, and the uniform ones from the registry."""
    lines = [ELEMENTWISE]
    for name, cls in registered_ops().items():
        if issubclass(cls, elementwise.Unary | elementwise.Binary):
            kind = (
                "i"
                if name in ("math.absi", "math.ctpop", "math.ctlz", "tt.mulhiui")
                or name.endswith(("i", "iu"))
                else "f"
            )
            operand, type_ = (
                ("%i", "i32")
                if issubclass(cls, elementwise.Binary) and kind == "i"
                else (f"%{kind}", f"{kind}32")
            )
            operand, type_ = (operand, type_) if kind == "i" else ("%f", "f32")
            result = "i1" if name.startswith("math.is") else type_
            operands = ", ".join([operand] * len(cls.operand_fields))
            lines.append(f"  %{len(lines) + 19}: {result} = {name} {operands}\n")
    return "".join([*lines, "  tt.return\n}\n"])


TEXTS = {
    "tensors": TENSORS,
    "control": CONTROL,
    "gpu": GPU,
    "copies": COPIES,
    "partitions": PARTITIONS,
    "elementwise": elementwise_text(),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_text_survives_parsing_and_printing(text: str) -> None:
    module = parse_module(text)
    for function in module.functions.values():
        verify(function)
    assert print_module(module) == text


def test_every_operation_is_in_a_text_above() -> None:
    mentioned = set(re.findall(r"[a-z]+\.[a-z_0-9.]+", "".join(TEXTS.values())))
    assert not registered_ops().keys() - mentioned


def test_locations_survive_with_their_calls() -> None:
    text = """\
tt.func @f(%x: i32) { loc("k.py":1:1)
  %y: i32 = arith.addi %x, %x loc("lib.py":7:3 at "k.py":4:12)
  tt.return
}
"""
    module = parse_module(text)
    loc = next(iter(module.kernel.body)).loc
    assert loc is not None and [str(frame) for frame in loc.frames()] == ["k.py:4:12", "lib.py:7:3"]
    assert print_module(module, locations=True) == text


def test_equal_source_names_are_distinguished() -> None:
    text = "tt.func @f(%x: i32) {\n  %y: i32 = arith.addi %x, %x\n  %y_1: i32 = arith.addi %y, %y\n  tt.return\n}\n"
    module = parse_module(text)
    for op in module.kernel.body:
        for result in op.results:
            result.name = "y"
    assert print_module(module) == text
