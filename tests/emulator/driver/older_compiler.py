"""kbuild's compiler, whose cubins are marked as those of ptxas 12: for tests with drivers that load no
newer ones.

The fake driver runs the PTX of a cubin, whichever ptxas made it; so these tests need no second one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kbuild.compiler import driver
from kbuild.compiler.driver import Artifact

_ABI_VERSION = 8
"""The place of the ABI version in an ELF file."""


def compile(*arguments: Any, **options: Any) -> Artifact:
    """The artifact of kbuild's own compiler, in the form that drivers from 525 on load."""
    made = driver.compile(*arguments, **options)
    cubin = made.asm["cubin"]
    older = cubin[:_ABI_VERSION] + b"\x07" + cubin[_ABI_VERSION + 1 :]
    return Artifact({**made.asm, "cubin": older}, replace(made.metadata, ptxas_version="12.9.86"))
