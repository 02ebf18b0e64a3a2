"""A ptxas that has begun before its PTX was there makes what one makes that begins after it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kbuild.compiler import compilation
from kbuild.compiler.backend.cubin import assemble, command_of, find_ptxas, ptxas_version
from kbuild.compiler.backend.ptxas_run import EarlyRun
from kbuild.compiler.backend.ptxas_wheels import installed
from kbuild.compiler.driver import compile
from kbuild.errors import CompileError, ToolError

PTX = """
.version 8.4
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p) .reqntid 32
{
    .reg .b64 %a;
    .reg .b32 %b;
    ld.param.u64 %a, [p];
    mov.u32 %b, 0;
LINES
    st.global.u32 [%a], %b;
    ret;
}
"""
SHORT = PTX.replace("LINES", "")
LONG = PTX.replace("LINES", "    xor.b32 %b, %b, 21;  // A line of a text that no pipe holds.\n" * 2000)


def open_files() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("text", [SHORT, LONG])
@pytest.mark.parametrize("wait", [0, 0.2])
@pytest.mark.parametrize("tool", [one.path for one in installed(ptxas_version)])
def test_an_early_run_makes_the_same(tool: str, wait: float, text: str) -> None:
    before = open_files()
    early = EarlyRun(command_of("sm_90", tool))
    time.sleep(wait)
    made = early.finish(text)
    assert made is not None and open_files() == before
    assert (made[0], "registers" in made[1], "/proc" in made[1]) == (
        assemble(text, "sm_90", tool)[0],
        True,
        False,
    )
    assert early.finish(text) is None


def test_an_early_run_is_not_for_another_request() -> None:
    early = EarlyRun(command_of("sm_80"))
    try:
        assert assemble(SHORT, "sm_90", early=early) == assemble(SHORT, "sm_90")
        assert early.finish(SHORT.replace("sm_90", "sm_80")) is not None
    finally:
        early.end()


def test_an_ordinary_run_says_what_is_wrong() -> None:
    before = open_files()
    with pytest.raises(ToolError, match=r"kernel.ptx, line \d+"):
        assemble(SHORT.replace("ret", "rat"), "sm_90", early=EarlyRun(command_of("sm_90")))
    assert open_files() == before


@pytest.mark.parametrize(
    "action",
    [
        "exit 3",
        '[ -s "$4" ] || exit 4; exec TOOL "$@"',
        'grep -q p "$4" && exec TOOL "$@"',
    ],
)
def test_a_script_in_the_place_of_ptxas_may_read_its_source_as_it_likes(tmp_path: Path, action: str) -> None:
    script = tmp_path / "ptxas"
    script.write_text(f"#!/bin/sh\n{action.replace('TOOL', find_ptxas())}\n")
    script.chmod(0o755)
    early = EarlyRun(command_of("sm_90", str(script)))
    try:
        made = assemble(SHORT, "sm_90", str(script), early=early)
    except ToolError as error:
        assert "exit 3" in action and "exit code 3" in error.message
    else:
        assert made[0] == assemble(SHORT, "sm_90")[0]


def test_forks_do_not_keep_a_pipe_open() -> None:
    early = EarlyRun(command_of("sm_90"))
    child = os.fork()
    if not child:
        time.sleep(30)
        os._exit(0)
    try:
        started = time.monotonic()
        assert early.finish(SHORT) is not None and time.monotonic() - started < 20
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_an_early_run_that_nobody_needs_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kernel.py"
    file.write_text(
        "import triton, triton.language as tl\n@triton.jit\ndef one(x):\n    tl.store(x, 1.0)\n",
        encoding="utf-8",
    )
    before = open_files()

    def fail(*_: object, **__: object) -> str:
        assert open_files() != before  # It waits.
        raise CompileError("wrong")

    monkeypatch.setattr(compilation, "lower_module", fail)
    with pytest.raises(CompileError, match="wrong"):
        compile(f"{file}:one", signature={"x": "*fp32"})
    assert open_files() == before
    with pytest.raises(ToolError, match="cannot run none"):
        EarlyRun(command_of("sm_90", "/does/not/exist/none"))
    assert open_files() == before
