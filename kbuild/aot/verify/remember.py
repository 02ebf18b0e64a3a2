"""Checks that found nothing wrong, in the cache: verifying what has not changed costs nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from kbuild.aot.build.cache import Cache
from kbuild.aot.identity import canonical_json
from kbuild.aot.verify.verdict import Check, decode_checks


def recall(cache: Cache, key: str) -> tuple[Check, ...] | None:
    """The checks stored under a key; None if there are none, or others than this version writes."""
    parts = cache.get(key)
    if parts is None or "checks" not in parts:
        return None
    try:
        return decode_checks(json.loads(parts["checks"]))
    except (ValueError, KeyError, TypeError):
        return None


def remember(cache: Cache, key: str, checks: Sequence[Check]) -> None:
    """Store checks under a key, if the cache can."""
    cache.put(key, {"checks": canonical_json([asdict(check) for check in checks])})
