"""The kernels that this project ships: every variant assembles for its architecture, spills nothing,
and NVIDIA's own tools read the cubins."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kbuild.aot.manifest.expand import Variant, expand
from kbuild.aot.manifest.load import load

ROOT = Path(__file__).parent.parent
VARIANTS = expand(load(ROOT / "kernels.toml", "kernels.toml")).variants
ONE_PER_KERNEL = tuple({(variant.kernel, variant.arch): variant for variant in VARIANTS}.values())


def name_of(variant: Variant) -> str:
    return variant.name


@dataclass(frozen=True)
class Built:
    """What a build made of a variant."""

    facts: Mapping[str, Any]
    ptx: Path
    cubin: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Built]:
    """All variants by their names.  Those that this machine's cache has are not compiled again."""
    project = tmp_path_factory.mktemp("shipped")
    shutil.copy(ROOT / "kernels.toml", project)
    shutil.copytree(ROOT / "kernels", project / "kernels")
    subprocess.run(
        [sys.executable, "-m", "kbuild", "build", "-C", project, "--quiet", "--strict"], check=True
    )
    found = {}
    for path in (project / "build").glob("sm_*/*/*.json"):
        facts = json.loads(path.read_bytes())
        ptx, cubin = (path.with_name(path.name.removesuffix("json") + suffix) for suffix in ("ptx", "cubin"))
        found[facts["name"]] = Built(facts, ptx, cubin)
    return found


def printed(tool: str, *arguments: str) -> str:
    """What a binary of NVIDIA's, from its wheel, prints."""
    spec = importlib.util.find_spec("nvidia")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    found = [path for folder in folders for path in Path(folder).glob(f"*/bin/{tool}")]
    if not found:
        pytest.skip(f"{tool} is not installed")
    return subprocess.run([str(found[0]), *arguments], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
def test_variant_spills_nothing(variant: Variant, built: Mapping[str, Built]) -> None:
    made = built[variant.name]
    assert (made.facts["spill_stores"], made.facts["spill_loads"], made.facts["warnings"]) == (0, 0, [])
    cluster_size = variant.options.cluster_size
    assert (f".reqnctapercluster {cluster_size}" in made.ptx.read_text()) == (cluster_size > 1)
    usage = printed("cuobjdump", "-res-usage", str(made.cubin))
    assert f"Function {made.facts['entry']}:" in usage
    assert f"REG:{made.facts['registers']} " in usage


@pytest.mark.parametrize("variant", ONE_PER_KERNEL, ids=name_of)
def test_kernel_disassembles(variant: Variant, built: Mapping[str, Built]) -> None:
    made = built[variant.name]
    assert f".text.{made.facts['entry']}" in printed("nvdisasm", str(made.cubin))
