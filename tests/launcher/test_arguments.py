"""The arguments that a launch takes (arrays of all libraries, addresses, numbers and options), and those that
it refuses."""

import ctypes
import inspect
import math
import subprocess

import numpy
import pytest

from kbuild.aot.files import templates_directory
from tests.launcher.dlpack import DLPackArray
from tests.launcher.example_package import Tensor


def test_numpy_values_work_as_python_ones_do(world):
    q = Tensor("float16")
    head, causal = numpy.int64(64), numpy.True_
    world.package.attention(
        q, numpy.float32(0.5), 1, numpy.int32(512), True, numpy.uint64(7), HEAD_DIM=head, IS_CAUSAL=causal
    )
    assert world.driver.last.key == "attention.True.64"
    assert list(world.driver.last.params[3:6]) == [512, 1, 7]


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
    assert x.asked[-4:] == [{"stream": 1}] * 4, "1 is the legacy stream, which is meant where none is named"
    for wrong, name in ((DLPackArray(4, 16), "x"), (DLPackArray(2, 32, lanes=4), "x")):
        with pytest.raises(world.package.NoVariantError, match=f"{name} holds"):
            world.package.vector_add(wrong, DLPackArray(2, 32), 32)
    with pytest.raises(ValueError, match="x is not on a CUDA device"):
        world.package.vector_add(numpy.zeros(8, numpy.float32), DLPackArray(2, 32), 8)


def test_encoding_of_floats(tmp_path):
    """Against numpy's float16 and float32, and bfloat16 by way of float64 arithmetic."""
    text = (templates_directory() / "launcher" / "core" / "grid.h").read_text()
    source = text[
        text.index("static uint64_t encode_float") : text.index("/* A size below zero")
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
    assert world.driver.last.key == "add.fp16.aligned.ptx", "by the other argument"
    world.package.copy((2 << 40) + 8, True, grid=1)
    assert world.driver.last.device == 1, "one candidate, and the driver knows whose address it is"
    with pytest.raises(world.package.NoVariantError, match=r"type of an argument is unknown.*say dtype="):
        world.package.vector_add(address, address, 32)


def test_wrong_arguments(world):
    add, attention, x = world.package.vector_add, world.package.attention, Tensor()
    no_variant = world.package.NoVariantError
    for call, error, text in (
        (lambda: add(x, x), TypeError, "vector_add() is missing the argument 'n'"),
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
        (
            lambda: add(numpy.ndarray, x, 1),
            TypeError,
            "x must be a tensor on a CUDA device or an address, not type",
        ),
        (lambda: add(x, x, 1, stream="main"), TypeError, "vector_add(): stream must be"),
        (
            lambda: attention(x, 10**400, 1, 1, 1, 1, HEAD_DIM=64, IS_CAUSAL=True),
            OverflowError,
            "attention(): scale does not fit a double",
        ),
        (lambda: add(x, x, 1, dtype="fp64"), no_variant, "dtype = fp64 is not fp32"),
        (
            lambda: attention(x, "a", 1, 1, 1, 1, HEAD_DIM=64, IS_CAUSAL=True),
            TypeError,
            "scale must be a number, not str",
        ),
        (
            lambda: attention(x, 1, 1, 1, 1, 1, HEAD_DIM=64),
            TypeError,
            "is missing the keyword argument 'IS_CAUSAL'",
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
