"""Cases of operands that C and LLVM call undefined, and of quotients and remainders below zero."""

from __future__ import annotations

import numpy as np
from zoo.arrays import poisoned, small_integers
from zoo.case import Case


def _divisions(x, out, rows, n, d):
    if d == 0:
        scalars, lines = [-1, -2, -3, -4, -5], [[-6] * 32, [-7] * 32, [-8] * 32]
    else:
        quotient = np.trunc(x / d).astype(np.int32)
        scalars = [n * (100 // d), sum(i % d for i in range(n)), n * (100 // d), n * (100 % d), 100 // d]
        lines = [n * quotient, quotient, x - quotient * d]
    return {"out": np.array(scalars), "rows": np.array(lines)}


def _division_case(name: str, n: int, d: int) -> Case:
    return Case(
        name,
        "undefined.py",
        "divisions",
        lambda rng: {
            "x": small_integers(rng, 32, dtype=np.int32, low=-90, high=90),
            "out": poisoned(5, dtype=np.int32),
            "rows": poisoned(3, 32, dtype=np.int32),
            "n": n,
            "d": d,
        },
        _divisions,
        num_warps=1,
        aligned=False,
    )


def _divisions_by_themselves(x, out):
    return {"out": np.stack([x != 0, np.zeros_like(x)])}


def _remainders_beside(x, places, divisors, out):
    sums = x[places].reshape(2, 16, 16).sum(0, dtype=np.uint8)
    return {"out": np.where(divisors == 0, 2, sums % np.maximum(divisors, 1))}


def _shifts(x, counts, lefts, rights, logical):
    bits, amount = 8 * x.dtype.itemsize, counts.view(logical.dtype).astype(object)
    numbers, raw = x.astype(object), x.view(logical.dtype).astype(object)
    inside = amount < bits
    left = [int(v) << int(c) if ok else 0 for v, c, ok in zip(numbers, amount, inside)]
    wrapped = [(v + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1) for v in left]
    return {
        "lefts": np.array(wrapped, np.float64),
        "rights": np.array([int(v) >> min(int(c), bits - 1) for v, c in zip(numbers, amount)], np.float64),
        "logical": np.array(
            [int(v) >> int(c) if ok else 0 for v, c, ok in zip(raw, amount, inside)], np.float64
        ),
    }


def _shift_case(bits: int) -> Case:
    signed, unsigned = np.dtype(f"int{bits}").type, np.dtype(f"uint{bits}").type
    counts = [0, 1, bits - 1, bits, bits + 1, 2 * bits if bits < 64 else (1 << 32) + 3, -1, -bits]
    return Case(
        f"shifts_of_{bits}",
        "undefined.py",
        "shifts",
        lambda rng: {
            "x": small_integers(rng, 64, dtype=signed, low=-100, high=100),
            "counts": np.resize(counts, 64).astype(signed),
            "lefts": poisoned(64, dtype=signed),
            "rights": poisoned(64, dtype=signed),
            "logical": poisoned(64, dtype=unsigned),
        },
        _shifts,
        num_warps=1,
    )


def _shifts_compared(counts, out):
    """-1 is what is left of a sign from the width less one on, zero of other bits from the width on."""
    beyond = [
        (counts & (1 << bits) - 1) >= least
        for bits, least in ((62, 63), (32, 31), (16, 15), (16, 16), (16, 16))
    ]
    return {"out": np.stack([*beyond[:3], ~beyond[3], ~beyond[4]])}


def _to_integers(x, out):
    """Beyond the range the nearest integer, or for 8 bits the low bits of that of 16; NaN gives zero."""
    bits, signed = 8 * out.dtype.itemsize, out.dtype.kind == "i"
    wide = max(bits, 16)
    low, high = (-(1 << wide - 1), (1 << wide - 1) - 1) if signed else (0, (1 << wide) - 1)
    whole = [0 if np.isnan(v) else int(min(max(float(v), low), high)) for v in x]
    return {
        "out": np.array([min(v, high) for v in whole], object)
        .astype(np.int64 if signed else np.uint64)
        .astype(out.dtype)
    }


def _integer_case(name: str, source: type, result: type) -> Case:
    values = [0.0, -1.5, 100.25, 130.0, -200.0, 300.0, 40000.0, -4e4, np.nan, np.inf, -np.inf]
    return Case(
        name,
        "undefined.py",
        "to_integers",
        lambda rng: {
            "x": np.resize(np.array(values, np.float64), 64).astype(source),
            "out": poisoned(64, dtype=result),
        },
        _to_integers,
        num_warps=1,
    )


def _narrow_offsets(table, out, n):
    r = np.arange(128) + n
    wrapped = table[(r + 128) % 256]
    return {"out": np.concatenate([wrapped, wrapped, wrapped, wrapped[:4], wrapped[:4]])}


def _short_offsets(table, x, out, angle):
    return {"out": np.stack([table[x + 16], table[x + 16], np.full(64, 100 * np.sin(angle), np.uint8)])}


def _sums_of_constants(out, n):
    r = np.arange(32)
    return {"out": np.stack([r * min(n, -14), r * max(n, -4), r // 7 % 7 + 7])}


def _large_offsets(table, out, n):
    r = np.arange(512)
    return {"out": np.concatenate([np.where(r % 2, table[0], -1), table[r]])}


def _offsets_from_memory(table, keys, out):
    place = (keys[16:32].astype(np.int64) - keys[0]) % 2**32
    return {"out": np.concatenate([np.full(16, -1), *[table[place]] * 3])}


def _below_zero(x, out, shift):
    r = np.arange(128)
    quotient, rest = np.trunc((r - shift) / 16).astype(int), np.fmod(r - shift, 16)
    return {
        "out": np.stack(
            [
                np.where(np.trunc((r - 8) / 4) < -1, x[r], 0),
                x[16 + np.fmod(r - 16, 16)],
                x[np.where(rest < 0, rest + 16, rest)],
                x[32 + quotient],
            ]
        )
    }


CASES = [
    _division_case("divisions_by_zero", 0, 0),
    _division_case("divisions", 3, 7),
    Case(
        "divisions_by_themselves",
        "undefined.py",
        "divisions_by_themselves",
        lambda rng: {
            "x": small_integers(rng, 64, dtype=np.uint32, low=0, high=3),
            "out": poisoned(2, 64, dtype=np.uint32),
        },
        _divisions_by_themselves,
        num_warps=1,
    ),
    Case(
        "remainders_beside",
        "undefined.py",
        "remainders_beside",
        lambda rng: {
            "x": small_integers(rng, 512, dtype=np.uint8, low=0, high=100),
            "places": rng.permutation(512).astype(np.int32),
            "divisors": small_integers(rng, 16, 16, dtype=np.uint8, low=0, high=8),
            "out": poisoned(16, 16, dtype=np.uint8),
        },
        _remainders_beside,
        num_warps=2,
        aligned=False,
    ),
    *(_shift_case(bits) for bits in (8, 16, 32, 64)),
    Case(
        "shifts_beyond",
        "undefined.py",
        "shifts_beyond",
        lambda rng: {
            "x": rng.permutation(128).astype(np.int32),
            "out": poisoned(4, 128, dtype=np.int32),
            "n": 3,
        },
        lambda x, out, n: {
            "out": np.repeat(np.stack([[-1, 0], [-1, 0], [x[0]] * 2, [x[0]] * 2]), 64, axis=1)
        },
        num_warps=1,
    ),
    Case(
        "shifts_compared",
        "undefined.py",
        "shifts_compared",
        lambda rng: {
            "counts": np.resize([0, 1, 14, 15, 16, 30, 31, 32, 62, 63, 64, 99, 1 << 32, -1, -64], 64).astype(
                np.int64
            ),
            "out": poisoned(5, 64, dtype=np.int32),
        },
        _shifts_compared,
        num_warps=1,
    ),
    Case(
        "narrow_offsets",
        "undefined.py",
        "narrow_offsets",
        lambda rng: {
            "table": rng.permutation(256).astype(np.int32),
            "out": poisoned(392, dtype=np.int32),
            "n": 126,
        },
        _narrow_offsets,
        num_warps=1,
        aligned=False,
    ),
    Case(
        "short_offsets",
        "undefined.py",
        "short_offsets",
        lambda rng: {
            "table": rng.integers(0, 200, 256, np.uint8),
            "x": small_integers(rng, 64, dtype=np.int16, low=-8, high=8),
            "out": poisoned(3, 64, dtype=np.uint8),
            "angle": 2e6 + 2.5,
        },
        _short_offsets,
        num_warps=1,
    ),
    Case(
        "sums_of_constants",
        "undefined.py",
        "sums_of_constants",
        lambda rng: {"out": poisoned(3, 32, dtype=np.int32), "n": -7},
        _sums_of_constants,
        num_warps=1,
    ),
    Case(
        "large_offsets",
        "undefined.py",
        "large_offsets",
        lambda rng: {
            "table": rng.permutation(512).astype(np.int32),
            "out": poisoned(1024, dtype=np.int32),
            "n": 2147483640,
        },
        _large_offsets,
        num_warps=1,
    ),
    Case(
        "offsets_from_memory",
        "undefined.py",
        "offsets_from_memory",
        lambda rng: {
            "table": rng.standard_normal(64),
            "out": poisoned(64, dtype=np.float64),
            "keys": np.concatenate([[2147483640] * 16, -2147483640 + rng.integers(-16, 48, 16)]).astype(
                np.int32
            ),
        },
        _offsets_from_memory,
        num_warps=1,
    ),
    _integer_case("halves_to_int8", np.float16, np.int8),
    _integer_case("floats_to_uint16", np.float32, np.uint16),
    _integer_case("floats_to_int32", np.float32, np.int32),
    _integer_case("doubles_to_uint8", np.float64, np.uint8),
    Case(
        "chosen_constants",
        "undefined.py",
        "chosen_constants",
        lambda rng: {"out": poisoned(32, dtype=np.uint16), "n": 3},
        lambda out, n: {"out": np.zeros(32, np.uint16)},
        num_warps=1,
    ),
    Case(
        "below_zero",
        "undefined.py",
        "below_zero",
        lambda rng: {
            "x": rng.permutation(256).astype(np.int32),
            "out": poisoned(4, 128, dtype=np.int32),
            "shift": 32,
        },
        _below_zero,
        num_warps=1,
    ),
]
