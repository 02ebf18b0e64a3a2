"""Text cases: IR before a list of passes, and the exact IR after it.

A `*.test` file holds cases of this form:

    // case: name [pass1, pass2{option=1}] target=sm_80
    // with: n=100 grid=2
    tt.func @f(%p: !tt.ptr<f32>, %n: i32) attributes {num_warps = 4} { … }
    // ----
    tt.func @f(…) …

The passes run in order, and the text after them must be exactly the expected one; a mistake of the user's
prints as `error: message`.  `pytest --update` rewrites the expectations: read the diff.  The harness also
asserts that the texts before and after survive parsing and printing, and that both mean the same to the
interpreter on small whole numbers, for which every rounding is exact.  The line `with` is optional: arguments
by name (an integer, or the size of a pointer's array), `grid=x,y,z`, or `meaning=no` for IR that cannot be
interpreted.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kbuild.compiler.transforms  # noqa: F401  registers the passes
from kbuild.compiler import interp
from kbuild.compiler.ir.core import Module
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ir.passes import run_pipeline, split_pipeline
from kbuild.compiler.ir.printer import print_module
from kbuild.compiler.ir.types import (
    I1,
    MemDescType,
    element_of,
    is_int,
    is_pointer,
    is_tensor,
    pointee_of,
    shape_of,
)
from kbuild.compiler.ir.verify import verify
from kbuild.errors import CompileError
from kbuild.targets import find_target
from tests.launcher.compile_once import with_compilers

_CASE = re.compile(r"^// case: *(?P<name>\S+) *\[(?P<passes>.*)\] *(?:target=(?P<target>\w+))? *$")
_SEPARATOR = "// ----"


@dataclass
class Case:
    """One case of a file; `first` and `last` are the lines of its expectation."""

    name: str
    passes: tuple[str, ...]
    target: str
    options: dict[str, str]
    source: str
    expected: str
    first: int
    last: int


def parse_cases(text: str) -> Iterator[Case]:
    """The cases of a file, in order."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("// case:")]
    for start, end in zip(starts, [*starts[1:], len(lines)]):
        match = _CASE.match(lines[start])
        assert match, f"not a case: {lines[start]}"
        body = start + 1
        options: dict[str, str] = {}
        while body < end and lines[body].startswith("// with:"):
            for item in lines[body].split(":", 1)[1].split():
                name, _, value = item.partition("=")
                options[name] = value
            body += 1
        separator = next((n for n in range(body, end) if lines[n].rstrip() == _SEPARATOR), end)
        last = end
        while last > separator + 1 and (not lines[last - 1].strip() or lines[last - 1].startswith("//")):
            last -= 1
        yield Case(
            match["name"],
            split_pipeline(match["passes"]),
            match["target"] or "sm_80",
            options,
            "\n".join(lines[body:separator]).strip() + "\n",
            "\n".join(lines[separator + 1 : last]).strip() + "\n",
            separator,
            last,
        )


_COMPILERS = pytest.StashKey[Path]()
"""The folder with what the C compiler of the tests has made in this run."""


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # Workers of xdist inherit the environment.
        folder = config.stash[_COMPILERS] = Path(tempfile.mkdtemp(prefix="kbuild-tests-cc-"))
        os.environ.update(with_compilers(config.rootpath / ".pytest_cache/cc", folder))


def pytest_unconfigure(config: pytest.Config) -> None:
    if folder := config.stash.get(_COMPILERS, None):
        shutil.rmtree(folder, ignore_errors=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="rewrite the expectations of the text cases")


LONG_FILES = (
    *("tests/zoo/", "tests/emulator/test_zoo_emulated", "tests/emulator/driver/", "tests/examples/"),
    *(
        "tests/compiler/cuda/",
        "tests/random_programs/",
        "tests/mutated/",
        "tests/bench/",
        "tests/test_shipped",
    ),
)
"""Those with few tests that take long: first, so that no worker begins one of them when the others are at their end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONG_FILES))


def pytest_collect_file(parent: pytest.Collector, file_path: Path) -> pytest.Collector | None:
    return CaseFile.from_parent(parent, path=file_path) if file_path.suffix == ".test" else None


class CaseFile(pytest.File):
    """A file of text cases."""

    def collect(self) -> Iterator[pytest.Item]:
        for number, case in enumerate(parse_cases(self.path.read_text())):
            yield CaseItem.from_parent(self, name=case.name, case=case, number=number)


class CaseMismatch(Exception):
    """The text after the passes is not the expected one."""


class CaseItem(pytest.Item):
    """One text case."""

    def __init__(self, case: Case, number: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.case = case
        self.number = number

    def runtest(self) -> None:
        case = self.case
        before = self.module(case.source)
        after = self.module(case.source)
        try:
            run_pipeline(after, find_target(case.target), case.passes)
            assert_nothing_hangs(after)
            actual = print_module(after).strip() + "\n"
        except CompileError as error:
            actual = f"error: {error.message}\n"
        if actual != case.expected:
            if not self.config.getoption("--update"):
                raise CaseMismatch(difference(case.expected, actual))
            self.rewrite(actual)
        if not actual.startswith("error:"):
            assert print_module(self.module(actual)).strip() + "\n" == actual, (
                "the result changes when parsed and printed"
            )
            if case.options.get("meaning") != "no" and not any(
                isinstance(a.type, MemDescType) for a in before.kernel.arguments
            ):
                same_meaning(before, after, case.options)

    def module(self, text: str) -> Module:
        module = parse_module(text, str(self.path))
        for function in module.functions.values():
            verify(function)
        printed = print_module(module)
        assert print_module(parse_module(printed)) == printed, "the text changes when parsed and printed"
        return module

    def rewrite(self, actual: str) -> None:
        lines = self.path.read_text().splitlines()
        case = list(parse_cases("\n".join(lines)))[self.number]
        lines[case.first : case.last] = [_SEPARATOR, *actual.rstrip().splitlines()]
        self.path.write_text("\n".join(lines).rstrip() + "\n")

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        if isinstance(excinfo.value, CaseMismatch):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.case.first, f"case: {self.name}"


def assert_nothing_hangs(module: Module) -> None:
    """Assert that all users of a value are in the module: an operation that a pass made and left counts as a
    user."""
    inside = {op for function in module.functions.values() for op in function.body.walk()}
    for op in inside:
        for result in op.results:
            assert inside.issuperset(result.users), (
                f"an operation outside of all blocks uses {result} of {op.op_name}"
            )


def difference(expected: str, actual: str) -> str:
    """Both texts as a diff."""
    return "\n".join(
        difflib.unified_diff(expected.splitlines(), actual.splitlines(), "expected", "actual", "", "", 99, "")
    )


def same_meaning(before: Module, after: Module, options: dict[str, str]) -> None:
    """Assert that two modules leave the same memory behind on the same generated arguments."""
    grid = tuple(int(size) for size in options.get("grid", "2").split(","))
    first, second = example_arguments(before, options), example_arguments(before, options)
    interp.run(before, first, grid)
    interp.run(after, second, grid)
    for argument, one, other in zip(before.kernel.arguments, first, second):
        np.testing.assert_array_equal(one, other, f"argument {argument.name} differs after the passes")


def example_arguments(module: Module, options: dict[str, str]) -> list[Any]:
    """Arguments for a kernel: arrays of small whole numbers, integers that keep the assumed divisibility."""
    generator = np.random.default_rng(0)
    arguments: list[Any] = []
    for argument, hints in zip(module.kernel.arguments, module.kernel.argument_hints):
        given = options.get(argument.name)
        if is_pointer(argument.type):
            numbers = generator.integers(0, 8, shape_of(argument.type) or int(given or 4096))
            arguments.append(interp.encode(numbers, pointee_of(argument.type)))
        elif is_tensor(argument.type):
            arguments.append(
                generator.integers(0, 2 if element_of(argument.type) == I1 else 8, shape_of(argument.type))
            )
        elif is_int(argument.type):
            arguments.append(
                int(given) if given else 1 if argument.type == I1 else 3 * hints.get("divisibility", 1)
            )
        else:
            arguments.append(float(given or 2))
    return arguments
