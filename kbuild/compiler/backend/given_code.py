"""Kernels as LLVM or PTX, without a module: given texts, of which the facts are read from the text, and what NVRTC makes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kbuild.errors import CompileError, Loc, UsageError
from kbuild.options import Block
from kbuild.targets import Target

_ENTRY = {
    "llir": re.compile(r'^define [^@\n]*\bptx_kernel\b[^@\n]*@"?([\w$.]+)"?\(', re.MULTILINE),
    "ptx": re.compile(r"^\s*(?:\.visible\s+)?\.entry\s+([\w$]+)", re.MULTILINE),
}
_THREADS = {
    "llir": re.compile(r'"nvvm\.reqntid"="(\d+(?:,\d+)*)"'),
    "ptx": re.compile(r"^\s*\.reqntid\s+(\d+(?:\s*,\s*\d+)*)", re.MULTILINE),
}
_TARGET = re.compile(r"^\s*\.target\s+(\w+)", re.MULTILINE)
_ACCELERATED = re.compile(r"wgmma|setmaxnreg|cp\.async\.bulk|mbarrier")
"""PTX instructions that operations of the dialect `ttng` become."""
_WAIT = re.compile(r"griddepcontrol\.wait")


@dataclass(frozen=True)
class GivenCode:
    """A kernel as LLVM or PTX."""

    stage: str
    """`llir` or `ptx`."""
    text: str
    file: str
    """Its name in messages."""
    name: str
    """The entry's symbol."""
    block: Block
    """Threads of a block along each axis."""
    place: Loc
    """Where mistakes in it are reported."""
    params: tuple[tuple[str, str], ...] = ()
    """As `Metadata.params`, where they are known."""
    signature: tuple[tuple[str, str], ...] = ()
    """As `Metadata.signature`, where it is known."""
    shared: int = 0
    """Bytes of dynamic shared memory of a launch, where they are known."""
    nvrtc_version: str = ""
    """The version of NVRTC that made it, if it did."""
    newer: str = ""
    """The same code as PTX of a later version, for where an assembler refuses `text`."""
    warnings: tuple[str, ...] = ()
    """What the compiler that made it warns of."""

    @property
    def waits_for_launches(self) -> bool:
        """Whether it waits for the launches before it by itself."""
        return bool(_WAIT.search(self.text))

    def arch(self, target: Target) -> str:
        """The architecture of the code.  Raises `UsageError` for PTX of another than the target."""
        if self.stage == "llir":
            return target.code_arch(bool(_ACCELERATED.search(self.text)))
        match = _TARGET.search(self.text)
        arch = match[1] if match else ""
        if arch not in (target.code_arch(False), target.code_arch(True)):
            help = "PTX is assembled for the architecture that it was made for"
            raise UsageError(
                f"{self.file} is PTX for {arch or 'no target'}, not for {target.arch}", help=help
            )
        return arch


def read_code(stage: str, text: str, file: str) -> GivenCode:
    """The one kernel of a text.  Raises `CompileError` where there is none, or several."""
    names = _ENTRY[stage].findall(text)
    if len(names) != 1:
        what = "no kernel" if not names else f"{len(names)} kernels, {', '.join(names[:4])}"
        raise CompileError(f"the text has {what}", Loc(file, 1), "expected one kernel, as kbuild writes it")
    threads = _THREADS[stage].search(text)
    if threads is None:
        raise CompileError(
            f"the kernel {names[0]} has no reqntid", Loc(file, 1), "it says the threads of a launch"
        )
    x, y, z = (*map(int, threads[1].split(",")), 1, 1)[:3]
    return GivenCode(stage, text, file, names[0], (x, y, z), Loc(file, 1))
