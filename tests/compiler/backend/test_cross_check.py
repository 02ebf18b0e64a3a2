"""A cubin is compared with the PTX that it was made from: one of another kernel, or without some MMA, is
rejected."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from kbuild.compiler.backend.cross_check import require_same
from kbuild.compiler.backend.cubin import assemble
from kbuild.compiler.backend.elf import capability, kernels, sections
from kbuild.compiler.backend.opaque_predicates import opaque
from kbuild.compiler.backend.sass import (
    BYTES,
    CAPABILITIES,
    OPERATIONS,
    expected,
    in_code,
    in_ptx,
    widens_fp8,
)
from kbuild.compiler.backend.unused_mmas import unused
from kbuild.errors import ToolError
from kbuild.targets import ARCHS, TARGETS, Target, capability_of, find_target

HEADER = ".version 8.7\n.target {arch}\n.address_size 64\n.extern .shared .align 1024 .b8 shared[];\n"
WGMMA = "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.f16.f16 {{{sums}}}, %a{left}, %b, 1, 1, 1, 0, 0;"


def kernel(
    body: str, arch: str = "sm_90a", name: str = "k", parameters: str = ".param .u64 p", threads: str = "128"
) -> str:
    """A kernel with registers to calculate in, some of which hold what ptxas cannot know."""
    return f"""{HEADER.format(arch=arch)}
.visible .entry {name}({parameters}) .reqntid {threads}
{{
.reg .b64 %p, %b, %a<4>; .reg .b32 %t, %r<16>; .reg .f32 %f<140>; .reg .f64 %d<8>; .reg .pred %q;
ld.param.u64 %p, [p];
mov.u32 %t, %tid.x;
mul.wide.u32 %b, %t, 64;
add.u64 %p, %p, %b;
{"".join(f"ld.global.b32 %r{index}, [%p+{8192 * index}];" for index in range(12))}
{"".join(f"ld.global.f32 %f{index}, [%p+{8192 * index + 4}];" for index in range(8))}
{"".join(f"ld.global.f64 %d{index}, [%p+{8192 * index + 8}];" for index in range(4))}
{body}
{"".join(f"st.global.b32 [%p+{8192 * index + 16}], %r{index};" for index in range(4))}
{"".join(f"st.global.f32 [%p+{8192 * index + 20}], %f{index};" for index in range(8))}
{"".join(f"st.global.f64 [%p+{8192 * index + 24}], %d{index};" for index in range(2))}
ret;
}}"""


def wgmmas(*lefts: int, columns: int = 16) -> str:
    """wgmmas of different left tiles and one right tile, summed in one group."""
    sums = ", ".join(f"%f{index}" for index in range(columns // 2))
    tiles = "".join(f"add.u64 %a{index}, %p, {2 * index};" for index in range(4))
    wgmmas = "\n".join(WGMMA.format(columns=columns, sums=sums, left=left) for left in lefts)
    return f"{tiles}wgmma.fence.sync.aligned;\n{wgmmas}\nwgmma.commit_group.sync.aligned;wgmma.wait_group.sync.aligned 0;"


F32, I32 = "{%f0, %f1, %f2, %f3}", "{%r0, %r1, %r2, %r3}"
A4, B2 = "{%r4, %r5, %r6, %r7}", "{%r8, %r9}"
EACH = {
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32": f"{F32}, {A4}, {B2}, {F32}",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32": f"{F32}, {A4}, {B2}, {F32}",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32": f"{F32}, {A4}, {B2}, {F32}",
    "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32": f"{I32}, {A4}, {B2}, {I32}",
    "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32": f"{I32}, {A4}, {B2}, {I32}",
    "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc": f"{I32}, {A4}, {B2}, {I32}",
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64": "{%d0, %d1}, {%d2}, {%d3}, {%d0, %d1}",
    "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32": f"{F32}, {A4}, {B2}, {F32}",
    "mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16": f"{I32}, {{%r4, %r5}}, {B2}, {I32}",
    "wmma.mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64": "{%d0, %d1}, {%d2}, {%d3}, {%d0, %d1}",
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16": f"{F32}, %a0, %b, 1, 1, 1, 0, 0",
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16": f"{F32}, {A4}, %b, 1, 1, 1, 0",
    "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32": f"{F32}, {A4}, %b, 1, 1, 1",
    "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e5m2": f"{F32}, {A4}, %b, 1, 1, 1",
    "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.u8": f"{I32}, %a0, %b, 1",
    "wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc": f"{I32}, %a0, %b, 1",
}
"""An instruction of each kind, and operands for it."""


def one_of_each(arch: str) -> str:
    """PTX with all of the instructions that an architecture has."""
    asynchronous, later = arch == "sm_90a", capability_of(arch) >= 89
    chosen = {
        name: operands for name, operands in EACH.items() if asynchronous or not name.startswith("wgmma")
    }
    lines = [f"{name} {operands};" for name, operands in chosen.items() if later or ".e4m3" not in name]
    around = ("wgmma.fence.sync.aligned;", "wgmma.commit_group.sync.aligned;wgmma.wait_group.sync.aligned 0;")
    # Each in a group of its own: ptxas treats similar wgmmas of one group as one.
    return kernel(
        "\n".join(f"{around[0]}{line}{around[1]}" if "wgmma" in line else line for line in lines), arch
    )


def cubin_of(ptx: str, arch: str) -> bytes:
    return assemble(ptx, arch)[0]


def code_of(cubin: bytes) -> bytes:
    return b"".join(section.data for section in sections(cubin) if section.name.startswith(".text."))


@pytest.mark.parametrize("arch", [*ARCHS, "sm_90a"])
def test_the_instructions_of_each_kind_are_found(arch: str) -> None:
    """`assemble` itself would refuse a cubin that has fewer than the table says; here it has no more, either."""
    ptx = one_of_each(arch)
    cubin = cubin_of(ptx, arch)
    wanted = expected(in_ptx(ptx), capability(cubin))
    more = in_code(code_of(cubin)) - wanted
    # Routines of sm_90 and newer make two 8-bit MMAs of a 4-bit one; later ones make eight of one of bits.
    # The table leaves these out.
    number = capability_of(arch)
    left_out = {} if number < 90 else {"IMMA": 2, "BMMA": 1} if number == 90 else {"IMMA": 10}
    assert {str(kind): count for kind, count in more.items()} == left_out
    has_fp8 = number >= 89 and not widens_fp8(number)
    assert len(wanted) == 3 + (number < 90) + has_fp8 + 4 * (
        arch == "sm_90a"
    )  # Those of bits, fp8, warpgroups.


@pytest.mark.parametrize("target", TARGETS.values(), ids=ARCHS)
def test_the_record_knows_whether_fp8_is_widened(target: Target) -> None:
    """The lowering follows the record, and the check of a cubin follows the table."""
    has_fp8 = any(atom.is_fp8 for atom in target.atoms)
    assert target.has("fp8_mma_as_f16") == (has_fp8 and widens_fp8(target.capability))
    assert has_fp8 == (target.capability >= 89) and target.capability in CAPABILITIES


@pytest.mark.parametrize("arch", [arch for arch in ARCHS if find_target(arch).has("fp8_mma_as_f16")])
def test_constants_that_ptxas_widens_are_found(arch: str) -> None:
    mma = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32"
    body = f"mov.b32 %r8, 0x38404142; mov.b32 %r9, 0x31323334; {mma} {EACH[mma]};"
    with pytest.raises(ToolError, match=r"constant operands of fp8 MMAs: found 0x\w+, 0x\w+, 0x\w+, 0x\w+"):
        assemble(kernel(body, arch), arch)


def nvdisasm() -> str:
    for entry in sys.path:
        for path in Path(entry or ".", "nvidia").glob("*/bin/nvdisasm"):
            return str(path)
    pytest.fail("the test extra brings nvidia-cuda-nvdisasm, and it is not here")


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120"])
def test_operations_have_the_numbers_that_nvdisasm_knows(arch: str, tmp_path: Path) -> None:
    cubin = cubin_of(one_of_each(arch), arch)
    (tmp_path / "k.cubin").write_bytes(cubin)
    text = subprocess.run(
        [nvdisasm(), "-hex", tmp_path / "k.cubin"], capture_output=True, text=True, check=True
    ).stdout
    line = re.compile(
        r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]*)(\.\S+)?.*?/\* 0x([0-9a-f]{16}) \*/"
    )
    found = [(name, shape or "", int(word, 16)) for name, shape, word in line.findall(text)]
    assert len(found) == len(code_of(cubin)) // BYTES, "every instruction is read"
    for name, shape, word in found:
        assert (OPERATIONS.get(name) == word & 0x1FF) == (word & 0x1FF in OPERATIONS.values()), name
        if columns := re.match(r"\.64x(\d+)x", shape) if name in ("HGMMA", "QGMMA") else None:
            assert int(columns[1]) == 8 * (word >> 53 & 0x1F) + 8
    assert sum(name in OPERATIONS for name, _, _ in found) == sum(in_code(code_of(cubin)).values())


def test_columns_of_wgmmas_are_distinguished() -> None:
    body = wgmmas(0, 1, columns=16) + wgmmas(2, columns=8) + wgmmas(3, columns=256)
    assert {
        str(kind): count for kind, count in in_code(code_of(cubin_of(kernel(body), "sm_90a"))).items()
    } == {
        "HGMMA of 16 columns": 2,
        "HGMMA of 8 columns": 1,
        "HGMMA of 256 columns": 1,
    }


def test_a_wgmma_that_ptxas_leaves_out_is_an_error() -> None:
    """All versions from 12.8 to 13.5 treat the second of two wgmmas of the same tiles into the same
    registers as the first."""
    with pytest.raises(ToolError) as caught:
        assemble(kernel(wgmmas(0, 0, 1)), "sm_90a")
    message = str(caught.value)
    assert (
        "tensor-core instructions (HGMMA of 16 columns): expected 3, found 2; the results would be wrong"
        in message
    )
    assert re.search(r"ptxas 1\d\.\d+\.\d+ made a cubin", message) and "kbuild 0.1.0, llvmlite 0." in message
    assert "KBUILD_PTXAS" in caught.value.help and "[package]" in caught.value.help
    assert assemble(kernel(wgmmas(0, 1, 2)), "sm_90a")[0]


def test_a_wgmma_that_nothing_uses_may_be_left_out() -> None:
    """A program that uses half of a tile: LLVM keeps both wgmmas, because they are asm, and ptxas drops one."""
    other = WGMMA.format(columns=16, sums=", ".join(f"%f{index}" for index in range(100, 108)), left=3)
    body = (
        wgmmas(0, 1).replace("wgmma.commit", f"{other}\nwgmma.commit", 1)
        + "mov.b32 %f120, %f101; mov.b32 %f121, %f120;"
    )
    ptx = kernel(body)
    cubin = cubin_of(ptx, "sm_90a")
    assert len(in_ptx(ptx)) == 3 and sum(in_code(code_of(cubin)).values()) == 2
    with pytest.raises(ToolError, match="expected 2, found 1"):
        require_same(ptx, "sm_90a", without(cubin, "HGMMA"), "13.5.37", lambda _: without(cubin, "HGMMA"))
    assert len(unused(ptx)) == 1 and not unused(kernel(body + "st.shared.f32 [shared], %f121;"))


NEVER = "setp.gt.u32 %q, %t, 5000; @%q st.global.f32 [%p], %f101;"
"""A program has 128 threads."""


def test_an_mma_whose_only_use_never_happens_may_be_left_out() -> None:
    """ptxas knows the range of `tid`, and does not compute values that are never stored; under conditions
    that it cannot know it leaves nothing out."""
    mma = f"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%f100, %f101, %f102, %f103}}, {A4}, {B2}, {F32};"
    dead, alive = kernel(mma + NEVER, "sm_80"), kernel(mma + NEVER.replace("5000", "50"), "sm_80")
    assert not in_code(code_of(cubin_of(dead, "sm_80"))) and not unused(dead)
    assert in_code(code_of(cubin_of(alive, "sm_80"))) == in_code(code_of(cubin_of(opaque(dead), "sm_80")))
    cubin = cubin_of(alive, "sm_80")
    with pytest.raises(ToolError, match="expected 1, found 0"):
        require_same(alive, "sm_80", without(cubin, "HMMA"), "13.5.37", lambda _: without(cubin, "HMMA"))


DOUBLES = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {{%d{0}, %d{1}}}, {{%d2}}, {{%d3}}, {{%d0, %d1}};"
HALVES = (
    f"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%f100, %f101, %f102, %f103}}, {A4}, {B2}, {F32};"
)


@pytest.mark.parametrize(
    "body, arch, operation",
    [
        (DOUBLES.format(4, 5) + DOUBLES.format(6, 7) + "add.f64 %d0, %d4, %d7;", "sm_90", "DMMA"),
        (HALVES + "st.global.f32 [%p], %f100; st.global.f32 [%p], %f0;", "sm_80", "HMMA"),
        (
            HALVES
            + "shr.u32 %r14, %t, 7; neg.s32 %r14, %r14; and.b32 %f100, %f100, %r14; st.global.b32 [%p], %f100;",
            "sm_80",
            "HMMA",
        ),
    ],
    ids=["equal to another", "overwritten", "masked by the number of the thread"],
)
def test_a_wgmma_that_ptxas_proves_needless_may_be_left_out(body: str, arch: str, operation: str) -> None:
    ptx = kernel(body, arch)
    cubin = cubin_of(ptx, arch)
    assert expected(in_ptx(ptx), capability(cubin)) - in_code(code_of(cubin)) and not unused(ptx)
    damaged = without(cubin_of(opaque(ptx), arch), operation)
    with pytest.raises(ToolError, match="the results would be wrong"):
        require_same(ptx, arch, cubin, "13.5.37", lambda _: damaged)


@pytest.mark.parametrize(
    "use",
    [
        "st.global.b32 [%p], %r1;",
        "@%r2 st.global.b32 [%p], %p;",
        "{ L1: atom.add.u32 %r8, [%p], %r2; }",
        "bar.sync %r3;",
        "add.u32 %r7, %r0, 1; st.global.b32 [%p], %r7;",
        "L2:\n@%q mov.b32 %r7, %r2; @%q bra L2; setp.ne.u32 %q, %r7, 0; @%q bra L2;",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r7}, {%r0}, {%r8}, {%r9}; red.add.f32 [%p], %r7;",
        "ld.global.b32 %r7, [%r1]; call.uni f, (%r7);",
    ],
)
def test_what_comes_to_any_effect_is_used(use: str) -> None:
    mma = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r0, %r1, %r2, %r3}, {%r4}, {%r5}, {%r6};"
    assert unused(f"{{ {mma} {use} }}") == []
    assert len(unused(f"{{ {mma} add.u32 %r9, %r1, %r0; st.global.b32 [%p], %r6; }}")) == 1


MORE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r0}, {%r4}, {%r5}, {%r0};"


@pytest.mark.parametrize(
    "around, number",
    [
        ("mov.b32 %r0, 0; st.global.b32 [%p], %r0; L1: {0} @%q bra L1; ret;", 1),
        ("mov.b32 %r0, 0; L1: {0} @%q bra L1; mov.b32 %r0, 1; st.global.b32 [%p], %r0; ret;", 1),
        ("mov.b32 %r0, 0; L1: {0} @%q bra L1; st.global.b32 [%p], %r0; ret;", 0),
        ("L1: st.global.b32 [%p], %r0; {0} bra.uni L1;", 0),
        ("{0} @%q mov.b32 %r0, 1; st.global.b32 [%p], %r0;", 0),
        ("{0} @%q bra L1; exit; L1: st.global.b32 [%p], %r0;", 0),
        ("{0} @%q exit; st.global.b32 [%p], %r0;", 0),
        ("{0} bra.uni L2; L1: ret; L2: brx.idx %r1, list; L3: st.global.b32 [%p], %r0; ret;", 0),
        ("{0} ret; st.global.b32 [%p], %r0;", 1),
        ("bra $L2; $L1: st.global.b32 [%p], %r0; ret; $L2: {0} bra $L1;", 0),
        ("mov.b32 %r0, 0; $L1: {0} @%q bra $L1; st.global.b32 [%p], %r0; ret;", 0),
        ("bra L2; L1: st.global.b32 [%p], %r0; ret; L2: {0} bra elsewhere;", 0),
        ("list: .branchtargets L1; bra L2; L1: st.global.b32 [%p], %r0; ret; L2: {0} brx.idx %r1, list;", 0),
    ],
)
def test_a_register_is_used_until_it_is_written_again(around: str, number: int) -> None:
    """ptxas leaves out a sum of a loop which nothing reads, though its register holds, before it, a zero that
    others read."""
    assert len(unused(around.replace("{0}", MORE))) == number


def without(cubin: bytes, operation: str) -> bytes:
    """A cubin in which one instruction of an operation has become a NOP."""
    code = code_of(cubin)
    start = cubin.index(code)
    for place in range(start, start + len(code), BYTES):
        if struct.unpack_from("<H", cubin, place)[0] & 0x1FF == OPERATIONS[operation]:
            return cubin[:place] + struct.pack("<QQ", 0x7918, 0x000FC00000000000) + cubin[place + BYTES :]
    raise AssertionError(f"no {operation}")


@pytest.mark.parametrize(
    "arch, operation",
    [
        ("sm_80", "HMMA"),
        ("sm_80", "IMMA"),
        ("sm_80", "BMMA"),
        ("sm_80", "DMMA"),
        ("sm_89", "QMMA"),
        ("sm_90", "HMMA"),
        ("sm_100", "HMMA"),
        ("sm_120", "QMMA"),
        ("sm_90a", "HGMMA"),
        ("sm_90a", "QGMMA"),
        ("sm_90a", "IGMMA"),
        ("sm_90a", "BGMMA"),
    ],
)
def test_each_instruction_that_is_missing_is_missed(arch: str, operation: str) -> None:
    ptx = one_of_each(arch)
    cubin = cubin_of(ptx, arch)
    with pytest.raises(ToolError, match=rf"tensor-core instructions \({operation}.*expected \d, found \d"):
        require_same(ptx, arch, without(cubin, operation), "13.5.37", lambda _: without(cubin, operation))


PARAMETERS = ".param .u64 .ptr .global .align 16 p, .param .u8 flag, .param .align 64 .b8 map[128], .param .f32 x, .param .u16 h"


def test_a_kernel_says_what_it_takes() -> None:
    cubin = cubin_of(kernel("", parameters=PARAMETERS, threads="96, 2"), "sm_90a")
    assert capability(cubin) == 90 and capability(cubin_of(kernel("", "sm_80"), "sm_80")) == 80
    (found,) = kernels(sections(cubin))
    assert (found.name, found.parameters, found.threads) == ("k", (8, 1, 128, 4, 2), (96, 2, 1))


@pytest.mark.parametrize(
    "other, arch, message",
    [
        (kernel("", name="j"), "sm_90a", "kernel: expected k, found j"),
        (
            kernel("", parameters=PARAMETERS.replace("f32", "f64")),
            "sm_90a",
            "expected 8, 1, 128, 4, 2, found 8, 1, 128, 8, 2",
        ),
        (kernel("", parameters=".param .u64 p"), "sm_90a", "parameters: expected 8, 1, 128, 4, 2, found 8"),
        (
            kernel("", parameters=PARAMETERS, threads="256"),
            "sm_90a",
            "threads of a program: expected 128, 1, 1, found 256, 1, 1",
        ),
        (kernel("", "sm_80", parameters=PARAMETERS), "sm_80", "architecture: expected sm_90, found sm_80"),
    ],
)
def test_another_kernel_s_cubin_is_found_out(tmp_path: Path, other: str, arch: str, message: str) -> None:
    """A program in the place of ptxas, such as a compiler cache, that returns the cubin of another text."""
    (tmp_path / "other.cubin").write_bytes(cubin_of(other, arch))
    fake = tmp_path / "ptxas"
    fake.write_text(f"""#!/bin/sh
case $1 in --version) echo "Cuda compilation tools, release 12.9, V12.9.86"; exit;; esac
for last; do :; done; cat {tmp_path}/other.cubin > "$last"
""")
    fake.chmod(0o755)
    with pytest.raises(ToolError) as caught:
        assemble(kernel("", parameters=PARAMETERS), "sm_90a", str(fake))
    assert message in str(caught.value)


def test_comments_and_other_instructions_are_not_mmas() -> None:
    assert (
        in_ptx("// mma.sync.m16n8k16 x\n; // ; mma.sync.m16n8k16 x\n\twgmma.fence.sync.aligned;\n%mma.x y")
        == []
    )
    text = "@%p1 mma.sync.m16n8k8.f32.tf32.tf32.f32 {%r1}\n{ wgmma.mma_async.m64n8k16.f32.f16.f16 {%r1}"
    assert [name.partition(".")[0] for name in in_ptx(text)] == ["mma", "wgmma"]


def test_damaged_cubins_are_errors_and_not_tracebacks() -> None:
    ptx = kernel("", parameters=PARAMETERS)
    cubin = cubin_of(ptx, "sm_90a")
    for place in range(0, len(cubin), 7):
        damaged = cubin[:place] + bytes([cubin[place] ^ 0xFF]) + cubin[place + 1 :]
        try:
            require_same(ptx, "sm_90a", damaged, "12.9.86", lambda _: cubin)
        except ToolError:
            continue


FP8 = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32"


def test_constants_of_fp8_that_ptxas_finds_late_are_errors() -> None:
    """ptxas 12.8 to 13.5 widen the upper half of such a word from uninitialized memory."""
    constant = "mov.b32 %r4, 68; shfl.sync.idx.b32 %r4, %r4, %t, 31, -1; mul.lo.u32 %r4, %r4, 0x01010101;"
    mma = f"{FP8} {F32}, {{%r4, %r4, %r4, %r4}}, {B2}, {F32};"
    with pytest.raises(ToolError, match="constant operands of fp8 MMAs: found 0x"):
        assemble(kernel(constant + mma, "sm_90"), "sm_90")
    assert assemble(kernel(mma, "sm_90"), "sm_90")[0]


def test_functions_beside_the_kernel_get_opaque_conditions_of_their_own() -> None:
    function = ".func (.param .b32 r) f(.param .b32 a)\n{ .reg .pred %p; .reg .b32 %r; setp.eq.s32 %p, %r, 0; ret; }\n"
    text = opaque(".extern .func g(.param .b32 a);\n" + function + kernel("setp.eq.s32 %q, %r0, 0;"))
    assert text.count("setp.eq.b32 %opaque") == text.count("xor.pred") == 2
    assert (
        text.index("xor.pred %p, %p, %opaque;")
        > text.index("setp.eq.b32 %opaque")
        > text.index("f(.param .b32 a)")
    )
