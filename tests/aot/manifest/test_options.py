"""Compile options of a configuration, on their way from the manifest."""

from __future__ import annotations

import json
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
