"""What Hopper has: `from kbuild.language.gluon.language.nvidia.hopper import mbarrier`."""

from __future__ import annotations

from typing import Any

from kbuild.language.hardware import member


def __getattr__(name: str) -> Any:
    """The functions, classes and modules of kernels."""
    return member(__name__, name)
