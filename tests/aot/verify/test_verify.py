"""`kbuild verify` and `kbuild run`: right kernels pass, and code that does something else is caught."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbuild.aot.manifest.expand import expand
from kbuild.aot.manifest.load import load
from kbuild.aot.verify.cases import Case, cases
from kbuild.aot.verify.compare import compare
from kbuild.aot.verify.data import numbers
from kbuild.aot.verify.pool import run_jobs
from kbuild.aot.verify.reference import reference
from kbuild.aot.verify.verdict import ADVERSE, Run, Wanted, runs_of
from kbuild.cli import main
from kbuild.compiler import driver
from kbuild.compiler.backend.cubin import ptxas_version
from kbuild.compiler.backend.ptxas_wheels import choose, installed
from kbuild.compiler.interp.loaded import module_of, pointee_of
from tests.aot.build.processes import wait_until_gone, written_number
from tests.aot.manifest.mistakes import mistakes
from tests.manifests import package_table

TABLE = """
[kernel.verify]
sizes = { x = "n", y = "n" }
values = [{ n = 0 }, { n = 1600 }, { n = 33 }]
"""


LAST = """
import triton, triton.language as tl

@triton.jit
def last_kernel(parts, count, out):
    tl.store(parts + tl.program_id(0), tl.program_id(0))
    if tl.atomic_add(count, 1, sem="acq_rel") == 2:
        tl.store(out, tl.load(parts) + tl.load(parts + 1) + tl.load(parts + 2))
        tl.store(count, 0)
"""
COUNTED = """
schema = 1
[package]
name = "counted"
version = "1"
archs = ["sm_90"]
[[kernel]]
name = "last"
source = "kernels/last.py"
grid = ["3"]
[kernel.args]
parts = "*i32"
count = "*i32"
out = "*i32"
[[kernel.config]]
[kernel.verify]
sizes = { parts = "3", count = "1", out = "1" }
values = [{}]
zeros = ["count"]
"""


@pytest.fixture
def verified(project: Path) -> Path:
    """The project, with a table `[kernel.verify]`."""
    file = project / "kernels.toml"
    file.write_text(file.read_text() + TABLE)
    return project


def wrong(monkeypatch: pytest.MonkeyPatch, before: str, after: str) -> None:
    """Let the compiler make PTX with a mistake in it."""
    right = driver.compile

    def compile_wrong(*args: object, **options: object) -> driver.Artifact:
        artifact = right(*args, **options)  # type: ignore[arg-type]
        assert before in artifact.asm["ptx"]
        return driver.Artifact(
            {**artifact.asm, "ptx": artifact.asm["ptx"].replace(before, after)}, artifact.metadata
        )

    monkeypatch.setattr(driver, "compile", compile_wrong)


def launches(project: Path, table: str) -> dict[tuple[str, bool], list[str]]:
    """The launches of the variants for sm_90, by the type of `n` and whether there is a guard."""
    file = project / "kernels.toml"
    file.write_text(file.read_text() + table)
    manifest = load(file)
    kernel = manifest.kernel("scale")
    return {
        (dict(variant.signature)["n"], bool(variant.guards)): [str(case) for case in cases(kernel, variant)]
        for variant in expand(manifest, ["sm_90"]).variants
    }


def test_launches_go_to_the_variants_whose_promises_they_keep(project: Path) -> None:
    assert launches(project, TABLE) == {
        ("i32:16", True): ["n=1024"],  # None fits: the first that can be is changed.
        ("i32", True): ["n=33"],
        ("i32:16", False): ["n=1600"],
        ("i32", False): ["n=1600", "n=33"],
    }


def test_values_may_be_expressions_and_loops_run_from_no_round_on(project: Path) -> None:
    table = '\n[kernel.verify]\nsizes = { x = "n", y = "n" }\nvalues = [{ n = "BLOCK - 16" }]\nloops = { n = "BLOCK" }\n'
    found = launches(project, table)
    assert found["i32:16", False] == [
        "n=2032",
        "n=16",
        "n=4096",
        "n=4112",
        "n=8192",
        "n=8208",
        "n=12288",
    ]  # n=0 starts nothing.
    assert found["i32", True] == ["n=1008", "n=1"]  # The guard is n <= 1024.


def test_each_launch_runs_adversely_and_the_first_in_lockstep() -> None:
    planned = runs_of([None, None])  # type: ignore[list-item]
    assert [(run.case, run.data, run.schedule) for run in planned] == [
        (1, "whole", ADVERSE[0][0]),
        (2, "whole", ADVERSE[1][0]),
        (1, "whole", "lockstep"),
        (1, "real", "lockstep"),
        (1, "special", "lockstep"),
    ]
    assert Wanted(case=1, data="real").of(planned) == [Run(1, "real", "lockstep", "early")]
    assert Wanted(case=2, data="special", schedule="reverse").of(planned) == [Run(2, "special", "reverse")]


def test_right_kernels_pass_and_cost_nothing_the_second_time(
    verified: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(tmp_path / "cache"))
    command = ["verify", "-C", str(verified), "--arch", "sm_90", "--json", "-j", "2"]
    assert main(command) == 0
    first = json.loads(capsys.readouterr().out)
    assert {verdict["state"] for verdict in first} == {"ok"} and all(verdict["checks"] for verdict in first)
    monkeypatch.setattr(driver, "compile", None)
    assert main(command) == 0
    second = json.loads(capsys.readouterr().out)
    assert all(verdict["cached"] for verdict in second)
    assert [verdict["checks"] for verdict in second] == [verdict["checks"] for verdict in first]


DOT = """
import triton, triton.language as tl

@triton.jit
def dot_kernel(a, b, c, K, T: tl.constexpr):
    m, n, k = tl.arange(0, 64), tl.arange(0, 64), tl.arange(0, T)
    acc = tl.zeros((64, 64), tl.float32)
    for start in range(0, K, T):
        left = tl.load(a + m[:, None] * K + (start + k)[None, :])
        acc = tl.dot(left + 1, tl.load(b + (start + k)[:, None] * 64 + n[None, :]), acc)
    tl.store(c + m[:, None] * 64 + n[None, :], acc)
"""
DOTS = (
    package_table("dots", "sm_90", version="1")
    + """
[[kernel]]
name = "dot"
source = "kernels/dot.py"
grid = ["1"]
[kernel.args]
a = "*fp16:16"
b = "*fp16:16"
c = "*fp32:16"
K = "i32:16"
[[kernel.config]]
T = 32
[kernel.verify]
sizes = { a = "64 * K", b = "64 * K", c = "4096" }
values = [{ K = 96 }]
"""
)


def test_the_ptx_is_that_for_the_ptxas_of_the_build(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which waits for more where it has to; what was found of the one says nothing of the other."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/dot.py").write_text(DOT)
    (tmp_path / "kernels.toml").write_text(DOTS)
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("KBUILD_PTXAS", raising=False)
    command = ["verify", "-C", str(tmp_path), "-j", "1", "--json"]

    made, compile_ = tmp_path / "made.ptx", driver.compile

    def compile_and_show(*args: Any, **options: Any) -> driver.Artifact:
        artifact = compile_(*args, **options)
        made.write_text(re.sub(r"\s*\.loc.*", "", artifact.asm["ptx"]))
        return artifact

    monkeypatch.setattr(driver, "compile", compile_and_show)

    def verified_ptx() -> str:
        """The PTX of the variant, which is right; none where that was known."""
        made.unlink(missing_ok=True)
        assert main(command) == 0
        (verdict,) = json.loads(capsys.readouterr().out)
        assert verdict["state"] == "ok" and verdict["cached"] != made.exists()
        return made.read_text() if made.exists() else ""

    default = verified_ptx()
    assert re.search(r"ldmatrix[^$]*wgmma\.wait_group[^$]*wgmma\.mma_async", default) and not verified_ptx()
    (tmp_path / "kernels.toml").write_text(DOTS.replace('version = "1"', 'version = "1"\nptxas = "12.9"'))
    old = verified_ptx()
    assert (
        re.search(r"wgmma\.wait_group[^$]*ldmatrix[^$]*wgmma\.mma_async", old)
        and old != default
        and not verified_ptx()
    )
    (tmp_path / "kernels.toml").write_text(DOTS)
    assert not verified_ptx()
    monkeypatch.setenv("KBUILD_PTXAS", choose(installed(ptxas_version), "12.9").path)
    assert not verified_ptx()
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(tmp_path / "another"))
    assert verified_ptx() == old


def test_without_a_table_launches_are_guessed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "-C", str(project), "--arch", "sm_80", "--no-cache"]) == 0
    told = capsys.readouterr().err
    assert "6 ok, 0 failed" in told
    note = (
        "note: scale has no [kernel.verify]: one launch is guessed, with arrays as large as what it touches\n"
    )
    assert note in told
    assert (
        main(["verify", "-C", str(project), "--arch", "sm_80", "-q"]) == 0 and capsys.readouterr().err == ""
    )


@pytest.mark.parametrize(
    "body, reason",
    [
        (
            "tl.store(y + tl.arange(0, BLOCK) // 2, tl.load(x + tl.arange(0, BLOCK)))",
            "different values are written to one place",
        ),
        ("tl.store(y + tl.arange(0, BLOCK) * (1 << 14), 1.0)", "write out of bounds"),
    ],
    ids=["overlapping rows", "far apart"],
)
def test_a_launch_that_cannot_be_guessed_is_asked_for(
    project: Path, capsys: pytest.CaptureFixture[str], body: str, reason: str
) -> None:
    file = project / "kernels/scale.py"
    head, _, _ = file.read_text().partition("    offsets")
    file.write_text(f"{head}    {body}\n")
    assert main(["verify", "-C", str(project), "--arch", "sm_80", "--no-cache"]) == 1
    told = capsys.readouterr().err
    assert (
        reason in told
        and '[kernel.verify]\n    sizes = { x = "…", y = "…" }\n    values = [{ n = … }]' in told
    )


def test_assertions_are_verified_as_they_ship(
    verified: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `debug` of a configuration, of the command line, and by Triton's variable; a kernel that breaks
    them fails."""
    file, manifest = verified / "kernels/scale.py", verified / "kernels.toml"
    file.write_text(file.read_text().replace("    mask = ", '    assert n > 40, "n is small"\n    mask = '))
    command = ["verify", "-C", str(verified), "--arch", "sm_80", "--no-cache", "-k"]
    assert main(command) == 0
    capsys.readouterr()
    assert main([*command, "--debug"]) == 1
    told = capsys.readouterr().err
    assert (
        "assertion failed in program (0, 0, 0): n is small" in told
        and "scale.py:9:5" in told
        and "w4s3debug" in told
    )
    monkeypatch.setenv("TRITON_DEBUG", "1")
    assert main(command) == 1
    monkeypatch.delenv("TRITON_DEBUG")
    manifest.write_text(manifest.read_text().replace("BLOCK = 512", "BLOCK = 512\ndebug = true"))
    assert main(command) == 1


@pytest.mark.parametrize(
    "before, after, message",
    [
        ("%ctaid.x", "%ctaid.y", "elements differ; "),
        (
            "scale_kernel_param_1]",
            "scale_kernel_param_0]",
            "y: 1600 of 1600 elements differ; [0] is nan, expected ",
        ),
        ("setp.lt", "setp.ne", "out-of-bounds: "),
        ("mov.u32", "mov.u33", "mov.u33"),
    ],
    ids=["same program", "nothing written", "beyond the end", "no such instruction"],
)
def test_wrong_code_is_caught(
    verified: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    before: str,
    after: str,
    message: str,
) -> None:
    wrong(monkeypatch, before, after)
    assert main(["verify", "-C", str(verified), "--arch", "sm_80", "-k"]) == 1
    output = capsys.readouterr()
    assert "failed" in output.err and message in output.err


def test_no_cache_runs_everything_anew(
    verified: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where the compiler goes wrong after a first run, only a run without the cache sees that."""
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(tmp_path / "cache"))
    command = ["verify", "-C", str(verified), "--arch", "sm_80", "-q"]
    assert main(command) == 0
    wrong(monkeypatch, "%ctaid.x", "%ctaid.y")
    assert main(command) == 0
    before = sorted((tmp_path / "cache").rglob("*"))
    assert main([*command, "--no-cache"]) == 1
    assert sorted((tmp_path / "cache").rglob("*")) == before


def test_what_takes_long_says_what_it_is_at(
    verified: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbuild.aot.build.progress._SECONDS_OF_SILENCE", 0)
    monkeypatch.setattr("kbuild.aot.verify.pool._SECONDS_BETWEEN_NOTES", 0)
    assert main(["verify", "-C", str(verified), "--arch", "sm_80", "--no-cache"]) == 0
    assert (
        "  … scale.sm_80.fp16.NEGATE=0.n=d16.BLOCK=512,SCALE=2.0.w4s3: run 2 of 4\n"
        in capsys.readouterr().err
    )
    assert main(["verify", "-C", str(verified), "--arch", "sm_80", "--no-cache", "-q"]) == 0
    assert capsys.readouterr().err == ""


NEVER = "\n{\n\t.reg .b32 \t%never<2>;\n\tadd.s32 \t%never1, %never0, 1;"


def test_lenient_leaves_out_what_hardware_forgives(
    verified: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A register that nobody has written; neither verdict is taken for the other."""
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(tmp_path / "cache"))
    wrong(monkeypatch, "\n{", NEVER)
    command = ["verify", "-C", str(verified), "--arch", "sm_80"]
    assert main([*command, "--lenient", "-k"]) == 0
    capsys.readouterr()
    assert main(command) == 1
    assert "uninitialised-register: " in capsys.readouterr().err


def test_a_cause_is_shown_once_with_the_element_that_is_meant(
    verified: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong(monkeypatch, "setp.lt", "setp.ne")
    assert main(["verify", "-C", str(verified), "--arch", "sm_80", "-k", "--no-cache", "-j", "1"]) == 1
    told = capsys.readouterr().err
    assert "bytes at x[1604], after the end of x (1600 elements)" in told and "address" not in told
    assert told.count("out-of-bounds: ") == 1 and told.count("repeat it with") == 1
    assert "runs more of " in told and "are wrong, as shown for scale." in told


def test_a_failure_says_how_to_repeat_it(
    verified: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong(monkeypatch, "%ctaid.x", "%ctaid.y")
    assert main(["verify", "-C", str(verified), "--arch", "sm_80", "--no-cache"]) == 1
    command = next(line for line in capsys.readouterr().err.splitlines() if "repeat it with: kbuild" in line)
    words = shlex.split(command.partition("repeat it with: kbuild ")[2])
    assert main([*words, "-C", str(verified), "--no-cache", "--json"]) == 1
    (verdict,) = json.loads(capsys.readouterr().out)
    (check,) = verdict["checks"]
    assert check["problems"] and words[words.index("--case") + 1] == str(check["run"]["case"])


def test_a_kernel_may_say_why_it_is_not_verified(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = project / "kernels.toml"
    manifest.write_text(
        manifest.read_text().replace('name = "scale"\n', 'name = "scale"\nunverified = "needs a moon"\n')
    )
    assert main(["verify", "-C", str(project), "--no-cache"]) == 0
    told = capsys.readouterr()
    assert told.err.startswith("note: scale is not verified: needs a moon\n") and "0 ok, 0 failed" in told.err


def test_a_crash_and_a_hang_cost_one_variant_each(
    verified: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = driver.compile

    def compile_badly(*args: Any, **options: Any) -> driver.Artifact:
        kind = options["signature"]["x"], options["constexprs"]["NEGATE"], options["signature"]["n"]
        if kind == ("*fp16:16", True, "i32"):
            os.write(2, b"LLVM ERROR: cannot select")
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == ("*fp16:16", False, "i32"):
            time.sleep(100)
        return right(*args, **options)

    monkeypatch.setattr(driver, "compile", compile_badly)
    assert (
        main(["verify", "-C", str(verified), "--arch", "sm_80", "-k", "--no-cache", "--json", "--limit", "2"])
        == 1
    )
    output = capsys.readouterr()
    problems = [verdict["problem"] for verdict in json.loads(output.out) if verdict["state"] == "failed"]
    assert len(problems) == 2 and "4 ok, 2 failed" in output.err
    assert any("ended by signal 9\nLLVM ERROR: cannot select" in problem for problem in problems)
    assert any("no end after 2 seconds" in problem for problem in problems)


def test_workers_end_with_those_who_wait_for_them(tmp_path: Path) -> None:
    def work(member: str) -> None:
        (tmp_path / member).write_text(str(os.getpid()))
        time.sleep(100)

    results = run_jobs([["one"], ["two"]], work, 2, 100.0)
    with pytest.raises(KeyboardInterrupt), closing(results):
        signal.signal(signal.SIGALRM, _interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        next(results)
    for member in ("one", "two"):
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / member).read_text()), 0)


def test_workers_end_when_those_who_wait_for_them_are_killed(tmp_path: Path) -> None:
    def work(member: str) -> None:
        (tmp_path / member).write_text(str(os.getpid()))
        time.sleep(100)

    waiting = os.fork()
    if waiting == 0:
        try:
            list(run_jobs([["one"], ["two"]], work, 2, 100.0))
        finally:
            os._exit(1)
    workers = [written_number(tmp_path / member) for member in ("one", "two")]
    os.kill(waiting, signal.SIGKILL)
    os.waitpid(waiting, 0)
    for worker in workers:
        wait_until_gone(worker)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


TEXT = """\
tt.func @f(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>) attributes {num_warps = 1} {
  %v: f32 = tt.load %x
  tt.store %y, %v
  tt.return
}
"""


def test_what_the_kernel_does_not_read_is_poisoned() -> None:
    right = reference(module_of(TEXT), Case((), (("x", 5), ("y", 5)), (1,)), "whole", 0)
    assert (
        right.exact and right.arguments["x"][0] in range(-3, 4) and np.isnan(right.arguments["x"][1:]).all()
    )
    assert np.isnan(right.arguments["y"]).all() and right.expected["y"][0] == right.arguments["x"][0]
    assert right.written["y"].tolist() == [True, False, False, False, False] and not right.written["x"].any()


def test_special_numbers_are_among_the_others() -> None:
    f32 = pointee_of(module_of(TEXT).kernel.arguments[0].type)
    made = numbers("special", f32, 2000, np.random.default_rng(0))
    assert np.isnan(made).any() and np.isinf(made).any() and (np.abs(made[np.isfinite(made)]) < 10).all()


def test_results_are_equal_or_within_bounds() -> None:
    f32 = pointee_of(module_of(TEXT).kernel.arguments[0].type)
    right, all_written = np.array([1, 1000, np.nan, np.inf], np.float32), np.ones(4, bool)

    def problem(found: Any, exact: bool = False, written: np.ndarray = all_written) -> str:
        return compare(f32, right, np.asarray(found, np.float32), written, exact).problem

    assert problem(right * np.float32(1.000001)) == ""
    assert problem(right * np.float32(1.000001), exact=True).startswith("2 of 4 elements differ")
    assert problem([1, 1001, np.nan, np.inf]).startswith(
        "1 of 4 elements differ; [1] is 1001.0, expected 1000.0"
    )
    assert (
        problem([1, 1000, 0, np.inf])
        and problem([1, 1000, np.nan, -np.inf])
        and problem([1, 1000, np.nan, 3e38])
    )
    assert problem(right, written=~all_written) == ""
    assert problem(right + 1, written=~all_written).startswith(
        "2 elements were written that the kernel does not write"
    )


def test_counters_begin_at_zero(tmp_path: Path) -> None:
    """The last of three programs writes the sum of what the others have left; the counter is zero again."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/last.py").write_text(LAST)
    (tmp_path / "kernels.toml").write_text(COUNTED)
    assert main(["verify", "-C", str(tmp_path)]) == 0
    (tmp_path / "kernels/last.py").write_text(LAST.replace("acq_rel", "relaxed"))
    assert main(["verify", "-C", str(tmp_path)]) == 1
    (tmp_path / "kernels.toml").write_text(COUNTED.replace('["count"]', '["count", "n"]'))
    assert any("zeros[1]: expected an argument that is a pointer, found" in one for one in mistakes(tmp_path))


def test_mistakes_in_the_table_are_told(project: Path) -> None:
    file = project / "kernels.toml"
    text = file.read_text()
    line = text.count("\n") + 3
    file.write_text(text + '\n[kernel.verify]\nsizes = { x = "m", z = "n" }\nvalues = [{ n = 1.5 }, {}]\n')
    found = mistakes(project)
    assert any(f"{line}: " in one and "sizes.z: unknown key" in one for one in found), found
    assert any('sizes: missing key "y"' in one for one in found), found
    assert any(
        "values[0].n: expected an integer or an expression, found the float 1.5" in one for one in found
    ), found
    assert any('values[1]: missing key "n"' in one for one in found), found
    file.write_text(text + '\n[kernel.verify]\nsizes = { x = "m", y = "n" }\nvalues = []\n')
    assert ['sizes.x: unknown name "m"' in one for one in mistakes(project)] == [True]


def test_run_prints_arrays_and_findings(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = [
        "-C",
        str(project),
        "kernels/scale.py:scale_kernel",
        "-s",
        "x=*fp32,y=*fp32,n=i32",
        "-c",
        "BLOCK=64,NEGATE=true",
    ]
    assert main(["run", *source, "--arg", "x=range:50,y=poison:50", "--arg", "n=50"]) == 0
    assert "y: 50 elements of f32, 50 changed: 0.0, -2.0, -4.0" in capsys.readouterr().out
    assert main(["run", *source, "--arg", "x=range:50,y=poison:50,n=64"]) == 1
    found = capsys.readouterr().out
    assert "out-of-bounds" in found and "scale.py:" in found
    assert (
        main(["run", *source, "--arg", "x=range:50,y=poison:50,n=50", "--schedule", "reverse", "--races"])
        == 0
    )
    assert "y: 50 elements of f32, 50 changed" in capsys.readouterr().out
    assert main(["run", *source, "--arg", "x=range:50,y=poison:50,n=50", "--races"]) == 2
    assert "--schedule reverse" in capsys.readouterr().err
    assert main(["run", *source, "--arg", "x=range:50,y=poison:50,n=5000000000"]) == 2
    assert "--arg n=5000000000: i32 has 32 bits" in capsys.readouterr().err
    assert main(["run", *source, "--arg", "x=range:50,y=poison:50,n=-1"]) == 0
    assert main(["run", *source, "--arg", "x=range:3000000000,y=poison:50,n=50"]) == 2
    assert "N is a number of elements below 2^31" in capsys.readouterr().err
    assert main(["run", *source, "--arg", "x=5,y=poison:50,n=64"]) == 2
    assert "--arg x=5: " in capsys.readouterr().err
