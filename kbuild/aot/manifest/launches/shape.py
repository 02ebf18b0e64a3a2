"""Blocks and dynamic shared memory of kernels in CUDA C++, whose manifest says them by expressions.

block = ["BM / TM * (BN / TN)"], shared = "2 * BM * BK * T_bytes"   ▶   block 256, shared 16384 of a variant
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache

from kbuild.aot.manifest.expressions import Expression, ExpressionFault, evaluate, parse
from kbuild.aot.manifest.model import DTYPES, Kernel, Value
from kbuild.errors import UsageError
from kbuild.options import CUDA, MAX_THREADS, CompileOptions, block_text, by_name, is_block

BYTES = "_bytes"
"""What follows the name of a compile-time type in the name for the size of its elements."""


class LaunchShapeError(UsageError):
    """A block or an amount of shared memory that no launch can have; `key` is that of the manifest."""

    def __init__(self, key: tuple[str | int, ...], message: str) -> None:
        super().__init__(message)
        self.key = key


def with_launch_shape(kernel: Kernel, options: CompileOptions, values: Mapping[str, Value]) -> CompileOptions:
    """The options of a variant with these compile-time values.  Raises `LaunchShapeError`."""
    if kernel.language != CUDA:
        return options
    known = integers_of(values)
    block = [_value(("block", axis), text, known) for axis, text in enumerate(kernel.block)]
    if not is_block(block):
        shown = ", ".join(map(str, block))
        raise LaunchShapeError(
            ("block",),
            f"is [{shown}]{_where(kernel.block, known)}, and a block has 1 to {MAX_THREADS} threads, up to 64 of them along z",
        )
    shared = _value(("shared",), kernel.shared, known)
    limit = by_name("shared")
    assert limit is not None
    if not limit.is_legal(shared):
        raise LaunchShapeError(
            ("shared",), f"is {shared}{_where([kernel.shared], known)}, and has to be {limit.expected}"
        )
    x, y, z = (*block, 1, 1)[:3]
    shape = {"block": block_text((x, y, z)), "shared": shared, "include": ",".join(kernel.include) or None}
    return options.changed(shape)


def integers_of(values: Mapping[str, Value]) -> dict[str, int]:
    """What expressions may name: compile-time integers, and the sizes of elements of compile-time types."""
    found = {name: int(value) for name, value in values.items() if isinstance(value, int)}
    return found | {f"{name}{BYTES}": _bytes(value) for name, value in values.items() if value in DTYPES}


def _bytes(word: Value) -> int:
    """The size of an element of a type such as `fp16`, `fp8e5` or `i1`."""
    match = re.match(r"[a-z]+(\d+)", str(word))
    assert match is not None
    return max(int(match[1]) // 8, 1)


@lru_cache(maxsize=256)
def _parsed(text: str, names: frozenset[str]) -> Expression:
    return parse(text, names, "")


def _value(key: tuple[str | int, ...], text: str, known: Mapping[str, int]) -> int:
    try:
        return evaluate(_parsed(text, frozenset(known)), known)
    except ExpressionFault as fault:
        raise LaunchShapeError(key, f"has no value{_where([text], known)}: {fault}") from None


def _where(texts: Collection[str], known: Mapping[str, int]) -> str:
    """The values that made it what it is: `where BM = 64`."""
    names = sorted({name for text in texts for name in _parsed(text, frozenset(known)).names})
    return " where " + ", ".join(f"{name} = {known[name]}" for name in names) if names else ""
