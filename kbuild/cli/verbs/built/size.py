"""`kbuild size`: where the bytes of a wheel are, what changed since another one, and whether there are too many."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

from kbuild.aot.artifact.sizes import PARTS, Growth, WheelSizes, growth, label, largest, wheel_sizes
from kbuild.aot.build.plan import WHEEL
from kbuild.aot.build.project import BUILD
from kbuild.aot.identity import unseal
from kbuild.cli.verbs.show import size_of
from kbuild.errors import ToolError, UsageError

MAX_NAMED = 5
"""What grew most, of a wheel that is too large."""
MAX_VARIANTS = 10
"""Variants listed, unless -v asks for all."""


def run(options: argparse.Namespace) -> int:
    path = Path(options.wheel) if options.wheel else _built(Path(options.directory))
    sizes = wheel_sizes(path)
    old = wheel_sizes(Path(options.diff)) if options.diff else None
    if options.json:
        print(json.dumps(_json(sizes, old, options.max), indent=1))
    elif not options.quiet:
        print("\n".join(_summary(sizes, old) + _tables(sizes, old) + _variants(sizes, old, options.verbose)))
    if options.max is not None and sizes.total > options.max:
        raise _too_large(sizes, old, options.max)
    return 0


def _built(project: Path) -> Path:
    """The wheel of the last build."""
    build = project / BUILD
    try:
        made = unseal((build / WHEEL).read_bytes())
    except OSError:
        made = None
    if made is None or not (build / made["wheel"]).is_file():
        raise UsageError(f"no wheel was built in {project}", help="name one, or make one by kbuild wheel")
    return build / made["wheel"]


def _summary(sizes: WheelSizes, old: WheelSizes | None) -> list[str]:
    change = f", {_change(sizes.total - old.total)} since {old.name}" if old else ""
    lines = [f"{sizes.name}: {size_of(sizes.total)}{change}"]
    same = len(sizes.code) - sizes.distinct
    text = f"{len(sizes.code)} cubins and PTX texts"
    if same:
        text += (
            f", of which {same} are equal to another and stored with it, which saves {size_of(sizes.shared)}"
        )
    return [*lines, text]


def _tables(sizes: WheelSizes, old: WheelSizes | None) -> list[str]:
    lines: list[str] = []
    rows: list[tuple[str, Mapping[str, int], Mapping[str, int]]] = [
        (f"by {name}", sizes.by(part), old.by(part) if old else {}) for name, part in PARTS.items()
    ]
    rows.append(("besides code", sizes.other, old.other if old else {}))
    counts = {name: _counts(sizes, name) for name in PARTS}
    for title, after, before in rows:
        changes = growth(before, after) if old else [Growth(name, 0, size) for name, size in after.items()]
        lines.append(f"\n{title}")
        number = counts.get(title.removeprefix("by "), {})
        lines += [_row(one, sizes.total, number.get(one.name), bool(old)) for one in changes]
    return lines


def _counts(sizes: WheelSizes, name: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in sizes.code:
        key = PARTS[name](one)
        found[key] = found.get(key, 0) + 1
    return found


def _row(one: Growth, total: int, count: int | None, has_old: bool) -> str:
    counted = f"{count:>6}" if count is not None else " " * 6
    row = f"  {one.name:<34} {counted} {size_of(one.after):>10} {100 * one.after / max(total, 1):>5.1f} %"
    return f"{row} {_change(one.bytes):>11}" if has_old else row


def _variants(sizes: WheelSizes, old: WheelSizes | None, is_verbose: bool) -> list[str]:
    """The largest variants, or those that changed most."""
    after, before = (each.by(label) if each else {} for each in (sizes, old))
    changes = [one for one in growth(before, after) if one.bytes]
    if old:
        changes.sort(key=lambda one: -abs(one.bytes))
    shown = changes if is_verbose else changes[:MAX_VARIANTS]
    if not shown:
        return []
    title = "variants that changed most" if old else "largest variants"
    lines = [
        f"\n{title}",
        *(f"  {_change(one.bytes) if old else size_of(one.after):>10}  {one.name}" for one in shown),
    ]
    left = len(changes) - len(shown)
    return [*lines, f"  and {left} more; -v shows them"] if left else lines


def _change(count: int) -> str:
    return f"{'-' if count < 0 else '+'}{size_of(abs(count))}"


def _too_large(sizes: WheelSizes, old: WheelSizes | None, limit: int) -> ToolError:
    """The error for a wheel above its limit, with what grew most, or what is largest."""
    found = largest(sizes, old, MAX_NAMED)
    what = f"grew most since {old.name}" if old else "are largest"
    names = ", ".join(f"{one.name} ({_change(one.bytes) if old else size_of(one.after)})" for one in found)
    return ToolError(
        f"{sizes.name} has {size_of(sizes.total)}, {size_of(sizes.total - limit)} more than --max {size_of(limit)}",
        help=f"these {what}: {names}" if found else f"nothing grew since {old.name if old else ''}",
    )


def _json(sizes: WheelSizes, old: WheelSizes | None, limit: int | None) -> dict[str, object]:
    def table(each: WheelSizes) -> dict[str, object]:
        return {
            "wheel": each.name,
            "bytes": each.total,
            **{f"by_{name}": each.by(part) for name, part in PARTS.items()},
            "other": dict(each.other),
            "entries": len(each.code),
            "distinct": each.distinct,
            "saved": each.shared,
            "variants": each.by(label),
        }

    found = table(sizes)
    if old:
        found["old"] = table(old)
        found["growth"] = {one.name: one.bytes for one in largest(sizes, old, len(sizes.code) + 10)}
    if limit is not None:
        found |= {"max": limit, "fits": sizes.total <= limit}
    return found
