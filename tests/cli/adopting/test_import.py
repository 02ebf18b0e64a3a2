"""`kbuild import` as a user sees it: captures become a manifest that builds what they have asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tomli

from kbuild import cli
from kbuild.aot.capture.records import Capture, write_capture
from tests.cli.adopting.conftest import Recording

ADD = "from lib.ops import Tensor, add\n"


def imported(*words: str, code: int = 0) -> dict[str, dict[str, Any]]:
    """The kernels of the manifest that an import writes, by name."""
    assert cli.main(["import", "capture.jsonl", "-q", *words]) == code
    manifest = Path("kernels.toml")
    kernels = tomli.loads(manifest.read_text())["kernel"] if manifest.exists() else []
    return {kernel["name"]: kernel for kernel in kernels}


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """What `kbuild list` prints."""
    capsys.readouterr()
    assert cli.main(["list", "-q", *words]) == 0
    return capsys.readouterr().out.split()


def test_values_that_multiply_become_axes(record: Recording, capsys: pytest.CaptureFixture[str]) -> None:
    record()
    add = imported()["add"]
    assert add["source"] == "lib/ops.py" and add["function"] == "add_kernel"
    assert add["args"] == {"x, y, out": "*{dtype}:16", "n": "i32"}
    assert add["matrix"] == {"dtype": ["fp16", "fp32"], "BLOCK": [1024]}
    assert add["specialize"] == [{}, {"n": 16}] and add["config"] == [{"num_warps": 4, "num_stages": 3}]
    names = [
        f"add.sm_90.{dtype}.BLOCK=1024{hint}.w4s3" for dtype in ("fp16", "fp32") for hint in ("", ".n=d16")
    ]
    assert listed(capsys, "add") == names


def test_values_that_do_not_multiply_become_a_list(
    record: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    record()
    norm = imported()["norm"]
    assert norm["variants"] == "captured/norm.jsonl" and "matrix" not in norm
    header, *rows = map(json.loads, Path("captured/norm.jsonl").read_text().splitlines())
    assert header["axes"] == ["dtype", "HAS_BIAS", "BLOCK"] and "bias" in header["config"]
    assert [row[0] for row in rows[:2]] == [["fp16", False, 128], ["fp16", False, 512]]
    found = listed(capsys, "norm")
    assert len(found) == 4 and "norm.sm_90.fp16.HAS_BIAS=0,BLOCK=512.stride=d16,n=d16.w8s3" in found


def test_calls_with_and_without_a_pointer_are_two_kernels(record: Recording) -> None:
    record()
    kernels = imported()
    assert "bias" not in kernels["norm"]["args"] and kernels["norm_2"]["function"] == "norm_kernel"
    assert kernels["norm_2"]["args"]["x, bias, out"] == "*{dtype}"


def test_a_tuners_choices_are_those_of_near_sizes(
    record: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    record()
    scale = imported()["scale"]
    small = {"BLOCK": 64, "num_stages": 3, "num_warps": 2, "when": {"n": "<= 2023"}}
    assert scale["matrix"] == {"dtype": ["fp16", "fp32"], "EVEN": [True]}
    assert scale["config"] == [small, {"BLOCK": 128, "num_stages": 3, "num_warps": 8}]
    assert scale["seen"] == {"n": [640, 6400]}
    assert "scale.sm_90.fp16.EVEN=1.n=d16.BLOCK=64.n-le-2023.w2s3" in " ".join(listed(capsys, "scale"))


def test_options_that_mean_nothing_are_left_out(record: Recording) -> None:
    record(STAND_IN_TRITON="3.2.0")
    assert {*imported()["scale"]["config"][1]} == {"BLOCK", "num_stages", "num_warps"}


def test_the_package_has_another_name_than_its_library(
    record: Recording, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record()
    monkeypatch.chdir(project.rename(project.parent / "lib"))
    imported()
    assert tomli.loads(Path("kernels.toml").read_text())["package"]["name"] == "lib_kernels"


def test_what_generalises_and_what_does_not_is_said(
    record: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    record()
    assert cli.main(["import", "capture.jsonl"]) == 0
    said = capsys.readouterr().err
    assert "note: norm: for calls without bias\n" in said
    assert "note: norm: BLOCK was seen with 2 values: rows for each, and for no others\n" in said
    assert "note: scale: n was always divisible by 16: other calls are not built\n" in said
    assert "note: scale: @triton.autotune chose by n: other sizes get the choice of the nearest" in said
    assert "left out: lib.ops:made.<locals>.times: it is made within a function" in said
    assert said.endswith("wrote kernels.toml: 4 kernels with 16 variants for each architecture\n")


def test_a_changed_source_is_a_mistake(
    record: Recording, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record()
    imported()
    ops, shared = project / "lib/ops.py", project / "lib/shared.py"
    ops.write_text(ops.read_text().replace("import triton\n", "import triton  # moved\n\n\n", 1))
    assert cli.main(["list", "-q"]) == 0
    shared.write_text(shared.read_text().replace("1e-6", "1e-5"))
    ops.write_text(ops.read_text() + "\n")  # Modules that did not change are read once in a process.
    capsys.readouterr()
    assert cli.main(["list", "-q"]) == 2
    said = capsys.readouterr().err
    assert said.count("is not what was captured, or takes other constants from its module") == 2
    assert 'kernel "norm": digest: norm_kernel of lib/ops.py' in said


def test_a_capture_of_another_source_is_left_out(record: Recording, project: Path) -> None:
    record()
    shared = project / "lib/shared.py"
    shared.write_text(shared.read_text().replace("tl.maximum", "tl.minimum"))
    assert imported().keys() == {"add", "scale"}


def test_kernels_that_functions_make_are_embedded(
    record: Recording, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record()
    times = imported("--embed")["times"]
    text = (project / times["source"]).read_text()
    assert "factor: tl.constexpr = 3.0" in text and "@triton.jit\ndef times(" in text and "def above(" in text
    assert listed(capsys, "times") == ["times.sm_90.fp16.BLOCK=256.w4s3", "times.sm_90.fp32.BLOCK=256.w4s3"]
    assert cli.main(["build", "times", "-q", "--no-cache"]) == 0


def test_patched_source_is_embedded_as_it_ran(record: Recording, project: Path) -> None:
    program = ADD + (
        "from lib.ops import add_kernel\nadd_kernel.src = add_kernel.src.replace('y + places', 'x + places')\n"
        "add(Tensor(16), Tensor(16))\n"
    )
    record(program=program)
    assert not imported(code=2)
    source = imported("--embed")["add"]["source"]
    assert (
        source.startswith("captured/sources/add_kernel_")
        and "y + places" not in (project / source).read_text()
    )


def test_sources_of_installed_wheels_are_named_there(
    record: Recording,
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    record()
    site = tmp_path / "site"
    (site / "the_lib-1.0.dist-info").mkdir(parents=True)
    (project / "lib").rename(site / "lib")
    (site / "the_lib-1.0.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: the-lib\nVersion: 1.0\n"
    )
    (site / "the_lib-1.0.dist-info/RECORD").write_text("lib/__init__.py,,\nlib/ops.py,,\nlib/shared.py,,\n")
    monkeypatch.syspath_prepend(str(site))
    assert imported("--library", "lib.ops")["norm"]["source"] == "the-lib:lib/ops.py"
    assert cli.main(["build", "add", "-q", "--no-cache"]) == 0
    monkeypatch.undo()
    monkeypatch.chdir(project)
    capsys.readouterr()
    assert cli.main(["list", "-q"]) == 2
    assert 'kernel "add": source: the-lib is not installed; pip install the-lib' in capsys.readouterr().err


def test_only_a_librarys_kernels(record: Recording, capsys: pytest.CaptureFixture[str]) -> None:
    record()
    assert not imported("--library", "other", code=2)
    assert (
        capsys.readouterr().err == "error: no kernel can be written\nhelp: the capture has kernels of lib\n"
    )
    assert imported("--library", "lib").keys() == {"add", "norm", "norm_2", "scale"}


def test_kernels_of_other_modules_are_counted(
    record: Recording, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "abcd":
        (project / f"generated_{name}.py").write_text((project / "lib/ops.py").read_text())
    added = "".join(
        f"import generated_{name}\ngenerated_{name}.add(Tensor(16), Tensor(16))\n" for name in "abcd"
    )
    record(program=ADD + "add(Tensor(16), Tensor(16))\n" + added)
    for libraries, said in {
        ("lib",): "4 kernels of generated_a, generated_b, generated_c and 1 more are",
        ("lib", "generated_a", "generated_b", "generated_d"): "a kernel of generated_c is",
    }.items():
        words = [word for library in libraries for word in ("--library", library)]
        assert cli.main(["import", "capture.jsonl", "--dry-run", *words]) == 0
        assert f"note: {said} not meant by --library\n" in capsys.readouterr().err


BRANCHES = """\
import triton
import triton.language as tl
import os

if os.environ['FAST'] == '1':
    @triton.jit
    def root(x):
        return tl.sqrt(x)
else:
    @triton.jit
    def root(x):
        return tl.sqrt_rn(x)

SIZE = tl.constexpr(int(os.environ['SIZE']))


@triton.jit
def branch_kernel(x, out, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    tl.store(out + places, root(tl.load(x + places)))


@triton.jit
def size_kernel(x, out):
    places = tl.arange(0, SIZE)
    tl.store(out + places, tl.load(x + places))
"""


def test_what_a_file_does_not_decide_is_said_and_can_be_embedded(
    record: Recording, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "lib/branches.py").write_text(BRANCHES)
    program = (
        "from lib.ops import Tensor\nfrom lib.branches import branch_kernel, size_kernel\n"
        "branch_kernel[(1,)](Tensor(16), Tensor(16), BLOCK=16)\nsize_kernel[(1,)](Tensor(16), Tensor(16))\n"
    )
    record(program=program, FAST="0", SIZE="16")
    assert cli.main(["import", "capture.jsonl"]) == 2
    said = capsys.readouterr().err
    assert (
        "lib/branches.py has several functions root, and does not say by itself which of them is meant"
        in said
    )
    assert "SIZE was 16 for size_kernel, and lib/branches.py does not say it by itself" in said
    kernels = imported("--embed")
    text = (project / kernels["branch"]["source"]).read_text()
    assert "tl.sqrt_rn(x)" in text and "tl.sqrt(x)" not in text
    assert "SIZE: tl.constexpr = 16" in (project / kernels["size"]["source"]).read_text()


CONDITIONAL = """\
import triton
import triton.language as tl

def has_triton(): return True

if has_triton():
    SIZES = [triton.Config({"BLOCK": 64})]
    try:
        from lib.shared import above

        @triton.autotune(SIZES, key=["n"])
        @triton.jit
        def above_kernel(x, out, n, BLOCK: tl.constexpr):
            places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            tl.store(out + places, above(tl.load(x + places, mask=places < n)), mask=places < n)
    except ImportError:
        above_kernel = None
    def run(x): above_kernel[(1,)](x, x, 16)
else:
    def run(x): raise RuntimeError("no Triton")
    def above_kernel(x): raise RuntimeError("no Triton")
"""


def test_kernels_under_conditions_are_found(record: Recording, project: Path) -> None:
    (project / "lib/conditional.py").write_text(CONDITIONAL)
    record(program="from lib.ops import Tensor\nfrom lib.conditional import run\nrun(Tensor(16))\n")
    assert imported()["above"]["source"] == "lib/conditional.py"
    assert cli.main(["build", "-q", "--no-cache"]) == 0


def test_a_later_capture_adds_kernels(record: Recording, capsys: pytest.CaptureFixture[str]) -> None:
    record(program=ADD + "add(Tensor(16), Tensor(16))\n")
    assert imported().keys() == {"add"}
    assert cli.main(["import", "capture.jsonl"]) == 2
    assert "kernels.toml is there already" in capsys.readouterr().err
    record(program="from lib.ops import Tensor, scale\nscale(Tensor(640))\n")
    assert imported("--append").keys() == {"add", "scale"}
    assert cli.main(["import", "capture.jsonl", "--append"]) == 0
    assert capsys.readouterr().err.endswith("nothing to add to kernels.toml\n")


def test_a_dry_run_writes_nothing(record: Recording, capsys: pytest.CaptureFixture[str]) -> None:
    record()
    assert not imported("--dry-run", "--json")
    found = json.loads(capsys.readouterr().out)
    assert [kernel["name"] for kernel in found["kernels"]] == ["add", "norm", "norm_2", "scale"]
    assert "captured/norm.jsonl" in found["files"] and not Path("captured").exists()


def test_architectures_are_those_captured_or_asked_for(
    record: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    record("--device", "sm_80")
    imported()
    assert tomli.loads(Path("kernels.toml").read_text())["package"]["archs"] == ["sm_80"]
    imported("--arch", "sm_90+ptx", "-o", "other.toml")
    assert tomli.loads(Path("other.toml").read_text())["package"]["archs"] == ["sm_90+ptx"]
    capsys.readouterr()
    assert cli.main(["import", "capture.jsonl", "-o", "third.toml", "--arch", "sm_91"]) == 2
    assert capsys.readouterr().err.startswith("error: unknown architecture sm_91\n")


def changed(capture: Capture, **values: Any) -> None:
    """Writes a capture whose variants have other facts."""
    for variant in capture.variants.values():
        for name, value in values.items():
            setattr(variant, name, {**getattr(variant, name), **value})
    write_capture(capture, Path("capture.jsonl"))


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"args": {"x": "*fp8e4b8"}}, "x is a *fp8e4b8, which is no type of a manifest"),
        ({"args": {"x": [["i32"]]}}, "x is a tuple of tuples"),
        (
            {"args": {"x": "tensordesc<fp32[64],NVMMASharedLayout()>"}},
            "x is a tensordesc<fp32[64],NVMMASharedLayout()>, which is no type of a manifest",
        ),
        ({"args": {"x": ["none"]}}, "x is a tuple with a compile-time value in it"),
        (
            {"constexprs": {"BLOCK": {"function": "lib:relu"}}},
            "BLOCK is a function, which is no value of a manifest",
        ),
        ({"constexprs": {"BLOCK": "two words"}}, "BLOCK is 'two words', which is no value of a manifest"),
        ({"options": {"num_ctas": 32}}, "the option num_ctas = 32 is none of a manifest"),
        ({"options": {"num_warps": 3}}, "the option num_warps = 3 is none of a manifest"),
    ],
)
def test_what_no_manifest_can_have_is_left_out(
    record: Recording, capsys: pytest.CaptureFixture[str], values: dict[str, Any], reason: str
) -> None:
    changed(record(program=ADD + "add(Tensor(16), Tensor(16))\n"), **values)
    assert not imported(code=2)
    assert capsys.readouterr().err == (
        f"error: no kernel can be written\nhelp: lib.ops:add_kernel: 1 variant left out: {reason}\n"
    )


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ({"args": {"n": ["i32:16", "i32"]}}, {"n": ["i32:16", "i32"]}),
        ({"args": {"x": "*kfp16", "n": "u1"}}, {"x": "*fp16", "n": "i1"}),
        ({"args": {"x": "tensordesc<fp16[64, 64]>"}}, {"x": "tensordesc<fp16[64,64]>"}),
    ],
)
def test_types_are_those_of_manifests(
    record: Recording, given: dict[str, Any], written: dict[str, Any]
) -> None:
    changed(record(program=ADD + "add(Tensor(16), Tensor(16))\n"), **given)
    args = imported()["add"]["args"]
    assert {name: args[name] for name in written} == written


def test_a_type_that_a_kernel_takes_is_a_word(record: Recording) -> None:
    changed(record(program=ADD + "add(Tensor(16), Tensor(16))\n"), constexprs={"BLOCK": {"dtype": "float16"}})
    assert imported()["add"]["matrix"]["BLOCK"] == ["fp16"]


def test_a_parameter_with_the_name_of_an_option_has_its_value(
    record: Recording, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ops = project / "lib/ops.py"
    text = ops.read_text().replace(
        "n, BLOCK: tl.constexpr):", "n, BLOCK: tl.constexpr, num_warps: tl.constexpr):", 1
    )
    ops.write_text(text.replace("BLOCK=1024)", "BLOCK=n, num_warps=8 if n > 1000 else 2)"))
    record(program=f"{ADD}for n in (16, 2048):\n    add(Tensor(n), Tensor(n))\n")
    assert imported()["add"]["args"] == {"x, y, out": "*fp32:16", "n": "i32:16"}
    names = ["add.sm_90.BLOCK=16.n=d16.num_warps=2.w2s3", "add.sm_90.BLOCK=2048.n=d16.num_warps=8.w8s3"]
    assert listed(capsys, "add") == names


def test_a_programs_own_kernels_have_the_name_of_its_module(record: Recording) -> None:
    kernel = "import triton, triton.language as tl\n@triton.jit\ndef fill(x, BLOCK: tl.constexpr):\n    tl.store(x, BLOCK)\n"
    record(program=f"{ADD}{kernel}fill[(1,)](Tensor(16), BLOCK=16)\n")
    assert imported()["fill"]["serves"] == "use:fill" and imported("--library", "use", "--append").keys() == {
        "fill"
    }
