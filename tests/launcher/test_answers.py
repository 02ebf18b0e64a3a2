"""Calls that the launcher remembers: which it launches by itself, and which it leaves to the kernel's `run`."""

from __future__ import annotations

import gc
import json
import sys
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.launcher.example_package import Tensor

VECTOR_ADD, SOFTMAX = 0, 2
"""Their numbers in the package."""
CONSTANT, ARRAY, INTEGER = 0, 1, 2


class Kernel:
    """What a call goes to that is not answered."""

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def run(self, *args: Any, **kwargs: Any) -> str:
        self.calls.append((args, kwargs))
        return "run"


class Known:
    """`kernel[grid](x, out, n, BLOCK=1024)`, which is remembered for launches of a package."""

    def __init__(
        self, world: Any, guards: tuple[Any, ...] = (), results: Any = None, block: Any = 1024
    ) -> None:
        self.kernel = Kernel()
        self.asked: list[tuple[int, int]] = []
        self.results = results or (lambda launch, row: (f"row {row}", {"num_warps": 4}))
        self.launcher = sys.modules[f"{world.package.__name__}._launcher"]
        self.answers = self.launcher._Answers(self.kernel, guards)
        self.add(block)

    def add(self, block: Any, launches: Any = ((VECTOR_ADD, (0, 1, 2), {}),)) -> bool:
        bound = (("x", 0), ("out", 1), ("n", 2), ("BLOCK", 3))
        x = Tensor()
        kinds = (ARRAY, ARRAY, INTEGER, CONSTANT)
        return self.answers.add(("BLOCK",), kinds, (x, x, 4096, block), bound, launches, self.resolve)

    def resolve(self, launch: int, row: int) -> Any:
        self.asked.append((launch, row))
        return self.results(launch, row)

    def __getitem__(self, grid: Any) -> Any:
        return self.answers.at(self.kernel, grid)


@pytest.mark.parametrize(
    ("dtype", "address", "n", "device", "key", "row"),
    [
        ("float32", 0x100, 4096, 1, "add.fp32.aligned", 0),
        ("float16", 0x100, 4096, 1, "add.fp16.aligned", 3),
        ("float32", 0x104, 4096, 1, "add.fp32.plain", 2),
        ("float32", 0x100, 4097, 1, "add.fp32.plain", 2),
        ("float32", 0x100, 1, 1, "add.fp32.one", 1),
        ("float16", 0x100, 4096, 2, "add.fp16.aligned", 3),
    ],
)
def test_arrays_and_numbers_choose_the_row_of_each_call(
    world: Any, dtype: str, address: int, n: int, device: int, key: str, row: int
) -> None:
    known, usual = Known(world), Tensor("float16", 0x108, 1)
    x, out = Tensor(dtype, address, device), Tensor(dtype, 0x200, device)
    for _ in range(2):
        assert known[(7,)](usual, usual, 3000, BLOCK=1024) == "row 5"
        assert known[(3, 2)](x, out, n, BLOCK=1024) == f"row {row}"
        launch = world.driver.last
        assert (launch.key, launch.device, launch.stream) == (key, device, 0x5000 + device)
        assert tuple(launch.grid) == (3, 2, 1)
        assert list(launch.params[:2]) == [x.data_ptr(), out.data_ptr()]
        assert n == 1 or launch.params[2] == n
    assert sorted(known.asked) == sorted({(0, 5), (0, row)}) and not known.kernel.calls


class Int(int):
    pass


class Address(int):
    """Triton takes it for a number, whatever it has."""

    def data_ptr(self) -> int:
        return 0x100


class Index:
    def __index__(self) -> int:
        return 4096


USUAL = {"BLOCK": 1024}
CHANGES: dict[str, Callable[[Any], tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "a value more": lambda x: ((x, x, 4096, 1), USUAL),
    "a value less": lambda x: ((x, x), USUAL),
    "by name": lambda x: ((x, x), {"n": 4096, **USUAL}),
    "by place": lambda x: ((x, x, 4096, 1024), {}),
    "an option": lambda x: ((x, x, 4096), {**USUAL, "num_warps": 8}),
    "another name": lambda x: ((x, x, 4096), {"BLOCKS": 1024}),
    "another constant": lambda x: ((x, x, 4096), {"BLOCK": 512}),
    "a float constant": lambda x: ((x, x, 4096), {"BLOCK": 1024.0}),
    "an own constant": lambda x: ((x, x, 4096), {"BLOCK": Int(1024)}),
    "no constant": lambda x: ((x, x, 4096), {"BLOCK": None}),
    "None": lambda x: ((None, x, 4096), USUAL),
    "an address": lambda x: ((0x100, x, 4096), USUAL),
    "a number of an array": lambda x: ((0.5, x, 4096), USUAL),
    "a number with an address": lambda x: ((Address(0x100), x, 4096), USUAL),
    "a class": lambda x: ((Tensor, x, 4096), USUAL),
    "something else": lambda x: (("x", x, 4096), USUAL),
    "a flag": lambda x: ((x, x, True), USUAL),
    "a float": lambda x: ((x, x, 4096.0), USUAL),
    "no number": lambda x: ((x, x, None), USUAL),
    "an own number": lambda x: ((x, x, Int(4096)), USUAL),
    "an object": lambda x: ((x, x, Index()), USUAL),
    "a large number": lambda x: ((x, x, 1 << 31), USUAL),
    "a huge number": lambda x: ((x, x, 1 << 64), USUAL),
    "another type": lambda x: ((Tensor("int8", device=1), x, 4096), USUAL),
    "types that differ": lambda x: ((Tensor("float16", device=1), x, 4096), USUAL),
    "a type of its own": lambda x: ((Tensor("complex64", device=1), x, 4096), USUAL),
    "not on a device": lambda x: ((Tensor(device=-1), x, 4096), USUAL),
    "no such device": lambda x: ((Tensor(device=9), Tensor(device=9), 4096), USUAL),
    "two devices": lambda x: ((Tensor(device=0), x, 4096), USUAL),
}
"""Calls that differ from the remembered one in one thing, which makes another call of it."""


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_what_differs_in_one_thing_goes_to_the_kernel(world: Any, change: str) -> None:
    known, x = Known(world), Tensor(device=1)
    assert known[(4,)](x, x, 4096, BLOCK=1024) == "row 0"
    args, kwargs = CHANGES[change](x)
    assert known[(4,)](*args, **kwargs) == "run"
    assert known.answers.launch(known.kernel, (4,), *args, **kwargs) is None
    ((got, named),) = known.kernel.calls
    assert len(got) == len(args) and all(type(one) is type(other) for one, other in zip(got, args))
    assert named == {"grid": (4,), "warmup": False, **kwargs}
    assert world.driver.count() == 1
    assert known[(4,)](x, x, 4096, BLOCK=1024) == "row 0" and world.driver.count() == 2


@pytest.mark.parametrize(
    ("constant", "same", "other"),
    [
        (1, (1,), (True, 1.0, 2, "1", (1,))),
        (True, (True,), (1, False, None)),
        ("gelu", ("".join(["ge", "lu"]),), ("silu", "", None)),
        (0.5, (float("0.5"),), (0.25, "0.5")),
        (1 << 40, (int("1") << 40,), (1 << 41,)),
        (
            (1, ("a", 2)),
            ((int("1"), tuple(json.loads('["a", 2]'))),),
            ((1, ("a", True)), (1, ("a",)), [1, ("a", 2)]),
        ),
        (None, (None,), (False, 0)),
    ],
)
def test_constants_are_the_same_in_type_and_value(
    world: Any, constant: Any, same: tuple[Any, ...], other: tuple[Any, ...]
) -> None:
    known, x = Known(world, block=constant), Tensor(device=1)
    for value in same:
        assert known[(4,)](x, x, 4096, BLOCK=value) == "row 0"
    for value in other:
        assert known[(4,)](x, x, 4096, BLOCK=value) == "run"


class Held:
    def __init__(self) -> None:
        self.attribute: Any = self
        self.best: Any = None
        self.hooks: list[Any] = []


def test_a_guard_that_does_not_hold_leaves_all_calls_to_the_kernel(world: Any) -> None:
    held, item, items = Held(), {"key": world}, [1, 2]
    guards = (
        (held, "attribute", held),
        (item, "key", world),
        (items, (1, 2)),
        (held.__dict__, "hooks"),
        (held, "missing"),
    )
    known, x = Known(world, guards), Tensor(device=1)

    def answers() -> bool:
        found = known[(4,)](x, x, 4096, BLOCK=1024)
        assert known.answers.holds() == (found != "run")
        return found == "row 0"

    assert answers()
    for change, undo in (
        (lambda: setattr(held, "attribute", None), lambda: setattr(held, "attribute", held)),
        (lambda: delattr(held, "attribute"), lambda: setattr(held, "attribute", held)),
        (lambda: item.pop("key"), lambda: item.update(key=world)),
        (lambda: item.update(key=None), lambda: item.update(key=world)),
        (lambda: items.append(3), lambda: items.pop()),
        (lambda: items.reverse(), lambda: items.reverse()),
        (lambda: held.hooks.append(print), lambda: held.hooks.clear()),
        (lambda: setattr(held, "hooks", print), lambda: setattr(held, "hooks", None)),
        (lambda: setattr(held, "missing", False), lambda: setattr(held, "missing", None)),
    ):
        change()
        assert not answers()
        undo()
        assert answers()


def test_the_function_of_a_grid_gets_all_values_and_is_called_once(world: Any) -> None:
    known, x, seen = Known(world), Tensor(device=1), []
    assert known[lambda meta: seen.append(meta) or [2, 3]](x, x, 4096, BLOCK=1024) == "row 0"
    assert seen == [{"num_warps": 4, "x": x, "out": x, "n": 4096, "BLOCK": 1024}]
    assert tuple(world.driver.last.grid) == (2, 3, 1)
    assert known[lambda meta: 1 // 0 if meta["n"] == 2 else 5](x, x, 1, BLOCK=1024) == "row 1"
    assert tuple(world.driver.last.grid) == (5, 1, 1)
    with pytest.raises(ZeroDivisionError):
        known[lambda meta: (1 // 0,)](x, x, 4096, BLOCK=1024)
    assert world.driver.count() == 2 and not known.kernel.calls


def test_an_array_that_its_grid_moves_is_read_after_that(world: Any) -> None:
    known, x = Known(world), Tensor(device=1)

    def moved(by: int) -> Any:
        x._address += by
        return (4,)

    known[lambda meta: moved(0x40)](x, x, 4096, BLOCK=1024)
    assert list(world.driver.last.params[:2]) == [x.data_ptr()] * 2
    assert known[lambda meta: moved(4)](x, x, 4096, BLOCK=1024) == "run"  # Another row takes it now.


@pytest.mark.parametrize("grid", [4, [4], (4, 1, 1, 9), (4, 1)])
def test_grids_are_what_triton_takes(world: Any, grid: Any) -> None:
    known, x = Known(world), Tensor(device=1)
    assert known[grid](x, x, 4096, BLOCK=1024) == "row 0"
    assert tuple(world.driver.last.grid) == (4, 1, 1)


def test_an_empty_grid_launches_nothing_and_a_wrong_one_is_refused(world: Any) -> None:
    known, x = Known(world), Tensor(device=1)
    assert known[(0,)](x, x, 4096, BLOCK=1024) == "row 0" and not world.driver.count()
    for grid, error in (
        ((), TypeError),
        (None, TypeError),
        ("a", TypeError),
        ((-1,), world.package.LaunchError),
    ):
        with pytest.raises(error):
            known[grid](x, x, 4096, BLOCK=1024)
    assert not world.driver.count() and not known.kernel.calls


def test_launches_are_tried_in_their_order_as_rows_say(world: Any) -> None:
    """None leaves a call to the next launch, anything else that is no tuple to the kernel."""
    said: dict[tuple[int, int], Any] = {(0, 0): None, (1, 0): ("second", {}), (0, 2): False}
    known, x = Known(world, results=lambda *asked: said[asked]), Tensor(device=1)
    assert known.add(512, ((VECTOR_ADD, (0, 1, 2), {}), (VECTOR_ADD, (1, 0, 2), {})))
    y = Tensor(address=0x200, device=1)
    assert known[(4,)](x, y, 4096, BLOCK=512) == "second"
    assert list(world.driver.last.params[:2]) == [y.data_ptr(), x.data_ptr()]
    assert known[(4,)](x, y, 4097, BLOCK=512) == "run"
    assert known[(4,)](x, y, 4096, BLOCK=512) == "second" and known.asked == [(0, 0), (1, 0), (0, 2)]


def test_a_tuners_choice_is_set_while_it_holds(world: Any) -> None:
    config, tuner = Held(), Held()
    choice = ("made", {}, (config.__dict__, "hooks"), (tuner, "best", config))
    known, x = Known(world, results=lambda launch, row: choice), Tensor(device=1)
    assert known[(4,)](x, x, 4096, BLOCK=1024) == "made" and tuner.best is config
    config.hooks.append(print)
    assert known[(4,)](x, x, 4096, BLOCK=1024) == "run" and world.driver.count() == 1


def test_errors_of_what_decides_leave_the_call_to_the_kernel(world: Any) -> None:
    known, x = Known(world, results=lambda launch, row: 1 // 0), Tensor(device=1)
    assert known[(4,)](x, x, 4096, BLOCK=1024) == "run"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interruption_is_none_of_these_errors(world: Any, error: type[BaseException]) -> None:
    known, x = Known(world), Tensor(device=1)
    known[(4,)](x, x, 4096, BLOCK=1024)

    def interrupted() -> int:
        raise error

    x.data_ptr = interrupted  # type: ignore[method-assign]
    with pytest.raises(error):
        known[(4,)](x, x, 4096, BLOCK=1024)
    assert not known.kernel.calls


def test_errors_of_the_driver_are_those_of_a_launch(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    known, x = Known(world), Tensor(device=1)
    known[(4,)](x, x, 4096, BLOCK=1024)
    monkeypatch.setenv("FAKE_CUDA_FAIL", "cuLaunchKernel=700")
    with pytest.raises(world.package.DriverError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        known[(4,)](x, x, 4096, BLOCK=1024)
    assert not known.kernel.calls


def test_conditions_of_rows_are_those_of_each_call(world: Any) -> None:
    known = Known(world)
    known.answers.add(
        (), (ARRAY, INTEGER), (Tensor(), 1000), (), ((SOFTMAX, (0, 1), {}),), lambda launch, row: (row, {})
    )
    x = Tensor()
    rows = [known[(1,)](x, n) for n in (1000, 1026, 1000, 4096, 4098, 1001)]
    assert rows == [0, 1, 0, 1, "run", "run"]


def test_names_that_a_launch_itself_has_are_refused(world: Any) -> None:
    known, x = Known(world), Tensor(device=1)
    for name in ("grid", "warmup"):
        with pytest.raises(TypeError, match="multiple values"):
            known[(4,)](x, **{name: 1})


def test_so_many_calls_are_remembered(world: Any) -> None:
    known, x = Known(world, block=0), Tensor(device=1)
    assert [known.add(block) for block in range(1, 34)] == [True] * 30 + [False] * 3
    found = [known[(4,)](x, x, 4096, BLOCK=block) for block in range(40)]
    assert found == ["row 0"] * 32 + ["run"] * 8


@pytest.mark.parametrize(
    "wrong",
    [
        {"kinds": (CONSTANT, 9)},
        {"kinds": (CONSTANT,) * 5},
        {"names": ("a", "b", "c")},
        {"bound": (("x", 7),)},
        {"bound": (("x",),)},
        {"bound": ((),)},
        {"bound": (1,)},
        {"launches": ((99, (0, 1), {}),)},
        {"launches": ((VECTOR_ADD, (0,), {}),)},
        {"launches": ((VECTOR_ADD, (0, 1, 8), {}),)},
        {"launches": ((VECTOR_ADD, (0, 1, 1), {"unknown": 1}),)},
        {"launches": ((1, (0,) * 6, {}),)},  # Its options have no defaults.
        {"launches": (None,)},
    ],
)
def test_what_is_no_form_of_a_call_is_refused(world: Any, wrong: dict[str, Any]) -> None:
    known = Known(world)
    usual = {
        "names": (),
        "kinds": (ARRAY, INTEGER),
        "values": (Tensor(), 1),
        "bound": (),
        "launches": ((VECTOR_ADD, (0, 0, 1), {}),),
        "resolve": print,
    }
    assert known.answers.add(*usual.values())
    with pytest.raises((ValueError, TypeError, IndexError)):
        known.answers.add(*{**usual, **wrong}.values())


def test_guards_have_two_or_three_parts(world: Any) -> None:
    for guards in (((),), ((1,),), ((1, 2, 3, 4),), (None,), None):
        with pytest.raises(TypeError):
            Known(world, guards)  # type: ignore[arg-type]


def test_no_call_keeps_or_loses_a_reference(world: Any) -> None:
    known, x = Known(world), Tensor(device=1)
    grid, config = [4], {"num_warps": 4}
    made = object()
    known.results = lambda launch, row: (made, config)
    function, refused = (lambda meta: grid), object()
    watched = (x, grid, config, made, function, known.kernel, known.answers, refused)

    def calls() -> None:
        for _ in range(100):
            known[grid](x, x, 4096, BLOCK=1024)
            known[function](x, x, 4096, BLOCK=1024)
            known.answers.launch(known.kernel, grid, x, x, 4096, BLOCK=1024)
            known[grid](refused, x, 4096, BLOCK=1024)
            known[grid](x, x, 1 << 40, BLOCK=1024)
            known.kernel.calls.clear()

    calls()
    before = [sys.getrefcount(one) for one in watched]
    calls()
    assert [sys.getrefcount(one) for one in watched] == before


def test_what_is_remembered_goes_with_its_kernel(world: Any) -> None:
    """The kernel holds its calls, whose guards hold the kernel."""
    kernel, x = Held(), Tensor(device=1)
    results = partial(lambda one, launch, row: (one, {}), kernel)
    known = Known(world, ((kernel, "attribute", kernel), (kernel.__dict__, "hooks")), results)
    assert known[(4,)](x, x, 4096, BLOCK=1024) is kernel
    kernel.own = known  # type: ignore[attr-defined]
    gone = weakref.ref(kernel)
    del kernel, known, results
    gc.collect()
    assert gone() is None
