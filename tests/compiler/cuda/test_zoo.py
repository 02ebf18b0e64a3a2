"""Typical kernels in CUDA C++, compiled by NVRTC and run on the emulator: right results, without findings, under several
orders of warps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kbuild
from kbuild.emulator import Report, arguments_of, load, run

KERNELS = Path(__file__).parent / "kernels"
SCHEDULES = ("lockstep", "reverse", "random(1)")
RANDOM = np.random.default_rng(1)


def compiled(
    kernel: str,
    block: str,
    signature: Mapping[str, str] | None,
    shared: int,
    stop: str,
    **named: Any,
) -> kbuild.Artifact:
    """A kernel, `file:function`."""
    file, _, function = kernel.partition(":")
    options = {name: value for name, value in named.items() if name in ("debug", "target")}
    constexprs = {name: value for name, value in named.items() if name not in options}
    source = f"{KERNELS / file}.cu:{function}"
    options |= {"block": block, "shared": shared, "lineinfo": True, "stop": stop}
    return kbuild.compile(source, signature=signature, constexprs=constexprs, **options)


def ran(
    kernel: str,
    block: str,
    grid: Sequence[int],
    arguments: Mapping[str, Any],
    signature: Mapping[str, str] | None = None,
    shared: int = 0,
    **named: Any,
) -> Report:
    """The last of the reports on a kernel under all schedules; nothing is found in any."""
    artifact = compiled(kernel, block, signature, shared, "ptx", **named)
    program, facts = load(artifact.asm["ptx"], artifact.metadata.name), artifact.metadata
    given = arguments_of(facts.params, arguments)
    reports = []
    for schedule in SCHEDULES:
        checks, names = "" if schedule == "lockstep" else "strict", [name for name, _ in facts.params]
        report = run(
            program, None, grid, facts.block, shared, given, schedule=schedule, checks=checks, names=names
        )
        assert not report.findings, f"{schedule}: {report.findings[0]}"
        reports.append(report)
    return reports[-1]


def out(report: Report, place: int) -> np.ndarray:
    found = report.outputs[place]
    assert found is not None
    return found


def zeros(count: int, dtype: Any = np.float32) -> np.ndarray:
    return np.zeros(count, dtype)


X = RANDOM.integers(-3, 4, 1000).astype(np.float32)
FOUR = RANDOM.integers(0, 4, 64).astype(np.int32)


@pytest.mark.parametrize("kernel, grid, shared, size", [("block_sum", 3, 0, 1), ("tree_sum", 4, 512, 4)])
def test_sums(kernel: str, grid: int, shared: int, size: int) -> None:
    report = ran(f"reduce:{kernel}", "128", (grid,), {"x": X, "out": zeros(size), "n": 1000}, shared=shared)
    assert out(report, 1).sum() == X.sum()


def test_the_last_block_sums_what_the_others_have_written() -> None:
    arguments = {"x": X, "partial": zeros(3), "out": zeros(1), "ticket": zeros(1, np.uint32), "n": 1000}
    assert out(ran("reduce:last_block", "128", (3,), arguments), 2) == X.sum()


def test_reductions_and_votes_of_warps() -> None:
    warps = FOUR.reshape(2, 32)
    found = out(ran("reduce:redux", "64", (1,), {"x": FOUR, "out": zeros(12, np.int32)}), 1).reshape(2, 6)
    logic = [np.bitwise_and, np.bitwise_or, np.bitwise_xor]
    expected = [warps.sum(1), warps.min(1), warps.max(1), *(each.reduce(warps, axis=1) for each in logic)]
    np.testing.assert_array_equal(found, np.stack(expected, 1))
    found = out(ran("reduce:votes", "64", (1,), {"x": FOUR, "out": zeros(64, np.int32)}), 1)
    for lane, value in enumerate(FOUR):
        warp = warps[lane // 32]
        ballot, match = (
            sum(1 << i for i, each in enumerate(flags) if each) for flags in (warp > 1, warp == value)
        )
        total = (ballot ^ match) + 3 + 5 * (warp > 2).any() + 7 * (FOUR > 1).sum() + 11 + 13
        odd = int((warp & 1).sum()) if value & 1 else 0
        assert int(found[lane]) & 0xFFFFFFFF == (int(total) + odd) & 0xFFFFFFFF


def test_cooperative_groups() -> None:
    x = X[:64]
    found = out(ran("groups:groups", "64", (1,), {"x": x, "out": zeros(8)}), 1)
    expected = x.reshape(8, 8).sum(1)
    expected[0] += (x > 0).sum()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kernel", ["hillis", "warp_scan"])
def test_scans(kernel: str) -> None:
    x = RANDOM.integers(-3, 4, 200).astype(np.int32)
    np.testing.assert_array_equal(
        out(ran(f"scan:{kernel}", "256", (1,), {"x": x, "y": zeros(200, np.int32), "n": 200}), 1),
        np.cumsum(x),
    )


def test_an_exclusive_scan() -> None:
    report = ran("scan:blelloch", "64", (1,), {"x": X[:128], "y": zeros(128)}, shared=512)
    np.testing.assert_array_equal(out(report, 1), np.cumsum(X[:128]) - X[:128])


def test_a_histogram() -> None:
    x = RANDOM.integers(0, 256, 1000).astype(np.uint8)
    report = ran("histogram:shared_bins", "128", (3,), {"x": x, "bins": zeros(256, np.uint32), "n": 1000})
    np.testing.assert_array_equal(out(report, 1), np.bincount(x, minlength=256))


def test_atomic_operations() -> None:
    arguments = {
        "x": FOUR,
        "o": zeros(12, np.int32),
        "q": zeros(2, np.uint64),
        "f": zeros(2),
        "d": zeros(1, np.float64),
    }
    report = ran("histogram:atomics", "64", (1,), arguments)
    total = int(FOUR.sum())
    xor = int(np.bitwise_xor.reduce(FOUR))
    # From zero a decrement wraps to its bound.
    assert out(report, 1).tolist() == [3, 0, 0, 3, xor, -total, 7, 9, 64, 1000 - 63, total, total]
    assert (
        out(report, 2).tolist() == [total, 3]
        and out(report, 3).tolist() == [total, 3]
        and out(report, 4) == total
    )
    assert (
        out(ran("histogram:lock", "64", (3,), {"mutex": zeros(1, np.int32), "count": zeros(1, np.int32)}), 1)
        == 3
    )


@pytest.mark.parametrize("word, dtype, tile", [("fp32", np.float32, 32), ("u8", np.uint8, 16)])
def test_transposes(word: str, dtype: type, tile: int) -> None:
    x = RANDOM.integers(0, 100, (20, 50)).astype(dtype)
    grid, arguments = (
        (-(-50 // tile), -(-20 // tile)),
        {"x": x.ravel(), "y": zeros(1000, dtype), "w": 50, "h": 20},
    )
    report = ran("transpose:transpose", f"{tile}x4", grid, arguments, T=word, TILE=tile, ROWS=4)
    np.testing.assert_array_equal(out(report, 1).reshape(50, 20), x.T)


def test_vectors_of_four() -> None:
    found = out(ran("transpose:copy4", "64", (2,), {"x": X[:400], "y": zeros(400), "n": 100}), 1)
    expected = X[:400].reshape(100, 4) * [1, 1, 1, 2] + [1, 0, 0, 0]
    np.testing.assert_array_equal(found.reshape(100, 4), expected)


def test_stencils() -> None:
    found = out(ran("stencil:line5", "128", (8,), {"x": X, "y": zeros(1000), "n": 1000}), 1)
    np.testing.assert_array_equal(found, np.convolve(X, [1, 2, 4, 2, 1], "same"))
    x = X[:700].reshape(10, 7, 10)
    arguments = {"x": X[:700], "y": zeros(700), "nx": 10, "ny": 7, "nz": 10}
    found = out(ran("stencil:cube", "8x4x4", (2, 2, 3), arguments), 1).reshape(x.shape)
    padded = np.pad(x, 1)
    shifts = [np.roll(padded, by, axis)[1:-1, 1:-1, 1:-1] for axis in range(3) for by in (1, -1)]
    np.testing.assert_array_equal(found, sum(shifts) - 6 * x)


def test_a_softmax() -> None:
    x = RANDOM.standard_normal((3, 300)).astype(np.float16)
    arguments = {"x": x.ravel(), "y": zeros(900, np.float16), "n": 300}
    found = out(ran("softmax:softmax", "128", (3,), arguments, T="fp16", THREADS=128), 1).reshape(3, 300)
    exact = np.exp(x.astype(float) - x.max(1, keepdims=True))
    np.testing.assert_allclose(found, exact / exact.sum(1, keepdims=True), rtol=2e-3)


def test_pairs_of_halves() -> None:
    x = RANDOM.standard_normal(64).astype(np.float16)
    b = (RANDOM.integers(-8, 8, 64).astype(np.float32)).view(np.uint32) >> 16
    arguments = {"x": x, "b": b.astype(np.uint16), "y": zeros(64, np.float16), "c": zeros(64, np.uint16)}
    report = ran("softmax:half2s", "32", (1,), arguments)
    value = np.exp(np.maximum(4 * x.astype(float), 0) / 8).reshape(32, 2)
    expected = np.stack([value[:, 0] - value[:, 0], value[:, 1] - 1], 1)
    np.testing.assert_allclose(out(report, 2).reshape(32, 2), expected, atol=4e-3)
    found = (out(report, 3).astype(np.uint32) << 16).view(np.float32).reshape(32, 2)
    np.testing.assert_array_equal(found, (b << 16).view(np.float32).reshape(32, 2) * [1, 4])


def test_functions_of_the_mathematical_library() -> None:
    x = RANDOM.standard_normal(32).astype(np.float32)
    arguments = {"x": x, "y": zeros(128), "d": x.astype(float), "e": zeros(32, np.float64)}
    report = ran("softmax:math", "32", (1,), arguments)
    v, m = x.astype(float), np.abs(x.astype(float))
    far, farther = ((x * np.float32(by)).astype(float) for by in (1000, 100000))
    erf = np.vectorize(math.erf)
    expected = [
        np.sin(far) + np.cos(farther),
        np.exp(v) + np.log(m + 1) + np.sqrt(m) + 1 / np.sqrt(v * v + 1),
        m**1.7 + np.tanh(v) + erf(v),
        np.fmod(v, float(np.float32(0.3))) + np.rint(v) + np.floor(v) + np.trunc(v) + 2 * v / 3 + np.arctan2(v, 2) + np.cbrt(v)
        + np.log1p(m) + np.expm1(v) + np.sin(v) + 2 * 2**v + 10**v + np.log2(m + 1),
    ]  # fmt: skip
    np.testing.assert_allclose(out(report, 1).reshape(4, 32), expected, rtol=1e-5, atol=1e-5)
    expected = (
        np.exp(v)
        + np.log(m + 1)
        + np.sqrt(m)
        + np.sin(v)
        + np.cos(v * 1e6)
        + m**1.5
        + v / 3
        + np.tanh(v)
        + np.floor(v)
    )
    np.testing.assert_allclose(out(report, 3), expected + v * v + v, rtol=1e-13)


def test_a_matmul_with_asynchronous_copies() -> None:
    a, b = (RANDOM.integers(-3, 4, (64, 64)).astype(np.float32) for _ in range(2))
    arguments = {"A": a.ravel(), "B": b.ravel(), "C": zeros(4096), "M": 64, "N": 64, "K": 64}
    report = ran("gemm:sgemm", "128", (1, 2), arguments, BM=32, BN=64, BK=8, TM=4, TN=4)
    np.testing.assert_array_equal(out(report, 2).reshape(64, 64), a @ b)


def test_tensor_cores() -> None:
    a, b = (RANDOM.integers(-3, 4, (32, 32)).astype(np.float16) for _ in range(2))
    product = a.astype(float) @ b.T.astype(float)
    arguments = {"a": a.ravel(), "b": b.ravel(), "c": zeros(1024), "M": 32, "N": 32, "K": 32}
    found = out(ran("tensor:wmma_gemm", "32", (2, 2), arguments, target="sm_80"), 2)
    np.testing.assert_array_equal(found.reshape(32, 32), 2 * product)
    small = {
        "a": np.ascontiguousarray(a[:16, :16]).ravel(),
        "b": np.ascontiguousarray(b[:8, :16]).ravel(),
        "c": zeros(128),
    }
    found = out(ran("tensor:mma_gemm", "32", (1,), small), 2)
    np.testing.assert_array_equal(
        found.reshape(16, 8), a[:16, :16].astype(float) @ b[:8, :16].T.astype(float)
    )


def tensor(name: str, values: np.ndarray) -> dict[str, Any]:
    """A tensor of two dimensions as a tensor map takes it."""
    return {
        name: values.ravel(),
        f"{name}_shape_0": len(values),
        f"{name}_shape_1": values.shape[1],
        f"{name}_stride_0": values.shape[1],
    }


def test_copies_of_tiles_by_tensor_maps() -> None:
    x = RANDOM.integers(-3, 4, (50, 100)).astype(np.float32)
    signature = {"x": "tensordesc<fp32[32, 64]>", "y": "*fp32", "rows": "i32", "columns": "i32"}
    arguments = {**tensor("x", x), "y": zeros(5000), "rows": 50, "columns": 100}
    np.testing.assert_array_equal(
        out(ran("hopper:copy", "128", (2, 2), arguments, signature), 1).reshape(50, 100), x
    )


def test_tensor_cores_of_warpgroups() -> None:
    a, b = (
        RANDOM.integers(-3, 4, (64, 128)).astype(np.float16),
        RANDOM.integers(-3, 4, (128, 128)).astype(np.float16),
    )
    signature = dict.fromkeys("ab", "tensordesc<fp16[64, 64]:swizzle128>") | {
        "c": "*fp32",
        "N": "i32",
        "K": "i32",
    }
    arguments = {**tensor("a", a), **tensor("b", b), "c": zeros(64 * 128), "N": 128, "K": 128}
    found = out(ran("hopper:gemm", "128", (2, 1), arguments, signature), 2)
    np.testing.assert_array_equal(found.reshape(64, 128), a.astype(float) @ b.T.astype(float))


SMALL = RANDOM.integers(0, 30, 32).astype(np.int32)


def test_functions_that_are_not_inlined() -> None:
    def collatz(n: int) -> int:
        steps = 0
        while n != 1:
            n, steps = (3 * n + 1 if n % 2 else n // 2), steps + 1
        return n + steps

    report = ran("misc:calls", "32", (1,), {"x": SMALL, "y": zeros(32, np.int32), "z": zeros(32)})
    assert out(report, 1).tolist() == [collatz(int(value) + 1) for value in SMALL]
    assert out(report, 2).tolist() == [3 * int(v) + 2 * i + 1 + i % 8 + 1 for i, v in enumerate(SMALL)]


def test_functions_that_are_called_by_their_address() -> None:
    found = out(ran("misc:pointers", "32", (1,), {"x": SMALL, "z": zeros(32)}), 1)
    assert found.tolist() == [i * (2 if value % 2 else 3) for i, value in enumerate(SMALL)]


def test_arrays_of_threads_and_switches() -> None:
    def expected(i: int) -> int:
        a = [int(SMALL[(i + j) % 32]) for j in range(16)]
        k = int(SMALL[i]) & 15
        a[k] += 100
        y = a[k * 7 & 15] + a[int(SMALL[(i + 1) % 32]) & 15]
        cases = [y + 1, 3 * y, y - 5, y ^ 9, y << 2, (y | 64) + 7, y + 7, int(y / 3), int(math.fmod(y, 5))]
        kind = int(SMALL[i]) % 11
        return cases[kind] if kind < len(cases) else ~y

    found = out(ran("misc:locals", "32", (1,), {"x": SMALL, "y": zeros(32, np.int32)}), 1)
    assert found.tolist() == [expected(i) for i in range(32)]


def test_printing_and_assertions() -> None:
    report = ran("misc:prints", "32", (1,), {"x": X[:32], "n": 7}, debug=True)
    assert report.printed == [f"x[7] = {X[7]:f} text {1 << 40}\n"]


def test_small_integers() -> None:
    c, u = RANDOM.integers(-100, 100, (32, 4)).astype(np.int8), RANDOM.integers(0, 256, 32).astype(np.uint8)
    s = RANDOM.integers(-1000, 1000, 32).astype(np.int16)
    outputs = {
        "d": zeros(128, np.int8),
        "b": zeros(32, np.uint8),
        "v": zeros(32, np.uint8),
        "t": zeros(32, np.int16),
        "q": zeros(32, np.int8),
    }
    report = ran("misc:chars", "32", (1,), {"c": c.ravel(), "u": u, "s": s, **outputs})
    wide = c.astype(int)
    moved = np.stack([wide[:, 3], wide[:, 2], wide[:, 1] + 1, wide[:, 0] - 1], 1).astype(np.int8)
    np.testing.assert_array_equal(out(report, 3).reshape(32, 4), moved)
    np.testing.assert_array_equal(out(report, 4), u > 100)
    np.testing.assert_array_equal(out(report, 5), (u.astype(int) * 3).astype(np.uint8))
    np.testing.assert_array_equal(out(report, 6), (np.trunc(s / 3) - u).astype(np.int16))
    np.testing.assert_array_equal(out(report, 7), (s.astype(np.int8).astype(int) * 5).astype(np.int8))


def test_shuffles_and_named_barriers() -> None:
    ran("misc:clocks", "32", (1,), {"t": zeros(32, np.int64)})
    found = out(ran("misc:warps", "128", (1,), {"x": X[:128], "y": zeros(128)}), 1).reshape(4, 32)
    lanes = np.arange(32)
    for warp, x in enumerate(X[:128].reshape(4, 32)):
        up = np.where(lanes % 16 >= 2, x[lanes - 2], x)
        down = np.where(lanes + 7 < 32, x[(lanes + 7) % 32], x)
        v = x + x[3] + x[lanes // 8 * 8 + (32 * warp + lanes + 1) % 8] + x[lanes ^ 5] + up + down
        d, q = v[9], (32 * warp + lanes) ^ 1
        v = np.where(lanes % 2 == 1, v + v[1], v)
        np.testing.assert_array_equal(found[warp], v + d + q)


def parts(values: np.ndarray, kind: str) -> np.ndarray:
    """Words as rows of their parts, in whole numbers."""
    return np.ascontiguousarray(values).view(kind).reshape(len(values), -1).astype(np.int64)


def words(rows: np.ndarray, kind: str) -> np.ndarray:
    return rows.astype(np.int64).astype(kind).view(np.uint32).ravel()


def test_operations_on_the_parts_of_words() -> None:
    x = RANDOM.integers(0, 2**32, 64).astype(np.uint32)
    a, b = x[:32], x[32:]
    s2, t2, u2, v2 = parts(a, "i2"), parts(b, "i2"), parts(a, "u2"), parts(b, "u2")
    u4, v4, s4, t4 = parts(a, "u1"), parts(b, "u1"), parts(a, "i1"), parts(b, "i1")
    found = out(ran("simd:simd", "32", (1,), {"x": x, "y": zeros(512, np.uint32)}), 1).reshape(16, 32)
    expected = [
        words(s2 + t2, "i2"), words(s4 - t4, "i1"), words(np.clip(s2 + t2, -32768, 32767), "i2"),
        words(np.minimum(u4 + v4, 255), "u1"), words(np.abs(s2 - t2), "u2"), words(np.abs(u4 - v4), "u1"),
        words((u4 + v4 + 1) // 2, "u1"), words(np.where(s2 > t2, 0xFFFF, 0), "u2"), words(np.maximum(s2, t2), "i2"),
        words(np.minimum(u4, v4), "u1"), np.abs(u4 - v4).sum(1), np.abs(u2 - v2).sum(1), words(u4 == v4, "u1"), words(-s4, "i1"),
        ((s2 * t4[:, :2]).sum(1) + 5).astype(np.int32).view(np.uint32), (u4 * v4).sum(1) + 5,
    ]  # fmt: skip
    for row, right in zip(found, expected):
        np.testing.assert_array_equal(row, right)


def test_operations_on_bits() -> None:
    x, l = RANDOM.integers(0, 2**32, 32).astype(np.uint32), RANDOM.integers(-(2**62), 2**62, 32)
    report = ran(
        "misc:bits", "32", (1,), {"x": x, "y": zeros(32, np.uint32), "l": l, "m": zeros(32, np.int64)}
    )

    def signed(value: int, bits: int = 32) -> int:
        value &= (1 << bits) - 1
        return value - (1 << bits) if value >> bits - 1 else value

    def divided(a: int, b: int) -> int:
        return abs(a) // b * (1 if a >= 0 else -1)

    def of_word(i: int, v: int) -> int:
        data = v.to_bytes(4, "little") + (0x12345678).to_bytes(4, "little")
        select = 0x3210 + (i & 7)
        permuted = sum(data[select >> 4 * n & 7] << 8 * n for n in range(4))
        bytes_ = list(v.to_bytes(4, "little"))
        added = sum(
            (byte + other & 255) << 8 * n for n, (byte, other) in enumerate(zip(bytes_, [4, 3, 2, 1]))
        )
        apart = sum(
            abs(byte - other) << 8 * n
            for n, (byte, other) in enumerate(zip(bytes_, [0x44, 0x33, 0x22, 0x11]))
        )
        total = (
            v.bit_count()
            + 3 * (32 - v.bit_length())
            + 5 * ((v & -v).bit_length())
            + int(f"{v:032b}"[::-1], 2)
            + permuted
        )
        total += ((i << 32 | v) << 5 >> 32) + (v * 77777 >> 32) + added
        total += sum(signed(byte, 8) for byte in bytes_) + 3 + abs(signed(v) - 3) + 4 + abs(v - 5) + 7
        return total + signed(v & 0xFFFFFF, 24) * 3 + (signed(v) + 3 + 1 >> 1) + apart

    def of_long(i: int, w: int) -> int:
        plain, v = w & (1 << 64) - 1, int(x[i])
        total = (
            divided(w, 7)
            + (w - 13 * divided(w, 13))
            + plain.bit_count()
            + 64
            - plain.bit_length()
            + (plain & -plain).bit_length()
        )
        total += (
            int(f"{plain:064b}"[::-1], 2)
            + (w >> 5)
            + (plain * 12345678912345 >> 64)
            + (w * 3 >> 64)
            + w * w
            + abs(w)
            + max(w, 3)
        )
        return total + (divided(w, v) if v else 0) + (w << (i & 31))

    assert out(report, 1).tolist() == [of_word(i, int(v)) & 0xFFFFFFFF for i, v in enumerate(x)]
    assert out(report, 3).tolist() == [signed(of_long(i, int(w)), 64) for i, w in enumerate(l)]
