"""Whether blocks were changed: which operations and arguments they have, and on which operands.

Changes of types and of attributes do not count: these are plain fields.
"""

from __future__ import annotations

import itertools

_TICKS = itertools.count()

tick = _TICKS.__next__
"""Called at each change."""


def mark() -> int:
    """A moment, for `changed_since`."""
    return tick()


def changed_since(moment: int) -> bool:
    """Whether blocks were changed after a moment, in whichever module: those of other threads count as well."""
    return tick() != moment + 1
