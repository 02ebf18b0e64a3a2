"""The shipped kernels for their peers: their modules, the configurations that Triton may take too, and grids."""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

try:
    import tomllib
except ModuleNotFoundError:  # Before Python 3.11.
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]
from kbuild.aot.manifest import expressions  # noqa: E402

Configuration = dict[str, Any]
"""Constants, `num_warps`, `num_stages`."""


def kernel_module(name: str) -> ModuleType:
    """A fresh module of kernels/<name>.py, which is not a package: what Triton's JIT takes."""
    spec = importlib.util.spec_from_file_location(f"kernels_{name}", ROOT / "kernels" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def table_of(kernel: str) -> dict[str, Any]:
    """A kernel of the manifest."""
    [table] = (
        one for one in tomllib.loads((ROOT / "kernels.toml").read_text())["kernel"] if one["name"] == kernel
    )
    return table


def configurations(kernel: str, dtype: str, **facts: Any) -> list[Configuration]:
    """All configurations of the manifest for such calls of sm_90, whatever their conditions on arguments: Triton
    may use them too."""
    table = table_of(kernel)
    point = {"arch": "sm_90", "dtype": dtype, "specialize": "aligned", **facts}
    found: list[Configuration] = []
    for config in table["config"]:
        when = {
            name: value if isinstance(value, list) else [value]
            for name, value in config.get("when", {}).items()
        }
        if all(point[name] in values for name, values in when.items() if name in point):
            found.append(
                {
                    **table.get("defaults", {}),
                    **{name: value for name, value in config.items() if name != "when"},
                }
            )
    return found


def grid_of(kernel: str, m: int, n: int, tile: Configuration, num_sms: int) -> tuple[int, ...]:
    """The manifest's grid for a matmul; what a tile leaves out is zero, and clusters are of one, as by
    default."""
    return _grid_of(kernel, m, n, tuple(tile.items()), num_sms)


@functools.cache  # It is asked for at every launch.
def _grid_of(kernel: str, m: int, n: int, tile: tuple[tuple[str, Any], ...], num_sms: int) -> tuple[int, ...]:
    table = table_of(kernel)
    names = {name for config in (table.get("defaults", {}), *table["config"]) for name in config}
    values = {**dict.fromkeys(names, 0), "cluster_size": 1, "M": m, "N": n, "num_sms": num_sms, **dict(tile)}
    return tuple(
        expressions.evaluate(expressions.parse(text, values, "grid"), values) for text in table["grid"]
    )
