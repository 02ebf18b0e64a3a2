"""What variables of the environment mean, that Triton's names do what kbuild's do, and that the table has them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kbuild import cli
from kbuild.aot.environment import (
    DEBUG,
    DISABLE_CACHE,
    PRINT_TUNING,
    PTXAS,
    VARIABLES,
    Dump,
    Remote,
    cache_capacity,
    cache_directory,
    dump_of,
    flag,
    names_of,
    prepare,
    remote,
    setting,
)
from kbuild.errors import UsageError

ROOT = Path(__file__).parents[2]
READ = re.compile(
    r"""(?:environ(?:ment)?(?:\.get\(|\[)|getenv\()\s*"([A-Z][A-Z0-9_]*)"(?!\]\s*=[^=])"""
    r"""|"((?:KBUILD|TRITON|MLIR|FAKE_CUDA)_[A-Z0-9_]*[A-Z0-9])["=]"""
)
"""The name of a variable where one is read, and in a string of its own, as in a table."""
SOURCES = (".py", ".c", ".h", ".cpp", ".in", ".j2")


def test_large_pages_are_asked_for_unless_the_user_has_a_say() -> None:
    empty: dict[str, str] = {}
    prepare(empty)
    assert "hugetlb=1" in empty["GLIBC_TUNABLES"]
    own = {"GLIBC_TUNABLES": "glibc.malloc.check=3"}
    prepare(own)
    assert own == {"GLIBC_TUNABLES": "glibc.malloc.check=3"}


def test_the_first_name_that_is_set_counts() -> None:
    assert names_of(PTXAS) == ("KBUILD_PTXAS", "TRITON_PTXAS_PATH")
    assert setting({"TRITON_PTXAS_PATH": "/t"}, PTXAS) == "/t"
    assert setting({"TRITON_PTXAS_PATH": "/t", "KBUILD_PTXAS": "/k"}, PTXAS) == "/k"
    assert setting({"KBUILD_PTXAS": ""}, PTXAS) == ""


@pytest.mark.parametrize(
    ("name", "other"),
    [
        (DEBUG, "TRITON_DEBUG"),
        (DISABLE_CACHE, "TRITON_ALWAYS_COMPILE"),
        (PRINT_TUNING, "TRITON_PRINT_AUTOTUNING"),
    ],
)
def test_triton_s_switches_are_kbuild_s(name: str, other: str) -> None:
    for text, expected in (
        ("1", True),
        ("true", True),
        ("ON", True),
        ("0", False),
        ("", False),
        ("off", False),
    ):
        assert flag({other: text}, name) == flag({name: text}, name) == expected


def test_always_compiling_means_no_cache() -> None:
    assert cache_directory({"HOME": "/home/me"}) == Path("/home/me/.cache/kbuild")
    assert cache_directory({"HOME": "/home/me", "TRITON_ALWAYS_COMPILE": "1"}) is None


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"MLIR_ENABLE_DUMP": "0"}, None),
        ({"KBUILD_DUMP": "/d"}, Dump(Path("/d"))),
        ({"MLIR_ENABLE_DUMP": "1", "HOME": "/h"}, Dump(Path("/h/.triton/dump"))),
        ({"MLIR_ENABLE_DUMP": "1", "TRITON_DUMP_DIR": "/t"}, Dump(Path("/t"))),
        ({"MLIR_ENABLE_DUMP": "my_kernel", "TRITON_DUMP_DIR": "/t"}, Dump(Path("/t"), "my_kernel")),
        ({"TRITON_KERNEL_DUMP": "1", "TRITON_DUMP_DIR": "/t"}, Dump(Path("/t"))),
        ({"TRITON_DUMP_DIR": "/t"}, None),
        ({"TRITON_KERNEL_DUMP": "1", "KBUILD_DUMP": "/d"}, Dump(Path("/d"))),
    ],
)
def test_where_ir_is_dumped(environment: dict[str, str], expected: Dump | None) -> None:
    assert dump_of(environment) == expected


def test_one_kernel_may_be_dumped_alone() -> None:
    dump = Dump(Path("/d"), "mine")
    assert (dump.of("mine"), dump.of("other"), Dump(Path("/d")).of("other")) == (Path("/d"), None, Path("/d"))


def kernel(folder: Path, body: str) -> str:
    (folder / "k.py").write_text(
        f"import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef k(x):\n    {body}\n"
    )
    return str(folder / "k.py:k")


@pytest.mark.parametrize("name", ["MLIR_ENABLE_DUMP", "TRITON_KERNEL_DUMP", "KBUILD_DUMP"])
def test_a_compile_dumps_what_the_variables_ask_for(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dumped = tmp_path / "dump"
    monkeypatch.setenv("TRITON_DUMP_DIR", str(dumped))
    monkeypatch.setenv(name, str(dumped) if name == "KBUILD_DUMP" else "1")
    assert (
        cli.main(["compile", kernel(tmp_path, "tl.store(x, 1.0)"), "-s", "x=*fp32", "--emit", "ttgir"]) == 0
    )
    files = sorted(path.name for path in dumped.rglob("*") if path.is_file())
    assert "kernel.ttgir" in files and any(file.startswith("01_") for file in files)


def test_every_variable_that_is_read_is_in_the_table() -> None:
    known = {"TRITON_MAX_TENSOR_NUMEL"}  # A constant of the language.
    known |= {name for variable in VARIABLES for name in (variable.name, *variable.also)}
    found: dict[str, Path] = {}
    for folder in ("kbuild", "tests"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SOURCES and path.is_file() and path != Path(__file__):
                for match in READ.finditer(path.read_text()):
                    found.setdefault(match[1] or match[2], path.relative_to(ROOT))
    assert {name: str(path) for name, path in found.items() if name not in known} == {}


def test_nothing_is_shared_unless_asked_for() -> None:
    assert remote({}) is None
    assert remote({"KBUILD_CACHE_URL": "http://a", "KBUILD_DISABLE_CACHE": "1"}) is None
    assert remote({}, cache="http://a") == Remote(cache="http://a")


def test_the_command_line_goes_before_the_variables() -> None:
    variables = {
        "KBUILD_CACHE_URL": "http://a",
        "KBUILD_CACHE_MODE": "read-only",
        "KBUILD_CACHE_TIMEOUT": "3",
        "KBUILD_REMOTE_URL": "grpc://b",
        "KBUILD_REMOTE_JOBS": "5",
        "KBUILD_REMOTE_ONLY": "1",
        "KBUILD_REMOTE_TIMEOUT": "7",
        "KBUILD_REMOTE_PYTHON": "/opt/python",
        "KBUILD_REMOTE_PLATFORM": "OSFamily=linux, ISA=x86-64",
        "KBUILD_REMOTE_TOKEN": "secret\n",
        "KBUILD_REMOTE_HEADERS": "x-key=a=b",
    }
    found = remote(variables)
    assert found == Remote(
        cache="http://a",
        is_read_only=True,
        timeout=3,
        engine="grpc://b",
        jobs=5,
        is_only=True,
        job_timeout=7,
        python="/opt/python",
        platform=(("OSFamily", "linux"), ("ISA", "x86-64")),
        token="secret",
        headers=(("x-key", "a=b"),),
        environment=variables,
    )
    assert "secret" not in repr(found) and "a=b" not in repr(found)
    other = remote(variables, "http://c", "grpc://d", 9)
    assert other is not None and (other.cache, other.engine, other.jobs) == ("http://c", "grpc://d", 9)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("KBUILD_CACHE_MODE", "readonly", "expected read-only or read-write"),
        ("KBUILD_CACHE_TIMEOUT", "soon", "expected a natural number"),
        ("KBUILD_REMOTE_PLATFORM", "linux", "is not of the form name=value"),
        ("KBUILD_REMOTE_HEADERS", "=x", "is not of the form name=value"),
    ],
)
def test_variables_that_cannot_be_read(name: str, value: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        remote({"KBUILD_CACHE_URL": "http://a", name: value})


def test_sizes() -> None:
    read = {text: cache_capacity({"KBUILD_CACHE_SIZE": text}, 7) for text in ("", "12", "3k", "500M", "4G")}
    assert read == {"": 7, "12": 12, "3k": 3 << 10, "500M": 500 << 20, "4G": 4 << 30}
    for text in ("4GB", "G", "-1", "1.5G"):
        with pytest.raises(UsageError, match="expected a number of bytes"):
            cache_capacity({"KBUILD_CACHE_SIZE": text}, 7)
