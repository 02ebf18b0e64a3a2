"""The house rules, checked by reading the source: which module may import which, what has one home, and what goes by which
name."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import tomli

import kbuild.compiler.transforms  # noqa: F401  registers the passes
from kbuild.aot.manifest.model import DTYPES
from kbuild.compiler import interp, library
from kbuild.compiler.ir.core import registered_ops
from kbuild.compiler.ir.passes import Pass, parse_pass, registered_passes
from kbuild.compiler.lower import unhandled_ops
from kbuild.compiler.semantic.types import BY_SIGNATURE_NAME
from kbuild.targets import ARCHS, find_target

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted((ROOT / "kbuild").rglob("*.py"))
FOLDERS = ("kbuild", "templates", "kernels", "examples", "bench", "tests", "docs")
TEXTS = sorted(
    path
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".py", ".c", ".h", ".j2", ".css", ".js", ".test", ".md", ".toml")
    and "__pycache__" not in path.parts
)

ORDER = (
    "errors",
    "options",
    "tensor_map",
    "targets",
    "layout",
    "ir",
    "ops",
    "analysis",
    "transforms",
    "lower",
    "backend",
)
SEES = {area: {*ORDER[:place]} for place, area in enumerate(ORDER)} | {
    "semantic": {"errors", "targets", "layout", "ir", "ops"},
    "library": set[str](),
    "frontend": {"errors", "options", "layout", "ir", "ops", "semantic", "library"},
    "upstream": {"errors", "targets", "layout", "ir", "ops", "semantic"},
    "views": {*ORDER[: ORDER.index("lower")], "semantic", "frontend", "upstream"},
    "interp": {"errors", "options", "tensor_map", "ir", "ops"},
    "language": {"errors", "options", "layout", "semantic", "library", "frontend", "interp"},
    "cuda": {"errors", "options", "tensor_map", "targets", "backend"},
    "sources": {"frontend", "cuda"},
    "artifact": {"options", "backend"},
    "compilation": {*ORDER, "frontend", "cuda", "artifact"},
    "driver": {*ORDER, "frontend", "upstream", "cuda", "artifact", "compilation"},
    "gpu": {"errors", "options", "tensor_map", "targets", "semantic", "frontend", "interp", "driver"},
    "emulator": {"errors"},
    "aot": {
        "errors",
        "options",
        "tensor_map",
        "targets",
        "kbuild",
        "frontend",
        "backend",
        "cuda",
        "sources",
        "driver",
        "interp",
        "emulator",
        "layout",
        "views",
        "gpu",
    },
    "cli": {"errors", "options", "targets", "kbuild", "driver", "views", "aot", "gpu"},
    "kbuild": {"errors", "driver", "language", "gpu"},
}
"""Which part may import which.  The parts of the compiler stand in a row, and each sees those before it; `kbuild` is the
package itself."""

HOMES = {
    "llvmlite": (),
    "cuda": ("gpu/", "compiler/cuda/nvrtc.py"),
    "numpy": (
        "aot/verify/",
        "aot/tune/gpu.py",
        "aot/tune/differences.py",
        "compiler/interp/",
        "emulator/",
        "gpu/",
    ),
    "tomli": ("aot/manifest/positions.py", "aot/manifest/tuned.py"),
    "pyproject_metadata": ("aot/artifact/distribution.py",),
    "jinja2": ("aot/artifact/rendering.py", "aot/report/page.py"),
    "aiohttp": ("aot/remote/http_store.py",),
    "grpc": ("aot/remote/reapi.py",),
    "google": ("aot/remote/protos.py",),
    "zstandard": ("aot/remote/http_store.py", "aot/remote/reapi.py"),
    "botocore": ("aot/remote/s3.py",),
    "subprocess": (
        "compiler/backend/cubin.py",
        "aot/toolchain.py",
        "aot/build/ninja.py",
        "aot/build/service.py",
        "aot/capture/command.py",
        "emulator/driver/library.py",
    ),
}
"""Modules that are imported in these places alone."""

RUFF = shutil.which("ruff", path=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()]))
"""The one beside this Python first."""

LANGUAGE = tuple(f"compiler/library/{file}" for files in library.FILES.values() for file in files)
"""Files in the language itself: kernels are compiled from their text and never imported."""

REWRITTEN = {
    "tt.advance": "rewrite_tensor_pointer",
    "tt.make_tensor_ptr": "rewrite_tensor_pointer",
    **dict.fromkeys(
        (
            "tt.make_tensor_descriptor",
            *(f"tt.descriptor_{what}" for what in ("load", "store", "reduce", "gather", "scatter")),
        ),
        "rewrite_tensor_descriptor_to_pointer",
    ),
    "tt.call": "inline",
    "gluon.set_auto_layout": "resolve_layouts",
    "tt.func": "the function itself, which lower_module walks",
    "tt.reduce.return": "read by lower_combine, with the function that it ends",
}
"""Operations that have no handler, and where they go before."""

MEANINGLESS = {
    "tt.elementwise_inline_asm": "text for the GPU",
    **dict.fromkeys(
        ("tt.func", "tt.return", "tt.reduce.return", "scf.yield", "scf.condition"),
        "Machine.run, Machine.call",
    ),
    **dict.fromkeys(("ttg.warp_yield", "ttg.warp_return"), "interp.partitions"),
}
"""Operations that have no meaning of their own in the interpreter, and why."""


def short(path: Path) -> str:
    return path.relative_to(ROOT / "kbuild").as_posix()


def area_of(module: str) -> str:
    """The part of the house that a module belongs to; "" for one from outside."""
    first, *rest = module.split(".")
    if first != "kbuild":
        return ""
    area = (rest[1:] if rest[:1] == ["compiler"] else rest)[:1]
    return {"__main__": "cli", "__version__": "kbuild"}.get(area[0], area[0]) if area else "kbuild"


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and module of each import of a file; `from kbuild.compiler import ops` means
    `kbuild.compiler.ops`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level and node.module, f"{path}:{node.lineno}: name the module in full"
            names = (
                [alias.name for alias in node.names] if node.module in ("kbuild", "kbuild.compiler") else [""]
            )
            yield from ((node.lineno, f"{node.module}.{name}".rstrip(".")) for name in names)


def complain(complaints: Iterable[str]) -> None:
    """Fail with all complaints, one a line."""
    found = list(complaints)
    assert not found, "\n" + "\n".join(found)


def test_imports_run_one_way() -> None:
    def complaints() -> Iterator[str]:
        for path in MODULES:
            area = area_of(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
            for line, module in imports(path) if short(path) not in LANGUAGE else ():
                seen = area_of(module)
                if seen not in ("", area) and seen not in SEES[area]:
                    yield f"{path}:{line}: {area} must not see {seen}"

    complain(complaints())


def test_no_modules_import_each_other() -> None:
    """Not in a circle either, and not for the sake of type hints: a module says by a protocol what it asks of
    those above it."""
    names = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in MODULES
    }
    graph: dict[str, set[str]] = {}
    for name, path in names.items():
        tree = ast.parse(path.read_text())
        inside = {
            id(node)
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef)
            for node in ast.walk(function)
        }
        found = [
            node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and id(node) not in inside
        ]
        parts = [(f"{node.module}.{alias.name}", str(node.module)) for node in found for alias in node.names]
        graph[name] = {inner if inner in names else outer for inner, outer in parts} & names.keys() - {name}
    while free := {name for name, needed in graph.items() if not needed}:
        graph = {name: needed - free for name, needed in graph.items() if name not in free}
    while above := graph.keys() - set[str]().union(*graph.values()):
        graph = {name: needed for name, needed in graph.items() if name not in above}
    assert not graph, f"these import each other: {', '.join(sorted(graph))}"


def test_what_comes_from_outside_stays_in_its_home() -> None:
    def complaints() -> Iterator[str]:
        for path in MODULES:
            for line, module in imports(path):
                homes = HOMES.get(module.split(".")[0])
                if homes is not None and not short(path).startswith(homes):
                    yield f"{path}:{line}: {module} belongs to {', '.join(homes)}"

    complain(complaints())


def test_the_environment_is_read_at_the_edges_alone() -> None:
    """By the command line, the build backend, and, for the variable that names the driver's library, by the fake driver in a
    process of tests and where kernels are launched from Python.  What starts ptxas passes it on."""
    pattern = re.compile(r"\bos\.(?:environb?|getenv)\b|\bsys\.argv\b")
    readers = {short(path) for path in MODULES if pattern.search(path.read_text())}
    edges = {
        "cli/__init__.py",
        "aot/backend.py",
        "compiler/backend/large_pages.py",
        "emulator/driver/fake_driver.py",
        "gpu/environment.py",
    }
    assert readers <= edges, "let it be an argument"


def test_imports_inside_functions_say_why() -> None:
    def complaints() -> Iterator[str]:
        for path in MODULES:
            lines = path.read_text().splitlines()
            functions = [
                node for node in ast.walk(ast.parse("\n".join(lines))) if isinstance(node, ast.FunctionDef)
            ]
            inside = [node for function in functions for node in ast.walk(function)]
            inner = {node.lineno for node in inside if isinstance(node, ast.Import | ast.ImportFrom)}
            for line in sorted(inner):
                first = line
                while first - 1 in inner:  # One comment does for imports that stand together.
                    first -= 1
                if "#" not in lines[first - 2] + lines[line - 1]:
                    yield f"{path}:{line}: an import inside a function, without a comment that says why"

    complain(complaints())


def test_files_are_finished_and_hold_one_thing() -> None:
    unfinished = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")

    def complaints() -> Iterator[str]:
        for path in TEXTS:
            lines = path.read_text().splitlines()
            if len(lines) > 500 and path.suffix not in (".md", ".test"):
                yield f"{path}: {len(lines)} lines; it holds more than one thing"
            yield from (
                f"{path}:{number}: do it, or leave it"
                for number, line in enumerate(lines, 1)
                if unfinished.search(line)
            )

    complain(complaints())


def test_functions_fit_on_a_screen() -> None:
    def complaints() -> Iterator[str]:
        for path in MODULES:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef):
                    lines = (node.end_lineno or 0) - node.lineno + 1
                    if lines > 60:
                        yield f"{path}:{node.lineno}: {node.name} has {lines} lines"

    complain(complaints())


def test_folders_can_be_taken_in_at_a_glance() -> None:
    def complaints() -> Iterator[str]:
        for top in ("kbuild", "tests", "templates"):
            for folder in (ROOT / top, *(path for path in (ROOT / top).rglob("*") if path.is_dir())):
                entries = [path for path in folder.iterdir() if path.name != "__pycache__"]
                if len(entries) > 20 and folder.name != "__pycache__":
                    yield f"{folder}: {len(entries)} entries; give it rooms"

    complain(complaints())


def test_modules_say_what_they_are() -> None:
    texts = {path: path.read_text() for path in MODULES}
    complain(
        f"{path} does not begin with what it is" for path, text in texts.items() if text and not doc_of(text)
    )


def doc_of(text: str) -> str:
    return ast.get_docstring(ast.parse(text)) or ""


@pytest.mark.skipif(RUFF is None, reason="ruff is not installed: pip install '.[dev]'")
@pytest.mark.parametrize("command", [("check", "--output-format", "concise"), ("format", "--check")])
def test_style(command: tuple[str, ...]) -> None:
    done = subprocess.run(
        [str(RUFF), *command, "--quiet", str(ROOT)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_pyright_finds_the_modules_that_pytest_finds() -> None:
    tools = tomli.loads((ROOT / "pyproject.toml").read_text())["tool"]
    for environment in tools["pyright"]["executionEnvironments"]:
        assert {environment["root"], *environment["extraPaths"]} == {
            ".",
            *tools["pytest"]["ini_options"]["pythonpath"],
        }


def our_passes() -> dict[str, Pass]:
    """All passes but those that other tests have registered."""
    return {
        name: entry
        for name, entry in registered_passes().items()
        if entry.function.__module__.startswith("kbuild.")
    }


def file_of(entry: Pass) -> Path:
    file = sys.modules[entry.function.__module__].__file__
    assert file is not None
    return Path(file)


def test_passes_go_by_one_name_and_show_what_they_do() -> None:
    def complaints() -> Iterator[str]:
        for entry in our_passes().values():
            file = file_of(entry)
            if {entry.name, entry.function.__name__} != {
                file.parent.name if file.stem == "__init__" else file.stem
            }:
                yield f"{file}: the pass {entry.name} is the function {entry.function.__name__}"
            if not re.search(r"Before:.*After\b.*:", doc_of(file.read_text()), re.DOTALL):
                yield f"{file} opens without IR before and after the pass"

    complain(complaints())


def test_every_pass_has_its_place() -> None:
    named = {parse_pass(text)[0].name for arch in ARCHS for text in pipeline_of(arch)}
    assert named == set(our_passes()), "a pass that no pipeline names"


def pipeline_of(arch: str) -> tuple[str, ...]:
    target = find_target(arch)
    passes = [*target.pipelines(False), *target.pipelines(True)]
    return tuple(name for pipeline in passes for name in pipeline)


def test_every_operation_can_be_lowered_or_is_rewritten_before() -> None:
    assert unhandled_ops() == sorted(REWRITTEN)
    named = {text.split("{")[0] for arch in ARCHS for text in pipeline_of(arch)}
    assert {where for where in REWRITTEN.values() if " " not in where} <= named


def test_every_operation_has_a_meaning() -> None:
    without = [name for name, cls in registered_ops().items() if interp.meaning_of(cls) is None]
    assert sorted(without) == sorted(MEANINGLESS)


def test_manifests_may_name_what_there_is() -> None:
    assert {*DTYPES, "u1"} == set(BY_SIGNATURE_NAME)  # u1 is Triton's other word for i1.
