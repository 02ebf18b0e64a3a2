"""Kernels that Triton compiles for the emulator; run by a Python that has Triton: `python
bench/peer_kernels.py FOLDER ARCH …`.

Writes `NAME.ARCH.ptx` and `NAME.ARCH.json`, the facts of its launch, for every case.  Needs no GPU.
"""

import json
import sys
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def matmul(a, b, c, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr, SPECIALIZED: tl.constexpr):
    rows, columns = tl.arange(0, M), tl.arange(0, N)
    depth = tl.arange(0, BK)
    total = tl.zeros((M, N), c.dtype.element_ty)
    for k in tl.range(0, K, BK, warp_specialize=SPECIALIZED):
        left = tl.load(a + rows[:, None] * K + (k + depth)[None, :])
        right = tl.load(b + (k + depth)[:, None] * N + columns[None, :])
        total = tl.dot(left, right, total, out_dtype=c.dtype.element_ty)
    tl.store(c + rows[:, None] * N + columns[None, :], total)


@triton.jit
def matmul_descriptors(
    a, b, c, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr, SPECIALIZED: tl.constexpr
):
    left = tl.make_tensor_descriptor(a, [M, K], [K, 1], [M, BK])
    right = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BK, N])
    out = tl.make_tensor_descriptor(c, [M, N], [N, 1], [M, N])
    total = tl.zeros((M, N), tl.float32)
    # Not [0, 0]: where both coordinates are one value, Triton 3.6 moves the second half of the rows along
    # both dimensions.
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    for k in tl.range(0, K, BK, warp_specialize=SPECIALIZED):
        total = tl.dot(left.load([row, k]), right.load([k, column]), total)
    out.store([row, column], total.to(c.dtype.element_ty))


@triton.jit
def dot_and_sum(a, b, c, sums, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    rows, columns, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    total, row_sums = tl.zeros((M, N), tl.float32), tl.zeros((M,), tl.float32)
    for k in range(0, K, BK):
        left = tl.load(a + rows[:, None] * K + (k + depth)[None, :])
        right = tl.load(b + (k + depth)[:, None] * N + columns[None, :])
        row_sums += tl.sum(left.to(tl.float32), axis=1)
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * N + columns[None, :], total)
    tl.store(sums + rows, row_sums)


@triton.jit
def attention(q, k, v, out, scale, L, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    rows, columns, depth = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    query = tl.load(q + rows[:, None] * D + depth[None, :], mask=rows[:, None] < L, other=0.0)
    top, total = tl.full((M,), -float("inf"), tl.float32), tl.zeros((M,), tl.float32)
    result = tl.zeros((M, D), tl.float32)
    for start in range(0, L, N):
        here = start + columns
        key = tl.load(k + here[None, :] * D + depth[:, None], mask=here[None, :] < L, other=0.0)
        scores = tl.where(here[None, :] < L, tl.dot(query, key) * scale, -float("inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        p = tl.exp(scores - higher[:, None])
        kept = tl.exp(top - higher)
        total = total * kept + tl.sum(p, 1)
        value = tl.load(v + here[:, None] * D + depth[None, :], mask=here[:, None] < L, other=0.0)
        result = tl.dot(p.to(value.dtype), value, result * kept[:, None])
        top = higher
    tl.store(out + rows[:, None] * D + depth[None, :], result / total[:, None], mask=rows[:, None] < L)


@triton.jit
def reduce(x, sums, maxima, places, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr):
    values = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    along = tl.arange(0, N if AXIS == 0 else M)
    tl.store(sums + along, tl.sum(values, axis=AXIS))
    tl.store(maxima + along, tl.max(values, axis=AXIS))
    tl.store(places + along, tl.argmax(values, axis=AXIS))


@triton.jit
def scan(x, out, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr):
    place = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + place, tl.cumsum(tl.load(x + place), axis=AXIS))


@triton.jit
def sort(x, out, M: tl.constexpr, N: tl.constexpr):
    place = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + place, tl.sort(tl.load(x + place)))


@triton.jit
def atomics(x, sums, largest, count, old, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < n
    value = tl.load(x + place, mask=inside, other=0)
    tl.atomic_add(sums + value % 8, value.to(tl.float32), mask=inside)
    tl.atomic_max(largest + value % 8, value, mask=inside)
    tl.atomic_add(count, tl.sum(inside.to(tl.int32)))
    tl.atomic_cas(old, 0, 7)


@triton.jit
def gather(x, index, out, M: tl.constexpr, N: tl.constexpr):
    place = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + place, tl.gather(tl.load(x + place), tl.load(index + place), axis=0))


@triton.jit
def histogram(x, out, N: tl.constexpr, BINS: tl.constexpr):
    tl.store(out + tl.arange(0, BINS), tl.histogram(tl.load(x + tl.arange(0, N)), BINS))


@triton.jit
def casts(x, halves, brains, wholes, bytes_, small, N: tl.constexpr):
    place = tl.arange(0, N)
    value = tl.load(x + place)
    tl.store(halves + place, value.to(tl.float16))
    tl.store(brains + place, value.to(tl.bfloat16).to(tl.float32))
    tl.store(wholes + place, value.to(tl.int32))
    tl.store(bytes_ + place, value.to(tl.int8))
    tl.store(small + place, value.to(tl.float8e5).to(tl.float32))


@triton.jit
def randoms(out, uniform, seed, N: tl.constexpr):
    place = tl.arange(0, N)
    tl.store(out + place, tl.randint(seed, place))
    tl.store(uniform + place, tl.rand(seed, place))


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    row = tl.program_id(0) * columns
    values = tl.load(x + row + place, mask=place < columns, other=-float("inf"))
    p = tl.exp(values - tl.max(values, 0))
    tl.store(out + row + place, p / tl.sum(p, 0), mask=place < columns)


@triton.jit
def integers(x, y, out, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    left, right = tl.load(x + place, mask=place < n), tl.load(y + place, mask=place < n, other=1)
    result = (left // right) ^ (left % right) + (left >> 3) * (right << 2) - tl.minimum(left, right)
    tl.store(out + place, result, mask=place < n)


@triton.jit
def transpose_join(x, y, out, N: tl.constexpr):
    place = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    left, right = tl.split(tl.join(tl.load(x + place), tl.trans(tl.load(y + place))))
    tl.store(out + place, left - right)


def _matmul(kernel, operand, result, m=64, n=64, bk=32, specialized=False, **options):
    signature = {"a": f"*{operand}", "b": f"*{operand}", "c": f"*{result}", "K": "i32"}
    return kernel, signature, {"M": m, "N": n, "BK": bk, "SPECIALIZED": specialized}, options


F32 = {"x": "*fp32"}
CASES = {
    "matmul fp16": _matmul(matmul, "fp16", "fp32"),
    "matmul fp16 8 warps": _matmul(matmul, "fp16", "fp32", 128, 128, num_warps=8),
    "matmul fp16 4 stages": _matmul(matmul, "fp16", "fp32", num_stages=4),
    "matmul bf16": _matmul(matmul, "bf16", "fp32"),
    "matmul tf32": _matmul(matmul, "fp32", "fp32"),
    "matmul i8": _matmul(matmul, "i8", "i32", bk=64),
    "matmul e5m2": _matmul(matmul, "fp8e5", "fp32", bk=64),
    "matmul e4m3": _matmul(matmul, "fp8e4nv", "fp32", bk=64, sm_90_only=True),
    "matmul TMA": _matmul(matmul_descriptors, "fp16", "fp16", bk=64, sm_90_only=True),
    "matmul TMA specialised": _matmul(
        matmul_descriptors, "fp16", "fp16", 128, 128, 64, True, sm_90_only=True
    ),
    "attention": (
        attention,
        {"q": "*fp16", "k": "*fp16", "v": "*fp16", "out": "*fp32", "scale": "fp32", "L": "i32"},
        {"M": 64, "N": 32, "D": 64},
        {},
    ),
    "dot and sum": (
        dot_and_sum,
        {"a": "*fp16", "b": "*fp16", "c": "*fp32", "sums": "*fp32", "K": "i32"},
        {"M": 64, "N": 64, "BK": 32},
        {},
    ),
    **{
        f"reduce axis {axis}": (
            reduce,
            {**F32, "sums": "*fp32", "maxima": "*fp32", "places": "*i32"},
            {"M": 64, "N": 32, "AXIS": axis},
            {},
        )
        for axis in (0, 1)
    },
    **{
        f"scan axis {axis}": (scan, {**F32, "out": "*fp32"}, {"M": 32, "N": 64, "AXIS": axis}, {})
        for axis in (0, 1)
    },
    "sort": (sort, {**F32, "out": "*fp32"}, {"M": 8, "N": 64}, {}),
    "atomics": (
        atomics,
        {"x": "*i32", "sums": "*fp32", "largest": "*i32", "count": "*i32", "old": "*i32", "n": "i32"},
        {"BLOCK": 128},
        {},
    ),
    "gather": (gather, {**F32, "index": "*i32", "out": "*fp32"}, {"M": 32, "N": 32}, {}),
    "histogram": (histogram, {"x": "*i32", "out": "*i32"}, {"N": 512, "BINS": 32}, {}),
    "casts": (
        casts,
        {**F32, "halves": "*fp16", "brains": "*fp32", "wholes": "*i32", "bytes_": "*i8", "small": "*fp32"},
        {"N": 256},
        {},
    ),
    "random": (randoms, {"out": "*i32", "uniform": "*fp32", "seed": "i32"}, {"N": 256}, {}),
    "softmax": (softmax, {**F32, "out": "*fp32", "columns": "i32"}, {"BLOCK": 256}, {}),
    "integers": (integers, {"x": "*i32", "y": "*i32", "out": "*i32", "n": "i32"}, {"BLOCK": 256}, {}),
    "transpose, join": (transpose_join, {**F32, "y": "*fp32", "out": "*fp32"}, {"N": 32}, {}),
}


def compile_case(name: str, arch: str, folder: Path) -> None:
    """Compile one case and write its PTX and facts."""
    kernel, signature, constexprs, options = CASES[name]
    names = list(kernel.arg_names)
    types = {key: signature.get(key, "constexpr") for key in names}
    aligned = {
        (names.index(key),): [["tt.divisibility", 16]]
        for key, kind in signature.items()
        if kind[0] == "*" or key == "K"
    }
    source = ASTSource(
        kernel, types, {(names.index(key),): value for key, value in constexprs.items()}, aligned
    )
    given = {key: value for key, value in options.items() if key != "sm_90_only"}
    compiled = triton.compile(
        source, target=GPUTarget("cuda", int(arch.removeprefix("sm_")), 32), options=given
    )
    facts = compiled.metadata
    path = folder / f"{name}.{arch}".replace(" ", "_")
    Path(f"{path}.ptx").write_text(compiled.asm["ptx"])
    Path(f"{path}.json").write_text(
        json.dumps(
            {
                "name": name,
                "arch": arch,
                "arguments": list(signature),
                "constexprs": constexprs,
                "shared": facts.shared,
                "warps": facts.num_warps,
                "scratch": getattr(facts, "global_scratch_size", 0),
            }
        )
    )


if __name__ == "__main__":
    for arch in sys.argv[2:]:
        for name, (*_, options) in CASES.items():
            if arch == "sm_90" or not options.get("sm_90_only"):
                try:
                    compile_case(name, arch, Path(sys.argv[1]))
                except Exception as error:
                    print(f"{name} {arch}: {type(error).__name__}: {error}".splitlines()[0], file=sys.stderr)
