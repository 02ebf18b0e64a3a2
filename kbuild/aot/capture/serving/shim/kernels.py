"""Kernels without a compiler: what `triton.runtime.jit` and `triton.runtime.autotuner` have."""

from __future__ import annotations

import hashlib
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any


class KernelParam:
    """A parameter of a kernel."""

    def __init__(self, num: int, parameter: inspect.Parameter, is_free: bool) -> None:
        self.num = num
        self.name = parameter.name
        self.annotation = parameter.annotation
        self.default = parameter.default
        self.has_default = parameter.default is not inspect.Parameter.empty
        self.do_not_specialize = is_free
        self.is_constexpr = "constexpr" in str(parameter.annotation)


class KernelInterface:
    """What is launched as `kernel[grid](…)`."""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)

    def warmup(self, *args: Any, grid: Any, **kwargs: Any) -> Any:
        """Has the code of a call loaded."""
        return self.run(*args, grid=grid, warmup=True, **kwargs)

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        """A launch."""
        raise NotImplementedError


class JITCallable:
    """A function whose source is known."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn
        self.signature = inspect.signature(fn)
        self.raw_src, self.starting_line_number = inspect.getsourcelines(fn)
        text = textwrap.dedent("".join(self.raw_src))
        found = re.search(r"^def\s+\w+\s*\(", text, re.MULTILINE)
        self.src = text[found.start() :] if found else text
        self.__name__, self.__qualname__ = fn.__name__, fn.__qualname__
        self.__module__, self.__doc__ = fn.__module__, fn.__doc__
        self.__globals__ = fn.__globals__
        self.def_file_line_number, self.def_file_col_number = fn.__code__.co_firstlineno, 0

    def _unsafe_update_src(self, text: str) -> None:
        """Takes another text, as libraries write it that make kernels of others."""
        self.src = text

    def get_capture_scope(self) -> dict[str, Any]:
        """The names that the function takes from around it."""
        cells = zip(self.fn.__code__.co_freevars, self.fn.__closure__ or ())
        return {**self.__globals__, **{name: cell.cell_contents for name, cell in cells}}

    def is_gluon(self) -> bool:
        """Whether it is of another language: there is none."""
        return False

    @property
    def cache_key(self) -> str:
        """By which libraries tell kernels apart: the digest of the text and of where it stands."""
        place = f"{self.__module__}:{self.__qualname__}\0{self.src}"
        return hashlib.sha256(place.encode()).hexdigest()


class JITFunction(JITCallable, KernelInterface):
    """`@triton.jit`: a kernel, or a function that kernels call."""

    def __init__(
        self,
        fn: Any,
        version: Any = None,
        do_not_specialize: Sequence[int | str] | None = None,
        do_not_specialize_on_alignment: Sequence[int | str] | None = None,
        debug: bool | None = None,
        noinline: bool | None = None,
        repr: Callable[..., str] | None = None,
        launch_metadata: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(fn)
        free = do_not_specialize or ()
        self.params = [
            KernelParam(num, one, num in free or one.name in free)
            for num, one in enumerate(self.signature.parameters.values())
        ]
        self.module = fn.__module__
        self.arg_names = [one.name for one in self.params]
        self.constexprs = [one.num for one in self.params if one.is_constexpr]
        self.do_not_specialize = list(free)
        self.do_not_specialize_on_alignment = list(do_not_specialize_on_alignment or ())
        self.version, self.debug, self.noinline = version, debug, noinline
        self.repr = repr or (lambda _: self.__name__)
        self.launch_metadata = launch_metadata
        self.pre_run_hooks: list[Any] = []

    def add_pre_run_hook(self, hook: Callable[..., Any]) -> None:
        """Has a function called before each launch."""
        self.pre_run_hooks.append(hook)

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        """Raises RuntimeError: a package that is installed answers before."""
        raise RuntimeError(
            f"{self.__name__} cannot be compiled: Triton is not installed, and no package has it"
        )

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError(f"{self.__name__} is a kernel: launch it as {self.__name__}[grid](…)")

    def __repr__(self) -> str:
        return f"JITFunction({self.module}:{self.__qualname__})"


class ConstexprFunction(JITCallable):
    """`@triton.constexpr_function`, which the host may call as well."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)


def jit(fn: Any = None, **options: Any) -> Any:
    """`@triton.jit`, with options or without."""
    return JITFunction(fn, **options) if fn is not None else lambda one: JITFunction(one, **options)


class Config:
    """A configuration of a tuner."""

    def __init__(
        self,
        kwargs: Mapping[str, Any],
        num_warps: int = 4,
        num_stages: int = 3,
        num_ctas: int = 1,
        maxnreg: int | None = None,
        pre_hook: Any = None,
        ir_override: str | None = None,
    ) -> None:
        self.kwargs = dict(kwargs)
        self.num_warps, self.num_stages, self.num_ctas = num_warps, num_stages, num_ctas
        self.maxnreg, self.pre_hook, self.ir_override = maxnreg, pre_hook, ir_override

    def all_kwargs(self) -> dict[str, Any]:
        """All that it gives to a launch."""
        options = ("num_warps", "num_ctas", "num_stages", "maxnreg", "ir_override")
        return self.kwargs | {name: value for name in options if (value := getattr(self, name)) is not None}

    def __eq__(self, other: object) -> bool:
        is_alike = isinstance(other, Config) and self.all_kwargs() == other.all_kwargs()
        return is_alike and self.pre_hook == getattr(other, "pre_hook", None)

    def __hash__(self) -> int:
        return hash((*self.all_kwargs().items(), self.pre_hook))

    def __str__(self) -> str:
        return ", ".join(f"{name}: {value}" for name, value in self.all_kwargs().items())


class _Decorator(KernelInterface):
    """A kernel with something around it."""

    def __init__(self, fn: Any, arg_names: Sequence[str]) -> None:
        self.fn = fn
        self.arg_names = list(arg_names)
        self.base_fn = fn
        while not inspect.isfunction(self.base_fn):
            self.base_fn = self.base_fn.fn
        self.__name__, self.__doc__ = self.base_fn.__name__, self.base_fn.__doc__


class Autotuner(_Decorator):
    """`@triton.autotune`, which tries nothing: its choice is looked up in a package.

    The parameters are those of Triton 3.6, and so are the attributes: tuners of libraries derive from it.
    """

    def __init__(
        self,
        fn: Any,
        arg_names: Sequence[str],
        configs: Sequence[Config],
        key: Sequence[str],
        reset_to_zero: Sequence[str] | None,
        restore_value: Sequence[str] | None,
        pre_hook: Callable[..., Any] | None = None,
        post_hook: Callable[..., Any] | None = None,
        prune_configs_by: Mapping[str, Any] | None = None,
        warmup: int | None = None,
        rep: int | None = None,
        use_cuda_graph: bool = False,
        do_bench: Callable[..., Any] | None = None,
        cache_results: bool = False,
    ) -> None:
        super().__init__(fn, arg_names)
        self.configs = list(configs) or [Config({})]
        self.keys = list(key)
        self.cache: dict[Any, Config] = {}
        self.best_config = self.configs[0]
        self.nargs: dict[str, Any] | None = None
        prune = prune_configs_by or {}
        self.early_config_prune = prune.get("early_config_prune")
        self.perf_model, self.configs_top_k = prune.get("perf_model"), prune.get("top_k", 1.0)
        self.reset_to_zero, self.restore_value = list(reset_to_zero or ()), list(restore_value or ())
        self.user_defined_pre_hook, self.user_defined_post_hook = pre_hook is not None, post_hook is not None
        self.pre_hook = pre_hook or (lambda kwargs, reset_only=False: 0)
        self.post_hook = post_hook or (lambda kwargs, exception: 0)
        self.num_warmups, self.num_reps, self.use_cuda_graph = warmup, rep, use_cuda_graph
        self.do_bench, self.cache_results = do_bench, cache_results

    def prune_configs(self, kwargs: Mapping[str, Any]) -> Sequence[Config]:
        """The configurations that the library's functions keep for a call, whose arguments by place `nargs` has."""
        kept = self.configs
        named = self.nargs or {}
        if self.early_config_prune is not None:
            kept = self.early_config_prune(kept, named, **kwargs)
        if self.perf_model is not None:
            most = self.configs_top_k
            most = int(len(self.configs) * most) if isinstance(most, float) and most <= 1 else int(most)
            model = self.perf_model
            if len(kept) > most:
                kept = sorted(kept, key=lambda one: model(**named, **kwargs, **one.all_kwargs()))[:most]
        return kept

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Raises what the kernel raises: a package that is installed answers before."""
        return self.fn.run(*args, **{**self.configs[0].all_kwargs(), **kwargs})

    def _bench(self, *_: Any, config: Config, **__: Any) -> list[float]:
        raise RuntimeError(f"{self.__name__} cannot be tuned: Triton is not installed")


class Heuristics(_Decorator):
    """`@triton.heuristics`."""

    def __init__(self, fn: Any, arg_names: Sequence[str], values: Mapping[str, Any]) -> None:
        super().__init__(fn, arg_names)
        self.values = values

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launches the kernel with the values that its functions make of the arguments."""
        for name, make in self.values.items():
            kwargs[name] = make({**dict(zip(self.arg_names, args)), **kwargs})
        return self.fn.run(*args, **kwargs)


def autotune(
    configs: Sequence[Config],
    key: Sequence[str],
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., Any] | None = None,
    post_hook: Callable[..., Any] | None = None,
    warmup: int | None = None,
    rep: int | None = None,
    use_cuda_graph: bool = False,
    do_bench: Callable[..., Any] | None = None,
    cache_results: bool = False,
) -> Callable[[Any], Autotuner]:
    """`@triton.autotune`."""
    how = (pre_hook, post_hook, prune_configs_by, warmup, rep, use_cuda_graph, do_bench, cache_results)
    return lambda fn: Autotuner(fn, fn.arg_names, configs, key, reset_to_zero, restore_value, *how)


def heuristics(values: Mapping[str, Any]) -> Callable[[Any], Heuristics]:
    """`@triton.heuristics`."""
    return lambda fn: Heuristics(fn, fn.arg_names, values)
