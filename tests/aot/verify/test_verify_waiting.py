"""`kbuild verify` of kernels whose programs wait for each other, and the report of endless waits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbuild.cli import main
from kbuild.compiler import driver
from tests.manifests import package_table

SOURCE = Path(__file__).parents[2] / "compiler/interp/waiting.py"

Project = Callable[..., Path]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Makes a project with one of the kernels that wait."""

    def made(name: str, args: dict[str, str], grid: str, table: str, constexprs: str = "BLOCK = 16") -> Path:
        (tmp_path / "kernels").mkdir(exist_ok=True)
        (tmp_path / "kernels/waiting.py").write_text(SOURCE.read_text())
        arguments = "\n".join(f'{name} = "{type_}"' for name, type_ in args.items())
        (tmp_path / "kernels.toml").write_text(
            f'{package_table("waiting", "sm_90")}[[kernel]]\nname = "{name}"\nsource = "kernels/waiting.py"\n'
            f'function = "{name}_kernel"\ngrid = ["{grid}"]\n[kernel.args]\n{arguments}\n'
            f"[[kernel.config]]\n{constexprs}\nnum_warps = 2\n{table}"
        )
        return tmp_path

    return made


STREAM_K = {"x": "*i32", "parts": "*i32", "locks": "*i32", "out": "*i32", "n": "i32"}
LOOK_BACK = {"x": "*i32", "sums": "*i32", "flags": "*i32", "out": "*i32", "n": "i32"}
BARRIER = {"x": "*i32", "count": "*i32", "out": "*i32", "n": "i32"}
VALUES = "values = [{ n = 100 }, { n = 90 }, { n = 80 }, { n = 33 }, { n = 112 }]\n"
"""A launch for each of the adverse orders."""
LOOK_BACK_TABLE = (
    '[kernel.verify]\nsizes = { x = "n", sums = "cdiv(n, BLOCK)", flags = "cdiv(n, BLOCK)", out = "n" }\n'
    + VALUES
)


@pytest.mark.parametrize(
    "name, args, table, zeros",
    [
        (
            "stream_k",
            STREAM_K,
            'sizes = { x = "n", parts = "cdiv(n, BLOCK)", locks = "cdiv(n, BLOCK)", out = "1" }',
            "locks",
        ),
        (
            "look_back",
            LOOK_BACK,
            'sizes = { x = "n", sums = "cdiv(n, BLOCK)", flags = "cdiv(n, BLOCK)", out = "n" }',
            "flags",
        ),
        (
            "grid_barrier",
            BARRIER,
            'sizes = { x = "cdiv(n, BLOCK) * BLOCK", count = "1", out = "cdiv(n, BLOCK) * BLOCK" }',
            "count",
        ),
    ],
)
def test_programs_that_wait_are_verified(
    project: Project, name: str, args: dict[str, str], table: str, zeros: str
) -> None:
    folder = project(name, args, "cdiv(n, BLOCK)", f'[kernel.verify]\n{table}\n{VALUES}zeros = ["{zeros}"]\n')
    assert main(["verify", "-C", str(folder), "--no-cache", "-q"]) == 0


def test_a_flag_read_too_early_is_a_race(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    folder = project("look_back", LOOK_BACK, "cdiv(n, BLOCK)", LOOK_BACK_TABLE + 'zeros = ["flags"]\n')
    file = folder / "kernels/waiting.py"
    file.write_text(
        file.read_text().replace(
            'flags + program - 1, 0, sem="acquire"', 'flags + program - 1, 0, sem="relaxed"'
        )
    )
    assert main(["verify", "-C", str(folder), "--no-cache"]) == 1
    assert "race: " in (err := capsys.readouterr().err) and " reads sums[" in err


def test_a_deadlock_is_reported_with_its_loop_and_what_it_looks_at(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    table = '[kernel.verify]\nsizes = { flags = "4", out = "1" }\nvalues = [{}]\nzeros = ["flags"]\n'
    folder = project("deadlock", {"flags": "*i32", "out": "*i32"}, "2", table, "")
    assert main(["verify", "-C", str(folder), "--no-cache"]) == 1
    err = capsys.readouterr().err
    line = 1 + next(
        place for place, text in enumerate(SOURCE.read_text().splitlines()) if "flags + 3 * other" in text
    )
    assert (
        f"waiting.py:{line}:" in err
        and "reads flags[3], which is 0" in err
        and "reads flags[0], which is 0" in err
    )
    assert "zeros = [" not in err


def test_zeros_are_proposed_for_what_a_loop_spins_on(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    table = '[kernel.verify]\nsizes = { lock = "1", total = "1" }\nvalues = [{ n = 1 }]\n'
    args = {"lock": "*i32", "total": "*i32", "n": "i32"}
    folder = project("spin_lock", args, "3", table, "")
    file = folder / "kernels/waiting.py"
    file.write_text(file.read_text().replace("(lock, 0, 1,", "(lock, 9, 1,").replace("== 1:", "!= 9:"))
    assert main(["verify", "-C", str(folder), "--no-cache"]) == 1
    assert 'zeros = ["lock"]' in capsys.readouterr().err


def test_a_guess_in_vain_is_made_once_for_a_kernel(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The lock is taken from the beginning, in all eight variants; the table that is proposed lets it begin
    as zeros."""
    folder = project("spin_lock", {"lock": "*i32:16?", "total": "*i32:16?", "n": "i32:16?"}, "3", "", "")
    file = folder / "kernels/waiting.py"
    file.write_text(file.read_text().replace("(lock, 0, 1,", "(lock, 9, 1,").replace("== 1:", "!= 9:"))
    right, log = driver.compile, tmp_path / "log"

    def compile_and_note(*args: Any, **options: Any) -> driver.Artifact:
        with log.open("a") as stream:
            stream.write("compiled\n")
        return right(*args, **options)

    monkeypatch.setattr(driver, "compile", compile_and_note)
    assert main(["verify", "-C", str(folder), "--no-cache", "-k", "-j", "2"]) == 1
    err = capsys.readouterr().err
    assert "0 ok, 8 failed" in err and err.count("was guessed in vain") == 7
    assert (
        '[kernel.verify]\n    sizes = { lock = "…", total = "…" }\n    values = [{ n = … }]\n    zeros = ["lock"]'
        in err
    )
    assert log.read_text() == "compiled\n"


def test_a_loop_of_the_code_without_an_end_says_what_it_looks_at(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flag is never set in the PTX, as if the compiler had lost that."""
    folder = project("look_back", LOOK_BACK, "cdiv(n, BLOCK)", LOOK_BACK_TABLE + 'zeros = ["flags"]\n')
    right = driver.compile

    def compile_wrong(*args: Any, **options: Any) -> driver.Artifact:
        artifact = right(*args, **options)
        lines = [
            line for line in artifact.asm["ptx"].splitlines() if "atom.release.gpu.global.exch" not in line
        ]
        return driver.Artifact({**artifact.asm, "ptx": "\n".join(lines)}, artifact.metadata)

    monkeypatch.setattr(driver, "compile", compile_wrong)
    monkeypatch.setattr("kbuild.aot.verify.check.STEP_BUDGET", 50_000)
    assert main(["verify", "-C", str(folder), "--no-cache"]) == 1
    err = capsys.readouterr().err
    line = 1 + next(
        place
        for place, text in enumerate(SOURCE.read_text().splitlines())
        if "flags + program - 1, 0" in text
    )
    assert (
        "step-budget: no end after 500" in err
        and f"looks at flags[5], from {folder}/kernels/waiting.py:{line}:" in err
    )
    assert err.count("step-budget") == 1


def test_values_name_any_other_argument(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    sizes, values = '{ flag = "1", out = "1" }', '[{ tries = "50 * n", n = "m + 1", m = 3 }]'
    table = f'[kernel.verify]\nsizes = {sizes}\nvalues = {values}\nzeros = ["flag"]\n'
    args = {"flag": "*i32", "out": "*i32", "tries": "i32"}
    folder = project("patient", args, "2", f'[kernel.grid_args]\nn = "i32"\nm = "i32"\n{table}', "")
    text = (folder / "kernels.toml").read_text()
    assert main(["verify", "-C", str(folder), "--no-cache", "--json"]) == 0
    (verdict,) = json.loads(capsys.readouterr().out)
    assert {check["launch"] for check in verdict["checks"]} == {"tries=200, n=4, m=3"}
    (folder / "kernels.toml").write_text(text.replace("m = 3", 'm = "tries"'))
    assert main(["verify", "-C", str(folder), "--no-cache"]) == 1
    assert "the values of tries, n, m depend on each other" in capsys.readouterr().err
    (folder / "kernels.toml").write_text(text.replace('n = "m + 1"', 'n = "n + 1"'))
    assert main(["verify", "-C", str(folder), "--no-cache"]) == 2
    assert 'values[0].n: unknown name "n"' in capsys.readouterr().err


EARLY = """
import triton
import triton.language as tl


@triton.jit
def early_kernel(x, weight, out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    factor = tl.load(weight + offsets, mask=offsets < n)
    tl.extra.cuda.gdc_wait()
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * factor, mask=offsets < n)
"""


def test_memory_of_the_launch_before_is_touched_behind_the_wait(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is read before may be read if nothing writes it, and the manifest says so."""
    args = {"x": "*fp32", "weight": "*fp32", "out": "*fp32", "n": "i32"}
    table = '[kernel.verify]\nsizes = { x = "n", weight = "n", out = "n" }\nvalues = [{ n = 60 }]\n'
    folder = project("early", args, "1", table, "BLOCK = 64\nlaunch_pdl = true")
    (folder / "kernels/waiting.py").write_text(EARLY)
    command = ["verify", "-C", str(folder), "--no-cache"]
    assert main(command) == 1
    err = capsys.readouterr().err
    assert (
        "before-wait: " in err
        and "reads weight[32] before griddepcontrol.wait" in err
        and "waiting.py:9:" in err
    )
    manifest = folder / "kernels.toml"
    manifest.write_text(manifest.read_text() + 'ready = ["weight"]\n')
    assert main([*command, "-q"]) == 0
    manifest.write_text(
        manifest.read_text()
        .replace("launch_pdl = true", "launch_pdl = false")
        .replace('ready = ["weight"]', "")
    )
    assert main([*command, "-q"]) == 0
    manifest.write_text(manifest.read_text() + 'ready = ["n"]\n')
    assert (
        main(command) == 2 and "ready[0]: expected an argument that is a pointer" in capsys.readouterr().err
    )
