"""Arrays of other libraries: the streams that make them, missing attributes, and wrong ones."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

import numpy
import pytest

from kbuild.emulator.driver import Array
from tests.emulator.driver.conftest import World
from tests.emulator.driver.cuda import Cuda

Make = Callable[..., World]


class Interface:
    """Has a `__cuda_array_interface__` that differs from that of an array."""

    def __init__(self, array: Array, **changed: Any) -> None:
        self.__cuda_array_interface__ = array.__cuda_array_interface__ | changed


class DLPack:
    """Exports an array of fp32 through DLPack, and keeps the streams on which it was to be ready."""

    def __init__(self, array: Array, address: int | None = None) -> None:
        shape = (ctypes.c_int64 * 1)(array.size)
        data = array.pointer if address is None else address
        fields = (data, 2, array.device, 1, 2, 32, 1, ctypes.addressof(shape), 0, 0, 0, 0)
        self._keep = array, shape
        self._memory = ctypes.create_string_buffer(struct.pack("<QiiiBBHQQQQQ", *fields))
        self._device = array.device
        self.asked: list[int | None] = []

    def __dlpack__(self, stream: int | None = None) -> object:
        self.asked.append(stream)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self._memory), b"dltensor", None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self._device


def fill(cuda: Cuda, array: Array, value: float, stream: ctypes.c_void_p | None) -> None:
    """Overwrite an array when the stream comes to it."""
    bits = numpy.float32(value).view(numpy.uint32).item()
    cuda("cuMemsetD32Async", ctypes.c_uint64(array.pointer), bits, ctypes.c_size_t(array.size), stream)


@pytest.mark.parametrize("is_named", [True, False], ids=["a stream is named", "none is named"])
def test_every_producer_s_stream_is_waited_for(world: Make, is_named: bool) -> None:
    """The driver works late, so that a launch without a wait comes before what it needs."""
    here = world("sm_90", streams="late")
    cuda = Cuda(here.driver.path)
    x, y, out = (here.driver.array(numpy.ones(64, "f4")) for _ in range(3))
    first, user, second = (cuda.stream(1) for _ in range(3))
    fill(cuda, x, 5, first)
    fill(cuda, y, 7, second)
    arrays = Interface(x, stream=first.value), Interface(y, stream=second.value)
    here.package.launch.vector_add(*arrays, out, 64, stream=user.value if is_named else None)
    assert here.driver.launches[-1].stream == (user if is_named else first).value
    assert out.copy_to_host().tolist() == [12] * 64


@pytest.mark.parametrize("legacy", [0, 1])
def test_the_default_stream_by_either_name_needs_no_wait(world: Make, legacy: int) -> None:
    here = world("sm_90", streams="late")
    x, out = here.driver.array(numpy.ones(64, "f4")), here.driver.empty(64, "f4")
    for stream in (legacy, None):
        here.package.launch.vector_add(Interface(x, stream=1), x, out, 64, stream=stream)
    assert "cuStreamSynchronize" not in {call.name for call in here.driver.calls}
    assert out.copy_to_host().tolist() == [2] * 64


def test_an_array_through_dlpack_is_ready_where_the_launch_is(world: Make) -> None:
    """Until the stream of the launch is known, it is to be ready on the default stream, which is named: the arrays of JAX wait
    for nothing otherwise."""
    here = world("sm_90", streams="late")
    cuda = Cuda(here.driver.path)
    x, y, out = (here.driver.array(numpy.ones(64, "f4")) for _ in range(3))
    other = cuda.stream(1)
    exported = DLPack(x)
    here.package.launch.vector_add(exported, y, out, 64, stream=other.value)
    here.package.launch.vector_add(exported, y, out, 64, stream=0)
    assert exported.asked == [other.value, 1]
    fill(cuda, x, 9, None)
    exported = DLPack(x)
    here.package.launch.vector_add(exported, Interface(y, stream=other.value), out, 64)
    assert exported.asked == [1] and not here.driver.launches[-1].stream
    here.package.launch.vector_add(Interface(y, stream=other.value), DLPack(x), out, 64)
    assert here.driver.launches[-1].stream == other.value
    assert out.copy_to_host().tolist() == [10] * 64


def test_an_interface_without_streams_gives_way_to_dlpack(world: Make) -> None:
    """Arrays of JAX have both: only DLPack waits for what writes them."""
    here = world("sm_90", streams="late")
    x, out = here.driver.array(numpy.ones(64, "f4")), here.driver.empty(64, "f4")
    entries = {name: value for name, value in x.__cuda_array_interface__.items() if name != "stream"}

    class Both(DLPack):
        __cuda_array_interface__ = entries | {"version": 2}

    both = Both(x)
    here.package.launch.vector_add(both, both, out, 64)
    assert both.asked == [1, 1] and out.copy_to_host().tolist() == [2] * 64
    Both.__cuda_array_interface__["stream"] = None
    here.package.launch.vector_add(both, both, out, 64)
    assert both.asked == [1, 1], "None says that the array is ready"


def test_empty_arrays_have_no_address_and_launch_nothing(world: Make) -> None:
    here = world("sm_90")
    nothing = here.driver.empty(0, "f4")
    for array in (nothing, DLPack(nothing)):
        here.package.launch.vector_add(array, array, array, 0)
    assert not here.driver.launches and not here.driver.loads


class Broken:
    """Raises when its address is read."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        raise RuntimeError("the array was given away")


MALFORMED = "the __cuda_array_interface__ of x is malformed"


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda x: Broken(), RuntimeError, "the array was given away"),
        (lambda x: -x.pointer, OverflowError, "vector_add(): x is not a 64-bit address"),
        (lambda x: 2**64, OverflowError, "vector_add(): x is not a 64-bit address"),
        (lambda x: DLPack(x, 0), ValueError, "x has elements, but no memory"),
        (lambda x: Interface(x, data=(0, False)), ValueError, "x has elements, but no memory"),
        (lambda x: Interface(x, data=(-1, False)), TypeError, MALFORMED),
        (lambda x: Interface(x, data=x.pointer), TypeError, MALFORMED),
        (lambda x: Interface(x, shape=("64",)), TypeError, MALFORMED),
        (lambda x: Interface(x, shape=64), TypeError, MALFORMED),
        (lambda x: Interface(x, typestr="f"), TypeError, MALFORMED),
        (lambda x: Interface(x, stream="main"), TypeError, MALFORMED),
    ],
)
def test_arrays_that_are_wrong_are_reported_by_name(
    world: Make, make: Callable[[Array], Any], error: type, text: str
) -> None:
    here = world("sm_90")
    x = here.driver.array(numpy.ones(64, "f4"))
    with pytest.raises(error) as caught:
        here.package.launch.vector_add(make(x), x, x, 64)
    assert text in str(caught.value)
    assert not here.driver.launches
