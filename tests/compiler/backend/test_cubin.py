"""Running ptxas, and reading what it reports."""

from __future__ import annotations

import stat

import pytest

import kbuild
from kbuild.compiler.backend import cubin
from kbuild.compiler.backend.cubin import CubinFacts, _facts, assemble, find_ptxas, ptxas_version
from kbuild.compiler.backend.elf import require_elf
from kbuild.compiler.backend.pressure import live_registers
from kbuild.errors import ToolError

PTX = """
.version 7.4
.target sm_80
.address_size 64
.visible .entry f(.param .u64 p) .reqntid 32 { ret; }
"""
TOTAL = """
import triton.language as tl

def total(x, out):
    tl.store(out + tl.arange(0, 256), tl.sigmoid(tl.load(x + tl.arange(0, 256))))
"""


def test_a_kernel_becomes_a_cubin_with_facts():
    cubin, facts = assemble(PTX, "sm_80")
    assert cubin[:4] == b"\x7fELF" and facts.registers > 0 and facts.spill_stores == 0
    assert facts.ptxas_version == ptxas_version(find_ptxas())


def test_the_same_text_gives_the_same_bytes():
    assert assemble(PTX, "sm_80")[0] == assemble(PTX, "sm_80")[0]


def test_what_ptxas_complains_of_is_reported():
    with pytest.raises(ToolError, match=r"(?s)exit code.*nonsense"):
        assemble(PTX.replace("ret;", "nonsense;"), "sm_80")


def test_a_missing_ptxas_is_reported_with_advice():
    with pytest.raises(ToolError, match="KBUILD_PTXAS"):
        assemble(PTX, "sm_80", "/nowhere/ptxas")


def test_line_information_is_the_same_in_every_directory(tmp_path, monkeypatch):
    made = []
    for name in ("one", "another place"):
        (tmp_path / name / "kernels").mkdir(parents=True)
        (tmp_path / name / "kernels/total.py").write_text(TOTAL)
        monkeypatch.chdir(tmp_path / name)
        artifact = kbuild.compile(
            "kernels/total.py:total", signature={"x": "*fp32", "out": "*fp32"}, lineinfo=True
        )
        made.append(artifact.asm)
    assert '.file\t1 "kernels/total.py"' in made[0]["ptx"]
    assert all(made[0][stage] == made[1][stage] for stage in ("llir", "ptx", "cubin"))
    assert str(tmp_path).encode() not in made[0]["cubin"]


def test_words_of_no_encoding_are_reported_as_well(tmp_path):
    tool = tmp_path / "ptxas"
    tool.write_bytes(b"#!/bin/sh\nprintf 'fehlgeschl\\344gen' >&2; exit 3\n")
    tool.chmod(0o755)
    with pytest.raises(ToolError, match=r"(?s)exit code 3 .*fehlgeschl.gen"):
        assemble(PTX, "sm_80", str(tool))


@pytest.mark.parametrize("own, seen", [(None, "hugetlb=1"), ("glibc.malloc.check=3", "check=3 ")])
def test_ptxas_asks_for_large_pages_unless_the_user_has_a_say(tmp_path, monkeypatch, own, seen):
    tool = tmp_path / "ptxas"
    tool.write_text('#!/bin/sh\necho "$GLIBC_TUNABLES $HOME" >&2; exit 3\n')
    tool.chmod(0o755)
    monkeypatch.setenv("HOME", "/home/of/the/user")
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if own:
        monkeypatch.setenv("GLIBC_TUNABLES", own)
    with pytest.raises(ToolError, match=rf"{seen}.*/home/of/the/user"):
        assemble(PTX, "sm_80", str(tool))


@pytest.mark.parametrize(
    "action, message",
    [
        ("true", "wrote no cubin"),
        ('for last; do :; done; printf "" > "$last"', "wrote no cubin"),
        ('for last; do :; done; head -c 200 /bin/sh > "$last"', "machine"),
    ],
)
def test_a_ptxas_that_lies_is_found_out(tmp_path, action, message):
    fake = tmp_path / "ptxas"
    fake.write_text(f"#!/bin/sh\n{action}\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(ToolError, match=message):
        assemble(PTX, "sm_80", str(fake))


def test_a_truncated_cubin_is_found_out():
    cubin, _ = assemble(PTX, "sm_80")
    with pytest.raises(ToolError, match="truncated"):
        require_elf(cubin[: len(cubin) // 2])


REPORT = """
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
    48 bytes stack frame, 16 bytes spill stores, 20 bytes spill loads
ptxas warning : Registers are spilled to local memory in function 'k', 16 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 168 registers, used 2 barriers, 48 bytes cumulative stack size, 1024 bytes smem
"""


def test_facts_are_read_from_the_report():
    facts = _facts(REPORT, "13.5.37", PTX)
    assert (facts.registers, facts.spill_stores, facts.spill_loads, facts.stack) == (168, 16, 20, 48)
    assert facts.barriers == 2 and facts.shared == 1024 and len(facts.warnings) == 1


WGMMA = """
wgmma.fence.sync.aligned; // dot 0
wgmma.fence.sync.aligned; // dot 0
mov.b32 %r1, %r2;
wgmma.fence.sync.aligned; // dot 1
mov.b32 %r3, %r4;
"""
SERIALIZED = "Potential Performance Loss: wgmma.mma_async instructions are serialized due to"
NOTES = f"""
ptxas info    : (C7510) {SERIALIZED} x in the function 'k' in line 7
ptxas info    : (C7511) {SERIALIZED} y for the function 'k'
ptxas info    : (C7517) wgmma.wait_group is injected in around line 4 by compiler to allow z in function 'k'
ptxas info    : (C7517) wgmma.wait_group is injected in around line 3 by compiler to allow z in function 'k'
"""


def test_notes_on_dots_are_read_from_the_report_with_the_dot_whose_line_they_name():
    assert _facts(REPORT + NOTES, "13.5.37", WGMMA).notes == (
        ("C7510", "wgmma.mma_async instructions are serialized due to x", 1),
        ("C7511", "wgmma.mma_async instructions are serialized due to y", None),
        ("C7517", "wgmma.wait_group is injected by compiler to allow z", 0),
    )


def test_registers_that_are_live_together_are_counted():
    assert live_registers("mov %r1, 0; mov %r2, 1; add %r3, %r1, %r2; neg %r4, %r3;") == 3
    assert live_registers("mov %rd1, 0; mov %rs1, 1; mov %p1, 0; st [%rd1], %rs1;") == 3


BOUNDED = PTX.replace(".reqntid 32", ".reqntid 32\n.minnctapersm 4")
CROWDED = PTX.replace(
    "ret;", "".join(text % n for text in ("ld.u32 %%r%d, [p];", "st.u32 [p], %%r%d;") for n in range(600))
)


@pytest.mark.parametrize(
    "text, plain, roomy, asked, best",
    [
        (PTX, (40, 0), (40, 0), "p", "p"),
        (PTX, (255, 64), (255, 32), "p", "p"),  # It has all registers that there are.
        (PTX, (32, 640), (255, 64), "pr", "r"),
        (PTX, (32, 64), (255, 64), "pr", "p"),
        (PTX.replace("32 {", "512 {"), (128, 64), (128, 32), "p", "p"),  # 512 threads cannot have more.
        (PTX.replace("32 {", "16, 32 {"), (120, 64), (128, 32), "pr", "r"),
        (PTX.replace(".reqntid 32", ""), (32, 64), (255, 0), "p", "p"),
        (BOUNDED, (128, 64), (255, 0), "p", "p"),  # An author has said so.
        ("// Generated by LLVM NVPTX Back-End\n" + BOUNDED, (128, 64), (255, 0), "pr", "r"),
        (CROWDED, (32, 640), (255, 64), "r", "r"),
        (CROWDED, (128, 0), (255, 0), "rp", "p"),
        (CROWDED, (32, 640), (255, 0), "rp", "r"),
    ],
)
def test_a_kernel_is_assembled_again_only_if_that_may_spare_spills(
    monkeypatch, text, plain, roomy, asked, best
):
    said = {
        "p": CubinFacts(plain[0], plain[1], 0, 0, 0, 0, ""),
        "r": CubinFacts(roomy[0], roomy[1], 0, 0, 0, 0, ""),
    }
    calls = []

    def once(ptx, *_):
        calls.append("r" if ".minnctapersm 1" in ptx else "p")
        return calls[-1].encode(), said[calls[-1]]

    monkeypatch.setattr(cubin, "_assemble_once", once)
    assert assemble(text, "sm_80", "ptxas") == (best.encode(), said[best])
    assert "".join(calls) == asked
