"""Launches through a generated package: which cubin, with which parameters, where."""

import ast
import inspect
import pathlib
import struct
import sys
import types

import pytest

from tests.launcher.example_package import Tensor


def test_one_call_in_full(world):
    world.package.vector_add(Tensor(), Tensor(address=0x200), 5000)
    launch = world.driver.last
    assert launch.key == "add.fp32.plain.ptx", "device 0 is newer than any cubin"
    assert tuple(launch.grid) == (5, 1, 1)
    assert (launch.block, launch.shared, launch.stream, launch.entry) == (128, 0, 0x5000, b"vector_add_entry")
    assert list(launch.params[:3]) == [(1 << 40) + 0x100, (1 << 40) + 0x200, 5000]


@pytest.mark.parametrize(
    ("dtype", "address", "n", "device", "key"),
    [
        ("float32", 0x100, 4096, 1, "add.fp32.aligned"),
        ("float16", 0x100, 4096, 1, "add.fp16.aligned"),
        ("float32", 0x104, 4096, 1, "add.fp32.plain"),
        ("float32", 0x100, 4097, 1, "add.fp32.plain"),
        ("float32", 0x100, 1, 1, "add.fp32.one"),
        ("float16", 0x100, 4096, 2, "add.fp16.aligned"),
        ("float16", 0x100, 4096, 0, "add.fp16.aligned.ptx"),
    ],
)
def test_row_by_type_alignment_value_and_device(world, dtype, address, n, device, key):
    x = Tensor(dtype, address, device)
    for _ in range(2):
        world.package.vector_add(x, x, n)
        assert (world.driver.last.key, world.driver.last.device, world.driver.last.stream) == (
            key,
            device,
            0x5000 + device,
        )
    assert world.driver.count("load") == 1


def test_options_choose_the_row_and_its_constants(world):
    q = Tensor("float16")
    for causal in (True, False):
        for head, blocks in ((64, 4), (128, 8)):
            world.package.attention(q, 0.5, 2.0, 512, 3, 2**64 - 1, HEAD_DIM=head, IS_CAUSAL=causal)
            launch = world.driver.last
            assert launch.key == f"attention.{causal}.{head}"
            assert tuple(launch.grid) == (blocks, 3, 1)
            assert launch.shared == 1024 * head
            scale = struct.unpack("<f", struct.pack("<Q", launch.params[1])[:4])[0]
            assert (scale, launch.params[2] & 0xFFFF, launch.params[5], launch.params[6]) == (
                0.5,
                0x4000,
                2**64 - 1,
                0,
            )


def test_conditions_and_shared_memory_decide(world):
    for n_cols, device, key in ((1000, 0, "sm_90.1024"), (2000, 0, "sm_90.4096"), (1000, 2, "sm_80.1024")):
        world.package.softmax(Tensor(device=device), n_cols, 7)
        assert world.driver.last.key == f"softmax.{key}"
    with pytest.raises(
        world.package.NoVariantError, match="needs 196608 bytes of shared memory, more than device 2"
    ):
        world.package.softmax(Tensor(device=2), 2000, 7)
    with pytest.raises(world.package.NoVariantError, match=r"n_cols <= 4096 does not hold \(n_cols = 5000\)"):
        world.package.softmax(Tensor(), 5000, 7)


@pytest.mark.parametrize(("version", "is_early"), [("12030", 1), ("12020", 0)])
def test_a_row_may_begin_before_the_launch_before_it_has_ended(world, monkeypatch, version, is_early):
    """Where the driver can do that in a capture too; the launch itself is the same either way."""
    monkeypatch.setenv("FAKE_CUDA_VERSION", version)
    for n_cols, expected in ((1000, 0), (2000, is_early)):
        world.package.softmax(Tensor(), n_cols, 7, stream=0x77)
        launch = world.driver.last
        assert (launch.may_begin_early, tuple(launch.grid), launch.block, launch.stream) == (
            expected,
            (7, 1, 1),
            256,
            0x77,
        )
        assert (launch.shared, launch.params[1] & 0xFFFFFFFF) == (
            48 * (1024 if n_cols == 1000 else 4096),
            n_cols,
        )


def test_a_grid_of_clusters_is_whole(world):
    """The cubin has their size; the launch itself is like any other."""
    x = Tensor()
    world.package.pairs(x, 6)
    assert tuple(world.driver.last.grid) == (6, 1, 1)
    with pytest.raises(
        world.package.LaunchError, match=r"7 programs along axis 0, not a multiple of the cluster size 2"
    ):
        world.package.pairs(x, 7)
    world.package.pairs(x, 7, grid=(2, 3))
    assert tuple(world.driver.last.grid) == (2, 3, 1)


def test_streams_and_contexts(world):
    x = Tensor(device=1)
    world.package.vector_add(x, x, 16, stream=0x77)
    assert (world.driver.last.stream, world.driver.last.device) == (0x77, 1)
    world.package.vector_add(x, x, 16, stream=type("Stream", (), {"cuda_stream": 0x88})())
    assert world.driver.last.stream == 0x88
    pushes = world.driver.count("push")
    world.package.vector_add(x, x, 16)
    assert world.driver.count("push") == pushes + 1, (
        "no context was current, so the device's is made so for the call"
    )


def of_cuda_python(name: str, module: str, number: int, **attributes: object) -> object:
    """An object as cuda-python's are: its `int()` is the handle, and it is no index."""
    namespace = {"__module__": module, "__int__": lambda self: number, **attributes}
    return type(name, (), namespace)()


def protocol(pair: object) -> object:
    """A stream that says its handle by `__cuda_stream__`, as streams of cuda.core do."""
    return type("Stream", (), {"__cuda_stream__": lambda self: pair})()


def test_streams_of_cuda_python(world):
    x = Tensor()
    older = type("Stream", (), {"__cuda_stream__": (0, 0x99)})()
    bindings = of_cuda_python("CUstream", "cuda.bindings.driver", 0x66)
    for stream, handle in ((protocol((0, 0x55)), 0x55), (older, 0x99), (bindings, 0x66)):
        world.package.vector_add(x, x, 16, stream=stream)
        assert world.driver.last.stream == handle
    for wrong in ((1, 0x55), (0,), [0, 0x55], None, ("0", 1), (2**80, 1)):
        with pytest.raises(TypeError, match=r"__cuda_stream__ must give \(0, address\)"):
            world.package.vector_add(x, x, 16, stream=protocol(wrong))
    for wrong in (protocol((0, "x")), protocol((0, -1)), protocol((0, True)), 1.5, "x"):
        with pytest.raises(TypeError, match=r"stream must be a torch\.cuda\.Stream, an object with"):
            world.package.vector_add(x, x, 16, stream=wrong)


def test_addresses_and_buffers_of_cuda_python(world):
    """A buffer has bytes without a type, although its DLPack calls them int8: the other arguments decide."""
    x = Tensor()
    dlpack = {"__dlpack__": lambda self, **_: 1 / 0, "__dlpack_device__": lambda self: 1 / 0}
    pointer = of_cuda_python("CUdeviceptr", "cuda.bindings.driver", x.data_ptr())
    buffer = of_cuda_python("Buffer", "cuda.core._memory._buffer", 0, handle=x.data_ptr(), **dlpack)
    held = of_cuda_python("Buffer", "cuda.core._memory._buffer", 0, handle=pointer, **dlpack)
    for value in (pointer, buffer, held):
        world.package.vector_add(x, value, 16)
        assert world.driver.last.params[1] == x.data_ptr()
    with pytest.raises(OverflowError, match="out is not a 64-bit address"):
        world.package.vector_add(x, of_cuda_python("CUdeviceptr", "cuda.bindings.driver", -1), 16)
    with pytest.raises(TypeError, match="out must be a tensor on a CUDA device or an address, not float32"):
        world.package.vector_add(x, of_cuda_python("float32", "numpy", 16), 16)


def test_the_caller_keeps_its_context(world, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_DEVICES", "80 80")
    for current, pushed in ((1, 0), (0, 1)):
        with world.driver.current_device(current):
            world.package.vector_add(x := Tensor(device=1), x, 16)
            pushes = world.driver.count("push")
            world.package.vector_add(x, x, 16)
            assert (world.driver.last.device, world.driver.count("push")) == (1, pushes + pushed)
            world.package.copy(0, True, grid=1)
            assert world.driver.last.device == current, (
                "without a pointer that decides, the current device is used"
            )
    world.package.copy(0, True, grid=1)
    assert (world.driver.last.device, world.driver.last.params[0]) == (0, 0)


def test_torch_in_use_gives_the_stream_for_addresses_too(world, monkeypatch):
    world.package.copy((2 << 40), True, grid=1)
    assert world.driver.last.stream == 0
    for initialized, stream in ((False, 0), (True, 0x5001)):
        cuda = types.SimpleNamespace(is_initialized=lambda answer=initialized: answer)
        monkeypatch.setitem(sys.modules, "torch.cuda", cuda)
        world.package.copy((2 << 40), True, grid=1)
        assert world.driver.last.stream == stream


def test_grids(world):
    x = Tensor("int8", device=1)
    for grid, launched in ((3, (3, 1, 1)), ((2, 3), (2, 3, 1)), ((2, 3, 4), (2, 3, 4))):
        world.package.copy(x, False, grid=grid)
        assert tuple(world.driver.last.grid) == launched
    world.package.softmax(x := Tensor(device=1), 64, grid=(9,))
    assert tuple(world.driver.last.grid) == (9, 1, 1), "n_rows is for the default grid alone"
    with pytest.raises(TypeError, match="softmax\\(\\) is missing the argument 'n_rows'"):
        world.package.softmax(x, 64)
    x = Tensor("int8", device=1)
    count = world.driver.count()
    world.package.copy(x, False, grid=(4, 0))
    world.package.vector_add(Tensor(numel=0), Tensor(numel=0), 0)
    assert world.driver.count() == count, "an empty grid launches nothing"
    for grid in ((-1,), (1, 65536), (1, 1, 65536), 2**31):
        with pytest.raises(world.package.LaunchError, match="a launch takes 0 to"):
            world.package.copy(x, False, grid=grid)
    for grid in ("3", (), (1, 2, 3, 4), (1.5,), 2**70):
        with pytest.raises(TypeError, match="grid must be"):
            world.package.copy(x, False, grid=grid)
    with pytest.raises(TypeError, match="is missing the keyword argument 'grid'"):
        world.package.copy(x, False)
    with pytest.raises(world.package.LaunchError, match="65536 programs along axis 1"):
        world.package.attention(Tensor("float16"), 1, 1, 64, 65536, 0, HEAD_DIM=64, IS_CAUSAL=True)


def test_an_unsupported_device_lists_the_supported_ones(world):
    q = Tensor("float16", device=1)
    with pytest.raises(
        world.package.NoVariantError, match=r"nothing was built for device 1 .*8\.0.*; there is sm_90a"
    ):
        world.package.attention(q, 1, 1, 1, 1, 1, HEAD_DIM=64, IS_CAUSAL=True)


def test_functions_look_like_python_ones(world):
    attention = world.package.attention
    expected = "(q, scale, slope, n_ctx, heads, seed, *, HEAD_DIM, IS_CAUSAL, stream=None, grid=None)"
    assert str(inspect.signature(attention)) == expected
    assert (
        str(inspect.signature(world.package.softmax)) == "(x, n_cols, n_rows=None, *, stream=None, grid=None)"
    )
    assert str(inspect.signature(world.package.copy)) == "(source, flag, *, stream=None, grid)"
    stub = ast.parse(pathlib.Path(world.package.__file__).with_name("dispatch.pyi").read_text())
    functions = {node.name: node for node in stub.body if isinstance(node, ast.FunctionDef)}
    for function in (functions[name] for name in world.package.dispatch.KERNELS):
        parameters = inspect.signature(getattr(world.package, function.name)).parameters
        assert [a.arg for a in (*function.args.args, *function.args.kwonlyargs)] == list(parameters)
        assert ast.get_docstring(function) == inspect.getdoc(getattr(world.package, function.name))
    documentation = inspect.getdoc(attention)
    assert documentation is not None and documentation.startswith(
        'Attention, with a "quote" and a \\ backslash??/\n\nq: tensor of fp16\n'
    )
    assert "HEAD_DIM: 64 or 128" in attention.__doc__


def test_a_grid_may_name_the_multiprocessors(world, capsys):
    for rows, programs in ((5, 5), (300, 12)):
        world.package.matmul(Tensor("float16", 0x100), rows, 200, 208)
        assert tuple(world.driver.last.grid) == (programs, 1, 1), "the fake driver's devices have six"
    world.package.explain("matmul", Tensor("float16", 0x100), 300, 200, 208, arch="sm_90")
    assert "grid (264, 1, 1)" in capsys.readouterr().out
