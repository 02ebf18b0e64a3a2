"""`kbuild cache`: what caches hold, and entries moved between them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kbuild.aot.build import project as builder
from kbuild.cli import main
from tests.aot.conftest import project  # noqa: F401  The fixture.

VARIANTS = 18


@pytest.fixture
def here(project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: F811
    """A project that was built, in the current directory, and a shared directory beside its cache."""
    monkeypatch.setattr(builder, "COMPILER", "tests.aot.build.fake_compiler:compile")
    monkeypatch.setattr(builder, "SOURCE_DIGEST", "tests.aot.build.fake_compiler:source_digest")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(project / "cache"))
    monkeypatch.setenv("KBUILD_CACHE_URL", f"file://{project}/shared")
    (project / "shared").mkdir(mode=0o700)
    monkeypatch.chdir(project)
    assert main(["build", "-q", "scale", "--cache-read-only"]) == 0
    return project


def said(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    capsys.readouterr()
    assert main(["cache", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_push_and_pull(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "push", "--arch", "sm_80"]) == 0
    assert capsys.readouterr().out.startswith("6 entries sent, ")
    assert said(capsys, "push")["moved"] == VARIANTS - 6
    shutil.rmtree(here / "cache")
    assert said(capsys, "pull", "--dry-run")["moved"] == VARIANTS and not (here / "cache/entries").exists()
    assert said(capsys, "pull")["moved"] == VARIANTS
    shutil.rmtree(here / "build")
    (here / "kernels/compiled.log").unlink()
    assert main(["build", "-q", "scale"]) == 0 and not (here / "kernels/compiled.log").exists()


def test_stats(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["cache", "push", "-q"])
    found = said(capsys, "stats")
    assert found["local"] == {
        "directory": str(here / "cache"),
        "entries": VARIANTS,
        "bytes": sum(path.stat().st_size for path in (here / "cache/entries").glob("*/*")),
        "capacity": 4 << 30,
        "oldest_use_days": 0.0,
    }
    assert found["shared"] == {"url": f"file://{here}/shared", "mode": "read-write", "entries": str(VARIANTS)}
    assert main(["cache", "stats", "--cache", "file:///nowhere", "--cache-read-only"]) == 1
    assert (
        capsys.readouterr().out.splitlines()[1]
        == "file:///nowhere: read-only, error: there is no such directory"
    )


def test_gc(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    main(["cache", "push", "-q"])
    one = next((here / "cache/entries").glob("*/*")).stat().st_size
    assert said(capsys, "gc", "--dry-run", "--max-size", "1k")["removed"] == 0
    monkeypatch.setenv("KBUILD_CACHE_SIZE", str(10 * one))
    removed = said(capsys, "gc")["removed"]
    assert isinstance(removed, int) and 0 < removed < VARIANTS
    assert said(capsys, "gc", "--cache", f"file://{here}/shared", "--max-size", "0")["removed"] == VARIANTS
    assert main(["cache", "gc", "--cache", "https://host/x"]) == 2
    assert "is cleared by its server" in capsys.readouterr().err
    assert main(["cache", "gc", "--max-size", "many"]) == 2
    assert "--max-size is 'many', expected a number of bytes such as 500M or 4G" in capsys.readouterr().err


def test_verify(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["cache", "push", "-q"])
    assert said(capsys, "verify") == {"damaged": [], "whole": VARIANTS, "wrong": [], "right": VARIANTS}
    for folder in ("cache", "shared"):
        path = next((here / folder / "entries").glob("*/*"))
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    capsys.readouterr()
    assert main(["cache", "verify"]) == 1
    first, second, wrong = capsys.readouterr().out.splitlines()
    assert first == f"{VARIANTS - 1} entries here are whole, 1 were damaged and removed"
    assert second == f"file://{here}/shared: {VARIANTS - 1} entries are right, 1 are not"
    assert wrong.startswith("wrong: ")


def test_what_is_missing_is_said(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KBUILD_CACHE_URL")
    assert main(["cache", "push"]) == 2
    assert "give --cache URL, or set KBUILD_CACHE_URL" in capsys.readouterr().err
    monkeypatch.setenv("KBUILD_DISABLE_CACHE", "1")
    assert main(["cache", "gc"]) == 2
    assert "this machine has no cache" in capsys.readouterr().err
    assert main(["cache", "sweep"]) == 2
    assert "invalid choice: 'sweep'" in capsys.readouterr().err


def test_builds_say_what_they_shared(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(here / "build")
    shutil.rmtree(here / "cache")
    assert main(["build", "scale", "--cache", f"file://{here}/shared"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("shared: 0 entries fetched, 0.0 kB received; 18 entries sent, ")
    shutil.rmtree(here / "build")
    shutil.rmtree(here / "cache")
    assert main(["build", "scale", "--json", "-q"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["shared"]["fetched"] == VARIANTS and result["shared"]["received_bytes"] > 0


def test_a_url_that_is_none_stops_a_build_at_once(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "scale", "--remote", "https://host"]) == 2
    assert "the URL of the service that executes steps is" in capsys.readouterr().err
