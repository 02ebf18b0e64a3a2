"""Which ptxas is taken of those that are installed, and which drivers run what it makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.compiler.backend.cubin import ptxas_version
from kbuild.compiler.backend.ptxas_wheels import Installed, choose, cuda_of, driver_of, installed, parsed
from kbuild.errors import ToolError

PLACES = {"12": "cuda_nvcc", "13": "cu13"}
"""Where the wheels of each major version of CUDA put ptxas."""


def wheel(site: Path, version: str, recorded: bool = True) -> Path:
    """A wheel with ptxas, as pip installs it; its program says its version, as ptxas does."""
    major = version.partition(".")[0]
    path = site / "nvidia" / PLACES[major] / "bin/ptxas"
    path.parent.mkdir(parents=True)
    path.write_text(
        f"#!/bin/sh\necho 'Cuda compilation tools, release {version.rpartition('.')[0]}, V{version}'\n"
    )
    path.chmod(0o755)
    name = "nvidia_cuda_nvcc_cu12" if major == "12" else "nvidia_cuda_nvcc"
    if recorded:
        record = site / f"{name}-{version}.dist-info/RECORD"
        record.parent.mkdir()
        record.write_text(f"{name}-{version}.dist-info/METADATA,,\n{path.relative_to(site)},sha256=x,1\n")
    return path


def never(path: str) -> str:
    raise AssertionError(f"{path} is asked for its version, which takes a process")


def test_wheels_of_both_layouts_are_found_side_by_side(tmp_path: Path) -> None:
    new, old = wheel(tmp_path, "13.5.37"), wheel(tmp_path, "12.9.86")
    found = installed(never, [str(tmp_path), str(tmp_path)])
    assert found == [Installed((13, 5, 37), str(new)), Installed((12, 9, 86), str(old))]
    assert choose(found).path == choose(found[::-1]).path == str(new), "in any order"
    assert choose(found, min_driver=550).path == choose(found[::-1], "12.9").path == str(old)


def test_the_newest_is_the_first_wherever_it_lies(tmp_path: Path) -> None:
    for name, version in (("a", "12.9.86"), ("b", "13.5.37"), ("c", "13.0.88")):
        wheel(tmp_path / name, version)
    assert [one.name for one in installed(never, [str(tmp_path / name) for name in "abc"])] == [
        "13.5.37",
        "13.0.88",
        "12.9.86",
    ]


def test_a_ptxas_that_no_wheel_knows_is_asked(tmp_path: Path) -> None:
    path = wheel(tmp_path, "13.0.88", recorded=False)
    assert installed(ptxas_version, [str(tmp_path)]) == [Installed((13, 0, 88), str(path))]


def test_what_is_not_a_program_is_not_found(tmp_path: Path) -> None:
    wheel(tmp_path, "13.0.88").chmod(0o644)
    assert installed(never, [str(tmp_path), str(tmp_path / "nowhere")]) == []


FOUND = [
    Installed(parsed(version), f"/{version}")
    for version in ("13.0.88", "12.10.1", "12.9.86", "12.8.93", "13.5.37")
]


@pytest.mark.parametrize(
    "series, min_driver, wanted",
    [
        ("", 0, "13.5.37"),
        ("12.9", 0, "12.9.86"),
        ("12.9.86", 0, "12.9.86"),
        ("12.8", 0, "12.8.93"),
        ("12.1", 0, None),
        ("12.10", 0, "12.10.1"),
        ("13.0", 0, "13.0.88"),
        ("13", 0, "13.5.37"),
        ("", 525, "12.9.86"),
        ("", 580, "13.5.37"),
        ("13.5", 580, "13.5.37"),
        ("13.5", 525, None),
        ("12.9.1", 0, None),
    ],
)
def test_the_choice(series: str, min_driver: int, wanted: str | None) -> None:
    if wanted is None:
        with pytest.raises(
            ToolError, match=f"ptxas {series} is not installed; there is 13.5.37, 13.0.88, 12.10.1, 12.9.86"
        ):
            choose(FOUND, series, min_driver)
    else:
        assert choose(FOUND, series, min_driver).name == wanted


def test_tested_versions_come_first_and_then_the_newest() -> None:
    later = Installed((13, 6, 1), "/13.6.1")
    others = [one for one in FOUND if one.name not in ("12.9.86", "13.5.37")]
    assert choose([*FOUND, later]).name == "13.5.37" and choose([*others, later]).name == "13.6.1"
    assert choose([*others, FOUND[2]]).name == "12.9.86" and choose(others, min_driver=525).name == "12.10.1"


@pytest.mark.parametrize(
    "found, series, min_driver, message",
    [
        ([], "12.9", 0, "ptxas 12.9 is not installed"),
        (FOUND[:1], "", 525, "ptxas for drivers from 525 on is not installed; there is 13.0.88"),
    ],
)
def test_what_is_missing_is_said_with_the_command_that_installs_it(
    found: list[Installed], series: str, min_driver: int, message: str
) -> None:
    with pytest.raises(ToolError, match=message) as caught:
        choose(found, series, min_driver)
    assert (
        caught.value.help
        == 'pip install "nvidia-cuda-nvcc-cu12==12.9.*", or name one: KBUILD_PTXAS, or ptxas= in Python'
    )


def test_versions_of_cuda_13_have_a_package_of_another_name() -> None:
    for series, wanted in (("13.0.88", "13.0.88"), ("", "13.5.*")):
        with pytest.raises(ToolError) as caught:
            choose([], series)
        assert caught.value.help.startswith(f'pip install "nvidia-cuda-nvcc=={wanted}"')


@pytest.mark.parametrize(
    "version, driver, cuda",
    [
        ("12.4.99", 525, 12000),
        ("12.9.86", 525, 12000),
        ("13.0.88", 580, 13000),
        ("13.5.37", 580, 13000),
        ("14.0.1", 580, 13000),
        ("unknown", 580, 13000),
    ],
)
def test_drivers(version: str, driver: int, cuda: int) -> None:
    assert driver_of(version) == driver and cuda_of(driver) == cuda
