"""A real service: BuildGrid has blobs, results and a queue, and machines that speak its protocol execute the steps."""

from __future__ import annotations

import os
from collections.abc import Iterator
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
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`host:port` of a service whose machines wait for work."""
    programs = postgres_folder()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    folder = tmp_path_factory.mktemp("grid")
    for parent in (folder, folder.parent, folder.parent.parent):
        parent.chmod(0o755)  # PostgreSQL runs as another user.
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    with (
        postgres(programs, folder / "database") as database,
        buildgrid(database, folder / "server") as found,
        Bots(found, folder / "machines", 2, environment) as bots,
    ):
        yield found
        assert len(bots.actions) == VARIANTS


def test_its_blobs_and_results_are_a_cache(target: str, warnings: Warnings) -> None:
    large = entry_of("cd" * 32, size=5_000_000)

    async def use(shared: Shared) -> list[bytes | None]:
        assert await shared.get(KEY) is None
        assert await shared.put(KEY, entry_of()) and await shared.put("cd" * 32, large)
        return [await shared.get(KEY), await shared.get("cd" * 32)]

    url = f"grpc://{target}"
    assert with_shared(remote_at(url, timeout=20), warnings, use) == [entry_of(), large] and warnings == []


def test_its_machines_execute_steps(target: str, machines: Machines) -> None:
    settings = Remote(engine=f"grpc://{target}", is_only=True, python=reapi_server.PYTHON, jobs=2, timeout=20)
    _, files, _ = machines.build()
    result, elsewhere, compiled = machines.build(remote=settings)
    assert elsewhere == files and compiled == []
    assert result.exchanged is not None and result.exchanged.executed == VARIANTS
    _, again, compiled = machines.build(remote=settings)
    assert again == files and compiled == [], "the results are remembered"
