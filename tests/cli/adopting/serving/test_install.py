"""`package.install()`: a library's own wrappers run, and none of their kernels is compiled by Triton."""

from __future__ import annotations

import math
import runpy
from typing import Any

import numpy as np
import pytest

from tests.cli.adopting.serving.conftest import World


def use(world: World, dtype: type, n: int = 512, size: int = 64) -> dict[str, float]:
    """How far what the library's ten functions make of some arrays is from what is right, at most."""
    random = np.random.default_rng(1)
    lib, tensor = world.library, world.torch.tensor
    made = [random.standard_normal(4096).astype(dtype) for _ in range(3)]
    rows = random.standard_normal((8, n)).astype(dtype)
    left, right = (random.standard_normal((size, size)).astype(dtype) for _ in range(2))
    weight, target = random.standard_normal(n).astype(dtype), random.integers(0, n, 8)
    x, y, z = map(tensor, made)
    found = {
        "add": lib.add(x, y),
        "scale": lib.scale(x, 0.5),
        "lerp": lib.lerp(x, y, z),
        "gelu": lib.gelu(x),
        "tanh": lib.gelu(x, "tanh"),
        "softmax": lib.softmax(tensor(rows)),
        "rms_norm": lib.rms_norm(tensor(rows)),
        "weighted": lib.rms_norm(tensor(rows), tensor(weight)),
        "row_max": lib.row_max(tensor(rows)),
        "cross_entropy": lib.cross_entropy(tensor(rows), tensor(target)),
        "transpose": lib.transpose(tensor(np.ascontiguousarray(rows[:, :70]))),
        "matmul": lib.matmul(tensor(left), tensor(right)),
    }
    a, b, c = (array.astype(np.float64) for array in made)
    wide = rows.astype(np.float64)
    powers = np.exp(wide - wide.max(1, keepdims=True))
    norm = wide / np.sqrt((wide * wide).mean(1, keepdims=True) + 1e-6)
    root = np.vectorize(math.erf)(a * 0.5**0.5)
    right_ones = {
        "add": a + b,
        "scale": a * 0.5,
        "lerp": a + c * (b - a),
        "gelu": 0.5 * a * (1 + root),
        "tanh": 0.5 * a * (1 + np.tanh(0.7978845608 * (a + 0.044715 * a**3))),
        "softmax": powers / powers.sum(1, keepdims=True),
        "rms_norm": norm,
        "weighted": norm * weight,
        "row_max": wide.max(1),
        "cross_entropy": np.log(powers.sum(1)) + wide.max(1) - wide[np.arange(8), target],
        "transpose": wide[:, :70].T,
        "matmul": left.astype(np.float64) @ right.astype(np.float64),
    }
    return {name: float(np.abs(found[name].numpy() - right_ones[name]).max()) for name in found}


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_all_kernels_of_a_library_are_served(world: World, dtype: type) -> None:
    world.package.install(strict=True)
    errors = use(world, dtype)
    assert errors.pop("matmul") < 0.05  # tf32
    assert max(errors.values()) < (2e-6 if dtype is np.float32 else 0.01)
    assert len(world.launched()) == 12 and world.compiled() == 0


def test_kernels_that_were_imported_before_are_served_as_well(world: World) -> None:
    library = world.library
    world.package.install(strict=True)
    x = world.torch.tensor(np.ones(1000, np.float32))
    assert (library.add(x, x).numpy() == 2).all() and world.compiled() == 0


def test_a_kernel_is_served_from_whichever_module_it_is_in(world: World) -> None:
    """As those that a library writes into modules, whose names it makes up."""
    file = world.folder / "tiny_ops/elementwise.py"
    text = file.read_text()
    (world.folder / "tiny_ops/generated.py").write_text(text)
    (world.folder / "tiny_ops/changed.py").write_text(text.replace("tl.load(x + ", "-tl.load(x + "))
    world.package.install(strict=True)
    x = world.torch.tensor(np.ones(1000, np.float32))
    assert (world.module("tiny_ops.generated").add(x, x).numpy() == 2).all() and world.compiled() == 0
    with pytest.raises(
        world.package.dispatch.NoVariantError, match=r"tiny_ops\.changed:add_kernel was not captured"
    ):
        world.module("tiny_ops.changed").add(x, x)


def test_before_and_after_it_is_installed_triton_answers(world: World) -> None:
    x = world.torch.tensor(np.ones(1000, np.float32))
    world.library.add(x, x)
    assert world.compiled() == 1 and not world.launched()
    world.package.install()
    world.library.add(x, x)
    assert world.launched() == ["add_kernel"]
    world.package.uninstall()
    world.library.scale(x, 2.0)
    assert world.compiled() == 2 and not world.launched()


def test_to_install_twice_is_to_install_once(world: World) -> None:
    world.package.install()
    world.package.install(strict=True)
    world.package.install()
    x = world.torch.tensor(np.ones((8, 256), np.float32))
    world.library.softmax(x)  # It is not strict any more.
    assert world.compiled() == 1
    world.package.uninstall()
    world.library.add(x, x)
    assert not world.launched()


def test_what_is_not_captured_goes_to_triton_or_is_an_error(world: World) -> None:
    x = world.torch.tensor(np.ones((8, 256), np.float32))
    world.package.install()
    world.library.softmax(x)
    assert world.compiled() == 1 and not world.launched()
    world.package.install(strict=True)
    with pytest.raises(world.package.dispatch.NoVariantError) as error:
        world.library.softmax(x)
    text = str(error.value)
    assert text.startswith("adopt has no variant of tiny_ops.rows:softmax_kernel for this call")
    assert "BLOCK = 256 is not 128" in text
    line = '[["fp32", 256], ["16", "16", "16", "16"], [4, 3]]'
    assert f"the line to add to captured/softmax.jsonl:\n    {line}" in text
    assert world.compiled() == 1


def test_the_line_to_add_is_right(world: World) -> None:
    """It is that of a list which has the variant."""
    listed = (world.project / "captured/softmax.jsonl").read_text()
    assert '[["fp32", 128], ["16", "16", "", ""], [4, 3]]' in listed
    world.package.install(strict=True)
    with pytest.raises(world.package.dispatch.NoVariantError) as error:
        world.library.softmax(world.torch.tensor(np.ones((8, 250), np.float32)))
    assert '[["fp32", 256], ["16", "16", "", ""], [4, 3]]' in str(error.value)


def test_where_variants_multiply_the_key_is_named(world: World) -> None:
    x = world.torch.tensor(np.ones(4096, np.float32))
    world.package.install(strict=True)
    kernel = world.module("tiny_ops.elementwise").add_kernel
    with pytest.raises(world.package.dispatch.NoVariantError, match=r"matrix\.BLOCK = \[1024, 512\]"):
        kernel[(8,)](x, x, x, 4096, BLOCK=512)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("powers / tl.sum(powers, 0)", "powers / tl.sum(powers + 0, 0)"),
        ("def softmax_kernel(x, out, stride, n,", "def softmax_kernel(x, out, n, stride,"),
    ],
)
def test_a_changed_source_is_not_served(world: World, old: str, new: str) -> None:
    file = world.folder / "tiny_ops/rows.py"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    x = world.torch.tensor(np.ones((8, 512), np.float32))
    world.package.install()
    world.library.softmax(x)
    world.library.row_max(x)
    assert world.launched() == ["row_max_kernel"] and world.compiled() == 1
    world.package.install(strict=True)
    with pytest.raises(
        world.package.dispatch.NoVariantError,
        match=r"tiny_ops\.rows:softmax_kernel is another source than the one that was captured",
    ):
        world.library.softmax(x)


@pytest.mark.parametrize(
    ("old", "new"), [("tl.constexpr(1e-6)", "tl.constexpr(1e-5)"), ("1 / tl.sqrt", "2 / tl.sqrt")]
)
def test_what_a_kernel_reaches_is_part_of_its_source(world: World, old: str, new: str) -> None:
    file = world.folder / "tiny_ops/functions.py"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    world.package.install()
    world.library.rms_norm(world.torch.tensor(np.ones((8, 512), np.float32)))
    assert world.compiled() == 1 and not world.launched()


def test_comments_are_no_part_of_a_source(world: World) -> None:
    file = world.folder / "tiny_ops/rows.py"
    file.write_text(file.read_text().replace("    powers =", "    # powers\n\n    powers ="))
    world.package.install(strict=True)
    world.library.softmax(world.torch.tensor(np.ones((8, 512), np.float32)))
    assert world.launched() == ["softmax_kernel"]


def test_a_source_that_changes_while_the_process_runs_is_not_served(world: World) -> None:
    x = world.torch.tensor(np.ones((8, 512), np.float32))
    world.package.install()
    functions, triton = world.module("tiny_ops.functions"), world.module("triton.language")
    world.library.rms_norm(x)
    assert world.launched() == ["rms_norm_kernel"]
    usual, functions.LEAST = functions.LEAST, triton.constexpr(1.0)
    world.library.rms_norm(x)
    assert not world.launched() and world.compiled() == 1
    functions.LEAST = usual
    world.library.rms_norm(x)
    assert world.launched() == ["rms_norm_kernel"]
    functions.inverse_root.src += "# Patched.\n    # Still the same tokens.\n"
    world.library.rms_norm(x)
    assert world.launched() == ["rms_norm_kernel"]
    functions.inverse_root.src = functions.inverse_root.src.replace("1 /", "3 /")
    world.library.rms_norm(x)
    assert not world.launched()


def test_kernels_of_one_name_in_two_libraries_are_two(world: World) -> None:
    (world.folder / "other.py").write_text(
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"
        "def softmax_kernel(x, out, stride, n, BLOCK: tl.constexpr):\n    tl.store(out, 1.0)\n"
    )
    x = world.torch.tensor(np.ones((8, 512), np.float32))
    world.package.install()
    other = world.module("other").softmax_kernel
    other[(8,)](x, x, 512, 512, BLOCK=512)
    world.library.softmax(x)
    assert world.compiled() == 1 and world.launched() == ["softmax_kernel"]
    world.package.install(strict=True)
    with pytest.raises(world.package.dispatch.NoVariantError, match="other:softmax_kernel was not captured"):
        other[(8,)](x, x, 512, 512, BLOCK=512)


def test_options_that_change_results_are_not_ignored(world: World) -> None:
    x = world.torch.tensor(np.ones(4096, np.float32))
    world.package.install(strict=True)
    kernel = world.module("tiny_ops.elementwise").add_kernel
    kernel[(4,)](x, x, x, 4096, BLOCK=1024, num_warps=8)  # Only another speed.
    kernel[(4,)](x, x, x, 4096, BLOCK=1024, enable_fp_fusion=True, num_ctas=1, maxnreg=None)
    kernel[(4,)](x, x, x, 4096, BLOCK=1024, num_ctas=2)
    assert world.launched() == ["add_kernel"] * 3
    for name, value in (("enable_fp_fusion", False), ("unknown", 1)):
        with pytest.raises(world.package.dispatch.NoVariantError, match=f"{name} = {value}"):
            kernel[(4,)](x, x, x, 4096, BLOCK=1024, **{name: value})


def test_true_is_another_choice_than_one(world: World) -> None:
    x = world.torch.tensor(np.ones((8, 512), np.float32))
    world.package.install(strict=True)
    kernel = world.module("tiny_ops.rows").rms_norm_kernel
    kernel[(8,)](x, None, x, 512, 512, False, 512)
    with pytest.raises(world.package.dispatch.NoVariantError, match="HAS_WEIGHT = 0 is built with False"):
        kernel[(8,)](x, None, x, 512, 512, 0, 512)


def test_an_argument_that_was_always_none_has_to_be(world: World) -> None:
    x = world.torch.tensor(np.ones((8, 512), np.float32))
    world.package.install(strict=True)
    kernel = world.module("tiny_ops.rows").rms_norm_kernel
    kernel[(8,)](x, None, x, 512, 512, HAS_WEIGHT=False, BLOCK=512)
    with pytest.raises(
        world.package.dispatch.NoVariantError, match=r"rms_norm\(\) is for calls without weight"
    ):
        kernel[(8,)](x, x, x, 512, 512, HAS_WEIGHT=False, BLOCK=512)
    with pytest.raises(
        world.package.dispatch.NoVariantError, match=r"rms_norm_2\(\) is for calls with weight"
    ):
        kernel[(8,)](x, None, x, 512, 512, HAS_WEIGHT=True, BLOCK=512)


def test_arguments_of_other_kinds_are_other_calls(world: World) -> None:
    """Triton would compile a kernel of its own for each, and a launch would take them."""
    x = world.torch.tensor(np.ones(4096, np.float32))
    world.package.install(strict=True)
    ops = world.module("tiny_ops.elementwise")
    wrong = {"n": (4096.0, True, x), "factor": (2, True, x), "out": (256, 0), "x": (None,)}
    usual = {"x": x, "out": x, "n": 4096, "factor": 0.5}
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(world.package.dispatch.NoVariantError, match=f"{name}"):
                ops.scale_kernel[(4,)](**{**usual, name: value}, BLOCK=1024)
    ops.scale_kernel[(4,)](**usual, BLOCK=1024)
    assert world.launched() == ["scale_kernel"]


def test_arguments_are_bound_as_triton_binds_them(world: World) -> None:
    x = world.torch.tensor(np.ones(4096, np.float32))
    world.package.install(strict=True)
    kernel = world.module("tiny_ops.elementwise").add_kernel
    seen = []
    kernel[lambda meta: seen.append(meta) or (4,)](x, out=x, y=x, BLOCK=1024, n=4096)
    kernel[4, 1, 1](x, x, x, 4096, 1024)
    kernel[[4]](x, x, x, 4096, world.module("triton.language").constexpr(1024))
    assert seen[0]["BLOCK"] == 1024 and seen[0]["n"] == 4096 and seen[0]["x"] is x
    assert world.launched() == ["add_kernel"] * 3
    with pytest.raises(TypeError, match="missing the argument 'n'"):
        kernel[(4,)](x, x, x, BLOCK=1024)
    with pytest.raises(TypeError, match="got 'x' twice"):
        kernel[(4,)](x, x, x, 4096, x=x, BLOCK=1024)


def test_a_launch_gives_what_callers_ask_of_a_compiled_kernel(world: World) -> None:
    x = world.torch.tensor(np.ones((8, 2048), np.float32))
    world.package.install(strict=True)
    kernel = world.module("tiny_ops.rows").softmax_kernel
    made = kernel.run(x, x, 2048, 2048, BLOCK=2048, grid=(8,), warmup=True)
    assert not world.launched()
    assert (
        made.n_regs > 0 and made.n_spills == 0 and made.metadata.num_warps == 8 and made.metadata.shared >= 0
    )
    made[(8,)](x, x, 2048, 2048, 2048)
    assert world.launched() == ["softmax_kernel"]
    assert kernel[(8,)](x, x, 2048, 2048, BLOCK=2048) is made


class Wrapped:
    """Memory and a type, as triton.reinterpret() gives them, or a library's own class."""

    def __init__(self, tensor: Any, dtype: str) -> None:
        self.tensor = tensor
        self.dtype = type("dtype", (), {"__str__": lambda _: dtype})()

    def data_ptr(self) -> int:
        return self.tensor.data_ptr()


@pytest.mark.parametrize("name", ["fp32", "torch.float32"])
def test_all_that_has_memory_and_a_type_is_an_array(world: World, name: str) -> None:
    x = world.torch.tensor(np.arange(4096, dtype=np.float32))
    out = world.torch.empty(4096, dtype=world.torch.float32, device="cuda")
    world.package.install(strict=True)
    kernel = world.module("tiny_ops.elementwise").scale_kernel
    kernel[(4,)](Wrapped(x, name), Wrapped(out, name), 4096, 0.5, BLOCK=1024)
    assert (out.numpy() == np.arange(4096) * 0.5).all()
    for other in ("bf16", "torch.float64", "something"):
        with pytest.raises(world.package.dispatch.NoVariantError, match="dtype"):
            kernel[(4,)](Wrapped(x, other), Wrapped(out, other), 4096, 0.5, BLOCK=1024)


@pytest.mark.filterwarnings(
    "ignore:.*found in sys.modules"
)  # The library's package has imported the module already.
def test_a_program_is_served_as_the_module_that_it_is(world: World) -> None:
    x = world.torch.tensor(np.ones(4096, np.float32))
    world.package.install(strict=True)
    kernel = runpy.run_module("tiny_ops.elementwise", run_name="__main__")["scale_kernel"]
    assert kernel.fn.__module__ == "__main__"
    kernel[(4,)](x, x, 4096, 0.5, BLOCK=1024)
    assert world.launched() == ["scale_kernel"]
