"""`kbuild verify`: correct kernels pass, and wrong code is caught."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from kbuild.cli import main
from kbuild.compiler import driver
from kbuild.compiler.backend.cubin import ptxas_version
from kbuild.compiler.backend.ptxas_wheels import choose, installed
from tests.manifests import package_table


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
    """It waits for more where it has to; the verdict on one does not hold for the other."""
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
    err = capsys.readouterr().err
    assert "6 ok, 0 failed" in err
    note = (
        "note: scale has no [kernel.verify]: one launch is guessed, with arrays as large as what it touches\n"
    )
    assert note in err
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
    err = capsys.readouterr().err
    assert (
        reason in err and '[kernel.verify]\n    sizes = { x = "…", y = "…" }\n    values = [{ n = … }]' in err
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
    err = capsys.readouterr().err
    assert (
        "assertion failed in program (0, 0, 0): n is small" in err
        and "scale.py:9:5" in err
        and "w4s3debug" in err
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


def test_no_cache_runs_everything_again(
    verified: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where the compiler breaks after a first run, only a run without the cache notices."""
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
    """A register that was never written; neither verdict is taken for the other."""
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
    err = capsys.readouterr().err
    assert "bytes at x[1604], after the end of x (1600 elements)" in err and "address" not in err
    assert err.count("out-of-bounds: ") == 1 and err.count("repeat it with") == 1
    assert "runs more of " in err and "are wrong, as shown for scale." in err


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
    output = capsys.readouterr()
    assert (
        output.err.startswith("note: scale is not verified: needs a moon\n")
        and "0 ok, 0 failed" in output.err
    )
