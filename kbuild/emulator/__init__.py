"""Runs PTX on the CPU.

`run` launches a kernel of a PTX text on numpy arrays and reports what it computed and what it did wrong:
accesses outside of memory, collectives without all their threads, deadlocks, loops without end.  It knows PTX
and nothing of the compiler.
"""

from kbuild.emulator.engine.arguments import TensorMapArgument, arguments_of
from kbuild.emulator.engine.findings import EmulationError, Finding
from kbuild.emulator.engine.launch import Launch, Report, run
from kbuild.emulator.engine.program import Program, load
from kbuild.emulator.ptx.model import PtxError

__all__ = [
    "EmulationError",
    "Finding",
    "Launch",
    "Program",
    "PtxError",
    "Report",
    "TensorMapArgument",
    "arguments_of",
    "load",
    "run",
]
