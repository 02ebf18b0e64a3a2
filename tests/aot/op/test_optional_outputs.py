"""Outputs that are computed only where somebody asks for them, on the fake driver."""

from __future__ import annotations

import numpy as np

from tests.aot.op.test_operators import floats


def test_optional_outputs_are_computed_where_one_is_asked_for(ops, driver) -> None:
    """Others than the caller may ask: torch's dispatcher takes all outputs, as gradients may need them."""
    x = floats(70, 100)
    arrays = [driver.array(array) for array in (x, np.ones(100, np.float32), np.zeros(100, np.float32))]

    def given() -> list[bool]:
        return [any(argument) for argument in driver.launches[-1].arguments[4:6]]

    y = ops.normalise(*arrays).copy_to_host()
    assert given() == [False, False], "null pointers"
    mean = driver.empty(70, np.float32)
    assert (ops.normalise(*arrays, mean=mean).copy_to_host() == y).all() and given() == [True, True]
    assert abs(mean.copy_to_host() - x.mean(-1)).max() < 1e-6
    every = ops._launcher._run.normalise(*arrays, 1e-5, None, None, None, None)
    assert given() == [True, True] and (every[0].copy_to_host() == y).all()
    assert abs(every[2].copy_to_host() * x.std(-1) - 1).max() < 1e-4


def test_launches_depend_on_optional_outputs(ops, driver, capsys) -> None:
    """An explanation shows what the call itself would launch."""
    arrays = [driver.array(array) for array in (floats(2, 100), floats(100), floats(100))]
    for outputs, count in (({}, 1), ({"rstd": driver.empty(2, np.float32)}, 1)):
        before = len(driver.launches)
        ops.normalise(*arrays, **outputs)
        assert len(driver.launches) - before == count
        ops.explain("normalise", *arrays, **outputs)
        assert capsys.readouterr().out.count(": taken") == count
