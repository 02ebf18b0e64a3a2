"""The counts of shipped kernels against their baseline: a sample of variants may not get much worse
unnoticed."""

from __future__ import annotations

from pathlib import Path

import static

from kbuild.compiler.backend.cubin import assemble

MORE_REGISTERS = 16
MORE_INSTRUCTIONS = 1.25


def test_a_sample_stays_near_the_baseline() -> None:
    before, after = static.read(static.BASELINE.read_text()), static.compiled_sample()
    print(static.difference(before, after))
    assert 2 * len(before.keys() & after.keys()) >= len(after), (
        "it is of other variants: python bench/static.py --update"
    )
    worse = [
        f"{name}: {column} {before[name][column]} -> {row[column]}"
        for name, row in after.items()
        if name in before
        for column, most in (
            ("registers", before[name]["registers"] + MORE_REGISTERS),
            ("spilled", before[name]["spilled"]),
            ("sass", before[name]["sass"] * MORE_INSTRUCTIONS + 16),
        )
        if row[column] > most
    ]
    assert not worse, "\n".join([*worse, "if it is meant, and faster: python bench/static.py --update"])


def test_tables_read_back_and_show_what_changed() -> None:
    row = dict.fromkeys(static.COLUMNS, 7)
    rows = {"add.sm_80": row, "add.sm_90": row | {"spilled": 0}, "gone": row}
    assert static.read(static.text_of(rows)) == rows
    after = {"add.sm_80": row, "add.sm_90": row | {"spilled": 12}, "new": row}
    shown = static.difference(rows, after).splitlines()
    assert len(shown) == 4 and shown[1].split()[:3] == ["7", "0→12", "7"] and shown[1].endswith("  add.sm_90")
    assert shown[2].split()[1] == "7→19" and shown[3] == "1 of 2 variants changed; 1 are new, 1 are gone"


def test_instructions_of_a_cubin_are_counted(tmp_path: Path) -> None:
    ptx = """.version 8.0\n.target sm_80\n.address_size 64\n.visible .entry f(.param .u64 p) {
        .reg .b64 %a<2>; .reg .b32 %r<2>; .reg .pred %p<2>;
        ld.param.u64 %a0, [p]; cvta.to.global.u64 %a1, %a0; ld.global.u32 %r0, [%a1]; setp.ne.s32 %p1, %r0, 0;
        @%p1 st.global.u32 [%a1], %r0; ret; }"""
    cubin, facts = assemble(ptx, "sm_80")
    text = ptx.replace(";", ";\n")
    row = static.row_of({**facts._asdict(), "conversions": 0}, text, cubin)
    assert 4 <= row["sass"] <= 64 and row["ld.global"] == 1 and row["st.global"] == 1 and row["mma"] == 0
