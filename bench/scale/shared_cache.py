"""The wheel of a project built in every way, on machines with empty disks: wall and CPU time, bytes moved, sha256.

    python bench/scale/shared_cache.py                     alone, through caches on HTTP and on a service of the API
    python bench/scale/shared_cache.py --execute 2         also executed by BuildGrid, with two machines
    python bench/scale/shared_cache.py --project DIR --arch sm_90 --ways http

The first build fills a cache, for which the one of this machine is used if it is warm. Each machine after that is a
namespace of its own, with another user, and an empty file system where its home is.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from projects import copy_of

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

_HOME = "/mnt"
"""Where the empty file system of a machine is, in its namespace."""
_OWN_FILES = ("unshare", "--mount", "--mount-proc", "--pid", "--fork", "sh", "-c")
_OWN_USER = ("unshare", "--user", "--map-user=1234", "--map-group=1234", "sh", "-c")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--project", type=Path, default=ROOT)
    parser.add_argument("--arch", action="append", default=[])
    parser.add_argument("--ways", nargs="+", default=["http", "grpc"], choices=["http", "grpc"])
    parser.add_argument("--execute", type=int, default=0, metavar="N", help="machines of a BuildGrid")
    asked = parser.parse_args()
    archs = [word for arch in asked.arch for word in ("--arch", arch)]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        base = Path(folder)
        base.chmod(0o755)
        project = copy_of(asked.project, base / "project")
        _show(
            "way",
            "seconds",
            "of CPU",
            "variants",
            "compiled",
            "executed",
            "received",
            "sent",
            "sha256 of the wheel",
        )
        _row("alone, with this machine's cache", _build(project, archs, dict(os.environ)))
        for way in asked.ways:
            url = stack.enter_context(_server(way, base))
            started = time.monotonic()
            pushed = json.loads(_kbuild(project, ["cache", "push", *archs, "--cache", url, "--json", "-q"]))
            seconds = time.monotonic() - started
            _show(
                f"push to {way}",
                f"{seconds:.1f}",
                "",
                pushed["moved"],
                "",
                "",
                "",
                _size(pushed["bytes"]),
                "",
            )
            _row(f"empty disk, cache on {way}", _isolated(project, [*archs, "--cache", url]))
        if asked.execute:
            target = stack.enter_context(_buildgrid(base, asked.execute))
            remote = ["--remote", f"grpc://{target}", "--remote-only", "--remote-jobs", str(asked.execute)]
            _row("empty disk, executed by BuildGrid", _isolated(project, [*archs, *remote]))


def _kbuild(project: Path, words: Sequence[str]) -> bytes:
    command = [sys.executable, "-m", "kbuild", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=project, env=environment, stdout=subprocess.PIPE, check=True).stdout


def _build(project: Path, words: Sequence[str], environment: dict[str, str]) -> dict[str, Any]:
    started, before = time.monotonic(), _cpu()
    result = json.loads(_kbuild(project, ["build", "--json", "-q", *words]))
    wheel = hashlib.sha256((project / result["wheel"]).read_bytes()).hexdigest()
    return {**result, "wall": time.monotonic() - started, "cpu": _cpu() - before, "sha256": wheel}


def _isolated(project: Path, words: Sequence[str]) -> dict[str, Any]:
    """A build by another user whose disk is empty, but for the project."""
    command = shlex.join([sys.executable, "-m", "kbuild", "build", "--json", "-q", *words])
    variables = f"HOME={_HOME} XDG_CACHE_HOME= PYTHONPATH={ROOT} KBUILD_REMOTE_PYTHON={sys.executable}"
    inner = (
        f"cd {_HOME}/project && id -u && date +%s.%N && env {variables} {command} > {_HOME}/result && date +%s.%N"
        f" && sha256sum dist/*.whl && cat {_HOME}/result"
    )
    outer = f"mount -t tmpfs none {_HOME} && cp -r {project} {_HOME}/project && cd {_HOME}/project && rm -rf build dist"
    script = f"{outer} && exec {shlex.join([*_OWN_USER, inner])}"
    before = _cpu()
    done = subprocess.run([*_OWN_FILES, script], stdout=subprocess.PIPE, check=True, text=True).stdout
    user, begun, ended, digest, *result = done.splitlines()
    assert user == "1234"
    return {
        **json.loads("\n".join(result)),
        "wall": float(ended) - float(begun),
        "cpu": _cpu() - before,
        "sha256": digest.split()[0],
    }


def _cpu() -> float:
    """The CPU seconds of all processes that have ended: of the build, and not of the servers."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _row(way: str, result: dict[str, Any]) -> None:
    shared = result.get("shared", {})
    executed = shared.get("executed", 0)
    compiled = len(result["compiled"]) - result["cached"]
    moved = (_size(shared.get("received_bytes", 0)), _size(shared.get("sent_bytes", 0)))
    times = (f"{result['wall']:.1f}", f"{result['cpu']:.1f}")
    _show(way, *times, result["variants"], compiled, executed, *moved, result["sha256"])


def _show(*columns: Any) -> None:
    print(
        f"{columns[0]:<36}" + "".join(f"{column!s:>10}" for column in columns[1:8]) + f"  {columns[8]}",
        flush=True,
    )


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


@contextmanager
def _server(way: str, folder: Path) -> Iterator[str]:
    """A cache in a process of its own; yields its URL."""
    kind = {"http": "http_server import serving", "grpc": "reapi_server import serving"}[way]
    argument = "" if way == "http" else f"__import__('pathlib').Path({str(folder / 'machines')!r})"
    shown = "url" if way == "http" else "target"
    code = f"from tests.aot.remote.{kind}\nwith serving({argument}) as s:\n print(s.{shown}, flush=True)\n input()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


@contextmanager
def _buildgrid(folder: Path, machines: int) -> Iterator[str]:
    # Not for those who have no BuildGrid.
    from tests.aot.remote.bots import Bots
    from tests.aot.remote.buildgrid_server import buildgrid, postgres, postgres_folder

    programs = postgres_folder()
    assert programs is not None, "PostgreSQL is not installed"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    with (
        postgres(programs, folder / "database") as database,
        buildgrid(database, folder / "server") as target,
        Bots(target, folder / "work", machines, environment),
    ):
        yield target


if __name__ == "__main__":
    main()
