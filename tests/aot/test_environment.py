"""What kbuild sets for the programs that it starts, and what it leaves to the user."""

from __future__ import annotations

import pytest

from kbuild.aot.environment import Remote, cache_capacity, prepare, remote
from kbuild.errors import UsageError


def test_large_pages_are_asked_for_unless_the_user_has_a_say() -> None:
    empty: dict[str, str] = {}
    prepare(empty)
    assert "hugetlb=1" in empty["GLIBC_TUNABLES"]
    own = {"GLIBC_TUNABLES": "glibc.malloc.check=3"}
    prepare(own)
    assert own == {"GLIBC_TUNABLES": "glibc.malloc.check=3"}


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
