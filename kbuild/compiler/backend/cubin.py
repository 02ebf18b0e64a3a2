"""PTX to a cubin, by ptxas, and what ptxas reports about the kernel."""

from __future__ import annotations

import os
import re
import subprocess
from functools import lru_cache
from io import FileIO
from math import prod
from typing import NamedTuple

from kbuild.compiler.backend.cross_check import require_same, spills_upper_halves
from kbuild.compiler.backend.elf import require_elf
from kbuild.compiler.backend.halves import in_words
from kbuild.compiler.backend.notes import Note, notes_of
from kbuild.compiler.backend.pressure import live_registers
from kbuild.compiler.backend.ptxas_wheels import (
    TESTED,
    choose,
    guarantees_of,
    installed,
    recorded_version,
)
from kbuild.errors import ToolError
from kbuild.targets import Limits, PtxasGuarantees, target_of_code

_REGISTERS = re.compile(r"Used (\d+) registers")
_BARRIERS = re.compile(r"used (\d+) barriers")
_SHARED = re.compile(r"(\d+) bytes smem")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_WARNING = re.compile(r"ptxas\s+warning\s*:", re.IGNORECASE)
_VERSION = re.compile(r"release [\d.]+, V([\d.]+)")
_THREADS = re.compile(r"\.reqntid ([\d, ]+)")
_PROGRAMS = re.compile(r"\n\.minnctapersm \d+")
_STAMP = re.compile(rb"Cuda compilation tools, release [\d.]+, V([\d.]+)")

_SURE_TO_SPILL = 2
"""The ratio of a text's `live_registers` to the registers of a thread above which ptxas must spill."""


class CubinFacts(NamedTuple):
    """What ptxas reports about a kernel."""

    registers: int
    """Registers per thread."""
    spill_stores: int
    """Bytes."""
    spill_loads: int
    """Bytes."""
    stack: int
    """Bytes of local memory per thread."""
    shared: int
    """Bytes of static shared memory."""
    barriers: int
    ptxas_version: str
    warnings: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    """Notes about wgmmas that it does not run as the PTX has them."""


@lru_cache(maxsize=1)
def find_ptxas() -> str:
    """The ptxas of NVIDIA's wheels that is taken by default.  Raises `ToolError` when none is installed."""
    return choose(installed(ptxas_version)).path


@lru_cache(maxsize=8)
def ptxas_version(ptxas: str) -> str:
    """The version of a ptxas: that of its wheel, or the one that it reports: `13.5.37`."""
    if recorded := recorded_version(ptxas):
        return recorded
    found = _VERSION.search(_run([ptxas, "--version"]).stdout)
    if found is None:
        raise ToolError(f"{ptxas} --version does not report a version")
    return found[1]


def ptxas_guarantees(ptxas: str | None) -> PtxasGuarantees:
    """What may be expected of a ptxas, or where none is named of the version that is preferred."""
    return guarantees_of(ptxas_version(ptxas) if ptxas else TESTED[0])


def assemble(
    ptx: str, arch: str, ptxas: str | None = None, lineinfo: bool = False, options: tuple[str, ...] = ()
) -> tuple[bytes, CubinFacts]:
    """The cubin of a PTX text for an architecture, and facts of its one kernel.

    `ptxas` is the program to use, by default that of the wheel; `options` go to it as they are.  Raises
    `ToolError` when it fails, or writes no proper cubin, or one that is not of this PTX.
    """
    tool, limits = ptxas or find_ptxas(), target_of_code(arch).limits
    flags = (*(("-lineinfo",) if lineinfo else ()), *options)
    # ptxas hopes for several programs per multiprocessor; it has been seen to settle for 32 registers and 5
    # KB of spills where 255 and 600 bytes were to be had.  Asked for one program, it uses what there is.
    # Large kernels take it seconds: none is assembled twice without need.
    bare = _PROGRAMS.sub("", ptx)
    roomy = ptx if ".maxnreg" in ptx else _THREADS.sub(r".reqntid \1\n.minnctapersm 1", bare)
    other = None
    if roomy != ptx and live_registers(ptx) > _SURE_TO_SPILL * limits.registers:
        other = _assemble_once(roomy, arch, tool, flags)
        if other[1].spill_stores:
            return other
    cubin, facts = _assemble_once(ptx, arch, tool, flags)
    if facts.spill_stores and roomy != ptx and facts.registers < _registers_for(ptx, limits):
        other = other or _assemble_once(roomy, arch, tool, flags)
        if other[1].spill_stores < facts.spill_stores:
            return other
    return cubin, facts


def _registers_for(ptx: str, limits: Limits) -> int:
    """Registers that a thread may have where one program has the multiprocessor to itself."""
    found = _THREADS.search(ptx)
    assert found is not None
    return limits.registers_for(prod(map(int, found[1].split(","))))


def _assemble_once(ptx: str, arch: str, tool: str, options: tuple[str, ...]) -> tuple[bytes, CubinFacts]:
    cubin, report = _cubin_of(ptx, arch, tool, options)
    if spills_upper_halves(ptx, cubin):
        ptx = in_words(ptx)
        cubin, report = _cubin_of(ptx, arch, tool, options)
    stamp = _STAMP.search(cubin)
    version = stamp[1].decode() if stamp else ptxas_version(tool)  # Which takes a process of its own.
    require_same(ptx, arch, cubin, version, lambda text: _cubin_of(text, arch, tool, options)[0])
    return cubin, _facts(report, version, ptx)


def _cubin_of(ptx: str, arch: str, tool: str, options: tuple[str, ...]) -> tuple[bytes, str]:
    """The cubin that ptxas makes of a text, and its messages."""
    with _in_memory("kernel.ptx") as source, _in_memory("kernel.cubin") as output:
        source.write(ptx.encode())
        # By the number of this process: a script in the place of ptxas may not pass on open files.
        paths = [f"/proc/{os.getpid()}/fd/{file.fileno()}" for file in (source, output)]
        result = _run([tool, "-v", f"-arch={arch}", "--warn-on-spills", *options, paths[0], "-o", paths[1]])
        report = (result.stdout + result.stderr).replace(paths[0], "kernel.ptx")
        if result.returncode:
            raise ToolError(
                f"ptxas failed with exit code {result.returncode} for {arch}:\n{_indented(report)}"
            )
        cubin = output.read()
    if not cubin:
        raise ToolError(f"ptxas wrote no cubin for {arch}")
    require_elf(cubin)
    return cubin, report


def _in_memory(name: str) -> FileIO:
    """A file without a place on disk, and so without the modules that find one, which take 5 ms to load."""
    return FileIO(os.memfd_create(name), "r+")


def _facts(report: str, version: str, ptx: str) -> CubinFacts:
    registers = _REGISTERS.search(report)
    if registers is None:
        raise ToolError(f"ptxas -v does not report registers:\n{_indented(report)}")
    # Device functions have property lines of their own, before or after those of the kernel: take the
    # largest.
    frames = [tuple(map(int, match)) for match in _STACK.findall(report)] or [(0, 0, 0)]
    stack, stores, loads = (max(column) for column in zip(*frames))
    barriers, shared = _BARRIERS.search(report), _SHARED.search(report)
    warnings = tuple(line.strip() for line in report.splitlines() if _WARNING.match(line))
    return CubinFacts(
        registers=int(registers[1]),
        spill_stores=stores,
        spill_loads=loads,
        stack=stack,
        shared=int(shared[1]) if shared else 0,
        barriers=int(barriers[1]) if barriers else 0,
        ptxas_version=version,
        warnings=warnings,
        notes=notes_of(report, ptx),
    )


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        # Whatever the language and the encoding of the machine: what cannot be read is not a reason to stop.
        return subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except OSError as error:
        name = os.path.basename(command[0])
        raise ToolError(
            f"cannot run {name} ({command[0]}): {error.strerror}", help="set KBUILD_PTXAS to a ptxas"
        ) from error


def _indented(text: str) -> str:
    return "\n".join("    " + line for line in text.strip().splitlines())
