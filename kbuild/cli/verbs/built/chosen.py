"""Variants named on the command line: whole names, beginnings, parts, and patterns with `*`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from kbuild.aot.manifest.reader import suggestion
from kbuild.errors import UsageError, nearest


def chosen(words: Sequence[str], names: Iterable[str], older: Sequence[str] = ()) -> list[str]:
    """The names that one of the words means, in their order; all of them where there are no words.

    A word means the variant of that name, or else all that match it as a pattern, begin with it, or have it somewhere
    in them, whichever comes first; of the `older` names if it means none of the others.  Raises UsageError for a word
    that means none at all.
    """
    known = list(dict.fromkeys(names))
    if not words:
        return known
    wanted: set[str] = set()
    for word in words:
        found = _meant(word, known) or _meant(word, older)
        if not found:
            raise UsageError(f"no variant {word}", help=_similar(word, known) or "kbuild list shows them")
        wanted.update(found)
    return [name for name in dict.fromkeys((*known, *older)) if name in wanted]


def _meant(word: str, known: Sequence[str]) -> list[str]:
    if word in known:
        return [word]
    if any(mark in word for mark in "*?["):
        if found := [name for name in known if fnmatchcase(name, word)]:
            return found
        return [name for name in known if fnmatchcase(name, f"*{word}*")]
    # A kernel's name means that kernel, not others whose names begin like it.
    for ending in (".", ""):
        if found := [name for name in known if name.startswith(word + ending)]:
            return found
    return [name for name in known if word in name]


def _similar(word: str, known: Sequence[str]) -> str:
    """Advice for a word that means none: the kernel that is nearest, or the variant of the kernel."""
    kernel = word.partition(".")[0]
    kernels = {name.partition(".")[0] for name in known}
    if kernel not in kernels:
        return suggestion(kernel, sorted(kernels))
    close = nearest(word, [name for name in known if name.startswith(f"{kernel}.")])
    return f'did you mean "{close}"?' if close else ""
