"""What docs/architecture.md says is needed to add something, done for real on a copy of the tree."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
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
    """A copy of the package, with a project beside it."""
    shutil.copytree(ROOT / "kbuild", tmp_path / "kbuild", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "k.py").write_text(KERNEL)
    (tmp_path / "kernels.toml").write_text(MANIFEST)
    return tmp_path


def python(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)


def kbuild(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return python(tree, "-m", "kbuild", *words)


def insert(file: Path, before: str, text: str) -> None:
    """Put lines in front of the one line that has some text."""
    lines = file.read_text().splitlines(keepends=True)
    (place,) = (number for number, line in enumerate(lines) if before in line)
    file.write_text("".join([*lines[:place], text, *lines[place:]]))


def test_a_compile_option_is_one_field(tree: Path) -> None:
    """Manifest, names of variants, command line, IR and facts have it, and values out of its range are
    refused everywhere."""
    assert "config[0].unroll_limit: the kernel has no such parameter" in kbuild(tree, "list").stderr
    field = '    unroll_limit: int = option(4, "iterations to unroll at most", limits=(1, 64), tag="u{}")\n'
    insert(tree / "kbuild/options.py", "    enable_fp_fusion: bool", field)
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
            Text(patterns=(Pattern(r"https://.+", "{} is no address", "it begins with https://"),), one_line=True),
        ),
"""
USE = """\
    lines += [f"Project-URL: Homepage, {package.homepage}"] if package.homepage else []
"""
METADATA = """\
import io, pathlib, zipfile
from kbuild.aot.artifact.wheel import make_wheel
from kbuild.aot.manifest.load import load
wheel = zipfile.ZipFile(io.BytesIO(make_wheel({}, load(pathlib.Path("kernels.toml")).package, "any")[1]))
print(wheel.read("added-1.dist-info/METADATA").decode())
"""


def test_a_key_of_the_manifest_is_a_field_a_row_and_its_use(tree: Path) -> None:
    """No loader is touched: the row is what checks, and the record, the JSON Schema and the manual have the key."""
    manifest = MANIFEST.replace("[{ unroll_limit = 8 }]", "[]")

    def told(value: str) -> str:
        (tree / "kernels.toml").write_text(manifest.replace('"added"', f'"added", homepage = {value}'))
        return kbuild(tree, "list").stderr

    assert "kernels.toml:3: package.homepage: unknown key" in told('"https://example.org"')
    insert(tree / "kbuild/aot/manifest/model.py", "    ptxas: str", FIELD)
    insert(tree / "kbuild/aot/manifest/schema.py", 'Key("summary", (Package', ROW)
    insert(tree / "kbuild/aot/artifact/wheel.py", '["Requires-Python: >=3.10"]', USE)
    assert "kernels.toml:3: package.homepage: expected a string, found the int 7" in told("7")
    assert 'kernels.toml:3: package.homepage: "example.org" is no address' in told('"example.org"')
    assert told('"https://example.org"') == "1 variants, 0 excluded\n"
    assert "Project-URL: Homepage, https://example.org" in python(tree, "-c", METADATA).stdout
    (tree / "kernels.toml").write_text(manifest)
    assert "Homepage" not in python(tree, "-c", METADATA).stdout and kbuild(tree, "list").returncode == 0
    shutil.copytree(ROOT / "docs", tree / "docs")
    assert python(tree, "docs/make_reference.py").returncode == 0
    package = json.loads((tree / "docs/schema.json").read_text())["properties"]["package"]
    assert package["properties"]["homepage"] == {
        "type": "string",
        "pattern": "^(?:https://.+)$",
        "description": "Where to read about the package.",
    }
    assert (
        "| `homepage` | a string | Where to read about the package. |"
        in (tree / "docs/manifest.md").read_text()
    )
