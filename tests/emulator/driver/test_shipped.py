"""Every variant that this project ships is taken by some call: launcher and driver are real, the kernels are
empty."""

from __future__ import annotations

import functools
import importlib
import itertools
import json
import math
import os
import re
import shutil
import struct
import sys
import types
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

from kbuild.aot.artifact import selection
from kbuild.aot.build.progress import Progress
from kbuild.aot.build.project import BuildOptions, build
from kbuild.aot.manifest.expand import Variant, expand
from kbuild.aot.manifest.load import load
from kbuild.aot.manifest.model import Guard
from kbuild.emulator.driver import FakeDriver
from kbuild.targets import find_target
from tests.emulator.driver.conftest import ROOT
from tests.emulator.driver.costs.calls import calls, named, sizes, value_of
from tests.emulator.driver.cuda import Cuda

PACKAGE = "shipped_kernels"
ARCHS = ("sm_80", "sm_90")
MANIFEST = load(ROOT / "kernels.toml", "kernels.toml")
VARIANTS = expand(MANIFEST).variants
FEW = 1 << 16
"""Of larger sizes there would be more programs than can be run in a test."""
Signature = tuple[tuple[str, str], ...]
GIVEN = {
    kernel: {"M": 1031, "N": 1032, "block_m": 16, "block_n": 64}
    for kernel in ("matmul_parts", "linear_parts")
}
"""Arguments for which a kernel has programs, where others leave it none."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped project, built of kernels that do nothing, with its wheel unpacked in `site`."""
    folder = tmp_path_factory.mktemp("shipped")
    shutil.copytree(ROOT / "kernels", folder / "kernels")
    text = (ROOT / "kernels.toml").read_text()
    # Another test of the same process may have given torch the operators of the package by its own name.
    (folder / "kernels.toml").write_text(text.replace('name = "kbuild_kernels"', f'name = "{PACKAGE}"'))
    options = BuildOptions(
        project=folder,
        environment=dict(os.environ),
        compiler="tests.emulator.driver.noop_compiler:compile",
        source_digest="tests.aot.build.fake_compiler:source_digest",
    )
    result = build(options, Progress())
    assert not result.failures and result.wheel is not None
    with zipfile.ZipFile(result.wheel) as archive:
        archive.extractall(folder / "site")
    return folder


@pytest.fixture(scope="module", autouse=True)
def calls_forgotten() -> Iterator[None]:
    """A million calls would stay in the process, in which the garbage collector would go through them again and again."""
    yield
    for remembered in (candidates, calls_by_cost, choices_for, guards_near):
        remembered.cache_clear()


@pytest.fixture(scope="module")
def driver(project: Path, libraries: Path) -> Iterator[FakeDriver]:
    # Nobody waits for the launches, so their many programs, which do nothing, need not run.
    with FakeDriver(ARCHS, builds=[project / "build"], folder=libraries, streams="late") as driver:
        yield driver


@pytest.fixture(scope="module")
def package(project: Path, driver: FakeDriver) -> Iterator[types.ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KBUILD_LIBCUDA", str(driver.path))
        patch.syspath_prepend(str(project / "site"))
        package = importlib.import_module(PACKAGE)
        yield package
        for name in [name for name in sys.modules if name.partition(".")[0] == package.__name__]:
            del sys.modules[name]


@pytest.fixture(scope="module")
def digests(project: Path) -> dict[str, str]:
    """Digest of each variant's cubin, by its text."""
    facts = [json.loads(path.read_bytes()) for path in (project / "build").glob("sm_*/*/*.json")]
    return {one["variant"]: one["sha256"] for one in facts}


def fits(value: int, type_: str) -> bool:
    """Whether an integer has exactly the hints of a type of a signature."""
    hint = type_.partition(":")[2]
    if hint == "4":
        return value % 8 == 4
    return value == 1 if hint == "1" else value % int(hint) == 0 if hint else value % 2 == 1 and value != 1


def edge(guard: Guard, name: str, num_sms: int) -> int:
    """The value at which a guard begins or ceases to hold; of an arithmetic product, the argument's value where
    its factors are about equal."""
    bound, block = guard.bound(num_sms), int(dict(guard.factors)[name] or 1)
    if len(guard.arguments) == 1:
        return bound * block
    return int(bound ** (1 / len(guard.arguments))) * block // 16 * 16


def values_for(variant: Variant) -> Iterator[dict[str, int | float]]:
    """Run-time arguments with exactly the hints of this variant: where it has a cost, such as it is the cheapest for, else
    such as its own guards let through, the largest first: what comes before it among the configurations is for less."""
    point = variant.kernel, variant.arch, variant.matrix, variant.signature
    if variant.cost:
        return map(dict, calls_by_cost(*point)[variant])
    facts = [guard.expression for guard in variant.guards]
    num_sms = find_target(variant.arch).multiprocessors
    return (
        dict(values)
        for values in candidates(*point)
        if all(value_of(fact, values, num_sms) for fact in facts)
    )


@functools.cache
def calls_by_cost(
    kernel: str, arch: str, matrix: object, signature: Signature
) -> dict[Variant, list[dict[str, int | float]]]:
    """Calls of the variants of a point that have a cost."""
    point = (kernel, arch, matrix, signature)
    rivals = [one for one in VARIANTS if (one.kernel, one.arch, one.matrix, one.signature) == point]
    choices, types_, costed = choices_for(*point), dict(signature), named(rivals)
    others = {name: values for name, values in choices.items() if name not in costed}
    return calls(
        rivals,
        [dict(zip(others, values)) for values in itertools.product(*others.values())],
        {name: sizes(rivals, name, functools.partial(fits, type_=types_[name])) for name in costed},
        find_target(arch).multiprocessors,
    )


@functools.cache
def candidates(kernel: str, arch: str, matrix: object, signature: Signature) -> list[dict[str, int | float]]:
    """Run-time arguments with exactly the hints of a signature, around every bound of the guards of its kernel; in order
    of the product of those that guards name, from the largest."""
    choices = choices_for(kernel, arch, matrix, signature)
    every = [dict(zip(choices, values)) for values in itertools.product(*choices.values())]
    names = {name for guard in guards_near(kernel, arch, matrix) for name in guard.arguments}
    return sorted(every, key=lambda values: math.prod(values[name] for name in names), reverse=True)


@functools.cache
def guards_near(kernel: str, arch: str, matrix: object) -> list[Guard]:
    """The guards of all variants of a kernel for the same values of its axes."""
    return [
        guard
        for other in VARIANTS
        if (other.kernel, other.arch, other.matrix) == (kernel, arch, matrix)
        for guard in other.guards
    ]


@functools.cache
def choices_for(kernel: str, arch: str, matrix: object, signature: Signature) -> dict[str, list[int | float]]:
    """Values to try of each argument."""
    num_sms = find_target(arch).multiprocessors
    guards = guards_near(kernel, arch, matrix)
    choices: dict[str, list[int | float]] = {
        argument.name: [
            2,
            *(
                edge(guard, argument.name, num_sms) + 1
                for guard in guards
                if argument.name in guard.arguments
            ),
        ]
        for argument in MANIFEST.kernel(kernel).grid_args
    }
    for position, (name, type_) in enumerate(signature):
        own = [guard for guard in guards if name in guard.arguments]
        bounds = {edge(guard, name, num_sms) for guard in own if "%" not in guard.operator}
        edges = {bound + step for bound in bounds if bound < FEW for step in (-16, -4, -1, 0, 1, 16)}
        edges |= {8, 64} if any("%" in guard.operator for guard in own) else set()
        if name in GIVEN.get(kernel, {}):
            choices[name] = [GIVEN[kernel][name]]
        elif type_[0] == "*":
            choices[name] = [0x10000 * (position + 1) + (0 if type_.endswith(":16") else 8)]
        elif type_ in ("fp32", "fp64"):
            choices[name] = [0.5]
        else:
            fitting = [value for value in {1, 7, 44, 48, *edges} if fits(value, type_)]
            choices[name] = [*sorted(fitting, reverse=True)[: None if edges else 1]]
    return choices


def word(parameter: selection.LaunchParameter, value: int | float) -> int:
    """The fact of one argument, by what `selection.py` says of facts."""
    if parameter.kind == "float":
        return selection.TYPE_MASK & parameter.mask
    assert isinstance(value, int)
    hints = (
        selection.HINT_16 * (value % 16 == 0)
        | selection.HINT_8 * (value % 8 == 0)
        | selection.HINT_4 * (value % 4 == 0)
        | selection.HINT_1 * (value == 1)
    )
    types = selection.TYPE_MASK
    if parameter.kind == "integer":
        limits = {f"i{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1)) for bits in (8, 16, 32, 64)}
        limits |= {f"u{bits}": (0, 2**bits) for bits in (8, 16, 32, 64)} | {"i1": (0, 2)}
        types = sum(selection.TYPES[name] for name, (least, end) in limits.items() if least <= value < end)
    return (types | hints) & parameter.mask


def row_for(
    table: selection.KernelTable,
    targets: Any,
    capability: int,
    values: dict[str, Any],
    options: dict[str, Any],
    num_sms: int,
) -> str:
    """The name of the row that dispatch in Python takes."""
    facts = [*selection.device_facts(table, targets, capability, 232448 if capability == 90 else 166912)]
    facts += [word(parameter, values[parameter.name]) for parameter in table.parameters]
    facts += [1 << option.values.index(options[option.name]) for option in table.options]
    facts += [int(bool(value_of(condition, values, num_sms))) for condition in table.conditions]
    costs = [value_of(cost, values, num_sms) for cost in table.costs]
    return table.rows[selection.select(table, facts, costs).row].name


def bytes_of(variant: Variant, values: dict[str, int | float]) -> tuple[bytes, ...]:
    """The parameters that the kernel gets."""
    formats = {"i32": "<i", "i64": "<q", "fp32": "<f"}
    types = [(name, *type_.partition(":")[::2]) for name, type_ in variant.signature]
    return tuple(
        struct.pack(formats.get(type_, "<Q"), values[name]) for name, type_, hint in types if hint != "1"
    )


def test_every_variant_is_taken_by_some_call(
    package: types.ModuleType, driver: FakeDriver, digests: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    tables = {table.name: table for table in importlib.import_module(f"{PACKAGE}._table").KERNELS}
    targets = importlib.import_module(f"{PACKAGE}._table").TARGETS
    cuda = Cuda(driver.path, None)
    contexts = [cuda.get("cuDevicePrimaryCtxRetain", device) for device in range(len(ARCHS))]
    for variant in VARIANTS:
        device, options = ARCHS.index(variant.arch), dict(variant.matrix)
        cuda("cuCtxSetCurrent", contexts[device])
        for values in values_for(variant):
            getattr(package.launch, variant.kernel)(**values, **options)
            launch = driver.launches[-1]
            if launch.digest == digests[str(variant)]:
                break
        else:
            raise AssertionError(f"no call takes {variant}")
        assert launch.device == device and launch.arguments == bytes_of(variant, values), variant
        expected = row_for(
            tables[variant.kernel],
            targets,
            80 + 10 * device,
            values,
            options,
            find_target(variant.arch).multiprocessors,
        )
        package.explain(getattr(package.launch, variant.kernel), **values, **options)
        package.explain(getattr(package.launch, variant.kernel), **values, **options, arch=variant.arch)
        lines = capsys.readouterr().out.splitlines()
        taken = [
            line.partition(": taken")[0] for line in lines if re.search(r": taken($|, for it costs)", line)
        ]
        assert taken == [f"  {expected}"] * 2, variant
    assert {launch.digest for launch in driver.launches} == set(digests.values())


def test_calls_at_random_agree_with_dispatch_in_python(
    package: types.ModuleType, driver: FakeDriver, digests: dict[str, str]
) -> None:
    """Values of one variant with a few of another's, so that most calls fit neither."""
    launcher = importlib.import_module(f"{PACKAGE}._launcher")
    tables = importlib.import_module(f"{PACKAGE}._table")
    random = numpy.random.default_rng(1)
    seen = set()
    for first, second in (random.choice(len(VARIANTS), 2) for _ in range(3000)):
        variant, other = VARIANTS[first], VARIANTS[second]
        if variant.kernel != other.kernel:
            continue
        mixed = next(values_for(variant))
        for name, value in next(values_for(other)).items():
            mixed[name] = value if random.random() < 0.2 else mixed[name]
        index = next(i for i, table in enumerate(tables.KERNELS) if table.name == variant.kernel)
        table = tables.KERNELS[index]
        _, facts, _, _, costs = launcher._facts(
            index, find_target(variant.arch).multiprocessors, **mixed, **dict(variant.matrix)
        )
        capability = 80 + 10 * ARCHS.index(variant.arch)
        facts = (*launcher._device_facts(index, capability, 166912), *facts[2:])
        chosen = launcher._select(index, facts, costs)[0]
        assert table.rows[chosen].name == row_for(
            table,
            tables.TARGETS,
            capability,
            mixed,
            dict(variant.matrix),
            find_target(variant.arch).multiprocessors,
        )
        seen.add((variant.kernel, chosen))
    assert len(seen) > 100
