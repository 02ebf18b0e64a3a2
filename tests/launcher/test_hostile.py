"""Invalid and hostile arguments: each is refused with an error that names it, and none does harm."""

from __future__ import annotations

import ctypes
import gc
import importlib
import subprocess
import sys
import types
from pathlib import Path

import pytest

from kbuild.aot.build.launcher import core_command
from tests.launcher.dlpack import DLPackArray
from tests.launcher.example_package import Tensor
from tests.launcher.hostile import Boom, Hostile, Nameless, rename

ADDRESS = (1 << 40) + 0x100


def array(**entries: object) -> types.SimpleNamespace:
    """An object with an array interface: 500 rows of 200 numbers in two bytes, but for what is given."""
    good = {"data": (ADDRESS, False), "typestr": "<f2", "shape": (500, 200), "version": 3}
    return types.SimpleNamespace(__cuda_array_interface__=good | entries)


class Index:
    """Converts to a number, and acts when it is converted."""

    def __init__(self, value: int, act) -> None:
        self.value, self.act = value, act

    def __index__(self) -> int:
        self.act()
        return self.value


def raise_boom() -> None:
    raise Boom


def test_some_thousand_hostile_calls_end_well(world):
    """bench/hostile_calls.py makes a million of them under the sanitizers."""
    hostile = Hostile(importlib.import_module(f"{world.package.__name__}.dispatch"), 7)
    for _ in range(4000):
        hostile.call()
    assert {"returned", "TypeError", "ValueError", "Boom", "NoVariantError", "OverflowError"} <= set(
        hostile.outcomes
    )


def test_an_interface_may_be_emptied_while_it_is_read(world):
    """References borrowed from it would point to freed memory."""
    x = array(typestr="".join(["<", "f2"]))
    entries = x.__cuda_array_interface__

    def empty() -> None:
        entries.clear()
        gc.collect()

    for name, value in (("shape", (Index(500, empty), 200)), ("strides", (Index(416, empty), 2))):
        entries.update(array(**{name: value}).__cuda_array_interface__)
        with pytest.raises((TypeError, world.package.LaunchError), match="x"):
            world.package.blocks(x, 7, programs=1)
            world.package.blocks(x, 7, programs=1)


def test_an_interface_is_read_once(world):
    """A second value would not count: not its type, its shape, nor whether it exists."""
    answers = [array().__cuda_array_interface__, {}, None]
    x = type("Array", (), {"__cuda_array_interface__": property(lambda _: answers.pop(0))})()
    world.package.blocks(x, 7, programs=1)
    assert list(world.driver.last.params[:4]) == [ADDRESS, 500, 200, 200] and len(answers) == 2


@pytest.mark.parametrize(
    "entries",
    [
        {"shape": (-1, 8)},
        {"shape": (2**70, 8)},
        {"shape": [8, 8]},
        {"shape": ("8", 8)},
        {"strides": (416,)},
        {"strides": 5},
        {"stream": -1},
        {"stream": 2**64},
        {"data": (True, False)},
        {"data": (-8, False)},
        {"typestr": "\udcff\udcff\udcff"},
        {"shape": (2, 2**62, 2**62)},
    ],
)
def test_a_malformed_interface_is_called_that(world, entries):
    with pytest.raises(
        (TypeError, ValueError), match=r"the __cuda_array_interface__ of x is malformed|x has 3 dimensions"
    ):
        world.package.blocks(array(**entries), 7, programs=1)


def test_sizes_whose_product_overflows_are_refused(world):
    with pytest.raises(TypeError, match="the __dlpack__\\(\\) of x is malformed"):
        world.package.blocks(DLPackArray(2, 16, (2, 0), ADDRESS, shape=(1, 2**62, 2**62)), 7, programs=1)
    with pytest.raises(TypeError, match="the __cuda_array_interface__ of x is malformed"):
        world.package.blocks(array(shape=(1, 2**62, 2**62)), 7, programs=1)
    with pytest.raises(ValueError, match="x has -8 elements along axis 0"):
        world.package.blocks(DLPackArray(2, 16, (2, 0), ADDRESS, shape=(-8, 64)), 7, programs=1)
    with pytest.raises((ValueError, RuntimeError), match=r"x_stride_0|a stride of"):
        world.package.blocks(Tensor("float16", shape=(8, 8), strides=(2**63 - 1, 1)), 7, programs=1)


def test_invalid_capsules_are_refused(world):
    x = DLPackArray(2, 32, (2, 0))
    for change in (lambda **_: None, lambda **_: 7, lambda **_: renamed(x), lambda **_: capsule_of_rank(-1)):
        owner = types.SimpleNamespace(__dlpack__=change, __dlpack_device__=lambda: (2, 0))
        with pytest.raises(TypeError, match=r"the __dlpack__\(\) of x is malformed"):
            world.package.vector_add(owner, x, 32)
    for place in (None, (2,), [2, 0], ("cuda", 0)):
        owner = types.SimpleNamespace(__dlpack__=x.__dlpack__, __dlpack_device__=lambda place=place: place)
        with pytest.raises(TypeError, match=r"the __dlpack_device__\(\) of x is malformed"):
            world.package.vector_add(owner, x, 32)
    with pytest.raises(ValueError, match="x is on device -1, which is not a valid number"):
        world.package.vector_add(DLPackArray(2, 32, (2, -1)), x, 32)
    with pytest.raises(world.package.NoVariantError, match="x holds"):
        world.package.vector_add(DLPackArray(2, 36, (2, 0)), x, 32)


def test_a_capsule_may_be_consumed_before_its_sizes_are_read(world):
    x = DLPackArray(2, 16, (2, 0), ADDRESS - 16, shape=(500, 200))
    made = []
    owner = types.SimpleNamespace(
        __dlpack__=lambda **_: made.append(x.__dlpack__()) or made[0], __dlpack_device__=lambda: (2, 0)
    )
    with pytest.raises(TypeError, match=r"the __dlpack__\(\) of x is malformed"):
        world.package.blocks(owner, Index(7, lambda: rename(made[0])), programs=1)


def renamed(x: DLPackArray) -> object:
    capsule = x.__dlpack__()
    rename(capsule)
    return capsule


def capsule_of_rank(rank: int) -> object:
    x = DLPackArray(2, 32, (2, 0))
    ctypes.c_int32.from_buffer(x._memory, 16).value = rank
    capsule_of_rank.kept = x  # type: ignore[attr-defined]
    return x.__dlpack__()


def test_none_and_true_are_not_addresses(world):
    """None and zero sizes may go together: nothing is read then."""
    with pytest.raises(
        TypeError, match=r"x must be a tensor on .* or an address \(0 for a null pointer\), not NoneType"
    ):
        world.package.vector_add(None, Tensor(), 64)
    assert world.driver.count() == 0
    world.package.vector_add(None, Tensor(), 0)
    world.package.vector_add(0, Tensor(), 64)
    assert world.driver.count() == 1
    for kernel in (world.package.vector_add, lambda *a: world.package.explain("vector_add", *a)):
        with pytest.raises(TypeError, match="out must be a tensor on a CUDA device or an address, not bool"):
            kernel(Tensor(), True, 64)
    with pytest.raises(TypeError, match="stream must be"):
        world.package.vector_add(Tensor(), Tensor(), 64, stream=True)


def test_addresses_and_devices_are_not_cut_to_what_fits(world):
    for address in (-8, 2**64 + 256):
        with pytest.raises(OverflowError, match="out is not a 64-bit address"):
            world.package.vector_add(Tensor(), Tensor(address=address, device=-1), 64)
    for device in (2**32, 2**64):
        with pytest.raises((ValueError, OverflowError)):
            world.package.vector_add(Tensor(device=device, numel=0), Tensor(), 64)
    for device in (-1, 3, 64, 2**32, -(2**31)):
        with pytest.raises(
            world.package.LaunchError, match=rf"there is no CUDA device {device}; the driver shows 3"
        ):
            world.package.preload(device)


def test_a_size_below_zero_is_a_mistake(world):
    """Rounded up to blocks it would be zero, or with another one even positive; zero is a size."""
    x = Tensor()
    for n, what in (
        (-5, "n is -5, and its grid takes no size below zero"),
        (-5000, "has -4 programs along axis 0"),
    ):
        with pytest.raises(world.package.LaunchError, match=what):
            world.package.vector_add(x, x, n)
    world.package.vector_add(x, x, 0)
    with pytest.raises(world.package.LaunchError, match="n is -512, and its grid"):
        world.package.tiles(Tensor("float16"), -512, -512, ROWS=1)
    assert world.driver.count() == 0
    world.package.vector_add(x, x, -5, grid=1)
    assert world.driver.count() == 1, "the caller says what there is to do"


def test_what_arguments_raise_is_raised(world):
    """It is not replaced by a message about types; a class may have no name, too."""
    x = Tensor()
    trouble = Index(1, raise_boom)
    for call in (
        lambda: world.package.vector_add(x, x, trouble),
        lambda: world.package.vector_add(x, x, 1, grid=(trouble,)),
        lambda: world.package.vector_add(x, x, 1, dtype=trouble),
        lambda: world.package.vector_add(
            x, x, 1, stream=type("S", (), {"cuda_stream": property(lambda _: raise_boom())})()
        ),
        lambda: world.package.vector_add(array(shape=(trouble,)), x, 1),
        lambda: world.package.attention(Tensor("float16"), trouble, 1, 1, 1, 1, HEAD_DIM=64, IS_CAUSAL=True),
    ):
        with pytest.raises(Boom):
            call()
    with pytest.raises(TypeError, match=r"n must be an integer$"):
        world.package.vector_add(x, x, Nameless())
    with pytest.raises(OverflowError):
        world.package.attention(Tensor("float16"), 2**2000, 1, 1, 1, 1, HEAD_DIM=64, IS_CAUSAL=True)


SUB_INTERPRETER = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
sys.path.insert(0, sys.argv[1])
first = sys.argv[2] == "main first"
if first:
    import example
code = f"import sys; sys.path.insert(0, {sys.argv[1]!r})\\ntry:\\n import example\\nexcept ImportError as error: print(error)"
try:
    one = interpreters.create("legacy")
except TypeError:
    one = interpreters.create(isolated=False)
interpreters.run_string(one, code)
import example
assert example.dispatch._launcher._default_device
try:
    example.vector_add(0, 0, -1, dtype="fp32")
except example.LaunchError as error:
    print("main:", type(error).__module__)
"""


@pytest.mark.parametrize("order", ["main first", "main last"])
def test_a_sub_interpreter_is_refused(built_package, fake_driver, order):
    """Its functions and objects would replace those of the main one."""
    environment = {"KBUILD_LIBCUDA": str(fake_driver), "FAKE_CUDA_DEVICES": "90"}
    command = [sys.executable, "-c", SUB_INTERPRETER, str(built_package), order]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    said = sorted(done.stdout.splitlines())
    assert len(said) == 2 and said[1] == "main: example.dispatch", done.stdout + done.stderr
    assert (
        "example cannot be used in a sub-interpreter" in said[0]
        or "does not support loading in subinterpreters" in said[0]
    )


def test_a_call_takes_the_stack_that_its_kernel_needs(tmp_path):
    """As the compiler reports it: the part of a fixed size, however few parameters a kernel has, is small."""
    command = [*core_command(["cc"], "launcher.o"), "-fstack-usage"]
    subprocess.run(command, cwd=tmp_path, check=True)
    lines = [line.split("\t") for line in Path(tmp_path, "launcher.su").read_text().splitlines()]
    used = {name.rpartition(":")[2]: int(size) for name, size, _ in lines}
    assert {"launch_kernel", "launch_row"} & set(used)
    assert max(size for name, size in used.items() if name != "load_row") <= 1024, (
        "load_row holds a log of the driver's"
    )
