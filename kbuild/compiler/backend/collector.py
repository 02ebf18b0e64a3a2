"""When Python gives memory back while a kernel is compiled."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collected_later() -> Iterator[None]:
    """Leave cyclic garbage until the end.

    The IR is one cycle, of which little dies before the kernel is compiled: looking for what has died takes a tenth of
    Python's time.  Compilations in other threads may end this early, which only costs them that time.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
