"""Launches through a generated package: which cubin, with which parameters, where."""

import ast
import ctypes
import inspect
import itertools
import math
import pathlib
import struct
import subprocess
import sys
import types

import numpy
import pytest

from kbuild.aot.files import templates_directory
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


def test_numpy_values_are_as_good_as_python_ones(world):
    q = Tensor("float16")
    head, causal = numpy.int64(64), numpy.True_
    world.package.attention(
        q, numpy.float32(0.5), 1, numpy.int32(512), True, numpy.uint64(7), HEAD_DIM=head, IS_CAUSAL=causal
    )
    assert world.driver.last.key == "attention.True.64"
    assert list(world.driver.last.params[3:6]) == [512, 1, 7]


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
    """How large they are is said by the cubin; the launch itself is like any other."""
    x = Tensor()
    world.package.pairs(x, 6)
    assert tuple(world.driver.last.grid) == (6, 1, 1)
    with pytest.raises(
        world.package.LaunchError, match=r"7 programs along axis 0, which are no clusters of 2"
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
                "without a pointer that tells, the current device is meant"
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


def test_array_interface_and_its_stream(world):
    class Array:
        def __init__(self, typestr, stream=None, address=(2 << 40) + 256):
            data = {"data": (address, False), "typestr": typestr, "shape": (8,)}
            self.__cuda_array_interface__ = {**data, "version": 3, "stream": stream}

    f4 = numpy.dtype("float32").str
    world.package.vector_add(Array(f4, stream=9), Array(f4), 32)
    assert (world.driver.last.key, world.driver.last.device, world.driver.last.stream) == (
        "add.fp32.aligned",
        1,
        9,
    )
    assert world.driver.count("sync") == 0
    world.package.vector_add(Array(f4, stream=9), Array(f4), 32, stream=4)
    assert world.driver.count("sync") == 1, "the launch waits for the stream that makes the array"
    with pytest.raises(ValueError, match="x has elements, but no memory"):
        world.package.vector_add(Array(f4, address=0), Array(f4), 32)
    with pytest.raises(world.package.NoVariantError, match="x holds"):
        world.package.vector_add(Array(">f4"), Array(f4), 32)
    with pytest.raises(TypeError, match="malformed"):
        world.package.vector_add(Array(None), Array(f4), 32)


class DLPackArray:
    """Exports address, device and type as DLPack has them; keeps what it was asked for."""

    def __init__(self, code, bits, device=(2, 1), address=(2 << 40) + 256, lanes=1, shape=(8,)):
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        place = ctypes.addressof(self._shape)
        self._fields = struct.pack(
            "<QiiiBBHQQQQQ", address, *device, len(shape), code, bits, lanes, place, 0, 16, 0, 0
        )
        self._memory = ctypes.create_string_buffer(self._fields)
        self._device, self.asked = device, []

    def __dlpack_device__(self):
        return self._device

    def __dlpack__(self, **keywords):
        self.asked.append(keywords)
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self._memory), b"dltensor", None)


def test_dlpack(world):
    for code, bits, dtype in ((2, 32, "fp32"), (2, 16, "fp16")):
        x = DLPackArray(code, bits)
        world.package.vector_add(x, x, 32)
        launch = world.driver.last
        assert (launch.key, launch.device, launch.params[0]) == (
            f"add.{dtype}.aligned",
            1,
            (2 << 40) + 256 + 16,
        )
    world.package.vector_add(x, x, 32, stream=0)
    assert x.asked[-4:] == [{}, {}, {"stream": 1}, {"stream": 1}], "1 is the legacy stream"
    for wrong, name in ((DLPackArray(4, 16), "x"), (DLPackArray(2, 32, lanes=4), "x")):
        with pytest.raises(world.package.NoVariantError, match=f"{name} holds"):
            world.package.vector_add(wrong, DLPackArray(2, 32), 32)
    with pytest.raises(ValueError, match="x is not on a CUDA device"):
        world.package.vector_add(numpy.zeros(8, numpy.float32), DLPackArray(2, 32), 8)


def test_encoding_of_floats(tmp_path):
    """Against numpy's float16 and float32, and bfloat16 by way of float64 arithmetic."""
    text = (templates_directory() / "launcher_launch.h").read_text()
    source = text[
        text.index("static uint64_t encode_float") : text.index("static int read_grid")
    ].removeprefix("static ")
    (tmp_path / "encode.c").write_text("#include <stdint.h>\n#include <string.h>\n" + source)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "e.so", tmp_path / "encode.c"], check=True)
    encode = ctypes.CDLL(str(tmp_path / "e.so")).encode_float
    encode.restype, encode.argtypes = ctypes.c_uint64, [ctypes.c_double, ctypes.c_int, ctypes.c_int]
    chance = numpy.random.default_rng(3)
    random = chance.standard_normal(20000) * 2.0 ** chance.integers(-160, 160, 20000)
    small = chance.standard_normal(20000) * 2.0 ** chance.integers(-30, 20, 20000)
    exact = numpy.arange(0x7C00, dtype=numpy.uint16).view(numpy.float16).astype(float)
    ties = (exact[1:] + exact[:-1]) / 2
    edges = [
        0.0,
        -0.0,
        numpy.inf,
        -numpy.inf,
        65519.99,
        65520.0,
        5e-324,
        1.7e308,
        2.0**-149,
        2.0**-150,
        1.5 * 2.0**-150,
    ]
    for value in (*random, *small, *ties, *edges):
        with numpy.errstate(all="ignore"):
            assert encode(value, 5, 10) == int(numpy.float16(value).view(numpy.uint16)), value
            assert encode(value, 8, 23) == int(numpy.float32(value).view(numpy.uint32)), value
    for value in random:
        step = 2.0 ** max(math.frexp(value)[1] - 8, -133)
        if abs(value) < 2.0**127:
            nearest = math.copysign(round(value / step) * step, value)
            assert encode(value, 8, 7) == encode(nearest, 8, 23) >> 16, value
    assert (encode(math.nan, 5, 10), encode(math.nan, 8, 7), encode(math.nan, 8, 23)) == (
        0x7E00,
        0x7FC0,
        0x7FC00000,
    )


def test_raw_addresses_need_their_type_said(world):
    address = (1 << 40) + 0x100
    world.package.vector_add(address, address, 32, dtype="fp16")
    assert world.driver.last.key == "add.fp16.aligned.ptx"
    world.package.vector_add(address, address, 32, dtype=world.torch.float32)
    assert world.driver.last.key == "add.fp32.aligned.ptx"
    world.package.vector_add(address, Tensor("float16"), 32)
    assert world.driver.last.key == "add.fp16.aligned.ptx", "the other argument tells"
    world.package.copy((2 << 40) + 8, True, grid=1)
    assert world.driver.last.device == 1, "one candidate, and the driver knows whose address it is"
    with pytest.raises(world.package.NoVariantError, match=r"type of an argument is unknown.*say dtype="):
        world.package.vector_add(address, address, 32)


def test_grids(world):
    x = Tensor("int8", device=1)
    for grid, launched in ((3, (3, 1, 1)), ((2, 3), (2, 3, 1)), ((2, 3, 4), (2, 3, 4))):
        world.package.copy(x, False, grid=grid)
        assert tuple(world.driver.last.grid) == launched
    world.package.softmax(x := Tensor(device=1), 64, grid=(9,))
    assert tuple(world.driver.last.grid) == (9, 1, 1), "n_rows is for the default grid alone"
    with pytest.raises(TypeError, match="softmax\\(\\) misses the argument 'n_rows'"):
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
    with pytest.raises(TypeError, match="misses the keyword argument 'grid'"):
        world.package.copy(x, False)
    with pytest.raises(world.package.LaunchError, match="65536 programs along axis 1"):
        world.package.attention(Tensor("float16"), 1, 1, 64, 65536, 0, HEAD_DIM=64, IS_CAUSAL=True)


def test_wrong_arguments(world):
    add, attention, x = world.package.vector_add, world.package.attention, Tensor()
    no_variant = world.package.NoVariantError
    for call, error, text in (
        (lambda: add(x, x), TypeError, "vector_add() misses the argument 'n'"),
        (lambda: add(x, x, 1, 2), TypeError, "takes 3 positional arguments, not 4"),
        (lambda: add(x, x, 1, n=2), TypeError, "got 'n' twice"),
        (lambda: add(x, x, 1, m=2), TypeError, "has no argument 'm'"),
        (lambda: add(x, x, 1.5), TypeError, "n must be an integer, not float"),
        (lambda: add(x, x, "1"), TypeError, "n must be an integer, not str"),
        (lambda: add([1], x, 1), TypeError, "x must be a tensor on a CUDA device or an address, not list"),
        (lambda: add(Tensor(device=-1), x, 1), ValueError, "x is not on a CUDA device"),
        (
            lambda: add(x, Tensor(device=1), 1),
            ValueError,
            "out is on device 1, and an argument before it is on device 0",
        ),
        (lambda: add(x, x, 2**64), OverflowError, "n does not fit 64 bits"),
        (lambda: add(x, x, 2**31), no_variant, "n = 2147483648 does not fit i32"),
        (lambda: add(x, x, -(2**31) - 1), no_variant, "does not fit i32"),
        (lambda: add(x, Tensor("float16"), 1), no_variant, "out holds fp16, not fp32"),
        (lambda: add(Tensor("complex64"), x, 1), no_variant, "x holds"),
        (
            lambda: add(Tensor(device=7), Tensor(device=7), 1),
            world.package.LaunchError,
            "no CUDA device 7; the driver shows 3",
        ),
        (lambda: add(x, x, 1, stream="main"), TypeError, "stream must be"),
        (lambda: add(x, x, 1, dtype="fp64"), no_variant, "dtype = fp64 is not fp32"),
        (
            lambda: attention(x, "a", 1, 1, 1, 1, HEAD_DIM=64, IS_CAUSAL=True),
            TypeError,
            "scale must be a number, not str",
        ),
        (
            lambda: attention(x, 1, 1, 1, 1, 1, HEAD_DIM=64),
            TypeError,
            "misses the keyword argument 'IS_CAUSAL'",
        ),
        (
            lambda: attention(x, 1, 1, 1, 1, -1, HEAD_DIM=80, IS_CAUSAL=True),
            no_variant,
            "HEAD_DIM = 80 is not 64",
        ),
        (
            lambda: attention(x, 1, 1, 1, 1, -1, HEAD_DIM=64, IS_CAUSAL=1),
            no_variant,
            "seed = -1 does not fit u64",
        ),
    ):
        with pytest.raises(error) as caught:
            call()
        assert text in str(caught.value)
    assert world.driver.count() == 0
    add(x, x, 1)
    assert world.driver.count() == 1, "a refused call leaves nothing behind"


def test_options_with_defaults_may_be_left_out(world):
    choice, x = world.package.choice, Tensor(device=1)
    for given, key in (
        ({}, "choice.1.0."),
        ({"ACTIVATION": "relu"}, "choice.1.0.relu"),
        ({"SLOPE": 0.5, "ACTIVATION": None}, "choice.0.5."),
        ({"SLOPE": 1, "ACTIVATION": ""}, "choice.1.0."),
    ):
        choice(x, **given)
        assert world.driver.last.key == key, "numbers are compared by value, and whole ones need no point"
    with pytest.raises(
        world.package.NoVariantError,
        match=r"SLOPE = 2 is not 0.5; ACTIVATION = '' \(by default\) is not relu",
    ):
        choice(x, SLOPE=2)
    assert str(inspect.signature(choice)) == "(x, *, SLOPE=1.0, ACTIVATION='', stream=None, grid=None)"
    assert "SLOPE: 0.5 or 1.0, by default 1.0\nACTIVATION: '' or relu, by default ''\n" in choice.__doc__


def test_unsupported_device_lists_what_there_is(world):
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
    assert inspect.getdoc(attention).startswith(
        'Attention, with a "quote" and a \\ backslash??/\n\nq: tensor of fp16\n'
    )
    assert "HEAD_DIM: 64 or 128" in attention.__doc__


def test_a_grid_may_name_the_multiprocessors(world, capsys):
    for rows, programs in ((5, 5), (300, 12)):
        world.package.product(Tensor("float16", 0x100), rows, 200, 208)
        assert tuple(world.driver.last.grid) == (programs, 1, 1), "the stand-in's devices have six"
    world.package.explain("product", Tensor("float16", 0x100), 300, 200, 208, arch="sm_90")
    assert "grid (264, 1, 1)" in capsys.readouterr().out


def test_tensor_maps_are_encoded_once_for_the_same_facts(world):
    x = Tensor("float16", 0x100)
    for _ in range(2):
        world.package.product(x, 300, 200, 208)
        address = (1 << 40) + 0x100
        columns_first = [200, 300, 2 * 208, 64, 128]
        assert list(world.driver.last.map[:8]) == [address, *columns_first, 6, 3]
        assert list(world.driver.last.map[8:11]) == [7, 0, 1], (
            "the outermost axis has numbers for size and stride"
        )
        assert list(world.driver.last.params[:5]) == [address, 300, 200, 208, address]
    assert world.driver.count("encode") == 1
    world.package.product(x, 301, 200, 208)
    assert (world.driver.last.map[2], world.driver.count("encode")) == (301, 2)


@pytest.mark.parametrize(
    ("address", "columns", "stride", "message"),
    [
        (0x108, 8, 8, "the address of x is not divisible by 16"),
        (0x100, 8, 12, "x has a stride of 12 elements"),
        (0x100, 8, -8, "x has a stride of -8 elements"),
        (0x100, -1, 8, "x has -1 elements along an axis"),
        (0x100, (1 << 32) + 1, 8, "x has 4294967297 elements along an axis"),
    ],
)
def test_what_no_tensor_map_describes_is_told(world, address, columns, stride, message):
    with pytest.raises(world.package.LaunchError, match=message):
        world.package.product(Tensor("float16", address), 8, columns, stride)
    assert world.driver.count() == 0


def test_nothing_and_the_same_row_again_can_be_read_through_a_map(world):
    world.package.product(Tensor("float16", 0x100), 8, 0, 0)
    assert list(world.driver.last.map[1:4]) == [1, 8, 0], "the driver refuses a size of zero"


def test_each_box_of_one_tensor_is_a_map_of_its_own(world):
    """Of 36 on each of 20 tensors some meet in one of the 64 places of the cache."""
    for place in range(20):
        x = Tensor("float16", 0x100 + 256 * place)
        for rows in range(1, 37):
            world.package.tiles(x, 512, 64, ROWS=rows)
            assert list(world.driver.last.map[:6]) == [
                (1 << 40) + 0x100 + 256 * place,
                64,
                512,
                128,
                64,
                rows,
            ]


def test_a_truth_value_of_numpy_is_an_integer(world):
    world.package.product(Tensor("float16", 0x100), numpy.True_, 64, 64)
    assert world.driver.last.map[2] == 1


def test_each_row_is_found_whichever_was_launched_before(world):
    """Also where the two are neighbours in the cache of choices, which has 32 places."""
    x = Tensor("float16", 0x100)
    for pair in itertools.product(range(1, 37), repeat=2):
        for rows in pair:
            world.package.tiles(x, 512, 64, ROWS=rows)
            assert world.driver.last.map[5] == rows


@pytest.mark.parametrize("kind", ["torch", "interface", "interface with strides", "dlpack"])
def test_sizes_and_strides_are_read_off_a_tensor(world, kind):
    """500 rows of 200 numbers, 208 apart."""
    address = (1 << 40) + 0x100
    strided = kind in ("torch", "interface with strides")
    if kind == "torch":
        x = Tensor("float16", 0x100, shape=(500, 200), strides=(208, 1))
    elif kind == "dlpack":
        x = DLPackArray(2, 16, (2, 0), address - 16, shape=(500, 200))
    else:
        interface = {"data": (address, False), "typestr": "<f2", "shape": (500, 200), "version": 3}
        x = types.SimpleNamespace(
            __cuda_array_interface__=interface | ({"strides": (416, 2)} if strided else {})
        )
    world.package.blocks(x, 7, programs=3)
    launch, pitch = world.driver.last, 208 if strided else 200
    assert tuple(launch.grid) == (4, 3, 1), "the grid may name a tensor's sizes"
    assert list(launch.params[:5]) == [address, 500, 200, pitch, 7]
    assert list(launch.map[:6]) == [address, 200, 500, 2 * pitch, 64, 128]


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (0x100, TypeError, "x must be a tensor, whose sizes and strides the kernel needs, not int"),
        ({"shape": (8,), "strides": (1,)}, ValueError, "x has 1 dimensions, the kernel takes 2"),
        (
            {"shape": (8, 8), "strides": (1, 8)},
            ValueError,
            "a stride of 8 elements along axis 1, where it must be",
        ),
        (
            {"shape": (8, 8), "strides": (12, 1)},
            ValueError,
            "a stride of 12 elements along axis 0, no multiple of 16 bytes",
        ),
        ({"shape": (8, 1 << 31), "strides": (16, 1)}, RuntimeError, "x_shape_1 = .* does not fit i32"),
        (
            {"shape": (8, 8), "strides": (16, 1), "address": 8},
            RuntimeError,
            "the address of x is not divisible by 16",
        ),
    ],
)
def test_tensors_that_no_descriptor_describes_are_refused(world, x, error, message):
    with pytest.raises(error, match=message):
        world.package.blocks(Tensor("float16", **x) if isinstance(x, dict) else x, 7, programs=1)


def test_extents_are_not_given(world):
    assert str(inspect.signature(world.package.blocks)) == "(x, n, programs=None, *, stream=None, grid=None)"
    assert "x: tensor of fp16, 2 dimensions, the last one contiguous" in world.package.blocks.__doc__
    x = Tensor("float16", shape=(1, 8), strides=(3, 1))
    world.package.blocks(x, 7, 1)
    assert world.driver.last.params[3] == 16, "one row has any stride"
    with pytest.raises(TypeError, match="takes 3 positional arguments"):
        world.package.blocks(x, 7, 1, 5)
    with pytest.raises(TypeError, match="has no argument 'x_shape_0'"):
        world.package.blocks(x, 7, 1, x_shape_0=5)


def test_an_encoder_that_fails_is_told(world, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_FAIL", "cuTensorMapEncodeTiled=1")
    with pytest.raises(world.package.DriverError, match="cuTensorMapEncodeTiled"):
        world.package.product(Tensor("float16"), 8, 8, 8)
