"""Calls of the example package with arguments that no one should pass: objects that raise, lie, change while
they are read, free memory that they have exported, or call the package again.  Seeded, so that a call can be
repeated.
"""

from __future__ import annotations

import collections
import ctypes
import gc
import random
import struct
import sys
import types
from collections.abc import Callable
from typing import Any, NoReturn

from tests.launcher.example_package import Tensor

POSITIONAL = {
    "vector_add": "ppi",
    "attention": "pffiii",
    "softmax": "pii",
    "copy": "pi",
    "matmul": "piii",
    "blocks": "pii",
    "choice": "p",
    "pairs": "pi",
    "waves": "pi",
    "tiles": "pii",
    "rounds": "pii",
}
"""Kernels, and the kinds of their arguments: pointer, integer, float."""
DTYPES = {
    "attention": "float16",
    "matmul": "float16",
    "blocks": "float16",
    "tiles": "float16",
    "copy": "int8",
}
OPTIONS = {
    "vector_add": {"dtype": ["fp32", "fp16"]},
    "attention": {"HEAD_DIM": [64, 128], "IS_CAUSAL": [True, False]},
    "choice": {"SLOPE": [0.5, 1.0], "ACTIVATION": ["", "relu"]},
    "tiles": {"ROWS": [1, 2, 36]},
}
_INTEGERS = (
    0,
    1,
    -1,
    2,
    7,
    16,
    64,
    1000,
    4096,
    -5,
    127,
    -128,
    2**31 - 1,
    2**31,
    -(2**31),
    -(2**31) - 1,
    2**32,
    2**63 - 1,
    2**63,
    -(2**63),
    -(2**63) - 1,
    2**64 - 1,
    2**64,
    2**64 + 8,
    2**200,
    -(2**200),
)


class Boom(Exception):
    """The exception of hostile objects."""


class Number(int):
    """An int whose value differs each time it is read."""

    def __index__(self) -> NoReturn:
        raise Boom

    __int__ = __float__ = __bool__ = __index__


class Meta(type):
    @property
    def __name__(cls) -> Any:  # type: ignore[override]
        return 7


class Nameless(metaclass=Meta):
    """Of a class whose name is not a string."""


class Word(str):
    """A string that is equal to no other, or raises when it is compared."""

    def __eq__(self, other: object) -> bool:
        raise Boom

    __hash__ = str.__hash__


class Hostile:
    """Makes random calls of the example package."""

    def __init__(self, package: types.ModuleType, seed: int) -> None:
        self.package, self.chance = package, random.Random(seed)
        self.depth = 0
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.kept: list[object] = []
        self.guarded: dict[str, None] = {}

    def call(self) -> None:
        """One call, whose outcome is counted; SystemError says that the launcher broke the rules of Python."""
        name = self.chance.choice(list(POSITIONAL))
        try:
            self.kept.clear()
            kinds = POSITIONAL[name]
            wrong = self.chance.sample(range(len(kinds)), self.chance.choice([0, 1, 1, 1, len(kinds)]))
            arguments = [
                (self.argument if place in wrong else self.good)(kind, name)
                for place, kind in enumerate(kinds)
            ]
            keywords = self.keywords(name) if self.chance.random() < 0.5 else self.good_keywords(name)
            if self.chance.random() < 0.05:
                del arguments[self.chance.randrange(len(arguments) + 1) :]
            self.function(name)(*arguments, **keywords)
            self.outcomes["returned"] += 1
        except SystemError:
            raise
        except Exception as error:
            self.outcomes[type(error).__name__] += 1

    def function(self, name: str) -> Callable[..., object]:
        """The kernel's function, or one that does a part of it."""
        roll, launcher = self.chance.random(), self.package._launcher
        index = list(POSITIONAL).index(name)
        if roll < 0.05:
            return lambda *a, **k: launcher._facts(index, self.chance.choice((0, 132)), *a, **k)
        if roll < 0.08:
            return lambda *a, **k: launcher._grid(self.chance.randrange(-2, 40), self.integer(), *a, **k)
        if roll < 0.09:
            return lambda *a, **k: launcher._select(self.integer(), tuple(a), (self.integer(),) * 4)
        if roll < 0.10:
            return lambda *a, **k: self.package.preload(self.integer(), [name])
        if roll < 0.11:
            return lambda *a, **k: self.package.is_loaded(name, self.integer())
        if roll < 0.3:
            return lambda *a, **k: self.remembered(name)[k.pop("grid", self.grid)](*a, **k)
        return getattr(self.package, name)

    def remembered(self, name: str) -> Any:
        """What answers calls of a kernel with some options while guards hold; more are remembered while it answers."""
        watched = self.trap("attribute") if self.chance.random() < 0.1 else types.SimpleNamespace()
        kernel = types.SimpleNamespace(run=lambda *a, **k: self.act())
        answers = self.package._launcher._Answers(kernel, ((watched, "attribute"), (self.guarded, "key")))
        index, kinds = list(POSITIONAL).index(name), POSITIONAL[name]
        values = tuple(self.good(kind, name) for kind in kinds)

        def add(options: dict[str, Any]) -> None:
            bound = tuple((option, place) for place, option in enumerate(options, len(kinds)))
            launches = ((index, tuple(range(len(kinds))), options),) * self.chance.choice((1, 2))
            places = (*("?pif".index(kind) for kind in kinds), *(0 for _ in options))
            answers.add(tuple(options), places, (*values, *options.values()), bound, launches, resolve)

        def resolve(launch: int, row: int) -> Any:
            if self.chance.random() < 0.2:
                self.act()
            if self.chance.random() < 0.3:
                add(self.good_keywords(name))
            return self.chance.choice([("made", {}), ("made", {}), ("made", {}), None, False])

        add({option: value for option, value in self.good_keywords(name).items() if option != "grid"})
        return type("Kernel", (), {"__getitem__": lambda _, grid: answers.at(kernel, grid)})()

    def grid(self, meta: dict[str, Any]) -> Any:
        """The function of a grid."""
        meta.clear()
        if self.chance.random() < 0.3:
            self.act()
        return self.chance.choice([1, (2, 3), [4], (), (1, 2, 3, 4), self.anything()])

    def good(self, kind: str, name: str) -> Any:
        """A valid argument."""
        if kind == "p":
            dtype = DTYPES.get(name, "float32")
            address = 0x100 + 16 * self.chance.randrange(64)
            shape = (500, self.chance.choice([64, 200]))
            if dtype == "float16" and self.chance.random() < 0.5:
                return self.interface(
                    {"data": ((1 << 40) + address, False), "typestr": "<f2", "shape": shape, "strides": None}
                )
            return Tensor(dtype, address, 0, shape=shape, strides=(208, 1))
        return self.chance.choice([2, 16, 64, 1000]) if kind == "i" else 0.5

    def good_keywords(self, name: str) -> dict[str, Any]:
        chosen = {option: self.chance.choice(values) for option, values in OPTIONS.get(name, {}).items()}
        return chosen | ({"grid": 2} if name in ("copy", "pairs") else {})

    def argument(self, kind: str, name: str) -> Any:
        if self.chance.random() < 0.08:
            return self.anything()
        if kind == "p":
            return self.pointer(DTYPES.get(name, "float32"))
        return (
            self.integer()
            if kind == "i"
            else self.chance.choice([0.5, 1, float("nan"), 1e300, 2**2000, True, self.integer()])
        )

    def keywords(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for option, values in OPTIONS.get(name, {}).items():
            if self.chance.random() < 0.8:
                found[option] = self.chance.choice(values) if self.chance.random() < 0.8 else self.anything()
        if self.chance.random() < 0.2:
            found["stream"] = self.chance.choice(
                [
                    *(0, 1, 7, -1, True, 2**64, None, self.anything()),
                    *(self.trap(name) for name in ("cuda_stream", "__cuda_stream__")),
                ]
            )
        if self.chance.random() < 0.4 or name == "copy":
            axes = range(self.chance.randrange(5))
            grid = [self.chance.choice([1, 2, 0, 3, -1, 65536, 2**31, 2**70, self.anything()]) for _ in axes]
            found["grid"] = self.chance.choice(
                [1, 2, tuple(grid), tuple(grid[:2]), grid, self.anything(), None]
            )
        if self.chance.random() < 0.03:
            found[self.chance.choice(["n", Word("n"), "nothing", Word("x"), "x_shape_0"])] = self.integer()
        return found

    def integer(self) -> Any:
        value = self.chance.choice(_INTEGERS)
        roll = self.chance.random()
        return (
            value
            if roll < 0.8
            else Number(value)
            if roll < 0.85
            else self.index(value)
            if roll < 0.95
            else self.anything()
        )

    def anything(self) -> Any:
        return self.chance.choice(
            [
                None,
                True,
                False,
                0,
                1.5,
                "x",
                "\udcff",
                b"x",
                (),
                [],
                {},
                object(),
                Nameless(),
                Nameless,
                Number(3),
                2**80,
                lambda: 0,
                self.trap("__cuda_array_interface__"),
                self.trap("__dlpack__"),
                self.trap("data_ptr"),
                self.index(5),
                float("inf"),
                sys,
                Boom,
                Boom(),
                type,
                memoryview(b"12345678"),
                self.interface(),
                self.capsule_owner(),
                range(3),
            ]
        )

    def act(self) -> None:
        """The action of a hostile object when it is read: it raises, collects garbage, or calls the package
        again."""
        roll = self.chance.random()
        if roll < 0.25:
            errors = [Boom, TypeError, ValueError, AttributeError, KeyError, OverflowError, MemoryError]
            raise self.chance.choice(errors)("hostile")
        if roll < 0.27:
            gc.collect(0)
        elif roll < 0.5 and self.depth < 3:
            self.depth += 1
            kept, self.kept = self.kept, []
            try:
                self.call()
            finally:
                self.depth -= 1
                self.kept = kept

    def index(self, value: Any, act: Callable[[], object] | None = None) -> Any:
        """An object that converts to an int, and acts when it is converted."""
        hostile = self

        class Index:
            def __index__(self) -> Any:
                (act or hostile.act)()
                return value

            __float__ = __int__ = __index__

        return Index()

    def trap(self, name: str) -> Any:
        """An object with one attribute, which is a different object each time it is read."""
        hostile = self

        def get(_: object) -> Any:
            hostile.act()
            return hostile.chance.choice(
                [None, 7, (), {}, lambda *a, **k: hostile.integer(), hostile.entries(), Nameless()]
            )

        return type("Trap", (), {name: property(get)})()

    def pointer(self, dtype: str) -> Any:
        roll = self.chance.random()
        shape = (self.chance.choice([1, 8, 128, 500]), self.chance.choice([8, 64, 200]))
        if roll < 0.4:
            return Tensor(
                dtype, 0x100, self.chance.choice([0, 0, 0, 1]), shape=shape, strides=(shape[1] + 8, 1)
            )
        if roll < 0.45:
            return self.chance.choice([0, (1 << 40) + 0x100, (2 << 40) + 4, -1, 2**64, None, True])
        return (
            self.tensor(dtype, shape)
            if roll < 0.6
            else self.interface()
            if roll < 0.8
            else self.capsule_owner()
        )

    def tensor(self, dtype: str, shape: tuple[int, ...]) -> Any:
        """A torch tensor with one faulty method."""
        hostile, wrong = (
            self,
            self.chance.choice(["data_ptr", "get_device", "numel", "stride", "shape", "dtype"]),
        )

        def method(*_: object) -> Any:
            hostile.act()
            return hostile.chance.choice(
                [0, 1, -1, 2**40, 2**63, 2**64, -(2**63), 1.5, None, "x", Number(0), hostile.index(1)]
            )

        def attribute(_: object) -> Any:
            hostile.act()
            numbers = [hostile.integer() for _ in range(hostile.chance.randrange(4))]
            return hostile.chance.choice([tuple(numbers), numbers, None, 5, "ab", {}, Nameless()])

        members = {wrong: property(attribute, lambda *_: None) if wrong in ("shape", "dtype") else method}
        return type("Wrong", (Tensor,), members)(
            dtype, 0x100, 0, self.chance.choice([0, 64]), shape, (shape[1], 1)
        )

    def entries(self) -> Any:
        """The dict of an array interface, perhaps faulty; reading its numbers may empty it."""
        entries: dict[Any, Any] = {}

        def spoil() -> None:
            if self.chance.random() < 0.7:
                entries.clear()
                gc.collect(0)
            else:
                self.act()

        def number(value: Any) -> Any:
            return self.index(value, spoil) if self.chance.random() < 0.25 else value

        good = {
            "data": (number((1 << 40) + self.chance.choice([0x100, 8, 0])), False),
            "typestr": self.chance.choice(
                ["<f2", "<f4", "".join(["<", "f4"]), ">f4", "<V2", "|b1", "<f" + "9" * 5]
            ),
            "shape": tuple(
                number(self.chance.choice([8, 64, 0, 2**62, 2**32]))
                for _ in range(self.chance.choice([2, 2, 1, 3]))
            ),
            "strides": self.chance.choice(
                [None, None, (128, 2), (number(128), number(2)), (2,), (-(2**63), -1), 5]
            ),
            "stream": self.chance.choice([None, None, number(1), number(9), -1, 2**64, "x"]),
            "version": 3,
        }
        for name, value in good.items():
            roll = self.chance.random()
            key: Any = Word(name) if self.chance.random() < 0.02 else name
            entries[key] = (
                value
                if roll < 0.93
                else self.chance.choice([None, 7, "x", (), (None, None), [1, 2], Nameless()])
            )
            if roll > 0.98:
                del entries[key]
        return entries

    def interface(self, entries: dict[str, Any] | None = None) -> Any:
        hostile = self
        found: dict[str, Any] = self.entries() if entries is None else entries
        if self.chance.random() < 0.6 or "version" not in found:
            return types.SimpleNamespace(__cuda_array_interface__=found)
        return type("Array", (), {"__cuda_array_interface__": property(lambda _: hostile.entries())})()

    def capsule_owner(self) -> Any:
        """An exporter of DLPack whose structure, capsule or device is faulty, or becomes so later."""
        hostile, chance = self, self.chance
        sizes = [chance.choice([8, 64, 0, -1, 2**62, 2**63 - 1]) for _ in range(3)]
        numbers = (ctypes.c_int64 * 3)(*sizes)
        rank = chance.choice([2, 2, 2, 1, 3, 0, -1])
        shape = ctypes.addressof(numbers) if chance.random() < 0.95 else 0
        strides = chance.choice([0, 0, ctypes.addressof(numbers)])
        code, bits, lanes = chance.choice(
            [(2, 16, 1), (2, 32, 1), (2, 12, 1), (4, 16, 1), (2, 16, 2), (9, 0, 0)]
        )
        address, offset = chance.choice([(1 << 40) + 0x100, 0, 2**64 - 8]), chance.choice([0, 16, 2**64 - 1])
        fields = struct.pack(
            "<QiiiBBHQQQQQ", address, 2, 0, rank, code, bits, lanes, shape, strides, offset, 0, 0
        )
        memory = ctypes.create_string_buffer(fields)
        name = chance.choice([b"dltensor"] * 9 + [b"used_dltensor", b"dltensor_versioned"])

        class Owner:
            def __dlpack_device__(self) -> Any:
                others = [(2, 1), (1, 0), (2, -1), (2, 2**40), None, (2,), [2, 0], (hostile.index(2), 0)]
                return chance.choice([(2, 0)] * 9 + others)

            def __dlpack__(self, **_: object) -> Any:
                hostile.kept += [
                    numbers,
                    memory,
                ]  # As the maker of a capsule has to: until the capsule's end.
                if chance.random() < 0.2:
                    hostile.act()
                if chance.random() < 0.05:
                    return chance.choice([None, 7, memory, self])
                make = ctypes.pythonapi.PyCapsule_New
                make.restype, make.argtypes = (
                    ctypes.py_object,
                    [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
                )
                capsule = make(ctypes.addressof(memory), name, None)
                hostile.kept.append(capsule)
                # Another consumer takes it over, at once or while other arguments are read.
                if chance.random() < 0.1:
                    hostile.kept.append(hostile.index(0, lambda: rename(capsule)))
                    rename(capsule)
                return capsule

        return Owner()


def rename(capsule: object) -> None:
    """Renames a capsule as a consumer of DLPack does."""
    set_name = ctypes.pythonapi.PyCapsule_SetName
    set_name.argtypes = [ctypes.py_object, ctypes.c_char_p]
    set_name(capsule, b"used_dltensor")
