"""The compiler of the tests, which compiles each text once, makes what the real one makes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.launcher.compile_once import REAL, with_compilers

Compile = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """What the real compiler was asked for, apart from preprocessing, a line for each command."""
    return tmp_path / "log"


@pytest.fixture
def cc(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> Compile:
    """Runs the compiler of the tests, before a real one that keeps a log, in a folder with a source and a header."""
    (tmp_path / "real").mkdir()
    real = tmp_path / "real/cc"
    real.write_text(
        f'#!/bin/sh\ncase "$*" in *-E*) ;; *) echo "$*" >> {log} ;; esac\nexec /usr/bin/cc "$@"\n'
    )
    real.chmod(0o755)
    monkeypatch.setenv("PATH", f"{real.parent}:/usr/bin:/bin")
    (tmp_path / "kept").mkdir()
    environment = with_compilers(tmp_path / "once", tmp_path / "kept")

    def run(folder: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        place = tmp_path / folder
        if not place.exists():
            place.mkdir()
            (place / "a.h").write_text("#define TWICE 2\n")
            (place / "a.c").write_text('#include "a.h"\nint twice(int x) { return TWICE * x; }\n')
        command = [str(tmp_path / "once/cc"), *words]
        return subprocess.run(
            command, cwd=place, env={**environment, **variables}, capture_output=True, text=True, check=False
        )

    return run


def test_a_text_is_compiled_once_wherever_it_lies(cc: Compile, log: Path, tmp_path: Path) -> None:
    for folder in ("one", "other"):
        assert cc(folder, "-O2", "-c", "a.c", "-o", "a.o").returncode == 0
        assert cc(folder, "-shared", "-fPIC", "a.c", "-o", "a.so").returncode == 0
    assert log.read_text().splitlines() == ["-O2 -c a.c -o a.o", "-shared -fPIC a.c -o a.so"]
    subprocess.run(["/usr/bin/cc", "-O2", "-c", "a.c", "-o", "own.o"], cwd=tmp_path / "one", check=True)
    for folder in ("one", "other"):
        assert (tmp_path / folder / "a.o").read_bytes() == (tmp_path / "one/own.o").read_bytes()
        assert (tmp_path / folder / "a.so").stat().st_mode & 0o111


def test_what_goes_into_the_output_counts(cc: Compile, log: Path, tmp_path: Path) -> None:
    cc("one", "-c", "a.c", "-o", "a.o")
    (tmp_path / "one/a.h").write_text("#define TWICE 3\n")
    cc("one", "-c", "a.c", "-o", "a.o")
    cc("one", "-c", "-O2", "a.c", "-o", "a.o")
    cc("one", "-shared", "-fPIC", "a.c", "a.o", "-o", "a.so")
    cc("other", "-c", "-O1", "a.c", "-o", "a.o")
    cc("other", "-shared", "-fPIC", "a.c", "a.o", "-o", "a.so")
    assert len(log.read_text().splitlines()) == 6


@pytest.mark.parametrize("words", [["-c", "-g"], ["-c", "-fstack-usage"], ["-c", "-MD"], ["-L.", "-shared"]])
def test_flags_that_are_not_known_are_the_compiler_s(cc: Compile, log: Path, words: list[str]) -> None:
    for _ in range(2):
        assert cc("one", *words, "a.c", "-o", "a.o").returncode == 0
    assert len(log.read_text().splitlines()) == 2


def test_what_fails_or_warns_does_so_each_time(cc: Compile, log: Path, tmp_path: Path) -> None:
    cc("one", "-c", "a.c", "-o", "a.o")
    for text, said, code in (("int f( {}", "error", 1), ("int f(void) { int x; }", "warning", 0)):
        (tmp_path / "one/b.c").write_text(text)
        for _ in range(2):
            done = cc("one", "-Wall", "-c", "b.c", "-o", "b.o")
            assert done.returncode == code and said in done.stderr
    assert len(log.read_text().splitlines()) == 5


def test_it_can_be_turned_off_and_ends_with_its_run(cc: Compile, log: Path, tmp_path: Path) -> None:
    for variables in ({}, {REAL: "1"}):
        cc("one", "-c", "a.c", "-o", "a.o", **variables)
    shutil.rmtree(tmp_path / "kept")
    assert cc("one", "-c", "a.c", "-o", "a.o").returncode == 0
    assert len(log.read_text().splitlines()) == 3 and not (tmp_path / "kept").exists()
