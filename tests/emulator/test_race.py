"""The race detector: for each rule a kernel that breaks it, and its twin that does not.

A line of a kernel that begins with `~` is what the twin has and the broken kernel lacks; one with `!` the other way round.
"""

from __future__ import annotations

import numpy as np
import pytest

from kbuild.emulator import Finding
from kbuild.emulator.findings import EmulationError

from .emulated import at, launch

BUFFER = ".extern .shared .align 1024 .b8 buffer[];"


def findings(body: str, whole: bool, threads: int = 64, grid: int = 1, checks: str = "strict", **options) -> list[Finding]:
    """What is found in a kernel (`whole`: in its twin), which may use 8 KiB of shared memory and the arrays x and y."""
    lines = [line.strip() for line in body.strip().split("\n")]
    kept = [line.lstrip("~! ") for line in lines if line[:1] != ("!" if whole else "~")]
    x = np.arange(4096, dtype=np.uint32)
    arrays = {"x": x, "y": np.zeros_like(x)}
    report = launch("\n".join(kept), arrays, module=BUFFER, threads=threads, grid=(grid,), shared=8192, checks=checks, **options)
    return report.findings


# Thread i writes to shared memory, and reads what thread i + 32 wrote.
EXCHANGE = """
    mov.b32 %r1, buffer;
    mad.lo.u32 %r2, %r_tid, 4, %r1;
    st.shared.b32 [%r2], %r_tid;
    ~ bar.sync 0;
    xor.b32 %r3, %r_tid, 32;
    mad.lo.u32 %r3, %r3, 4, %r1;
    ld.shared.b32 %r4, [%r3];
    bar.sync 0;
"""
# The same and then everybody writes again.
OVERWRITE = (
    EXCHANGE.replace("~ ", "").replace("    bar.sync 0;\n", "", 2).replace("    xor", "    bar.sync 0;\n    xor")
    + """
    ~ bar.sync 0;
    st.shared.b32 [%r2], %r4;
"""
)
RULES = {
    "read_after_write": ("race", EXCHANGE),
    "write_after_read": ("race", OVERWRITE),
    "write_after_write": ("race", """
        mov.b32 %r1, buffer;
        ! st.shared.b32 [%r1], %r_tid;
        ~ setp.eq.u32 %p1, %r_tid, 0;
        ~ @%p1 st.shared.b32 [%r1], %r_tid;
    """),
    "equal_values": ("race", """
        mov.b32 %r1, buffer;
        ~ mov.b32 %r2, 7;
        ! shr.u32 %r2, %r_tid, 5;
        st.shared.b32 [%r1], %r2;
    """),
    "barrier_for_too_few": ("race", """
        mov.b32 %r1, buffer;
        shr.u32 %r2, %r_tid, 5;
        mad.lo.u32 %r3, %r_tid, 4, %r1;
        st.shared.b32 [%r3], %r_tid;
        setp.eq.u32 %p1, %r2, 0;
        ! @%p1 barrier.sync 1, 32;
        ! @!%p1 barrier.sync 2, 32;
        ~ barrier.sync 1, 64;
        xor.b32 %r5, %r3, 128;
        ld.shared.b32 %r6, [%r5];
    """),
    "lanes_without_bar_warp": ("warp-race", """
        mov.b32 %r1, buffer;
        mad.lo.u32 %r2, %r_tid, 4, %r1;
        st.shared.b32 [%r2], %r_tid;
        ~ bar.warp.sync 0xffffffff;
        xor.b32 %r3, %r2, 4;
        ld.shared.b32 %r4, [%r3];
    """),
    "uninitialised_shared": ("uninitialised-read", """
        mov.b32 %r1, buffer;
        mad.lo.u32 %r2, %r_tid, 4, %r1;
        ~ st.shared.b32 [%r2], %r_tid;
        ld.shared.b32 %r4, [%r2];
    """),
    "copy_without_wait": ("race", at("x", 16) + """
        mov.b32 %r1, buffer;
        mad.lo.u32 %r2, %r_tid, 16, %r1;
        cp.async.cg.shared.global [%r2], [%d0], 16;
        cp.async.commit_group;
        ~ cp.async.wait_group 0;
        bar.sync 0;
        ld.shared.b32 %r3, [%r2];
    """),
    "copy_waited_for_by_one_thread": ("race", at("x", 16) + """
        mov.b32 %r1, buffer;
        mad.lo.u32 %r2, %r_tid, 16, %r1;
        cp.async.cg.shared.global [%r2], [%d0], 16;
        cp.async.wait_all;
        ~ bar.sync 0;
        xor.b32 %r2, %r2, 512;
        ld.shared.b32 %r3, [%r2];
    """),
    "copy_over_what_others_read": ("race", at("x", 16) + """
        mov.b32 %r1, buffer;
        mad.lo.u32 %r2, %r_tid, 16, %r1;
        st.shared.b32 [%r2], %r_tid;
        bar.sync 0;
        xor.b32 %r3, %r2, 512;
        ld.shared.b32 %r4, [%r3];
        ~ bar.sync 0;
        cp.async.cg.shared.global [%r2], [%d0], 16;
        cp.async.wait_all;
    """),
    "store_without_proxy_fence": ("proxy-fence", """
        mov.b32 %r1, buffer;
        mad.lo.u32 %r2, %r_tid, 4, %r1;
        st.shared.b32 [%r2], %r_tid;
        ~ fence.proxy.async.shared::cta;
        bar.sync 0;
        setp.eq.u32 %p1, %r_tid, 0;
        @%p1 cp.async.bulk.global.shared::cta.bulk_group [%d_y], [%r1], 256;
        @%p1 cp.async.bulk.commit_group;
        @%p1 cp.async.bulk.wait_group.read 0;
    """),
    "source_of_a_bulk_store_overwritten": ("race", """
        mov.b32 %r1, buffer;
        mad.lo.u32 %r2, %r_tid, 4, %r1;
        st.shared.b32 [%r2], %r_tid;
        fence.proxy.async.shared::cta;
        bar.sync 0;
        setp.eq.u32 %p1, %r_tid, 0;
        @%p1 cp.async.bulk.global.shared::cta.bulk_group [%d_y], [%r1], 256;
        @%p1 cp.async.bulk.commit_group;
        ~ @%p1 cp.async.bulk.wait_group.read 0;
        ~ bar.sync 0;
        st.shared.b32 [%r2], 5;
        ! @%p1 cp.async.bulk.wait_group.read 0;
    """),
    "global_across_ctas": ("race", """
        mov.u32 %r1, %ctaid.x;
        setp.eq.u32 %p1, %r_tid, 0;
        ! @%p1 st.global.b32 [%d_y], %r1;
        ~ @%p1 atom.global.add.u32 %r2, [%d_y], %r1;
    """),
    "flag_without_release": ("race", """
        mov.u32 %r1, %ctaid.x;
        setp.ne.u32 %p1, %r_tid, 0;
        @%p1 ret;
        setp.ne.u32 %p2, %r1, 0;
        @%p2 bra reader;
        st.global.b32 [%d_y+64], 7;
        ~ st.release.gpu.global.b32 [%d_y], 1;
        ! st.relaxed.gpu.global.b32 [%d_y], 1;
        ret;
        reader:
        ld.acquire.gpu.global.b32 %r3, [%d_y];
        setp.eq.u32 %p3, %r3, 0;
        @%p3 bra reader;
        ld.global.b32 %r4, [%d_y+64];
    """),
    "flag_with_fences": ("race", """
        mov.u32 %r1, %ctaid.x;
        setp.ne.u32 %p1, %r_tid, 0;
        @%p1 ret;
        setp.ne.u32 %p2, %r1, 0;
        @%p2 bra reader;
        st.global.b32 [%d_y+64], 7;
        fence.acq_rel.gpu;
        atom.global.exch.b32 %r3, [%d_y], 1;
        ret;
        reader:
        ld.relaxed.gpu.global.b32 %r3, [%d_y];
        setp.eq.u32 %p3, %r3, 0;
        @%p3 bra reader;
        ~ fence.acq_rel.gpu;
        ld.global.b32 %r4, [%d_y+64];
    """),
}  # fmt: skip
GRIDS = {"global_across_ctas": 2, "flag_without_release": 2, "flag_with_fences": 2}


@pytest.mark.parametrize("schedule", ["lockstep", "round-robin", "reverse"])
@pytest.mark.parametrize("name", RULES)
def test_a_broken_rule_is_found_and_its_twin_is_clean(name: str, schedule: str) -> None:
    kind, body = RULES[name]
    options = {"schedule": schedule, "grid": GRIDS.get(name, 1)}
    for timing in ("late", "early"):
        assert kind in {finding.kind for finding in findings(body, whole=False, timing=timing, **options)}
        assert not findings(body, whole=True, timing=timing, **options)


def test_a_report_names_both_accesses_and_counts() -> None:
    everything = findings(EXCHANGE, whole=False, schedule="reverse")
    found = next(each for each in everything if "reads shared address 0x80" in each.message)
    assert found.instruction is not None and found.instruction.name == "ld.shared.b32"
    assert found.other is not None and found.other.name == "st.shared.b32"
    assert "warp 0, lane 0 reads shared address 0x80" in str(found) and "which warp 1, lane 0 wrote" in str(found)
    assert f"against PTX line {found.other.line}: st.shared.b32" in str(found)


def test_lenient_checks_forgive_what_hardware_does() -> None:
    for name in ("lanes_without_bar_warp", "store_without_proxy_fence"):
        assert not findings(RULES[name][1], whole=False, checks="lenient")
    with pytest.raises(EmulationError, match="unknown checks 'loose'"):
        findings(EXCHANGE, whole=True, checks="loose")
