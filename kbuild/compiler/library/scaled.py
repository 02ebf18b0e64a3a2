"""`tl.dot_scaled`, written in the language itself; read as standard.py is.

Operands in the formats of the OCP Microscaling specification (v1.0, 2023): every 32 elements along K have a
scale in common, a power of two in 8 bits (E8M0).  The GPUs that kbuild compiles for cannot multiply such
numbers: they are widened first, as by Triton.
"""

import kbuild
import kbuild.language as tl


@kbuild.jit
def dot_scaled(
    lhs,
    lhs_scale,
    lhs_format: tl.constexpr,
    rhs,
    rhs_scale,
    rhs_format: tl.constexpr,
    acc=None,
    fast_math: tl.constexpr = False,
    lhs_k_pack: tl.constexpr = True,
    rhs_k_pack: tl.constexpr = True,
    out_dtype: tl.constexpr = None,
):
    """The matrix product of operands with a scale for every 32 elements along K: `lhs_scale` is M × K / 32
    bytes, `rhs_scale` N × K / 32, or None; formats are "e2m1" (two to a byte, along K unless `lhs_k_pack` or
    `rhs_k_pack` is false), "e4m3", "e5m2", "bf16" and "fp16". They are multiplied in bf16, or in fp16 if one
    of them is."""
    dtype: tl.constexpr = tl.float16 if lhs_format == "fp16" or rhs_format == "fp16" else tl.bfloat16
    left = _scaled(lhs, lhs_scale, lhs_format, lhs_k_pack, dtype, fast_math)
    right = _scaled(tl.trans(rhs), rhs_scale, rhs_format, rhs_k_pack, dtype, fast_math)
    return tl.dot(left, tl.trans(right), acc, out_dtype=tl.float32 if out_dtype is None else out_dtype)


@kbuild.jit
def _scaled(x, scale, form: tl.constexpr, k_pack: tl.constexpr, dtype: tl.constexpr, fast_math: tl.constexpr):
    """A matrix whose second dimension is K, in `dtype`, multiplied by its scales."""
    known: tl.constexpr = form in ("e2m1", "e4m3", "e5m2", "bf16", "fp16")
    tl.static_assert(known, "formats of tl.dot_scaled are e2m1, e4m3, e5m2, bf16 and fp16")
    if form == "e2m1":
        wide = _fp4(x, dtype) if k_pack else tl.trans(_fp4(tl.trans(x), dtype))
    elif form == "e4m3":
        wide = x.to(tl.float8e4nv, bitcast=True).to(dtype)
    elif form == "e5m2":
        wide = x.to(tl.float8e5, bitcast=True).to(dtype)
    else:
        wide = x.to(dtype)
    if scale is None:
        return wide
    else:
        rows: tl.constexpr = wide.shape[0]
        groups: tl.constexpr = wide.shape[1] // 32
        fits: tl.constexpr = scale.shape[0] == rows and scale.shape[1] == groups
        tl.static_assert(
            fits, "tl.dot_scaled needs a scale for every 32 elements along K: K / 32 columns of them"
        )
        factor = _factor(scale.to(tl.uint8, bitcast=True), dtype, fast_math)
        # Each factor 32 times, one after the other.
        spread = tl.broadcast_to(factor[:, :, None], (rows, groups, 32))
        return wide * tl.reshape(spread, (rows, groups * 32))


@kbuild.jit
def _factor(codes, dtype: tl.constexpr, fast_math: tl.constexpr):
    """Scales as numbers; 255, which is none, unless `fast_math` leaves it infinite."""
    if dtype == tl.bfloat16:
        factor = (codes.to(tl.uint16) << 7).to(tl.bfloat16, bitcast=True)
    else:
        factor = (codes.to(tl.uint32) << 23).to(tl.float32, bitcast=True).to(tl.float16)
    if fast_math:
        return factor
    else:
        return tl.where(codes == 255, float("nan"), factor)


@kbuild.jit
def _fp4(x, dtype: tl.constexpr):
    """The two numbers of each byte, the one in the lower bits first, in 16 bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and
    their negatives."""
    # Both to the upper ends of the halves of a word: the signs are in place.
    spread = x.to(tl.uint8, bitcast=True).to(tl.uint32) * 0x01001000
    # Two bits of exponent and one of mantissa are a number of the wide type with another bias, 0.5 a subnormal one.
    if dtype == tl.bfloat16:
        word = (spread & 0x80008000) | ((spread >> 6) & 0x01C001C0)
        rebase: tl.constexpr = 2.0**126
    else:
        word = (spread & 0x80008000) | ((spread >> 3) & 0x0E000E00)
        rebase: tl.constexpr = 2.0**14
    halves = tl.interleave(word.to(tl.uint16), (word >> 16).to(tl.uint16))
    return halves.to(dtype, bitcast=True) * rebase
