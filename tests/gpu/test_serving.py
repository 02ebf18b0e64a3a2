"""examples/adopt on a device: its library runs over its wheel, with Triton and without, and nothing is compiled by Triton.

Each way runs in a process of its own.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from kbuild.aot.build.progress import Progress
from kbuild.aot.build.project import BuildOptions, build

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/adopt"

USE = """\
import sys
import torch

WAY = sys.argv[1]
if WAY == "without":
    class Forbidding:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] == "triton":
                raise ImportError(name)
    sys.meta_path.insert(0, Forbidding())
    for name in [name for name in sys.modules if name.partition(".")[0] == "triton"]:
        del sys.modules[name]
import adopt
adopt.install(strict=True)
import tiny_ops

compiled = []
if WAY == "with":
    import triton.runtime.jit as jit
    jit.JITFunction._do_compile = lambda *args, **kwargs: compiled.append(args) or sys.exit("Triton compiled a kernel")

torch.manual_seed(0)
for dtype, near in ((torch.float16, 2e-2), (torch.float32, 2e-5)):
    def some(*shape):
        return torch.randn(*shape, device="cuda").to(dtype)
    x, y, weight = some(4096), some(4096), some(4096)
    rows, scale, target = some(8, 512), some(512), torch.randint(0, 512, (8,), device="cuda")
    a, b = some(64, 64), some(64, 64)
    norm = rows.float() * torch.rsqrt((rows.float() ** 2).mean(1, keepdim=True) + 1e-6)
    pairs = {
        "add": (tiny_ops.add(x, y), x.float() + y.float()),
        "scale": (tiny_ops.scale(x, 0.5), x.float() * 0.5),
        "lerp": (tiny_ops.lerp(x, y, weight), torch.lerp(x.float(), y.float(), weight.float())),
        "gelu": (tiny_ops.gelu(x), torch.nn.functional.gelu(x.float())),
        "softmax": (tiny_ops.softmax(rows), rows.float().softmax(1)),
        "rms_norm": (tiny_ops.rms_norm(rows), norm),
        "weighted": (tiny_ops.rms_norm(rows, scale), norm * scale.float()),
        "row_max": (tiny_ops.row_max(rows), rows.float().amax(1)),
        "cross_entropy": (
            tiny_ops.cross_entropy(rows, target),
            torch.nn.functional.cross_entropy(rows.float(), target, reduction="none"),
        ),
        "transpose": (tiny_ops.transpose(some(100, 70)), None),
        "matmul": (tiny_ops.matmul(a, b), a.float() @ b.float()),
    }
    for name, (found, right) in pairs.items():
        if right is not None:
            error = (found.float() - right).abs().max().item()
            assert error < (0.1 if name == "matmul" else near), (name, dtype, error)
torch.cuda.synchronize()
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    graph_in = torch.ones(4096, device="cuda")
    tiny_ops.add(graph_in, graph_in)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        out = tiny_ops.add(graph_in, graph_in)
graph.replay()
torch.cuda.synchronize()
assert (out == 2).all() and not compiled
try:
    tiny_ops.softmax(torch.randn(8, 256, device="cuda"))
except adopt.dispatch.NoVariantError as error:
    assert "the line to add" in str(error)
else:
    sys.exit("a call that was not captured was answered")
print("served")
"""

COMPILED = """\
import sys
from pathlib import Path

import torch
import adopt
adopt.install(strict=True)
import tiny_ops

def step(x, y, weight, rows, scale):
    total = tiny_ops.lerp(tiny_ops.add(x.sin(), y), y, weight) * 2
    return total, tiny_ops.gelu(total), tiny_ops.softmax(rows * 2), tiny_ops.rms_norm(rows, scale) + 1

def some(*shape):
    return torch.randn(*shape, device="cuda")

for options in ({}, {"dynamic": True}, {"mode": "reduce-overhead"}):
    torch.compiler.reset()
    compiled = torch.compile(step, fullgraph=True, **options)
    for size in (4096, 8192, 4096, 4096):
        args = some(size), some(size), some(size), some(8, 512), some(512)
        for found, right in zip(compiled(*args), step(*args)):
            assert torch.allclose(found, right, rtol=1e-5, atol=1e-5), options
eager = torch.compile(step, backend="aot_eager", fullgraph=True)(*args)
assert all(map(torch.allclose, eager, step(*args)))
programs = [path.read_text() for path in Path(sys.argv[1]).rglob("*.py")]
launches = [text for text in programs if "library_tiny_ops_elementwise_add_kernel[" in text]
assert len(launches) >= 2 and not any("user_autotune" in text for text in programs)
print("served")
"""


@pytest.fixture(scope="module")
def project(device: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, built for the device, with the wheel unpacked in `site`."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("serving") / "adopt"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("build", "dist", "__pycache__"))
    result = build(BuildOptions(project=folder, environment=dict(os.environ)), Progress())
    assert not result.failures and result.wheel is not None
    with zipfile.ZipFile(result.wheel) as archive:
        archive.extractall(folder / "site")
    (folder / "served.py").write_text(USE)
    (folder / "compiled.py").write_text(COMPILED)
    return folder


@pytest.mark.parametrize("way", ["with", "without"])
def test_a_library_runs_over_its_wheel(project: Path, way: str) -> None:
    if way == "with" and importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    run(project, "served.py", way)


def test_compiled_graphs_ask_the_package(project: Path) -> None:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    folder = project / "inductor"
    run(project, "compiled.py", str(folder), TORCHINDUCTOR_CACHE_DIR=str(folder))


def run(project: Path, program: str, argument: str, **environment: str) -> None:
    """Runs a program over the wheel, beside the library."""
    paths = os.pathsep.join([str(project / "site"), str(project)])
    done = subprocess.run(
        [sys.executable, program, argument],
        cwd=project,
        env={**os.environ, "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and done.stdout.endswith("served\n"), done.stdout + done.stderr
