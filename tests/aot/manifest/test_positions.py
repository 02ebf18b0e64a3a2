"""Every table, key and element that the TOML reader gives has the line it stands on."""

from __future__ import annotations

import tomli

from kbuild.aot.manifest.positions import Path, positions
from tests.aot.conftest import MANIFEST

ODD = '''\
# [not.a.table]
"quoted key" = 1                      # line 2
a.b.'c d' = "x = [1] # no comment"    # line 3
text = """
[neither = this]
""\\"""" # line 6
lists = [ # line 7
  [1, 2],
  # between
  [{x = 1, y = [2,
     3]}, ], # line 11
]
literal = \'\'\'
k = 1\'\'\'
[t]  # line 15
empty = []
date = 2020-01-01T00:00:00.5Z
number = -1.5e-3
[[t.array]] # line 19
k = {a.b = 1, c = {}}
[[t.array]]
k = 2
[t.array.sub] # line 23
k = 3
[ spaced . "out" ] # line 25
k = true
'''


def paths(value: object, path: Path = ()) -> set[Path]:
    """The paths of everything within a value."""
    found = {path}
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found |= paths(inner, (*path, key))
    return found


def test_lines_of_odd_but_good_texts() -> None:
    lines = positions(ODD)
    assert (
        lines[("quoted key",)] == 2
        and lines[("a", "b", "c d")] == 3
        and lines[("text",)] == 4
        and lines[("lists",)] == 7
    )
    assert (
        lines[("lists", 0)] == 8
        and lines[("lists", 1, 0, "y", 0)] == 10
        and lines[("lists", 1, 0, "y", 1)] == 11
    )
    assert lines[("literal",)] == 13 and lines[("t",)] == 15 and lines[("t", "number")] == 18
    assert lines[("t", "array", 0)] == 19 and lines[("t", "array", 0, "k", "a", "b")] == 20
    assert lines[("t", "array", 1, "k")] == 22 and lines[("t", "array", 1, "sub", "k")] == 24
    assert lines[("spaced", "out")] == 25 and lines[("spaced", "out", "k")] == 26


def test_nothing_is_left_out() -> None:
    for text in (ODD, MANIFEST, "", "a = 1", "[a]\n[b]\n", "x = {}\ny = [[], [[]]]"):
        assert paths(tomli.loads(text)) - set(positions(text)) <= {
            ("spaced",)
        }  # A table that no line names by itself.
