"""Configurations that are tried, and values that follow from arguments."""

from __future__ import annotations

import os
from typing import Any

from triton.runtime.driver import driver
from triton.runtime.jit import KernelInterface


class Config:
    def __init__(
        self,
        kwargs: dict[str, Any],
        num_warps: int = 4,
        num_stages: int = 3,
        num_ctas: int = 1,
        pre_hook: Any = None,
    ) -> None:
        self.kwargs, self.pre_hook = kwargs, pre_hook
        self.num_warps, self.num_stages, self.num_ctas = num_warps, num_stages, num_ctas

    def all_kwargs(self) -> dict[str, Any]:
        found = {name: getattr(self, name) for name in ("num_warps", "num_stages", "num_ctas")} | self.kwargs
        if os.environ.get("STAND_IN_TRITON", "").startswith("3.2"):
            found |= dict.fromkeys(("num_buffers_warp_spec", "num_consumer_groups"), 0)
        return found


class _Decorator(KernelInterface):
    def __init__(self, fn: Any) -> None:
        self.fn, self.arg_names = fn, fn.arg_names

    def warmup(self, *args: Any, grid: Any, **kwargs: Any) -> Any:
        return self.run(*args, grid=grid, warmup=True, **kwargs)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


class Autotuner(_Decorator):
    def __init__(
        self,
        fn: Any,
        arg_names: list[str],
        configs: list[Config],
        key: list[str],
        reset_to_zero: Any,
        restore_value: Any,
        prune_configs_by: Any = None,
    ) -> None:
        super().__init__(fn)
        self.arg_names = arg_names
        self.configs, self.keys, self.cache = configs, key, dict[Any, Config]()
        self.early_config_prune = (prune_configs_by or {}).get("early_config_prune")

    def _bench(self, *args: Any, config: Config, **meta: Any) -> list[float]:
        call = lambda: self.fn.run(*args, **meta, **config.all_kwargs()) and 0  # noqa: E731
        (time,) = driver.active.get_benchmarker()(call, quantiles=(0.5,))
        # Large problems take the last configuration, small ones the first, if no test says which is the fastest.
        bound = dict(zip(self.arg_names, args)) | meta
        fastest = -1 if sum(bound[name] for name in self.keys) > 1000 else 0
        is_fastest = config is self.configs[int(os.environ.get("STAND_IN_FASTEST", fastest))]
        return [time if is_fastest else time + 1]

    def run(self, *args: Any, **kwargs: Any) -> Any:
        bound = dict(zip(self.arg_names, args)) | kwargs
        key = tuple(bound[name] for name in self.keys)
        if len(self.configs) > 1 and key not in self.cache:
            kept, prune = self.configs, self.early_config_prune
            if prune is not None:
                kept = prune(kept, dict(zip(self.arg_names, args)), **kwargs)
            times = [self._bench(*args, config=config, **kwargs) for config in kept]
            self.cache[key] = kept[times.index(min(times))]
        self.best_config = config = self.cache[key] if len(self.configs) > 1 else self.configs[0]
        if config.pre_hook is not None:
            config.pre_hook(bound | config.all_kwargs())
        return self.fn.run(*args, **kwargs, **config.all_kwargs())


class Heuristics(_Decorator):
    def __init__(self, fn: Any, values: dict[str, Any]) -> None:
        super().__init__(fn)
        self.values = values

    def run(self, *args: Any, **kwargs: Any) -> Any:
        bound = dict(zip(self.arg_names, args)) | kwargs
        return self.fn.run(*args, **kwargs, **{name: call(bound) for name, call in self.values.items()})


def autotune(configs: list[Config], key: list[str], prune_configs_by: Any = None) -> Any:
    return lambda fn: Autotuner(fn, fn.arg_names, configs, key, None, None, prune_configs_by)


def heuristics(values: dict[str, Any]) -> Any:
    return lambda fn: Heuristics(fn, values)
