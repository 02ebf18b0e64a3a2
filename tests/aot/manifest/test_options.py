"""Compile options of a configuration, on their way from the manifest."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kbuild.aot.build.plan import Job, plan
from kbuild.aot.manifest.expand import expand
from kbuild.aot.manifest.load import load
from kbuild.errors import ErrorGroup


def test_options_pass_through_a_manifest_to_names_jobs_and_packages(project: Path) -> None:
    """The manifest's own words, and Triton's."""
    file = project / "kernels.toml"
    file.write_text(
        file.read_text().replace("BLOCK = 2048", "BLOCK = 2048\nmaxnreg = 96\nenable_fp_fusion = false")
    )
    manifest = load(file)
    jobs = plan(
        manifest, expand(manifest, ["sm_90"]), {"scale": "5" * 64}, "c" * 64, {"ptxas": "9" * 64}
    ).jobs
    bounded = [job for job in jobs if job.variant.values["BLOCK"] == 2048]
    assert bounded and all(job.variant.name.endswith("r96nofma") for job in bounded)
    assert all(" --max-registers 96 --no-enable-fp-fusion" in job.command() for job in bounded)
    assert all(Job.decode(json.loads(job.encode())) == job for job in bounded)


def test_both_names_of_an_option_are_one_too_many(project: Path) -> None:
    file = project / "kernels.toml"
    file.write_text(
        file.read_text().replace("BLOCK = 2048", "BLOCK = 2048\nmaxnreg = 96\nmax_registers = 96")
    )
    with pytest.raises(ErrorGroup, match="maxnreg: is another name of max_registers, which is given as well"):
        load(file)


def test_programs_of_several_ctas_keep_the_warps_of_one_in_their_name(project: Path) -> None:
    file = project / "kernels.toml"
    text = file.read_text().replace("BLOCK = 2048", "BLOCK = 2048\nnum_ctas = 2")
    file.write_text(text)
    manifest = load(file)
    jobs = plan(manifest, expand(manifest), {"scale": "5" * 64}, "c" * 64, {"ptxas": "9" * 64}).jobs
    shared = [job for job in jobs if job.variant.values["BLOCK"] == 2048]
    assert {job.variant.arch for job in shared} == {"sm_90"}, "those of sm_80 have a configuration before it"
    assert all(job.variant.name.endswith("w8s2ctas2") for job in shared)
    assert all(" --num-warps 8 --num-stages 2 --num-ctas 2" in job.command() for job in shared)
    assert all(Job.decode(json.loads(job.encode())) == job for job in shared)


def test_an_argument_may_be_called_num_ctas(project: Path) -> None:
    for file in (project / "kernels.toml", project / "kernels/scale.py"):
        text = re.sub(r"\bn\b", "num_ctas", file.read_text())
        file.write_text(text.replace("BLOCK = 2048", "BLOCK = 2048\nnum_ctas = 2"))
    (kernel,) = load(project / "kernels.toml").kernels
    assert kernel.args[-1].name == "num_ctas" and kernel.configs[-1].options.num_ctas == 2


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "BLOCK = 512",
            "BLOCK = 512\nnum_ctas = 2",
            r'kernel "scale": config\[0\].num_ctas: is 2, but sm_80 has no',
        ),
        (
            "[[kernel]]",
            "[[kernel]]\ndefaults = { num_ctas = 4 }",
            'kernel "scale": defaults.num_ctas: is 4, but sm_80',
        ),
        (
            "BLOCK = 2048",
            "BLOCK = 2048\nnum_ctas = 3",
            "num_ctas: expected 1, 2, 4, 8 or 16, found the int 3",
        ),
        (
            "BLOCK = 2048",
            "BLOCK = 2048\nnum_ctas = 32",
            "num_ctas: expected 1, 2, 4, 8 or 16, found the int 32",
        ),
    ],
)
def test_mistakes_with_num_ctas_are_at_its_key(project: Path, old: str, new: str, says: str) -> None:
    file = project / "kernels.toml"
    text = file.read_text().replace(old, new, 1)
    file.write_text(text)
    with pytest.raises(ErrorGroup, match=says) as found:
        load(file)
    line = next(number for number, line in enumerate(text.splitlines(), 1) if "num_ctas" in line)
    assert {error.loc.line for error in found.value.errors() if error.loc} == {line}
