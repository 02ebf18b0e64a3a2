"""Host time of calls of operators on a GPU, beside a loop of the driver's own call in C and torch's operators.

    python bench/speed/operator_cost.py --package kbuild_kernels [--loop liblaunch_loop.so]

Needs torch, `cuda.bindings` and an installed wheel of this repository's kernels.  `launch_loop.c` is compiled by `cc`
unless `--loop` names it as a library.  All rows and the loop are measured in turns, 100 calls at a time, since a host
has faster and slower seconds.  A row shows medians: nanoseconds of a call, and its ratio to the loop in the same turn.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import statistics
import subprocess
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from cuda.bindings import driver  # type: ignore[import-not-found]

CALLS, TURNS = 100, 300


def main() -> None:
    """Print a table with gradients switched off, and one with them on."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--package", default="kbuild_kernels", help="the installed package")
    parser.add_argument("--loop", type=Path, help="launch_loop.c as a shared library")
    options = parser.parse_args()
    package = importlib.import_module(options.package)
    print(torch.cuda.get_device_name(), "torch", torch.__version__, flush=True)
    loops = ctypes.CDLL(str(options.loop or compiled()))
    loop, rows = c_loop(package, loops), calls(package)
    by_library = library_loop(package, loops)
    for with_gradients in (False, True):
        torch.set_grad_enabled(with_gradients)
        print(f"gradients {'on' if with_gradients else 'off'}")
        in_c, here = in_turns(loop, by_library, rows)
        print(f"  {'the loop in C':32} {statistics.median(in_c):7.0f} ns")
        for name, times in here.items():
            ratio = statistics.median(time / own for time, own in zip(times, in_c))
            print(f"  {name:32} {statistics.median(times):7.0f} ns  {ratio:.2f}", flush=True)


def calls(package: ModuleType) -> dict[str, Callable[[], Any]]:
    """What is measured, by name; tensors are small, so that the GPU waits for the host."""
    x, y = torch.randn(2, 1024, device="cuda", dtype=torch.float16)
    out = torch.empty_like(x)
    rows, weight, bias = x.view(2, 512), x[:512], y[:512]
    normal, mean, rstd = torch.empty_like(rows), *torch.empty(2, 2, device="cuda")
    q, k, v = torch.randn(3, 1, 4, 128, 64, device="cuda", dtype=torch.float16)
    heads, lse = torch.empty_like(q), torch.empty(1, 4, 128, device="cuda")
    return {
        "vector_add, bare launch": lambda: package.launch.vector_add(x, y, out, 1024),
        "vector_add(x, y, out=out)": lambda: package.vector_add(x, y, out=out),
        "vector_add(x, y)": lambda: package.vector_add(x, y),
        "torch.add(x, y, out=out)": lambda: torch.add(x, y, out=out),
        "torch.add(x, y)": lambda: torch.add(x, y),
        "softmax(rows, out=…)": lambda: package.softmax(rows, out=normal),
        "layer_norm(…, y=…, …)": lambda: package.layer_norm(
            rows, weight, bias, y=normal, mean=mean, rstd=rstd
        ),
        "layer_norm(…)": lambda: package.layer_norm(rows, weight, bias),
        "torch's layer_norm": lambda: torch.nn.functional.layer_norm(rows, (512,), weight, bias),
        "flash_attention(…, out=…, lse=…)": lambda: package.flash_attention(q, k, v, out=heads, lse=lse),
        "flash_attention(q, k, v)": lambda: package.flash_attention(q, k, v),
        "torch's attention": lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v),
    }


def in_turns(
    loop: Callable[[], float], by_library: Callable[[], float], rows: dict[str, Callable[[], Any]]
) -> tuple[list[float], dict[str, list[float]]]:
    """Nanoseconds of a launch by the loop in C, and of each row's calls, turn by turn."""
    in_c: list[float] = []
    here: dict[str, list[float]] = {"vector_add by the library for C": []} | {name: [] for name in rows}
    for _ in range(TURNS):
        in_c.append(loop())
        here["vector_add by the library for C"].append(by_library())
        for name, call in rows.items():
            call()
            begin = time.perf_counter_ns()
            for _ in range(CALLS):
                call()
            here[name].append((time.perf_counter_ns() - begin) / CALLS)
            torch.cuda.synchronize()
    return in_c, here


def compiled() -> Path:
    """The loop as a library."""
    library = Path(tempfile.mkdtemp()) / "liblaunch_loop.so"
    source = Path(__file__).with_name("launch_loop.c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", source, "-o", library, "-ldl"], check=True)
    return library


class DLTensor(ctypes.Structure):
    """A tensor of DLPack."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


def library_loop(package: ModuleType, loops: ctypes.CDLL) -> Callable[[], float]:
    """Measures calls of the operator vector_add from C."""
    assert package.__file__ is not None
    path = Path(package.__file__).with_name(f"lib{package.__name__}.so")
    operator = getattr(ctypes.CDLL(str(path)), f"{package.__name__}_vector_add")
    arrays = [torch.randn(1024, device="cuda", dtype=torch.float16) for _ in range(3)]
    shape, dtype = (ctypes.c_int64 * 1)(1024), (ctypes.c_uint8 * 4)(2, 16, 1, 0)
    views = [DLTensor(array.data_ptr(), (2, 0), 1, dtype, shape) for array in arrays]
    function = loops.operator_loop
    function.restype = ctypes.c_double

    def measure() -> float:
        assert arrays  # They have to live as long as this.
        taken = function(operator, *map(ctypes.byref, views), CALLS)
        torch.cuda.synchronize()
        return taken

    return measure


def c_loop(package: ModuleType, loops: ctypes.CDLL) -> Callable[[], float]:
    """Measures launches of the package's own vector_add from C."""
    function = loops.launch_loop
    function.restype = ctypes.c_double
    function.argtypes = [ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint, ctypes.c_void_p, ctypes.c_int]
    image, entry = cubin(package, "vector_add.fp16.n=d8")
    torch.zeros(1, device="cuda")
    handle = checked(
        driver.cuModuleGetFunction(checked(driver.cuModuleLoadData(image)), entry["entry"].encode())
    )
    arrays = [torch.randn(1024, device="cuda", dtype=torch.float16) for _ in range(3)]
    values = [*(ctypes.c_uint64(array.data_ptr()) for array in arrays), ctypes.c_int64(1024)]
    parameters = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))

    def measure() -> float:
        assert arrays and values  # They have to live as long as this.
        taken = function(int(handle), 1, 32 * entry["num_warps"], ctypes.addressof(parameters), CALLS)
        torch.cuda.synchronize()
        return taken

    return measure


def checked(answer: tuple) -> Any:
    """What a function of the driver gives besides its code."""
    code, *rest = answer
    assert int(code) == 0, code
    return rest[0] if rest else None


def cubin(package: ModuleType, key: str) -> tuple[bytes, dict[str, Any]]:
    """A cubin of the package for sm_90, and what its archive says of it."""
    assert package.__file__ is not None
    data = Path(package.__file__).with_name("cubins").joinpath("sm_90.kbz").read_bytes()
    length = int.from_bytes(data[4:8], "little")
    entry = next(each for each in json.loads(data[40 : 40 + length])["entries"] if key in each["key"])
    stored = data[40 + length + entry["offset"] :][: entry["stored"]]
    return (zlib.decompress(stored) if entry["compression"] == "zlib" else stored), entry


if __name__ == "__main__":
    main()
