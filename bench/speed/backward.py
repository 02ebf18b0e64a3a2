"""Times the backward passes on a GPU: attention against cuDNN's and torch's flash attention, and Triton's tutorial
where it can be imported; layer norm against torch's.

    python bench/speed/backward.py --package kbuild_kernels [--only REGEX] [--triton PATH/06-fused-attention.py]
    python bench/speed/backward.py --package kbuild_kernels --package another [--seconds 0.4]

Needs torch and an installed wheel of this repository's kernels, or several under different names: ratios are to the
first one's time, and the last lines say how fast the others are, on average over the rows.  Each result is compared
with float64 gradients (attention: of the first and the last head) before anything is timed, and contenders are
timed interleaved, in random order, with a cold L2 cache (`kbuild/aot/tune/interleaved.py`).  Times of ours are those
of all launches: attention's three, layer norm's two or three; Triton's are those of the tutorial's `backward`,
which multiplies k by the scale first.  A peer that fails, or computes other gradients, is left out, with its
reason: the tutorial knows fp16 alone.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import math
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import torch
from torch_clock import TorchClock

sys.path.insert(0, str(Path(__file__).parents[2]))

from kbuild.aot.tune import interleaved

Launch = Callable[[], Any]
TOKENS = 16384
ROWS = 128
LIMITS = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 1e-4}
"""The largest norm of a gradient's error over the norm of the gradient."""


def main() -> int:
    """Print a table; 1 if any of ours is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--package", action="append", help="an installed package (repeatable; default kbuild_kernels)"
    )
    parser.add_argument("--only", default="", help="rows whose name this regular expression finds")
    parser.add_argument("--triton", type=Path, help="Triton's tutorial 06, to be timed as well")
    parser.add_argument("--seconds", type=float, default=interleaved.SECONDS, help="of device time for a row")
    options = parser.parse_args()
    packages = [importlib.import_module(name) for name in options.package or ["kbuild_kernels"]]
    clock = TorchClock(torch)
    print(torch.cuda.get_device_name(), "torch", torch.__version__, flush=True)
    wrong, ratios = 0, []
    for name, case in (*attention_cases(packages, options.triton), *layer_norm_cases(packages)):
        if re.search(options.only, name):
            try:
                right, times = row(name, case, clock, options.seconds)
                wrong += not right
                ratios.append((name, times))
            except Exception as error:  # The other rows are worth having.
                wrong += 1
                print(f"{name:48} failed: {type(error).__name__}: {error}", flush=True)
            torch.cuda.empty_cache()
    summarize(ratios)
    return min(wrong, 1)


class Case:
    """One shape: our launches by package, the gradients that they write, how wrong such gradients are, and the
    peers, which return theirs."""

    def __init__(
        self,
        ours: dict[str, Launch],
        gradients: list[torch.Tensor],
        errors: Callable[[list[torch.Tensor]], dict[str, float]],
        limit: float,
        work: float,
        unit: str,
        peers: dict[str, Launch],
    ):
        self.ours, self.gradients, self.errors, self.limit = ours, gradients, errors, limit
        self.work, self.unit, self.peers = work, unit, peers


def row(
    name: str, make: Callable[[], Case], clock: TorchClock, seconds: float
) -> tuple[bool, dict[str, float]]:
    """Check and time one case, and print its line; whether all of ours are right, and the times."""
    case = make()
    contenders, reasons, wrong, errors = dict(case.ours), [], [], {}
    for package, launch in case.ours.items():
        for gradient in case.gradients:
            gradient.fill_(float("nan"))
        launch()
        errors[package] = case.errors(case.gradients)
        if max(errors[package].values()) > case.limit:
            wrong.append(package)
    for peer, launch in case.peers.items():
        try:
            found = case.errors(list(launch()[:3]))
            if max(found.values()) > case.limit:
                raise ValueError(f"its gradients are wrong by {found}")
            contenders[peer] = launch
        except Exception as error:  # A peer's failure is not ours, whatever it is.
            reasons.append(f"{peer} left out: {type(error).__name__}: {str(error).splitlines()[:1]}")
    times = interleaved.interleave(contenders, clock, seconds)
    (first, us), *rest = times.items()
    rate = case.work / us / (1e6 if case.unit == "TFLOP/s" else 1e3)
    others = "  ".join(f"{other} {time:9.1f} us ({time / us:.3f}x)" for other, time in rest)
    shown = " ".join(f"{key} {error:.1e}" for key, error in errors[first].items())
    print(f"{name:48} {us:9.1f} us {rate:7.1f} {case.unit}  {others}  err {shown}")
    for reason in (*reasons, *(f"{package} is WRONG: {errors[package]}" for package in wrong)):
        print("   ", reason)
    sys.stdout.flush()
    return not wrong, times


def summarize(rows: list[tuple[str, dict[str, float]]]) -> None:
    """For each kind of rows the geometric means, with the least and the largest, of the contenders' times over the
    first one's."""
    kinds: dict[str, dict[str, list[float]]] = {}
    for name, times in rows:
        first = next(iter(times.values()))
        for other, time in list(times.items())[1:]:
            kind = kinds.setdefault(re.sub(r" (N\d+|\d+x\d+|b?float\d+)", "", name), {})
            kind.setdefault(other, []).append(time / first)
    for kind, others in kinds.items():
        for other, ratios in others.items():
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(
                f"{kind:24} {other:24} {mean:.3f}x of the first one's time ({min(ratios):.3f} to {max(ratios):.3f})"
            )


def error_of(found: torch.Tensor, right: torch.Tensor) -> float:
    """The norm of the difference over that of what is right."""
    error = (found.double() - right).norm() / right.norm().clamp(min=1e-30)
    return error.item() if torch.isfinite(error) else float("inf")


# Attention


def attention_cases(
    packages: list[ModuleType], tutorial: Path | None
) -> Iterator[tuple[str, Callable[[], Case]]]:
    theirs = tutorial_of(tutorial)
    for head_dim, heads in ((64, 32), (128, 16)):
        for causal in (False, True):
            for dtype in (torch.float16, torch.bfloat16):
                for n in (1024, 2048, 4096, 8192, 16384):
                    name = f"attention D{head_dim} {'causal' if causal else 'full'} N{n} {str(dtype)[6:]}"
                    shape = (TOKENS // n, heads, n, head_dim)
                    yield name, lambda s=shape, c=causal, t=dtype: attention_case(packages, theirs, s, c, t)


def attention_case(
    packages: list[ModuleType], theirs: Any, shape: tuple[int, ...], causal: bool, dtype: torch.dtype
) -> Case:
    z, h, n, d = shape
    scale = d**-0.5
    q, k, v, dout = (torch.randn(shape, device="cuda").to(dtype) for _ in range(4))
    out, dq, dk, dv = (torch.empty_like(q) for _ in range(4))
    lse = torch.empty(z * h, n, device="cuda")
    padded = max(1, -(-n // ROWS)) * ROWS
    log2_sum, delta = (torch.empty(z * h, padded, device="cuda") for _ in range(2))
    dq_sum = torch.empty(z * h, padded, d, device="cuda")
    strides = q.stride()[:3]
    packages[0].launch.flash_attention(
        q, k, v, out, lse, scale, *strides * 4, h, h, n, n, z, HEAD_DIM=d, IS_CAUSAL=causal
    )

    def ours(package: ModuleType) -> None:
        package.flash_attention_backward_prepare(
            out, dout, lse, log2_sum, delta, dq_sum, *strides * 2, h, n, z, HEAD_DIM=d
        )
        package.launch.flash_attention_backward(
            q, k, v, dout, dk, dv, log2_sum, delta, dq_sum, scale, *strides * 6, h, h, n, n, z,
            HEAD_DIM=d, IS_CAUSAL=causal,
        )  # fmt: skip
        package.flash_attention_backward_finish(dq_sum, dq, scale, *strides, h, n, z, HEAD_DIM=d)

    ends = ((0, 0), (z - 1, h - 1))
    right = [attention_gradients(q[e], k[e], v[e], dout[e], scale, causal) for e in ends]

    def errors(gradients: list[torch.Tensor]) -> dict[str, float]:
        """Of the first and the last head."""
        return {
            name: max(error_of(found[end], own[number]) for end, own in zip(ends, right))
            for number, (name, found) in enumerate(zip(("dq", "dk", "dv"), gradients))
        }

    peers = {
        "cudnn": sdpa_backward("CUDNN_ATTENTION", q, k, v, dout, causal),
        "torch_flash": sdpa_backward("FLASH_ATTENTION", q, k, v, dout, causal),
    }
    if theirs is not None:
        peers["triton"] = tutorial_backward(theirs, (q, k, v, out), lse, dout, scale, causal)
    work = 10.0 * z * h * n * n * d * (0.5 if causal else 1.0)
    launches = {package.__name__: partial(ours, package) for package in packages}
    return Case(launches, [dq, dk, dv], errors, LIMITS[dtype], work, "TFLOP/s", peers)


def attention_gradients(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dout: torch.Tensor, scale: float, causal: bool
) -> tuple[torch.Tensor, ...]:
    """dq, dk and dv of one head in float64, by blocks of rows, since all scores would not fit."""
    q, k, v, dout = (t.double() for t in (q, k, v, dout))
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    positions = torch.arange(len(k), device="cuda")
    for start in range(0, len(q), 1024):
        rows = slice(start, start + 1024)
        scores = q[rows] @ k.T * scale
        if causal:
            last = positions[: len(q)][rows, None] + len(k) - len(q)
            scores = scores.masked_fill(positions > last, float("-inf"))
        p = torch.softmax(scores, -1)
        dp = dout[rows] @ v.T
        ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * scale
        dq[rows] = ds @ k
        dk += ds.T @ q[rows]
        dv += p.T @ dout[rows]
    return dq, dk, dv


def sdpa_backward(
    backend: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dout: torch.Tensor, causal: bool
) -> Launch:
    """torch's backward pass by one backend, its forward pass done at the first call."""
    kept: list[Any] = []

    def launch() -> Any:
        if not kept:
            from torch.nn.attention import SDPBackend, sdpa_kernel

            leaves = [t.detach().clone().requires_grad_() for t in (q, k, v)]
            with sdpa_kernel(getattr(SDPBackend, backend)):
                out = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=causal)
            kept.extend((leaves, out))
        return torch.autograd.grad(kept[1], kept[0], dout, retain_graph=True)

    return launch


def tutorial_of(path: Path | None) -> Any:
    """The autograd function of Triton's tutorial 06; None where there is none."""
    if path is None:
        return None
    try:
        spec = importlib.util.spec_from_file_location("triton_tutorial", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        if importlib.util.find_spec("pytest") is None:  # It marks its tests, which are not run.
            sys.modules["pytest"] = MagicMock()
        spec.loader.exec_module(module)
        return module._attention
    except Exception as error:  # It imports Triton and queries the device.
        print(f"{path} left out: {type(error).__name__}: {error}")
        return None


def tutorial_backward(
    theirs: Any,
    tensors: tuple[torch.Tensor, ...],
    lse: torch.Tensor,
    dout: torch.Tensor,
    scale: float,
    causal: bool,
) -> Launch:
    """The tutorial's backward pass behind our forward pass, which needs no search for its configuration: it keeps
    the log-sum-exp to base 2."""
    q = tensors[0]
    rows = (lse * math.log2(math.e)).reshape(q.shape[:3])
    context = SimpleNamespace(
        saved_tensors=(*tensors, rows), sm_scale=scale, HEAD_DIM=q.shape[-1], causal=causal
    )
    return lambda: theirs.backward(context, dout)


# Layer norm


def layer_norm_cases(packages: list[ModuleType]) -> Iterator[tuple[str, Callable[[], Case]]]:
    for rows, columns in (
        (16384, 256),
        (16384, 1024),
        (8192, 2048),
        (8192, 4096),
        (8192, 8192),
        (4096, 16384),
        (4096, 32768),
    ):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            name = f"layer_norm_backward {rows}x{columns} {str(dtype)[6:]}"
            yield name, lambda r=rows, c=columns, t=dtype: layer_norm_case(packages, r, c, t)


def layer_norm_case(packages: list[ModuleType], rows: int, columns: int, dtype: torch.dtype) -> Case:
    x, dy = (torch.randn(rows, columns, device="cuda").to(dtype) for _ in range(2))
    weight, bias = (torch.randn(columns, device="cuda").to(dtype) for _ in range(2))
    dx, dweight, dbias = (torch.empty_like(t) for t in (x, weight, bias))
    wide = x.double()
    mean = wide.mean(1).float()
    rstd = ((wide.var(1, unbiased=False) + 1e-5) ** -0.5).float()

    def ours(package: ModuleType) -> None:
        package.layer_norm_backward(dy, x, weight, mean, rstd, dx=dx, dweight=dweight, dbias=dbias)

    def errors(gradients: list[torch.Tensor]) -> dict[str, float]:
        normal = (wide - mean.double()[:, None]) * rstd.double()[:, None]
        weighted = dy.double() * weight.double()
        first, second = weighted.mean(1, keepdim=True), (weighted * normal).mean(1, keepdim=True)
        right = (
            (weighted - first - normal * second) * rstd.double()[:, None],
            (dy.double() * normal).sum(0),
            dy.double().sum(0),
        )
        return dict(zip(("dx", "dweight", "dbias"), map(error_of, gradients, right)))

    def torchs() -> Any:
        return torch.ops.aten.native_layer_norm_backward(
            dy, x, [columns], mean[:, None], rstd[:, None], weight, bias, [True, True, True]
        )

    work = 3.0 * x.numel() * x.element_size()
    launches = {package.__name__: partial(ours, package) for package in packages}
    return Case(launches, [dx, dweight, dbias], errors, LIMITS[dtype], work, "GB/s", {"torch": torchs})


if __name__ == "__main__":
    sys.exit(main())
