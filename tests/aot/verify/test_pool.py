"""The processes that verify, when one fails, hangs, or is left alone."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kbuild.aot.verify.pool import run_jobs
from kbuild.cli import main
from kbuild.compiler import driver
from tests.aot.build.processes import wait_until_gone, written_number


def test_a_crash_and_a_hang_cost_one_variant_each(
    verified: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = driver.compile

    def compile_badly(*args: Any, **options: Any) -> driver.Artifact:
        kind = options["signature"]["x"], options["constexprs"]["NEGATE"], options["signature"]["n"]
        if kind == ("*fp16:16", True, "i32"):
            os.write(2, b"LLVM ERROR: cannot select")
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == ("*fp16:16", False, "i32"):
            time.sleep(100)
        return right(*args, **options)

    monkeypatch.setattr(driver, "compile", compile_badly)
    assert (
        main(["verify", "-C", str(verified), "--arch", "sm_80", "-k", "--no-cache", "--json", "--limit", "2"])
        == 1
    )
    output = capsys.readouterr()
    problems = [verdict["problem"] for verdict in json.loads(output.out) if verdict["state"] == "failed"]
    assert len(problems) == 2 and "4 ok, 2 failed" in output.err
    assert any("ended by signal 9\nLLVM ERROR: cannot select" in problem for problem in problems)
    assert any("no end after 2 seconds" in problem for problem in problems)


def test_workers_end_with_the_process_that_waits_for_them(tmp_path: Path) -> None:
    def work(member: str) -> None:
        (tmp_path / member).write_text(str(os.getpid()))
        time.sleep(100)

    results = run_jobs([["one"], ["two"]], work, 2, 100.0)
    with pytest.raises(KeyboardInterrupt), closing(results):
        signal.signal(signal.SIGALRM, _interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        next(results)
    for member in ("one", "two"):
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / member).read_text()), 0)


def test_workers_end_when_the_process_that_waits_for_them_is_killed(tmp_path: Path) -> None:
    def work(member: str) -> None:
        (tmp_path / member).write_text(str(os.getpid()))
        time.sleep(100)

    waiting = os.fork()
    if waiting == 0:
        try:
            list(run_jobs([["one"], ["two"]], work, 2, 100.0))
        finally:
            os._exit(1)
    workers = [written_number(tmp_path / member) for member in ("one", "two")]
    os.kill(waiting, signal.SIGKILL)
    os.waitpid(waiting, 0)
    for worker in workers:
        wait_until_gone(worker)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
