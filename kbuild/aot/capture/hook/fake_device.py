"""A device for Triton that does nothing, and a compiler that compiles nothing: what a library asks for can be recorded on
a machine without a GPU, as far as the library lets its kernels be launched there.

Results of kernels are whatever memory held, all calls take as long, and of a tuner's configurations the first is taken.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

_PROPERTIES = {
    "max_shared_mem": 232_448,
    "max_num_regs": 65_536,
    "multiprocessor_count": 132,
    "warpSize": 32,
    "sm_clock_rate": 1_980_000,
    "mem_clock_rate": 2_619_000,
    "mem_bus_width": 5_120,
}
"""Those of a Hopper, which heuristics of libraries ask for."""


def use(compiler: ModuleType, arch: str) -> None:
    """Puts the device and the compiler in the place of Triton's; `compiler` is `triton.compiler`."""
    number = int(arch.removeprefix("sm_"))
    target: Any = sys.modules["triton.backends.compiler"].__dict__["GPUTarget"]
    active: Any = sys.modules["triton.runtime.driver"].__dict__["driver"]
    active.set_active(FakeDevice(target("cuda", number, 32)))
    for module in (compiler, sys.modules.get("triton.compiler.compiler")):
        if module is not None:
            module.__dict__["compile"] = _compile


def use_times(testing: ModuleType) -> None:
    """Has the functions of `triton.testing` that time calls take none, as by tuners that bring their own times to spend."""
    for name in ("do_bench", "do_bench_cudagraph"):
        testing.__dict__[name] = _do_bench


def _do_bench(
    fn: Callable[[], Any],
    *_: Any,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
    **__: Any,
) -> Any:
    """A millisecond, in the form of Triton's functions; the call is made, for what it launches."""
    fn()
    if quantiles is not None and len(quantiles) != 1:
        return [1.0] * len(quantiles)
    return [1.0] if return_mode == "all" else 1.0


class FakeDevice:
    """What Triton asks of its driver."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self.utils = SimpleNamespace(get_device_properties=lambda _=0: dict(_PROPERTIES))
        self.binary_ext = "cubin"

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        """There is one."""

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return divmod(self._target.arch, 10)

    def get_active_torch_device(self) -> Any:
        return sys.modules["torch"].device("cpu")

    def get_device_interface(self) -> Any:
        return SimpleNamespace(synchronize=lambda: None, current_device=lambda: 0)

    def get_benchmarker(self) -> Any:
        return lambda call, *, quantiles=(0.5,), **_: [1.0] * len(quantiles)

    def get_empty_cache_for_benchmark(self) -> Any:
        return None

    def clear_cache(self, cache: Any) -> None:
        """There is none."""

    def map_python_to_cpp_type(self, type_: str) -> str:
        return "void*" if type_.startswith("*") else type_

    @classmethod
    def is_active(cls) -> bool:
        return True


class FakeKernel:
    """A compiled kernel without code."""

    def __init__(self, source: Any, target: Any, options: Any) -> None:
        given = dict(options or {})
        self.src = source
        self.name = getattr(source, "name", "")
        self.metadata = SimpleNamespace(**{**given, "name": self.name, "shared": 0, "target": target})
        self.packed_metadata = ()
        self.asm: dict[str, Any] = {}
        self.hash = ""
        self.module = self.function = 0
        self.n_regs, self.n_spills, self.n_max_threads = 32, 0, 1024

    def run(self, *_: Any) -> None:
        """A launch."""

    def launch_metadata(self, *_: Any) -> None:
        """For hooks of launches, which get None."""

    def _init_handles(self) -> None:
        """The code would be loaded here."""

    def __getitem__(self, grid: Any) -> Any:
        return lambda *_, **__: None


def _compile(src: Any, target: Any = None, options: Any = None, **_: Any) -> FakeKernel:
    return FakeKernel(src, target, options)
