"""A BuildGrid on this machine, with a PostgreSQL of its own, in which it keeps its queue."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_CONFIGURATION = """\
server:
  - !channel
    address: 127.0.0.1:{port}
    insecure-mode: true
connections:
  - !sql-connection &sql
    connection-string: {database}
storages:
  - !disk-storage &cas
    path: {folder}/cas
caches:
  - !lru-action-cache &ac
    storage: *cas
    max-cached-refs: 100000
    allow-updates: true
schedulers:
  - !sql-scheduler &scheduler
    sql: *sql
    action-cache: *ac
    storage: *cas
    poll-interval: 0.1
    assigners:
      - !priority-age-assigner
        count: 1
        interval: 0.02
instances:
  - name: ''
    services:
      - !action-cache
        cache: *ac
      - !execution
        scheduler: *scheduler
      - !cas
        storage: *cas
      - !bytestream
        storage: *cas
thread-pool-size: 100
"""
_LONGEST_START = 60


def postgres_folder() -> Path | None:
    """Where PostgreSQL's programs are, None if it is not installed."""
    found = shutil.which("initdb")
    places = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((place for place in reversed(places) if (place / "initdb").exists()), None)


@contextmanager
def postgres(programs: Path, folder: Path) -> Iterator[str]:
    """A database; yields its URL.  It refuses to run as root."""
    user = _as_nobody() if os.getuid() == 0 else []
    folder.mkdir(parents=True)
    if user:
        shutil.chown(folder, "nobody")
    data = folder / "data"
    for command in (
        ["initdb", "-D", str(data), "-A", "trust", "-U", "grid", "--no-sync"],
        ["pg_ctl", "-D", str(data), "-w", "-o", f"-c listen_addresses='' -k {folder} -F", "start"],
    ):
        subprocess.run(
            [*user, str(programs / command[0]), *command[1:]],
            check=True,
            cwd=folder,
            stdout=subprocess.DEVNULL,
        )
    try:
        yield f"postgresql+psycopg2://grid@/postgres?host={folder}"
    finally:
        stop = [str(programs / "pg_ctl"), "-D", str(data), "-m", "immediate", "stop"]
        subprocess.run([*user, *stop], check=True, cwd=folder, stdout=subprocess.DEVNULL)


@contextmanager
def buildgrid(database: str, folder: Path) -> Iterator[str]:
    """A server with blobs, results of actions, and a queue; yields `host:port`."""
    folder.mkdir(parents=True)
    port = _free_port()
    configuration = folder / "grid.yml"
    configuration.write_text(_CONFIGURATION.format(port=port, database=database, folder=folder))
    program = str(Path(sys.executable).with_name("bgd"))
    with (folder / "log").open("wb") as log:
        subprocess.run([program, "migrate", "apply", database], check=True, stdout=log, stderr=log)
        server = subprocess.Popen([program, "server", "start", str(configuration)], stdout=log, stderr=log)
    try:
        _wait_for(port, server)
        yield f"127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def _as_nobody() -> Sequence[str]:
    user = pwd.getpwnam("nobody")
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    for _ in range(_LONGEST_START * 10):
        assert server.poll() is None, "BuildGrid has ended"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("BuildGrid does not answer")
