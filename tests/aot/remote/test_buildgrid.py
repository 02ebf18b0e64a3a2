"""A real service: BuildGrid has blobs, results and a queue, and machines that speak its protocol execute the steps."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("buildgrid", reason="pip install 'buildgrid[database]'")

from kbuild.aot.environment import Remote
from kbuild.aot.remote.shared import Shared
from tests.aot.remote import reapi_server
from tests.aot.remote.bots import Bots
from tests.aot.remote.buildgrid_server import buildgrid, postgres, postgres_folder
from tests.aot.remote.conftest import KEY, Warnings, entry_of, remote_at, with_shared
from tests.aot.remote.test_builds import Machines
from tests.aot.remote.test_engine import VARIANTS, machines

__all__ = ["machines"]  # The fixture.
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def grid() -> Iterator[tuple[str, Bots]]:
    """The URL of a service, and its machines, which wait for work."""
    programs = postgres_folder()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory(prefix="grid") as name, ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL runs as another user, who may not enter pytest's own folders.
        database = stack.enter_context(postgres(programs, folder / "database"))
        found = stack.enter_context(buildgrid(database, folder / "server"))
        bots = stack.enter_context(Bots(found, folder / "machines", 2, environment))
        yield f"grpc://{found}", bots


def test_its_blobs_and_results_are_a_cache(grid: tuple[str, Bots], warnings: Warnings) -> None:
    large = entry_of("cd" * 32, size=5_000_000)

    async def use(shared: Shared) -> list[bytes | None]:
        assert await shared.get(KEY) is None
        assert await shared.put(KEY, entry_of()) and await shared.put("cd" * 32, large)
        return [await shared.get(KEY), await shared.get("cd" * 32)]

    assert (
        with_shared(remote_at(grid[0], timeout=20), warnings, use) == [entry_of(), large] and warnings == []
    )


def test_its_machines_execute_steps(grid: tuple[str, Bots], machines: Machines) -> None:
    url, bots = grid
    settings = Remote(engine=url, is_only=True, python=reapi_server.PYTHON, jobs=2, timeout=20)
    _, files, _ = machines.build()
    result, elsewhere, compiled = machines.build(remote=settings)
    assert elsewhere == files and compiled == []
    assert result.exchanged is not None and result.exchanged.executed == VARIANTS
    _, again, compiled = machines.build(remote=settings)
    assert again == files and compiled == [] and len(bots.actions) == VARIANTS, "the results are remembered"
