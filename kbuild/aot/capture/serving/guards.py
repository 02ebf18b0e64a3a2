"""What has to be as it was for the launcher to answer a call alone: all that decides how Triton's objects are launched, and that
somebody may change while a process runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

Guard = tuple[Any, ...]
"""(object, attribute, value), (dictionary, key, value), or (list, tuple of its items): what has to be the very same; without the
value, what has to be absent, None or an empty list."""


def unchanged(watched: Sequence[tuple[Any, str, Any]]) -> Iterator[Guard]:
    """Attributes of objects, or items of dictionaries, that are these values."""
    for holder, name, value in watched:
        yield (*_place(holder, name), value)


def without_hooks(kernel: Any) -> Iterator[Guard]:
    """No hook is called before or after a launch of the kernel."""
    yield _place(kernel, "pre_run_hooks")
    holder: Any = None
    for module, name in (("triton.knobs", "runtime"), ("triton.compiler.compiler", "CompiledKernel")):
        found = sys.modules.get(module)
        if found is None:
            yield sys.modules, module
            continue
        holder = found.__dict__.get(name)
        yield sys.modules, module, found
        yield (found.__dict__, name) if holder is None else (found.__dict__, name, holder)
        break
    for name in ("launch_enter_hook", "launch_exit_hook") if holder is not None else ():
        hook = getattr(holder, name, None)
        if hasattr(hook, "calls"):  # A chain, empty until somebody adds to it.
            yield holder, name, hook
            yield _place(hook, "calls")
        else:
            yield holder, name


def launched_by(holder: Any, run: Any) -> Iterator[Guard]:
    """A kernel, or a decorator of one, is launched by this `run`, and not by one of its own."""
    yield type(holder), "run", run
    yield vars(holder), "run"


def tuned_by(tuner: Any) -> Iterator[Guard]:
    """A tuner is around the same kernel, and has the same configurations, of which it takes out none."""
    own = vars(tuner)
    yield own, "fn", tuner.fn
    yield own, "configs", tuner.configs
    yield tuner.configs, tuple(tuner.configs)
    yield own, "early_config_prune"


def _place(holder: Any, name: str) -> tuple[Any, str]:
    """Where an attribute is: the object's dictionary is asked in a tenth of the time that a property takes."""
    kind = type(holder)
    if isinstance(holder, dict) or hasattr(kind, "__getattr__"):
        return holder, name
    own = vars(holder) if hasattr(holder, "__dict__") else None
    if own is None:
        return holder, name
    if not hasattr(kind, name):
        return own, name
    if isinstance(getattr(kind, name), property) and own.get(f"_{name}") is getattr(holder, name):
        return own, f"_{name}"  # As Triton has `src`, which nothing may set.
    return holder, name
