"""Interleaved timing of a GPU's kernels, with simulated devices."""

from __future__ import annotations

import collections
from collections.abc import Callable

import pytest

from kbuild.aot.tune import interleaved
from kbuild.errors import ToolError


class Device:
    """A queue that runs later than it is filled: commands cost the process `host` microseconds, launches what
    they say.

    `cool`: a launch after one of at least 100 us takes 10 % less, as with a GPU at its power limit.
    """

    FLUSH = 60.0

    def __init__(self, host: float = 1.0, cool: float = 1.0) -> None:
        self.host, self.cool = host, cool
        self.now, self.busy_until, self.before = 0.0, 0.0, 0.0
        self.launched: list[str] = []

    def _run(self, us: float) -> float:
        self.now += self.host
        self.busy_until = max(self.busy_until, self.now) + us
        return self.busy_until

    def call(self, name: str, us: float, spread: float = 0.0) -> Callable[[], None]:
        def launch() -> None:
            self.launched.append(name)
            count = self.launched.count(name)
            own = us * (self.cool if self.before >= 100 else 1.0) + spread * (count % 5 - 2)
            self.before = us
            self._run(own)

        return launch

    def flush(self) -> None:
        self._run(self.FLUSH)

    def mark(self) -> float:
        return self._run(0.0)

    def has_passed(self, mark: float) -> bool:
        return self.now >= mark

    def wait(self) -> None:
        self.now = max(self.now, self.busy_until)

    def microseconds(self, start: float, end: float) -> float:
        return end - start


def test_everyone_runs_once_in_each_round_and_after_everyone_else() -> None:
    device = Device()
    calls = {name: device.call(name, us, spread=1.0) for name, us in (("a", 10.0), ("b", 20.0), ("c", 50.0))}
    assert interleaved.interleave(calls, device, rounds=300) == pytest.approx(
        {"a": 10.0, "b": 20.0, "c": 50.0}
    ), "medians"
    launched = device.launched[3:]
    rounds = [tuple(launched[start : start + 3]) for start in range(0, len(launched), 3)]
    assert len(rounds) == 300 and all(sorted(one) == ["a", "b", "c"] for one in rounds)
    orders = collections.Counter(rounds)
    assert len(orders) == 6 and min(orders.values()) > 25, "all six orders, about as often"
    again = Device()
    interleaved.interleave({name: again.call(name, 10.0) for name in "abc"}, again, rounds=300)
    assert again.launched == device.launched, "the same orders in every run"


def test_no_call_gains_by_which_one_ran_before() -> None:
    device = Device(cool=0.9)
    calls = {
        "ours": device.call("ours", 50.0),
        "theirs": device.call("theirs", 50.0),
        "slow": device.call("slow", 200.0),
    }
    found = interleaved.interleave(calls, device, rounds=400)
    assert found["ours"] == found["theirs"]


def test_rounds_fit_the_time() -> None:
    for us, least, most in ((10.0, 1000, 1000), (4000.0, 55, 65), (90000.0, 16, 16)):
        device = Device()
        interleaved.interleave({"a": device.call("a", us), "b": device.call("b", us)}, device, seconds=0.5)
        rounds = (len(device.launched) - 2) // 2 - 3
        assert least <= rounds <= most, us


def test_a_slow_process_starts_further_ahead_or_gives_up() -> None:
    # Flush, mark, launch and mark cost the process 100 us, and the device 61.
    device = Device(host=25.0)
    assert interleaved.interleave({"a": device.call("a", 1.0)}, device, rounds=192) == {
        "a": pytest.approx(1.0)
    }
    device = Device(host=1000.0)
    with pytest.raises(ToolError, match="launches of a take longer to enqueue than to run"):
        interleaved.interleave({"a": device.call("a", 1.0)}, device, rounds=192)


def test_what_may_be_the_fastest() -> None:
    device = Device()
    times = {"far": 500.0, "near": 102.0, "best": 100.0, "behind": 110.0, "third": 103.0, "fourth": 103.5}
    calls = {name: device.call(name, us) for name, us in times.items()}
    assert interleaved.shortlist(calls, device) == ["best", "near", "third"]
    assert device.launched.count("far") == 3, "one to warm up and two to see that it is slow"


def test_launches_that_the_device_waited_for_do_not_count() -> None:
    """As where another process has the processor for a while: the device idles, then has flushes to do again."""
    device = Device()
    inner, count = device.call("a", 10.0), 0

    def held_up() -> None:
        nonlocal count
        count += 1
        if count < 60:
            device.now += 50_000.0
        inner()

    assert interleaved.interleave({"a": held_up}, device, rounds=90) == {"a": 10.0}
