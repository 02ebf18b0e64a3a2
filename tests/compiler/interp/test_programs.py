"""Programs that wait for each other have turns; where none can go on, the interpreter says what each waits
for."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbuild.compiler import interp
from kbuild.compiler.frontend import build_module
from kbuild.compiler.interp import machine, programs
from kbuild.errors import InterpretError

KERNELS = Path(__file__).with_name("waiting.py")


def run(name: str, grid: int, arguments: dict[str, Any], **constexprs: int) -> None:
    signature = interp.signature_of(arguments)
    interp.run(build_module(f"{KERNELS}:{name}", signature, constexprs), arguments, (grid,))


def ints(size: int, value: int = 0) -> np.ndarray:
    return np.full(size, value, np.int32)


def test_the_first_program_waits_for_those_behind_it() -> None:
    x, out = np.arange(100, dtype=np.int32), ints(1)
    run("stream_k_kernel", 7, {"x": x, "parts": ints(7), "locks": ints(7), "out": out, "n": 100}, BLOCK=16)
    assert out[0] == x.sum()


def test_each_program_waits_for_the_next() -> None:
    x, out = np.arange(100, dtype=np.int32), ints(100)
    run("look_back_kernel", 7, {"x": x, "sums": ints(7), "flags": ints(7), "out": out, "n": 100}, BLOCK=16)
    np.testing.assert_array_equal(out, np.cumsum(x))


def test_all_programs_meet() -> None:
    x, out = np.arange(80, dtype=np.int32), ints(80)
    run("grid_barrier_kernel", 5, {"x": x, "count": ints(1), "out": out, "n": 80}, BLOCK=16)
    np.testing.assert_array_equal(out, np.roll(2 * np.arange(80), -16))


def test_more_programs_than_may_wait_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "MAX_WAITING", 2)
    x, out = np.arange(100, dtype=np.int32), ints(1)
    run("stream_k_kernel", 7, {"x": x, "parts": ints(7), "locks": ints(7), "out": out, "n": 100}, BLOCK=16)
    assert out[0] == x.sum()


def test_a_lock_that_is_free_costs_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "Thread", None)
    total = ints(1)
    run("spin_lock_kernel", 6, {"lock": ints(1), "total": total, "n": 1})
    assert total[0] == 15


def test_a_loop_that_counts_its_rounds_gives_way_too() -> None:
    out = ints(1)
    run("patient_kernel", 2, {"flag": ints(1), "out": out, "tries": 1000})
    assert out[0] == 7
    run("patient_kernel", 1, {"flag": ints(1), "out": out, "tries": 1000})
    assert out[0] == 0


def test_a_deadlock_says_which_loops_wait_for_what() -> None:
    before = threading.active_count()
    with pytest.raises(InterpretError) as caught:
        run("deadlock_kernel", 2, {"flags": ints(4), "out": ints(1)})
    line = 1 + next(
        place for place, text in enumerate(KERNELS.read_text().splitlines()) if "flags + 3 * other" in text
    )
    message = str(caught.value)
    assert f"waiting.py:{line}:" in message.splitlines()[0] and "no program can go on" in message
    assert "program (0, 0, 0)" in message and "reads flags[3], which is 0" in message
    assert "program (1, 0, 0)" in message and "reads flags[0], which is 0" in message
    assert threading.active_count() == before


def test_a_lock_that_is_never_released() -> None:
    with pytest.raises(
        InterpretError, match=r"reads lock\[0\], which is 1(.|\n)*begin as zeros\? The programs read: lock"
    ):
        run("spin_lock_kernel", 2, {"lock": ints(1, 1), "total": ints(1), "n": 1})


def test_a_program_that_fails_ends_those_that_wait() -> None:
    before = threading.active_count()
    with pytest.raises(InterpretError, match=r"x\[16\], of 16 elements"):
        run(
            "stream_k_kernel",
            3,
            {"x": ints(16), "parts": ints(3), "locks": ints(3), "out": ints(1), "n": 48},
            BLOCK=16,
        )
    assert threading.active_count() == before


def test_a_loop_that_looks_at_no_memory_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MAX_ROUNDS", 100)
    with pytest.raises(InterpretError, match="a loop has no end after 100 rounds"):
        run("patient_kernel", 1, {"flag": ints(1), "out": ints(1), "tries": 1000})


class State:
    """Something whose parts may change."""


STATE = State()


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        (float("1.5"), float("1.5"), True),
        (3, 4, False),
        (3, 3.0, False),
        (STATE, STATE, True),
        (State(), State(), False),
        (np.float32(np.nan), np.float32(np.nan), True),
        (np.arange(3), np.arange(3), True),
        (np.arange(3), np.arange(4), False),
    ],
)
def test_a_loop_that_changes_nothing_waits(before: object, after: object, same: bool) -> None:
    assert programs._is_same(before, after) == same
