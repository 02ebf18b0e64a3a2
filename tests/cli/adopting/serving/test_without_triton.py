"""Without Triton, `install()` puts in its place what a library needs to be imported, and its kernels are served."""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kbuild.emulator.driver import FakeDriver
from tests.cli.adopting.serving.conftest import World
from tests.cli.adopting.serving.test_install import use

without_triton = pytest.mark.parametrize("world", ["absent", "forbidden"], indirect=True)


@without_triton
def test_a_library_is_imported_and_served(world: World) -> None:
    with pytest.raises(ImportError):
        world.module("tiny_ops.functions")
    world.package.install()
    errors = use(world, np.float16)
    assert max(errors.values()) < 0.05 and len(world.launched()) == 12


@without_triton
def test_there_is_nothing_that_a_miss_could_go_to(world: World) -> None:
    world.package.install()
    x = world.torch.tensor(np.ones((8, 256), np.float32))
    with pytest.raises(world.package.dispatch.NoVariantError, match="BLOCK = 256 is not 128"):
        world.library.softmax(x)
    world.package.uninstall()
    with pytest.raises(RuntimeError, match="softmax_kernel cannot be compiled: Triton is not installed"):
        world.library.softmax(x)


@without_triton
def test_a_changed_source_is_not_served(world: World) -> None:
    file = world.folder / "tiny_ops/functions.py"
    file.write_text(file.read_text().replace("1 / tl.sqrt", "2 / tl.sqrt"))
    world.package.install()
    with pytest.raises(world.package.dispatch.NoVariantError, match="is another source than the one"):
        world.library.rms_norm(world.torch.tensor(np.ones((8, 512), np.float32)))


OTHER = """\
from __future__ import annotations

import triton
import triton.language as tl
from triton import Config, cdiv, next_power_of_2
from triton.compiler import CompiledKernel
from triton.language.extra.cuda.libdevice import tanh
from triton.language.extra.libdevice import rsqrt
from triton.language.target_info import cuda_capability_geq
from triton.runtime import driver
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction
from triton.testing import do_bench, do_bench_cudagraph
from triton.tools.ragged_tma import load_ragged
from triton.tools.tensor_descriptor import TensorDescriptor

triton.set_allocator(lambda size, alignment, stream: None)
exp = tl.math.exp
pow = tl.extra.cuda.libdevice.pow
TYPES = {tl.float16: 2, tl.bfloat16: 2, tl.float8e4nv: 1}
LOG2E = tl.constexpr(1.5)
TWICE = LOG2E * 2


@triton.jit(do_not_specialize=["n"])
def helper(x, n, scale: tl.constexpr = LOG2E, kind: tl.tensor | None = None):
    return exp(x) * tanh(x)


@triton.heuristics({"BLOCK": lambda args: next_power_of_2(args["n"])})
@triton.autotune([Config({"STEP": 2}, num_warps=8), Config({"STEP": 4}, num_stages=2)], key=["n"])
@triton.jit
def kernel(x, n, BLOCK: tl.constexpr, STEP: tl.constexpr):
    tl.store(x, helper(x, n))


@triton.constexpr_function
def half(n):
    return n // 2


def renamed(kernel, name):
    made = JITFunction(kernel.fn, repr=lambda _: name)
    made._unsafe_update_src(kernel.src.replace(kernel.__name__, name))
    return made
"""


@without_triton
def test_what_libraries_use_at_import(world: World) -> None:
    (world.folder / "other.py").write_text(OTHER)
    world.package.install()
    other = world.module("other")
    assert other.TWICE.value == 3.0 and other.half(8) == 4 and other.cdiv(7, 2) == 4
    assert (
        other.kernel.arg_names == ["x", "n", "BLOCK", "STEP"] and other.kernel.fn.fn.fn.__name__ == "kernel"
    )
    assert [other.cuda_capability_geq(*one) for one in ((9,), (9, 0), (9, 1))] == [True, True, False]
    assert other.tl.target_info.is_cuda() and not other.helper.is_gluon()
    renamed = other.renamed(other.helper, "other")
    assert renamed.src.startswith("def other(") and renamed.repr(None) == "other"
    assert renamed.get_capture_scope()["exp"] is other.exp
    assert other.helper.cache_key == other.helper.cache_key != other.kernel.fn.fn.cache_key
    assert [one.is_constexpr for one in other.helper.params] == [False, False, True, False]
    assert other.helper.params[1].do_not_specialize and other.helper.src.startswith("def helper(")
    assert other.driver.active.get_current_target() == ("cuda", 90, 32)
    assert other.driver.active.utils.get_device_properties(0)["multiprocessor_count"] == 132
    assert [one.primitive_bitwidth for one in other.TYPES] == [16, 16, 8]
    x = world.torch.tensor(np.ones((8, 64), np.float32))
    assert other.TensorDescriptor.from_tensor(x, [4, 64]).strides == (64, 1)
    with pytest.raises(RuntimeError, match=r"triton\.language\.math\.exp\(\) is for kernels"):
        other.exp(1.0)
    with pytest.raises(world.package.dispatch.NoVariantError, match="other:kernel was not captured"):
        other.kernel[(1,)](x, 64)
    with pytest.raises(ImportError):
        importlib.import_module("triton.experimental.gluon")


def test_with_triton_nothing_stands_in_its_place(world: World) -> None:
    world.package.install()
    assert "triton" not in sys.modules
    assert world.module("triton").__file__


class _HalfOfTorch:
    """As torch writes its type."""

    def __str__(self) -> str:
        return "torch.float16"


_HalfOfTorch.__name__ = "dtype"


@without_triton
def test_types_stand_for_arrays_in_a_warmup(world: World) -> None:
    world.package.install()
    kernel, full = world.module("tiny_ops.rows").softmax_kernel, world.module("triton.language").float32
    for element, block in ((_HalfOfTorch(), 512), (full, 128)):
        made = kernel.warmup(element, element, block, block, BLOCK=block, grid=(1,))
        assert isinstance(made, world.module("triton.compiler").CompiledKernel)
        assert made.n_regs > 0 and made.metadata.num_warps == 4
    assert not world.launched()
    with pytest.raises(world.package.dispatch.NoVariantError):
        kernel.warmup(full, full, 256, 256, BLOCK=256, grid=(1,))


@without_triton
def test_tensors_are_reinterpreted(world: World) -> None:
    world.package.install()
    triton, full = world.module("triton"), world.module("triton.language").float32
    x = world.torch.tensor(np.arange(4096, dtype=np.int32).view(np.float32))
    bits = world.torch.tensor(np.ones(4096, np.int32))
    out = triton.reinterpret(bits, full)
    world.module("tiny_ops.elementwise").scale_kernel[(4,)](x, out, 4096, 2.0, BLOCK=1024)
    assert (bits.numpy().view(np.float32) == x.numpy() * 2).all()
    assert triton.reinterpret(out, bits.dtype) is bits and out.stride() == (1,)
    with pytest.raises(TypeError, match="int has no memory"):
        triton.reinterpret(3, full)


WITH_TORCH = """\
import sys

if "before" in sys.argv:
    import torch
    import torch.utils._triton
import adopt

adopt.install()
import torch
import triton
import torch._inductor.runtime.triton_compat as compat
from torch.utils._triton import has_triton, has_triton_package

assert triton.jit and not compat.HAS_TRITON
assert has_triton_package() and has_triton() == torch.cuda.is_available()
names = {"__name__": "torch.compiler", "package": has_triton_package, "device": has_triton}
assert not eval("package() or device()", names)
twice = torch.compile(lambda x: x + x, backend="aot_eager")
assert twice(torch.ones(3)).tolist() == [2, 2, 2]
torch.cuda.is_available = lambda: True
assert has_triton() and not eval("package() or device()", names)
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_torch_sees_no_triton(driver: FakeDriver, site: Path, tmp_path: Path, when: str) -> None:
    """Its compiler would make kernels for what stands in Triton's place."""
    pytest.importorskip("torch", reason="the package is tried beside torch")
    if importlib.util.find_spec("triton"):
        pytest.skip("Triton is installed")
    (tmp_path / "use.py").write_text(WITH_TORCH)
    environment = {**os.environ, "KBUILD_LIBCUDA": str(driver.path), "PYTHONPATH": str(site)}
    made = subprocess.run(
        [sys.executable, "use.py", when], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr


@without_triton
def test_hooks_of_launches_are_called(world: World) -> None:
    """As Triton 3.4 and later have them, among its knobs."""
    world.package.install()
    kernel = world.module("tiny_ops.elementwise").add_kernel
    seen: list[object] = []
    knobs: Any = ModuleType("triton.knobs")
    knobs.runtime = SimpleNamespace(
        launch_enter_hook=lambda facts: seen.append(facts.get()),
        launch_exit_hook=lambda facts: seen.append("exit"),
    )
    sys.modules["triton.knobs"] = knobs
    kernel.launch_metadata = lambda grid, metadata, args: {
        "warps": metadata.num_warps,
        "bytes": 12 * args["n"],
    }
    kernel.add_pre_run_hook(lambda *args, **kwargs: seen.append((len(args), kwargs)))
    x = world.torch.tensor(np.ones(4096, np.float32))
    kernel[lambda meta: (4096 // meta["BLOCK"],)](x, x, x, 4096, BLOCK=1024)
    facts = {"name": "add_kernel", "function": None, "stream": None, "warps": 4, "bytes": 49152}
    assert seen == [(4, {"BLOCK": 1024}), facts, "exit"] and world.launched() == ["add_kernel"]
