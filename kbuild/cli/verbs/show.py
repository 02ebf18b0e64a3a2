"""How facts of cubins are printed, by more than one verb."""

from __future__ import annotations

from typing import Any


def warnings_of(fact: dict[str, Any]) -> list[str]:
    """What is not as it should be with a cubin."""
    spills = [f"spills {fact['spill_stores']} bytes of registers"] if fact["spill_stores"] or fact["spill_loads"] else []
    # ptxas tells of spills in words of its own, with the same numbers.
    return spills + [text for text in fact["warnings"] if not (spills and "spilled" in text)]


def size_of(count: int) -> str:
    """Bytes as people read them."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"
