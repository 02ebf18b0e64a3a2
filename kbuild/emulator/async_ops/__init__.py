"""Asynchronous operations: copies, mbarriers and wgmmas, and when they take effect."""

from kbuild.emulator.async_ops.agent import Asynchronous, agent_of
from kbuild.emulator.async_ops.operation import AsyncObserver, ByteExtent, Operation
from kbuild.emulator.async_ops.tensor_map import TensorMap, TensorMapError, replace
from kbuild.emulator.async_ops.timing import Timing, timing_named

__all__ = [
    "AsyncObserver",
    "Asynchronous",
    "ByteExtent",
    "Operation",
    "TensorMap",
    "TensorMapError",
    "Timing",
    "agent_of",
    "replace",
    "timing_named",
]
