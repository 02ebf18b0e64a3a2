"""Shards and merges that are interrupted at random, and go on: the wheel of a single build.

`python bench/scale/interrupt.py` does it a hundred times.
"""

from __future__ import annotations

import random
from pathlib import Path

import interrupt


def test_interrupted_shards_make_the_same_wheel(tmp_path: Path) -> None:
    site = interrupt.Site(tmp_path, 36, 2)
    assert interrupt.interrupted(site, 6, random.Random(5)) == site.single()
