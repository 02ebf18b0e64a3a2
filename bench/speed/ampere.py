"""Ampere code on the GPU at hand: our PTX for sm_80 against Triton's, both compiled by the driver's own JIT.

    python bench/speed/ampere.py [--only matmul,attention] [--rows 1024] [--json out.json]

Needs torch, triton and cuda-core, and a GPU of any later architecture.  Both compilers get the same source and the same
configurations; each row shows the best of either, checked against torch in fp32: medians by CUDA events with
a cold L2 cache, of launches in random order (`aot/tune/interleaved.py`).
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from configurations import kernel_module
from torch_clock import TorchClock

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from kbuild.aot.tune import interleaved  # noqa: E402
from kbuild.errors import ToolError  # noqa: E402

TARGET = 80
SHARED_LIMIT = 163 * 1024
"""Bytes of shared memory that a program may have on an A100."""

MATMUL_TILES = [
    (128, 256, 32, 8, 3),
    (128, 128, 32, 4, 4),
    (128, 128, 64, 8, 3),
    (128, 128, 64, 4, 3),
    (64, 128, 64, 4, 3),
    (64, 64, 64, 4, 4),
    (64, 64, 64, 4, 3),
    (64, 64, 128, 4, 3),
    (128, 64, 64, 8, 3),
    (64, 128, 64, 4, 6),
    (128, 64, 64, 4, 5),
]
SKINNY_TILES = [
    (16, 64, 128, 4, 4),
    (16, 64, 128, 4, 6),
    (16, 128, 128, 4, 3),
    (16, 64, 256, 4, 3),
    (16, 64, 256, 4, 4),
]
ATTENTION_TILES = [(128, 64, 4, 2), (128, 64, 4, 3), (128, 64, 8, 3), (64, 64, 4, 2), (64, 64, 4, 3)]


class Candidate(NamedTuple):
    """A kernel with one configuration."""

    kernel: str
    """Name of the file in `kernels/`; its function is `<name>_kernel`."""
    signature: dict[str, str]
    constexprs: dict[str, Any]
    num_warps: int
    num_stages: int


class Code(NamedTuple):
    """The code of a candidate by one compiler."""

    ptx: str
    entry: str
    shared: int
    passed: tuple[str, ...]
    """Names of the arguments it takes; what is not an argument of the kernel gets a null pointer."""


class Row(NamedTuple):
    """One line of the table."""

    group: str
    shape: str
    candidates: list[Candidate]
    work: float
    """Operations."""
    prepare: Callable[[Any], tuple[dict[str, Any], Any, Any]]
    """Given torch: the arguments by name, the tensor that holds the result, and what it should hold."""
    grid: Callable[[dict[str, Any]], tuple[int, ...]]


def main() -> None:
    """Compile everything on all cores, then time row after row."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="matmul,attention")
    parser.add_argument(
        "--rows", default="", help="those alone in whose shape this regular expression is found"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    groups = options.only.split(",")
    rows = [
        row
        for row in (*matmul_rows(), *attention_rows())
        if row.group in groups and re.search(options.rows, row.shape)
    ]
    started = time.time()
    # Started by `spawn`: no process that compiles may have a GPU's context.
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        wanted = [candidate for row in rows for candidate in row.candidates]
        made = dict(zip(map(repr, wanted), pool.map(compile_both, wanted)))
    print(f"{2 * len(wanted)} kernels compiled in {time.time() - started:.0f} s", flush=True)
    results = [time_row(row, made) for row in rows]
    for group in groups:
        ratios = [
            result["us"]["triton"] / result["us"]["kbuild"] for result in results if result["group"] == group
        ]
        if ratios:
            mean = statistics.geometric_mean(ratios)
            print(f"{group:9} geometric mean {mean:.3f} over {len(ratios)} rows, least {min(ratios):.3f}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


def matmul_rows() -> Iterator[Row]:
    """Matrix multiplications, both major orders of B."""
    shapes = [
        (4096, 4096, 4096, "fp16", False),
        (4096, 4096, 4096, "fp16", True),
        (1024, 1024, 1024, "fp16", False),
        (1024, 1024, 1024, "fp16", True),
        (16, 8192, 8192, "fp16", False),
        (16, 8192, 8192, "fp16", True),
        (4096, 4096, 4096, "bf16", False),
        (4096, 4096, 4096, "fp32", True),
    ]
    for m, n, k, dtype, transposed in shapes:
        strides = {
            "stride_am": "i32:16",
            "stride_ak": "i32:1",
            "stride_bk": "i32:1" if transposed else "i32:16",
            "stride_bn": "i32:16" if transposed else "i32:1",
            "stride_cm": "i32:16",
            "stride_cn": "i32:1",
        }
        signature = {**dict.fromkeys("abc", f"*{dtype}:16"), **dict.fromkeys("MNK", "i32:16"), **strides}
        tiles = MATMUL_TILES if m > 64 else SKINNY_TILES
        candidates = [
            Candidate(
                "matmul",
                signature,
                {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 8},
                warps,
                stages,
            )
            for bm, bn, bk, warps, stages in tiles
        ]

        def prepare(
            torch: Any, m: int = m, n: int = n, k: int = k, dtype: str = dtype, transposed: bool = transposed
        ) -> Any:
            torch.backends.cuda.matmul.allow_tf32 = False
            type_ = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}[dtype]
            a = torch.randn(m, k, device="cuda").to(type_)
            b = (torch.randn(*((n, k) if transposed else (k, n)), device="cuda") / k**0.5).to(type_)
            b = b.t() if transposed else b
            c = torch.full((m, n), float("nan"), device="cuda", dtype=type_)
            names = ("stride_am", "stride_ak", "stride_bk", "stride_bn", "stride_cm", "stride_cn")
            arguments = {"a": a, "b": b, "c": c, "M": m, "N": n, "K": k}
            return (
                arguments | dict(zip(names, (*a.stride(), *b.stride(), *c.stride()))),
                c,
                a.float() @ b.float(),
            )

        def grid(values: dict[str, Any], m: int = m, n: int = n) -> tuple[int, ...]:
            return (-(-m // values["BLOCK_M"]) * -(-n // values["BLOCK_N"]),)

        yield Row(
            "matmul", f"{m}x{n}x{k} {dtype}{' B^T' * transposed}", candidates, 2.0 * m * n * k, prepare, grid
        )


def attention_rows() -> Iterator[Row]:
    """Attention forward, fp16."""
    for z, h, n, d in ((1, 32, 4096, 128), (4, 16, 4096, 64)):
        for causal in (False, True):
            signature = {
                **dict.fromkeys(("q", "k", "v", "out"), "*fp16:16"),
                "lse": "*fp32:16",
                "sm_scale": "fp32",
                **dict.fromkeys((f"stride_{array}{axis}" for array in "qkvo" for axis in "zhn"), "i32:16"),
                **dict.fromkeys(("n_heads", "n_kv_heads", "n_ctx_q", "n_ctx_k"), "i32:16"),
                "n_batch": "i32",
            }
            fixed = {"HEAD_DIM": d, "IS_CAUSAL": causal, "PERSISTENT": False}
            candidates = [
                Candidate("flash_attention", signature, {**fixed, "BLOCK_M": bm, "BLOCK_N": bn}, w, s)
                for bm, bn, w, s in ATTENTION_TILES
            ]

            def prepare(
                torch: Any, z: int = z, h: int = h, n: int = n, d: int = d, causal: bool = causal
            ) -> Any:
                q, k, v = (torch.randn(z, h, n, d, device="cuda", dtype=torch.float16) for _ in range(3))
                out, lse = torch.full_like(q, float("nan")), torch.empty(z * h, n, device="cuda")
                right = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
                strides = {
                    f"stride_{array}{axis}": stride
                    for array in "qkvo"
                    for axis, stride in zip("zhn", q.stride())
                }
                arguments = {"q": q, "k": k, "v": v, "out": out, "lse": lse, "sm_scale": d**-0.5}
                arguments |= {"n_heads": h, "n_kv_heads": h, "n_ctx_q": n, "n_ctx_k": n, "n_batch": z}
                return arguments | strides, out, right.float()

            def grid(values: dict[str, Any], n: int = n, heads: int = z * h) -> tuple[int, ...]:
                return (-(-n // values["BLOCK_M"]) * heads,)

            shape = f"Z{z} H{h} N{n} D{d} {'causal' if causal else 'full'}"
            yield Row(
                "attention",
                shape,
                candidates,
                4.0 * z * h * n * n * d * (0.5 if causal else 1),
                prepare,
                grid,
            )


def compile_both(candidate: Candidate) -> dict[str, Code | str]:
    """The code of both compilers, or why there is none."""
    found: dict[str, Code | str] = {}
    for name, compiler in (("kbuild", by_kbuild), ("triton", by_triton)):
        try:
            found[name] = compiler(candidate)
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"[-200:]
    return found


def by_kbuild(candidate: Candidate) -> Code:
    import kbuild

    source = f"{ROOT}/kernels/{candidate.kernel}.py:{candidate.kernel}_kernel"
    made = kbuild.compile(
        source,
        signature=candidate.signature,
        constexprs=candidate.constexprs,
        target=f"sm_{TARGET}",
        num_warps=candidate.num_warps,
        num_stages=candidate.num_stages,
        stop="ptx",
    )
    facts = made.metadata
    return Code(made.asm["ptx"], facts.name, facts.shared, tuple(name for name, _ in facts.params))


def by_triton(candidate: Candidate) -> Code:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = getattr(kernel_module(candidate.kernel), f"{candidate.kernel}_kernel")
    places = {name: (index,) for index, name in enumerate(kernel.arg_names)}
    ones = {name: 1 for name, type_ in candidate.signature.items() if type_.endswith(":1")}
    defaults = {parameter.name: parameter.default for parameter in kernel.params if parameter.has_default}
    constants = ones | defaults | candidate.constexprs
    types = {name: type_.partition(":")[0] for name, type_ in candidate.signature.items()} | dict.fromkeys(
        constants, "constexpr"
    )
    hints = {
        places[name]: [["tt.divisibility", 16]]
        for name, type_ in candidate.signature.items()
        if type_.endswith(":16")
    }
    source = ASTSource(kernel, types, {places[name]: value for name, value in constants.items()}, hints)
    made = triton.compile(
        source,
        target=GPUTarget("cuda", TARGET, 32),
        options={"num_warps": candidate.num_warps, "num_stages": candidate.num_stages},
    )
    passed = tuple(name for name in candidate.signature if name not in constants)
    return Code(
        made.asm["ptx"],
        made.metadata.name,
        made.metadata.shared,
        (*passed, "global_scratch", "profile_scratch"),
    )


class Launch(NamedTuple):
    """A candidate's code, loaded and found right."""

    compiler: str
    label: str
    """The configuration, with registers and stack by the driver's compiler."""
    error: float
    call: Callable[[], None]


def time_row(row: Row, made: dict[str, dict[str, Code | str]]) -> dict[str, Any]:
    """Check all candidates of both compilers, then time those that may be the best, interleaved; prints and returns
    one line."""
    import torch

    torch.manual_seed(0)
    clock = TorchClock(torch)
    arguments, result, right = row.prepare(torch)
    launches: list[Launch] = []
    for candidate in row.candidates:
        for compiler, code in made[repr(candidate)].items():
            found = checked(row, candidate, compiler, code, arguments, result, right)
            if isinstance(found, str):
                print(f"    {compiler} {label_of(candidate)}: {found}", flush=True)
            else:
                launches.append(found)
    finalists: dict[Launch, Callable[[], None]] = {}
    for name in ("kbuild", "triton"):
        calls = {launch: launch.call for launch in launches if launch.compiler == name}
        finalists |= {launch: calls[launch] for launch in interleaved.shortlist(calls, clock)}
    times = interleaved.interleave(finalists, clock)
    for launch, us in times.items():
        print(f"    {launch.compiler} {launch.label}: {us:.1f} us", flush=True)
    best = {launch.compiler: launch for launch in sorted(times, key=times.__getitem__, reverse=True)}
    own, peer = times[best["kbuild"]], times[best["triton"]]
    print(
        f"{row.group:9} {row.shape:28} kbuild {own:8.1f} us {row.work / own / 1e6:6.1f} TFLOP/s "
        f"[{best['kbuild'].label}]  triton {peer:8.1f} us [{best['triton'].label}]  {peer / own:.2f}x",
        flush=True,
    )
    return {
        "group": row.group,
        "shape": row.shape,
        "us": {name: times[launch] for name, launch in best.items()},
        "best": {name: launch.label for name, launch in best.items()},
        "error": {name: launch.error for name, launch in best.items()},
    }


def checked(
    row: Row,
    candidate: Candidate,
    compiler: str,
    code: Code | str,
    arguments: dict[str, Any],
    result: Any,
    right: Any,
) -> Launch | str:
    """A candidate that can be launched and gives the right result, or why it cannot."""
    if isinstance(code, str) or code.shared > SHARED_LIMIT:
        return code if isinstance(code, str) else "too much shared memory"
    try:
        call, registers, local = loaded(code, row.grid(candidate.constexprs), candidate.num_warps, arguments)
        result.fill_(float("nan"))
        call()
    except ToolError as error:
        return error.message
    error = ((result.float() - right).norm() / right.norm()).item()
    if not error < 2e-2:
        return f"WRONG, error {error:.1e}"
    return Launch(
        compiler, f"{label_of(candidate)}, {registers} registers, {local} bytes of stack", error, call
    )


def label_of(candidate: Candidate) -> str:
    values = ",".join(
        str(int(value)) for name, value in candidate.constexprs.items() if name.startswith("BLOCK")
    )
    return f"{values} w{candidate.num_warps}s{candidate.num_stages}"


def loaded(
    code: Code, grid: tuple[int, ...], num_warps: int, arguments: dict[str, Any]
) -> tuple[Callable[[], None], int, int]:
    """A function that launches the code in torch's stream; registers and bytes of stack that the JIT gave it."""
    import torch

    from kbuild.gpu.cuda import asked, asking, core, driver  # Compiling needs neither torch nor cuda-core.

    device = core.Device(torch.cuda.current_device())
    device.set_current()
    with asking(f"loading {code.entry}"):
        kernel = core.ObjectCode.from_ptx(code.ptx.encode()).get_kernel(code.entry)
    if code.shared > 48 * 1024:
        optin = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        asked(driver.cuKernelSetAttribute, optin, code.shared, kernel.handle, device.device_id)
    handle = torch.cuda.current_stream().cuda_stream
    stream = core.Stream.from_handle(handle) if handle else device.default_stream
    config = core.LaunchConfig(grid=grid, block=32 * num_warps, shmem_size=code.shared)
    values = [parameter(arguments.get(name, 0)) for name in code.passed]

    def call() -> None:
        with asking(f"launching {code.entry}"):
            core.launch(stream, config, kernel, *values)

    return call, kernel.attributes.num_regs, kernel.attributes.local_size_bytes


def parameter(value: Any) -> Any:
    """A value as cuda.core takes it: tensors by address; no kernel here takes integers of 64 bits."""
    if hasattr(value, "data_ptr"):
        return value.data_ptr()
    return np.float32(value) if isinstance(value, float) else int(value)


if __name__ == "__main__":
    main()
