"""Groups of `gpu.py` with dots: matmuls of all types, also by persistent programs."""

from __future__ import annotations

import itertools

import contest
import torch
import triton
from configurations import configurations, grid_of, kernel_module
from contest import BRAIN, HALF, SHORT, SINGLE, error_of, multiprocessors, name_of

TILES = [
    (128, 256, 64, 8, 3),
    (128, 256, 64, 8, 4),
    (256, 128, 64, 8, 3),
    (128, 128, 64, 4, 3),
    (128, 128, 64, 4, 4),
    (128, 128, 64, 8, 4),
    (64, 256, 64, 4, 4),
    (64, 128, 64, 4, 4),
    (128, 64, 64, 4, 4),
    (128, 128, 32, 4, 4),
]
SKINNY_TILES = [(16, *rest) for rest in itertools.product((64, 128), (128, 256), (4, 8), (3, 4, 5))]
SHAPES = [
    ((4096,) * 3, HALF),
    ((8192,) * 3, HALF),
    ((1024,) * 3, HALF),
    ((8192,) * 3, BRAIN),
    ((4096,) * 3, SINGLE),
    ((16, 8192, 8192), HALF),
    ((4096, 14336, 4096), BRAIN),
]


def is_one_dot(tile: dict[str, int]) -> bool:
    """Whether a tile has a power of two of columns: Triton's warp specialisation makes code of several dots that reads
    outside the operands."""
    return tile["BLOCK_N"].bit_count() == 1


def matmul() -> None:
    """Both major orders of B, and more shapes: a short K, odd sizes, and numbers of tiles that do not fill a
    round."""
    kernel = kernel_module("matmul").matmul_kernel
    torch.backends.cuda.matmul.allow_tf32 = True
    programs = multiprocessors()
    shapes = [(shape, dtype, transposed) for shape, dtype in SHAPES for transposed in (False, True)]
    shapes += [
        ((8192, 8192, 512), HALF, True),
        *(((size,) * 3, HALF, False) for size in (1000, 1536, 3000, 3072, 4088)),
    ]
    for (m, n, k), dtype, transposed in shapes:
        shape = f"{m}x{n}x{k} {name_of(dtype)}{' B^T' if transposed else ''}"
        if not contest.asked_for.search(shape):
            continue
        a, b = operands(m, n, k, dtype, transposed)
        c = torch.full((m, n), float("nan"), device="cuda", dtype=dtype)
        arguments = (a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride())
        ours = lambda: contest.package.launch.matmul(*arguments)  # noqa: E731
        right = a.double() @ b.double()
        order = "column_major" if transposed else "row_major"
        own = configurations("matmul", SHORT[dtype], specialize=order)
        own = [c for c in own if (c["BLOCK_M"] <= 16) == (m <= 16) and is_one_dot(c)]
        peer = contest.best_of(
            [*tiles(m), *own], lambda t: kernel[grid_of("matmul", m, n, t, programs)](*arguments, **t)
        )
        contest.row(
            "matmul",
            shape,
            ours,
            c,
            lambda found: error_of(found, right),
            2 * m * n * k,
            "TFLOP/s",
            peer,
            {"cublas": lambda: torch.mm(a, b)},
            5e-4 if dtype == SINGLE else 3e-3,
        )


def persistent() -> None:
    """Matmuls by as many programs as there are multiprocessors."""
    kernel = kernel_module("matmul").matmul_persistent_kernel
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    programs = multiprocessors()
    shapes = [
        (size, dtype, transposed)
        for size in (4096, 8192)
        for dtype in (HALF, BRAIN)
        for transposed in (False, True)
    ]
    for size, dtype, transposed in [*shapes, (8192, torch.float8_e4m3fn, True)]:
        shape = f"{size}x{size}x{size} {name_of(dtype)}{' B^T' if transposed else ''}, persistent"
        if not contest.asked_for.search(shape):
            continue
        a, b = operands(size, size, size, dtype, transposed)
        is_fp8 = dtype.itemsize == 1
        c = torch.full((size, size), float("nan"), device="cuda", dtype=HALF if is_fp8 else dtype)
        arguments = (a, b, c, size, size, size, size, size, size)
        choice = {} if is_fp8 else {"B_COLUMN_MAJOR": transposed}
        name = "matmul_persistent_fp8" if is_fp8 else "matmul_persistent"
        ours = lambda: getattr(contest.package, name)(*arguments, **choice)  # noqa: E731
        right = a.double() @ b.double()
        choices = [
            {**tile, "BLOCK_K": 64 * (1 + is_fp8), "B_COLUMN_MAJOR": transposed} for tile in tiles(size)
        ]
        choices += [{"B_COLUMN_MAJOR": transposed, **own} for own in configurations(name, SHORT[c.dtype])]
        peer = contest.best_of(
            choices, lambda t: kernel[grid_of(name, size, size, t, programs)](*arguments, **t)
        )
        one = torch.ones((), device="cuda")
        scaled = lambda: torch._scaled_mm(a, b, one, one, out_dtype=HALF, use_fast_accum=True)  # noqa: E731
        vendor = scaled if is_fp8 else lambda: torch.mm(a, b)
        contest.row(
            "matmul",
            shape,
            ours,
            c,
            lambda found: error_of(found, right),
            2 * size**3,
            "TFLOP/s",
            peer,
            {"cublas": vendor},
            3e-3,
        )


def fp8() -> None:
    """Operands of fp8, both contiguous along K; cuBLAS by `torch._scaled_mm`, and all with its fast
    accumulation."""
    kernel = kernel_module("matmul").matmul_kernel
    m = n = k = 8192
    shape = f"{m}x{n}x{k} float8_e4m3fn B^T"
    if not contest.asked_for.search(shape):
        return
    a, b = operands(m, n, k, torch.float8_e4m3fn, True)
    c = torch.full((m, n), float("nan"), device="cuda", dtype=HALF)
    arguments = (a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride())
    ours = lambda: contest.package.matmul_fp8(*arguments)  # noqa: E731
    right = a.double() @ b.double()
    deep = [{**tile, "BLOCK_K": 128} for tile in tiles(m) if tile["num_stages"] == 3]
    programs = multiprocessors()
    own = [c for c in configurations("matmul_fp8", "fp16", specialize="column_major") if is_one_dot(c)]
    peer = contest.best_of(
        [*tiles(m), *deep, *own], lambda t: kernel[grid_of("matmul_fp8", m, n, t, programs)](*arguments, **t)
    )
    one = torch.ones((), device="cuda")
    vendor = lambda: torch._scaled_mm(a, b, one, one, out_dtype=HALF, use_fast_accum=True)  # noqa: E731
    contest.row(
        "matmul",
        shape,
        ours,
        c,
        lambda found: error_of(found, right),
        2 * m * n * k,
        "TFLOP/s",
        peer,
        {"cublas": vendor},
        3e-3,
    )


def operands(
    m: int, n: int, k: int, dtype: torch.dtype, transposed: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Random matrices; `transposed`: B contiguous along K.  B is scaled for results of about one."""
    a = torch.randn(m, k, device="cuda").to(dtype)
    b = (
        torch.randn(*((n, k) if transposed else (k, n)), device="cuda")
        / (1 if dtype.itemsize == 1 else k**0.5)
    ).to(dtype)
    return a, b.t() if transposed else b


def tiles(m: int) -> list[dict[str, int]]:
    """The tiles that Triton may choose from."""
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")
    return [{**dict(zip(names, tile)), "GROUP_M": 8} for tile in (TILES if m > 64 else SKINNY_TILES)]
