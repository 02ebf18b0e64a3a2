"""`kbuild.load(artifact)[grid](…)` on the fake driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kbuild
from emulated.kernels import SOURCE, compiled, scale
from kbuild.cli import main
from kbuild.emulator.driver import FakeDriver
from tests.emulator.fake_gpu import on_fake_gpu

ROOT = Path(__file__).parents[3]


@on_fake_gpu()
def test_arrays_numbers_and_keywords(driver: FakeDriver) -> None:
    kernel = kbuild.load(scale(driver))
    x, out = driver.array(np.arange(100, dtype=np.float32)), driver.empty(100, np.float32)
    kernel[2](x, out, 2, 100)
    assert (out.copy_to_host() == 2 * x.copy_to_host()).all()
    kernel[(2, 1)](x, n=np.int64(50), factor=np.float32(0.5), out=out)
    assert out.copy_to_host()[[49, 50]].tolist() == [24.5, 100.0]
    assert [launch.grid for launch in driver.launches] == [(2, 1, 1)] * 2
    assert [driver.launches[0].block, kernel.metadata.registers is not None] == [(128, 1, 1), True]


@on_fake_gpu()
def test_buffers_addresses_and_null_pointers(driver: FakeDriver) -> None:
    from cuda.core import Device

    device = Device()
    device.set_current()
    kernel = kbuild.load(scale(driver))
    buffer, out = device.allocate(256, stream=device.default_stream), driver.empty(64, np.float32)
    buffer.fill(0, stream=device.default_stream)
    kernel[1](buffer, out.pointer, 3.0, 64)
    assert not out.copy_to_host().any()
    buffer.close(device.default_stream)
    with pytest.raises(kbuild.KbuildError, match="argument x is a buffer that was closed"):
        kernel[1](buffer, out, 3.0, 64)
    kernel[1](None, 0, 3.0, 0)
    assert driver.launches[-1].arguments[:2] == (bytes(8), bytes(8))
    kernel[0](None, 0, 3.0, 0)  # Nothing to do.
    assert len(driver.launches) == 2


@on_fake_gpu()
def test_arrays_of_dlpack(driver: FakeDriver) -> None:
    from cuda.core import Device

    device = Device()
    device.set_current()
    buffer = device.allocate(256, stream=device.default_stream)

    class Tensor:
        """What JAX has: an interface that does not say when the array is ready, and DLPack."""

        __cuda_array_interface__ = {"version": 2}

        def __dlpack_device__(self) -> Any:
            return buffer.__dlpack_device__()

        def __dlpack__(self, **how: Any) -> Any:
            return buffer.__dlpack__(**how)

    out = driver.array(np.ones(64, np.float32))
    buffer.fill(0, stream=device.default_stream)
    kbuild.load(scale(driver))[1](Tensor(), out, 3.0, 64)
    assert not out.copy_to_host().any()


@on_fake_gpu()
def test_types_that_numpy_lacks(driver: FakeDriver) -> None:
    signature = {"x": "*bf16:16", "out": "*bf16:16", "factor": "bf16", "n": "u64"}
    kernel = kbuild.load(compiled(driver, "scale", signature=signature, constexprs={"BLOCK": 64}))
    bits = driver.array(np.full(64, 0x3F80, np.uint16))

    class Array:
        """One of torch, say, that calls its elements bfloat16."""

        dtype = "torch.bfloat16"
        __cuda_array_interface__ = bits.__cuda_array_interface__

    kernel[1](Array(), Array(), -1.5, 2**64 - 1)
    assert driver.launches[-1].arguments[2:] == (bytes.fromhex("c0bf"), b"\xff" * 8)
    assert bits.copy_to_host().tolist() == [0xBFC0] * 64
    with pytest.raises(kbuild.KbuildError, match="an array of float32"):
        kernel[1](driver.empty(64, np.float32), Array(), 1.0, 64)


@on_fake_gpu()
def test_maps_that_a_kernel_makes_of_addresses_in_tables(driver: FakeDriver) -> None:
    """No launcher brings anything for them; each launch finds the places free again."""
    artifact = compiled(
        driver,
        "dot_of_tables",
        ROOT / "tests/zoo/kernels/descriptors.py",
        signature={"inputs": "*i64:16", "outputs": "*i64:16", "rows": "i32", "K": "i32"},
        constexprs={"TILE": 64, "INTO": "outputs"},
        target="sm_90",
    )
    assert "tensormap.replace" in artifact.asm["ptx"] and len(artifact.metadata.params) == 4
    kernel = kbuild.load(artifact)
    for rows, k in ((100, 72), (64, 200)):
        rng = np.random.default_rng(rows)
        x, y = (rng.integers(-2, 3, (count, k)).astype(np.float16) for count in (rows, 64))
        arrays, out = [driver.array(x), driver.array(y)], driver.empty((128, 64), np.float32)
        tables = [
            driver.array(np.array([array.pointer for array in table], np.int64))
            for table in (arrays, [out] * 3)
        ]
        for grid in (1, 3):
            kernel[grid](*tables, rows, k)
            found = out.copy_to_host()[:rows]
            np.testing.assert_array_equal(found, x.astype(np.float32) @ y.astype(np.float32).T)


MISTAKES: dict[str, tuple[Any, str]] = {
    "an array too few": (lambda x, y: (x, y, 2.0), "missing a required argument: 'n'"),
    "a constant": (
        lambda x, y: {"x": x, "out": y, "factor": 2.0, "n": 16, "BLOCK": 64},
        "unexpected keyword argument 'BLOCK'",
    ),
    "a divisor": (
        lambda x, y: (x, y, 2.0, 100),
        'argument n is 100, but it was compiled as "i32:16": 16 divides it',
    ),
    "an address": (
        lambda x, y: (x.view((8,), (1,), 1), y, 2.0, 16),
        '"*fp32:16": 16 divides its address',
    ),
    "a raw address": (lambda x, y: (x, y.pointer + 4, 2.0, 16), "argument out is at address 0x3"),
    "elements": (lambda x, y: (x, None, 2.0, 2**31), "argument n is 2147483648"),
    "a wrong dtype": (
        lambda x, y: (x.cast("int32"), y, 2.0, 16),
        'argument x is an array of int32, but it was compiled as "*fp32:16": its elements are fp32',
    ),
    "no whole number": (lambda x, y: (x, y, 2.0, 16.0), "argument n is 16.0"),
    "no number": (
        lambda x, y: (x, y, "2", 16),
        "argument factor is '2', but it was compiled as \"fp32\": it is a number",
    ),
    "no array": (lambda x, y: (x, [1.0], 2.0, 16), "argument out is a list"),
    "memory of the host": (
        lambda x, y: (np.zeros(16, np.float32), y, 2.0, 16),
        "argument x is in the host's memory",
    ),
}


@on_fake_gpu()
def test_what_was_assumed_is_checked(driver: FakeDriver) -> None:
    kernel = kbuild.load(scale(driver, n="i32:16"))

    class Array:
        """One of the driver's, under another type."""

        def __init__(self, dtype: str) -> None:
            self.dtype, self.array = dtype, driver.array(np.zeros(16, np.int32))
            self.__cuda_array_interface__ = self.array.__cuda_array_interface__

    x, y = driver.array(np.zeros(16, np.float32)), driver.empty(16, np.float32)
    x.cast = Array  # type: ignore[attr-defined]
    for name, (arguments, text) in MISTAKES.items():
        given = arguments(x, y)
        args, named = ((), given) if isinstance(given, dict) else (given, {})
        with pytest.raises(kbuild.KbuildError) as caught:
            kernel[1](*args, **named)
        assert text in str(caught.value), (name, str(caught.value))
    assert not driver.launches
    kernel[1](x, y, 2.0, 16)


@pytest.mark.parametrize("grid", [(), (1, 1, 1, 1), 1.5, "2", (1, 65536), -1, None])
def test_a_grid_is_one_to_three_numbers(grid: Any, tmp_path: Path) -> None:
    pytest.importorskip("cuda.core")
    (tmp_path / "nothing.py").write_text("import triton\n\n@triton.jit\ndef nothing():\n    pass\n")
    with pytest.raises(kbuild.KbuildError, match=r"grid|programs"):
        kbuild.load(kbuild.compile(f"{tmp_path}/nothing.py:nothing", stop="ptx"))[grid]


@on_fake_gpu()
def test_tuples_and_arguments_that_are_one(driver: FakeDriver) -> None:
    how = {"constexprs": {"BLOCK": 32}, "num_warps": 1}
    kernel = kbuild.load(compiled(driver, "first", signature={"pair": "(*i32, i32:1)", "flag": "i1"}, **how))
    out = driver.empty(32, np.int32)
    kernel[1]((out, 1), np.True_)
    assert out.copy_to_host().tolist() == list(range(1, 33))
    with pytest.raises(
        kbuild.KbuildError, match=r'argument pair_1 is 2, but it was compiled as "i32:1": it is 1'
    ):
        kernel[1]((out, 2), True)
    with pytest.raises(kbuild.KbuildError, match=r"a tuple \(\*i32, i32:1\) of 2"):
        kernel[1](out, True)


@on_fake_gpu()
def test_tuples_in_tuples(driver: FakeDriver) -> None:
    signature = {"pair": ("*i32", ("i32", 3), None), "flag": "i1"}
    kernel = kbuild.load(
        compiled(driver, "nested", signature=signature, constexprs={"BLOCK": 32}, num_warps=1)
    )
    out = driver.empty(64, np.int32)
    kernel[1]((out, (2, 3), None), True)
    assert out.copy_to_host()[::2].tolist() == list(range(4, 36))
    with pytest.raises(kbuild.KbuildError, match=r"argument pair_1_1 is 4, but it was compiled as 3"):
        kernel[1]((out, (2, 4), None), True)
    with pytest.raises(kbuild.KbuildError, match=r"argument pair_1 is 2, and .* a tuple \(i32, 3\) of 2"):
        kernel[1]((out, 2, None), True)


@on_fake_gpu()
def test_tensor_descriptors(driver: FakeDriver) -> None:
    kernel = kbuild.load(
        compiled(
            driver,
            "transposed",
            signature={"x": "tensordesc<fp16[16, 32]>", "out": "tensordesc<fp16[32, 16]>"},
            constexprs={"ROWS": 16, "COLUMNS": 32},
        )
    )
    x = driver.array(np.arange(40 * 64, dtype=np.float16).reshape(40, 64))
    out = driver.array(np.zeros((64, 40), np.float16))
    kernel[3, 2](x, out)
    assert (out.copy_to_host() == x.copy_to_host().T).all()
    for view, text in (
        (x.view((40, 16), (64, 2)), "the elements of a row are neighbours"),
        (x.view((39, 64), (65, 1)), "16 divides the bytes of stride 0"),
        (x.view((40,), (64,)), "its blocks have 2"),
        (x.pointer, "it is an array"),
    ):
        with pytest.raises(kbuild.KbuildError, match=text):
            kernel[3, 2](view, out)


@on_fake_gpu()
def test_tensor_maps_and_much_shared_memory(driver: FakeDriver) -> None:
    strides = {"stride_am": "i32:16", "stride_ak": "i32:1", "stride_bk": "i32:16", "stride_bn": "i32:1"}
    artifact = compiled(
        driver,
        "matmul_kernel",
        ROOT / "kernels/matmul.py",
        signature={
            "a": "*fp16:16",
            "b": "*fp16:16",
            "c": "*fp16:16",
            "M": "i32",
            "N": "i32:16",
            "K": "i32:16",
        }
        | strides
        | {"stride_cm": "i32:16", "stride_cn": "i32:1"},
        constexprs={"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 8},
    )
    assert artifact.metadata.shared > 48 * 1024 and artifact.metadata.params[-1][1].startswith("tensormap")
    random = np.random.default_rng(0)
    a, b = (random.integers(-3, 4, (64, 64)).astype(np.float16) for _ in range(2))
    c = driver.empty((64, 64), np.float16)
    kbuild.load(artifact)[1](driver.array(a), driver.array(b), c, 64, 64, 64, 64, 1, 64, 1, 64, 1)
    assert (c.copy_to_host() == a @ b).all()


@on_fake_gpu("sm_90", "sm_80", "sm_80")
def test_devices(driver: FakeDriver) -> None:
    from cuda.core import Device

    kernel = kbuild.load(scale(driver, target="sm_80"))
    first = Device(0)
    first.set_current()
    x = driver.array(np.ones(64, np.float32), device=1)
    kernel[1](x, x, 2.0, 64)
    y = driver.array(np.ones(64, np.float32), device=2)
    kernel[1](y, y, 2.0, 64)
    assert [launch.device for launch in driver.launches] == [1, 2]
    assert x.copy_to_host().tolist() == y.copy_to_host().tolist() == [2.0] * 64
    assert int(Device().device_id) == 0, "the current device stays"
    with pytest.raises(kbuild.KbuildError, match="argument out is on device 2, and x on device 1"):
        kernel[1](x, y, 2.0, 64)
    with pytest.raises(
        kbuild.KbuildError, match="argument x is on device 1, and the kernel is loaded for device 2"
    ):
        kbuild.load(scale(driver, target="sm_80"), device=2)[1](x, 0, 2.0, 64)
    z = driver.array(np.ones(64, np.float32), device=0)
    with pytest.raises(kbuild.KbuildError, match=r"compiled for sm_80; device 0 .* has capability 9.0"):
        kernel[1](z, z, 2.0, 64)
    with pytest.raises(kbuild.KbuildError, match="no CUDA device 3; the driver shows 3"):
        kbuild.load(scale(driver), device=3)[1](0, 0, 2.0, 0)
    # PTX runs on newer devices, too.
    text = kbuild.load(scale(driver, target="sm_80", stop="ptx"))
    text[1](z, z, 5.0, 64)
    assert z.copy_to_host().tolist() == [5.0] * 64


@on_fake_gpu(streams="late")
def test_streams(driver: FakeDriver) -> None:
    from cuda.core import Device

    device = Device()
    device.set_current()
    kernel = kbuild.load(scale(driver))
    x = driver.array(np.ones(64, np.float32))
    own = device.create_stream()

    class WithProtocol:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, int(own.handle)

    class OfCupy:
        ptr = int(own.handle)

    class OfTorch:
        cuda_stream = int(own.handle)

    for stream in (own, int(own.handle), own.handle, WithProtocol(), OfCupy(), OfTorch()):
        kernel[1](x, x, 2.0, 64, stream=stream)
        assert driver.launches[-1].stream == int(own.handle)
    kernel[1](x, x, 2.0, 64)
    assert driver.launches[-1].stream in (0, 1)
    with pytest.raises(kbuild.KbuildError, match="stream is 'fast', which is no stream"):
        kernel[1](x, x, 2.0, 64, stream="fast")

    class Written:
        """An array that says which stream writes it."""

        def __init__(self, stream: int) -> None:
            self.dtype = x.dtype
            self.__cuda_array_interface__ = x.__cuda_array_interface__ | {"stream": stream}

    kernel[1](Written(int(own.handle)), x, 2.0, 64)
    assert driver.launches[-1].stream == int(own.handle), "it goes to that of the first array"
    other = device.create_stream()
    kernel[1](Written(int(own.handle)), x, 0.0, 64, stream=other)
    assert "cuStreamWaitEvent" in {call.name for call in driver.calls[-6:]}
    other.sync()
    assert x.copy_to_host().tolist() == [0.0] * 64


@on_fake_gpu()
def test_what_the_driver_refuses_has_its_reason(driver: FakeDriver) -> None:
    kernel = kbuild.load(scale(driver))
    x = driver.array(np.ones(64, np.float32), name="x")
    with pytest.raises(
        kbuild.KbuildError, match=r"launching scale failed: CUDA_ERROR_ILLEGAL_ADDRESS \(700\): .* x"
    ):
        kernel[2](x, x, 2.0, 128)
    driver.fail_next("cuLibraryLoadData", 2)
    with pytest.raises(kbuild.KbuildError, match=r"loading scale failed: CUDA_ERROR_OUT_OF_MEMORY \(2\)"):
        kbuild.load(scale(driver))[1](x, x, 2.0, 64)


MANIFEST = """\
schema = 1
[package]
name = "scales"
version = "1"
archs = ["sm_90"]
[[kernel]]
name = "scale"
source = "kernels.py"
function = "scale"
grid = ["cdiv(n, BLOCK)"]
args = { "x, out" = "*fp32:16", factor = "fp32", n = "i32:16" }
config = [{ BLOCK = 64 }]
"""


@on_fake_gpu()
def test_cubins_in_a_build_folder(driver: FakeDriver) -> None:
    Path("kernels.py").write_text(SOURCE)
    Path("kernels.toml").write_text(MANIFEST)
    assert main(["build", "-q", "--no-cache"]) == 0
    [cubin] = Path("build").rglob("*.cubin")
    driver.register(cubin.read_bytes(), cubin.with_suffix(".ptx").read_text())
    kernel, x = kbuild.load(cubin), driver.array(np.ones(64, np.float32))
    kernel[1](x, x, 2.0, 64)
    assert x.copy_to_host().tolist() == [2.0] * 64
    assert (kernel.metadata.target, kernel.metadata.warps) == ("sm_90", 4)
    with pytest.raises(kbuild.KbuildError, match='compiled as "i32:16"'):
        kernel[1](x, x, 2.0, 63)
    for path, text in (
        ("kernels.py", "kernels.py is not a cubin"),
        ("none.cubin", "none.cubin: No such file"),
        (_with_facts(cubin, cubin.with_suffix(".json").read_text()), "has the facts of another cubin"),
        (_with_facts(cubin, "{}"), "has not the facts of a cubin"),
    ):
        with pytest.raises(kbuild.KbuildError, match=text):
            kbuild.load(path)


def _with_facts(cubin: Path, facts: str) -> Path:
    """Another cubin with some facts beside it."""
    other = Path(f"other_{len(facts)}.cubin")
    other.write_bytes(cubin.read_bytes() + b"0")
    other.with_suffix(".json").write_text(facts)
    return other


@on_fake_gpu()
def test_kernels_start_from_their_ir(driver: FakeDriver) -> None:
    made = scale(driver, n="i32:16")
    Path("scale.ttir").write_text(made.asm["ttir"])
    kernel = kbuild.load(compiled_from("scale.ttir", driver))
    x = driver.array(np.ones(16, np.float32))
    kernel[1](x, x, 2.0, 16)
    assert x.copy_to_host().tolist() == [2.0] * 16
    with pytest.raises(kbuild.KbuildError, match='compiled as "i32:16"'):
        kernel[1](x, x, 2.0, 15)
    Path("scale.ttir").write_text(made.asm["ttir"].replace("%n", "%300"))
    kbuild.load(compiled_from("scale.ttir", driver))[1](x, x, 2.0, 16)
    assert x.copy_to_host().tolist() == [4.0] * 16
    Path("scale.ptx").write_text(made.asm["ptx"])
    with pytest.raises(kbuild.KbuildError, match="a late stage, which does not say its arguments"):
        kbuild.load(compiled_from("scale.ptx", driver))
    with pytest.raises(kbuild.KbuildError, match="compiled to ttgir, which does not run"):
        kbuild.load(scale(driver, stop="ttgir"))
    with pytest.raises(kbuild.KbuildError, match="a function is no compiled kernel"):
        kbuild.load(scale)  # type: ignore[arg-type]
    with pytest.raises(kbuild.KbuildError, match="device is 'cuda:0', and not the number of one"):
        kbuild.load(made, device="cuda:0")  # type: ignore[arg-type]


def compiled_from(file: str, driver: FakeDriver) -> kbuild.Artifact:
    """The artifact of a file of a later stage."""
    artifact = kbuild.compile(file)
    driver.register(artifact.asm["cubin"], artifact.asm["ptx"])
    return artifact
