"""What the decorators of a kernel, tuners and heuristics, choose, and by what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kbuild.aot.capture.hook.plain import plain


def is_tuner(decorator: Any) -> bool:
    """Whether it is `@triton.autotune` or what derives from it, rather than `@triton.heuristics`."""
    return hasattr(decorator, "configs")


def wrap_methods(cls: Any, wraps: Mapping[str, Callable[[Any], Any]]) -> None:
    """Replaces methods of a class by what functions make of them; those of classes that derive from it as well, where they have
    their own, whether these exist already or will: libraries have tuners of their own."""

    def replace(one: Any) -> None:
        for name, wrap in wraps.items():
            if name in vars(one):
                setattr(one, name, wrap(vars(one)[name]))

    def derive(derived: Any, **options: Any) -> None:
        super(cls, derived).__init_subclass__(**options)
        replace(derived)

    waiting = [cls]
    while waiting:
        one = waiting.pop()
        replace(one)
        waiting += one.__subclasses__()
    cls.__init_subclass__ = classmethod(derive)


def chosen_names(decorator: Any) -> list[str]:
    """The names whose values it gives."""
    if not is_tuner(decorator):
        return sorted(decorator.values)
    found: set[str] = set()
    for config in decorator.configs:
        found |= config.kwargs.keys()
        found |= config.all_kwargs().keys() if hasattr(config, "all_kwargs") else set()
    return sorted(found)


def tuning_key(tuner: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a tuner may choose by, besides the types of tensors: something that can be compared."""
    found = []
    names = tuner.arg_names
    for name in tuner.keys:
        value = (
            kwargs[name]
            if name in kwargs
            else args[names.index(name)]
            if name in names[: len(args)]
            else None
        )
        found.append(
            value if isinstance(value, bool | int | float | str | None) else str(getattr(value, "dtype", ""))
        )
    return tuple(found)


def recorded_key(
    decorators: Sequence[Any], function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The values that tuners chose by, by name, of those that are numbers, flags or words."""
    bound = dict(zip(function.arg_names, args)) | dict(kwargs)
    found = {}
    for decorator in decorators:
        for name in decorator.keys if is_tuner(decorator) else ():
            value = plain(bound.get(name))
            if isinstance(value, bool | int | str):
                found[name] = value
    return found
