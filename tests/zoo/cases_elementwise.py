"""Cases of elementwise operations and conversions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from zoo.arrays import POISON, poisoned, small_integers
from zoo.case import Argument, Bits, Case, bf16, numbers


def _integers(x, y, out, n):
    a, b = x.astype(np.int64), y.astype(np.int64)
    total = a + b * 3 - (a & b) + (a | 12) - (a ^ b) + (a << 2) + (a >> 1)
    quotient = np.where(b != 0, np.trunc(a / np.where(b == 0, 1, b)), 0).astype(np.int64)
    total = total + np.where(a > b, quotient, a - quotient * b)
    total = total + np.maximum(a, b) * np.minimum(a, -b) + np.abs(a - b)
    return {"out": np.where((a == b) | (a < 0) & (b != 3), total + 1, total - ~a)}


def _floats(x, y, out, n, scale):
    a, b = x.astype(np.float64), y.astype(np.float64)
    result = a * b + a - b * scale + np.floor(a / 4) - np.ceil((b / 3).astype(np.float32)) + np.abs(a)
    return {"out": np.clip(result, -1000, 1000) + np.maximum(a, b) - np.minimum(a, -b)}


def _functions(x, out, n):
    from math import erf

    a = x.astype(np.float64)
    rows = [
        np.exp(a),
        np.exp2(a),
        np.log(np.abs(a) + 0.1),
        np.log2(np.abs(a) + 0.1),
        np.sqrt(np.abs(a)),
        1 / np.sqrt(np.abs(a) + 0.1),
        np.sin(a),
        np.cos(a),
        1 / (1 + np.exp(-a)),
        np.vectorize(erf)(a),
        a / 3,
        np.sqrt(np.abs(a)),
    ]
    return {"out": np.stack(rows)}


def _unsigned(x, y, out, n):
    a, b = x.astype(np.uint64), y.astype(np.uint64)
    return {
        "out": (a // b + a % b + (a >> 3) + (a * b >> 32) + np.where(a > b, 1, 2).astype(np.uint64))
        & 0xFFFFFFFF
    }


def _quotients(x, y, quotient, remainder, last):
    """Toward zero, where numpy's are toward the lower number."""
    with np.errstate(over="ignore"):
        found = np.where(
            (x < 0) != (y < 0), -(np.abs(x) // np.abs(y)).astype(x.dtype), np.abs(x) // np.abs(y)
        )
        rest = np.abs(x) % np.abs(y[0])
        return {
            "quotient": found.astype(x.dtype),
            "remainder": x - found.astype(x.dtype) * y,
            "last": np.where(x < 0, -rest.astype(x.dtype), rest).astype(x.dtype),
        }


def _quotients_case(dtype: type) -> Case:
    """Threads have four elements, of which all fit 32 bits, some, or none."""

    def make(rng: np.random.Generator) -> dict[str, Argument]:
        limit = np.iinfo(dtype).max
        some = [0, 1, 7, (1 << 32) - 1, 1 << 32, (1 << 40) + 3, limit - 1, limit]
        x = rng.choice(np.array(some, dtype), 512)
        x[:256] = rng.integers(0, 1 << 32, 256)
        y = np.maximum(rng.choice(np.array(some, dtype), 512), 1)
        y[:128] = rng.integers(1, 1 << 16, 128)
        if dtype is np.int64:
            x[200:300] *= -1
            y[250:350] *= -1
        outs = {name: poisoned(512, dtype=dtype) for name in ("quotient", "remainder", "last")}
        return {"x": x, "y": y, **outs}

    name = f"quotients_{np.dtype(dtype).name}"
    return Case(name, "elementwise.py", "quotients", make, _quotients, {"BLOCK": 512})


def _convert(target: str):
    """From fp32 to `target` and the storage numpy has for it."""
    if target == "bf16":
        return lambda x, out, n: {"out": numbers(bf16(x))}
    return lambda x, out, n: {"out": x.astype(target)}


def _cut_to(small: np.ndarray):
    """From x to the nearest of the numbers that fp8 has toward zero."""

    def expect(x, **_):
        known = np.unique(np.abs(small[np.isfinite(small)]))
        sizes = known[np.searchsorted(known, np.minimum(np.abs(x), known[-1]), side="right") - 1]
        halves = x.astype(np.float16)
        beyond = np.abs(halves.astype(np.float64)) > np.abs(x)
        cut = np.copysign(sizes, x)
        return {
            "cut": cut,
            "sizes": sizes,
            "opposites": -cut,
            "halves": np.where(beyond, np.nextafter(halves, np.float16(0)), halves),
        }

    return expect


def _cut_case(kind: str, source: type) -> Case:
    of_bytes = numbers(Bits(np.arange(256, dtype=np.uint8), kind))
    if kind == "fp8e4nv":
        of_bytes[[0x7F, 0xFF]] = np.nan
    else:
        of_bytes[0x7C:0x80] = of_bytes[0xFC:] = np.nan

    def make(rng: np.random.Generator):
        wide = rng.normal(size=256) * 2.0 ** rng.integers(-20, 20, 256)
        wide[::3] = rng.choice(of_bytes[np.isfinite(of_bytes)], len(wide[::3]))
        wide = np.clip(wide, -60000, 60000)
        outs = {name: Bits(poisoned(256, dtype=np.uint8), kind) for name in ("cut", "sizes", "opposites")}
        return {"x": wide.astype(source), **outs, "halves": poisoned(256, dtype=np.float16)}

    name = f"narrow_{np.dtype(source).name}_to_{kind}"
    return Case(name, "elementwise.py", "narrow_to_bytes", make, _cut_to(of_bytes), {"BLOCK": 256})


_BYTES = np.arange(256, dtype=np.uint8)
_E4B15 = numbers(Bits(_BYTES[:128], "fp8e4b15"))
"""The numbers of fp8e4b15 from zero on, which has no others than these and their opposites."""


def _to_e4b15(x: np.ndarray) -> np.ndarray:
    """The nearest of the numbers up to 1.75, of two equally near the larger; 1.75 for NaN."""
    known = _E4B15[:127]
    sizes = np.minimum(np.where(np.isnan(x), np.inf, np.abs(x.astype(np.float64))), known[-1])
    above = np.minimum(np.searchsorted(known, sizes), 126)
    below = np.maximum(above - 1, 0)
    nearest = np.where(known[above] - sizes <= sizes - known[below], known[above], known[below])
    return np.copysign(nearest, x)


def _e4b15_case(name: str, x: Callable[[], np.ndarray | Bits], y: np.ndarray | Bits, block: int) -> Case:
    """Conversions of all numbers that there are, or of a wider type those around what its conversion rounds."""
    count = y.data.size if isinstance(y, Bits) else y.size

    def expect(x, **_):
        found = numbers(x)
        return {"y": _to_e4b15(found) if name.endswith("to_e4b15") else found}

    return Case(
        name,
        "elementwise.py",
        "convert_all",
        lambda _: {"x": x(), "y": y},
        expect,
        {"BLOCK": block},
        grid=(count // block,),
    )


def _around_e4b15() -> np.ndarray:
    """Numbers of fp32: those of the type, the middles, their neighbours, and what is too large or too small."""
    middles = (_E4B15[1:127] + _E4B15[:126]) / 2
    exact = np.concatenate([_E4B15, middles]).astype(np.float32)
    zero, infinity = np.float32(0), np.float32(np.inf)
    near = np.concatenate([exact, np.nextafter(exact, zero), np.nextafter(exact, infinity)])
    ends = np.array([np.inf, np.nan, 1e30, 1e-30, 65504, 65520, 1.8125, 3.0], np.float32)
    filled = np.concatenate([near, ends])
    return np.resize(np.concatenate([filled, -filled[~np.isnan(filled)]]), 2048)


def _e4b15_bits() -> Case:
    outs = ("same", "sizes", "opposites", "chosen")

    def expect(x, **_):
        values, places = numbers(Bits(x, "fp8e4b15")), np.arange(256)
        # 0.3 becomes 0.3125, where it is not read.
        some = np.where(places % 3 == 0, values, 0.3125)
        chosen = np.where(places % 2 == 0, some, values)
        return {"same": values, "sizes": np.abs(values), "opposites": -values, "chosen": chosen}

    return Case(
        "e4b15_bits",
        "elementwise.py",
        "bytes_as_numbers",
        lambda _: {
            "x": _BYTES.copy(),
            **{name: Bits(poisoned(256, dtype=np.uint8), "fp8e4b15") for name in outs},
        },
        expect,
        {"BLOCK": 256},
    )


_HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
CASES = [
    *(
        _e4b15_case(
            f"e4b15_to_{name}{'' if block == 256 else '_alone'}",
            lambda: Bits(_BYTES.copy(), "fp8e4b15"),
            bf16(np.full(256, POISON)) if name == "bf16" else poisoned(256, dtype=np.dtype(name)),
            block,
        )
        for name, block in (
            ("float16", 256),
            ("float32", 256),
            ("float64", 256),
            ("bf16", 256),
            ("float16", 1),
        )
    ),
    _e4b15_case(
        "fp16_to_e4b15", lambda: _HALVES.copy(), Bits(poisoned(1 << 16, dtype=np.uint8), "fp8e4b15"), 4096
    ),
    *(
        _e4b15_case(
            f"{name}_to_e4b15",
            lambda kind=kind: bf16(_around_e4b15()) if kind is None else _around_e4b15().astype(kind),
            Bits(poisoned(2048, dtype=np.uint8), "fp8e4b15"),
            1024,
        )
        for name, kind in (("fp32", np.float32), ("fp64", np.float64), ("bf16", None))
    ),
    _e4b15_bits(),
    *(_cut_case(kind, source) for kind in ("fp8e4nv", "fp8e5") for source in (np.float32, np.float64)),
    Case(
        "integers",
        "elementwise.py",
        "integers",
        lambda rng: {
            "x": small_integers(rng, 300, dtype=np.int32),
            "y": rng.integers(1, 9, 300).astype(np.int32),
            "out": poisoned(300, dtype=np.int32),
            "n": 300,
        },
        _integers,
        {"BLOCK": 256},
        grid=(2,),
    ),
    Case(
        "integers_int64",
        "elementwise.py",
        "integers",
        lambda rng: {
            "x": rng.integers(-(1 << 20), 1 << 20, 300),
            "y": rng.integers(1, 1 << 20, 300),
            "out": poisoned(300, dtype=np.int64),
            "n": 300,
        },
        _integers,
        {"BLOCK": 256},
        grid=(2,),
        aligned=False,
    ),
    *(_quotients_case(dtype) for dtype in (np.int64, np.uint64)),
    Case(
        "unsigned",
        "elementwise.py",
        "unsigned",
        lambda rng: {
            "x": rng.integers(0, 1 << 32, 100, dtype=np.uint32),
            "y": rng.integers(1, 1 << 32, 100, dtype=np.uint32),
            "out": poisoned(100, dtype=np.uint32),
            "n": 100,
        },
        _unsigned,
        {"BLOCK": 128},
        num_warps=1,
    ),
    Case(
        "floats",
        "elementwise.py",
        "floats",
        lambda rng: {
            "x": small_integers(rng, 500),
            "y": small_integers(rng, 500),
            "out": poisoned(500),
            "n": 500,
            "scale": 2.0,
        },
        _floats,
        {"BLOCK": 512},
    ),
    Case(
        "functions",
        "elementwise.py",
        "functions",
        lambda rng: {"x": rng.uniform(-6, 6, 1024).astype(np.float32), "out": poisoned(12, 1024), "n": 1024},
        _functions,
        {"BLOCK": 1024},
        tolerance=2e-6,
    ),
    *(
        Case(
            f"convert_fp32_{target}",
            "elementwise.py",
            "convert",
            lambda rng, storage=storage: {
                "x": rng.uniform(-100, 100, 200).astype(np.float32),
                "out": storage,
                "n": 200,
            },
            _convert(target),
            {"BLOCK": 256},
        )
        for target, storage in (
            ("float16", poisoned(200, dtype=np.float16)),
            ("bf16", Bits(poisoned(200, dtype=np.uint16), "bf16")),
            ("int32", poisoned(200, dtype=np.int32)),
            ("int8", poisoned(200, dtype=np.int8)),
            ("float64", poisoned(200, dtype=np.float64)),
        )
    ),
    Case(
        "bits",
        "elementwise.py",
        "bits",
        lambda rng: {"x": rng.normal(size=64).astype(np.float32), "out": poisoned(64), "n": 64},
        lambda x, out, n: {"out": -x},
        {"BLOCK": 64},
        num_warps=2,
    ),
]
