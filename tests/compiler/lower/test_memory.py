"""Loads and stores: vectors, masks, hints, replicated data."""

from __future__ import annotations

import re

import numpy as np
import pytest

import kbuild
import kbuild.language as tl
from kbuild.compiler.lower.core.emit import LAZY_DEPTH
from kbuild.compiler.lower.memory.global_memory import MIN_PIECES
from kbuild.emulator import load, run
from tests.compiler.lower.kernels import RANGE, assert_in_order, llir, pointers, ptx

X = "%x: !tt.ptr<f32> {divisibility = 16}"
Y = "%y: !tt.ptr<f32> {divisibility = 16}"
MASK = (
    RANGE
    + """
  %nn: tensor<1024xi32, #b> = tt.splat %n
  %m: tensor<1024xi1, #b> = arith.cmpi %r, %nn {predicate = "slt"}
"""
)


def test_aligned_neighbours_are_one_vector():
    copy = (
        RANGE
        + pointers("x", "f32")
        + pointers("y", "f32")
        + """
      %v: tensor<1024xf32, #b> = tt.load %x_p
      tt.store %y_p, %v
    """
    )
    text = ptx(copy, f"{X}, {Y}")
    # One address each; the second vector of a thread lies 512 elements further, as an immediate.
    assert_in_order(text, ["ld.global.v4.b32", "ld.global.v4.b32", "st.global.v4.b32", "st.global.v4.b32"])
    assert "+2048]" in text and text.count("ld.global") == 2 and text.count("add.s64") == 2


def test_unknown_alignment_is_element_by_element():
    copy = (
        RANGE
        + pointers("x", "f32")
        + pointers("y", "f32")
        + """
      %v: tensor<1024xf32, #b> = tt.load %x_p
      tt.store %y_p, %v
    """
    )
    text = ptx(copy, "%x: !tt.ptr<f32>, %y: !tt.ptr<f32>")
    assert ".v4" not in text and text.count("ld.global.b32") == 8


def test_a_mask_that_cuts_anywhere_is_per_element():
    masked = MASK + pointers("x", "f32") + "  tt.store %x_p, %v, mask=%m\n"
    masked = masked.replace(
        "  tt.store", "  %v: tensor<1024xf32, #b> = arith.constant {value = 1.0}\n  tt.store"
    )
    text = ptx(masked.replace("slt", "ne"), f"{X}, %n: i32")
    assert text.count("st.global.b32") == 8 and "v4" not in text
    assert ptx(masked, f"{X}, %n: i32 {{divisibility = 16}}").count("st.global.v4.b32") == 2


@pytest.mark.parametrize("size", [4096, 16384])
def test_threads_without_a_vector_that_is_cut_go_around_single_elements(size):
    """Where these are many: 3 of each vector, at its address."""
    stored = MASK + pointers("x", "f32") + "  tt.store %x_p, %v, mask=%m\n"
    stored = stored.replace(
        "  tt.store", "  %v: tensor<1024xf32, #b> = arith.constant {value = 1.0}\n  tt.store"
    )
    text = ptx(stored.replace("1024", str(size)), f"{X}, %n: i32")
    vectors = size // (4 * 128)
    ways = 1 + (3 * vectors >= MIN_PIECES)
    assert text.count("st.global.v4") == ways * vectors and text.count("st.global.b32") == 3 * vectors
    assert ("bra" in text) == (ways == 2) and text.count("add.s64") <= 1


@pytest.mark.parametrize(("size", "around"), [(512, True), (8192, True), (32768, False)])
@pytest.mark.parametrize("element", ["f32", "f16"])
def test_threads_without_a_vector_that_is_cut_go_around_loads_of_single_elements(size, around, element):
    """Where the vectors are not too many: all of them are on their way before the branch."""
    copy = MASK + pointers("x", element) + pointers("y", element)
    copy += f"  %v: tensor<1024x{element}, #b> = tt.load %x_p, mask=%m\n  tt.store %y_p, %v\n"
    text = ptx(copy.replace("1024", str(size)), f"{X}, {Y}, %n: i32".replace("f32", element))
    single = "ld.global.b32" if element == "f32" else "ld.global.b16"
    vectors = size // (4 * 128)
    assert text.count("ld.global.v") == vectors and text.count(single) == 3 * vectors
    first_branch = text.find("bra", 0, text.index("st.global"))
    assert (first_branch > 0) == around
    assert not around or text.rindex("ld.global.v") < first_branch < text.index(single)


def test_offsets_that_may_wrap_around_are_extended_as_they_are_scaled_and_added():
    """They are opaque to LLVM before, in 32 bits: ptxas extends and adds an opaque copy of 64 bits apart."""
    gather = (
        RANGE
        + pointers("y", "i32")
        + """
      %i: tensor<1024xi32, #b> = tt.load %y_p
      %s: tensor<1024xi32, #b> = arith.muli %i, %i
      %p: tensor<1024x!tt.ptr<i32>, #b> = tt.splat %x
      %q: tensor<1024x!tt.ptr<i32>, #b> = tt.addptr %p, %s
      %v: tensor<1024xi32, #b> = tt.load %q
      tt.store %y_p, %v
    """
    )
    text = ptx(gather, "%x: !tt.ptr<i32>, %y: !tt.ptr<i32> {divisibility = 16}")
    assert text.count("mad.wide.s32") == 8 and "shl.b64" not in text and "cvt.s64" not in text


def test_narrow_offsets_are_extended():
    store = (
        RANGE
        + """
      %b: tensor<1024xi8, #b> = arith.trunci %r
      %c: tensor<1024xi8, #b> = arith.addi %b, %b
      %s: tensor<1024x!tt.ptr<f32>, #b> = tt.splat %x
      %p: tensor<1024x!tt.ptr<f32>, #b> = tt.addptr %s, %c
      %v: tensor<1024xf32, #b> = arith.constant {value = 1.0}
      tt.store %p, %v
    """
    )
    assert "cvt.s64.s8" in ptx(store, X) or "cvt.s32.s8" in ptx(store, X)


@pytest.mark.parametrize("offset", [-1034879398, 1 << 30, -1 << 29])
def test_constant_offsets_beyond_32_bits_are_kept(offset):
    store = (
        RANGE
        + f"""
      %w: tensor<1024xi64, #b> = arith.extsi %r
      %c: tensor<1024xi64, #b> = arith.constant {{value = {offset}}}
      %o: tensor<1024xi64, #b> = arith.addi %w, %c
      %s: tensor<1024x!tt.ptr<f32>, #b> = tt.splat %x
      %p: tensor<1024x!tt.ptr<f32>, #b> = tt.addptr %s, %o
      %v: tensor<1024xf32, #b> = arith.constant {{value = 1.0}}
      tt.store %p, %v
    """
    )
    text = ptx(store, X)
    assert offset * 4 in {int(number) for number in re.findall(r"-?\d+", text)}
    assert all(-1 << 31 <= int(number) < 1 << 31 for number in re.findall(r"\+(-?\d+)\]", text))


@pytest.mark.parametrize("length", range(LAZY_DEPTH - 4, LAZY_DEPTH + 1))
def test_pointers_behind_a_chain_of_any_length_are_written(length):
    chain = "\n".join(f"%c{i + 1}: tensor<1024xi32, #b> = arith.xori %c{i}, %r" for i in range(length))
    store = (
        RANGE
        + f"""
      %c0: tensor<1024xi32, #b> = arith.addi %r, %r
      {chain}
      %s: tensor<1024x!tt.ptr<f32>, #b> = tt.splat %x
      %p: tensor<1024x!tt.ptr<f32>, #b> = tt.addptr %s, %c{length}
      %v: tensor<1024xf32, #b> = arith.constant {{value = 1.0}}
      tt.store %p, %v
    """
    )
    assert "st.global" in ptx(store, X)


def test_the_end_of_a_tensor_is_accessed_element_by_element_the_rest_in_vectors():
    copy = (
        MASK
        + pointers("x", "f32")
        + pointers("y", "f32")
        + """
      %o: tensor<1024xf32, #b> = arith.constant {value = 1.0}
      %v: tensor<1024xf32, #b> = tt.load %x_p, mask=%m, other=%o
      tt.store %y_p, %v, mask=%m
    """
    )
    text = ptx(copy, f"{X}, {Y}, %n: i32")
    for access in ("ld.global", "st.global"):
        # A vector that is not whole has at most three elements.
        assert text.count(f"{access}.v4.b32") == 2 and text.count(f"{access}.b32") == 6
    loads = ["ld.global.v4.b32", "ld.global.v4.b32", "bra", "ld.global.b32"]
    assert_in_order(text, [*loads, "st.global.v4.b32", "st.global.b32"])


def test_other_is_what_the_registers_start_with():
    text = llir(
        MASK
        + pointers("x", "f32")
        + pointers("y", "f32")
        + """
      %o: tensor<1024xf32, #b> = arith.constant {value = 1.0}
      %v: tensor<1024xf32, #b> = tt.load %x_p, mask=%m, other=%o
      tt.store %y_p, %v
    """,
        f"{X}, {Y}, %n: i32 {{divisibility = 16}}",
    )
    assert (
        '@$9 ld.global.v4.b32 {$0, $1, $2, $3}, [$8 + 0];", "=r,=r,=r,=r,0,1,2,3,l,b,~{memory}"(i32 1065353216'
        in text
    )


def test_hints_become_operators_priorities_and_policies():
    text = ptx(
        RANGE
        + pointers("x", "f32")
        + pointers("y", "f32")
        + """
      %v: tensor<1024xf32, #b> = tt.load %x_p {cache = ".cg"}
      %w: tensor<1024xf32, #b> = tt.load %x_p {eviction = "evict_first"}
      %s: tensor<1024xf32, #b> = arith.addf %v, %w
      %u: tensor<1024xf32, #b> = tt.load %x_p {volatile = true}
      %t: tensor<1024xf32, #b> = arith.addf %s, %u
      tt.store %y_p, %t {cache = ".cs", eviction = "evict_last"}
    """,
        f"{X}, {Y}",
    )
    assert text.count("createpolicy") == 2
    for form in (
        "ld.global.cg.v4.b32",
        "ld.global.L1::evict_first.L2::cache_hint.v4.b32",
        "ld.volatile.global.v4.b32",
        "st.global.cs.L2::cache_hint.v4.b32",
    ):
        assert form in text


def test_half_precision_travels_in_words():
    body = (
        RANGE
        + pointers("x", "f16")
        + pointers("y", "bf16")
        + """
      %v: tensor<1024xf16, #b> = tt.load %x_p
      %w: tensor<1024xf32, #b> = arith.extf %v
      %n: tensor<1024xbf16, #b> = arith.truncf %w
      tt.store %y_p, %n
    """
    )
    text = ptx(body, "%x: !tt.ptr<f16> {divisibility = 16}, %y: !tt.ptr<bf16> {divisibility = 16}")
    assert_in_order(text, ["ld.global.v2.b32", "cvt.f32.f16", "cvt.rn.bf16x2.f32", "st.global.v2.b32"])
    assert "prmt" not in text and "cvt.rn.bf16.f32" not in text


def test_bytes_stay_in_words():
    body = RANGE + pointers("x", "i8") + pointers("y", "i8") + pointers("z", "f16")
    body += """
      %v: tensor<1024xi8, #b> = tt.load %x_p
      %f: tensor<1024xf8E4M3FN, #b> = tt.bitcast %v
      %h: tensor<1024xf16, #b> = arith.extf %f
      tt.store %y_p, %v
      tt.store %z_p, %h
    """
    aligned = ", ".join(
        f"%{name} {{divisibility = 16}}" for name in ("x: !tt.ptr<i8>", "y: !tt.ptr<i8>", "z: !tt.ptr<f16>")
    )
    text = ptx(body, aligned, "sm_90")
    assert_in_order(text, ["ld.global.b32", "cvt.rn.f16x2.e4m3x2", "st.global.v2.b32"])
    assert not re.search(r"\b(prmt|or|shl|mul.wide)\.\w+", text.partition("ld.global")[2])


@kbuild.jit
def interleaved(x, out):
    i = tl.arange(0, 512)
    first = tl.interleave(tl.load(x + i), tl.load(x + 512 + i))
    second = tl.interleave(tl.load(x + 1024 + i), tl.load(x + 1536 + i))
    tl.store(out + tl.arange(0, 2048), tl.interleave(first, second))


def test_bytes_of_several_words_are_gathered_two_at_a_time():
    signature = {"x": "*u8:16", "out": "*u8:16"}
    made = kbuild.compile(interleaved, signature=signature, target="sm_80", stop="ptx")
    text = made.asm["ptx"]
    # A thread has a word of each row: four words of four bytes each, of which the first two come from two words each.
    assert text.count("prmt.b32") == 3 * 4
    assert not re.search(
        r"\b(or|shl|mul.wide)\.\w+", text.partition("ld.global")[2].partition("st.global")[0]
    )
    x = np.random.default_rng(3).integers(0, 256, 2048).astype(np.uint8)
    report = run(load(text, "interleaved"), None, (1,), 4, made.metadata.shared, [x, np.zeros_like(x)])
    np.testing.assert_array_equal(report.outputs[1], x.reshape(4, 512)[[0, 2, 1, 3]].T.ravel())


@pytest.mark.parametrize("type_", ["f16", "bf16"])
def test_halves_of_words_are_computed_together(type_: str):
    body = RANGE + pointers("x", type_)
    body += f"""
      %v: tensor<1024x{type_}, #b> = tt.load %x_p
      %c: tensor<1024x{type_}, #b> = arith.constant {{value = 3.0}}
      %w: tensor<1024x{type_}, #b> = arith.mulf %v, %c
      %s: tensor<1024x{type_}, #b> = arith.addf %w, %v
      tt.store %x_p, %s
    """
    text = ptx(body, f"%x: !tt.ptr<{type_}> {{divisibility = 16}}", "sm_90")
    used = re.findall(r"\b(?:fma|mul|add)\.[\w.]*16\w*", text)
    assert sorted(used) == [f"add.{type_}x2"] * 4 + [f"mul.{type_}x2"] * 4
    assert "mov.b32 \t{" not in text and "prmt" not in text


def test_single_elements_of_16_bits_are_stored_from_registers_as_wide():
    """ptxas would clear the upper halves of 32-bit registers first, an instruction for each store."""
    body = MASK + pointers("x", "f16") + pointers("y", "bf16")
    body += """
      %v: tensor<1024xf16, #b> = tt.load %x_p, mask=%m
      %w: tensor<1024xf32, #b> = arith.extf %v
      %t: tensor<1024xbf16, #b> = arith.truncf %w
      tt.store %y_p, %t, mask=%m
    """
    text = ptx(body, "%x: !tt.ptr<f16>, %y: !tt.ptr<bf16>, %n: i32")
    stored = re.findall(r"st.global.b16 \[.*\], (%\w+?)\d+;", text)
    assert stored == ["%rs"] * 8 and "cvt.u32.u16" not in text


def test_truth_values_are_bytes():
    body = MASK + pointers("x", "i1") + "  tt.store %x_p, %m\n"
    text = ptx(body, "%x: !tt.ptr<i1> {divisibility = 16}, %n: i32")
    assert "st.global.b32" in text


def test_a_replicated_tensor_is_stored_once():
    small = (
        """
      %r: tensor<32xi32, #one> = tt.make_range {start = 0, end = 32}
    """
        + pointers("x", "i32", size=32, layout="#one")
        + "  tt.store %x_p, %r\n"
    )
    text = llir(small, "%x: !tt.ptr<i32>")
    assert_in_order(text, ["and i32 %v1, 96", "icmp eq i32", "st.global.b32"])


def test_scalars_are_stored_by_the_first_thread_and_loaded_by_all():
    text = llir("  %v: f32 = tt.load %x\n  tt.store %y, %v\n", f"{X}, {Y}")
    assert_in_order(text, ["icmp eq i32 %v", "load i32, ptr addrspace(1) %x", "@$2 st.global.b32"])


def test_offsets_look_through_shapes():
    body = """
      %r: tensor<32xi32, #row> = tt.make_range {start = 0, end = 32}
      %c: tensor<32xi32, #column> = tt.make_range {start = 0, end = 32}
      %re: tensor<32x1xi32, #left> = tt.expand_dims %r {axis = 1}
      %ce: tensor<1x32xi32, #tile> = tt.expand_dims %c {axis = 0}
      %k: tensor<32x1xi32, #left> = arith.constant {value = 64}
      %rk: tensor<32x1xi32, #left> = arith.muli %re, %k
      %rb: tensor<32x32xi32, #tile> = tt.broadcast %rk
      %cb: tensor<32x32xi32, #tile> = tt.broadcast %ce
      %o: tensor<32x32xi32, #tile> = arith.addi %rb, %cb
      %xs: tensor<32x32x!tt.ptr<f32>, #tile> = tt.splat %x
      %xp: tensor<32x32x!tt.ptr<f32>, #tile> = tt.addptr %xs, %o
      %v: tensor<32x32xf32, #tile> = tt.load %xp
      %w: tensor<32x32xf32, #tile> = arith.addf %v, %v
      tt.store %xp, %w
    """
    text = ptx(body, X)
    # Two rows of a thread, 16 · 64 elements apart: one address, two immediates.
    assert_in_order(text, ["ld.global.v4.b32", "st.global.v4.b32"])
    assert text.count("mad.wide") + text.count("add.s64") == 1 and "+4096]" in text


def _summed(between: str) -> str:
    """A sum of 256 numbers of each thread, with operations between their load and the sum."""
    return f"""
      %r: tensor<32768xi32, #b> = tt.make_range {{start = 0, end = 32768}}
      {pointers("x", "f32", size=32768)}
      %v: tensor<32768xf32, #b> = tt.load %x_p
      {between}
      %s: f32 = tt.reduce %v {{axis = 0, scratch = 0}} combine(%a: f32, %c: f32) {{
        %d: f32 = arith.addf %a, %c
        tt.reduce.return %d
      }}
      tt.store %y, %s
    """


GLOBAL_LOAD = "load <4 x i32>, ptr addrspace(1)"


def test_more_than_the_registers_is_loaded_where_a_reduction_takes_it():
    text = llir(_summed(""), f"{X}, {Y}")
    assert text.count(GLOBAL_LOAD) == 64 and text[: text.rindex(GLOBAL_LOAD)].count("fadd") > 240


def test_loads_stay_before_what_may_overwrite_them():
    text = llir(_summed("%z: f32 = arith.constant {value = 0.0}\n      tt.store %y, %z"), f"{X}, {Y}")
    assert text.rindex(GLOBAL_LOAD) < text.index("fadd")


@pytest.mark.parametrize(("size", "together"), [(4096, True), (2048, False)])
def test_stores_of_the_same_many_registers_are_computed_vector_by_vector(size: int, together: bool):
    """Store by store, all that they share would wait for the second one."""
    body = (
        RANGE
        + "".join(pointers(name, "f32") for name in "xyz")
        + """
      %v: tensor<1024xf32, #b> = tt.load %x_p
      %e: tensor<1024xf32, #b> = math.absf %v
      %s: tensor<1024xf32, #b> = arith.addf %e, %v
      %t: tensor<1024xf32, #b> = arith.mulf %e, %v
      tt.store %y_p, %s
      tt.store %z_p, %t
    """
    )
    text = llir(
        body.replace("1024", str(size)),
        ", ".join(f"%{name}: !tt.ptr<f32> {{divisibility = 16}}" for name in "xyz"),
    )
    written = re.findall(r"fadd|fmul|store(?= <)", text)
    each = [*["fmul"] * 4, *["fadd"] * 4, "store"]
    separate = [*["fadd"] * 16, *["fmul"] * 16, *["store"] * 8]
    assert written == ([*each * 8, *["store"] * 8] if together else separate)


def test_rows_of_a_moving_tile_are_strides_apart():
    """As products of their own, the rows would each take two registers through the loop."""
    tile = "tensor<32x32x!tt.ptr<f32>, #tile>"
    body = f"""
      %c0: i32 = arith.constant {{value = 0}}
      %c1: i32 = arith.constant {{value = 1}}
      %rows: tensor<32xi32, #row> = tt.make_range {{start = 0, end = 32}}
      %wide: tensor<32xi64, #row> = arith.extsi %rows
      %row: tensor<32x1xi64, #left> = tt.expand_dims %wide {{axis = 1}}
      %strides: tensor<32x1xi64, #left> = tt.splat %stride
      %begin: tensor<32x1xi64, #left> = arith.muli %row, %strides
      %offsets: tensor<32x32xi64, #tile> = tt.broadcast %begin
      scf.for %c0, %n, %c1, init=[] body(%i: i32) {{
        %moved: !tt.ptr<f32> = tt.addptr %x, %i
        %first: {tile} = tt.splat %moved
        %p: {tile} = tt.addptr %first, %offsets
        %v: tensor<32x32xf32, #tile> = tt.load %p
        %w: tensor<32x32xf32, #tile> = arith.addf %v, %v
        tt.store %p, %w
        scf.yield
      }}
    """
    text = llir(body, f"{X}, %n: i32, %stride: i64")
    # A thread has two rows, 16 from each other: one product of its own, and one that all threads share.
    assert text.count("mul i64") == 2 and "mul i64 %stride, 16" in text


def test_shared_memory_is_declared_where_it_is_used():
    # A launch gives every program of a kernel that declares it some, at the cost of cache.
    copy = RANGE + pointers("x", "i32") + "  tt.store %x_p, %r\n"
    assert ".shared" not in ptx(copy, "%x: !tt.ptr<i32>", "sm_90")
    moved = (
        RANGE
        + "  %f: tensor<1024xi32, #one> = ttg.convert_layout %r {scratch = 0}\n"
        + pointers("x", "i32", "%f", layout="#one")
        + "  tt.store %x_p, %f\n"
    )
    assert ".extern .shared" in ptx(moved, "%x: !tt.ptr<i32>", "sm_90")
