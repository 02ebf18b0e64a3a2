"""Compiled graphs of torch launch the library's kernels as the library does, and so ask its package."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.cli.adopting.serving.conftest import World
from tests.cli.adopting.serving.inductor import Program, put_inductor


class Graph:
    """Launches in a graph, as Inductor makes a program of them."""

    def __init__(self, world: World, folder: Path) -> None:
        put_inductor(world.torch, folder)
        self.ir: Any = importlib.import_module("torch._inductor.ir")
        self.wrapper: Any = importlib.import_module("torch._inductor.codegen.wrapper")
        self.program = Program()

    def launch(self, kernel: Any, grids: Sequence[Any], program: Any = None, **values: Any) -> str:
        """Adds a launch to the program, and gives its line; texts are names of buffers."""
        given = {
            name: self.ir.Buffer(value[1:]) if str(value).startswith("%") else value
            for name, value in values.items()
        }
        self.ir.UserDefinedTritonKernel(kernel, grids, given).codegen(program or self.program)
        return self.program.lines[-1]

    def source(self, kernel: Any) -> str:
        """The source by which torch's caches know a kernel."""
        return self.wrapper.user_defined_triton_kernel_transitive_closure_source_code(kernel)


@pytest.fixture
def graph(world: World, tmp_path: Path) -> Graph:
    """After the package was installed, as it is where torch's compiler is used for the first time."""
    world.package.install()
    return Graph(world, tmp_path / "torch")


def add_kernel(world: World) -> Any:
    return world.library and world.module("tiny_ops.elementwise").add_kernel


ADD = {"x": "%buf0", "y": "%buf1", "out": "%buf2", "n": 4096, "BLOCK": 1024}
OWN = "compiled.append(1)"
"""What Inductor writes where it compiles a kernel."""


def run(world: World, program: Program) -> tuple[Any, int]:
    """The sum that a program makes of two arrays, and the kernels that it has compiled."""
    x, y = (world.torch.tensor(np.full(4096, value, np.float32)) for value in (1, 2))
    out = world.torch.empty_like(x)
    compiled = program.run(buf0=x, buf1=y, buf2=out, s0=4096)
    return out.numpy(), compiled


def test_a_launch_in_a_graph_is_answered_by_the_package(world: World, graph: Graph) -> None:
    line = graph.launch(add_kernel(world), [(4, 1, 1)], **ADD)
    assert line == (
        "library_tiny_ops_elementwise_add_kernel[(4, 1, 1,)](x=buf0, y=buf1, out=buf2, n=4096, BLOCK=1024)"
    )
    out, compiled = run(world, graph.program)
    assert (out == 3).all() and compiled == 0
    assert len(world.launched()) == 1 and world.compiled() == 0


def test_a_compiler_that_was_imported_before_is_taken_as_well(world: World, tmp_path: Path) -> None:
    graph = Graph(world, tmp_path / "torch")
    world.package.install()
    assert graph.launch(add_kernel(world), [(4, 1, 1)], **ADD) != OWN


def test_sizes_may_be_symbols(world: World, graph: Graph) -> None:
    symbol = type("Symbol", (), {"__module__": "sympy", "__str__": lambda self: "s0"})()
    quotient = type("Expr", (), {"__module__": "sympy", "__str__": lambda self: "(s0 + 1023) // 1024"})()
    line = graph.launch(add_kernel(world), [(quotient, 1, 1)], **{**ADD, "n": symbol})
    assert "[((s0 + 1023) // 1024, 1, 1,)]" in line and "n=s0" in line
    assert (run(world, graph.program)[0] == 3).all() and len(world.launched()) == 1


def test_the_options_of_a_launch_stay_with_it(world: World, graph: Graph) -> None:
    # Torch makes a tuner with one configuration of `kernel[grid](…, num_warps=8)`.
    autotuner = importlib.import_module("triton.runtime.autotuner").Autotuner
    config = SimpleNamespace(kwargs={}, num_warps=8, num_stages=3, num_ctas=1, maxnreg=None)
    tuner = SimpleNamespace(fn=add_kernel(world), configs=[config])
    assert not isinstance(tuner, autotuner)
    line = graph.launch(tuner, [(4, 1, 1)], **ADD)
    assert line.startswith("library_tiny_ops_elementwise_add_kernel[") and line.endswith(
        "BLOCK=1024, num_warps=8, num_stages=3)"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        (True, "True"),
        ("tanh", "'tanh'"),
        (0.5, "0.5"),
        (float("-inf"), "float('-inf')"),
        (float("nan"), "float('nan')"),
        (
            type("dtype", (), {"__module__": "triton.language.core", "name": "fp16"})(),
            "importlib.import_module('triton.language').dtype('fp16')",
        ),
    ],
)
def test_values_are_written_as_python_has_them(world: World, graph: Graph, value: Any, text: str) -> None:
    assert graph.launch(add_kernel(world), [(4, 1, 1)], **ADD, KIND=value).endswith(f", KIND={text})")


def test_what_has_no_text_is_left_to_inductor(world: World, graph: Graph) -> None:
    assert graph.launch(add_kernel(world), [(4, 1, 1)], **ADD, KIND=object()) == OWN


def test_a_program_in_cpp_is_left_to_inductor(world: World, graph: Graph) -> None:
    graph.ir.V.graph.cpp_wrapper = True
    assert graph.launch(add_kernel(world), [(4, 1, 1)], **ADD) == OWN


def test_kernels_that_no_package_has_are_left_to_inductor(world: World, graph: Graph) -> None:
    jit = importlib.import_module("triton").jit
    (world.folder / "others.py").write_text("def copy_kernel(x, out, n): pass\n")
    others: Any = importlib.import_module("others")
    others.copy_kernel = kernel = jit(others.copy_kernel)
    assert graph.launch(kernel, [(1, 1, 1)], x="%buf0", out="%buf1", n=4) == OWN
    # A strict package is asked, and refuses the launch.
    world.package.install(strict=True)
    assert graph.launch(kernel, [(1, 1, 1)], x="%buf0", out="%buf1", n=4) != OWN
    graph.program.lines = graph.program.lines[-1:]
    with pytest.raises(world.package.dispatch.NoVariantError, match="others:copy_kernel was not captured"):
        run(world, graph.program)


def test_kernels_made_in_functions_are_left_to_inductor(world: World, graph: Graph) -> None:
    kernel = add_kernel(world)
    del world.module("tiny_ops.elementwise").add_kernel  # No program can import it.
    assert graph.launch(kernel, [(4, 1, 1)], **ADD) == OWN


def test_graphs_of_other_processes_are_others_to_caches(world: World, graph: Graph) -> None:
    kernel = add_kernel(world)
    assert graph.source(kernel) == f"{kernel.src}\n# launched as tiny_ops.elementwise:add_kernel\n"
    world.package.uninstall()
    assert graph.source(kernel) == kernel.src
    assert graph.launch(kernel, [(4, 1, 1)], **ADD) == OWN


def test_launches_in_parts_of_a_graph_share_the_imports(world: World, graph: Graph) -> None:
    part = SimpleNamespace(
        parent_wrapper=graph.program, writeline=graph.program.writeline, val_to_arg_str=str
    )
    graph.launch(add_kernel(world), [(4, 1, 1)], part, **ADD)
    graph.launch(add_kernel(world), [(4, 1, 1)], **ADD)
    assert graph.program.imports == [
        "import importlib",
        "library_tiny_ops_elementwise_add_kernel = importlib.import_module('tiny_ops.elementwise').add_kernel",
    ]
    run(world, graph.program)
    assert len(world.launched()) == 2
