"""Which lines of PTX and SASS come from which."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.aot import toolchain
from kbuild.aot.report import lines
from kbuild.aot.report.lines import PtxLine, SassLine
from kbuild.aot.report.pipeline import Place
from kbuild.compiler import driver
from tests.aot.report.library import MULTIPLY

PTX = """\
// made by hand
.version 8.4
.visible .entry k()
{
\t.reg .b32 \t%r<3>;
\t.loc\t1 9 13
\tmov.u32 \t%r1, %tid.x;
\t.loc\t1 0 13
\tadd.s32 \t%r2, %r1, 1;
}
\t.section\t.debug_macinfo\t{\t}
\t.file\t1 "kernels/k.py"
"""
SASS = """\
\t//## File "kernels/k.py", line 9
\t//## File ".nv_debug_ptx_txt", line 7
        /*0000*/                   S2R R1, SR_TID.X ;
.L_x_1:
        /*0010*/              @!P0 BRA `(.L_x_1) ;
\t//## File ".nv_debug_ptx_txt", line 9
        /*0020*/                   IADD3 R2, R1, 0x1, RZ ;    /* 0x000 */
"""


def test_ptx_has_its_line_table() -> None:
    found = lines.ptx_lines(PTX)
    assert [line.number for line in found] == [2, 3, 4, 5, 7, 9, 10]
    assert {line.number: line.place for line in found if line.place} == {7: Place("kernels/k.py", 9, 13)}


def test_sass_names_the_lines_of_ptx() -> None:
    assert list(lines.sass_lines(SASS)) == [
        SassLine("S2R R1, SR_TID.X", "0000", 7),
        SassLine(".L_x_1:", "", 0),
        SassLine("@!P0 BRA `(.L_x_1)", "0010", 7),
        SassLine("IADD3 R2, R1, 0x1, RZ", "0020", 9),
    ]
    assert [line.ptx for line in lines.sass_lines(SASS, [0, 0, 0, 0, 0, 0, 6])] == [6, 0, 6, 0]


def test_asynchronous_dots_are_in_the_order_of_the_ptx() -> None:
    ptx = [PtxLine(f"wgmma.mma_async.sync d{number}", number, None, number) for number in (5, 9)]
    sass = [
        SassLine("HGMMA.64x8x16 R0", "0000", 3),
        SassLine("MOV R1", "0010", 4),
        SassLine("@P0 HGMMA.64x8x16", "0020", 3),
    ]
    assert [line.ptx for line in lines.with_dots(sass, ptx)] == [5, 4, 9]
    assert lines.with_dots(sass, ptx[:1]) == sass, "where they are not as many, ptxas is believed"


@pytest.mark.parametrize("options", [(), (".minnctapersm 1",)])
def test_a_real_kernel(options: tuple[str, ...], tmp_path: Path) -> None:
    """The load of the first operand, from the source to the machine code."""
    nvdisasm = toolchain.find_nvdisasm({})
    if nvdisasm is None:
        pytest.skip("nvidia-cuda-nvdisasm is not installed")
    file = tmp_path / "multiply.py"
    file.write_text(MULTIPLY)
    signature = dict.fromkeys("abc", "*fp16:16")
    artifact = driver.compile(
        f"{file}:multiply_kernel", signature=signature, constexprs={"SIZE": 64}, target="sm_80", lineinfo=True
    )
    cubin, ptx = artifact.asm["cubin"], artifact.asm["ptx"]
    if options:  # As where `assemble` has ptxas use more registers: its text has a line more.
        given = ptx.replace(".reqntid 128", ".reqntid 128\n.minnctapersm 1")
        cubin = driver.compile(_written(tmp_path / "more.ptx", given), target="sm_80", lineinfo=True).asm[
            "cubin"
        ]
    (tmp_path / "k.cubin").write_bytes(cubin)
    text = toolchain.disassembled(nvdisasm.path, tmp_path / "k.cubin")
    of_ptx = {line.number: line for line in lines.ptx_lines(ptx)}
    pairs = [
        (line.text.split()[0], of_ptx[line.ptx])
        for line in lines.sass_lines(text, lines.assembled_lines(cubin, ptx))
        if line.ptx in of_ptx
    ]
    loads = [origin for op, origin in pairs if op.startswith("LDG")]
    assert loads and all("ld.global" in origin.text for origin in loads)
    assert {origin.place.line for origin in loads if origin.place} == {9}
    dots = [origin for op, origin in pairs if op.startswith("HMMA")]
    assert dots and all("mma.sync" in of_ptx[origin.first].text for origin in dots)
    assert any(origin.first < origin.number for origin in dots), "they take two lines"
    assert lines.code_of(cubin) and toolchain.disassembled(nvdisasm.path, file) == ""


def _written(file: Path, text: str) -> Path:
    file.write_text(text)
    return file
