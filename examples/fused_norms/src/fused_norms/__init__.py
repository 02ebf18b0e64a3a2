"""RMS norm and SwiGLU on tensors, and as modules of torch.

The functions take torch tensors, CuPy arrays and others.  torch is imported with the first module that is asked for."""

import importlib
from typing import Any

from fused_norms.kernels import rms_norm, swiglu

__all__ = ["RMSNorm", "SwiGLU", "rms_norm", "swiglu"]


def __getattr__(name: str) -> Any:
    if name in ("RMSNorm", "SwiGLU"):
        return getattr(importlib.import_module("fused_norms.modules"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
