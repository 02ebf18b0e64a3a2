"""What torch sees of Triton where only stand-ins are there: nothing.

Torch's compiler makes kernels for Triton where it can import it, and takes modules of it that no library touches.  So torch is
told what is true, that there is no Triton.  Libraries that ask torch, as by `if has_triton():` around their kernels, are told
what they are told by importing it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

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
    for name in ("has_triton_package", "has_triton"):
        asked = getattr(module, name, None)
        if asked is not None:
            with _hidden():
                asked()
            setattr(module, name, _by_caller(asked, name == "has_triton"))


def _by_caller(asked: Callable[[], bool], needs_device: bool) -> Callable[[], bool]:
    """A function of torch's that says whether there is Triton, for torch itself; for others, whether there is a device, if that
    is asked as well."""

    @functools.wraps(asked)
    def has(*args: Any, **kwargs: Any) -> bool:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if caller.partition(".")[0] == "torch":
            return asked(*args, **kwargs)
        return not needs_device or bool(sys.modules["torch"].cuda.is_available())

    return has


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
