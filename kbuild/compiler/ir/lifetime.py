"""How long operations live: those of a compilation are taken apart at its end.

Operations and values refer to each other, so that none of them dies before Python looks for cycles, and looking costs it
several times what it takes to let go of them.  Here the cycles are broken where it is known that nobody needs them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _Made(threading.local):
    """The operations that the compilation of this thread has made."""

    ops: list[Any] | None = None
    """None outside of compilations, whose callers keep what they make."""


MADE = _Made()


@contextmanager
def taken_apart_later() -> Iterator[None]:
    """Take all operations apart that are made inside, those of erased and inlined code included."""
    outer, MADE.ops = MADE.ops, []
    try:
        yield
    finally:
        made, MADE.ops = MADE.ops, outer
        for op in made:
            for region in op.regions:
                region.arguments.clear()
            vars(op).clear()
