"""The words of a tensor's shape, as `"*rows N"` or `"Z cdiv(N, 2)"`."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence

from kbuild.aot.manifest.reader import NAME
from kbuild.errors import ManifestError

MAX_RANK = 16
"""Dimensions that a tensor may have."""
MAX_TENSORS = 48
"""Tensors that an operator may have."""
MAX_SIZE = 2**63 - 1
"""The largest size of a dimension."""


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


def check_words(words: Sequence[str], is_input: bool, where: str) -> None:
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
    for word in words if is_input else ():
        name = word.removeprefix("*")
        if keyword.iskeyword(name) or name.startswith("_"):
            what = "begins with _" if name.startswith("_") else "is a word of Python"
            raise ManifestError(f'{where}: "{word}" {what}', help="give the dimension another name")
        if not is_name(name) and not is_size(word):
            raise ManifestError(
                f'{where}: "{word}" is neither the name of a dimension nor a whole number',
                help='write "Z H N D", "*rows N" or "N 4"',
            )


def is_name(word: str) -> bool:
    """Whether a word names a dimension."""
    return re.fullmatch(NAME, word) is not None


def is_size(word: str) -> bool:
    """Whether a word is the size of a dimension itself."""
    return re.fullmatch("0|[1-9][0-9]*", word) is not None and int(word) <= MAX_SIZE
