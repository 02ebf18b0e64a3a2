"""`kbuild compile` and `kbuild opt` with the real compiler, on a kernel of this project."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kbuild import cli
from kbuild.targets import ARCHS

ROOT = Path(__file__).parents[2]
VECTOR_ADD = [
    "compile",
    "kernels/vector_add.py:vector_add_kernel",
    "-s",
    "x=*fp32:16,y=*fp32:16",
    "-s",
    "out=*fp32:16,n=i64",
    "-c",
    "BLOCK=1024",
]


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_every_stage_for_two_architectures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stages = "ttir,ttgir,llir,ptx,cubin"
    assert (
        cli.main(
            [
                *VECTOR_ADD,
                "--arch",
                "sm_80",
                "--arch",
                "sm_90",
                "--emit",
                stages,
                "-o",
                str(tmp_path),
                "--json",
            ]
        )
        == 0
    )
    reports = json.loads(capsys.readouterr().out)
    assert [report["target"] for report in reports] == ["sm_80", "sm_90"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        f"vector_add_kernel.{arch}.{stage}" for arch in ("sm_80", "sm_90") for stage in stages.split(",")
    )
    assert (tmp_path / "vector_add_kernel.sm_80.cubin").read_bytes()[:4] == b"\x7fELF"
    assert reports[0]["spill_stores"] == 0 and reports[0]["registers"] > 0
    assert set(reports[0]["stage_seconds"]) == set(stages.split(","))


def test_assertions_are_asked_for_by_an_option_or_triton_s_variable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "k.py").write_text("import triton\n\n@triton.jit\ndef k(n):\n    assert n > 1\n")
    command = ["compile", str(tmp_path / "k.py:k"), "-s", "n=i32", "--emit", "ttir"]
    for words, value, expected in (([], "", 0), (["--debug"], "", 1), ([], "1", 1), ([], "0", 0)):
        monkeypatch.setenv("TRITON_DEBUG", value)
        assert cli.main([*command, *words]) == 0
        assert capsys.readouterr().out.count("tt.assert") == expected


def test_a_dot_that_ptxas_serializes_is_reported_and_refused_by_an_option_or_a_variable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [
        "compile",
        "tests/zoo/kernels/dots.py:dot_tile",
        "-s",
        "a=*fp16:16,b=*fp16:16,c=*fp32:16",
        "-c",
        "M=256,N=256,K=16,PRECISION=tf32",
        "--num-warps",
        "8",
        "-o",
        str(tmp_path),
    ]
    for words, value, expected, kind in (
        ([], "", 0, "warning"),
        (["--strict"], "", 1, "error"),
        ([], "1", 1, "error"),
    ):
        monkeypatch.setenv("KBUILD_STRICT", value)
        assert cli.main([*command, *words]) == expected
        said = capsys.readouterr().err
        assert (
            "tests/zoo/kernels/dots.py:" in said
            and f"{kind}: " in said
            and "insufficient register resources" in said
        )


def test_tuples_in_a_signature(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "import triton\nimport triton.language as tl\n\n@triton.jit\ndef k(x, n):\n    tl.store(x.at, n + x.by[0])\n"
    (tmp_path / "k.py").write_text(text)
    words = ["-s", "x=(at=*i32, by=(i32, i32)),n=i32", "--emit", "ttir"]
    assert cli.main(["compile", f"{tmp_path}/k.py:k", *words]) == 0
    assert "%x_0: !tt.ptr<i32>, %x_1_0: i32, %x_1_1: i32, %n: i32" in capsys.readouterr().out


def test_a_text_is_printed_and_passes_run_on_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*VECTOR_ADD, "--emit", "ttir"]) == 0
    text = capsys.readouterr().out
    assert "tt.load" in text and "ttg." not in text
    (tmp_path / "k.ttir").write_text(text)
    assert cli.main(["opt", str(tmp_path / "k.ttir"), "-p", "canonicalize,cse"]) == 0
    assert "tt.load" in capsys.readouterr().out


def test_the_cubin_lies_in_the_current_directory_by_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [
        str(ROOT / "kernels/vector_add.py:vector_add_kernel") if "vector_add" in word else word
        for word in VECTOR_ADD
    ]
    assert cli.main(words) == 0
    assert (tmp_path / "vector_add_kernel.sm_90.cubin").is_file()
    err = capsys.readouterr().err
    assert (
        err.startswith("vector_add_kernel.sm_90.cubin: ")
        and "registers, no spills, 0 bytes of shared memory" in err
    )


def test_dump(tmp_path: Path) -> None:
    assert (
        cli.main(
            [*VECTOR_ADD, "--emit", "ttgir", "-q", "--dump", str(tmp_path / "dump"), "-o", str(tmp_path)]
        )
        == 0
    )
    *dumped, final, first = sorted((tmp_path / "dump").iterdir())
    assert (final.name, first.name) == ("kernel.ttgir", "kernel.ttir")
    assert dumped[0].name == "00_start.ttir", "what the first pass gets"
    stages = [path.suffix for path in dumped]
    assert stages == sorted(stages, reverse=True) and ".ttgir" in stages, (
        "each file is named for what it holds"
    )
    laid_out = [path for path in dumped if re.search(r"tensor<[^<>]*, #", path.read_text())]
    assert laid_out == dumped[stages.index(".ttgir") :]
    assert cli.main(["opt", str(dumped[-1]), "-p", "cse", "-o", str(tmp_path)]) == 0, "and is read back"


@pytest.mark.parametrize(
    "words, message",
    [
        (["opt", "no.ttir", "-p", "cse"], "error: no.ttir: No such file or directory"),
        (
            ["opt", "-C", "kernels", "no.ttir", "-p", "cse"],
            "error: kernels/no.ttir: No such file or directory",
        ),
        (["opt", "README.md", "-p", "cse"], "README.md:1:1: error: unexpected character '#'"),
        (
            ["opt", "README.md", "-p", "cse", "--arch", "sm_1"],
            f"error: unknown architecture 'sm_1'\nhelp: known: {', '.join(ARCHS)}",
        ),
        (["compile", "no.py:f"], "error: no file no.py"),
        (["compile", "kernels/vector_add.py"], "error: 'kernels/vector_add.py' names no function"),
        (
            ["compile", "kernels/vector_add.py:add_kernel"],
            "has no function add_kernel\nhelp: did you mean vector_add_kernel?",
        ),
        (["compile", "no.ttgir"], "error: cannot read no.ttgir: No such file or directory"),
        (["compile", "no.ptx"], "error: cannot read no.ptx: No such file or directory"),
        (
            ["compile", "no.cubin"],
            "error: cannot start from no.cubin\nhelp: start from a .py:function, or a .ttir",
        ),
        (
            VECTOR_ADD[:6],
            "kernels/vector_add.py:8:1: error: kernel vector_add_kernel is missing argument BLOCK",
        ),
        (
            [*VECTOR_ADD, "--arch", "sm_70"],
            f"error: unknown architecture 'sm_70'\nhelp: known: {', '.join(ARCHS)}",
        ),
        (
            [*VECTOR_ADD, "--num-warps", "3"],
            "error: argument --num-warps: expected 1, 2, 4, 8, 16 or 32, found '3'",
        ),
        (
            [*VECTOR_ADD, "-o", "README.md"],
            "error: cannot write README.md/vector_add_kernel.sm_90.cubin: README.md is not a directory",
        ),
        ([*VECTOR_ADD, "--dump", "README.md/x"], "error: cannot write to README.md/x: Not a directory"),
        ([*VECTOR_ADD, "-c", "BLOCK=1,BLOCK=2"], "error: -c 'BLOCK=1,BLOCK=2': BLOCK is given twice"),
    ],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert cli.main(words) in (1, 2)
    err = capsys.readouterr().err
    assert message in err and "Traceback" not in err and "kbuild failed" not in err


@pytest.mark.parametrize(
    "data, message",
    [
        (b"\xca\xfe", "it is not text"),
        (b"", ":1:1: error: expected tt.func"),
        (b"tt.func @f() {", "error: "),
    ],
)
def test_unreadable_ir(tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes, message: str) -> None:
    file = tmp_path / "k.ttgir"
    file.write_bytes(data)
    for words in (["compile", str(file)], ["opt", str(file), "-p", "cse"]):
        assert cli.main(words) in (1, 2)
        err = capsys.readouterr().err
        assert message in err and "kbuild failed" not in err


def test_values_with_commas(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(
        "import kbuild\nimport kbuild.language as tl\n\n\n@kbuild.jit\ndef f(x, SHAPE: tl.constexpr, NAME: tl.constexpr):\n"
        "    tl.static_assert(NAME == 'fast')\n    tl.store(x, SHAPE[0] * SHAPE[1])\n"
    )
    words = [
        "compile",
        "-C",
        str(tmp_path),
        "k.py:f",
        "-s",
        "x=*i32",
        "-c",
        "SHAPE=(4, 7),NAME=fast",
        "--emit",
        "ttir",
    ]
    assert cli.main(words) == 0
    assert "value = 28" in capsys.readouterr().out


def test_what_a_compile_does_not_need_is_not_loaded(tmp_path: Path) -> None:
    """It keeps a cold process under 0.3 s; numpy alone would take a third of that."""
    code = "import sys; from kbuild import cli; cli.main(sys.argv[1:]); print(*sys.modules)"
    command = [sys.executable, "-c", code, *VECTOR_ADD, "-q", "-o", str(tmp_path)]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "kbuild.compiler.backend.llvm" in loaded
    assert not loaded & {"tempfile", "llvmlite", "numpy", "jinja2", "tomli", "ninja", "packaging", "asyncio"}


def test_a_build_with_nothing_to_compile_loads_no_compiler(tmp_path: Path) -> None:
    code = "import sys; import kbuild.cli.grammar.parser, kbuild.cli.verbs.build; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert not {"numpy", "jinja2", "llvmlite", "kbuild.compiler.driver"} & set(done.stdout.split())
