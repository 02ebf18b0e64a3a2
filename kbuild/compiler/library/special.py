"""The error functions, their inverses, and the gamma function of `tl.extra.cuda.libdevice`, written in the language.

The frontend reads this file as it reads a user's, one function at a time; nothing imports it.  Numbers of fp32 are
computed with in fp64 and rounded once.  Polynomials are Chebyshev's interpolations, in ascending powers.
"""

import kbuild
import kbuild.language as tl
from kbuild.compiler.library.libdevice import _floating, _polynomial

# Error functions


@kbuild.jit
def _scaled_erfc(x):
    """erfc(x) · e^(x²) of fp64 numbers from 0 on."""
    bounded = tl.minimum(x, 1e8)
    place = (bounded - 4.0) / (bounded + 4.0)
    result = _polynomial(
        place,
        "1.2329951186255526 -0.1396211168405625 0.015379652102620024 0.06809705425469155 "
        "-0.10103906603632411 0.09373283499839673 -0.06633036581166878 0.03716751553662523 "
        "-0.016197734065721506 0.00503196998609679 -0.0007577732211017557 -0.0001992567370479886 "
        "0.0001506213142825075 -2.439909541377841e-05 -1.1220773339263308e-05 5.709608316143853e-06 "
        "2.909459896658698e-07 -8.256651243681974e-07 7.888001536183222e-08 1.110561122044458e-07 "
        "-2.186683817996548e-08 -1.554950739140137e-08 3.949909948816316e-09 2.268368209002785e-09 "
        "-5.373765873743771e-10 -2.9679753749361834e-10 4.175645306749228e-11 2.3603010398894445e-11",
    )
    return tl.where(x > 1e8, 0.5641895835477563 / x, result / tl.fma(bounded, 2.0, 1.0))


@kbuild.jit
def _power_of_square(x, sign: tl.constexpr):
    """e^(±x²), as exact as the square's own rounding would not let it be."""
    square = x * x
    lost = tl.fma(x, x, -square)
    power = tl.extra.libdevice.exp(sign * square)
    corrected = tl.fma(power, sign * lost, power)
    return tl.where((power > 0.0) & (power < float("inf")), corrected, power)


@kbuild.jit
def _erfcx(x):
    size = tl.abs(x)
    low = tl.minimum(size, 0.5)
    result = tl.where(size < 0.5, _power_of_square(low, 1) * (1.0 - tl.erf(low)), _scaled_erfc(size))
    bounded = tl.minimum(size, 27.5)
    result = tl.where(x < 0.0, 2.0 * _power_of_square(bounded, 1) - result, result)
    return tl.where(x == x, result, x)


@kbuild.jit
def erfcx(x):
    """erfc(x) · e^(x²)."""
    x = _floating(x)
    return _erfcx(x.to(tl.float64)).to(x.dtype)


@kbuild.jit
def erfc(x):
    """One minus the error function."""
    x = _floating(x)
    if x.dtype == tl.float32:
        return tl.extra.libdevice._erfc_of_single(x)
    else:
        size = tl.minimum(tl.abs(x), 28.0)
        tail = _power_of_square(size, -1) * _scaled_erfc(size)
        far = tl.where(x < 0.0, 2.0 - tail, tail)
        return tl.where(tl.abs(x) < 0.5, 1.0 - tl.erf(x), tl.where(x == x, far, x))


@kbuild.jit
def normcdf(x):
    """The normal distribution function."""
    x = _floating(x)
    if x.dtype == tl.float32:
        return tl.extra.libdevice._normcdf_of_single(x)
    else:
        # -x / √2 with what rounding it loses, to which the distribution is as sensitive as it is steep.
        high: tl.constexpr = -0.7071067811865476
        low: tl.constexpr = 4.833646656726458e-17
        point = tl.minimum(tl.maximum(x, -39.0), 39.0) * high
        lost = tl.fma(x, tl.full(x.shape, high, x.dtype), -point) + x * low
        slope = -1.1283791670955126 * _power_of_square(point, -1)
        lost = tl.where(tl.abs(x) < 39.0, lost, 0.0)
        return tl.where(x == x, 0.5 * tl.fma(slope, lost, erfc(point)), x)


@kbuild.jit
def _inverse(share, rest):
    """The x > 0 of which `share` is erf and `rest` erfc, over erf: the one that is exact says where it is."""
    w = -tl.log(rest * (2.0 - rest))
    near = tl.minimum(tl.where(w == w, w, 0.0), 6.25)
    # Each polynomial is in what goes from -1 to 1.
    result = _polynomial(
        near * 0.32 - 1.0,
        "1.6536545626831027 0.7504943200799635 -0.05892256710377776 -0.022604447453443456 "
        "0.0178083618182864 -0.004137314377608356 -0.0012716922681452305 0.0012324855714150825 "
        "-0.00026439367265384113 -0.0001168888613668622 9.33674257056204e-05 -1.5027607439814445e-05 "
        "-1.1257487509621711e-05 7.129738176616706e-06 -6.831738505681537e-07 -1.05867012528915e-06 "
        "5.382475338281724e-07 -1.1054078877580827e-08 -9.693395129003795e-08 3.9874205572154e-08 "
        "3.0790833092515105e-09 -8.872065777049693e-09 2.6173163299503537e-09 7.763178179521467e-10 "
        "-6.620380255094101e-10 4.956152364549936e-11 6.267310322131249e-11 -1.4494737433982913e-11",
    )
    root = tl.sqrt(tl.maximum(w, 6.25))
    inverse = 1.0 / root
    bounded = tl.maximum(inverse, 0.15)
    far = _polynomial(
        (bounded - 0.275) * 8.0,
        "0.9550503165665903 -0.024139600015004554 0.0019080567117668158 0.0010871618429124281 "
        "0.00011985868091035657 0.00035601391409587616 0.00014312339093443147 -8.627346668899468e-05 "
        "-0.00011745615803713817 1.9702938015835702e-05 6.467848506612905e-05 -1.1120066533682012e-05 "
        "-3.235648830778558e-05 1.1825534053778791e-05 1.3205472481140814e-05 -1.0138723771273068e-05 "
        "-2.685246517058127e-06 6.095096265732917e-06 -1.5654312217212176e-06 -2.149480057465283e-06 "
        "1.977235933279223e-06 -1.0581239128224252e-07 -1.0036745046505184e-06 6.904786370604025e-07 "
        "1.9005515536705807e-07 -4.725348680479035e-07 8.828618429970034e-08 1.767822188741134e-07 "
        "-7.535738318960658e-08 -3.6771131395010113e-08 2.293767032437246e-08 3.003878050543769e-09 "
        "-2.7833010194072665e-09 1.2126585087579033e-10",
    )
    bounded = tl.minimum(tl.maximum(inverse, 0.035), 0.15)
    farthest = _polynomial(
        (bounded - 0.0925) * 17.391304347826086,
        "0.9903086844633116 -0.00940447675570054 -0.0012833388946871269 0.0003372616547251487 "
        "-5.347946471149107e-05 1.2999760950058596e-05 -4.112658812964903e-06 1.4660465908305957e-06 "
        "-5.692265533097085e-07 2.3577526042427917e-07 -1.025638315109473e-07 4.635565410898414e-08 "
        "-2.158224950698107e-08 1.0316053750391216e-08 -5.1244656777212175e-09 2.5537149917118196e-09 "
        "-1.07765650164046e-09 5.411479389149532e-10 -6.457008115806721e-10 3.515445605882783e-10 "
        "2.5608818537265063e-10 -1.4837688780591062e-10 -2.872004350592363e-10 1.6205983331296726e-10 "
        "1.1104127940576097e-10 -6.302375637221479e-11 -2.902691090055566e-11 1.637798367629654e-11",
    )
    far = root * tl.where(inverse < 0.15, farthest, far)
    return share * tl.where(w > 6.25, far, result)


@kbuild.jit
def _erfinv(x):
    size = tl.abs(x)
    result = _inverse(x, 1.0 - size)
    result = tl.where(size == 1.0, x * float("inf"), result)
    # As it is, where the logarithm would be of one.
    result = tl.where(size < 1e-8, x * 0.8862269254527580, result)
    return tl.where(size <= 1.0, result, float("nan"))


@kbuild.jit
def erfinv(x):
    """The number whose error function is x."""
    x = _floating(x)
    return _erfinv(x.to(tl.float64)).to(x.dtype)


@kbuild.jit
def _erfcinv(x):
    rest = tl.where(x > 1.0, 2.0 - x, x)
    result = tl.where(tl.abs(1.0 - x) < 1e-8, (1.0 - x) * 0.8862269254527580, _inverse(1.0 - x, rest))
    result = tl.where(rest == 0.0, tl.where(x > 1.0, float("-inf"), float("inf")), result)
    return tl.where((x >= 0.0) & (x <= 2.0), result, float("nan"))


@kbuild.jit
def erfcinv(x):
    """The number whose complementary error function is x."""
    x = _floating(x)
    return _erfcinv(x.to(tl.float64)).to(x.dtype)


@kbuild.jit
def normcdfinv(x):
    """The number below which a normally distributed one is with probability x."""
    x = _floating(x)
    return (-1.4142135623730951 * _erfcinv(2.0 * x.to(tl.float64))).to(x.dtype)


# The gamma function


@kbuild.jit
def _log_of_gamma(x):
    """log Γ of fp64 numbers above zero."""
    # Below 8 the number is moved to where a polynomial is, by Γ(x + 1) = x·Γ(x).
    moved = tl.where(x < 0.65, x + 1.0, tl.minimum(x, 8.0))
    factor = tl.full(x.shape, 1.0, x.dtype)
    for _ in tl.static_range(5):
        above = moved >= 3.0
        moved = tl.where(above, moved - 1.0, moved)
        factor = tl.where(above, factor * moved, factor)
    first = moved < 1.5
    from_one, from_two = moved - 1.0, moved - 2.0
    around_one = _polynomial(
        tl.where(first, from_one, 0.0),
        "-0.5772156649015329 0.8224670334241132 -0.4006856343865315 0.27058080842778454 "
        "-0.20738555102865866 0.16955717699739548 -0.14404989677091354 0.12550966952794146 "
        "-0.11133426572642799 0.10009945720524321 -0.09095402289938237 0.08335385628056134 "
        "-0.07693237448909085 0.07143246343494355 -0.06667086071264601 0.06251032730481444 "
        "-0.058805430327126346 0.055439088641784755 -0.052685174742574364 0.050908960719463645 "
        "-0.04816444863140763 0.04142491213858425 -0.037300575946467004 0.04868673271607463 "
        "-0.06300944516699562 0.0490246314826111 -0.016004283927076205",
    )
    around_two = _polynomial(
        tl.where(first, 0.0, from_two),
        "0.42278433509846713 0.3224670334241132 -0.06735230105319809 0.020580808427784435 "
        "-0.007385551028674139 0.002890510330748136 -0.0011927539117035553 0.0005096695245693555 "
        "-0.00022315475828452692 9.945751517388788e-05 -4.492624096325781e-05 2.0507195202221444e-05 "
        "-9.439440499307966e-06 4.374923397996977e-06 -2.0395006933611473e-06 9.5520165428538e-07 "
        "-4.4839053621808377e-07 2.1105056481225418e-07 -1.0123438317925032e-07 5.0297400098335534e-08 "
        "-2.4292908348961975e-08 9.641643145630568e-09 -2.5317840682215007e-09 3.128546330715388e-10",
    )
    small = tl.where(first, from_one * around_one, from_two * around_two)
    small = tl.where(x < 0.65, small - tl.log(x), tl.where(x >= 3.0, small + tl.log(factor), small))
    # Stirling's series, from 8 on.
    large = tl.maximum(x, 8.0)
    inverse = 1.0 / large
    series = inverse * _polynomial(
        inverse * inverse,
        "0.08333333333333333 -0.002777777777777778 0.0007936507936507937 -0.0005952380952380953 "
        "0.0008417508417508417 -0.0019175269175269176 0.00641025641025641 -0.029550653594771242",
    )
    large = tl.fma(large - 0.5, tl.log(large) - 1.0, 0.41893853320467274 + series)
    return tl.where(x >= 8.0, tl.where(x > 1e300, x * (tl.log(x) - 1.0), large), small)


@kbuild.jit
def _lgamma(x):
    size = tl.abs(x)
    positive = _log_of_gamma(size)
    # Γ(x)·Γ(-x) = -π / (x·sin(πx))
    sine = tl.abs(tl.extra.libdevice.sinpi(x))
    reflected = tl.log(3.141592653589793 / (size * sine)) - positive
    tiny = -tl.log(size)
    result = tl.where(x > 0.0, positive, tl.where(size < 1e-17, tiny, reflected))
    result = tl.where((x <= 0.0) & (sine == 0.0), float("inf"), result)
    return tl.where(size < float("inf"), result, tl.abs(x))


@kbuild.jit
def lgamma(x):
    """The logarithm of the size of the gamma function."""
    x = _floating(x)
    return _lgamma(x.to(tl.float64)).to(x.dtype)


@kbuild.jit
def _gamma_of_one(x):
    """Γ of a scalar from -190 to 171.6: of its neighbour from 2 to 3, times or by the steps between, which are exact,
    their product in two parts."""
    high, low, scale = x * 0.0 + 1.0, x * 0.0, 0
    moved = x
    while moved >= 3.0:
        moved = moved - 1.0
        product = high * moved
        low = tl.fma(high, moved, -product) + low * moved
        high = product
    while moved < 2.0:
        product = high * moved
        low = tl.fma(high, moved, -product) + low * moved
        high = product
        moved = moved + 1.0
        if tl.abs(high) > 1e150:
            high, low, scale = high * 8.636168555094445e-78, low * 8.636168555094445e-78, scale + 1
    value = _polynomial(
        moved - 2.0,
        "1.0 0.42278433509846713 0.41184033042643836 0.0815769192471557 0.07424901075155826 "
        "-0.00026698203498338384 0.011154045328705568 -0.0028526426460725143 0.0021039143178921897 "
        "-0.0009194877484586045 0.0004900882591621581 -0.00024012341904304418 0.00011991441464709062 "
        "-5.778577539914393e-05 2.6349737751650363e-05 -1.074404498379401e-05 3.6551453449052615e-06 "
        "-9.450619433212127e-07 1.6145935549310183e-07 -1.3455594745344375e-08",
    )
    if x >= 3.0:
        value = tl.fma(value, low, value * high)
    else:
        quotient = value / high
        value = quotient - quotient * (low / high)
    while scale > 0:
        value = value * 8.636168555094445e-78
        scale -= 1
    return value


@kbuild.jit
def _tgamma(x):
    bounded = tl.minimum(tl.maximum(x, -190.0), 171.62437695630272)
    bounded = tl.where(bounded == bounded, bounded, 1.0)
    is_pole = (x <= 0.0) & (tl.floor(x) == x)
    plain = tl.where(is_pole | (tl.abs(x) < 1e-300), 1.0, bounded)
    result = tl.map_elementwise(_gamma_of_one, plain) if x.shape != () else _gamma_of_one(plain)
    result = tl.where(x < -185.0, 0.0, result)
    result = tl.where(is_pole, tl.where(x == 0.0, 1.0 / x, float("nan")), result)
    result = tl.where((tl.abs(x) < 1e-300) & (x != 0.0), 1.0 / x, result)
    return tl.where(x == x, tl.where(x > 171.62437695630272, float("inf"), result), x)


@kbuild.jit
def tgamma(x):
    """The gamma function."""
    x = _floating(x)
    return _tgamma(x.to(tl.float64)).to(x.dtype)
