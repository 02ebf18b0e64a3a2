"""What is put into a shared cache comes out again, whatever it speaks."""

from __future__ import annotations

import hashlib
import hmac
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from kbuild.aot.environment import Remote
from kbuild.aot.remote import protos
from kbuild.aot.remote.http_store import proxy_of
from kbuild.aot.remote.shared import Shared
from kbuild.aot.remote.stores import open_store
from kbuild.errors import UsageError
from tests.aot.remote import http_server, reapi_server
from tests.aot.remote.conftest import KEY, Warnings, entry_of, remote_at, with_shared, with_store

ROOT = Path(__file__).parents[3]
OTHER = "cd" * 32


@pytest.fixture(params=["file", "http", "http with checks", "grpc", "grpc with zstd"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty cache."""
    if request.param == "file":
        (tmp_path / "shared").mkdir(mode=0o700)
        return f"file://{tmp_path}/shared"
    if request.param.startswith("http"):
        server: http_server.Server = request.getfixturevalue("http")
        if "checks" in request.param:
            server.behaviour = http_server.checking
        return server.url
    service: reapi_server.Service = request.getfixturevalue("reapi")
    service.compressors = [protos.ZSTD] if "zstd" in request.param else []
    return f"{service.target}/kernels"


def test_what_is_put_in_comes_out(url: str, warnings: Warnings) -> None:
    async def use(shared: Shared) -> tuple[Any, ...]:
        before = await shared.get(KEY)
        is_stored = await shared.put(KEY, entry_of())
        return before, is_stored, await shared.get(KEY), await shared.get(OTHER)

    before, is_stored, after, other = with_shared(remote_at(url), warnings, use)
    assert (before, is_stored, after, other) == (None, True, entry_of(), None) and warnings == []


def test_large_entries_go_in_pieces(url: str, reapi: reapi_server.Service, warnings: Warnings) -> None:
    reapi.batch = 1_000_000
    large = entry_of(size=3_000_000)

    async def use(shared: Shared) -> bytes | None:
        assert await shared.put(KEY, large)
        return await shared.get(KEY)

    assert with_shared(remote_at(url, timeout=10), warnings, use) == large and warnings == []
    if url.startswith("grpc"):
        assert "Write" in reapi.calls and "Read" in reapi.calls


def test_two_jobs_may_put_the_same_entry(url: str, warnings: Warnings) -> None:
    import asyncio  # For two requests at once.

    async def use(shared: Shared) -> list[bool]:
        return await asyncio.gather(*(shared.put(KEY, entry_of()) for _ in range(8)))

    assert with_shared(remote_at(url, timeout=5), warnings, use) == [True] * 8
    assert with_shared(remote_at(url), warnings, lambda shared: shared.get(KEY)) == entry_of()


def test_one_that_is_only_read_is_left_as_it_is(url: str, warnings: Warnings) -> None:
    with_shared(remote_at(url), warnings, lambda shared: shared.put(KEY, entry_of()))

    async def use(shared: Shared) -> tuple[Any, ...]:
        return await shared.put(OTHER, entry_of(OTHER)), await shared.get(KEY), await shared.get(OTHER)

    read_only = remote_at(url, is_read_only=True)
    assert with_shared(read_only, warnings, use) == (False, entry_of(), None) and warnings == []


def test_what_http_stored_is_what_the_api_means(http: http_server.Server, warnings: Warnings) -> None:
    """So that a server which speaks both, as bazel-remote does, serves both."""
    with_shared(remote_at(http.url), warnings, lambda shared: shared.put(KEY, entry_of()))
    action, _ = protos.action_of_entry(KEY)
    blob = protos.blob(entry_of())
    assert set(http.held) == {f"/kernels/ac/{action.hash}", f"/kernels/cas/{blob.hash}"}
    (file,) = protos.parse("ActionResult", http.held[f"/kernels/ac/{action.hash}"]).output_files
    assert (file.digest.hash, file.digest.size_bytes) == (blob.hash, len(blob.data))
    assert len(http.held[f"/kernels/cas/{blob.hash}"]) < len(blob.data), "compressed"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"token": "secret"}, {"Authorization": "Bearer secret"}),
        ({"headers": (("X-Key", "one"), ("X-Team", "two"))}, {"X-Key": "one", "X-Team": "two"}),
        ({"user": "ann:p%40ss"}, {"Authorization": "Basic YW5uOnBAc3M="}),
        ({"netrc": "machine 127.0.0.1 login bob password pw"}, {"Authorization": "Basic Ym9iOnB3"}),
    ],
    ids=str,
)
def test_credentials(
    settings: dict[str, Any],
    expected: dict[str, str],
    http: http_server.Server,
    tmp_path: Path,
    warnings: Warnings,
) -> None:
    url = http.url
    if user := settings.pop("user", ""):
        url = url.replace("://", f"://{user}@")
    if netrc := settings.pop("netrc", ""):
        (tmp_path / "netrc").write_text(netrc)
        settings["environment"] = {"NETRC": str(tmp_path / "netrc")}
    remote = remote_at(url, **settings)
    assert "p@ss" not in with_store(remote, _name) and "p%40ss" not in with_store(remote, _name)
    with_shared(remote, warnings, lambda shared: shared.get(KEY))
    assert expected.items() <= http.headers[0].items()


async def _name(store: Any) -> str:
    return store.name


@pytest.mark.parametrize(
    ("variables", "proxy"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ({"all_proxy": "http://p:2"}, "http://p:2"),
        ({"http_proxy": "http://p:3"}, None),
        ({"https_proxy": "http://p:4", "NO_PROXY": "other.org, example.org"}, None),
        ({"https_proxy": "http://p:5", "no_proxy": "ache.example.org"}, "http://p:5"),
        ({"https_proxy": "http://p:6", "no_proxy": "*"}, None),
    ],
)
def test_proxies(variables: dict[str, str], proxy: str | None) -> None:
    assert proxy_of("https://cache.example.org/kernels", variables) == proxy


def test_requests_to_s3_are_signed(
    http: http_server.Server, monkeypatch: pytest.MonkeyPatch, warnings: Warnings
) -> None:
    """By the algorithm of AWS, which is followed here step by step."""
    pytest.importorskip("botocore")
    for name, value in (("ID", "AKIDEXAMPLE"), ("SECRET", "wJalrX")):
        key = "AWS_ACCESS_KEY_ID" if name == "ID" else "AWS_SECRET_ACCESS_KEY"
        monkeypatch.setenv(key, value)
    endpoint = http.url.removesuffix("/kernels")
    remote = remote_at(f"s3://bucket/pre/fix?region=eu-central-1&endpoint={endpoint}", timeout=5)

    async def use(shared: Shared) -> bytes | None:
        assert await shared.put(KEY, entry_of())
        return await shared.get(KEY)

    assert with_shared(remote, warnings, use) == entry_of()
    for line, headers in zip(http.log, http.headers):
        method, path = line.split()
        assert path.startswith("/bucket/pre/fix/")
        body = http.held[path] if method == "PUT" else b""
        _check_signature(method, path, headers, body, urlsplit(endpoint).netloc)


def _check_signature(method: str, path: str, headers: dict[str, str], body: bytes, host: str) -> None:
    given = {name.lower(): value for name, value in headers.items()}
    day = given["x-amz-date"][:8]
    scope = f"{day}/eu-central-1/s3/aws4_request"
    names = "host;x-amz-content-sha256;x-amz-date"
    digest = hashlib.sha256(body).hexdigest()
    assert given["x-amz-content-sha256"] == digest
    lines = [
        method,
        path,
        "",
        f"host:{host}",
        f"x-amz-content-sha256:{digest}",
        f"x-amz-date:{given['x-amz-date']}",
    ]
    request = hashlib.sha256("\n".join([*lines, "", names, digest]).encode()).hexdigest()
    key = b"AWS4wJalrX"
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = f"AWS4-HMAC-SHA256\n{given['x-amz-date']}\n{scope}\n{request}"
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    assert given["authorization"] == (
        f"AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/{scope}, SignedHeaders={names}, Signature={signature}"
    )


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://host/x", "expected a URL with file, http"),
        ("htp://host", 'did you mean "http://"?'),
        ("http:///x", "names no host"),
        ("file://host/x", "names a host, expected file:///path"),
        ("http://host:port/x", "is no URL"),
        ("/mnt/cache", "expected a URL"),
    ],
)
def test_urls_that_are_none(url: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_store(Remote(cache=url))
    assert said in f"{caught.value} {caught.value.help}"


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.delitem(sys.modules, "kbuild.aot.remote.http_store", raising=False)
    with pytest.raises(UsageError) as caught:
        open_store(Remote(cache="https://host/x"))
    assert "https://host/x needs aiohttp" in str(caught.value)
    assert caught.value.help == "pip install 'kbuild[remote]'"


def test_a_directory_is_open_to_those_whom_its_rights_name(tmp_path: Path, warnings: Warnings) -> None:
    """Whatever the umask of each."""
    folder = tmp_path / "group"
    folder.mkdir()
    folder.chmod(0o2770)
    before = os.umask(0o077)
    try:
        with_shared(remote_at(f"file://{folder}"), warnings, lambda shared: shared.put(KEY, entry_of()))
    finally:
        os.umask(before)
    made = list(folder.rglob("*"))
    assert {oct(path.stat().st_mode & 0o7777) for path in made if path.is_dir()} == {"0o2770"}
    assert {oct(path.stat().st_mode & 0o7777) for path in made if path.is_file()} == {"0o660"}


def test_a_directory_that_everybody_may_write_to_is_not_trusted(tmp_path: Path, warnings: Warnings) -> None:
    folder = tmp_path / "all"
    folder.mkdir()
    folder.chmod(0o777)
    assert with_shared(remote_at(f"file://{folder}"), warnings, lambda shared: shared.get(KEY)) is None
    assert warnings == [f"warning: file://{folder}: all users may write to it; building without it"]


def test_builds_that_share_nothing_load_nothing_for_it() -> None:
    code = "import sys, kbuild.cli.grammar.parser, kbuild.cli.verbs.build, kbuild.aot.build.step; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()} | set(done.stdout.split())
    assert not loaded & {"aiohttp", "grpc", "google", "zstandard", "botocore", "asyncio", "kbuild.aot.remote"}
