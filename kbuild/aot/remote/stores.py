"""Which store a URL stands for."""

from __future__ import annotations

import importlib
from typing import Any

from kbuild.aot.environment import Remote
from kbuild.aot.remote import address
from kbuild.aot.remote.address import Address
from kbuild.aot.remote.directory import Directory
from kbuild.aot.remote.store import Store
from kbuild.errors import UsageError


def open_store(remote: Remote) -> Store:
    """The shared cache of a build; nothing is connected yet.  Raises UsageError for a URL that is none, and
    where a library is missing."""
    where = address.parse(address.CACHE, remote.cache, address.CACHES)
    if where.scheme == "file":
        return Directory(where.directory, remote.is_read_only)
    if where.scheme == "s3":
        return load("s3", where).s3_store(where, remote)
    if where.scheme in ("http", "https"):
        return load("http_store", where).Http(where, remote)
    return load("reapi", where).Reapi(where, remote)


def load(module: str, where: Address) -> Any:
    """A module of this package that needs libraries which kbuild does without otherwise."""
    try:
        return importlib.import_module(f"kbuild.aot.remote.{module}")
    except ImportError as error:
        raise UsageError(
            f"{where.shown} needs {(error.name or str(error)).partition('.')[0]}, which is not installed",
            help=f"pip install 'kbuild[{'s3' if module == 's3' else 'remote'}]'",
        ) from None
