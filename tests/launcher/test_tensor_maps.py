"""Tensor maps that a launch makes, of numbers given or of a tensor's own sizes and strides."""

import inspect
import itertools
import types

import numpy
import pytest

from tests.launcher.dlpack import DLPackArray
from tests.launcher.example_package import Tensor


def test_tensor_maps_are_encoded_once_for_the_same_facts(world):
    x = Tensor("float16", 0x100)
    for _ in range(2):
        world.package.matmul(x, 300, 200, 208)
        address = (1 << 40) + 0x100
        columns_first = [200, 300, 2 * 208, 64, 128]
        assert list(world.driver.last.map[:8]) == [address, *columns_first, 6, 3]
        assert list(world.driver.last.map[8:11]) == [7, 0, 1], (
            "the outermost axis has numbers for size and stride"
        )
        assert list(world.driver.last.params[:5]) == [address, 300, 200, 208, address]
    assert world.driver.count("encode") == 1
    world.package.matmul(x, 301, 200, 208)
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
def test_arguments_without_a_valid_tensor_map_are_reported(world, address, columns, stride, message):
    with pytest.raises(world.package.LaunchError, match=message):
        world.package.matmul(Tensor("float16", address), 8, columns, stride)
    assert world.driver.count() == 0


def test_nothing_and_the_same_row_again_can_be_read_through_a_map(world):
    world.package.matmul(Tensor("float16", 0x100), 8, 0, 0)
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
    world.package.matmul(Tensor("float16", 0x100), numpy.True_, 64, 64)
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
        ({"shape": (8,), "strides": (1,)}, ValueError, "x has 1 dimension, the kernel takes 2"),
        (
            {"shape": (8, 8), "strides": (1, 8)},
            ValueError,
            "a stride of 8 elements along axis 1, where it must be",
        ),
        (
            {"shape": (8, 8), "strides": (12, 1)},
            ValueError,
            "a stride of 12 elements along axis 0, not a multiple of 16 bytes",
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


def test_an_encoder_that_fails_is_reported(world, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_FAIL", "cuTensorMapEncodeTiled=1")
    with pytest.raises(world.package.DriverError, match="cuTensorMapEncodeTiled"):
        world.package.matmul(Tensor("float16"), 8, 8, 8)
