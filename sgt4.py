import triton
import triton.language as tl


@triton.jit
def sgemm4(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, G: tl.constexpr, TA: tl.constexpr, TB: tl.constexpr, MASK: tl.constexpr):
    pid = tl.program_id(0)
    tm, tn = tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = pid // (G * tn)
    first = group * G
    size = min(tm - first, G)
    pm = first + (pid % (G * tn)) % size
    pn = (pid % (G * tn)) // size
    rm, rn, rk = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN), tl.arange(0, BK)
    if TA:
        pa = a + rm[:, None] + rk[None, :] * M
    else:
        pa = a + rm[:, None] * K + rk[None, :]
    if TB:
        pb = b + rk[:, None] + rn[None, :] * K
    else:
        pb = b + rk[:, None] * N + rn[None, :]
    acc = tl.zeros((BM, BN), c.dtype.element_ty)
    for k in range(0, K, BK):
        if MASK:
            x = tl.load(pa, mask=rk[None, :] < K - k, other=0.0)
            y = tl.load(pb, mask=rk[:, None] < K - k, other=0.0)
        else:
            x = tl.load(pa)
            y = tl.load(pb)
        acc = tl.dot(x, y, acc, input_precision="ieee", out_dtype=c.dtype.element_ty)
        pa += BK * M if TA else BK
        pb += BK if TB else BK * N
    tl.store(c + rm[:, None] * N + rn[None, :], acc)
