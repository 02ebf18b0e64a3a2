"""The modules of Triton that stand in its place, and how they come there."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from types import FunctionType, ModuleType
from typing import Any

from kbuild.aot.capture.serving.compiled import Compiled
from kbuild.aot.capture.serving.shim import kernels, language, tools, torch_view

VERSION = "3.6.0"
"""The Triton whose behaviour is that of these modules."""
_MARK = "_kbuild_stands_in"
_LANGUAGE = (
    "triton.language",
    "triton.language.core",
    "triton.language.math",
    "triton.language.standard",
    "triton.language.extra",
    "triton.language.extra.libdevice",
    "triton.language.extra.cuda",
    "triton.language.extra.cuda.libdevice",
    "triton.language.target_info",
    "triton.tools.ragged_tma",
)
"""Modules whose names are for kernels."""


def is_absent() -> bool:
    """Whether nothing can be imported as Triton, or only what stands in its place."""
    module = sys.modules.get("triton")
    if module is not None:
        return hasattr(module, _MARK)
    try:
        return importlib.util.find_spec("triton") is None
    except (ImportError, ValueError):  # As where something forbids it.
        return True


def put(launcher: Any) -> None:
    """Puts the modules there, once; `launcher` is the package's, which knows the devices."""
    if sys.modules.get("triton") is not None:
        return
    torch_view.hide()
    made: dict[str, Any] = {name: language.LazyModule(name) for name in _LANGUAGE}
    for name in _LANGUAGE[:3]:
        made[name].__dict__.update(
            {word: language.dtype(own) for word, own in language.TYPES.items()},
            dtype=language.dtype,
            constexpr=language.constexpr,
        )
    driver = tools.Driver(launcher)
    made["triton.language.target_info"].__dict__.update(tools.target_info(driver))
    for name, names in _others(tools.DriverConfig(driver)).items():
        made[name] = ModuleType(name)
        made[name].__dict__.update(names)
    _place(made)


def _others(driver: tools.DriverConfig) -> dict[str, dict[str, Any]]:
    """What the modules besides those of the language have."""
    tuning = _of_kernels("Autotuner", "Config", "Heuristics", "autotune", "heuristics")
    compiling = _of_kernels(
        "ConstexprFunction", "JITCallable", "JITFunction", "KernelInterface", "KernelParam"
    )
    names = ("OutOfResources", "PTXASError", "AutotunerError", "InterpreterError")
    errors = {name: type(name, (Exception,), {}) for name in names}
    compiled = {"CompiledKernel": Compiled, "CompilationError": type("CompilationError", (Exception,), {})}
    shared = {
        **_of_kernels("Config", "JITFunction", "KernelInterface", "autotune", "heuristics"),
        "OutOfResources": errors["OutOfResources"],
    }
    top = {
        **shared,
        "cdiv": tools.cdiv,
        "next_power_of_2": tools.next_power_of_2,
        "jit": kernels.jit,
        "constexpr_function": kernels.ConstexprFunction,
        "TensorWrapper": tools.TensorWrapper,
        "reinterpret": tools.reinterpret,
        "set_allocator": tools.set_allocator,
        "TritonError": RuntimeError,
        "__version__": VERSION,
        _MARK: True,
    }
    return {
        "triton": top,
        "triton.runtime": {**shared, **compiling, **tuning, "driver": driver},
        "triton.runtime.jit": {
            **compiling,
            "jit": kernels.jit,
            "constexpr_function": kernels.ConstexprFunction,
            "TensorWrapper": tools.TensorWrapper,
            "reinterpret": tools.reinterpret,
        },
        "triton.runtime.autotuner": tuning,
        "triton.runtime.driver": {"driver": driver},
        "triton.runtime.errors": errors,
        "triton.backends": {},
        "triton.backends.compiler": {"GPUTarget": tools.GPUTarget},
        "triton.compiler": compiled,
        "triton.compiler.compiler": compiled,
        "triton.testing": {
            "do_bench": tools.do_bench,
            "do_bench_cudagraph": tools.do_bench_cudagraph,
        },
        "triton.tools": {},
        "triton.tools.tensor_descriptor": {"TensorDescriptor": tools.TensorDescriptor},
    }


def _of_kernels(*names: str) -> dict[str, Any]:
    return {name: getattr(kernels, name) for name in names}


def _place(made: dict[str, Any]) -> None:
    """Enters modules into the table of those that are imported, and each into the one that it belongs to."""
    for name, module in made.items():
        module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        module.__path__ = []
        sys.modules[name] = module
        for value in vars(module).values():
            if isinstance(value, FunctionType):  # Those of Triton are no part of a kernel's digest.
                value.__module__ = name
    for name, module in made.items():
        around, _, own = name.rpartition(".")
        if around and own not in sys.modules[around].__dict__:
            setattr(sys.modules[around], own, module)
