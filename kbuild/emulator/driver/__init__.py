"""A fake CUDA driver: a shared library libcuda.so.1 whose devices are emulated.

Programs and packages that load the driver run unchanged on a machine without a GPU: it has modules,
launches, memory, streams, events and graphs, on several devices of any architecture, and every call can be
made to fail.
"""

from kbuild.emulator.driver.arrays import Array
from kbuild.emulator.driver.codes import DriverResult
from kbuild.emulator.driver.core import DriverCall, LaunchCall
from kbuild.emulator.driver.fake_driver import FakeDriver, active, connect

__all__ = ["Array", "DriverCall", "DriverResult", "FakeDriver", "LaunchCall", "active", "connect"]
