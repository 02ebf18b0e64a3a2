"""Running ptxas, and reading what it tells."""

from __future__ import annotations

import stat

import pytest

import kbuild
from kbuild.compiler.backend.cubin import _facts, assemble, find_ptxas, ptxas_version
from kbuild.compiler.backend.elf import require_elf
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


def test_what_ptxas_complains_of_is_told():
    with pytest.raises(ToolError, match=r"(?s)exit code.*nonsense"):
        assemble(PTX.replace("ret;", "nonsense;"), "sm_80")


def test_a_missing_ptxas_is_told_with_advice():
    with pytest.raises(ToolError, match="KBUILD_PTXAS"):
        assemble(PTX, "sm_80", "/nowhere/ptxas")


def test_line_information_is_the_same_in_every_directory(tmp_path, monkeypatch):
    made = []
    for name in ("one", "another place"):
        (tmp_path / name / "kernels").mkdir(parents=True)
        (tmp_path / name / "kernels/total.py").write_text(TOTAL)
        monkeypatch.chdir(tmp_path / name)
        artifact = kbuild.compile("kernels/total.py:total", signature={"x": "*fp32", "out": "*fp32"}, lineinfo=True)
        made.append(artifact.asm)
    assert '.file\t1 "kernels/total.py"' in made[0]["ptx"]
    assert all(made[0][stage] == made[1][stage] for stage in ("llir", "ptx", "cubin"))
    assert str(tmp_path).encode() not in made[0]["cubin"]


def test_words_of_no_encoding_are_told_as_well(tmp_path):
    tool = tmp_path / "ptxas"
    tool.write_bytes(b"#!/bin/sh\nprintf 'fehlgeschl\\344gen' >&2; exit 3\n")
    tool.chmod(0o755)
    with pytest.raises(ToolError, match=r"(?s)exit code 3 .*fehlgeschl.gen"):
        assemble(PTX, "sm_80", str(tool))


@pytest.mark.parametrize("action, message", [
    ("true", "wrote no cubin"),
    ('for last; do :; done; printf "" > "$last"', "wrote no cubin"),
    ('for last; do :; done; head -c 200 /bin/sh > "$last"', "machine"),
])  # fmt: skip
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
