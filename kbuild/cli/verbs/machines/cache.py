"""`kbuild cache`: what the caches of cubins hold, and entries moved between them."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from kbuild.aot.build import project as builder
from kbuild.aot.build.cache import CAPACITY, Cache
from kbuild.aot.build.progress import Progress
from kbuild.aot.environment import Remote, cache_capacity, cache_directory, size
from kbuild.aot.manifest.load import load
from kbuild.aot.remote import address, transfer
from kbuild.aot.remote.sharing import keys_of
from kbuild.aot.remote.store import StoreError
from kbuild.cli.verbs.build import progress_of, remote_of, request_of
from kbuild.cli.verbs.show import size_of
from kbuild.errors import ToolError, UsageError

_DAY = 24 * 3600


def run(options: argparse.Namespace) -> int:
    options.platform, options.remote, options.remote_jobs, options.remote_only = "", "", 0, False
    actions: dict[str, Callable[[argparse.Namespace], int]] = {
        "stats": _stats,
        "gc": _gc,
        "push": _push,
        "pull": _pull,
        "verify": _verify,
    }
    return actions[options.action](options)


def _stats(options: argparse.Namespace) -> int:
    found: dict[str, Any] = {}
    if (cache := _local(options)) is not None:
        times, sizes = _sizes(cache)
        found["local"] = {
            "directory": str(cache.root),
            "entries": len(sizes),
            "bytes": sum(sizes),
            "capacity": cache.capacity,
            "oldest_use_days": round((time.time() - min(times)) / _DAY, 1) if times else None,
        }
    if (remote := remote_of(options)) is not None and remote.cache:
        found["shared"] = {"url": _name(remote), "mode": "read-only" if remote.is_read_only else "read-write"}
        try:
            found["shared"] |= transfer.describe(remote)
        except StoreError as error:
            found["shared"]["error"] = str(error)
    if options.json:
        print(json.dumps(found, indent=1))
    elif not options.quiet:
        print("\n".join(_in_words(found)) or "no cache is used")
    return 1 if "error" in found.get("shared", {}) else 0


def _in_words(found: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    if local := found.get("local"):
        used = f", the oldest used {local['oldest_use_days']} days ago" if local["entries"] else ""
        room = f"{size_of(local['bytes'])} of {size_of(local['capacity'])}"
        lines.append(f"{local['directory']}: {local['entries']} entries, {room}{used}")
    if shared := found.get("shared"):
        rest = ", ".join(f"{name}: {value}" for name, value in shared.items() if name not in ("url", "mode"))
        lines.append(f"{shared['url']}: {shared['mode']}, {rest}")
    return lines


def _gc(options: argparse.Namespace) -> int:
    """Clears the cache on this machine, or the shared directory that `--cache` names."""
    cache = _directory(options)
    if options.max_size:
        cache.capacity = size("--max-size", options.max_size)
    before = sum(_sizes(cache)[1])
    removed = 0 if options.dry_run else cache.trim()
    left = sum(_sizes(cache)[1])
    if options.json:
        print(json.dumps({"removed": removed, "bytes_removed": before - left, "bytes": left}, indent=1))
    elif not options.quiet:
        print(f"{cache.root}: {removed} entries removed, {size_of(before - left)}; {size_of(left)} left")
    return 0


def _push(options: argparse.Namespace) -> int:
    cache, remote = _required(options), _shared(options)
    keys = list(cache.all_keys()) if options.all else _keys(options)
    return _said(options, "sent", transfer.push(keys, cache, remote, progress_of(options), options.dry_run))


def _pull(options: argparse.Namespace) -> int:
    cache, remote = _required(options), _shared(options)
    return _said(
        options,
        "fetched",
        transfer.pull(_keys(options), cache, remote, progress_of(options), options.dry_run),
    )


def _said(options: argparse.Namespace, what: str, moved: transfer.Moved) -> int:
    if options.json:
        print(json.dumps(asdict(moved), indent=1))
    elif not options.quiet:
        would = "would be " if options.dry_run else ""
        rest = f"{moved.there} were there already, {moved.absent} are not to be had, {moved.failed} failed"
        print(f"{moved.moved} entries {would}{what}, {size_of(moved.bytes)}; {rest}")
    return 1 if moved.failed else 0


def _verify(options: argparse.Namespace) -> int:
    damaged: list[str] = []
    whole, wrong, right = 0, list[str](), 0
    if (cache := _local(options)) is not None:
        cache.is_read_only = options.dry_run
        for key in cache.all_keys():
            if cache.get(key) is None:
                damaged.append(key)
            else:
                whole += 1
    remote = remote_of(options)
    if remote is not None and remote.cache:
        keys = list(cache.all_keys()) if options.all and cache is not None else _keys(options)
        try:
            wrong, right = transfer.wrong(keys, remote, progress_of(options))
        except StoreError as error:
            raise ToolError(f"{_name(remote)}: {error}") from None
    if options.json:
        print(json.dumps({"damaged": damaged, "whole": whole, "wrong": wrong, "right": right}, indent=1))
    elif not options.quiet:
        done = "" if options.dry_run else " and removed"
        lines = [f"{whole} entries here are whole, {len(damaged)} were damaged{done}"] if cache else []
        lines += (
            [f"{_name(remote)}: {right} entries are right, {len(wrong)} are not"]
            if remote and remote.cache
            else []
        )
        print("\n".join([*lines, *(f"wrong: {key}" for key in wrong)]))
    return 1 if damaged or wrong else 0


def _local(options: argparse.Namespace) -> Cache | None:
    """The cache on this machine."""
    directory = cache_directory(options.environment)
    return Cache(directory, cache_capacity(options.environment, CAPACITY)) if directory else None


def _required(options: argparse.Namespace) -> Cache:
    if (cache := _local(options)) is None:
        raise UsageError(
            "this machine has no cache", help="unset KBUILD_DISABLE_CACHE, or set KBUILD_CACHE_DIR"
        )
    return cache


def _directory(options: argparse.Namespace) -> Cache:
    """The cache that is a directory: the one that `--cache` names, or else this machine's."""
    if not options.cache_url:
        return _required(options)
    where = address.parse("--cache", options.cache_url, address.CACHES)
    if where.scheme != "file":
        raise UsageError(
            f"{where.shown} is cleared by its server", help="gc is for directories: --cache file:///path"
        )
    return Cache(where.directory, cache_capacity(options.environment, CAPACITY))


def _shared(options: argparse.Namespace) -> Remote:
    remote = remote_of(options)
    if remote is None or not remote.cache:
        raise UsageError("no shared cache is named", help="give --cache URL, or set KBUILD_CACHE_URL")
    return remote


def _name(remote: Remote) -> str:
    return address.parse(address.CACHE, remote.cache, address.CACHES).shown


def _keys(options: argparse.Namespace) -> list[str]:
    """The keys of all that the project's variants need."""
    asked = request_of(options)
    manifest = load(asked.project / builder.MANIFEST, asked.display)
    names = asked.kernels or tuple(kernel.name for kernel in manifest.kernels)
    # By name, for no package is made, which would need a C compiler.
    planned = builder.build(replace(asked, kernels=names, dry_run=True, remote=None), Progress(sys.stderr))
    return list(dict.fromkeys(key for job in planned.jobs for key, _ in keys_of(job)))


def _sizes(cache: Cache) -> tuple[list[float], list[int]]:
    """The times of last use of all entries, and their sizes in bytes."""
    statuses = [path.lstat() for key in cache.all_keys() if (path := cache.entry(key)).exists()]
    return [status.st_mtime for status in statuses], [status.st_size for status in statuses]
