"""A build after a power failure, a bad disk or a user's mistake: the same bytes as a clean one."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.aot import files
from kbuild.aot.build import service
from kbuild.aot.build.progress import Progress
from kbuild.aot.build.project import BuildOptions, build
from kbuild.errors import ToolError
from tests.aot.conftest import KERNEL
from tests.manifests import package_table

ROOT = Path(__file__).parents[3]
MANIFEST = (
    package_table("demo_kernels", "sm_80+ptx", "sm_90", version="0.1.0")
    + """\
[[kernel]]
name = "scale"
source = "kernels/scale.py"
grid = ["cdiv(n, BLOCK)"]
args = { x = "*fp16:16", y = "*fp16:16", n = "i32" }
config = [{ BLOCK = 512, NEGATE = false }]
"""
)
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda data: b"",
    "cut short": lambda data: data[: len(data) // 2],
    "flipped": lambda data: bytes([*data[:-9], *(byte ^ 1 for byte in data[-9:])]) or b"x",
    "garbage": lambda data: b"\xff\x00garbage\n" * 9,
}


@pytest.fixture
def options(tmp_path: Path) -> BuildOptions:
    """A project of one kernel and two variants, built with its wheel, by the fake compiler."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/scale.py").write_text(KERNEL)
    (tmp_path / "kernels.toml").write_text(MANIFEST)
    (tmp_path / "cache").mkdir(mode=0o700)
    options = BuildOptions(
        project=tmp_path,
        environment={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        cache=tmp_path / "cache",
        compiler="tests.aot.build.fake_compiler:compile",
        source_digest="tests.aot.build.fake_compiler:source_digest",
    )
    build(options, Progress())
    return options


def made(options: BuildOptions) -> dict[str, bytes]:
    """All results of a build: cubins, PTX and facts, the package, and the wheel in both places."""
    paths = [*(options.project / "build").glob("[!.]*/**/*"), *(options.project / "dist").iterdir()]
    return {str(path.relative_to(options.project)): path.read_bytes() for path in paths if path.is_file()}


def damageable(options: BuildOptions) -> Iterator[Path]:
    """Every file that a build leaves."""
    for folder in ("build", "dist"):
        yield from sorted(path for path in (options.project / folder).rglob("*") if path.is_file())


@pytest.mark.parametrize("damage", DAMAGES)
def test_everything_damaged_at_once_is_made_again(options: BuildOptions, damage: str) -> None:
    good = made(options)
    for path in damageable(options):
        path.write_bytes(DAMAGES[damage](path.read_bytes()))
    result = build(options, Progress())
    assert not result.failures and made(options) == good


def test_each_file_damaged_by_itself_is_made_again(options: BuildOptions) -> None:
    """Of the package's sources, which are made together, and never read again, one stands for all."""
    good, chance = made(options), random.Random(1)
    for path in damageable(options):
        if path.suffix in (".py", ".pyi", ".typed", ".h", ".c") and path.name != "dispatch.py":
            continue
        how = chance.choice(list(DAMAGES))
        path.write_bytes(DAMAGES[how](path.read_bytes()))
        assert not build(options, Progress()).failures and made(options) == good, f"{path} {how}"


def test_files_made_from_something_else_are_made_again(options: BuildOptions) -> None:
    """As after a copy of another checkout's build directory: whole, but of other sources."""
    old = made(options)
    state = shutil.copytree(options.project / "build", options.project / "old")
    (options.project / "kernels/scale.py").write_text(KERNEL.replace("* SCALE", "/ SCALE"))
    build(options, Progress())
    new = made(options)
    assert new != old
    for path in state.rglob("*"):
        if path.is_file() and not path.is_relative_to(state / ".kbuild"):
            target = options.project / "build" / path.relative_to(state)
            shutil.copyfile(path, target)
            os.utime(target)
    build(options, Progress())
    assert made(options) == new


def test_a_client_that_does_nothing_makes_no_wheel_of_old_code(
    options: BuildOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty program succeeds; the steps are then done without it."""
    (options.project / "kernels/scale.py").write_text(KERNEL.replace("* SCALE", "/ SCALE"))
    good = made(replace_project(options))
    wrote = service.write_if_changed

    def write(path: Path, data: bytes) -> bool:
        asked.append(path)
        return wrote(path, data if path.name != "step" or len(asked) > 1 else b"")

    asked: list[Path] = []
    monkeypatch.setattr(service, "write_if_changed", write)
    result = build(options, Progress())
    assert len(asked) == 2 and not result.failures and len(result.compiled) == 2
    assert made(options) == good

    def never(path: Path, data: bytes) -> bool:
        return wrote(path, b"")

    monkeypatch.setattr(service, "write_if_changed", never)
    (options.project / "kernels/scale.py").write_text(KERNEL)
    with pytest.raises(
        ToolError, match="the step that makes it succeeded, but the file differs from its record"
    ):
        build(options, Progress())


def replace_project(options: BuildOptions) -> BuildOptions:
    """The same project, built elsewhere from nothing."""
    other = options.project / "elsewhere"
    shutil.copytree(options.project / "kernels", other / "kernels")
    shutil.copy(options.project / "kernels.toml", other)
    elsewhere = replace(options, project=other, cache=None)
    build(elsewhere, Progress())
    return elsewhere


def test_a_client_is_run_only_as_it_was_compiled(tmp_path: Path) -> None:
    (tmp_path / ".kbuild").mkdir()

    def step(**damage: bytes) -> str:
        """The client that the steps of a large build run, after damage to the client's files."""
        for name, data in damage.items():
            (tmp_path / ".kbuild" / name.replace("_", ".")).write_bytes(data)
        with service.Service(tmp_path, "python3", {}, ["cc"]) as one:
            if not damage:
                one._serve = lambda: None  # type: ignore[method-assign,return-value]
                one.expect(100)
            one.get_ready()
        return (tmp_path / ".kbuild/step").read_text()

    assert "./.kbuild/client python3" in step()
    record = (tmp_path / ".kbuild/client.json").read_bytes()
    assert "client.py" in step(client=b"")
    assert "client.py" in step(client_json=record[:-9])


def test_what_is_published_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """File, then name, then directory: a power failure leaves the old bytes or the new ones."""
    events: list[str] = []
    sync, rename = os.fsync, os.replace

    def fsync(handle: int) -> None:
        name = os.readlink(f"/proc/self/fd/{handle}")
        events.append("directory" if os.path.isdir(name) else f"file of {os.fstat(handle).st_size}")
        sync(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", lambda one, other: (events.append("name"), rename(one, other)))
    files.write_atomic(tmp_path / "one", b"1234")
    assert events == ["file of 4", "name", "directory"]
    events.clear()
    files.write_files({tmp_path / "one": b"1234", tmp_path / "two": b"12", tmp_path / "three": b"123"})
    assert events == ["file of 2", "name", "file of 3", "name", "directory"]


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_full_disk_is_called_that_and_half_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "deep/kernel.cubin"
    files.write_atomic(path, b"old")

    def fail(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if call == "write":

        class Full:
            def __init__(self, handle: int, mode: str) -> None:
                os.close(handle)

            def __enter__(self) -> Full:
                return self

            def __exit__(self, *_: object) -> None:
                pass

            write = fail

        monkeypatch.setattr(os, "fdopen", Full)
    else:
        monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError) as caught:
        files.write_files({path: b"new"})
    assert files.why(caught.value) == f"{path}: the disk is full (No space left on device)"
    assert path.read_bytes() == b"old" and [one.name for one in path.parent.iterdir()] == ["kernel.cubin"]
