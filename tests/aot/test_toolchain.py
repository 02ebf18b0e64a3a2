"""Which ptxas a build takes, and what it says where the manifest asks for another one."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.aot import toolchain
from kbuild.aot.build.progress import Progress
from kbuild.aot.build.project import BuildOptions, build
from kbuild.compiler.backend.cubin import ptxas_version
from kbuild.compiler.backend.ptxas_wheels import installed
from kbuild.errors import ToolError
from tests.compiler.backend.test_ptxas_wheels import wheel

ROOT = Path(__file__).parents[2]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with both wheels of ptxas, in the place of Python's path."""
    folder = tmp_path / "site"
    wheel(folder, "12.9.86")
    wheel(folder, "13.5.37")
    monkeypatch.setattr(toolchain, "installed_ptxas", lambda: installed(ptxas_version, [str(folder)]))
    return folder


def test_the_manifest_chooses(site: Path) -> None:
    chosen = {series: toolchain.find_ptxas({}, series) for series in ("", "12.9", "13.5")}
    assert {series: tool.origin for series, tool in chosen.items()} == {
        "": "nvidia-cuda-nvcc 13.5.37",
        "12.9": "nvidia-cuda-nvcc 12.9.86",
        "13.5": "nvidia-cuda-nvcc 13.5.37",
    }
    assert chosen["13.5"].path == str(site / "nvidia/cu13/bin/ptxas")


@pytest.mark.parametrize("variable", ["KBUILD_PTXAS", "TRITON_PTXAS_PATH", "CUDA_HOME"])
def test_a_variable_that_names_another_one_is_an_error(site: Path, variable: str) -> None:
    path = site / "nvidia/cu13/bin/ptxas"
    environment = {variable: str(path.parents[1] if variable == "CUDA_HOME" else path)}
    assert (
        toolchain.find_ptxas(environment).path
        == toolchain.find_ptxas(environment, "13.5", 580).path
        == str(path)
    )
    with pytest.raises(
        ToolError, match=rf"asks for ptxas 12\.9, and {variable} is .*/cu13/bin/ptxas, 13\.5\.37"
    ) as caught:
        toolchain.find_ptxas(environment, "12.9")
    assert caught.value.help == f"unset {variable}, or change the manifest"
    with pytest.raises(
        ToolError,
        match=rf"min_driver is 525, and {variable} is .*13\.5\.37; what that makes needs a driver 580",
    ):
        toolchain.find_ptxas(environment, "", 525)


def test_a_build_by_another_ptxas_is_another_build(site: Path, project: Path) -> None:
    """The identity of a cubin has the digest of ptxas, whose version and place do not matter."""
    manifest = project / "kernels.toml"
    options = BuildOptions(
        project=project,
        environment={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        kernels=("scale",),
        compiler="tests.aot.build.fake_compiler:compile",
        source_digest="tests.aot.build.fake_compiler:source_digest",
        dry_run=True,
    )

    def identities(keys: str) -> set[str]:
        manifest.write_text(before.replace("[package]", f"[package]\n{keys}"))
        return {job.identity for job in build(options, Progress()).jobs}

    before = manifest.read_text()
    default = identities("")
    assert identities('ptxas = "13.5"') == identities("min_driver = 580") == default
    older = identities('ptxas = "12.9"')
    assert identities("min_driver = 525") == older and older.isdisjoint(default)
    with pytest.raises(ToolError, match=r"ptxas 12\.8 is not installed; there is 13\.5\.37, 12\.9\.86"):
        identities('ptxas = "12.8"')
    elsewhere = replace(
        options, environment={**options.environment, "KBUILD_PTXAS": str(site / "nvidia/cuda_nvcc/bin/ptxas")}
    )
    manifest.write_text(before)
    assert {job.identity for job in build(elsewhere, Progress()).jobs} == older


def program(path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_c_compiler_is_that_of_CC_with_its_words_or_the_first_on_the_path(tmp_path: Path) -> None:
    gcc, clang = program(tmp_path / "one/gcc"), program(tmp_path / "two/clang")
    path = f"{clang.parent}{os.pathsep}{gcc.parent}"
    assert toolchain.find_cc({"PATH": path}) == toolchain.Tool("cc", str(gcc), "PATH"), (
        "gcc goes before clang"
    )
    named = toolchain.find_cc({"PATH": path, "CC": "clang -m64 '-I a b'"})
    assert named == toolchain.Tool("cc", str(clang), "CC", ("-m64", "-I a b"))
    with pytest.raises(ToolError, match="CC is icc, which is not a program"):
        toolchain.find_cc({"PATH": path, "CC": "icc -O2"})
    with pytest.raises(ToolError, match="no C compiler was found"):
        toolchain.find_cc({"PATH": str(tmp_path)})


def test_ninja_is_that_of_its_package_or_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert toolchain.find_ninja({}).origin == "ninja package"
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda name: None)
    ninja = program(tmp_path / "bin/ninja")
    assert toolchain.find_ninja({"PATH": str(ninja.parent)}) == toolchain.Tool("ninja", str(ninja), "PATH")
    with pytest.raises(ToolError, match="ninja was not found"):
        toolchain.find_ninja({"PATH": str(tmp_path)})
