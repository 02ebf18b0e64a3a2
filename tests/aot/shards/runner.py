"""Runs workflows of GitHub and pipelines of GitLab on this machine, as far as kernels need it: each job in a folder of its
own, with nothing of other jobs but the artifacts that it fetches."""

from __future__ import annotations

import fnmatch
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]


@dataclass
class Machine:
    """What jobs run on."""

    project: Path
    """What a checkout gives."""
    folder: Path
    """Where jobs get their folders."""
    cache: Path
    """The cache that jobs have restored."""
    skipped: tuple[str, ...] = ()
    """Beginnings of commands that are not run."""
    commands: list[str] = field(default_factory=list)
    """The commands that were run, in order."""
    artifacts: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Files that jobs have left, by the name of the artifact or the job."""

    def workspace(self, job: str) -> Path:
        """An empty folder for a job."""
        place = self.folder / re.sub(r"\W+", "_", job)
        place.mkdir(parents=True)
        return place

    def checkout(self, place: Path) -> None:
        shutil.copytree(
            self.project, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("build", "dist")
        )

    def run(self, script: str, place: Path, variables: Mapping[str, str]) -> None:
        """Runs a script as both systems do: by bash, up to the first command that fails."""
        if script.startswith(self.skipped):
            return
        self.commands.append(script)
        tools = self.folder / "bin"
        if not tools.exists():
            tools.mkdir()
            for name, text in {"kbuild": f'exec {sys.executable} -m kbuild "$@"', "pip": ":"}.items():
                (tools / name).write_text(f"#!/bin/sh\n{text}\n")
                (tools / name).chmod(0o755)
        environment = {
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "KBUILD_CACHE_DIR": str(self.cache),
            "CI": "true",
            **variables,
        }
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", script],
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"


def run_github(workflow: Mapping[str, Any], machine: Machine) -> None:
    """Runs the jobs of a workflow, each after those that it needs."""
    outputs: dict[str, dict[str, str]] = {}
    waiting = dict(workflow["jobs"])
    while waiting:
        name = next(name for name, job in waiting.items() if {*_list(job.get("needs", []))} <= {*outputs})
        job = waiting.pop(name)
        known = {
            f"needs.{of}.outputs.{key}": value for of, own in outputs.items() for key, value in own.items()
        }
        matrix = job.get("strategy", {}).get("matrix", {"include": [{}]})
        if isinstance(matrix, str):
            matrix = _value(matrix, known)
        assert set(matrix) == {"include"}
        for index, entry in enumerate(matrix["include"]):
            context = {f"matrix.{key}": value for key, value in entry.items()} | known
            context |= {"strategy.job-index": str(index), "github.sha": "0" * 40}
            outputs[name] = _run_github_job(f"{name} {index}", job, context, machine)


def _run_github_job(
    name: str, job: Mapping[str, Any], known: dict[str, Any], machine: Machine
) -> dict[str, str]:
    """Runs one job; its outputs."""
    place = machine.workspace(name)
    for step in job["steps"]:
        given = {key: _text(value, known) for key, value in step.get("with", {}).items()}
        action = step.get("uses", "").partition("@")[0]
        if action == "actions/checkout":
            machine.checkout(place)
        elif action == "actions/upload-artifact":
            found = {file.name: file.read_bytes() for file in place.glob(given["path"])}
            assert found or given.get("if-no-files-found") != "error", f"{name}: no {given['path']}"
            assert given["name"] not in machine.artifacts, f"two artifacts {given['name']}"
            machine.artifacts[given["name"]] = found
        elif action == "actions/download-artifact":
            assert given["merge-multiple"] == "true"
            target = place / given["path"]
            target.mkdir()
            for artifact, files in machine.artifacts.items():
                for file, data in files.items() if fnmatch.fnmatch(artifact, given["pattern"]) else ():
                    (target / file).write_bytes(data)
        elif not action:
            written = place / ".outputs"
            machine.run(_text(step["run"], known), place, {"GITHUB_OUTPUT": str(written)})
            if written.exists():
                pairs = (line.split("=", 1) for line in written.read_text().splitlines())
                known |= {f"steps.{step['id']}.outputs.{key}": value for key, value in pairs}
        else:
            assert action in ("actions/setup-python", "actions/cache"), action
    return {key: _text(value, known) for key, value in job.get("outputs", {}).items()}


def _text(value: Any, known: Mapping[str, Any]) -> str:
    """A text with its expressions evaluated."""
    if not isinstance(value, str):
        return str(value).lower()
    return re.sub(r"\$\{\{.*?\}\}", lambda match: str(_value(match[0], known)), value)


def _value(text: str, known: Mapping[str, Any]) -> Any:
    """The value of one expression."""
    expression = text.removeprefix("${{").removesuffix("}}").strip()
    if call := re.fullmatch(r"fromJSON\((.*)\)", expression):
        return json.loads(known[call[1]])
    return known[expression]


def run_gitlab(pipeline: Mapping[str, Any], machine: Machine) -> None:
    """Runs the jobs of a pipeline stage by stage; a job has the artifacts of all stages before its own."""
    jobs = {
        name: {**pipeline.get(job.get("extends", ""), {}), **job}
        for name, job in pipeline.items()
        if isinstance(job, Mapping) and "script" in job and not name.startswith(".")
    }
    before: dict[str, bytes] = {}
    for stage in pipeline["stages"]:
        made: dict[str, bytes] = {}
        for name, job in jobs.items():
            for index, total in _copies(job) if job["stage"] == stage else ():
                of_job = _run_gitlab_job(f"{name} {index}", pipeline, job, (index, total), before, machine)
                assert not made.keys() & of_job.keys(), "jobs of one stage leave files of one name"
                made |= of_job
        before |= made
        machine.artifacts[stage] = made


def _copies(job: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    count = job.get("parallel", 1)
    return zip(range(1, count + 1), itertools.repeat(count))


def _run_gitlab_job(
    name: str,
    pipeline: Mapping[str, Any],
    job: Mapping[str, Any],
    node: tuple[int, int],
    before: Mapping[str, bytes],
    machine: Machine,
) -> dict[str, bytes]:
    """Runs one job; the files that it leaves, by path."""
    place = machine.workspace(name)
    given = {**pipeline.get("variables", {}), **job.get("variables", {})}
    variables = {key: str(value).replace("$CI_PROJECT_DIR", str(place)) for key, value in given.items()}
    if variables.get("GIT_STRATEGY") != "none":
        machine.checkout(place)
    for path, data in before.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(data)
    variables |= {"CI_NODE_INDEX": str(node[0]), "CI_NODE_TOTAL": str(node[1])}
    for command in [*pipeline["default"]["before_script"], *job["script"]]:
        machine.run(command, place, variables)
    return {
        file.relative_to(place).as_posix(): file.read_bytes()
        for pattern in job["artifacts"]["paths"]
        for file in place.glob(pattern)
    }


def _list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value
