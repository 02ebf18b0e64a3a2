"""The driver's functions, by what they are for: importing this fills the table."""

from kbuild.emulator.driver.calls import allocation, device, graph, launch, library, memory, module, stream

__all__ = ["allocation", "device", "graph", "launch", "library", "memory", "module", "stream"]
