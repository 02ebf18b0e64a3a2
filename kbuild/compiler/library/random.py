"""Random numbers by counter: Philox 4x32 and 4x64 (Salmon et al., SC11), with the streams of
`triton.language`.

The frontend reads this file as it reads a user's, one function at a time; nothing imports it.
"""

import kbuild
import kbuild.language as tl


@kbuild.jit
def philox_impl(c0, c1, c2, c3, k0, k1, n_rounds: tl.constexpr = 10):
    """Rounds of Philox on four counters and two keys, uint32 or uint64."""
    wide: tl.constexpr = c0.dtype == tl.uint64
    tl.static_assert(wide or c0.dtype == tl.uint32, "Philox is for uint32 and uint64")
    raise_0: tl.constexpr = 0x9E3779B97F4A7C15 if wide else 0x9E3779B9
    raise_1: tl.constexpr = 0xBB67AE8584CAA73B if wide else 0xBB67AE85
    factor_0: tl.constexpr = 0xD2E7470EE14C6C93 if wide else 0xD2511F53
    factor_1: tl.constexpr = 0xCA5A826395121157 if wide else 0xCD9E8D57
    for _ in tl.static_range(n_rounds):
        m0 = tl.full([], factor_0, c0.dtype)
        m1 = tl.full([], factor_1, c0.dtype)
        high_0, high_2 = tl.umulhi(m0, c0), tl.umulhi(m1, c2)
        low_0, low_2 = (
            tl.mul(c0, factor_0, sanitize_overflow=False),
            tl.mul(c2, factor_1, sanitize_overflow=False),
        )
        c0, c2 = high_2 ^ c1 ^ k0, high_0 ^ c3 ^ k1
        c1, c3 = low_2, low_0
        k0, k1 = tl.add(k0, raise_0, sanitize_overflow=False), tl.add(k1, raise_1, sanitize_overflow=False)
    return c0, c1, c2, c3


@kbuild.jit
def philox(seed, c0, c1, c2, c3, n_rounds: tl.constexpr = 10):
    """Four random integers for a seed and four counters, of the counters' width."""
    seed = tl.to_tensor(seed)
    tl.static_assert(seed.dtype.is_int(), "the seed must be an integer")
    seed = seed.to(tl.uint64)
    c0, c1, c2, c3 = tl.to_tensor(c0), tl.to_tensor(c1), tl.to_tensor(c2), tl.to_tensor(c3)
    dtype: tl.constexpr = tl.get_int_dtype(c0.dtype.primitive_bitwidth, False)
    if c0.dtype.primitive_bitwidth == 64:
        low, high = seed, tl.full([1], 0, tl.uint64)
    else:
        low, high = (seed & 0xFFFFFFFF).to(tl.uint32), ((seed >> 32) & 0xFFFFFFFF).to(tl.uint32)
    c0, c1, c2, c3 = (
        c0.to(dtype, bitcast=True),
        c1.to(dtype, bitcast=True),
        c2.to(dtype, bitcast=True),
        c3.to(dtype, bitcast=True),
    )
    return philox_impl(c0, c1, c2, c3, low, high, n_rounds)


@kbuild.jit
def randint4x(seed, offset, n_rounds: tl.constexpr = 10):
    """Four blocks of random integers for a scalar seed and a block of offsets: the cheapest way to many."""
    offset = tl.to_tensor(offset)
    low = offset.to(tl.uint32)
    none = low * 0
    if offset.dtype.primitive_bitwidth > 32:
        high = (offset >> 32).to(tl.uint32)
    else:
        high = none
    return philox(seed, low, high, none, none, n_rounds)


@kbuild.jit
def randint(seed, offset, n_rounds: tl.constexpr = 10):
    """A block of random integers for a scalar seed and a block of offsets."""
    first, _, _, _ = randint4x(seed, offset, n_rounds)
    return first


@kbuild.jit
def uint_to_uniform_float(x):
    """A random integer as a number from 0 up to, not including, 1."""
    # The scales make the greatest integer stay below one after rounding to fp32.
    if x.dtype.primitive_bitwidth == 32:
        x = x.to(tl.int32, bitcast=True)
        scale = 4.6566127342e-10
    else:
        tl.static_assert(x.dtype.primitive_bitwidth == 64, "random integers have 32 or 64 bits")
        x = x.to(tl.int64, bitcast=True)
        scale = 1.0842020432385337e-19
    return tl.where(x < 0, ~x, x) * scale


@kbuild.jit
def rand(seed, offset, n_rounds: tl.constexpr = 10):
    """A block of fp32 numbers, evenly from 0 up to, not including, 1."""
    return uint_to_uniform_float(randint(seed, offset, n_rounds))


@kbuild.jit
def rand4x(seed, offsets, n_rounds: tl.constexpr = 10):
    """Four blocks of fp32 numbers, evenly from 0 up to, not including, 1."""
    a, b, c, d = randint4x(seed, offsets, n_rounds)
    return (
        uint_to_uniform_float(a),
        uint_to_uniform_float(b),
        uint_to_uniform_float(c),
        uint_to_uniform_float(d),
    )


@kbuild.jit
def pair_uniform_to_normal(u1, u2):
    """Two even random numbers as two normal ones (Box and Muller)."""
    radius = tl.sqrt(-2.0 * tl.log(tl.maximum(1.0e-7, u1)))
    angle = 6.283185307179586 * u2
    return radius * tl.cos(angle), radius * tl.sin(angle)


@kbuild.jit
def randn(seed, offset, n_rounds: tl.constexpr = 10):
    """A block of fp32 numbers, normally distributed with mean 0 and variance 1."""
    a, b, _, _ = randint4x(seed, offset, n_rounds)
    first, _ = pair_uniform_to_normal(uint_to_uniform_float(a), uint_to_uniform_float(b))
    return first


@kbuild.jit
def randn4x(seed, offset, n_rounds: tl.constexpr = 10):
    """Four blocks of fp32 numbers, normally distributed with mean 0 and variance 1."""
    a, b, c, d = rand4x(seed, offset, n_rounds)
    first, second = pair_uniform_to_normal(a, b)
    third, fourth = pair_uniform_to_normal(c, d)
    return first, second, third, fourth
