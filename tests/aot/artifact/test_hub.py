"""Kernels as a repository of the Hugging Face Hub: its layout, and that loaders of two ages import it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbuild.aot.artifact.hub import hub_files
from kbuild.aot.artifact.platforms import this_machine
from kbuild.cli import main
from kbuild.errors import UsageError
from tests.aot.artifact.partial_wheels import options_of, wheel_of
from tests.aot.shards.test_merge import change, edited

LOADER = """\
import importlib.util, sys
spec = importlib.util.spec_from_file_location("unique_name", sys.argv[1])
module = importlib.util.module_from_spec(spec)
sys.modules["unique_name"] = module
spec.loader.exec_module(module)
print(module.scale.__name__, sorted(module.__all__)[-1])
try:
    module.scale(1, 2, 3, dtype="fp16", NEGATE=False)
except module.LaunchError as error:
    print(type(error).__name__)
"""
"""How `kernels` imports a kernel: from a file, under a name of its own."""


def exported(project: Path, *more: str) -> list[Path]:
    """The variants that the command writes for a wheel of the fake compiler."""
    wheel = wheel_of(options_of(project))
    assert main(["export-hub", str(project / "hub"), str(wheel), *more]) == 0
    return sorted((project / "hub/build").iterdir())


def metadata_of(variant: Path) -> dict[str, Any]:
    return json.loads((variant / "metadata.json").read_bytes())


def test_a_variant_has_the_files_of_the_package_with_their_digests(project: Path) -> None:
    change(project / "kernels.toml", '"sm_80", "sm_90"', '"sm_90+ptx", "sm_80"')
    change(project / "kernels.toml", "0.1.0", "3.1")
    change(project / "kernels.toml", "[package]", '[package]\nlicense = "MIT"')
    (variant,) = exported(project)
    assert variant.name == f"torch-stable-abi20-cu130-{this_machine()}-linux"
    fields = metadata_of(variant)
    assert (fields["name"], fields["version"], fields["license"]) == ("demo-kernels", 3, "MIT")
    assert re.fullmatch(r"_demo_kernels_cuda_[0-9a-f]{10}", fields["id"]) and fields["id"].isidentifier()
    assert fields["backend"] == {"type": "cuda", "archs": ["8.0", "9.0+PTX"]}
    assert fields["python-depends"] == [] and fields["digest"]["algorithm"] == "sha256"
    files = {path.relative_to(variant).as_posix(): path for path in variant.rglob("*") if path.is_file()}
    del files["metadata.json"]
    digests = {name: hashlib.sha256(path.read_bytes()).digest() for name, path in files.items()}
    assert fields["digest"]["files"] == {
        name: base64.b64encode(digest).decode() for name, digest in digests.items()
    }
    with zipfile.ZipFile(wheel_of(options_of(project))) as wheel:
        own = {name for name in wheel.namelist() if name.startswith("demo_kernels/")}
        assert {f"demo_kernels/{name}" for name in files} == own | {"demo_kernels/demo_kernels/__init__.py"}
        assert all(wheel.read(name) == (variant / name.partition("/")[2]).read_bytes() for name in own)


@pytest.mark.parametrize("file", ["__init__.py", "demo_kernels/__init__.py"])
def test_the_tree_imports(project: Path, file: str) -> None:
    """At the variant's own folder, and where older loaders look; launching needs a driver, which is not here."""
    (variant,) = exported(project)
    command = [sys.executable, "-I", "-B", "-c", LOADER, str(variant / file)]
    done = subprocess.run(command, capture_output=True, text=True, env={"KBUILD_LIBCUDA": "/none"})
    assert done.stdout == "scale scale\nDriverError\n", done.stderr


def test_code_for_older_drivers_is_for_torch_of_cuda_12_too(project: Path) -> None:
    wheel = wheel_of(options_of(project))

    def older(files: dict[str, bytes]) -> None:
        name = next(name for name in files if name.endswith("METADATA"))
        files[name] = files[name].replace(b">=580", b">=525")

    variants = {path.split("/")[1].split("-")[3] for path in hub_files(edited(wheel, older))}
    assert variants == {"cu120", "cu130"}


def test_an_export_replaces_the_one_before(project: Path) -> None:
    (variant,) = exported(project)
    before = metadata_of(variant)
    (variant / "left_over.py").write_text("")
    assert metadata_of(exported(project)[0]) == before and not (variant / "left_over.py").exists()
    change(project / "kernels.toml", "BLOCK = 2048", "BLOCK = 4096")
    assert metadata_of(exported(project)[0])["id"] != before["id"]


def test_the_command_builds_what_it_exports(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from kbuild.aot.build import project as builder

    monkeypatch.setattr(builder, "COMPILER", "tests.aot.build.fake_compiler:compile")
    monkeypatch.setattr(builder, "SOURCE_DIGEST", "tests.aot.build.fake_compiler:source_digest")
    command = ["export-hub", "-C", str(project), "--no-cache", str(project / "hub")]
    assert main([*command, "--dry-run"]) == 0 and not (project / "hub").exists()
    assert main([*command, "--json"]) == 0
    (variant,) = json.loads(capsys.readouterr().out)["variants"]
    assert Path(variant, "_launcher.abi3.so").is_file()


def test_what_cannot_be_exported_is_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = options_of(project)
    wheel = wheel_of(options)
    assert main(["export-hub", str(project / "hub"), str(wheel), str(wheel)]) == 2
    assert f"are both for torch-stable-abi20-cu130-{this_machine()}-linux" in capsys.readouterr().err
    (project / "text.whl").write_text("")

    def without_launcher(files: dict[str, bytes]) -> None:
        del files["demo_kernels/_launcher.abi3.so"]

    with pytest.raises(UsageError, match=r"text\.whl is not a wheel"):
        hub_files(project / "text.whl")
    with pytest.raises(UsageError, match="no file "):
        hub_files(project / "none.whl")
    with pytest.raises(UsageError, match="is not a wheel of kbuild: it has no launcher"):
        hub_files(edited(wheel, without_launcher))
    change(project / "kernels.toml", "[package]", '[package]\ndistribution = "3d"')
    with pytest.raises(UsageError, match="3d cannot be the name of a kernel on the Hub"):
        hub_files(wheel_of(replace(options)))
