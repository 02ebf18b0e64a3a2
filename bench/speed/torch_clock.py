"""torch's current device, for the measurements of `aot/tune/interleaved.py`."""

from __future__ import annotations

from typing import Any


class TorchClock:
    """The current CUDA device, by torch's events in its current stream."""

    FLUSHED_BYTES = 256 << 20
    """As many as Triton's `do_bench` writes."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._cache = torch.empty(self.FLUSHED_BYTES // 4, dtype=torch.int, device="cuda")

    def flush(self) -> None:
        self._cache.zero_()

    def mark(self) -> Any:
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def has_passed(self, mark: Any) -> bool:
        return bool(mark.query())

    def wait(self) -> None:
        self._torch.cuda.synchronize()

    def microseconds(self, start: Any, end: Any) -> float:
        return float(start.elapsed_time(end)) * 1e3
