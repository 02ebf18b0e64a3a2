"""Follows the instructions of docs/architecture.md for adding something, on a copy of the tree."""

from __future__ import annotations

import filecmp
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
COPIED = ("kbuild", "tests", "docs")
KERNEL = "import triton\n\n@triton.jit\ndef nothing(x, n):\n    pass\n"
MANIFEST = """
schema = 1
package = { name = "added", version = "1", archs = ["sm_90"] }

[[kernel]]
name = "nothing"
source = "k.py"
function = "nothing"
grid = ["1"]
args = { x = "*fp32", n = "i32" }
config = [{ unroll_limit = 8 }]
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the package, its tests and its docs, with a project beside them."""
    for folder in COPIED:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "k.py").write_text(KERNEL)
    (tmp_path / "kernels.toml").write_text(MANIFEST)
    return tmp_path


def changed(tree: Path) -> list[str]:
    """The files that are new in a copy of the tree or differ there."""
    files = {path.relative_to(tree) for folder in COPIED for path in (tree / folder).rglob("*")}
    return sorted(
        path.as_posix()
        for path in files
        if (tree / path).is_file()
        and path.suffix != ".pyc"
        and not ((ROOT / path).is_file() and filecmp.cmp(ROOT / path, tree / path, shallow=False))
    )


def python(tree: Path, *words: str, path: str = "") -> subprocess.CompletedProcess[str]:
    """What Python makes of these words in a tree, whose packages it finds, or those of a folder in it."""
    environment = {**os.environ, "PYTHONPATH": str(tree / path), "PYTEST_ADDOPTS": ""}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)


def kbuild(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return python(tree, "-m", "kbuild", *words)


def passed(tree: Path, *words: str) -> None:
    """Run some of the copy's own tests."""
    done = python(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words)
    assert done.returncode == 0, done.stdout[-3000:]


def documented(tree: Path, page: str) -> list[str]:
    """The lines of a page that are new once the docs are made of the copy's code."""
    done = python(tree, "docs/make_reference.py")
    assert done.returncode == 0, done.stderr
    old = (ROOT / "docs" / page).read_text().splitlines()
    return [line for line in (tree / "docs" / page).read_text().splitlines() if line not in old]


def insert(file: Path, before: str, text: str) -> None:
    """Put lines in front of those that begin with some text, which occurs once."""
    old = file.read_text()
    assert old.count(before) == 1, f"{file}: {before!r} occurs {old.count(before)} times"
    place = old.rindex("\n", 0, old.index(before)) + 1
    file.write_text(old[:place] + text + old[place:])


def test_a_compile_option_is_one_field(tree: Path) -> None:
    """Manifest, names of variants, command line, IR and facts have it, and values out of its range are
    refused everywhere."""
    assert "config[0].unroll_limit: the kernel has no such parameter" in kbuild(tree, "list").stderr
    field = '    unroll_limit: int = option(4, "iterations to unroll at most", limits=(1, 64), tag="u{}")\n'
    insert(tree / "kbuild/options.py", "    enable_fp_fusion: bool", field)
    assert changed(tree) == ["kbuild/options.py"]
    assert kbuild(tree, "list").stdout.split()[0] == "nothing.sm_90.x=any.w4s3u8"
    command = ("compile", "k.py:nothing", "-s", "x=*fp32,n=i32", "--emit", "ttir")
    assert "unroll_limit = 8" in kbuild(tree, *command, "--unroll-limit", "8").stdout
    assert "unroll_limit" not in kbuild(tree, *command).stdout
    assert (
        "argument --unroll-limit: expected 1 to 64, found '65'"
        in kbuild(tree, *command, "--unroll-limit", "65").stderr
    )
    (tree / "kernels.toml").write_text(MANIFEST.replace("= 8", "= 65"))
    assert "config[0].unroll_limit: expected 1 to 64, found the int 65" in kbuild(tree, "list").stderr


FIELD = '''\
    homepage: str = ""
    """Where to read about the package."""
'''
ROW = """\
        Key(
            "homepage",
            (Package, "homepage"),
            Text(patterns=(Pattern(r"https://.+", "{} is not an address", "it begins with https://"),), one_line=True),
        ),
"""
USE = """\
    project |= {"urls": {"Homepage": package.homepage}} if package.homepage else {}
"""
METADATA = """\
from pathlib import Path
from kbuild.aot.artifact.distribution import read_distribution
from kbuild.aot.manifest.load import load
print(read_distribution(Path(), load(Path("kernels.toml")).package).headers)
"""


def test_a_key_of_the_manifest_is_a_field_a_row_and_its_use(tree: Path) -> None:
    """No loader is touched: the row is what checks, and the record, the JSON Schema and the manual have the key."""
    manifest = MANIFEST.replace("[{ unroll_limit = 8 }]", "[]")

    def listed(value: str) -> str:
        (tree / "kernels.toml").write_text(manifest.replace('"added"', f'"added", homepage = {value}'))
        return kbuild(tree, "list").stderr

    assert "kernels.toml:3: package.homepage: unknown key" in listed('"https://example.org"')
    insert(tree / "kbuild/aot/manifest/model.py", "    ptxas: str", FIELD)
    insert(tree / "kbuild/aot/manifest/schema.py", 'Key("summary", (Package', ROW)
    insert(tree / "kbuild/aot/artifact/distribution.py", "    dynamic = project.pop", USE)
    assert "kernels.toml:3: package.homepage: expected a string, found the int 7" in listed("7")
    assert 'kernels.toml:3: package.homepage: "example.org" is not an address' in listed('"example.org"')
    assert listed('"https://example.org"') == "1 variants, 0 excluded\n"
    assert "Project-URL: Homepage, https://example.org" in python(tree, "-c", METADATA).stdout
    (tree / "kernels.toml").write_text(manifest)
    assert "Homepage" not in python(tree, "-c", METADATA).stdout and kbuild(tree, "list").returncode == 0
    assert changed(tree) == [
        "kbuild/aot/artifact/distribution.py",
        "kbuild/aot/manifest/model.py",
        "kbuild/aot/manifest/schema.py",
    ]
    assert "| `homepage` | a string | Where to read about the package. |" in documented(tree, "manifest.md")
    package = json.loads((tree / "docs/schema.json").read_text())["properties"]["package"]
    assert package["properties"]["homepage"] == {
        "type": "string",
        "pattern": "^(?:https://.+)$",
        "description": "Where to read about the package.",
    }


CBRT_ROW = """\
class Cbrt(Unary, name="math.cbrt", numpy="cbrt"): ...


"""
CBRT_BUILTIN = '''\
@builtin(method=True)
def cbrt(ctx: Context, x):
    """The cube root."""
    return unary(ctx, ops.Cbrt, x, "tl.cbrt")


'''
CBRT_FORMULA = '''\
@function(rows.Cbrt, f32=48, f64=400)
def cbrt(m: Real, x: str) -> str:
    """Cube root: exp2(log2|x| / 3)."""
    return m.with_sign(exp2(m, m.mul(log2(m, m.absolute(x)), 1 / 3)), x)


'''
ROOTS = """\
import numpy as np
import kbuild
import kbuild.language as tl
from kbuild.emulator import run

@kbuild.jit
def roots(x, out):
    places = tl.arange(0, 128)
    value = tl.load(x + places)
    tl.store(out + places, tl.cbrt(value) + tl.math.cbrt(value) + value.cbrt())

x = np.linspace(-50, 50, 128).astype(np.float32)
made = kbuild.compile(roots, signature={"x": "*fp32", "out": "*fp32"}, stop="ptx")
report = run(made.asm["ptx"], made.metadata.name, (1,), 4, made.metadata.shared, [x, 0 * x]).check()
interpreted = 0 * x
roots.interpret[1,](x, interpreted)
for found in (report.outputs[1], interpreted):
    np.testing.assert_allclose(found, 3 * np.cbrt(x), rtol=1e-5)
"""


def test_an_elementwise_operation_is_a_class_a_function_and_a_formula(tree: Path) -> None:
    """The interpreter has it from numpy by the name in the class; its tests hold the formula to its errors."""
    insert(tree / "kbuild/compiler/ops/elementwise.py", "class Sin(", CBRT_ROW)
    insert(tree / "kbuild/compiler/semantic/math.py", "@builtin(method=True)\ndef erf(", CBRT_BUILTIN)
    insert(tree / "kbuild/compiler/lower/math/functions.py", "# Roots and powers", CBRT_FORMULA)
    assert changed(tree) == [
        "kbuild/compiler/lower/math/functions.py",
        "kbuild/compiler/ops/elementwise.py",
        "kbuild/compiler/semantic/math.py",
    ]
    (tree / "roots.py").write_text(ROOTS)
    done = python(tree, "roots.py")
    assert done.returncode == 0, done.stderr
    math_tests = tree / "tests/compiler/lower/test_math.py"
    insert(math_tests, "    rows.Sin: np.sin,", "    rows.Cbrt: np.cbrt,\n")
    passed(tree, str(math_tests), "-k", "cbrt or every_formula")
    passed(tree, "tests/test_house.py", "-k", "operation")
    assert "| `math.cbrt` | 48 | 400 | Cube root: exp2(log2\\|x\\| / 3). |" in documented(tree, "numerics.md")
    for page, begin in (("operations.md", "| `math.cbrt` |"), ("language.md", "| `cbrt(x)`")):
        assert any(line.startswith(begin) for line in documented(tree, page)), documented(tree, page)


PASS = """\
\"\"\"Adds a number to itself in place of doubling it.

    Before:  %0: tensor<64xf32> = arith.mulf %a, %two
    After:   %0: tensor<64xf32> = arith.addf %a, %a
\"\"\"

from __future__ import annotations

from kbuild.compiler.ir.core import Module
from kbuild.compiler.ir.passes import tensor_pass
from kbuild.compiler.ir.rewrite import Rewrites
from kbuild.compiler.ops.elementwise import AddF, MulF
from kbuild.targets import Target
from kbuild.compiler.transforms.common.canonicalize.fold import is_constant

doubling = Rewrites()


@tensor_pass
def double_by_adding(module: Module, target: Target) -> None:
    for function in module.functions.values():
        doubling.apply(function)


@doubling.on(MulF)
def double(op: MulF) -> AddF | None:
    \"\"\"a * 2 = a + a\"\"\"
    return AddF(op.lhs, op.lhs) if is_constant(op.rhs, 2) else None
"""
PASS_CASES = """\
// case: doubled [double_by_adding, dce]
tt.func @f(%p: !tt.ptr<f32>, %x: f32) {
  %two: f32 = arith.constant {value = 2.0}
  %0: f32 = arith.mulf %x, %two
  tt.store %p, %0
  tt.return
}
// ----
tt.func @f(%p: !tt.ptr<f32>, %x: f32) {
  %0: f32 = arith.addf %x, %x
  tt.store %p, %0
  tt.return
}
"""
DOUBLED = """\
import triton, triton.language as tl

@triton.jit
def doubled(x):
    tl.store(x, tl.load(x) * 2)
"""


def test_a_pass_is_a_file_and_its_place_in_a_pipeline(tree: Path) -> None:
    """Both architectures have it, `kbuild opt` runs it alone, and a file of text cases tests it."""
    (tree / "doubled.py").write_text(DOUBLED)
    command = ("compile", "doubled.py:doubled", "-s", "x=*fp32", "--emit", "ttir", "--arch")
    assert all("arith.mulf" in kbuild(tree, *command, arch).stdout for arch in ("sm_80", "sm_90"))
    (tree / "kbuild/compiler/transforms/tensor/double_by_adding.py").write_text(PASS)
    insert(tree / "kbuild/targets/pipelines.py", '    "reorder_broadcast",', '    "double_by_adding",\n')
    assert changed(tree) == [
        "kbuild/compiler/transforms/tensor/double_by_adding.py",
        "kbuild/targets/pipelines.py",
    ]
    for arch in ("sm_80", "sm_90"):
        text = kbuild(tree, *command, arch).stdout
        assert "arith.addf" in text and "arith.mulf" not in text
    (tree / "before.ttir").write_text(PASS_CASES.partition("// ----")[0])
    assert "arith.addf %x, %x" in kbuild(tree, "opt", "before.ttir", "-p", "double_by_adding").stdout
    cases = tree / "tests/compiler/transforms/tensor/double_by_adding.test"
    cases.write_text(PASS_CASES)
    passed(tree, str(cases))
    passed(tree, "tests/test_house.py", "-k", "pass or imports")
    assert any("`double_by_adding`" in line for line in documented(tree, "operations.md"))


INSTRUCTION = """\
    InstructionSpec(
        "szext.wrap{u32|s32}",
        "t = t u32",
        "the lowest bits alone, as a number",
        lambda form: lambda a, count: np.where(count % 32, a << (move := (-count % 32).astype(a.dtype)) >> move, 0),
        unasked="none was at hand",
    ),
"""
GOLDEN = "szext.wrap.s32 | 0xFF8 36 | -8\n"


def test_an_instruction_of_the_emulator_is_a_row_and_a_golden_line(tree: Path) -> None:
    """Parser, decoder, engine and the reference page know it by the row."""
    row, golden = tree / "kbuild/emulator/isa/bits.py", tree / "tests/emulator/isa/golden_lanes.txt"
    insert(golden, "tanh.approx.f32 |", GOLDEN)
    tests = ("tests/emulator/isa/test_golden.py", "-k", "golden_ones or every_row or no_two_rows")
    assert "unknown opcode: szext.wrap.s32" in python(tree, "-m", "pytest", *tests).stdout
    insert(row, '    InstructionSpec("brev{b32|b64}"', INSTRUCTION)
    assert changed(tree) == ["kbuild/emulator/isa/bits.py", "tests/emulator/isa/golden_lanes.txt"]
    passed(tree, *tests)
    passed(tree, "tests/emulator/isa/test_device_vectors.py", "-k", "every_lane_wise_row")
    assert any(line.startswith("| `szext.wrap{u32\\|s32}` |") for line in documented(tree, "opcodes.md"))


ARCHITECTURE = '''
"""Ampere of robots: Jetson AGX Orin."""

from kbuild.targets.mma_sync import MMA_SYNC_SM80
from kbuild.targets.sm_80 import FEATURES
from kbuild.targets.target import Limits, Target

TARGET = Target(
    capability=87,
    ptx_feature="ptx75",
    limits=Limits(shared_bytes=166912, max_warps=48),
    multiprocessors=16,
    atoms=MMA_SYNC_SM80,
    features=FEATURES,
)
'''


def test_an_architecture_is_a_file(tree: Path) -> None:
    """Manifests may name it, kernels compile for it, packages ship its code, and its row of docs is made."""
    shutil.copytree(ROOT / "templates", tree / "templates")
    manifest = MANIFEST.replace('["sm_90"]', '["sm_80", "sm_87+ptx", "sm_90"]').replace(
        "unroll_limit", "num_warps"
    )
    (tree / "kernels.toml").write_text(manifest)
    assert 'unknown architecture "sm_87+ptx"' in kbuild(tree, "list").stderr
    (tree / "kbuild/targets/sm_87.py").write_text(ARCHITECTURE.lstrip())
    assert changed(tree) == ["kbuild/targets/sm_87.py"]

    listed = kbuild(tree, "list").stdout.splitlines()
    assert [line.split(".")[1] for line in listed] == ["sm_80", "sm_87", "sm_90"]
    command = ("compile", "k.py:nothing", "-s", "x=*fp32,n=i32", "--arch", "sm_87", "--emit", "ptx,cubin")
    compiled = kbuild(tree, *command)
    assert ".target sm_87" in compiled.stdout, compiled.stderr
    assert (tree / "nothing.sm_87.cubin").stat().st_size > 0

    built = kbuild(tree, "build", "--no-cache")
    assert built.returncode == 0, built.stderr
    (wheel,) = (tree / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tree / "site")
    assert {file.stem for file in (tree / "site/added/cubins").iterdir()} == {"sm_80", "sm_87", "sm_90"}
    script = "import added; added.explain('nothing', 1, 1, arch='sm_87')"
    shown = python(tree, "-c", script, path="site").stdout
    assert re.search(r"^ *sm_87 .*: taken$", shown, re.MULTILINE), shown
    assert re.search(r"^ *sm_87\+ptx .*: matches", shown, re.MULTILINE), shown

    passed(tree, "tests/targets/test_records.py", "tests/targets/test_stand_in.py")
    assert documented(tree, "manifest.md") == ["| `sm_87` | Ampere of robots: Jetson AGX Orin | 8.7 to 8.9 |"]
