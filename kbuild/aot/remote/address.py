"""URLs of shared caches and of services that execute steps."""

from __future__ import annotations

import base64
import netrc
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

from kbuild.aot.environment import Remote
from kbuild.errors import UsageError, nearest

CACHE = "the URL of the shared cache"
ENGINE = "the URL of the service that executes steps"
CACHES = ("file", "http", "https", "s3", "grpc", "grpcs")
ENGINES = ("grpc", "grpcs")


@dataclass(frozen=True)
class Address:
    """A URL in its parts."""

    scheme: str
    url: str
    """Without credentials."""
    host: str
    """Without port."""
    netloc: str
    """With port."""
    path: str
    """Without slashes at its ends; of grpc the name of the instance, of s3 the prefix of all names."""
    user: str
    password: str
    query: dict[str, str]

    @property
    def shown(self) -> str:
        """The URL for messages."""
        return self.url

    @property
    def directory(self) -> Path:
        """The directory of a file URL."""
        return Path("/", self.path)


def check(remote: Remote) -> None:
    """Raises UsageError where a URL is none, before anything is done."""
    for what, text, schemes in ((CACHE, remote.cache, CACHES), (ENGINE, remote.engine, ENGINES)):
        if text:
            parse(what, text, schemes)


def parse(what: str, text: str, schemes: tuple[str, ...]) -> Address:
    """The parts of a URL with one of these schemes; `what` says in a UsageError where it comes from."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{what} is no URL: {error}") from None
    if parts.scheme not in schemes:
        close = nearest(parts.scheme, list(schemes))
        raise UsageError(
            f"{what} is {text.split('@')[-1]!r}, expected a URL with {', '.join(schemes)}",
            help=f'did you mean "{close}://"?' if close else f"for example {schemes[0]}://…",
        )
    host = parts.hostname or ""
    if bool(host) == (parts.scheme == "file"):
        expected = "file:///path" if host else f"{parts.scheme}://host"
        raise UsageError(f"{what} names {'a' if host else 'no'} host, expected {expected}")
    shown = f"[{host}]" if ":" in host else host
    netloc = f"{shown}:{port}" if port else shown
    return Address(
        parts.scheme,
        urlunsplit((parts.scheme, netloc, parts.path, "", "")),
        host,
        netloc,
        unquote(parts.path).strip("/"),
        unquote(parts.username or ""),
        unquote(parts.password or ""),
        {name: values[-1] for name, values in parse_qs(parts.query).items()},
    )


def authorization(address: Address, remote: Remote) -> dict[str, str]:
    """The header with the credentials for an address: a token, or those of the URL, or of ~/.netrc."""
    if remote.token:
        return {"Authorization": f"Bearer {remote.token}"}
    user, password = address.user, address.password
    if not user and (entry := _netrc(address.host, remote.environment)):
        user, password = entry
    words = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {words}"} if user else {}


def _netrc(host: str, environment: Mapping[str, str]) -> tuple[str, str] | None:
    home = environment.get("HOME", "")
    path = environment.get("NETRC") or (str(Path(home, ".netrc")) if home else "")
    with suppress(OSError, netrc.NetrcParseError):
        if path and (entry := netrc.netrc(path).authenticators(host)):
            return entry[0], entry[2] or ""
    return None
