"""Damage to texts that is made without understanding them."""

from __future__ import annotations

import random
import re

_WORD = re.compile(rb"[A-Za-z_][\w.]*|\d+|[^\w\s]")
_STRANGE = (
    b"\x00",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    "é".encode(),
    b"\t",
    b"\r",
    b"\n\n",
    b"#",
    b'"',
    b"'''",
    b"9" * 20,
    b"-1",
    b"0",
    b"(",
    b")",
    b"[",
    b"]",
    b"{",
    b"}",
    b"=",
    b"==",
    b",",
    b":",
    b"%",
    b"//",
    b"*",
    b"None",
    b"lambda: 0",
)


def damaged(text: bytes, random_: random.Random) -> bytes:
    """The text with one to three words, lines or bytes changed."""
    for _ in range(random_.choice((1, 1, 2, 3))):
        text = _once(text, random_)
    return text


def _once(text: bytes, random_: random.Random) -> bytes:
    words = list(_WORD.finditer(text))
    lines = text.split(b"\n")
    kind = random_.randrange(9)
    if not words or kind == 0:
        index = random_.randrange(len(text) + 1)
        return text[:index] + random_.choice(_STRANGE) + text[index:]
    if kind == 1:
        index = random_.randrange(len(text) or 1)
        return text[:index] + bytes([random_.randrange(256)]) + text[index + 1 :]
    if kind == 2:
        return text[: random_.randrange(len(text) + 1)]
    if kind == 3:  # A line doubled, taken out, or moved.
        line = lines.pop(random_.randrange(len(lines)))
        for _ in range(random_.randrange(3)):
            lines.insert(random_.randrange(len(lines) + 1), line)
        return b"\n".join(lines)
    word = random_.choice(words)
    if kind == 4:
        new = b""
    elif kind == 5:
        new = random_.choice(_STRANGE)
    elif kind == 6:
        new = word[0] + b" " + word[0]
    else:  # Another word of the same text: what fits the grammar, and means something else.
        new = random_.choice(words)[0]
    return text[: word.start()] + new + text[word.end() :]
