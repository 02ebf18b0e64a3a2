"""What torch sees of Triton where only stand-ins are there: nothing.

Torch's compiler makes kernels for Triton where it can import it, and takes modules of it that no library touches.  So torch is
told what is true, that there is no Triton.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from kbuild.aot.capture.hook.finder import Finder

_ASKING = "torch.utils._triton"
"""The module that other modules of torch ask, by a function that remembers its first answer."""
_IMPORTING = "torch._inductor.runtime.triton_compat"
"""The module that tries by itself."""


def hide() -> None:
    """Has torch, imported by now or later, find no Triton; to be called before anything stands in its place."""
    asking = sys.modules.get(_ASKING)
    if asking is not None:
        _ask(asking)
    sys.meta_path.insert(0, Finder({_ASKING: _ask}, {_IMPORTING: _hidden}))


def _ask(module: ModuleType) -> None:
    with _hidden():
        has_triton = getattr(module, "has_triton_package", None)
        if has_triton is not None:
            has_triton()


@contextmanager
def _hidden() -> Iterator[None]:
    """Imports of Triton fail."""
    kept = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "triton"}
    for name in kept:
        del sys.modules[name]
    sys.modules["triton"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["triton"]
        sys.modules.update(kept)
