"""`kbuild size` says where the bytes of a wheel are, and refuses one that has too many."""

from __future__ import annotations

import json
import random
import zipfile
from pathlib import Path

import pytest

from kbuild import cli
from kbuild.aot.artifact.archive import ArchiveEntry, encode
from kbuild.aot.artifact.sizes import parse_size, wheel_sizes


def entry(kernel: str, arch: str, dtype: str, size: int, seed: int, kind: str = "cubin") -> ArchiveEntry:
    """Code that cannot be packed, of which equal seeds give equal bytes."""
    variant = f"{kernel}/{arch}/dtype={dtype}/x=*{dtype}:16/BLOCK=64/w4s3/"
    key = f"{kernel}.{dtype}.BLOCK=64.w4s3{'.ptx' * (kind == 'ptx')}"
    data = random.Random(seed).randbytes(size)
    return ArchiveEntry(key, kind, kernel, variant, arch, f"{kernel}_kernel", 0, 4, 32, data)


SM_80 = [entry("add", "sm_80", "fp16", 1000, 1), entry("add", "sm_80", "fp32", 1000, 1)]
SM_90 = [
    entry("add", "sm_90", "fp16", 3000, 2),
    entry("matmul", "sm_90", "fp16", 5000, 3),
    entry("matmul", "sm_90", "fp16", 700, 4, "ptx"),
]


def wheel(path: Path, archives: dict[str, list[ArchiveEntry]], launcher: int = 2000) -> Path:
    """A wheel with these archives, and a launcher of so many bytes."""
    with zipfile.ZipFile(path, "w") as archive:
        for arch, entries in archives.items():
            archive.writestr(f"demo/cubins/{arch}.kbz", encode(entries))
        archive.writestr("demo/_launcher.abi3.so", bytes(launcher))
        archive.writestr("demo/__init__.py", bytes(300))
        archive.writestr("demo_data/table.bin", bytes(50))
        archive.writestr("demo-1.0.dist-info/RECORD", bytes(100))
    return path


@pytest.fixture
def built(tmp_path: Path) -> Path:
    return wheel(tmp_path / "demo-1.0-x.whl", {"sm_80": SM_80, "sm_90": SM_90})


def run(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    code = cli.main(["size", *map(str, words)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_parts_add_up_to_the_file(built: Path) -> None:
    sizes = wheel_sizes(built)
    assert (
        sizes.total
        == built.stat().st_size
        == sum(one.bytes for one in sizes.code) + sum(sizes.other.values())
    )
    assert sizes.by(lambda one: one.kernel) == {"matmul": 5700, "add": 4000}
    assert sizes.by(lambda one: one.arch) == {"sm_90": 8700, "sm_80": 1000}
    # Equal cubins share their bytes, whichever types they are for.
    assert sizes.by(lambda one: one.dtype) == {"fp16": 9200, "fp32": 500}
    assert (sizes.shared, len(sizes.code), sizes.distinct) == (1000, 5, 4)
    assert sizes.other["launcher"] == 2000 and sizes.other["Python"] == 300 and sizes.other["project"] == 50


def test_the_table(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, built)
    assert code == 0 and out.startswith(f"demo-1.0-x.whl: {built.stat().st_size / 1000:.1f} kB\n")
    assert (
        "5 cubins and PTX texts, of which 1 are equal to another and stored with it, which saves 1.0 kB"
        in out
    )
    lines = [line.split() for line in out.splitlines()]
    assert ["matmul", "2", "5.7", "kB"] in [line[:4] for line in lines]
    assert ["5.0", "kB", "matmul.sm_90.fp16.BLOCK=64.w4s3"] in lines
    assert ["0.7", "kB", "matmul.sm_90.fp16.BLOCK=64.w4s3", "(PTX)"] in lines


def test_what_changed(built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grown = [entry("add", "sm_90", "fp16", 4500, 5), SM_90[1], entry("sub", "sm_90", "fp16", 100, 6)]
    new = wheel(tmp_path / "demo-1.1-x.whl", {"sm_90": grown}, launcher=2200)
    code, out, _ = run(capsys, new, "--diff", built)
    lines = [line.split() for line in out.splitlines()]
    assert code == 0 and "since demo-1.0-x.whl" in out
    assert [line[-2:] for line in lines if line[:2] == ["add", "1"]] == [["+0.5", "kB"]]
    assert [line[-2:] for line in lines if line[:2] == ["sub", "1"]] == [["+0.1", "kB"]]
    assert [line[-2:] for line in lines if line[:1] == ["sm_80"]] == [["-1.0", "kB"]]
    assert ["+1.5", "kB", "add.sm_90.fp16.BLOCK=64.w4s3"] in lines
    assert ["-0.7", "kB", "matmul.sm_90.fp16.BLOCK=64.w4s3", "(PTX)"] in lines
    found = json.loads(run(capsys, new, "--diff", built, "--json")[1])
    assert list(found["growth"].items())[:2] == [("add sm_90", 1500), ("launcher", 200)]
    assert found["bytes"] - found["old"]["bytes"] == new.stat().st_size - built.stat().st_size


def test_a_wheel_that_is_too_large(built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, built, "--max", "1MB", "-q") == (0, "", "")
    code, out, err = run(capsys, built, "--max", "12kB", "-q")
    assert code == 1 and out == "" and "more than --max 12.0 kB" in err
    assert "help: these are largest: matmul sm_90 (5.7 kB), add sm_90 (3.0 kB)" in err
    old = wheel(tmp_path / "old.whl", {"sm_80": SM_80, "sm_90": SM_90[:1]})
    code, _, err = run(capsys, built, "--max", "12kB", "--diff", old, "-q")
    assert code == 1 and "help: these grew most since old.whl: matmul sm_90 (+5.7 kB), index" in err
    found = json.loads(run(capsys, built, "--max", "12kB", "--json")[1])
    assert found["max"] == 12000 and found["fits"] is False


@pytest.mark.parametrize(
    ("text", "size"), [("50MB", 50_000_000), ("1.5 GiB", 3 << 29), ("0", 0), ("800 kb", 800_000)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("", "MB", "-1", "1TB", "1e9", "50 M B"):
        with pytest.raises(ValueError):
            parse_size(text)
    file = tmp_path / "a.whl"
    file.write_bytes(b"PK\x03\x04 not a wheel")
    assert run(capsys, file)[0] == 2
    other = tmp_path / "other.whl"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("other/__init__.py", b"")
    assert "is not a wheel of kbuild: it has no cubins" in run(capsys, other)[2]
    broken = tmp_path / "broken.whl"
    with zipfile.ZipFile(broken, "w") as archive:
        archive.writestr("demo/cubins/sm_80.kbz", encode(SM_80)[:200])
    assert "its archives of cubins cannot be read" in run(capsys, broken)[2]
    assert run(capsys, tmp_path / "none.whl")[2].startswith("error: no file ")
    code, _, err = run(capsys, "-C", tmp_path)
    assert code == 2 and "no wheel was built in" in err and "kbuild wheel" in err
    assert run(capsys, file, "--max", "50 apples")[0] == 2
