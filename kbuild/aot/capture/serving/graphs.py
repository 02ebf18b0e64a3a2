"""Compiled graphs of torch launch a library's kernels as the library does, so that packages are asked.

`torch.compile` takes the launches of a library's kernels into its graph, where Inductor would write their source out once more,
have Triton compile it, and launch that itself.  Where a package is responsible for a kernel, the program that Inductor writes
launches the library's own object instead, with the arguments of the graph.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from kbuild.aot.capture.hook.decorators import is_tuner
from kbuild.aot.capture.hook.finder import Finder
from kbuild.aot.capture.hook.origin import function_of
from kbuild.aot.capture.serving.tuners import chain_of

Serves = Callable[[Any], bool]
"""Whether packages are to be asked about a kernel of Triton's."""

_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


def join_graphs(serves: Serves) -> None:
    """Has Inductor's programs launch the kernels that `serves` accepts as their library does, now or when it is imported."""
    parts: dict[str, Callable[[ModuleType], None]] = {
        "torch._inductor.ir": lambda module: _join_nodes(module, serves),
        "torch._inductor.codegen.wrapper": lambda module: _join_sources(module, serves),
    }
    for name in [name for name in parts if name in sys.modules]:
        parts.pop(name)(sys.modules[name])
    if parts:
        sys.meta_path.insert(0, Finder(parts))


def _join_nodes(module: ModuleType, serves: Serves) -> None:
    """Puts the function that writes a launch in the place of Inductor's, if this version of torch has it."""
    node_class: Any = module.__dict__.get("UserDefinedTritonKernel")
    if not hasattr(node_class, "get_kernel_and_metadata") or not hasattr(node_class, "codegen"):
        return
    original = node_class.codegen

    def codegen(node: Any, wrapper: Any) -> None:
        # A program in C++ (AOTInductor) runs where there is no Python.
        launch = None if module.__dict__["V"].graph.cpp_wrapper else _launch(node, wrapper, serves)
        if launch is None:
            original(node, wrapper)
            return
        top = wrapper
        while hasattr(top, "parent_wrapper"):
            top = top.parent_wrapper
        top.add_import_once("import importlib")
        top.add_import_once(f"{launch.name} = {launch.kernel}")
        wrapper.writeline(launch.text)

    node_class.codegen = codegen


def _join_sources(module: ModuleType, serves: Serves) -> None:
    """Adds how a kernel is launched to the source by which torch's caches know it: what Inductor wrote in a process without a
    package is not for one with it."""
    name = "user_defined_triton_kernel_transitive_closure_source_code"
    original = module.__dict__.get(name)
    if original is None:
        return

    def source(kernel: Any, *args: Any, **kwargs: Any) -> str:
        place = _place_of(kernel) if serves(kernel) else None
        note = f"\n# launched as {place.module}:{place.name}\n" if place else ""
        return original(kernel, *args, **kwargs) + note

    setattr(module, name, source)


@dataclass(frozen=True)
class _Place:
    """Where the objects around a kernel can be imported from."""

    module: str
    name: str
    objects: Sequence[Any]
    """The object of this name, and what is inside of it down to the kernel."""

    def expression(self, one: Any) -> str:
        """The text that gives one of the objects, in a program that has imported `importlib`."""
        hops = next(number for number, other in enumerate(self.objects) if other is one)
        return f"importlib.import_module({self.module!r}).{self.name}{'.fn' * hops}"


def _place_of(kernel: Any) -> _Place | None:
    """Where a kernel can be imported from; None for those made in functions."""
    inner = function_of(kernel)
    found: Any = sys.modules.get(inner.__module__)
    for part in inner.__qualname__.split("."):
        found = getattr(found, part, None)
    innermost, decorators = chain_of(found)
    if innermost is not kernel:
        return None
    return _Place(inner.__module__, inner.__qualname__, (*decorators, kernel))


@dataclass(frozen=True)
class _Launch:
    """What a program has of a launch: the name of the kernel there, the expression that gives it, and the line."""

    name: str
    kernel: str
    text: str


def _launch(node: Any, wrapper: Any, serves: Serves) -> _Launch | None:
    """How a program launches the kernel of a node; None where Inductor has to."""
    kernel, configs, *_ = node.get_kernel_and_metadata()
    if not hasattr(kernel, "arg_names") or not serves(kernel):
        return None
    place = _place_of(kernel)
    if place is None:
        return None
    given = {name: node.get_kwargs_value(name) for name in node.ordered_kwargs_for_cpp_kernel}
    tuner = next((one for one in place.objects if is_tuner(one)), None)
    if not configs or len(configs) == 1:  # A choice of one, as torch makes of a launch with `num_warps=8`.
        holder = kernel
        given |= _options(configs[0], kernel) if configs else {}
        grid = _tuple(node.grid[0], wrapper)
    elif tuner is not None and all(_is_of(config, tuner) for config in configs):
        holder = tuner
        grid = _grid_by_config(node.grid, configs, tuner.configs[0].kwargs, wrapper)
    else:
        return None
    values = {name: _text(value, wrapper) for name, value in given.items()}
    if grid is None or None in values.values():
        return None
    ending = "_tuned" if holder is tuner else ""
    name = "library_" + re.sub(r"\W", "_", f"{place.module}_{place.name}") + ending
    arguments = ", ".join(f"{key}={text}" for key, text in values.items())
    return _Launch(name, place.expression(holder), f"{name}[{grid}]({arguments})")


def _options(config: Any, kernel: Any) -> dict[str, Any]:
    """The values of parameters, and the options, that a configuration gives to a launch."""
    options = {name: getattr(config, name, None) for name in _OPTIONS if name not in kernel.arg_names}
    if options.get("num_ctas") == 1:
        del options["num_ctas"]
    return {**config.kwargs, **{name: value for name, value in options.items() if value is not None}}


def _is_of(config: Any, tuner: Any) -> bool:
    """Whether torch made a configuration of one of the tuner's: it adds what heuristics compute."""
    return any(
        one.kwargs.items() <= config.kwargs.items()
        and all(getattr(one, name, None) == getattr(config, name, None) for name in _OPTIONS)
        for one in tuner.configs
    )


def _grid_by_config(
    grids: Sequence[Any], configs: Sequence[Any], chosen: Collection[str], wrapper: Any
) -> str | None:
    """The text of a grid that depends on what a tuner has chosen, values of these names: torch has computed it for each
    configuration.  None where it depends on more than these."""
    texts = [_tuple(grid, wrapper) for grid in grids]
    if len(set(texts)) == 1:
        return texts[0]
    names = sorted(set(chosen).intersection(*(config.kwargs for config in configs)))
    keys = [tuple(config.kwargs[name] for name in names) for config in configs]
    by_key = dict(zip(keys, texts))
    is_plain = all(isinstance(value, (int, str)) for key in keys for value in key)
    if not is_plain or any(by_key[key] != text for key, text in zip(keys, texts)):
        return None
    items = ", ".join(f"{key!r}: {text}" for key, text in by_key.items())
    key = ", ".join(f"meta[{name!r}]" for name in names)
    return f"lambda meta: {{{items}}}[{key},]"


def _tuple(grid: Sequence[Any], wrapper: Any) -> str:
    return "(" + ", ".join(wrapper.val_to_arg_str(size) for size in grid) + ",)"


def _text(value: Any, wrapper: Any) -> str | None:
    """The text of an argument; None for values that have none."""
    kind = type(value)
    if kind is float and not math.isfinite(value):
        return f"float({str(value)!r})"
    if value is None or kind in (bool, int, float, str):
        return repr(value)
    if kind.__module__.startswith("triton.language") and kind.__name__ == "dtype":
        return f"importlib.import_module('triton.language').dtype({value.name!r})"
    if kind.__module__.startswith(("torch", "sympy")):
        return (
            value.codegen_reference()
            if hasattr(value, "codegen_reference")
            else wrapper.val_to_arg_str(value)
        )
    return None
