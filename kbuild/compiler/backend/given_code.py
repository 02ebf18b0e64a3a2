"""Facts read from the text of a kernel that is given as LLVM or PTX, without a module."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from kbuild.errors import CompileError, Loc, UsageError
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
    warps: int
    """Warps of a launch."""

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
    return GivenCode(stage, text, file, names[0], -(-prod(map(int, threads[1].split(","))) // 32))
