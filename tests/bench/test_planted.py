"""The mistakes that bench/fuzz/fuzz_planted.py plants in the compiler."""

from __future__ import annotations

from pathlib import Path

import fuzz_planted
import pytest

COMPILER = Path(fuzz_planted.ROOT) / "kbuild/compiler"


@pytest.mark.parametrize("plant", fuzz_planted.PLANTS, ids=lambda plant: plant.name)
def test_the_code_that_a_mistake_replaces_is_there_once(plant: fuzz_planted.Plant) -> None:
    assert (COMPILER / plant.file).read_text().count(plant.right) == 1
