"""`kbuild why` names what changed: the line, the key, the option, the compiler or the tool."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild import cli
from kbuild.aot.build import project as builder
from kbuild.aot.history import now
from kbuild.aot.history.ledger import read
from tests.aot.conftest import KERNEL
from tests.manifests import package_table

MANIFEST = (
    package_table("demo_kernels", "sm_80", version="0.1.0")
    + """\
[[kernel]]
name = "scale"
source = "kernels/scale.py"
grid = ["cdiv(n, BLOCK)"]
args = { "x, y" = "*{dtype}:16", n = "i32" }
matrix = { dtype = ["fp16", "fp32"], NEGATE = [false] }
config = [
    { BLOCK = 512 },
]
"""
)
NAME = "scale.sm_80.{}.NEGATE=0.BLOCK=512,SCALE=2.0.w4s3"
FP16 = NAME.format("fp16")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with two variants of `scale`, in the current directory, that the fake compiler has built."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/scale.py").write_text(KERNEL)
    (tmp_path / "kernels.toml").write_text(MANIFEST)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(builder, "COMPILER", "tests.aot.build.fake_compiler:compile")
    build()
    return tmp_path


def build(*words: str) -> None:
    assert cli.main(["build", "-q", "scale", *words]) == 0


def why(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[list[str], str]:
    """The lines of an answer, without dates, and the summary."""
    capsys.readouterr()
    assert cli.main(["why", *words]) == 0
    captured = capsys.readouterr()
    return re.sub(r", \d{4}-\d\d-\d\d \d\d:\d\d", "", captured.out).splitlines(), captured.err.strip()


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))


def read_again(project: Path) -> None:
    """Has this process read the files that the kernel imports once more, as the next process would."""
    with (project / "kernels/scale.py").open("a") as stream:
        stream.write("\n")


def test_variants_that_share_a_cubin_are_up_to_date(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their jobs name the variant that has it."""
    config = "    { BLOCK = 512 },\n"
    edit(project / "kernels.toml", config, f'{config[:-4]}, when = {{ n = "<= 99" }} }},\n{config}')
    build()
    assert why(capsys) == ([], "4 variants, and nothing to compile")


def test_nothing_has_changed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert why(capsys) == ([], "2 variants, and nothing to compile")
    edit(project / "kernels/scale.py", "    mask =", "    # A comment.\n    mask =")
    edit(project / "kernels/scale.py", "Multiplies", "Scales")
    assert why(capsys) == ([], "2 variants, and nothing to compile")
    assert why(capsys, FP16)[0] == [f"{FP16}: up to date; build 1, compiled it, as the first"]


def test_a_line_of_the_source(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(project / "kernels/scale.py", "    mask =", "    # A comment moves what follows.\n    mask =")
    edit(project / "kernels/scale.py", ") * SCALE", ") / SCALE")
    because = [
        "  source   kernels/scale.py:11: in scale_kernel",
        "    - 10      value = tl.load(x + offsets, mask=mask) * SCALE",
        "    + 11      value = tl.load(x + offsets, mask=mask) / SCALE",
        "  likewise 1 other; -v names them",
    ]
    assert why(capsys) == (
        [f"{FP16}: would be compiled again, because:", *because],
        "2 of 2 variants would be made",
    )
    build()  # Afterwards it is the answer to why that build compiled.
    assert why(capsys, "scale")[0] == [f"{FP16}: up to date; build 2, compiled it, because:", *because]
    edit(project / "kernels/scale.py", ") / SCALE", ") * SCALE")
    (first, *_, cached, _) = why(capsys)[0]
    assert first == f"{FP16}: would be compiled again, because:"
    assert cached == "  its cubin is in the cache, so that no compiler runs"
    build()
    assert "build 3, took it from the cache, because:" in why(capsys, FP16)[0][0]


def test_a_function_that_the_kernel_calls(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    helper = project / "kernels/helper.py"
    helper.write_text(
        "import triton\nimport triton.language as tl\nLIMIT = tl.constexpr(3)\n\n"
        "@triton.jit\ndef limited(x):\n    return tl.minimum(x, LIMIT)\n"
    )
    edit(project / "kernels/scale.py", "import triton\n", "import triton\nfrom helper import limited\n")
    edit(project / "kernels/scale.py", "mask=mask) * SCALE", "mask=mask) * limited(SCALE)")
    lines = why(capsys)[0]
    assert "  source   kernels/helper.py:6: limited is reached now" in lines
    build()
    edit(helper, "constexpr(3)", "constexpr(4)")
    read_again(project)
    assert why(capsys)[0][1] == "  source   kernels/helper.py:6: LIMIT = 3 → 4, which limited uses"
    edit(helper, "@triton.jit", "@triton.jit(noinline=True)")
    read_again(project)
    assert "  source   kernels/helper.py:6: the decorator of limited: jit → jit noinline" in why(capsys)[0]


def test_keys_of_the_manifest(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = project / "kernels.toml"
    (project / "kernels/other.py").write_text(KERNEL)
    edit(manifest, "kernels/scale.py", "kernels/other.py")
    edit(manifest, 'name = "scale"', 'name = "scale"\nfunction = "scale_kernel"')
    assert why(capsys)[0][1] == "  manifest kernels.toml:10: source = kernels/scale.py → kernels/other.py"
    edit(manifest, "    { BLOCK = 512 },", "    { BLOCK = 512, num_warps = 8 },")
    edit(manifest, '"fp16", "fp32"', '"fp16"')
    lines, summary = why(capsys)
    changed = FP16.replace("w4", "w8")
    assert lines[:3] == [
        f"{changed}: was never built here; it differs from {FP16} in:",
        "  manifest kernels.toml:10: source = kernels/scale.py → kernels/other.py",
        "  manifest kernels.toml:15: num_warps = 4 → 8",
    ]
    assert lines[3] == f"{FP16}: is not asked for, because:" and lines[4] == lines[2]
    assert lines[5:] == [
        f"{NAME.format('fp32')}: is not asked for, because:",
        '  manifest kernels.toml:13: dtype = "fp32" → "fp16"',
        lines[2],
    ]
    assert summary == "1 of 1 variants would be made; 2 not asked for any more"
    assert cli.main(["why", "scael"]) == 2 and 'did you mean "scale"?' in capsys.readouterr().err


def test_the_cost_of_a_configuration(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(project / "kernels.toml", "    { BLOCK = 512 },", '    { BLOCK = 512, cost = "2 * n" },')
    lines, summary = why(capsys)
    assert lines == [
        f"{FP16}: would be compiled again, because:",
        "  manifest kernels.toml:14: cost = none → 2 * n",
        "  its cubin is in the cache, so that no compiler runs",
        "  likewise 1 other; -v names them",
    ]
    assert summary == "2 of 2 variants would be made"
    build()
    assert why(capsys) == ([], "2 variants, and nothing to compile")


def test_options_compiler_and_tools(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert why(capsys, "--lineinfo", "fp16")[0][1] == "  option   lineinfo = false → true"
    asked = builder.BuildOptions(project=Path(), environment={})
    state = now.Project.of(asked)
    was = state.circumstances
    state.circumstances = replace(
        was,
        id="other",
        kbuild="9.9",
        compiler="c" * 64,
        files={**was.files, "options.py": "", "targets/sm_70.py": ""},
        tools={**was.tools, "ptxas": "d" * 64},
        versions={**was.versions, "ptxas": "99.1"},
    )
    state.jobs = {name: replace(job, identity="e" * 64) for name, job in state.jobs.items()}
    compiler, tool = state.answer(FP16).reasons
    assert compiler.text.endswith("→ 9.9: 2 files of its compiler differ: options.py, targets/sm_70.py")
    assert tool.kind == "tool" and tool.text == "ptxas 13.5 → 99.1"


def test_files_that_are_gone_and_a_history_that_is(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cubin = project / f"build/sm_80/scale/{FP16.removeprefix('scale.sm_80.')}.cubin"
    cubin.unlink()
    assert why(capsys, "scale.sm_80.fp16*")[0] == [
        f"{FP16}: would be made again, because:",
        "  files    its files in the build directory are not there, or not as they were made",
        "  its cubin is in the cache, so that no compiler runs",
    ]
    build()
    history = project / "build/.kbuild/history"
    history.write_bytes(history.read_bytes()[:-20])  # As by a power failure: the last line is lost.
    assert len(read(project / "build").builds) == 1
    build("--lineinfo")
    assert len(read(project / "build").builds) == 2
    history.unlink()
    assert why(capsys, "--lineinfo", "fp16")[0] == [f"{FP16}: up to date; which build made it is not known"]
    assert why(capsys, "fp16")[0][1] == "  files    the history of builds does not have it"


def test_json(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(project / "kernels/scale.py", ") * SCALE", ") / SCALE")
    lines, _ = why(capsys, "--json", "-q", "fp32")
    (answer,) = json.loads("\n".join(lines))
    assert answer["variant"] == NAME.format("fp32") and answer["state"] == "changed" and answer["build"] == 1
    (reason,) = answer["reasons"]
    assert reason["kind"] == "source" and reason["place"] == "kernels/scale.py:10"
    assert [line["sign"] for line in reason["diff"]] == ["-", "+"]
