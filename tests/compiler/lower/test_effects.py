"""Atomics, barriers, assertions, printing, inline PTX."""

from __future__ import annotations

import itertools
import re

import pytest

import kbuild
from kbuild.errors import CompileError
from tests.compiler.lower.kernels import RANGE, assert_in_order, facts, llir, pointers, ptx
from tests.zoo.case import KERNELS

X = "%x: !tt.ptr<f32> {divisibility = 16}"
ONES = (
    RANGE
    + """
  %v: tensor<1024xf32, #b> = arith.constant {value = 1.0}
  %i: tensor<1024xi32, #b> = arith.constant {value = 1}
"""
)


def _added(type_: str, **attributes: str) -> str:
    """A body that adds ones to 8 neighbours in memory per thread; nothing uses what was there, and it ends there."""
    written = "".join(f', {name} = "{value}"' for name, value in attributes.items())
    return f"""{RANGE}
      %v: tensor<1024x{type_}, #b> = arith.constant {{value = 1.0}}
      {pointers("x", type_)}
      %old: tensor<1024x{type_}, #b> = tt.atomic_rmw %x_p, %v {{kind = "fadd"{written}}}
    """


def test_an_atomic_whose_result_is_unused_is_a_reduction():
    text = ptx(_added("f32", sem="relaxed"), X)
    assert text.count("red.relaxed.gpu.global.add.f32") == 8 and "atom" not in text


@pytest.mark.parametrize(
    ("type_", "arch", "instruction", "count"),
    [
        ("f32", "sm_90", "add.v4.f32", 2),
        ("f16", "sm_90", "add.noftz.v2.f16x2", 2),
        ("bf16", "sm_90", "add.noftz.v2.bf16x2", 2),
        ("f16", "sm_80", "add.noftz.f16x2", 4),
        ("f64", "sm_90", "add.f64", 8),
    ],
)
def test_neighbours_are_added_together(type_: str, arch: str, instruction: str, count: int):
    text = ptx(_added(type_, sem="relaxed"), f"%x: !tt.ptr<{type_}> {{divisibility = 16}}", arch)
    assert text.count(f"red.relaxed.gpu.global.{instruction}") == text.count("red.") == count


def test_old_values_of_neighbours_come_together():
    body = _added("f32") + "  tt.store %x_p, %old\n"
    text = ptx(body, X, "sm_90")
    atomic = "atom.relaxed.gpu.global.add.v4.f32 {"
    assert_in_order(text, ["fence.acq_rel.gpu", atomic, atomic, "fence.acq_rel.gpu", "st.global.v4"])
    assert text.count(atomic) == 2


def test_one_fence_orders_all_atomics_of_a_thread():
    body = (
        ONES
        + pointers("x", "i32")
        + """
      %old: tensor<1024xi32, #b> = tt.atomic_rmw %x_p, %i {kind = "umax"}
      tt.store %x_p, %old
    """
    )
    text = ptx(body, "%x: !tt.ptr<i32>")
    assert text.count("atom.relaxed.gpu.global.max.u32") == 8
    assert_in_order(text, ["fence.acq_rel.gpu", "atom.relaxed", "fence.acq_rel.gpu", "st.global"])
    assert text.count("fence") == 2


def test_what_acquires_at_the_end_of_a_kernel_acquires_nothing():
    text = ptx(_added("f32"), X)
    assert text.count("red.relaxed.gpu.global.add.f32") == 8 and text.count("fence.acq_rel.gpu") == 1
    assert "fence" not in ptx(_added("f32", sem="acquire"), X)


def test_what_acquires_before_other_accesses_reads():
    body = _added("f32", scope="cta") + "  tt.store %x_p, %v\n"
    text = ptx(body, X)
    assert text.count("atom.relaxed.cta.global.add.f32") == 8 and text.count("fence.acq_rel.cta") == 2


def test_an_atomic_of_one_element_keeps_its_order_at_the_end_of_a_kernel():
    """It may release a lock that a relaxed operation takes: its acquire empties the L1 cache for the next program."""
    body = """
      %zero: i32 = arith.constant {value = 0}
      %old: i32 = tt.atomic_rmw %lock, %zero {kind = "xchg"}
    """
    lock = "%lock: !tt.ptr<i32> {divisibility = 16}"
    assert "atom.acq_rel.gpu.global.exch.b32" in ptx(body, lock)
    assert "atom.acq_rel.gpu.global.exch.b32" in ptx(body + "tt.store %lock, %zero\n", lock)


def test_bfloat16_is_added_by_swapping_before_sm_90():
    text = ptx(_added("bf16"), "%x: !tt.ptr<bf16>", arch="sm_80")
    assert text.count("atom.relaxed.gpu.global.cas.b16") == 8 and "add.noftz.bf16" not in text
    assert_in_order(text, ["fence.acq_rel.gpu", "cas.b16"])


def test_masked_atomics_give_zero_elsewhere():
    body = (
        ONES
        + pointers("x", "i32")
        + """
      %n: tensor<1024xi32, #b> = tt.splat %k
      %m: tensor<1024xi1, #b> = arith.cmpi %r, %n {predicate = "slt"}
      %old: tensor<1024xi32, #b> = tt.atomic_rmw %x_p, %i, mask=%m {kind = "add", sem = "relaxed"}
      tt.store %x_p, %old
    """
    )
    text = llir(body, "%x: !tt.ptr<i32>, %k: i32")
    assert '"@$3 atom.relaxed.gpu.global.add.u32 $0, [$1 + 0], $2;", "=r,l,r,b,0,~{memory}"' in text


def test_a_lock_is_taken_by_one_thread_for_all():
    body = """
      %zero: i32 = arith.constant {value = 0}
      %one: i32 = arith.constant {value = 1}
      %old: i32 = tt.atomic_cas %lock, %zero, %one {scratch = 64}
      tt.store %lock, %old
    """
    text = llir(body, "%lock: !tt.ptr<i32>")
    barrier = "barrier.cta.sync.aligned.all(i32 0)"
    assert_in_order(text, ["atom.acq_rel.gpu.global.cas.b32", "br i1", "store i32", barrier, "load i32"])
    assert "atom.acq_rel.gpu.global.cas.b32" in ptx(body, "%lock: !tt.ptr<i32>")


def test_a_reduction_over_warps_has_brought_the_threads_together() -> None:
    source = KERNELS / "control.py"
    signature = {"x": "*i32", "counts": "*i32", "largest": "*i32", "total": "*fp32", "n": "i32"}
    made = kbuild.compile(
        f"{source}:atomic_histogram", signature=signature, constexprs={"BLOCK": 256}, stop="ptx"
    ).asm["ptx"]
    assert_in_order(made, ["bar.sync", "ld.shared", "atom.acq_rel.gpu.global.max", "bar.sync"])
    assert re.search(r"ld.shared[^@]*bar.sync[^@]*atom.acq_rel.gpu.global.max", made) is None


def test_an_eight_bit_atomic_is_reported_with_its_type():
    with pytest.raises(CompileError, match="no atomic add of i8"):
        llir(
            '  %a: i8 = arith.constant {value = 1}\n  %o: i8 = tt.atomic_rmw %x, %a {kind = "add"}\n',
            "%x: !tt.ptr<i8>",
        )


def test_an_assertion_calls_the_driver():
    body = (
        RANGE
        + """
      %n: tensor<1024xi32, #b> = tt.splat %k
      %m: tensor<1024xi1, #b> = arith.cmpi %r, %n {predicate = "slt"}
      tt.assert %m {message = "too \\"many\\""}
    """
    )
    text = ptx(body, "%k: i32")
    assert_in_order(text, [".extern .func __assertfail", "bra", "__assertfail"])


def test_printing_tells_program_and_index():
    body = (
        RANGE
        + """
      %h: tensor<1024xf16, #b> = arith.sitofp %r
      tt.print %h, %k {prefix = " h: ", signed = [true, false]}
    """
    )
    text = llir(body, "%k: i64")
    assert "pid (%u, %u, %u) idx (%u) h:  (operand 0)%f\\0A\\00" in text.replace("\\25", "%")
    assert "(operand 1)%llu" in text
    assert facts(ptx(body, "%k: i64")).stack > 0


def test_inline_asm_packs_narrow_elements():
    body = (
        RANGE
        + pointers("x", "i8")
        + """
      %v: tensor<1024xi8, #b> = tt.load %x_p
      %w: tensor<1024xi8, #b> = tt.elementwise_inline_asm %v {asm = "shl.b32 $0, $1, 3;", constraints = "=r,r", packed = 4}
      tt.store %x_p, %w
    """
    )
    text = ptx(body, "%x: !tt.ptr<i8> {divisibility = 16}")
    assert text.count("shl.b32 %r") >= 2 and "prmt" not in text and ".b8" not in text.split("{", 1)[1]


def test_inline_asm_takes_single_narrow_elements():
    body = (
        RANGE
        + pointers("x", "f16")
        + pointers("y", "i8")
        + """
      %v: tensor<1024xf16, #b> = tt.load %x_p
      %w: tensor<1024xf16, #b> = tt.elementwise_inline_asm %v {asm = "add.f16 $0, $1, $1;", constraints = "=h,h"}
      tt.store %x_p, %w
      %i: tensor<1024xi8, #b> = tt.load %y_p
      %j: tensor<1024xi8, #b> = tt.elementwise_inline_asm %i {asm = "not.b32 $0, $1;", constraints = "=r,r"}
      tt.store %y_p, %j
    """
    )
    text = ptx(body, "%x: !tt.ptr<f16> {divisibility = 16}, %y: !tt.ptr<i8> {divisibility = 16}")
    assert text.count("add.f16 %rs") == 8 and text.count("not.b32 %r") == 8


def test_a_boolean_argument_is_a_byte():
    text = ptx("  %i: i32 = arith.extui %flag\n  tt.store %x, %i\n", "%x: !tt.ptr<i32>, %flag: i1")
    assert_in_order(text, [".param .u8 f_param_1", "ld.param.b8", "setp.ne", "selp"])


def test_inline_asm_with_two_results():
    body = (
        RANGE
        + pointers("x", "i32")
        + """
      %a, %b: tensor<1024xi32, #b>, tensor<1024xi32, #b> = tt.elementwise_inline_asm %r
        {asm = "mov.b32 $0, $2; not.b32 $1, $2;", constraints = "=r, =r, r"}
      %c: tensor<1024xi32, #b> = arith.addi %a, %b
      tt.store %x_p, %c
    """
    )
    assert ptx(body, "%x: !tt.ptr<i32>").count("not.b32") == 8


def test_line_numbers_reach_the_ptx():
    body = """
      %c: i32 = arith.constant {value = 1} loc("k.py":3:5)
      %d: i32 = arith.addi %n, %c loc("lib.py":7:1 at "k.py":4:5)
      tt.store %x, %d loc("k.py":5:5)
    """
    text = ptx(body, "%x: !tt.ptr<i32>, %n: i32", lineinfo=True)
    assert_in_order(text, [".loc\t2 7 1", "add.s32", ".loc\t1 5 5", "st.global", '"./k.py"', '"./lib.py"'])
    assert "debug" not in text.split(".loc")[0]


def test_loads_and_stores_stay_on_their_side_of_the_wait_for_earlier_launches():
    """The same load before and after: neither merged nor moved.  An architecture that has no such launches
    needs no wait."""
    body = (
        ONES
        + pointers("x", "f32")
        + """
      %old: tensor<1024xf32, #b> = tt.load %x_p
      tt.store %x_p, %v
      gpu.grid_dependency_wait
      %new: tensor<1024xf32, #b> = tt.load %x_p
      gpu.launch_dependents
      %sum: tensor<1024xf32, #b> = arith.addf %old, %new
      tt.store %x_p, %sum
    """
    )
    found = re.findall(r"(?:ld|st)\.global|griddepcontrol\.\w+", ptx(body, X, arch="sm_90"))
    assert [name for name, _ in itertools.groupby(found)] == [
        "ld.global",
        "st.global",
        "griddepcontrol.wait",
        "ld.global",
        "griddepcontrol.launch_dependents",
        "st.global",
    ]
    assert "griddepcontrol" not in ptx(body, X, arch="sm_80")
