"""The bill of materials in a wheel's .dist-info, in CycloneDX 1.6."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbuild import __version__
from tests.aot.artifact.partial_wheels import options_of, wheel_of
from tests.aot.conftest import KERNEL

FILE = "demo_kernels-0.1.0.dist-info/sboms/kbuild.cdx.json"


def bill_of(wheel: Path) -> dict[str, Any]:
    with zipfile.ZipFile(wheel) as archive:
        return json.loads(
            archive.read(next(name for name in archive.namelist() if name.endswith(".cdx.json")))
        )


def refs(value: object) -> Iterator[str]:
    """Every `bom-ref` of a bill."""
    if isinstance(value, dict):
        yield from [value["bom-ref"]] if "bom-ref" in value else []
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from refs(item)


@pytest.fixture
def bill(project: Path) -> dict[str, Any]:
    (project / "kernels/near.py").write_text("SCALE = 2\n")
    (project / "kernels/unused.py").write_text("")
    (project / "kernels/scale.py").write_text("from .near import SCALE\n" + KERNEL)
    manifest = (project / "kernels.toml").read_text()
    (project / "kernels.toml").write_text(manifest.replace("[package]", '[package]\nlicense = "MIT"', 1))
    return bill_of(wheel_of(options_of(project)))


def test_it_has_the_essentials_of_the_format(bill: dict[str, Any]) -> None:
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    found = list(refs(bill))
    assert len(found) == len(set(found)) > 5
    kinds = {"application", "framework", "library", "file"}
    parts = [*bill["components"], *bill["metadata"]["tools"]["components"], bill["metadata"]["component"]]
    assert all(part["type"] in kinds and part["name"] for part in parts)
    depending = [entry["ref"] for entry in bill["dependencies"]]
    assert len(depending) == len(set(depending)) and set(depending) <= set(found)
    assert bill["dependencies"][0] == {"ref": "wheel", "dependsOn": depending[1:]}


def test_it_names_the_wheel_its_sources_and_the_tools(bill: dict[str, Any], project: Path) -> None:
    wheel = bill["metadata"]["component"]
    assert (wheel["name"], wheel["version"], wheel["purl"]) == (
        "demo_kernels",
        "0.1.0",
        "pkg:pypi/demo-kernels@0.1.0",
    )
    assert wheel["licenses"] == [{"expression": "MIT"}]
    tools = {tool["name"]: tool["version"] for tool in bill["metadata"]["tools"]["components"]}
    assert tools["kbuild"] == __version__ and tools["ptxas"] == "13.5"
    assert {"llvmlite", "LLVM"} < set(tools) and len(tools) == 5
    assert all(re.fullmatch(r"\d+(\.\w+)+", version) for version in tools.values())
    files = {part["name"]: part["hashes"] for part in bill["components"] if part["type"] == "file"}
    assert files == {
        name: [{"alg": "SHA-256", "content": hashlib.sha256((project / name).read_bytes()).hexdigest()}]
        for name in ("kernels/near.py", "kernels/scale.py")
    }
    (launcher,) = [part for part in bill["components"] if part["type"] != "file"]
    assert launcher["licenses"] == [{"license": {"id": "Apache-2.0"}}]


def test_it_follows_the_sources_to_the_byte(project: Path) -> None:
    options = options_of(project)
    first = bill_of(wheel_of(options))
    (project / "kernels/scale.py").write_text(f"{KERNEL}# A comment compiles nothing again.\n")
    assert bill_of(wheel_of(options))["components"] != first["components"]


def test_it_has_neither_paths_nor_times_of_its_own(project: Path, tmp_path: Path) -> None:
    options = options_of(project)
    text = json.dumps(bill_of(wheel_of(options)))
    assert str(tmp_path) not in text and "serialNumber" not in text and "timestamp" not in text
    dated = bill_of(wheel_of(replace(options, epoch=1_700_000_000)))
    assert dated["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"


def test_a_wheel_of_some_architectures_has_its_version_in_it(project: Path) -> None:
    wheel = bill_of(wheel_of(options_of(project), "sm_90"))["metadata"]["component"]
    assert (wheel["version"], wheel["purl"]) == ("0.1.0+sm90", "pkg:pypi/demo-kernels@0.1.0%2Bsm90")


@pytest.mark.parametrize("cc, name", [("gcc", "gcc"), ("clang", "clang")])
def test_it_names_the_c_compiler(project: Path, cc: str, name: str) -> None:
    if shutil.which(cc) is None:
        pytest.skip(f"no {cc} here")
    options = options_of(project)
    bill = bill_of(wheel_of(replace(options, environment={**options.environment, "CC": cc})))
    assert name in {tool["name"] for tool in bill["metadata"]["tools"]["components"]}
