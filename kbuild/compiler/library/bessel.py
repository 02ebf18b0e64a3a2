"""The Bessel functions of `tl.extra.cuda.libdevice`, written in the language.

The frontend reads this file as it reads a user's, one function at a time; nothing imports it.  Numbers of fp32 are
computed with in fp64 and rounded once.  Polynomials are Chebyshev's interpolations, in ascending powers.
"""

import kbuild
import kbuild.language as tl
from kbuild.compiler.library.libdevice import _floating, _polynomial


@kbuild.jit
def _from(x, zero: tl.constexpr, rest: tl.constexpr):
    """x - zero, where the function vanishes, in more digits than a number has: exact where it counts."""
    return (x - zero) - rest


# Of imaginary arguments


@kbuild.jit
def _i0(size):
    near = tl.minimum(size, 8.0)
    small = _polynomial(
        near * near,
        "1.0 0.25 0.015625 0.0004340277777777778 6.781684027777758e-06 6.781684027778203e-08 "
        "4.7095027970619e-10 2.402807549583671e-12 9.385966986098854e-15 2.896903414473123e-17 "
        "7.242257588753194e-20 1.4963370838452556e-22 2.5977414368153943e-25 3.8439551522008304e-28 "
        "4.888364886932104e-31 5.566132785039442e-34 4.596006867582227e-37 7.1563841038704715e-40",
    )
    far = tl.minimum(tl.maximum(size, 8.0), 720.0)
    large = _polynomial(
        16.0 / far - 1.0,
        "0.4021765094450081 0.0033605519836678926 0.00013621607439242233 1.1143033787600954e-05 "
        "1.483847537499878e-06 2.9735996543006567e-07 8.872284103759091e-08 3.9324252758753184e-08 "
        "2.1540741617497856e-08 7.568082213942837e-09 -6.693401839222627e-09 -1.3479252221410259e-08 "
        "-5.654227372818669e-09 7.79690031302081e-09 8.207377238641537e-09 -4.08593196298965e-09 "
        "-7.634681792054508e-09 2.4747638370401517e-09 6.189950999024247e-09 -1.6595135520119403e-09 "
        "-4.322780129844385e-09 9.937624496877307e-10 2.411338156166958e-09 -4.4033954881720055e-10 "
        "-9.75588936432882e-10 1.2206178514643786e-10 2.4939701435941937e-10 -1.5626395259684188e-11 "
        "-2.989071233870442e-11",
    )
    # In two steps, since the power alone may overflow.
    half = tl.extra.libdevice.exp(0.5 * far)
    large = (large * half) / tl.sqrt(far) * half
    large = tl.where(size > 719.0, float("inf"), large)
    return tl.where(size == size, tl.where(size > 8.0, large, small), size)


@kbuild.jit
def _i1(size):
    near = tl.minimum(size, 8.0)
    small = _polynomial(
        near * near,
        "0.5 0.0625 0.0026041666666666665 5.4253472222222226e-05 6.781684027777773e-07 "
        "5.651403356481591e-09 3.3639305693326665e-11 1.5017547184680642e-13 5.214426104646516e-16 "
        "1.4484517018212629e-18 3.2919354425983547e-21 6.234733594318706e-24 9.991390632392436e-27 "
        "1.3727374047117812e-29 1.630447729545268e-32 1.7329954717086137e-35 1.3769047940227915e-38 "
        "1.9429054278018938e-41",
    )
    small = near * small
    far = tl.minimum(tl.maximum(size, 8.0), 720.0)
    large = _polynomial(
        16.0 / far - 1.0,
        "0.38939845902587233 -0.009749577193235765 -0.00021923576383440173 -1.5038547197418993e-05 "
        "-1.8349101031778112e-06 -3.4838567691733334e-07 -1.00013553796233e-07 -4.312767119878634e-08 "
        "-2.336596794659967e-08 -8.440458934361929e-09 6.677896616468457e-09 1.4100990834184311e-08 "
        "6.234580173683657e-09 -7.874583254138298e-09 -8.698749141810299e-09 3.9782614783076284e-09 "
        "7.996816386971422e-09 -2.3490216253043073e-09 -6.458329380412786e-09 1.569021109680471e-09 "
        "4.508136592648715e-09 -9.455238431976714e-10 -2.516800406120259e-09 4.219561140454189e-10 "
        "1.0194202195354832e-09 -1.1762079512067687e-10 -2.6089060610870525e-10 1.5119576957666286e-11 "
        "3.129857598283539e-11",
    )
    # In two steps, since the power alone may overflow.
    half = tl.extra.libdevice.exp(0.5 * far)
    large = (large * half) / tl.sqrt(far) * half
    large = tl.where(size > 719.0, float("inf"), large)
    return tl.where(size == size, tl.where(size > 8.0, large, small), size)


@kbuild.jit
def cyl_bessel_i0(x):
    """The modified Bessel function of the first kind, of order 0."""
    x = _floating(x)
    return _i0(tl.abs(x).to(tl.float64)).to(x.dtype)


@kbuild.jit
def cyl_bessel_i1(x):
    """The modified Bessel function of the first kind, of order 1."""
    x = _floating(x)
    result = _i1(tl.abs(x).to(tl.float64))
    return tl.where(x < 0, -result, result).to(x.dtype)


# Of real arguments: by polynomials that know the zeros below 8, and from there on by two slow functions times waves


@kbuild.jit
def _waves0(size):
    """J0 and Y0 of numbers from 8 on."""
    inverse = 1.0 / size
    place = inverse * inverse
    p = _polynomial(
        place,
        "1.0 -0.07031249999999503 0.1121520995852157 -0.5725013739858695 6.073993353256659 "
        "-109.98618285993727 3024.8753138232482 -114816.0675372228 5335459.486899735 -261052310.56718543 "
        "11622574999.029081 -417610955753.69165 10860512891618.158 -177701237911784.8 1358079825062428.5",
    )
    q = _polynomial(
        place,
        "-0.125 0.07324218749995201 -0.22710800147555427 1.7277270476457764 -24.380057195277605 "
        "551.0337964999273 -18127.902561173425 792930.5641113163 -40820618.76242485 2134233616.8925853 "
        "-98948702837.22653 3644430273218.2 -96273560979698.3 1591649880845768.8 -1.2251742661820574e+16",
    )
    q = q * inverse
    root = tl.sqrt(0.3183098861837907 * inverse)
    sine, cosine = tl.sin(size), tl.cos(size)
    plus, minus = cosine + sine, sine - cosine
    return root * (p * plus - q * minus), root * (p * minus + q * plus)


@kbuild.jit
def _near_j0(size):
    """J0 of numbers up to 8."""
    square = size * size
    rest = _polynomial(
        square * 0.03125 - 1.0,
        "-2.6662941994458524e-05 2.9532957425506736e-05 -1.4423681512582508e-05 4.19663832256583e-06 "
        "-8.272804159783322e-07 1.1892767699589657e-07 -1.3086636321133497e-08 1.1411484161768909e-09 "
        "-8.094862284803865e-11 4.768506902010932e-12 -2.3719707401830874e-13 1.0101663870387419e-14 "
        "-3.7264323989779596e-16 1.2026663360875179e-17 -3.433176740061108e-19 8.69044479315971e-21",
    )
    first = _from(size, 2.404825557695773, -1.176691651530894e-16) * (size + 2.404825557695773)
    second = _from(size, 5.520078110286311, 8.088597146146722e-17) * (size + 5.520078110286311)
    third = _from(size, 8.653727912911013, -2.92812607320779e-16) * (size + 8.653727912911013)
    return first * second * third * rest


@kbuild.jit
def _j0(size):
    near, (far, _) = _near_j0(tl.minimum(size, 8.0)), _waves0(tl.maximum(size, 8.0))
    result = tl.where(size > 8.0, far, near)
    return tl.where(size == float("inf"), 0.0, tl.where(size == size, result, size))


@kbuild.jit
def j0(x):
    """The Bessel function of the first kind, of order 0."""
    x = _floating(x)
    return _j0(tl.abs(x).to(tl.float64)).to(x.dtype)


@kbuild.jit
def _waves1(size):
    """J1 and Y1 of numbers from 8 on."""
    inverse = 1.0 / size
    place = inverse * inverse
    p = _polynomial(
        place,
        "1.0 0.11718749999999477 -0.14419555661520547 0.6765925389894092 -6.88386309484169 "
        "121.56533456228425 -3288.3784896739867 123414.30544936986 -5692863.968895268 277301688.2021965 "
        "-12314225507.569063 441793998800.7961 -11478784493000.32 187705117318953.34 -1433951164908747.8",
    )
    q = _polynomial(
        place,
        "0.375 -0.10253906249979691 0.27757644567237694 -1.9935302734140805 27.247509834534135 "
        "-603.1144870172631 19447.616586792912 -818596.0771050657 38794966.24695457 -1757771629.701683 "
        "66029000724.71561 -1815777702301.7964 31512636923044.324 -255217151850580.75",
    )
    q = q * inverse
    root = tl.sqrt(0.3183098861837907 * inverse)
    sine, cosine = tl.sin(size), tl.cos(size)
    plus, minus = sine - cosine, -sine - cosine
    return root * (p * plus - q * minus), root * (p * minus + q * plus)


@kbuild.jit
def _near_j1(size):
    """J1 of numbers up to 8."""
    square = size * size
    rest = _polynomial(
        square * 0.03125 - 1.0,
        "-2.7271448834411237e-06 2.552238212464633e-06 -1.0759319268040335e-06 2.7483022124820187e-07 "
        "-4.821864203507793e-08 6.239166126302258e-09 -6.237657437067623e-10 4.9810432859266436e-11 "
        "-3.2576600989960076e-12 1.779622080753464e-13 -8.251015885224799e-15 3.289865276098493e-16 "
        "-1.1407127488439359e-17 3.4725466792327427e-19 -9.377457988942113e-21 2.252494693619545e-22",
    )
    first = _from(size, 3.8317059702075125, -1.5269184090088067e-16) * (size + 3.8317059702075125)
    second = _from(size, 7.015586669815619, -9.414165653410389e-17) * (size + 7.015586669815619)
    third = _from(size, 10.173468135062722, 4.482162274768888e-16) * (size + 10.173468135062722)
    return size * first * second * third * rest


@kbuild.jit
def _j1(size):
    near, (far, _) = _near_j1(tl.minimum(size, 8.0)), _waves1(tl.maximum(size, 8.0))
    result = tl.where(size > 8.0, far, near)
    return tl.where(size == float("inf"), 0.0, tl.where(size == size, result, size))


@kbuild.jit
def j1(x):
    """The Bessel function of the first kind, of order 1."""
    x = _floating(x)
    result = _j1(tl.abs(x).to(tl.float64))
    return tl.where(x < 0, -result, result).to(x.dtype)


@kbuild.jit
def _near_y0(size):
    """Y0 of numbers up to 8."""
    near = tl.minimum(size, 0.7)
    result = _polynomial(
        near * near,
        "-0.07380429510868723 0.17760601686906713 -0.016073968025938426 0.000538602666861655 "
        "-9.495005205221545e-06 1.0358476033626554e-07 -7.693079900187138e-10 4.1435655309788644e-12 "
        "-1.6932358467810318e-14 5.396768727377834e-17",
    )
    result = tl.fma(0.6366197723675814 * tl.log(near), _near_j0(near), result)
    part = tl.minimum(tl.maximum(size, 0.7), 1.3)
    second = _polynomial(
        part - 1.0,
        "0.8293032168880985 -0.4518795781931935 0.16109938643719182 -0.15210763076278802 "
        "0.13672554101026227 -0.11453226215337291 0.09872435544304853 -0.08691210879216314 "
        "0.07757061131270797 -0.07001635954893244 0.063790927676828 -0.058574956335310346 "
        "0.05414317843147709 -0.050335086158510935 0.04702320680580933 -0.044060780915173584 "
        "0.041495759050034615 -0.03993491830364758 0.03786146202705197 -0.030357934267869736 "
        "0.028880630668303733 -0.052582222806909044 0.050399891341258905",
    )
    second = second * _from(part, 0.8935769662791675, 2.6596231539720385e-17)
    part = tl.minimum(tl.maximum(size, 1.3), 2.2)
    third = _polynomial(
        part - 1.75,
        "0.5435311876474381 -0.33810183787698017 0.03828927059645196 -0.010090985119830186 "
        "0.012533090661315653 -0.006522573766230335 0.0030689811739135187 -0.0015596880637903721 "
        "0.0008076917385452645 -0.00042033907835200093 0.0002203710545508216 -0.00011631665535702253 "
        "6.174643911729754e-05 -3.294062106198157e-05 1.7645253543011752e-05 -9.490866435059945e-06 "
        "5.1498213337375e-06 -2.7881581738886414e-06 1.412598782013118e-06 -7.68309367148721e-07 "
        "6.290303427766969e-07 -3.4423379356776624e-07",
    )
    third = third * _from(part, 0.8935769662791675, 2.6596231539720385e-17)
    part = tl.minimum(tl.maximum(size, 2.2), 5.5)
    fourth = _polynomial(
        part - 3.75,
        "-0.41052294821305585 0.025740908226321156 0.062212126701768275 -0.00496390236217569 "
        "-0.0023518429752843184 0.00012752385981221903 5.7706765797469226e-05 -4.462544794512585e-06 "
        "-2.0968972540496968e-07 -7.163557138857664e-08 3.0039034320228726e-08 -6.371678514568802e-09 "
        "1.498178432708069e-09 -3.799240006990821e-10 9.549775392173113e-11 -2.394318449161684e-11 "
        "6.0284105531366035e-12 -1.529596656868458e-12 3.8869735601410276e-13 -9.525005445974318e-14 "
        "2.3431615134706352e-14 -7.193574433125977e-15 2.166898717756425e-15 -2.722433508295029e-16 "
        "-1.5645172366248164e-17 -3.4301606932211815e-17 2.153967715466744e-17 -3.2255971962802866e-18",
    )
    fourth = fourth * _from(part, 3.957678419314858, -1.0764340697562706e-16)
    part = tl.minimum(tl.maximum(size, 5.5), 8.0)
    fifth = _polynomial(
        part - 6.75,
        "0.30169255583006954 0.011887992566659266 -0.049850716779367046 0.00027054014716073634 "
        "0.002331333085529882 -4.281051688279635e-05 -5.040228444106625e-05 1.052088378646626e-06 "
        "6.434177726734047e-07 -1.3948983863914209e-08 -5.345118696094824e-09 1.0641517753345491e-10 "
        "3.274224440488021e-11 -7.256290666367238e-13 -1.2981502732806184e-13 8.212809343801684e-16 "
        "7.55161005046184e-16 -5.155836259652038e-17 4.7342274695258744e-18",
    )
    fifth = fifth * _from(part, 7.086051060301773, -8.835285723085408e-17)
    result = tl.where(size > 0.7, second, result)
    result = tl.where(size > 1.3, third, result)
    result = tl.where(size > 2.2, fourth, result)
    return tl.where(size > 5.5, fifth, result)


@kbuild.jit
def _near_y1(size):
    """Y1 of numbers up to 8."""
    near = tl.minimum(size, 1.3)
    result = _polynomial(
        near * near,
        "-0.19605709064623894 0.05434868816051024 -0.0029553053360798338 7.164268749973962e-05 "
        "-9.926740619424818e-07 8.931879621219355e-09 -5.648024551461623e-11 2.649481492184572e-13 "
        "-9.591476051536443e-16 2.761170855283671e-18 -6.360274724440613e-21",
    )
    waves = tl.log(near) * _near_j1(near) - 1.0 / near
    result = 0.6366197723675814 * waves + near * result
    part = tl.minimum(tl.maximum(size, 1.3), 3.2)
    second = _polynomial(
        part - 2.25,
        "0.5144294341165883 -0.12202407229831455 -0.03349749409457052 -0.0032979211656712685 "
        "0.006778849919015005 -0.0022849381563324668 0.0008954876730549565 -0.00041988024901267184 "
        "0.00019028611964604482 -8.487779906325013e-05 3.7877454133373976e-05 -1.68958405206698e-05 "
        "7.5301486651374895e-06 -3.3540077603568475e-06 1.4933091592281272e-06 -6.648651971287063e-07 "
        "2.958498811793772e-07 -1.3109154059011575e-07 5.831246816566619e-08 -2.688189182028197e-08 "
        "1.1954749719549131e-08 -4.117502522310015e-09 1.8310045181815643e-09 -1.863961569598721e-09 "
        "8.286473079436149e-10 2.3649128200129167e-10 -1.0511141376154377e-10 -1.5950096568440818e-10 "
        "7.090175052037888e-11",
    )
    second = second * _from(part, 2.197141326031017, -4.8259835876454966e-17)
    part = tl.minimum(tl.maximum(size, 3.2), 8.0)
    third = _polynomial(
        part - 5.5,
        "-0.337863916427365 0.038439183205106496 0.050006599412693156 -0.004761788420352087 "
        "-0.002111037488040269 0.00016591450629513938 4.497410897828806e-05 -3.166493763588689e-06 "
        "-5.290770698358232e-07 2.933686698424052e-08 5.300128635100004e-09 -3.852107457461039e-10 "
        "-1.2834934415482968e-12 -3.3820078553037407e-12 9.80409522887363e-13 -1.6315874836037025e-13 "
        "2.8442585084091877e-14 -5.246000776424512e-15 9.716537135123283e-16 -1.8060950006804276e-16 "
        "3.085834208439261e-17 -4.882412909582993e-18 1.211443238528207e-18 -3.3370789427308454e-19 "
        "2.8339295250542355e-20 6.1140633621713156e-21 8.179559342650479e-22 -8.158394232497729e-22 "
        "9.719095584829252e-23",
    )
    third = third * _from(part, 5.429681040794135, 4.162514026670377e-16)
    result = tl.where(size > 1.3, second, result)
    return tl.where(size > 3.2, third, result)


@kbuild.jit
def _y0(x):
    near, (_, far) = _near_y0(tl.minimum(x, 8.0)), _waves0(tl.maximum(x, 8.0))
    result = tl.where(x > 8.0, far, near)
    result = tl.where(x == 0.0, float("-inf"), tl.where(x < 0.0, float("nan"), result))
    return tl.where(x == float("inf"), 0.0, tl.where(x == x, result, x))


@kbuild.jit
def y0(x):
    """The Bessel function of the second kind, of order 0."""
    x = _floating(x)
    return _y0(x.to(tl.float64)).to(x.dtype)


@kbuild.jit
def _y1(x):
    near, (_, far) = _near_y1(tl.minimum(x, 8.0)), _waves1(tl.maximum(x, 8.0))
    result = tl.where(x > 8.0, far, near)
    result = tl.where(x == 0.0, float("-inf"), tl.where(x < 0.0, float("nan"), result))
    return tl.where(x == float("inf"), 0.0, tl.where(x == x, result, x))


@kbuild.jit
def y1(x):
    """The Bessel function of the second kind, of order 1."""
    x = _floating(x)
    return _y1(x.to(tl.float64)).to(x.dtype)


# Of any order: one after the other


@kbuild.jit
def _raised(n, x, below, own):
    """The function of order n from those of orders 0 and 1, by f(k + 1) = 2k/x·f(k) - f(k - 1)."""
    order = 1
    while order < n and tl.abs(own) < 1e300:
        below, own = own, 2.0 * order / x * own - below
        order += 1
    if n == 0:
        own = below
    return own


@kbuild.jit
def _jn_of_one(n, x, zeroth, first):
    """Jn of a number above zero: upward while the order is less than the number, downward from far above else."""
    if n <= 1 or x > n:
        result = _raised(n, x, zeroth, first)
    else:
        order = 2 * ((n + tl.sqrt(200.0 * n.to(tl.float32)).to(tl.int32)) // 2 + 8)
        above, own, total, result = x * 0.0, x * 0.0 + 1.0, x * 0.0, x * 0.0
        while order > 0:
            above, own = own, 2.0 * order / x * own - above
            order -= 1
            if tl.abs(own) > 1e200:
                above, own, total, result = above * 1e-200, own * 1e-200, total * 1e-200, result * 1e-200
            if order == n:
                result = own
            if order % 2 == 0:
                total += own
        # J0 + 2·J2 + 2·J4 + … = 1
        result = result / (2.0 * total - own)
    return result


@kbuild.jit
def jn(n, x):
    """The Bessel function of the first kind, of order n, an integer; NaN below zero."""
    n, x = tl.broadcast(tl.to_tensor(n).to(tl.int32), _floating(x))
    size = tl.abs(x).to(tl.float64)
    plain = tl.where((size > 0.0) & (size < float("inf")), size, 1.0)
    orders = tl.maximum(n, 0)
    zeroth, first = _j0(plain), _j1(plain)
    if x.shape == ():
        result = _jn_of_one(orders, plain, zeroth, first)
    else:
        result = tl.map_elementwise(_jn_of_one, orders, plain, zeroth, first)
    at_zero = tl.where(n == 0, 1.0, 0.0).to(tl.float64)
    result = tl.where(size == 0.0, at_zero, tl.where(size == float("inf"), 0.0, result))
    result = tl.where((x < 0) & (n % 2 == 1), -result, result)
    return tl.where(n < 0, float("nan"), tl.where(x == x, result, x)).to(x.dtype)


@kbuild.jit
def yn(n, x):
    """The Bessel function of the second kind, of order n, an integer; NaN below zero."""
    n, x = tl.broadcast(tl.to_tensor(n).to(tl.int32), _floating(x))
    wide = x.to(tl.float64)
    plain = tl.where((wide > 0.0) & (wide < float("inf")), wide, 1.0)
    orders = tl.maximum(n, 0)
    zeroth, first = _y0(plain), _y1(plain)
    if x.shape == ():
        result = _raised(orders, plain, zeroth, first)
    else:
        result = tl.map_elementwise(_raised, orders, plain, zeroth, first)
    result = tl.where(tl.abs(result) < 1e300, result, float("-inf"))
    result = tl.where(wide == 0.0, float("-inf"), tl.where(wide == float("inf"), 0.0, result))
    return tl.where((n < 0) | (wide < 0.0), float("nan"), tl.where(x == x, result, x)).to(x.dtype)
