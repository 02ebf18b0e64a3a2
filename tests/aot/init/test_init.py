"""Manifests made from source: what is written, and that it loads and expands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kbuild.aot.build.plan import constexprs_of
from kbuild.aot.init.project import Initialized, initialize, package_name
from kbuild.aot.manifest.expand import expand
from kbuild.aot.manifest.load import load
from kbuild.aot.manifest.model import Manifest
from kbuild.compiler.frontend import build_module
from tests.aot.init.sources import HEAD, LAYER_NORM, MATMUL, SOFTMAX, VECTOR_ADD


def made(
    folder: Path, text: str, *functions: str, file: str = "kernels/it.py"
) -> tuple[Initialized, Manifest]:
    """What is written for a file of this text, and the manifest that it is; it has variants."""
    path = folder / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    found = initialize({path: functions}, folder / "kernels.toml")
    (folder / "kernels.toml").write_text(found.text)
    manifest = load(folder / "kernels.toml")
    assert expand(manifest).variants
    return found, manifest


def body(found: Initialized) -> str:
    """The kernels' tables, without `[package]`."""
    return found.text.partition("\n\n[[kernel]]\n")[2]


def guesses(found: Initialized) -> list[str]:
    return [f"{guess.subject}: {guess.text}" for _, guess in found.guesses]


def kernel(parameters: str, *lines: str) -> str:
    """A file with one kernel and no launch."""
    code = "".join(f"    {line}\n" for line in lines)
    return f"{HEAD}\n\n@triton.jit\ndef it_kernel({parameters}):\n{code}"


GLUON = """\
import torch, triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor


@gluon.jit
def copy_kernel(x, y, n, BLOCK: gl.constexpr, held: gl.constexpr, other_layout: gl.constexpr):
    tile = gl.allocate_shared_memory(gl.float16, [BLOCK, 64], x.layout)
    ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(ready, count=1)
    mbarrier.expect(ready, x.block_type.nbytes)
    row = gl.program_id(0) * BLOCK
    tma.async_copy_global_to_shared(x, [row, 0], ready, tile)
    mbarrier.wait(ready, 0)
    rows = row + gl.arange(0, BLOCK, gl.SliceLayout(1, held))[:, None]
    columns = gl.arange(0, 64, gl.SliceLayout(0, held))[None, :]
    value = tile.load(held)
    tile.store(value)
    gl.store(y + rows * 64 + columns, value, rows < n)


def copy(x, other_layout):
    y = torch.empty_like(x)
    n = x.shape[0]
    held = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    desc = TensorDescriptor.from_tensor(x, [32, 64], gl.NVMMASharedLayout(64, 16))
    copy_kernel[(triton.cdiv(n, 32),)](desc, y, n, 32, held, other_layout)
"""


def test_kernels_of_gluon(tmp_path: Path) -> None:
    found, manifest = made(tmp_path, GLUON)
    (kernel,) = manifest.kernels
    types = {argument.name: argument.type for argument in kernel.args}
    assert types == {
        "x": "tensordesc<{dtype}[32, 64],gl.NVMMASharedLayout(64, 16)>",
        "y": "*{dtype}",
        "n": "i32",
    }
    assert 'held = "gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])"' in found.text
    assert "other_layout: guessed gl.AutoLayout()" in guesses(found)


def test_vector_add(tmp_path: Path) -> None:
    found, manifest = made(tmp_path, VECTOR_ADD)
    assert (
        body(found)
        == """\
name = "add"
source = "kernels/it.py"
function = "add_kernel"
grid = ["cdiv(n_elements, BLOCK_SIZE)"]
args = { "x_ptr, y_ptr, output_ptr" = "*{dtype}", n_elements = "i32" }  # n_elements: guessed i32
# dtype: guessed: the element type of all pointers without one of their own
matrix = { dtype = ["fp16", "bf16", "fp32"] }
config = [{ BLOCK_SIZE = 1024 }]
[kernel.verify]  # sizes, values: guessed from the addresses; check them
sizes = { "x_ptr, y_ptr, output_ptr" = "n_elements" }
values = [{ n_elements = 1000 }]
"""
    )
    assert manifest.package.archs == ("sm_80", "sm_90") and manifest.package.version == "0.1.0"


def test_guesses_name_their_lines(tmp_path: Path) -> None:
    found, _ = made(tmp_path, VECTOR_ADD)
    lines = found.text.splitlines()
    (line,) = [line for line, guess in found.guesses if guess.subject == "n_elements"]
    assert lines[line - 1].startswith("args = ")
    for line, _ in found.guesses:
        assert lines[line - 1].startswith(("args", "matrix", "[kernel.verify]"))


def test_softmax_has_blocks_that_follow_from_a_bound(tmp_path: Path) -> None:
    found, manifest = made(tmp_path, SOFTMAX)
    assert 'grid = ["n_rows"]' in found.text and 'grid_args = { n_rows = "i32" }' in found.text
    bounds = '["<= 256", "<= 1024", "<= 4096", "<= 16384"]'
    line = f'{{ BLOCK_SIZE = "next_power_of_2(n_cols)", num_warps = 8, when = {{ n_cols = {bounds} }} }},'
    assert line in found.text
    assert 'sizes.input_ptr = "(n_rows - 1) * input_row_stride + n_cols"' in found.text
    blocks = [dict(config.constexprs)["BLOCK_SIZE"] for config in manifest.kernel("softmax").configs]
    assert blocks == [256, 1024, 4096, 16384]


def test_warps_that_follow_from_the_block_are_worked_out_for_each_bound(tmp_path: Path) -> None:
    text = SOFTMAX.replace("num_warps=8", "num_warps=min(max(BLOCK_SIZE // 256, 1), 8)")
    found, manifest = made(tmp_path, text)
    assert [config.options.num_warps for config in manifest.kernel("softmax").configs] == [1, 4, 8, 8]
    line = '  { BLOCK_SIZE = "next_power_of_2(n_cols)", num_warps = 1, when = { n_cols = "<= 256" } },'
    assert line in found.text.splitlines()


def test_long_lists_of_arguments_are_on_several_lines(tmp_path: Path) -> None:
    names = ", ".join(f"stride_of_axis_{number}" for number in range(20))
    found, manifest = made(tmp_path, kernel(f"x, {names}", f"tl.store(x, {names.replace(',', ' +')})"))
    lines = [line for line in found.text.splitlines() if line.startswith("args")]
    assert max(map(len, lines)) <= 120 and len(manifest.kernels[0].args) == 21


def test_an_autotuned_matmul(tmp_path: Path) -> None:
    found, manifest = made(tmp_path, MATMUL, file="matmul.py")
    (only,) = manifest.kernels
    assert only.name == "matmul" and "function =" not in found.text, "its function is the default one"
    assert only.grid == ("cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N)",)
    types = {argument.name: argument.type for argument in only.args}
    assert types["a_ptr"] == "*{dtype}" and types["c_ptr"] == "*fp16" and types["stride_ak"] == "i32"
    first = "{ BLOCK_M = 128, BLOCK_N = 256, BLOCK_K = 32, GROUP_M = 8, num_warps = 8, num_stages = 3 }"
    assert f"config = [{first}]" in found.text
    assert {axis.name: axis.values for axis in only.matrix}["ACTIVATION"] == ("", "leaky_relu")
    candidates = "{ BLOCK_M = [128, 64], BLOCK_N = [256, 128], num_warps = [8, 4], num_stages = [3, 4] }"
    assert f"candidates = {candidates}" in found.text and "require = " in found.text
    assert only.verify and dict(only.verify.sizes)["a_ptr"] == "(M - 1) * stride_am + (K - 1) * stride_ak + 1"
    assert only.tune and dict(only.tune.buckets[0].values)["stride_am"] == "K"
    assert "no counterpart: prune_configs_by of autotune: {'early_config_prune': prune}" in guesses(found)
    assert any(guess.startswith("M, N, K: autotune's key") for guess in guesses(found))


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (MATMUL, "num_warps=w, num_stages=s)", "num_warps=w, num_stages=s, num_ctas=2)"),
        (SOFTMAX, "num_warps=8, ", "num_warps=8, num_ctas=2, "),
    ],
)
def test_ctas_are_left_out_for_the_architecture_without_them(
    tmp_path: Path, text: str, old: str, new: str
) -> None:
    assert old in text
    found, _ = made(tmp_path, text.replace(old, new))
    assert "no counterpart: num_ctas, which is for sm_90 and later alone" in guesses(found)
    one = next(line for line in found.text.splitlines() if line.startswith("config = "))
    assert "num_ctas" not in one


def test_layer_norm_with_heuristics(tmp_path: Path) -> None:
    found, manifest = made(tmp_path, LAYER_NORM)
    (only,) = manifest.kernels
    types = {argument.name: argument.type for argument in only.args}
    assert (
        types["mean"] == types["rstd"] == "*fp32" and types["eps"] == "fp32" and types["bias"] == "*{dtype}"
    )
    assert '{ BLOCK = 1024, EVEN = true, when = { n_cols = "% 1024" } },' in found.text
    assert "{ BLOCK = 1024, EVEN = false }," in found.text
    assert {axis.name: axis.values for axis in only.matrix}["HAS_BIAS"] == (False, True)
    said = "no counterpart: num_warps of heuristics: lambda args: 8 if args['BLOCK'] > 2048 else 4"
    assert said in guesses(found) and f"# {said}" in found.text


def test_facts_and_bounds_of_one_argument_are_joined(tmp_path: Path) -> None:
    heuristics = """@triton.heuristics({
    "BLOCK": lambda args: triton.next_power_of_2(args["n"]),
    "EVEN": lambda args: args["n"] % 16 == 0,
})
"""
    text = kernel(
        "x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr", "tl.store(x + n + tl.arange(0, BLOCK), EVEN)"
    )
    found, manifest = made(tmp_path, text.replace("@triton.jit", heuristics + "@triton.jit"))
    assert 'EVEN = true, when = { n = ["<= 256, % 16", ' in found.text
    assert len(manifest.kernels[0].configs) == 8


def test_strides_are_in_the_order_of_the_tensors_axes(tmp_path: Path) -> None:
    text = kernel(
        "x, M, N, s_m, s_n",
        "rows, columns = tl.arange(0, 16), tl.arange(0, 16)",
        "inside = (rows[:, None] < M) & (columns[None, :] < N)",
        "tl.store(x + columns[None, :] * s_n + rows[:, None] * s_m, 1.0, mask=inside)",
    )
    text += "\n\ndef run(x):\n    it_kernel[(1,)](x, x.shape[0], x.shape[1], x.stride(0), x.stride(1))\n"
    found, _ = made(tmp_path, text)
    assert 'values = [{ M = 37, N = 5, s_m = "N", s_n = 1 }]' in found.text


def test_helpers_are_left_out_unless_they_are_named(tmp_path: Path) -> None:
    _, manifest = made(tmp_path, MATMUL)
    assert [one.function for one in manifest.kernels] == ["matmul_kernel"]
    _, manifest = made(tmp_path, MATMUL, "leaky_relu")
    assert [one.function for one in manifest.kernels] == ["leaky_relu"]


def test_a_kernel_without_a_launch_has_a_grid_to_be_filled_in(tmp_path: Path) -> None:
    found, _ = made(tmp_path, kernel("x, n, BLOCK: tl.constexpr", "tl.store(x + tl.arange(0, BLOCK), n)"))
    assert 'grid = ["1"]  # grid: to be filled in: no launch of it in this file' in found.text
    assert "grid: to be filled in: no launch of it in this file" in guesses(found)


TYPES: Sequence[tuple[str, str, dict[str, str]]] = (
    ("x, scale", "tl.store(x + 1, tl.load(x) * scale)", {"x": "*{dtype}", "scale": "fp32"}),
    ("x, gain", "tl.store(x + 1, 0.5 * gain)", {"gain": "fp32"}),
    ("x, gain", "tl.store(x + 1, gain.to(tl.float32))", {"gain": "fp32"}),
    ("x, n", "tl.store(x + n, 1.0)", {"x": "*{dtype}", "n": "i32"}),
    ("n, x", "tl.store(x + tl.arange(0, 8) * n, 1.0)", {"x": "*{dtype}", "n": "i32"}),
    ("x, index", "tl.store(x + tl.load(index), 1.0)", {"x": "*{dtype}", "index": "*i64"}),
    ("x, seq_lens", "tl.store(x + tl.load(seq_lens), 1.0)", {"seq_lens": "*i32"}),
    ("x, lock", "tl.store(x, tl.atomic_cas(lock, 0, 1))", {"lock": "*i32"}),
    ("x, total", "tl.atomic_add(total, tl.load(x))", {"total": "*fp32"}),
    ("x, loss", "tl.store(loss, tl.load(x))", {"loss": "*fp32"}),
    ("x, mask", "tl.store(x, 1.0, mask=tl.load(mask))", {"mask": "*i1"}),
    ("x, n: tl.int64", "tl.store(x + n, 1.0)", {"n": "i64"}),
    ("x", "tl.load(tl.make_block_ptr(x, (8,), (1,), (0,), (8,), (0,)))", {"x": "*{dtype}"}),
    ("x", "x.load([0, 0])", {"x": "tensordesc<{dtype}[64, 64]>"}),
)


@pytest.mark.parametrize(("parameters", "line", "types"), TYPES)
def test_types_follow_from_uses(parameters: str, line: str, types: dict[str, str], tmp_path: Path) -> None:
    _, manifest = made(tmp_path, kernel(parameters, line))
    found = {argument.name: argument.type for argument in manifest.kernels[0].args}
    assert {name: found[name] for name in types} == types


def test_pointers_are_followed_through_helpers_and_tuples(tmp_path: Path) -> None:
    helper = "@triton.jit\ndef put(place, value):\n    base, stride = place\n    tl.store(base + stride * 2, value)\n\n\n"
    text = kernel("out, step", "place = (out, step)", "put(place, 1.0)")
    _, manifest = made(tmp_path, text.replace("@triton.jit", helper + "@triton.jit"))
    assert [argument.type for argument in manifest.kernels[0].args] == ["*{dtype}", "i32"]


CONFIGS: Sequence[tuple[str, str]] = (
    (
        "[triton.Config({'BLOCK': b}, num_warps=w) for b in (64, 128) for w in (4, 8)]",
        "BLOCK = [64, 128], num_warps = [4, 8]",
    ),
    ("[triton.Config({'BLOCK': 64 << i}) for i in range(3) if i != 1]", "BLOCK = [64, 256]"),
    ("list(filter(keep, [triton.Config({'BLOCK': b}) for b in SIZES]))", "BLOCK = [256, 512]"),
    ("grown()", "BLOCK = [32, 64]"),
)


@pytest.mark.parametrize(("configs", "candidates"), CONFIGS)
def test_configs_are_worked_out_without_being_executed(configs: str, candidates: str, tmp_path: Path) -> None:
    functions = """
SIZES = [128, 256, 512]
def keep(config):
    return config.kwargs["BLOCK"] >= 256
def grown():
    found = []
    for n in (32, 64):
        found.append(triton.Config({"BLOCK": n}))
    return found
"""
    text = kernel(
        "x, n, BLOCK: tl.constexpr",
        "offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
        "tl.store(x + offsets, 1.0, mask=offsets < n)",
    ).replace("@triton.jit", f"{functions}\n@triton.autotune({configs}, key=[])\n@triton.jit")
    found, manifest = made(tmp_path, text.replace("key=[]", "key=[], restore_value=['x']"))
    assert f"candidates = {{ {candidates} }}" in found.text
    assert manifest.kernels[0].tune and manifest.kernels[0].tune.restore == ("x",)


def test_configs_that_need_execution_are_said_to_be_left_out(tmp_path: Path) -> None:
    text = kernel("x, BLOCK: tl.constexpr", "tl.store(x + tl.arange(0, BLOCK), 1.0)")
    text = text.replace(
        "@triton.jit", "@triton.autotune(configs=open('f').read(), key=[], restore_value=['x'])\n@triton.jit"
    )
    found, _ = made(tmp_path, text)
    (said,) = [guess for guess in guesses(found) if "autotune's configs, which cannot be read" in guess]
    assert said in found.text.replace("\n# ", " ")
    assert "no counterpart: restore_value of autotune: x" in guesses(found)


def test_an_axis_where_launches_pass_both_values(tmp_path: Path) -> None:
    text = kernel("x, MODE: tl.constexpr", "tl.store(x, MODE)")
    text += "\n\ndef run(x):\n    it_kernel[(1,)](x, 2)\n    it_kernel[(1,)](x, MODE=3)\n"
    _, manifest = made(tmp_path, text)
    assert manifest.kernels[0].matrix[-1].values == (2, 3)


@pytest.mark.parametrize(
    ("line", "call", "expected"),
    [
        ("tl.store(out, x.to(T))", "", "matrix = { T = ['fp16', 'bf16', 'fp32'] }"),
        ("tl.store(out, x, T == tl.float16)", "", "matrix = { T = ['fp16', 'bf16', 'fp32'] }"),
        (
            "acc = tl.zeros((16,), dtype=T)",
            "T=DTYPES[out.dtype]",
            "matrix = { T = ['fp16', 'bf16', 'fp32'] }",
        ),
        ("acc = tl.full((16,), 0, T)", "T=tl.bfloat16", "config = [{ T = 'bf16' }]"),
        (
            "acc = tl.cast(x, T)",
            "T=tl.float16)\n    it_kernel[(1,)](out, 1.0, T=tl.float32",
            "{ T = ['fp16', 'fp32'] }",
        ),
        ("tl.static_assert(T == 'fp16')", "", "matrix = { T = ['', 'fp16'] }"),
    ],
)
def test_a_constant_that_is_a_type_is_an_axis_of_types(
    tmp_path: Path, line: str, call: str, expected: str
) -> None:
    text = kernel("out, x: tl.float32, T: tl.constexpr", line, "tl.store(out, 0)")
    text = text.replace("it_kernel(out", "it_kernel(out: tl.int64") + (
        f"\n\ndef run(out):\n    it_kernel[(1,)](out, 1.0, {call})\n" if call else ""
    )
    found, manifest = made(tmp_path, text)
    assert expected.replace("'", '"') in found.text
    for variant in expand(manifest).variants if "assert" not in line else ():
        build_module(
            f"{tmp_path}/kernels/it.py:it_kernel",
            {**dict(variant.signature), "out": "*fp32"},
            dict(constexprs_of(manifest.kernels[0], variant)),
        )


@pytest.mark.parametrize(
    ("line", "call", "type_"),
    [
        ("tl.store(x + strides[1], 0)", "", "i32"),
        ("a, b = strides", "it_kernel[(1,)](x, (4, 1))", "i32"),
        ("tl.store(strides[0] + 1, 0)", "", "*{dtype}"),
    ],
)
def test_a_tuple_is_to_be_filled_in(tmp_path: Path, line: str, call: str, type_: str) -> None:
    text = kernel("x, strides", line, "tl.store(x, 0)") + f"\n\ndef run(x):\n    {call or 'pass'}\n"
    found, _ = made(tmp_path, text)
    assert 'strides: a tuple: write the list of its types, as ["TYPE", …]'.replace("TYPE", type_) in guesses(
        found
    )


def test_a_type_is_left_at_its_default(tmp_path: Path) -> None:
    text = kernel("x, T: tl.constexpr = tl.float16", "tl.store(x, tl.load(x).to(T))")
    found, _ = made(tmp_path, text)
    assert "T =" not in found.text
    chosen = found.text.replace("matrix = { ", 'matrix = { T = ["fp32", "fp16"], ')
    (tmp_path / "kernels.toml").write_text(chosen)
    assert load(tmp_path / "kernels.toml").kernels[0].matrix[0].default == "fp16"


GRIDS: Sequence[tuple[str, list[str]]] = (
    ("(n, 2)", ["n", "2"]),
    ("lambda meta: (triton.cdiv(x.shape[0], meta['BLOCK']), 1)", ["cdiv(x_shape_0, BLOCK)", "1"]),
    ("(min(n, torch.cuda.get_device_properties(0).multi_processor_count),)", ["min(n, num_sms)"]),
    ("((n + 127) // 128,)", ["(n + 127) // 128"]),
    ("(math.ceil(n / 128),)", ["cdiv(n, 128)"]),
    ("(batch * heads,)", ["batch * heads"]),
    ("make_grid(n)", ["1"]),
)


@pytest.mark.parametrize(("grid", "axes"), GRIDS)
def test_grids(grid: str, axes: list[str], tmp_path: Path) -> None:
    text = kernel("x, n, BLOCK: tl.constexpr", "tl.store(x + n + tl.arange(0, BLOCK), 1.0)")
    text += f"\n\ndef run(x, n, batch, heads):\n    it_kernel[{grid}](x, n, 64)\n"
    found, manifest = made(tmp_path, text)
    assert list(manifest.kernels[0].grid) == axes
    assert ("to be filled in" in found.text) == (axes == ["1"])


@pytest.mark.parametrize(
    ("directory", "name"),
    [
        ("My-Kernels", "my_kernels"),
        ("json", "json_kernels"),
        ("torch", "torch_kernels"),
        ("class", "class_kernels"),
        ("2d", "kernels_2d"),
        ("", "my_kernels"),
        ("überschall", "berschall"),
    ],
)
def test_packages_are_named_after_their_directory(directory: str, name: str) -> None:
    assert package_name(directory) == name


def test_decorators_called_jit_are_kernels_where_they_are_tritons(tmp_path: Path) -> None:
    bodies = "def {0}(x):\n    tl.store(x, 1.0)\n"
    text = "from triton import jit\nimport triton as t, kbuild, numba, triton.language as tl\n" + "".join(
        f"@{decorator}\n" + bodies.format(name)
        for decorator, name in (
            ("jit", "a"),
            ("t.jit", "b"),
            ("kbuild.jit", "c"),
            ("numba.jit", "d"),
            ("tl.jit", "e"),
        )
    )
    _, manifest = made(tmp_path, text)
    assert [one.name for one in manifest.kernels] == ["a", "b", "c", "e"]


def test_names_that_are_taken_get_another_one(tmp_path: Path) -> None:
    text = HEAD + "".join(
        f"@triton.jit\ndef {name}(x):\n    tl.store(x, 1.0)\n"
        for name in ("dot_kernel", "_dot", "class_kernel")
    )
    _, manifest = made(tmp_path, text)
    assert [one.name for one in manifest.kernels] == ["dot", "dot_kernel", "class_kernel"]
