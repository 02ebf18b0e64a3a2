"""Operators of a built package, over the fake driver: what they return, and what they refuse."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import numpy as np
import pytest

from tests.aot.op.claims import Claims, Exported, Older

RANDOM = np.random.default_rng(7)


def floats(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(dtype)


def test_an_output_has_the_shape_and_type_of_its_inputs(ops, driver) -> None:
    x, y = floats(3, 5, 7), floats(3, 5, 7)
    out = ops.vector_add(driver.array(x), driver.array(y))
    assert out.shape == (3, 5, 7) and out.dtype == np.float32
    assert (out.copy_to_host() == x + y).all()


def test_an_output_may_be_given_and_be_an_input(ops, driver) -> None:
    x, y = floats(100), floats(100)
    array = driver.array(x)
    assert ops.vector_add(array, driver.array(y), out=array) is array
    assert (array.copy_to_host() == x + y).all()


def test_several_launches_share_a_workspace(ops, driver) -> None:
    x = floats(40_000, dtype=np.float16)
    out = ops.sum(driver.array(x))
    assert out.shape == () and out.copy_to_host() == np.float16(x.astype(np.float64).sum())


def test_memory_that_nobody_sees_is_one_array(ops, driver) -> None:
    """mean and rstd of layer_norm, which it does not return, lie in one array beside each other."""
    y = ops.layer_norm(*map(driver.array, (floats(70, 100), floats(100), floats(100))))
    launch = driver.launches[-1].arguments
    mean, rstd = (int.from_bytes(argument, "little") for argument in launch[4:6])
    assert rstd - mean == 512 and mean % 256 == 0, "70 numbers, and the next multiple of 256 bytes"
    assert int.from_bytes(launch[1], "little") == y.__cuda_array_interface__["data"][0]


def test_memory_without_elements_is_not_made(ops, driver) -> None:
    """The partial sums of no elements, which the second launch alone takes, to read none."""
    assert ops.sum(driver.array(floats(0))).copy_to_host() == 0
    assert int.from_bytes(driver.launches[-1].arguments[0], "little") == 0


def test_leading_dimensions_are_one(ops, driver) -> None:
    x, weight, bias = floats(2, 3, 100), floats(100), floats(100)
    y = ops.layer_norm(driver.array(x), driver.array(weight), driver.array(bias), eps=1e-3)
    centred = x - x.mean(-1, keepdims=True)
    expected = centred / np.sqrt(x.var(-1, keepdims=True) + 1e-3) * weight + bias
    assert y.shape == (2, 3, 100) and abs(y.copy_to_host() - expected).max() < 1e-5


def test_strides_that_the_kernel_takes_may_be_any(ops, driver) -> None:
    x, weight, bias = floats(4, 90), floats(50), floats(50)
    rows = driver.array(x).view((4, 50), (90, 1), 10)
    y = ops.layer_norm(rows, driver.array(weight), driver.array(bias))
    own = x[:, 10:60]
    expected = (own - own.mean(-1, keepdims=True)) / np.sqrt(
        own.var(-1, keepdims=True) + 1e-5
    ) * weight + bias
    assert abs(y.copy_to_host() - expected).max() < 1e-5


@pytest.mark.parametrize("mode", ["keep", "negate"])
@pytest.mark.parametrize("with_bias", [False, True])
def test_optional_tensors_words_and_computed_defaults(ops, driver, mode, with_bias) -> None:
    x, bias = floats(100), floats(100)
    array = driver.array(x)
    same, counter = ops.scale_(array, driver.array(bias) if with_bias else None, mode=mode)
    expected = (x * np.float32(0.1) + bias * with_bias) * (-1 if mode == "negate" else 1)
    assert same is array and abs(array.copy_to_host() - expected).max() < 1e-6
    assert counter.copy_to_host() == [2]  # It was zero before two programs counted.


def test_tensors_without_elements(ops, driver) -> None:
    empty = driver.array(np.zeros((0, 4), np.float32))
    assert ops.vector_add(empty, empty).shape == (0, 4)
    assert ops.sum(empty).copy_to_host() == 0


def test_signatures_are_real(ops) -> None:
    assert (
        str(inspect.signature(ops.scale_))
        == "(x, bias=None, factor=None, mode='keep', *, counter=None, stream=None)"
    )
    assert "eps: number, by default 1e-05" in ops.layer_norm.__doc__
    assert "x: tensor (*n_rows, n_cols) of fp32 or fp16, contiguous along n_cols" in ops.layer_norm.__doc__


def test_the_bare_launch_is_in_a_module(ops, driver) -> None:
    x = driver.array(floats(64))
    out = driver.empty(64, np.float32)
    ops.launch.vector_add(x, x, out, 64)
    assert (out.copy_to_host() == 2 * x.copy_to_host()).all()
    assert ops.sum_partials is ops.launch.sum_partials  # It has no operator.


def test_explain_shows_every_launch(ops, driver, capsys) -> None:
    ops.explain(ops.sum, driver.array(floats(100)))
    printed = capsys.readouterr().out
    assert "sum(x, partial, n" in printed and "sum_partials(partial, out, count" in printed
    assert printed.count(": taken") == 2
    ops.explain("vector_add", driver.array(floats(8)), driver.array(floats(8)), arch="sm_90")
    assert "on sm_90" in capsys.readouterr().out


def array_of(driver, *shape: int, dtype: Any = np.float32, device: int = 0):
    return driver.array(np.zeros(shape, dtype), device=device)


class Raising:
    """No number, and says so in its own words."""

    def __float__(self) -> float:
        raise ArithmeticError("no number today")


MISTAKES = {
    "a missing argument": (
        lambda ops, d: ops.vector_add(array_of(d, 4)),
        TypeError,
        "missing 1 required positional",
    ),
    "an unknown one": (
        lambda ops, d: ops.vector_add(array_of(d, 4), array_of(d, 4), wait=1),
        TypeError,
        "unexpected keyword argument 'wait'",
    ),
    "no tensor": (
        lambda ops, d: ops.vector_add(array_of(d, 4), 3),
        TypeError,
        "y must be a tensor on a CUDA device",
    ),
    "another rank": (
        lambda ops, d: ops.layer_norm(array_of(d, 2, 4), array_of(d, 1, 4), array_of(d, 4)),
        ValueError,
        r"weight has 2 dimensions, and 1 is expected: it has the shape \(1, 4\) with strides \(4, 1\)",
    ),
    "another size": (
        lambda ops, d: ops.layer_norm(array_of(d, 2, 4), array_of(d, 5), array_of(d, 4)),
        ValueError,
        r"n_cols is 4 in x and 5 in weight: x \(\*n_rows n_cols\) has the shape \(2, 4\), weight \(n_cols\) has \(5,\)",
    ),
    "other leading sizes": (
        lambda ops, d: ops.vector_add(array_of(d, 2, 3), array_of(d, 3, 2)),
        ValueError,
        r"shape is \(2, 3\) in x and \(3, 2\) in y: x \(\*shape\) has the shape \(2, 3\), y \(\*shape\) has \(3, 2\)",
    ),
    "other numbers of leading sizes": (
        lambda ops, d: ops.vector_add(array_of(d, 15), array_of(d, 5, 3)),
        ValueError,
        r"shape is \(15,\) in x and \(5, 3\) in y: x",
    ),
    "leading sizes of an output": (
        lambda ops, d: ops.layer_norm(
            array_of(d, 2, 3, 4), array_of(d, 4), array_of(d, 4), mean=array_of(d, 6)
        ),
        ValueError,
        r"n_rows is \(2, 3\) in x and \(6,\) in mean: x \(\*n_rows n_cols\) has the shape \(2, 3, 4\)",
    ),
    "a type": (
        lambda ops, d: ops.vector_add(*[array_of(d, 4, dtype=np.float64)] * 2),
        TypeError,
        "x holds fp64, and the operator takes fp32 or fp16|x holds fp64, and the operator takes fp16 or fp32",
    ),
    "two types": (
        lambda ops, d: ops.vector_add(array_of(d, 4), array_of(d, 4, dtype=np.float16)),
        TypeError,
        "x holds fp32 and y holds fp16; both have to be of one type",
    ),
    "a stride": (
        lambda ops, d: ops.layer_norm(array_of(d, 64).view((8, 4), (1, 8)), array_of(d, 4), array_of(d, 4)),
        ValueError,
        "x has a stride of 8 along n_cols, which has to be 1; call contiguous",
    ),
    "strides of leading dimensions": (
        lambda ops, d: ops.layer_norm(
            array_of(d, 99).view((2, 3, 4), (40, 4, 1)), array_of(d, 4), array_of(d, 4)
        ),
        ValueError,
        "x has dimensions that cannot be taken as one",
    ),
    "a requirement": (
        lambda ops, d: ops.layer_norm(array_of(d, 2, 300), array_of(d, 300), array_of(d, 300)),
        ValueError,
        r"layer_norm\(\): rows have more than 256 elements",
    ),
    "a scalar": (
        lambda ops, d: ops.layer_norm(array_of(d, 2, 4), array_of(d, 4), array_of(d, 4), eps="small"),
        TypeError,
        "eps must be a number, not str",
    ),
    "a word": (
        lambda ops, d: ops.scale_(array_of(d, 4), mode="twice"),
        ValueError,
        r"scale_\(\): mode is 'twice', and 'keep' or 'negate' are expected",
    ),
    "a word with a null character": (
        lambda ops, d: ops.scale_(array_of(d, 4), mode="keep\0"),
        ValueError,
        "mode is no word, for it has a character that is none",
    ),
    "None for a number": (
        lambda ops, d: ops.layer_norm(array_of(d, 4, 8), array_of(d, 8), array_of(d, 8), eps=None),
        TypeError,
        "eps must be a number, not NoneType",
    ),
    "a word that is none": (
        lambda ops, d: ops.scale_(array_of(d, 4), mode=3),
        TypeError,
        "mode must be a str, not int",
    ),
    "shared memory": (
        lambda ops, d: (
            lambda x: ops.vector_add(x.view((8,), (1,)), x.view((8,), (1,)), out=x.view((8,), (1,), 4))
        )(array_of(d, 16)),
        ValueError,
        "out is written, and shares memory with x",
    ),
    "an output that overlaps itself": (
        lambda ops, d: ops.scale_(array_of(d, 4).view((4,), (0,))),
        ValueError,
        "x is written, and several of its elements are one",
    ),
    "the shape of an output": (
        lambda ops, d: ops.vector_add(array_of(d, 4), array_of(d, 4), out=array_of(d, 5)),
        ValueError,
        r"shape is \(4,\) in x and \(5,\) in out",
    ),
    "too few dimensions": (
        lambda ops, d: ops.layer_norm(array_of(d), array_of(d, 4), array_of(d, 4)),
        ValueError,
        r"x has 0 dimensions, and at least 1 is expected: .* is declared as \(\*n_rows n_cols\)",
    ),
    "too many dimensions": (
        lambda ops, d: ops.vector_add(array_of(d, *[1] * 17), array_of(d, 1)),
        ValueError,
        "x has 17 dimensions; operators take up to 16",
    ),
    "a tensor that is None": (
        lambda ops, d: ops.vector_add(array_of(d, 4), None),
        TypeError,
        "y must be a tensor on a CUDA device, not NoneType",
    ),
    "a list": (
        lambda ops, d: ops.vector_add([1.0], array_of(d, 4)),
        TypeError,
        r"vector_add\(\): x must be a tensor on a CUDA device, not list",
    ),
    "a word for a tensor": (
        lambda ops, d: ops.vector_add("x", array_of(d, 4)),
        TypeError,
        r"x must be a tensor on a CUDA device, not str",
    ),
    "a number of numpy for a tensor": (
        lambda ops, d: ops.vector_add(np.int64(4096), array_of(d, 4)),
        TypeError,
        "x must be a tensor on a CUDA device, not int64",
    ),
    "a pointer of cuda.bindings": (
        lambda ops, d: ops.vector_add(
            type("CUdeviceptr", (), {"__module__": "cuda.bindings.driver", "__int__": lambda _: 4096})(),
            array_of(d, 4),
        ),
        TypeError,
        "x must be a tensor on a CUDA device, not CUdeviceptr",
    ),
    "a class": (
        lambda ops, d: ops.vector_add(np.ndarray, array_of(d, 4)),
        TypeError,
        "x must be a tensor on a CUDA device, not type",
    ),
    "a number that is too large": (
        lambda ops, d: ops.layer_norm(array_of(d, 2, 4), array_of(d, 4), array_of(d, 4), eps=10**400),
        OverflowError,
        r"layer_norm\(\): eps does not fit a double",
    ),
    "a complex type": (
        lambda ops, d: ops.vector_add(Claims(array_of(d, 4), typestr="<c8"), array_of(d, 4)),
        TypeError,
        'x holds "<c8", and the operator takes fp',
    ),
    "another order of bytes": (
        lambda ops, d: ops.vector_add(array_of(d, 4), Claims(array_of(d, 4), typestr=">f4")),
        TypeError,
        'y holds ">f4", and the operator takes fp',
    ),
    "strides between elements": (
        lambda ops, d: ops.vector_add(Claims(array_of(d, 4, 2), strides=(10, 4)), array_of(d, 4, 2)),
        ValueError,
        r"vector_add\(\): the strides of x are no multiples of its elements' size",
    ),
    "a read-only output": (
        lambda ops, d: ops.vector_add(
            array_of(d, 4),
            array_of(d, 4),
            out=Claims(a := array_of(d, 4), data=(a.__cuda_array_interface__["data"][0], True)),
        ),
        ValueError,
        r"vector_add\(\): out is read-only",
    ),
    "a read-only input that is written": (
        lambda ops, d: ops.scale_(
            Claims(a := array_of(d, 4), data=(a.__cuda_array_interface__["data"][0], True))
        ),
        ValueError,
        r"scale_\(\): x is read-only",
    ),
    "a read-only output by DLPack": (
        lambda ops, d: ops.vector_add(array_of(d, 4), array_of(d, 4), out=Exported(array_of(d, 4), True)),
        ValueError,
        r"vector_add\(\): out is read-only",
    ),
    "an address": (
        lambda ops, d: ops.vector_add(0x1000, array_of(d, 4)),
        TypeError,
        "x must be a tensor on a CUDA device, not int",
    ),
    "an array of numpy": (
        lambda ops, d: ops.vector_add(np.zeros(4, np.float32), array_of(d, 4)),
        ValueError,
        r"vector_add\(\): x is not on a CUDA device",
    ),
    "an output of numpy": (
        lambda ops, d: ops.vector_add(array_of(d, 4), array_of(d, 4), out=np.zeros(4, np.float32)),
        ValueError,
        r"vector_add\(\): out is not on a CUDA device",
    ),
    "the type of an optional tensor": (
        lambda ops, d: ops.scale_(array_of(d, 4), array_of(d, 4, dtype=np.float16)),
        TypeError,
        "bias holds fp16, and the operator takes fp32",
    ),
    "the type of an output": (
        lambda ops, d: ops.vector_add(array_of(d, 4), array_of(d, 4), out=array_of(d, 4, dtype=np.float16)),
        TypeError,
        "x holds fp32 and out holds fp16; both have to be of one type",
    ),
    "an output of another rank": (
        lambda ops, d: ops.sum(array_of(d, 4), made=array_of(d, 1)),
        ValueError,
        r"made has 1 dimension, and 0 are expected: .* is declared as \(\)",
    ),
    "an output of another fixed size": (
        lambda ops, d: ops.scale_(array_of(d, 4), counter=array_of(d, 2, dtype=np.int32)),
        ValueError,
        r"counter has 2 elements where 1 is expected \(1\): it has the shape \(2,\)",
    ),
    "an output with gaps": (
        lambda ops, d: ops.vector_add(array_of(d, 4), array_of(d, 4), out=array_of(d, 8).view((4,), (2,))),
        ValueError,
        "out has a stride of 2 along shape, which has to be 1; call contiguous",
    ),
    "an output that is an input": (
        lambda ops, d: (
            lambda w: ops.layer_norm(array_of(d, 1, 4), w, array_of(d, 4), y=w.view((1, 4), (4, 1)))
        )(array_of(d, 4)),
        ValueError,
        "y is written, and shares memory with weight",
    ),
    "one output for two": (
        lambda ops, d: (
            lambda m: ops.layer_norm(array_of(d, 2, 4), array_of(d, 4), array_of(d, 4), mean=m, rstd=m)
        )(array_of(d, 2)),
        ValueError,
        "mean is written, and shares memory with rstd",
    ),
    "two devices": (
        lambda ops, d: ops.vector_add(array_of(d, 4), array_of(d, 4, device=1)),
        ValueError,
        "y is on device 1, and an argument before it is on device 0",
    ),
    "an output on another device": (
        lambda ops, d: ops.vector_add(array_of(d, 4), array_of(d, 4), out=array_of(d, 4, device=1)),
        ValueError,
        "out is on device 1, and an argument before it is on device 0",
    ),
    "a complex scalar": (
        lambda ops, d: ops.layer_norm(array_of(d, 2, 4), array_of(d, 4), array_of(d, 4), eps=1j),
        TypeError,
        "eps must be a number, not complex",
    ),
    "a tensor for a scalar": (
        lambda ops, d: ops.layer_norm(array_of(d, 2, 4), array_of(d, 4), array_of(d, 4), eps=array_of(d, 1)),
        TypeError,
        "eps must be a number, not Array",
    ),
    "a scalar that raises": (
        lambda ops, d: ops.layer_norm(array_of(d, 2, 4), array_of(d, 4), array_of(d, 4), eps=Raising()),
        ArithmeticError,
        "no number today",
    ),
    "a stream": (
        lambda ops, d: ops.vector_add(array_of(d, 4), array_of(d, 4), stream="main"),
        TypeError,
        r"vector_add\(\): stream must be a torch.cuda.Stream, an object with __cuda_stream__, .* of one, not str",
    ),
    "a stream below zero": (
        lambda ops, d: ops.vector_add(array_of(d, 4), array_of(d, 4), stream=-1),
        TypeError,
        r"vector_add\(\): stream must be .* of one, not a number that is no address",
    ),
    "a stream that is none": (
        lambda ops, d: ops.vector_add(array_of(d, 4), array_of(d, 4), stream=12345),
        RuntimeError,
        "CUDA_ERROR_INVALID_HANDLE",
    ),
    "a malformed interface": (
        lambda ops, d: ops.vector_add(Claims(array_of(d, 4), shape=(-4,)), array_of(d, 4)),
        TypeError,
        "the __cuda_array_interface__ of x is malformed",
    ),
    "more elements than there are numbers": (
        lambda ops, d: ops.vector_add(Claims(array_of(d, 4), shape=(2**40, 2**40)), array_of(d, 4)),
        ValueError,
        r"x has more than 2\^63 elements",
    ),
    "an address that the kernel does not take": (
        lambda ops, d: ops.scale_(array_of(d, 4), array_of(d, 8).view((4,), (1,), 1)),
        RuntimeError,
        "the address of bias is not divisible by 16",
    ),
    "an operator that is not there to be explained": (
        lambda ops, d: ops.explain("scale_in_place", array_of(d, 4)),
        ValueError,
        "has no operator or kernel 'scale_in_place'; it has vector_add, sum, layer_norm, scale_, .*, scale$",
    ),
    "an operator that is not there to be loaded": (
        lambda ops, d: ops.preload(0, ["wat"]),
        ValueError,
        "has no operator or kernel 'wat'; it has vector_add, sum, layer_norm, scale_",
    ),
    "an argument that is missing where a call is explained": (
        lambda ops, d: ops.explain("vector_add", array_of(d, 4)),
        TypeError,
        r"vector_add\(\): missing a required argument: 'y'",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_call_is_one_message(ops, driver, name) -> None:
    call, error, message = MISTAKES[name]
    with pytest.raises(error, match=message):
        call(ops, driver)


def test_inputs_may_be_read_only_and_outputs_come_by_dlpack(ops, driver) -> None:
    x, y = floats(100), floats(100)
    a, out, older = driver.array(x), driver.empty(100, np.float32), driver.empty(100, np.float32)
    read_only = Claims(a, data=(a.__cuda_array_interface__["data"][0], True))
    for array, given in ((out, Exported(out, False)), (older, Older(older, False))):
        ops.vector_add(read_only, driver.array(y), out=given)
        assert (array.copy_to_host() == x + y).all()


def test_parts_of_one_row_share_no_memory(ops, driver) -> None:
    """As of packed tensors: rows of eight elements, of which one half is written and the other one read."""
    both = array_of(driver, 64)
    left, right = both.view((32,), (2,)), both.view((32,), (2,), 1)
    ops.scale_(left, None, 2.0)
    with pytest.raises(ValueError, match="bias has a stride of 2"):
        ops.scale_(left, right)
    with pytest.raises(ValueError, match="x is written, and shares memory with bias"):
        ops.scale_(left, both.view((32,), (1,)))


def test_what_divides_by_zero_does_not_hold_where_a_call_is_traced(ops) -> None:
    shapes = importlib.import_module(f"{ops.__name__}._shapes")
    assert shapes.holds(lambda: 8 % 2 == 0) and not shapes.holds(lambda: 8 % 0 == 0)
