"""Calls that differ in one thing from remembered ones get the row that is looked for."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.cli.adopting.serving.calls import Calls
from tests.cli.adopting.serving.tensors import Tensor


def options_of_calls(calls: Calls) -> dict[str, tuple[list[list[Any]], list[dict[str, Any]]]]:
    """By kernel, what there is to choose from for each argument, and the keywords that go with them."""
    arrays = [
        *[calls.tensor(dtype) for dtype in (np.float32, np.float16, np.int32)],
        *[calls.tensor(dtype, offset=1) for dtype in (np.float32, np.float16)],
        calls.tensor(np.float32, device=1),
        None,
        4096,
        np.ones(4096, np.float32),
    ]
    numbers = [4096, 1000, 512, 100, 1, 0, -16, 1 << 31, 1 << 64, True, 512.0, None, np.int64(512), calls.x]
    blocks = [512, 512.0, 128, 2048, 1024, None, True]
    norms = [
        {"HAS_WEIGHT": flag, "BLOCK": 512, **more}
        for flag in (True, False, 1)
        for more in ({}, {"num_warps": 8})
    ]
    return {
        "add_kernel": ([arrays] * 3 + [numbers], [{"BLOCK": block} for block in blocks]),
        "scale_kernel": ([arrays] * 2 + [numbers, [0.5, 1, 2.0, True, None, "x"]], [{"BLOCK": 1024}, {}]),
        "gelu_kernel": (
            [arrays] * 2 + [numbers],
            [{"APPROXIMATE": word, "BLOCK": 1024} for word in ("tanh", "none", "", None)],
        ),
        "softmax_kernel": (
            [arrays] * 2 + [numbers] * 2,
            [
                {"BLOCK": block, **more}
                for block in blocks
                for more in ({}, {"num_warps": 8}, {"num_ctas": 2})
            ],
        ),
        "rms_norm_kernel": ([arrays] * 3 + [[512, 2048, 100, 1, 512.0]] * 2, norms),
        "matmul_kernel": ([arrays] * 3 + [[64, 100, 1, 64.0, True]] * 3, [{}, {"num_stages": 2}]),
    }


@pytest.mark.parametrize("way", ["installed", "by name"])
def test_calls_that_differ_in_one_thing_get_the_row_that_is_looked_for(calls: Calls, way: str) -> None:
    """Each call of a walk differs in one value from the one before it, and there is one that is answered in between."""
    chance = random.Random(way)
    answered, refused, remembered = 0, 0, 0
    for name, (choices, keywords) in options_of_calls(calls).items():
        usual, options = [each[0] for each in choices], keywords[0]
        if name == "rms_norm_kernel":
            usual[3:] = [512, 512]
        for _ in range(200):
            args, kwargs = list(usual), options
            for _ in range(chance.choice((0, 0, 1, 1, 2))):
                place = chance.randrange(len(args) + 1)
                if place < len(args):
                    args[place] = chance.choice(choices[place])
                else:
                    kwargs = chance.choice(keywords)
            if chance.random() < 0.3:
                args = [
                    chance.choice(choices[0][:5]) if isinstance(one, Tensor) and one is args[0] else one
                    for one in args
                ]
            kernel = calls.kernel(name) if way == "installed" else getattr(calls.package.triton, name)
            try:
                right = calls.row(name, args, kwargs)
            except Exception as error:
                right = type(error)
            before = calls.asked
            try:
                found = kernel[(0,)](*args, **kwargs)
            except calls.error:
                found = None
                refused += 1
            else:
                answered += 1
                remembered += calls.asked == before
            assert found is (None if isinstance(right, type) else right), (name, args, kwargs)
    assert answered > 400 and refused > 400 and remembered > 300
