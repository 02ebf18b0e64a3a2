"""The documentation agrees with the code, and its examples run."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tomli
from mutated import manifests

import kbuild
from kbuild.emulator.driver import FakeDriver
from kbuild.errors import KbuildError
from tests.emulator.fake_gpu import on_fake_gpu

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
MANIFESTS = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in (ROOT / "kernels.toml", *sorted(ROOT.glob("examples/*/kernels.toml")))
} | {
    f"{page.name} {number}": text
    for page in (ROOT / "README.md", DOCS / "manifest.md")
    for number, text in enumerate(
        re.findall(r"```toml\n(?:# kernels.toml\n)?(schema = .*?)```", page.read_text(), re.DOTALL)
    )
}


def test_made_pages_are_current() -> None:
    """`python docs/make_reference.py` makes them."""
    command = [sys.executable, str(DOCS / "make_reference.py"), "--check"]
    done = subprocess.run(command, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_links_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *DOCS.glob("*.md"), *ROOT.glob("examples/*/README.md")]
    links = [
        (page, link)
        for page in pages
        for link in re.findall(r"\]\(((?:\.\./)*\w[\w./]*)[)#]", page.read_text())
    ]
    assert not [f"{page.name}: {link}" for page, link in links if not (page.parent / link).exists()]


def test_files_that_are_named_exist() -> None:
    """In the tables of architecture.md."""
    named = re.findall(
        r"`((?:kbuild|tests|templates|examples|docs)/[\w/.]*)`", (DOCS / "architecture.md").read_text()
    )
    assert named and not [name for name in named if not (ROOT / name).exists()]


def run_blocks(page: str) -> None:
    """Run the Python blocks of a page in this folder, one after the other in one namespace; blocks that name a file are that
    file."""
    namespace: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL):
        if file := re.match(r"# (\w+\.py)\n", code):
            Path(file[1]).write_text(code)
        else:
            exec(compile(code, page, "exec"), namespace)


def test_examples_of_gluon_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_blocks("gluon.md")


@on_fake_gpu()
def test_examples_of_the_api_run(driver: FakeDriver) -> None:
    def compile_for_the_driver(*source: Any, **how: Any) -> kbuild.Artifact:
        """As `kbuild.compile`; the fake driver has to know the PTX of cubins."""
        artifact = compile_(*source, **how)
        driver.register(artifact.asm["cubin"], artifact.asm["ptx"])
        return artifact

    compile_, kbuild.compile = kbuild.compile, compile_for_the_driver
    run_blocks("api.md")
    assert [launch.grid for launch in driver.launches] == [(1, 1, 1)]


# A schema's rules, as far as schema.json uses them.


def mistakes(value: Any, schema: Any, place: str = "") -> list[str]:
    """What JSON Schema finds wrong with a value."""
    if schema is False:
        return [f"{place}: not allowed"]
    if schema is True or not schema:
        return []
    found: list[str] = []
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "boolean": bool,
        "number": (int, float),
        "integer": int,
    }
    if types := schema.get("type"):
        names = [types] if isinstance(types, str) else types
        if not any(isinstance(value, kinds[name]) for name in names):
            return [f"{place}: not {types}"]
    if "not" in schema and not mistakes(value, schema["not"], place):
        found.append(f"{place}: not allowed")
    if "anyOf" in schema and all(mistakes(value, one, place) for one in schema["anyOf"]):
        found.append(f"{place}: none of anyOf")
    if ("const" in schema and value != schema["const"]) or ("enum" in schema and value not in schema["enum"]):
        found.append(f"{place}: {value!r}")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        found.append(f"{place}: {value!r} is not {schema['pattern']}")
    if isinstance(value, dict):
        found += [f"{place}: lacks {key}" for key in schema.get("required", ()) if key not in value]
        named = schema.get("properties", {})
        for key, item in value.items():
            found += mistakes(
                item, named.get(key, schema.get("additionalProperties", True)), f"{place}.{key}"
            )
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            found.append(f"{place}: {len(value)} items")
        found += [
            text
            for number, item in enumerate(value)
            for text in mistakes(item, schema.get("items"), f"{place}[{number}]")
        ]
    if "minimum" in schema and not schema["minimum"] <= value <= schema["maximum"]:
        found.append(f"{place}: {value}")
    return found


SCHEMA = json.loads((DOCS / "schema.json").read_text())


def test_the_schema_takes_what_the_loader_takes(tmp_path: Path) -> None:
    """Both say what the rows say; of several keys together the loader alone knows."""
    taken = 0
    for seed in range(300):
        data = manifests.mutated(random.Random(seed))
        try:
            manifests.attempt(data, tmp_path)
        except KbuildError:
            continue
        taken += 1
        assert mistakes(tomli.loads(data.decode()), SCHEMA) == []
    assert taken > 10


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_schema_takes_good_manifests(name: str) -> None:
    assert mistakes(tomli.loads(MANIFESTS[name]), SCHEMA) == []


@pytest.mark.parametrize(
    "before, after, expected",
    [
        ("schema = 1", "schema = 2", ".schema: 2"),
        ('version = "', 'verison = "', ".package.verison: not allowed"),
        ('archs = ["sm_80"', 'arch = ["sm_80"', ".package: lacks archs"),
        ('archs = ["sm_80"', 'archs = ["sm_70"', ".package.archs[0]: 'sm_70'"),
        ("num_warps = 2", "num_warps = 3", ".kernel[0].config[0].num_warps: 3"),
        ("num_warps = 8", "num_stages = 17", ".kernel[0].config[1].num_stages: 17"),
        ('y = "*{dtype}"', 'y = "*{dtype}:3"', ".kernel[0].args.y: "),
        ('grid = ["cdiv(n, BLOCK)", "n_rows"]', "grid = []", ".kernel[0].grid: 0 items"),
    ],
)
def test_the_schema_finds_mistakes(before: str, after: str, expected: str) -> None:
    text = MANIFESTS["manifest.md 0"]
    assert before in text
    found = mistakes(tomli.loads(text.replace(before, after, 1)), SCHEMA)
    assert any(expected in mistake for mistake in found), found
