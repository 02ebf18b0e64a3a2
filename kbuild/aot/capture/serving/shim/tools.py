"""The rest of what wrappers of kernels call: arithmetic, the device, timing, and tensor descriptors of the host."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

_SCRATCH = 256 << 20
"""Bytes written between two timed calls, so that none finds its data in a cache."""


def cdiv(x: int, y: int) -> int:
    """The quotient, rounded up."""
    return -(-x // y)


def next_power_of_2(n: int) -> int:
    """The least power of two that is not less than a number, from 1 on; 0 for 0."""
    return 1 << (n - 1).bit_length() if n > 0 else 0


class TensorWrapper:
    """The memory of a tensor as elements of another type of the language."""

    def __init__(self, base: Any, dtype: Any) -> None:
        self.base = base
        self.dtype = dtype
        self.shape, self.device = base.shape, base.device

    def data_ptr(self) -> int:
        """Where it begins."""
        return self.base.data_ptr()

    def stride(self, *args: int) -> Any:
        """The strides of the tensor."""
        return self.base.stride(*args)

    def element_size(self) -> int:
        """Bytes of an element."""
        return self.base.element_size()


def reinterpret(tensor: Any, dtype: Any) -> Any:
    """A tensor as elements of another type; itself, if it was of that one.  Raises TypeError for what has no memory."""
    base = tensor.base if isinstance(tensor, TensorWrapper) else tensor
    if not hasattr(base, "data_ptr"):
        raise TypeError(f"{type(tensor).__name__} has no memory to reinterpret")
    return base if dtype == base.dtype else TensorWrapper(base, dtype)


class GPUTarget(NamedTuple):
    """What Triton would compile for."""

    backend: str
    arch: int
    warp_size: int


class _Utils:
    def __init__(self, device: Callable[[int], Sequence[int]]) -> None:
        self._device = device

    def get_device_properties(self, device: int = 0) -> dict[str, int]:
        """The limits of a device that heuristics ask for."""
        _, shared, multiprocessors, *_ = self._device(device)
        return {
            "max_shared_mem": shared,
            "max_num_regs": 65_536,
            "multiprocessor_count": multiprocessors,
            "warpSize": 32,
        }


class Driver:
    """`triton.runtime.driver.active`, of the package's launcher and torch."""

    def __init__(self, launcher: Any) -> None:
        self._launcher = launcher
        self.utils = _Utils(launcher._device)

    def get_current_device(self) -> int:
        """The ordinal of the device that is current."""
        torch: Any = sys.modules.get("torch")
        return torch.cuda.current_device() if torch is not None else self._launcher._default_device()

    def get_current_target(self) -> GPUTarget:
        """What that is."""
        capability, *_ = self._launcher._device(self.get_current_device())
        return GPUTarget("cuda", capability, 32)

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        """The compute capability of a device."""
        major, minor = divmod(self._launcher._device(device)[0], 10)
        return major, minor

    def get_current_stream(self, device: int | None = None) -> int:
        """torch's current stream on a device; the legacy one without torch."""
        torch: Any = sys.modules.get("torch")
        return torch.cuda.current_stream(device).cuda_stream if torch is not None else 0

    def get_active_torch_device(self) -> Any:
        """The current device as torch has it."""
        return _torch().device("cuda", self.get_current_device())

    def get_device_interface(self) -> Any:
        """torch's module of devices."""
        return _torch().cuda

    def get_benchmarker(self) -> Any:
        """What times calls."""
        return do_bench


def target_info(driver: Driver) -> dict[str, Any]:
    """The functions of `triton.language.target_info`, which the host calls as well."""
    others = ("is_hip", "is_hip_cdna3", "is_hip_cdna4", "is_hip_gfx1250")
    return {
        "current_target": driver.get_current_target,
        "is_cuda": lambda: True,
        **dict.fromkeys(others, lambda: False),
        "cuda_capability_geq": lambda major, minor=0: driver.get_device_capability() >= (major, minor),
    }


class DriverConfig:
    """`triton.runtime.driver`, whose `active` is the driver in use."""

    def __init__(self, active: Driver) -> None:
        self.active = self.default = active


def _torch() -> Any:
    import torch  # a library that asks for it has it

    return torch


def do_bench(
    fn: Callable[[], Any],
    warmup: int = 25,
    rep: int = 100,
    grad_to_none: Sequence[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """Milliseconds that a call takes on the device, by torch's events: the mean, or what `return_mode` names of `min`, `max`,
    `mean`, `median` and `all`, or these quantiles.  `warmup` and `rep` are milliseconds to spend before and while timing."""
    torch = _torch()
    scratch = torch.empty(_SCRATCH // 4, dtype=torch.int32, device="cuda")
    fn()
    once = max(_timed(torch, fn, scratch), 1e-3)
    for _ in range(max(1, int(warmup / once))):
        fn()
    times = []
    for _ in range(max(1, int(rep / once))):
        for tensor in grad_to_none or ():
            tensor.grad = None
        times.append(_timed(torch, fn, scratch))
    times.sort()
    if quantiles is not None:
        found = [times[min(int(part * len(times)), len(times) - 1)] for part in quantiles]
        return found[0] if len(found) == 1 else found
    found = {"min": times[0], "max": times[-1], "mean": sum(times) / len(times), "all": times}
    return found[return_mode] if return_mode in found else times[len(times) // 2]


def do_bench_cudagraph(
    fn: Callable[[], Any],
    rep: int = 20,
    grad_to_none: Sequence[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """As `do_bench`, for a call as it is launched from a graph: here with what launching it costs."""
    return do_bench(fn, 1, rep, grad_to_none, quantiles, return_mode)


def set_allocator(allocator: Any) -> None:
    """Where Triton gets memory for kernels that describe tensors on the device: those of packages need none."""


def _timed(torch: Any, fn: Callable[[], Any], scratch: Any) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    scratch.zero_()
    start.record()
    fn()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


@dataclass
class TensorDescriptor:
    """A tensor, and the block that a kernel reads of it at a time; sizes and strides are in elements."""

    base: Any
    shape: Sequence[int]
    strides: Sequence[int]
    block_shape: Sequence[int]
    padding: str = "zero"

    @staticmethod
    def from_tensor(tensor: Any, block_shape: Sequence[int], padding: str = "zero") -> TensorDescriptor:
        """That of a whole tensor."""
        return TensorDescriptor(tensor, tensor.shape, tensor.stride(), block_shape, padding)
