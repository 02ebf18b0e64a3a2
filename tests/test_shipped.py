"""The kernels that this project ships: every configuration assembles for its architecture, spills nothing,
and NVIDIA's own tools read the cubin."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

import kbuild
from kbuild.aot.build.plan import constexprs_of
from kbuild.aot.manifest.expand import Variant, expand
from kbuild.aot.manifest.load import load

ROOT = Path(__file__).parent.parent


def one_per_configuration() -> list[Variant]:
    """Of the variants that differ in element type and hints alone, the first and the last."""
    groups: dict[tuple[object, ...], list[Variant]] = {}
    for variant in expand(load(ROOT / "kernels.toml", "kernels.toml")).variants:
        key = (variant.kernel, variant.arch, variant.constexprs, variant.options)
        groups.setdefault(key, []).append(variant)
    return [variant for group in groups.values() for variant in dict.fromkeys((group[0], group[-1]))]


def tool(name: str) -> str:
    """A binary of NVIDIA's, from its wheel."""
    spec = importlib.util.find_spec("nvidia")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    found = [path for folder in folders for path in Path(folder).glob(f"*/bin/{name}")]
    if not found:
        pytest.skip(f"{name} is not installed")
    return str(found[0])


@pytest.mark.parametrize("variant", one_per_configuration(), ids=lambda variant: variant.name)
def test_variant_spills_nothing_and_disassembles(variant: Variant, tmp_path: Path) -> None:
    kernel = load(ROOT / "kernels.toml", "kernels.toml").kernel(variant.kernel)
    artifact = kbuild.compile(
        f"{ROOT / kernel.source}:{kernel.function}",
        signature=dict(variant.signature),
        constexprs=dict(constexprs_of(kernel, variant)),
        target=variant.arch,
        options=variant.options,
    )
    assert (artifact.metadata.spill_stores, artifact.metadata.spill_loads, artifact.metadata.warnings) == (
        0,
        0,
        (),
    )
    assert (f".reqnctapercluster {variant.options.cluster_size}" in artifact.asm["ptx"]) == (
        variant.options.cluster_size > 1
    )
    cubin = tmp_path / "kernel.cubin"
    cubin.write_bytes(artifact.asm["cubin"])
    listing = subprocess.run(
        [tool("nvdisasm"), str(cubin)], capture_output=True, text=True, check=True
    ).stdout
    assert f".text.{artifact.metadata.name}" in listing
    usage = subprocess.run(
        [tool("cuobjdump"), "-res-usage", str(cubin)], capture_output=True, text=True, check=True
    ).stdout
    assert f"REG:{artifact.metadata.registers} " in usage
