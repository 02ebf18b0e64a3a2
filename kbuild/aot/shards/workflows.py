"""Jobs in the forms of continuous integration systems: a workflow of GitHub, a pipeline of GitLab, a matrix in JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kbuild.aot.shards.jobs import BuildJob
from kbuild.aot.shards.yaml_text import yaml_text
from kbuild.errors import UsageError

PYTHON = "3.12"
"""The Python of the jobs; the wheels are for all from 3.10 on."""
_INSTALL = "pip install kbuild"
_MOST_GITHUB_JOBS = 256
"""Jobs of one matrix, of which GitHub says: "A matrix will generate a maximum of 256 jobs per workflow run"."""


def json_text(jobs: Sequence[BuildJob], head: str, limit: str) -> str:
    """The matrix of a GitHub job, in one line for its outputs: `{"include": [...]}`."""
    return json.dumps({"include": [_entry(job) for job in jobs]}) + "\n"


def github(jobs: Sequence[BuildJob], head: str, limit: str) -> str:
    """A workflow of GitHub Actions; `head` is its first comment, `limit` the most that the wheel may have.  UsageError
    where there are more jobs than GitHub takes."""
    if len(jobs) > _MOST_GITHUB_JOBS:
        raise UsageError(
            f"{len(jobs)} jobs, and a matrix of GitHub has at most {_MOST_GITHUB_JOBS}",
            help="ask for fewer --shards",
        )
    cache = {
        "path": "~/.cache/kbuild",
        "key": "kbuild-${{ matrix.name }}-${{ github.sha }}",
        "restore-keys": "kbuild-${{ matrix.name }}-",
    }
    part = {"name": "part-${{ strategy.job-index }}", "path": "dist/*.part", "if-no-files-found": "error"}
    build = {
        "name": "build ${{ matrix.name }}",
        "runs-on": "ubuntu-latest",
        "strategy": {
            "fail-fast": False,
            "matrix": {
                "include": [{"name": job.name, "build": job.build, "verify": job.verify} for job in jobs]
            },
        },
        "steps": [
            {"uses": "actions/checkout@v4"},
            {"uses": "actions/setup-python@v5", "with": {"python-version": PYTHON}},
            {"uses": "actions/cache@v4", "with": cache},
            {"run": _INSTALL},
            {"run": "${{ matrix.build }}"},
            {"run": "${{ matrix.verify }}"},
            {"uses": "actions/upload-artifact@v4", "with": part},
        ],
    }
    merge = {
        "needs": "build",
        "runs-on": "ubuntu-latest",
        "steps": [
            {"uses": "actions/setup-python@v5", "with": {"python-version": PYTHON}},
            {
                "uses": "actions/download-artifact@v4",
                "with": {"pattern": "part-*", "merge-multiple": True, "path": "parts"},
            },
            {"run": _INSTALL},
            *({"run": command} for command in _merging("parts", limit)),
            {"uses": "actions/upload-artifact@v4", "with": {"name": "wheel", "path": "dist/*.whl"}},
        ],
    }
    workflow = {
        "name": "kernels",
        "on": ["push", "pull_request"],
        "permissions": {"contents": "read"},
        "jobs": {"build": build, "merge": merge},
    }
    return f"{head}{yaml_text(workflow)}"


def gitlab(jobs: Sequence[BuildJob], head: str, limit: str) -> str:
    """A pipeline of GitLab CI; arguments as for `github`."""
    image = f"python:{PYTHON}"
    pipeline: dict[str, Any] = {
        "stages": ["build", "merge"],
        "variables": {"XDG_CACHE_HOME": "$CI_PROJECT_DIR/.cache"},
        "default": {"image": image, "before_script": [_INSTALL]},
        ".build": {
            "stage": "build",
            "cache": {"key": "$CI_JOB_NAME_SLUG", "paths": [".cache"]},
            "artifacts": {"paths": ["dist/*.part"], "expire_in": "1 day"},
        },
    }
    for job in jobs:
        pipeline[f"build {job.name}"] = {"extends": ".build", "script": [job.build, job.verify]}
    pipeline["merge"] = {
        "stage": "merge",
        "variables": {"GIT_STRATEGY": "none"},
        "script": _merging("dist", limit),
        "artifacts": {"paths": ["dist/*.whl"]},
    }
    return f"{head}{yaml_text(pipeline)}"


FORMS: Mapping[str, Callable[[Sequence[BuildJob], str, str], str]] = {
    "github": github,
    "gitlab": gitlab,
    "json": json_text,
}
"""The functions that write jobs down, by what the command line calls them."""


def _entry(job: BuildJob) -> dict[str, Any]:
    """A job with all that is known of it."""
    return {
        "name": job.name,
        "build": job.build,
        "verify": job.verify,
        "shard": job.shard.text,
        "variants": job.variants,
        "seconds": round(job.seconds, 2),
    }


def _merging(folder: str, limit: str) -> list[str]:
    """The commands that make the wheel of the parts in a folder, and hold it to its size."""
    return [f"kbuild merge {folder}/*.part", f"kbuild size --max {limit} dist/*.whl"]
