"""Kernels, specialised by their arguments."""

from __future__ import annotations

import inspect
import os
import textwrap
from types import SimpleNamespace
from typing import Any

from triton import compiler
from triton.language import constexpr
from triton.runtime.driver import driver

_WORDS = {"float16": "fp16", "float32": "fp32"}
_OPTIONS = {"num_warps": 4, "num_stages": 3}


class KernelParam:
    def __init__(self, num: int, param: inspect.Parameter) -> None:
        self.num, self.name, self.default = num, param.name, param.default
        self.has_default = param.default is not inspect.Parameter.empty
        self.is_constexpr = "constexpr" in str(param.annotation)


class KernelInterface:
    def __getitem__(self, grid: Any) -> Any:
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        raise NotImplementedError


class JITFunction(KernelInterface):
    def __init__(self, fn: Any) -> None:
        self.fn = fn
        text = textwrap.dedent(inspect.getsource(fn))
        self.src = text[text.index("def ") :]
        parameters = inspect.signature(fn).parameters.values()
        self.params = [KernelParam(index, one) for index, one in enumerate(parameters)]
        self.arg_names = [one.name for one in self.params]
        self.kernels: dict[str, Any] = {}

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        target = driver.active.get_current_target()
        bound = {one.name: one.default for one in self.params if one.has_default} | dict(
            zip(self.arg_names, args)
        )
        bound |= {name: value for name, value in kwargs.items() if name in self.arg_names}
        bound = {name: bound[name] for name in self.arg_names}
        options = _OPTIONS | {name: value for name, value in kwargs.items() if name not in bound}
        is_old = os.environ.get("STAND_IN_TRITON", "").startswith("3.2")
        source: Any = (_old_source if is_old else _source)(self, bound)
        key = repr(
            (source.signature, source.constants, vars(source.attrs) if is_old else source.attrs, options)
        )
        kernel = self.kernels.get(key)
        if kernel is None:
            self.kernels[key] = kernel = compiler.compile(source, target=target, options=options)
        if not warmup:
            sizes: Any = grid(bound) if callable(grid) else grid
            sizes = (*sizes, 1, 1)[:3]
            kernel.run(*sizes, 0, kernel.function, kernel.packed_metadata, None, None, None, *bound.values())
        return kernel


def _type(value: Any) -> tuple[Any, bool]:
    """The type of an argument, and whether 16 divides it."""
    if hasattr(value, "data_ptr"):
        return (
            f"*{_WORDS.get(str(value.dtype).removeprefix('torch.'), value.dtype)}",
            value.data_ptr() % 16 == 0,
        )
    if isinstance(value, tuple):
        return tuple(_type(item)[0] for item in value), False
    if isinstance(value, bool):
        return "u1", False
    if isinstance(value, int):
        return "i32", value % 16 == 0
    return "fp32", False


def _source(function: JITFunction, bound: dict[str, Any]) -> compiler.ASTSource:
    signature: dict[str, Any] = {}
    constants: dict[tuple[int, ...], Any] = {}
    attrs: dict[tuple[int, ...], Any] = {}
    for one in function.params:
        value = bound[one.name]
        if one.is_constexpr or value is None or (type(value) is int and value == 1):
            signature[one.name], constants[one.num,] = "constexpr", value
            continue
        signature[one.name], divisible = _type(value)
        if divisible:
            attrs[one.num,] = [["tt.divisibility", 16]]
        for index, item in enumerate(value if isinstance(value, tuple) else ()):
            if _type(item)[1]:
                attrs[one.num, index] = [["tt.divisibility", 16]]
    return compiler.ASTSource(function, signature, constants, attrs)


def _old_source(function: JITFunction, bound: dict[str, Any]) -> compiler.ASTSource:
    others = [one for one in function.params if not one.is_constexpr]
    signature = {one.name: "*i8" if bound[one.name] is None else _type(bound[one.name])[0] for one in others}
    ones = [one.num for one in others if type(bound[one.name]) is int and bound[one.name] == 1]
    divisible = [one.num for one in others if bound[one.name] is not None and _type(bound[one.name])[1]]
    constants = {
        one.name: bound[one.name]
        for one in function.params
        if one.is_constexpr or one.num in ones or bound[one.name] is None
    }
    attrs = SimpleNamespace(arg_properties={"tt.divisibility": divisible, "tt.equal_to": ones})
    return compiler.ASTSource(function, signature, constants, attrs)


def jit(fn: Any) -> JITFunction:
    return JITFunction(fn)


__all__ = ["JITFunction", "KernelInterface", "KernelParam", "constexpr", "jit"]
