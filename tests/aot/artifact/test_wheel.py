"""A whole build with its wheel: reproducible, well formed, and with exactly the compiled cubins."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.aot.artifact.distribution import read_distribution
from kbuild.aot.artifact.platforms import needed_libraries, platform_tag
from kbuild.aot.artifact.wheel import make_wheel
from kbuild.aot.build.assemble import driver_of
from kbuild.aot.build.progress import Progress
from kbuild.aot.build.project import BuildOptions, build
from kbuild.aot.build.results import BuildResult
from kbuild.aot.manifest.model import Package
from kbuild.errors import ToolError
from tests.aot.artifact.archives import entries_of
from tests.launcher.compile_once import REAL

ROOT = Path(__file__).parents[3]
PACKAGE = Package("demo_kernels", "1.0", ("sm_90",), summary="Demo", license="MIT")
DISTRIBUTION = read_distribution(Path(__file__).parent, PACKAGE)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[BuildOptions, BuildResult]:
    """A build of the small project by the fake compiler."""
    from tests.aot.conftest import KERNEL, MANIFEST

    project = tmp_path_factory.mktemp("project")
    (project / "kernels").mkdir()
    (project / "kernels/scale.py").write_text(KERNEL)
    (project / "kernels.toml").write_text(MANIFEST.replace('"sm_80"', '"sm_80+ptx"', 1))
    (project / "cache").mkdir(mode=0o700)
    options = BuildOptions(
        project=project,
        environment={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        cache=project / "cache",
        compiler="tests.aot.build.fake_compiler:compile",
        source_digest="tests.aot.build.fake_compiler:source_digest",
    )
    return options, build(options, Progress())


def test_the_wheel_holds_what_was_compiled(built: tuple[BuildOptions, BuildResult]) -> None:
    options, result = built
    assert (
        not result.failures and result.wheel is not None and result.wheel.parent == options.project / "dist"
    )
    with zipfile.ZipFile(result.wheel) as archive:
        assert archive.testzip() is None
        entries = entries_of(archive.read("demo_kernels/cubins/sm_80.kbz"))
        assert [entry.kind for entry in entries] == ["cubin", "ptx"] * 6
        for entry in entries:
            suffix = f"{entry.key.removeprefix('scale.').removesuffix('.ptx')}.{entry.kind}"
            assert entry.data == (options.project / "build/sm_80/scale" / suffix).read_bytes()
        assert {entry.kind for entry in entries_of(archive.read("demo_kernels/cubins/sm_90.kbz"))} == {
            "cubin"
        }
        ours = [name for name in archive.namelist() if name.startswith("demo_kernels/")]
        assert not [name for name in ours if name.endswith((".c", ".pyc", ".json"))]


def test_the_wheel_is_well_formed(built: tuple[BuildOptions, BuildResult]) -> None:
    wheel = built[1].wheel
    assert wheel is not None
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert (
            len(set(names)) == len(names)
            and names[:-1] == sorted(names[:-1])
            and names[-1].endswith("/RECORD")
        )
        rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(archive.read(names[-1]).decode()))}
        assert set(rows) == set(names)
        for name in names[:-1]:
            data = archive.read(name)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert rows[name] == [f"sha256={digest}", str(len(data))]
        text = archive.read("demo_kernels-0.1.0.dist-info/WHEEL").decode()
        assert f"Tag: {'-'.join(wheel.stem.split('-')[2:])}\n" in text and "cp310-abi3-" in text


def test_the_wheel_says_which_driver_it_needs(built: tuple[BuildOptions, BuildResult]) -> None:
    """The fake compiler's cubins are of ptxas 13.5."""
    wheel = built[1].wheel
    assert wheel is not None
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read("demo_kernels-0.1.0.dist-info/METADATA").decode()
        package = archive.read("demo_kernels/dispatch.py").decode()
    head, _, description = metadata.partition("\n\n")
    assert "Requires-External: nvidia-driver (>=580)" in head and "\nMIN_DRIVER = 580\n" in package
    assert description == (
        "Needs an NVIDIA GPU (sm_80, and newer GPUs or sm_90) with a driver 580 or newer (CUDA 13.0), and neither CUDA's toolkit "
        "nor a compiler.\n"
    )


def test_a_driver_that_the_code_does_not_run_on_cannot_be_requested(
    tmp_path: Path, built: tuple[BuildOptions, BuildResult]
) -> None:
    """A cubin may be of another ptxas than the chosen one, from an older cache."""
    package = replace(PACKAGE, min_driver=525)
    with pytest.raises(
        ToolError, match=r"min_driver is 525, but ptxas 13\.5\.37 made code for drivers from 580 on"
    ):
        driver_of(package, ["13.5.37"])
    assert driver_of(replace(package, min_driver=590), ["13.5.37"]) == 590
    assert driver_of(package, ["12.9.86"]) == 525


def test_pip_installs_it_and_it_imports_without_a_gpu(
    built: tuple[BuildOptions, BuildResult], tmp_path: Path
) -> None:
    wheel = built[1].wheel
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-index",
        "--no-deps",
        "-q",
        "--target",
        str(tmp_path),
        str(wheel),
    ]
    if (
        subprocess.run(
            [sys.executable, "-m", "pip", "--version"], capture_output=True, check=False
        ).returncode
        != 0
    ):
        pytest.skip("no pip here")
    subprocess.run(pip, check=True, capture_output=True)
    code = "import demo_kernels; print(demo_kernels.__version__, demo_kernels.scale.__name__)"
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {code}"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "0.1.0 scale\n", done.stderr


def test_nothing_is_made_again_without_need(built: tuple[BuildOptions, BuildResult]) -> None:
    options, result = built
    assert result.wheel is not None
    before = result.wheel.stat().st_mtime_ns
    assert build(options, Progress()).compiled == () and result.wheel.stat().st_mtime_ns == before
    data = result.wheel.read_bytes()
    result.wheel.unlink()
    shutil.rmtree(options.project / "build/wheel")
    again = build(options, Progress())
    assert again.compiled == () and again.wheel == result.wheel and result.wheel.read_bytes() == data


def test_two_directories_and_days_give_the_same_bytes(
    built: tuple[BuildOptions, BuildResult], tmp_path: Path
) -> None:
    options, result = built
    assert result.wheel is not None
    other = tmp_path / "another place"
    (other / "kernels").mkdir(parents=True)
    for name in ("kernels/scale.py", "kernels.toml"):
        shutil.copy(options.project / name, other / name)
    mask = os.umask(0o077)
    try:
        environment = {
            **options.environment,
            "PYTHONHASHSEED": "7",
            "TZ": "Asia/Tokyo",
            "LC_ALL": "C",
            REAL: "1",
        }
        again = build(
            replace(options, project=other, cache=None, jobs=1, environment=environment), Progress()
        )
    finally:
        os.umask(mask)
    assert again.wheel is not None and again.wheel.read_bytes() == result.wheel.read_bytes()


def test_source_date_epoch_is_the_time_in_the_archive() -> None:
    for epoch, year in ((None, 1980), (0, 1980), (1_700_000_000, 2023)):
        _, data = make_wheel({"demo_kernels/__init__.py": b""}, PACKAGE, DISTRIBUTION, "linux_x86_64", epoch)
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            assert {info.date_time[0] for info in archive.infolist()} == {year}


def test_metadata_and_name() -> None:
    name, data = make_wheel({"demo_kernels/__init__.py": b""}, PACKAGE, DISTRIBUTION, "manylinux_2_17_x86_64")
    assert name == "demo_kernels-1.0-cp310-abi3-manylinux_2_17_x86_64.whl"
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        text = archive.read("demo_kernels-1.0.dist-info/METADATA").decode()
    assert text.splitlines() == [
        "Metadata-Version: 2.4",
        "Name: demo_kernels",
        "Version: 1.0",
        "Summary: Demo",
        "License-Expression: MIT",
        "Requires-Python: >=3.10",
    ]


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "a\\x"])
def test_names_that_lead_out_are_refused(name: str) -> None:
    with pytest.raises(ValueError):
        make_wheel({name: b""}, PACKAGE, DISTRIBUTION, "linux_x86_64")


def test_platform_tags(built: tuple[BuildOptions, BuildResult]) -> None:
    folder = built[0].project / "build/package/demo_kernels"
    launcher, library = ((folder / name).read_bytes() for name in ("_launcher.abi3.so", "libdemo_kernels.so"))
    assert needed_libraries(launcher) <= {b"libc.so.6", b"libdl.so.2", b"libpthread.so.0"}
    tag = platform_tag([launcher, library])
    assert tag.startswith(("manylinux_2_17_", "linux_")), (
        "it runs on any glibc from 2.17 on, whatever it was built with"
    )
    # Whatever needs a glibc that is not here yet, or another library, is for this machine alone.
    assert platform_tag([launcher, launcher + b"GLIBC_2.999"]).startswith("linux_")
    assert platform_tag([launcher.replace(b"libc.so.6\0", b"libX.so.6\0")]).startswith("linux_")
    with pytest.raises(ValueError):
        needed_libraries(b"#!/bin/sh")
