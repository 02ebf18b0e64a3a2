"""docs/manifest.md keeps up with the loader: its example loads, and it names every key and every type."""

from __future__ import annotations

import re
from pathlib import Path

from kbuild.aot.manifest import schema
from kbuild.aot.manifest.expand import expand
from kbuild.aot.manifest.load import load
from kbuild.aot.manifest.model import DTYPES, Config, Package
from kbuild.options import options
from kbuild.targets import ARCHS

PAGE = (Path(__file__).parents[3] / "docs/manifest.md").read_text()


def test_the_example_loads(tmp_path: Path) -> None:
    example = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert example
    (tmp_path / "kernels.toml").write_text(example[1])
    (tmp_path / "kernels").mkdir()
    source = "def scale_kernel(x, y, n, factor, BLOCK: tl.constexpr, NEGATE: tl.constexpr): pass\n"
    (tmp_path / "kernels/scale.py").write_text(source)
    expansion = expand(load(tmp_path / "kernels.toml"))
    assert len(expansion.variants) == 5 * 2 + 5 * 2 * 2 and len(expansion.excluded) == 2


def test_every_key_is_explained() -> None:
    package = {"ptx_archs": "archs"}
    keys = [package.get(name, name) for name in Package.__dataclass_fields__]
    keys += [key.name for key in schema.KERNEL.keys]
    keys += [name for name in Config.__dataclass_fields__ if name not in ("guards", "constexprs", "options")]
    keys += [name for option in options("variant") for name in option.names]
    for key in keys:
        assert f"`{key}`" in PAGE, key
    for name in ARCHS:
        assert f"`{name}`" in PAGE, name
    for name in DTYPES:
        known = f"`{name}`" in PAGE or name in (
            "i8",
            "i16",
            "i32",
            "u16",
            "u32",
        )  # Those within `i1` to `i64`.
        assert known, name
