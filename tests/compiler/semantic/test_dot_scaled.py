"""Dots of operands with a scale for every 32 elements along K, against numpy."""

import numpy as np
import pytest

import kbuild
import kbuild.language as tl
from kbuild.compiler.frontend import build_module
from kbuild.compiler.interp import decode
from kbuild.compiler.ir.types import F8E4M3FN, F8E5M2
from kbuild.compiler.library.scaled import _scaled
from kbuild.emulator import load, run
from kbuild.errors import KbuildError
from tests.zoo.case import bf16

M, N, K = 32, 16, 64
FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
RNG = np.random.default_rng(5)


@kbuild.jit
def scaled_dot(
    a,
    sa,
    b,
    sb,
    out,
    FA: tl.constexpr,
    FB: tl.constexpr,
    AK: tl.constexpr,
    AM: tl.constexpr,
    BK: tl.constexpr,
    BN: tl.constexpr,
    HAS_SB: tl.constexpr,
    PACK: tl.constexpr,
):
    m, n, g = tl.arange(0, 32), tl.arange(0, 16), tl.arange(0, 2)
    x = tl.load(a + tl.arange(0, AM)[:, None] * AK + tl.arange(0, AK)[None, :])
    y = tl.load(b + tl.arange(0, BK)[:, None] * BN + tl.arange(0, BN)[None, :])
    left = tl.load(sa + m[:, None] * 2 + g[None, :])
    right = tl.load(sb + n[:, None] * 2 + g[None, :]) if HAS_SB else None
    total = tl.dot_scaled(
        x, left, FA, y, right, FB, tl.zeros((32, 16), tl.float32) + 1, lhs_k_pack=PACK, rhs_k_pack=PACK
    )
    tl.store(out + m[:, None] * 16 + n[None, :], total)


def operand(form: str, shape: tuple[int, int], packed_axis: int) -> tuple[np.ndarray, np.ndarray]:
    """What the kernel is given, and the numbers that are meant."""
    if form == "e2m1":
        codes = RNG.integers(0, 16, shape).astype(np.uint8)
        low, high = (codes.take(range(start, shape[packed_axis], 2), packed_axis) for start in (0, 1))
        return low | high << 4, FP4[codes]
    if form == "fp16":
        values = (RNG.integers(-8, 9, shape) / 4).astype(np.float16)
        return values, values.astype(np.float64)
    codes = (RNG.integers(0x30, 0x48, shape) | RNG.integers(0, 2, shape) << 7).astype(np.uint8)
    return codes, decode(codes, {"e4m3": F8E4M3FN, "e5m2": F8E5M2}[form]).astype(np.float64)


@pytest.mark.parametrize(
    ("left", "right", "k_pack", "has_right"),
    [
        ("e2m1", "e4m3", True, True),
        ("e4m3", "e5m2", True, False),
        ("fp16", "e2m1", True, True),
        ("e2m1", "e2m1", False, True),
    ],
)
def test_scaled_dot(left: str, right: str, k_pack: bool, has_right: bool) -> None:
    a, x = operand(left, (M, K), 1 if k_pack else 0)
    b, y = operand(right, (K, N), 0 if k_pack else 1)
    scales = [RNG.integers(125, 130, (rows, K // 32)).astype(np.uint8) for rows in (M, N)]
    out = np.zeros((M, N), np.float32)
    scaled_dot.interpret[1](
        a,
        scales[0],
        b,
        scales[1],
        out,
        FA=left,
        FB=right,
        AM=a.shape[0],
        AK=a.shape[1],
        BK=b.shape[0],
        BN=b.shape[1],
        HAS_SB=has_right,
        PACK=k_pack,
    )
    factors = [np.repeat(2.0 ** (scale.astype(int) - 127), 32, 1) for scale in scales]
    wanted = 1 + (x * factors[0]) @ (y * (factors[1].T if has_right else 1))
    np.testing.assert_allclose(out, wanted, rtol=1e-6)


def test_a_scale_of_255_is_no_number() -> None:
    a, b = np.full((M, K // 2), 0x22, np.uint8), np.full((K // 2, N), 0x22, np.uint8)
    scales, out = [np.full((rows, 2), 127, np.uint8) for rows in (M, N)], np.zeros((M, N), np.float32)
    scales[0][3, 1] = 255
    scaled_dot.interpret[1](
        a,
        scales[0],
        b,
        scales[1],
        out,
        FA="e2m1",
        FB="e2m1",
        AM=M,
        AK=K // 2,
        BK=K // 2,
        BN=N,
        HAS_SB=True,
        PACK=True,
    )
    assert np.isnan(out[3]).all() and (np.delete(out, 3, 0) == 65).all()


@kbuild.jit
def scaled_codes(
    x,
    s,
    out,
    FORM: tl.constexpr,
    BYTES: tl.constexpr,
    WIDTH: tl.constexpr,
    DTYPE: tl.constexpr,
    FAST: tl.constexpr,
):
    rows, groups = tl.program_id(0) * 16 + tl.arange(0, 16), tl.arange(0, WIDTH // 32)
    codes = tl.load(x + rows[:, None] * BYTES + tl.arange(0, BYTES)[None, :])
    scale = tl.load(s + rows[:, None] * (WIDTH // 32) + groups[None, :])
    wide = _scaled(codes, scale, FORM, True, DTYPE, FAST)
    tl.store(out + rows[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :], wide.to(tl.uint16, bitcast=True))


def scaled_exactly(values: np.ndarray, scales: np.ndarray, dtype: object, fast: bool) -> np.ndarray:
    """The bits of numbers, each with each scale, rounded once."""
    factors = np.ldexp(1.0, scales.astype(int) - 127)
    factors[0], factors[255] = 0, np.inf if fast else np.nan
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype == tl.bfloat16:
            # No product has more bits than an f32, nor is one less than its least.
            return bf16((factors[:, None] * values).astype(np.float32)).data
        return (factors.astype(np.float16)[:, None] * values).astype(np.float16).view(np.uint16)


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("dtype", [tl.bfloat16, tl.float16], ids=["bf16", "fp16"])
@pytest.mark.parametrize("form", ["e2m1", "e4m3", "e5m2"])
def test_every_code_is_scaled_by_every_scale(form: str, dtype: tl.dtype, fast: bool) -> None:
    if form == "e2m1":
        numbers = np.arange(32, dtype=np.uint8) & 15
        line, values = numbers[::2] | numbers[1::2] << 4, FP4[numbers]
    else:
        line = np.arange(256, dtype=np.uint8)
        values = decode(line, {"e4m3": F8E4M3FN, "e5m2": F8E5M2}[form]).astype(np.float64)
    width, scales = len(values), np.arange(256, dtype=np.uint8)
    given = [np.tile(line, (256, 1)), np.tile(scales[:, None], (1, width // 32))]
    constants = {"FORM": form, "BYTES": len(line), "WIDTH": width, "DTYPE": dtype, "FAST": fast}
    wanted = scaled_exactly(values, scales, dtype, fast)
    out = np.zeros((256, width), np.uint16)
    scaled_codes.interpret[16](*given, out, **constants)
    results = [out]
    for arch in ("sm_80", "sm_90"):
        signature = {"x": "*u8:16", "s": "*u8", "out": "*u16:16"}
        made = kbuild.compile(
            scaled_codes, signature=signature, constexprs=constants, target=arch, stop="ptx"
        )
        arrays = [*given, np.zeros_like(out)]
        program = load(made.asm["ptx"], "scaled_codes")
        written = run(program, None, (16,), 4, made.metadata.shared, arrays).outputs[2]
        assert written is not None
        results.append(written)
    infinity = 0x7F80 if dtype == tl.bfloat16 else 0x7C00
    for result in results:
        # Which NaN it is does not matter: a dot gives the same for all.
        nan = wanted & 0x7FFF > infinity
        np.testing.assert_array_equal(result & 0x7FFF > infinity, nan)
        np.testing.assert_array_equal(result[~nan], wanted[~nan])


def test_two_elements_are_scaled_by_an_instruction() -> None:
    constants = {"FORM": "e2m1", "BYTES": 128, "WIDTH": 256, "DTYPE": tl.bfloat16, "FAST": False}
    signature = {"x": "*u8:16", "s": "*u8", "out": "*u16:16"}
    made = kbuild.compile(scaled_codes, signature=signature, constexprs=constants, target="sm_90", stop="ptx")
    text = made.asm["ptx"]
    per_thread = 16 * 256 // 128
    assert text.count("mul.bf16x2") == per_thread  # Two for each pair.
    assert "mul.bf16 " not in text and "mov.b32 \t{" not in text
    assert text.count("selp.b16") <= 2  # A NaN for each scale.


def test_formats_and_shapes_are_checked() -> None:
    signature = dict.fromkeys(("a", "sa", "b", "sb"), "*u8") | {"out": "*fp32"}
    given = {"FA": "e3m0", "FB": "e4m3", "AM": 32, "AK": 64, "BK": 64, "BN": 16, "HAS_SB": True, "PACK": True}
    with pytest.raises(KbuildError, match="are e2m1, e4m3, e5m2, bf16 and fp16"):
        build_module(scaled_dot, signature, given)
    with pytest.raises(KbuildError, match="a scale for every 32 elements along K"):
        build_module(scaled_dot, signature, given | {"FA": "e2m1"})
