"""The server of compiles: each job gets its own answer, and no worker outlives its client or the server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.aot.build.processes import wait_until_gone, written_number

ROOT = Path(__file__).parents[3]
Process = subprocess.Popen[bytes]
CLIENT = ROOT / "kbuild/aot/build/client.py"
SERVER = """
import os, socket, sys, time
from kbuild.aot.build.serve import Server

loaded = []

def prepare() -> None:
    time.sleep(0.3)
    loaded.append(os.getpid())

def run_job(job: bytes) -> int:
    if job.startswith(b'{"package":'):
        return 40 + len(loaded)
    name, _, argument = job.decode().partition(" ")
    print(f"{name} {os.getpid() == os.getsid(0)}")
    if name == "pid":
        print(os.getpid())
    elif name == "sleep":
        open(argument, "w").write(str(os.getpid()))
        os.system("exec sleep 100")
    elif name == "abort":
        sys.stdout.flush()
        os.abort()
    elif name == "raise":
        raise ValueError
    elif name == "alarm":
        import signal
        signal.alarm(1)
        time.sleep(100)
    return int(argument or 0)

Server(socket.socket(fileno=int(sys.argv[1])), run_job, prepare).run()
"""


@pytest.fixture(params=["client.py", "client.c"])
def command(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """The command line of the client, in Python and in C."""
    if request.param == "client.py":
        return [sys.executable, "-S", "-I", str(CLIENT)]
    subprocess.run(
        ["cc", "-Wall", "-Wextra", "-Werror", CLIENT.with_suffix(".c"), "-o", tmp_path / "client"], check=True
    )
    return [str(tmp_path / "client"), sys.executable]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Process]:
    """A server in the directory, whose jobs say what to do."""
    (tmp_path / ".kbuild").mkdir()
    here = os.getcwd()
    os.chdir(tmp_path)
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(".kbuild/serve")
            listening.listen(64)
            number = listening.fileno()
            process = subprocess.Popen(
                [sys.executable, "-c", SERVER, str(number)],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=(number,),
            )
        yield process
    finally:
        os.chdir(here)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(10) == 0


def client(tmp_path: Path, command: list[str], job: str) -> Process:
    """A client that has sent a job."""
    path = tmp_path / f"job{time.monotonic_ns()}"
    path.write_text(job)
    with path.open() as stdin:
        return subprocess.Popen(command, cwd=tmp_path, stdin=stdin, stdout=subprocess.PIPE)


def test_codes_and_outputs_reach_their_clients(tmp_path: Path, server: Process, command: list[str]) -> None:
    clients = [client(tmp_path, command, f"exit {code}") for code in range(20)]
    assert [(one.communicate()[0], one.returncode) for one in clients] == [
        (b"exit True\n", code) for code in range(20)
    ]


def test_a_worker_does_one_job_after_another(tmp_path: Path, server: Process, command: list[str]) -> None:
    assert len({client(tmp_path, command, "pid").communicate()[0] for _ in range(5)}) == 1
    together = [client(tmp_path, command, "pid") for _ in range(5)]
    assert {one.wait(20) for one in together} == {0}


def test_the_last_step_finds_its_modules_loaded_and_no_other_waits_for_them(
    tmp_path: Path, server: Process, command: list[str]
) -> None:
    assert client(tmp_path, command, "exit 3").wait(20) == 3
    last = '{"package": ".kbuild/package.json"}'
    together = [
        client(tmp_path, command, last) for _ in range(3)
    ]  # There cannot be more than one; they are done all the same.
    assert sorted(one.wait(20) for one in together) == [40, 40, 41]
    assert client(tmp_path, command, last).wait(20) == 41


@pytest.mark.parametrize(
    "job, code", [("abort", 128 + signal.SIGABRT), ("raise", 1), ("alarm", 128 + signal.SIGALRM)]
)
def test_a_worker_that_dies_costs_its_job(
    tmp_path: Path, server: Process, command: list[str], job: str, code: int
) -> None:
    assert client(tmp_path, command, job).wait(20) == code
    assert client(tmp_path, command, "exit 0").wait(20) == 0


def test_a_client_that_leaves_takes_its_worker_along(
    tmp_path: Path, server: Process, command: list[str]
) -> None:
    one = client(tmp_path, command, f"sleep {tmp_path}/one")
    process = written_number(tmp_path / "one")
    one.kill()
    wait_until_gone(process)
    assert client(tmp_path, command, "exit 3").wait(20) == 3


def test_the_server_takes_all_workers_along(tmp_path: Path, server: Process, command: list[str]) -> None:
    waiting = client(tmp_path, command, f"sleep {tmp_path}/two")
    process = written_number(tmp_path / "two")
    assert server.stdin is not None
    server.stdin.close()
    assert server.wait(10) == 0
    wait_until_gone(process)
    assert waiting.wait(10) == 128 + signal.SIGTERM, "it does not do the job by itself: the build is over"
