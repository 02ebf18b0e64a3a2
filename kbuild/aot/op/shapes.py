"""The words of a tensor's shape, as `"*rows N"` or `"Z cdiv(N, 2)"`."""

from __future__ import annotations

import re
from collections.abc import Collection

from kbuild.aot.manifest.reader import NAME
from kbuild.errors import ManifestError

MAX_RANK = 16
"""Dimensions that a tensor may have."""


def words_of(text: str) -> tuple[str, ...]:
    """The words of a shape: they are separated by spaces outside of parentheses."""
    words: list[str] = []
    depth, fresh = 0, True
    for letter in text:
        if letter.isspace() and not depth:
            fresh = True
            continue
        depth += {"(": 1, ")": -1}.get(letter, 0)
        words = [*words, letter] if fresh else [*words[:-1], words[-1] + letter]
        fresh = False
    return tuple(words)


def check_words(words: Collection[str], is_input: bool, where: str) -> None:
    """Check the words of a shape; those of inputs introduce names.

    Raises ManifestError; expressions, which outputs and workspaces may have, are checked by who knows their scope.
    """
    packs = [word for word in words if word.startswith("*")]
    if len(packs) > 1:
        raise ManifestError(
            f"{where}: {' and '.join(packs)} both stand for any number of dimensions", help="keep one of them"
        )
    if len(words) > MAX_RANK:
        raise ManifestError(f"{where}: {len(words)} dimensions; {MAX_RANK} are allowed")
    for word in words:
        if is_input and not is_name(word.removeprefix("*")) and not word.isdigit():
            raise ManifestError(
                f'{where}: "{word}" is neither the name of a dimension nor a whole number',
                help='write "Z H N D", "*rows N" or "N 4"',
            )


def is_name(word: str) -> bool:
    """Whether a word names a dimension."""
    return re.fullmatch(NAME, word) is not None
