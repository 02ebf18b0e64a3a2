"""Builds on several machines with one cache: nothing is compiled twice, and nothing wrong is ever packed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbuild.aot.build.cache import Cache, encode
from kbuild.aot.build.progress import Progress
from kbuild.aot.build.project import BuildOptions, build
from kbuild.aot.build.results import BuildResult
from kbuild.aot.remote import transfer
from kbuild.aot.remote.shared import Shared
from kbuild.aot.remote.sharing import keys_of
from tests.aot.build.fake_compiler import ELF
from tests.aot.build.processes import interruptible
from tests.aot.remote import http_server, reapi_server
from tests.aot.remote.conftest import Warnings, remote_at, with_shared
from tests.aot.remote.http_server import Handler
from tests.aot.remote.test_faults import UNREADABLE

ROOT = Path(__file__).parents[3]
VARIANTS = 6


class Machines:
    """Copies of one project, each on a machine of its own: with another folder, and an empty disk."""

    def __init__(self, project: Path, folder: Path) -> None:
        self.project, self.folder = project, folder
        self.count = 0

    def build(
        self, url: str = "", again: bool = False, **more: Any
    ) -> tuple[BuildResult, dict[str, bytes], list[str]]:
        """Builds on the next machine, or on the last one again: the result, the files, and what its compiler
        did."""
        self.count += not again
        project = self.folder / f"machine{self.count}"
        if not again:
            shutil.copytree(self.project, project)
            (project / "cache").mkdir(mode=0o700)
        settings = {name: more.pop(name) for name in ("timeout", "is_read_only") if name in more}
        options = BuildOptions(
            project=project,
            environment={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
            archs=("sm_80",),
            kernels=("scale",),
            cache=project / "cache",
            compiler="tests.aot.build.fake_compiler:compile",
            source_digest="tests.aot.build.fake_compiler:source_digest",
            remote=remote_at(url, **{"timeout": 5, **settings}) if url else None,
        )
        result = build(replace(options, **more), Progress())
        base = project / "build"
        files = {str(path.relative_to(base)): path.read_bytes() for path in sorted(base.glob("sm_*/*/*"))}
        log = project / "kernels/compiled.log"
        return result, files, log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def machines(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Machines:
    return Machines(project, tmp_path_factory.mktemp("machines"))


@pytest.fixture(params=["file", "http", "grpc"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "file":
        return f"file://{tmp_path_factory.mktemp('shared')}"
    if request.param == "http":
        return request.getfixturevalue("http").url
    return request.getfixturevalue("reapi").target


def test_what_one_machine_compiled_no_other_compiles(
    url: str, machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    alone, files, _ = machines.build()
    first, filled, compiled = machines.build(url)
    assert filled == files and len(compiled) == VARIANTS and first.exchanged is not None
    assert (first.exchanged.sent, first.exchanged.fetched) == (VARIANTS, 0)
    second, fetched, compiled = machines.build(url)
    assert fetched == files and compiled == [] and second.cached == VARIANTS and second.exchanged is not None
    assert (second.exchanged.sent, second.exchanged.fetched) == (0, VARIANTS)
    assert second.exchanged.received_bytes > 0 and alone.exchanged is None
    assert capsys.readouterr().err == ""


def test_a_build_with_nothing_to_do_asks_nobody(machines: Machines, http: http_server.Server) -> None:
    machines.build(http.url)
    http.log.clear()
    result, _, _ = machines.build(http.url, again=True)
    assert result.compiled == () and http.log == []


def test_a_cache_that_is_only_read_gets_nothing(machines: Machines, http: http_server.Server) -> None:
    result, _, compiled = machines.build(http.url, is_read_only=True)
    assert len(compiled) == VARIANTS and result.exchanged is not None and result.exchanged.sent == 0
    assert http.held == {} and not any(line.startswith("PUT") for line in http.log)


def test_what_is_not_there_is_asked_for_once(machines: Machines, http: http_server.Server) -> None:
    machines.build(http.url, is_read_only=True)
    assert len(http.log) == len(set(http.log)) == VARIANTS


def test_without_a_cache_of_its_own_a_machine_still_shares(
    machines: Machines, http: http_server.Server
) -> None:
    _, files, _ = machines.build(http.url, cache=None)
    _, again, compiled = machines.build(http.url, cache=None)
    assert again == files and compiled == []


def test_nobody_there_is_worth_one_warning(machines: Machines, capsys: pytest.CaptureFixture[str]) -> None:
    with http_server.serving() as server:
        url = server.url
    _, files, compiled = machines.build(url)
    assert len(compiled) == VARIANTS and files == machines.build()[1]
    (warning,) = capsys.readouterr().err.splitlines()
    assert warning.startswith(f"warning: {url}: no connection") and warning.endswith("; building without it")


@pytest.mark.parametrize("fault", ["hangs", "one byte a second", "another entry", "a bit flipped", "fails"])
def test_a_server_with_faults_changes_nothing(
    fault: str, machines: Machines, http: http_server.Server, capsys: pytest.CaptureFixture[str]
) -> None:
    _, files, _ = machines.build(http.url)
    http.behaviour, _ = UNREADABLE[fault]
    result, again, compiled = machines.build(http.url, timeout=0.5)
    assert again == files and len(compiled) == VARIANTS and result.failures == ()
    assert "warning: http://127.0.0.1" in capsys.readouterr().err


def test_a_server_that_dies_in_the_middle(machines: Machines, http: http_server.Server) -> None:
    _, files, _ = machines.build(http.url)
    left = iter(range(5))

    def dying(handler: Handler) -> bool:
        return next(left, None) is None and handler.server.socket.close() is None and handler.wait()

    http.behaviour = dying
    _, again, compiled = machines.build(http.url, timeout=0.5)
    assert again == files and 0 < len(compiled) <= VARIANTS


def test_a_server_whose_disk_is_full(
    machines: Machines, http: http_server.Server, capsys: pytest.CaptureFixture[str]
) -> None:
    http.behaviour = lambda handler: handler.command == "PUT" and handler.answer(507)
    _, files, compiled = machines.build(http.url)
    assert len(compiled) == VARIANTS and files == machines.build()[1]
    assert capsys.readouterr().err.count("nothing more is sent there") == 1


def test_a_build_that_waits_can_be_interrupted(machines: Machines, http: http_server.Server) -> None:
    """And says what it waits for."""
    http.behaviour = Handler.wait
    command = [sys.executable, "-m", "kbuild", "build", "scale", "--arch", "sm_80", "--cache", http.url]
    variables = {"KBUILD_CACHE_TIMEOUT": "1000", "KBUILD_CACHE_DIR": str(machines.folder / "cache")}
    process = subprocess.Popen(
        command,
        cwd=machines.project,
        env={**os.environ, **variables, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=interruptible,
    )
    assert process.stderr is not None
    assert process.stderr.readline().endswith(f" steps wait for {http.url}\n")
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130 and process.stderr.read() == "interrupted\n"
    process.stderr.close()
    assert not (machines.project / "build/.kbuild/exchange").exists()


@pytest.mark.parametrize(
    "parts",
    [
        {"cubin": b"#!/bin/sh", "ptx": b"", "facts": b"{}"},
        {"cubin": ELF, "ptx": b"", "facts": b"{"},
        {"cubin": ELF, "ptx": b"", "facts": b"[]"},
        {"cubin": ELF, "ptx": b"", "facts": b"{}"},
        {"cubin": ELF},
    ],
    ids=str,
)
def test_entries_that_somebody_meant_to_be_wrong(
    parts: dict[str, bytes], machines: Machines, http: http_server.Server
) -> None:
    """Digests and key are right, and what is in them is not what a compiler makes."""
    result, files, _ = machines.build()

    async def forge(shared: Shared) -> None:
        for job in result.jobs:
            assert await shared.put(job.identity, encode(job.identity, parts))

    with_shared(remote_at(http.url, timeout=5), Warnings(), forge)
    _, again, compiled = machines.build(http.url)
    assert again == files and len(compiled) == VARIANTS


def test_wheels_are_equal_however_they_were_built(
    machines: Machines, http: http_server.Server, reapi: reapi_server.Service
) -> None:
    """Alone, through each kind of cache, and executed elsewhere."""
    alone, _, _ = machines.build(kernels=())
    assert alone.wheel is not None
    keys = {key for job in alone.jobs for key, _ in keys_of(job)}
    cache = Cache(machines.folder / "machine1/cache")
    for url in (http.url, reapi.target):
        assert transfer.push(sorted(keys), cache, remote_at(url, timeout=5), Progress()).moved == VARIANTS
    for key in keys:  # What is left is the launcher, which takes long to compile.
        cache.entry(key).unlink()

    def wheel(url: str, more: Callable[[Any], Any] = lambda remote: remote) -> bytes:
        remote = more(remote_at(url, timeout=5))
        result, _, compiled = machines.build(kernels=(), cache=cache.root, remote=remote)
        assert compiled == []
        for key in keys:
            cache.entry(key).unlink()
        assert result.wheel is not None
        return result.wheel.read_bytes()

    ways = [wheel(url) for url in (http.url, reapi.target)]
    assert len(reapi.actions) == 0

    def elsewhere(remote: Any) -> Any:
        return replace(
            remote, cache="", engine=reapi.target, is_only=True, python=reapi_server.PYTHON, job_timeout=60
        )

    ways.append(wheel("", elsewhere))
    assert len(reapi.actions) == VARIANTS
    assert {alone.wheel.read_bytes()} == set(ways)
