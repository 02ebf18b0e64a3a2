"""Host time of a launch of a library's kernel, by Triton's JIT and by a package that answers in its place.

    python bench/serving_cost.py           a fake driver and a fake torch: the time of what answers alone
    python bench/serving_cost.py --gpu     torch's tensors, the real driver, and Triton's JIT, on a machine with a GPU

Prints microseconds per launch (median of 9 rounds) for kernels of examples/adopt, which is built first: of `kernel[grid](…)` by
the JIT, of the same after `install()`, of `package.triton.NAME[grid](…)`, and of the package's bare function.  Triton has to be
importable.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import launch_cost  # noqa: E402

from kbuild.aot.build.progress import Progress  # noqa: E402
from kbuild.aot.build.project import BuildOptions, build  # noqa: E402


@dataclass(frozen=True)
class Case:
    """A launch in all the ways that there are."""

    name: str
    kernel: Any
    """Of the library."""
    grid: Any
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    bare: Callable[[], Any]

    def of(self, kernel: Any) -> Callable[[], Any]:
        """What launches it as a library does."""
        grid, arguments, keywords = self.grid, self.arguments, self.keywords
        return lambda: kernel[grid](*arguments, **keywords)


def cases(package: Any, tensor: Callable[[int], Any]) -> Iterator[Case]:
    """The launches; `tensor` makes one of so many elements of fp16."""
    ops, rows, matrices = (
        importlib.import_module(f"tiny_ops.{name}") for name in ("elementwise", "rows", "matrices")
    )
    x, y, z = tensor(4096), tensor(4096), tensor(4096)
    bare = package.launch
    add = (x, y, z, 4096), {"BLOCK": 1024}
    yield Case("add", ops.add_kernel, (4,), *add, lambda: bare.add(x, y, z, 4096, BLOCK=1024, grid=(4,)))
    yield Case(
        "add, grid is a function",
        ops.add_kernel,
        lambda meta: (-(-4096 // meta["BLOCK"]),),
        *add,
        lambda: bare.add(x, y, z, 4096, BLOCK=1024, grid=(4,)),
    )
    norm = {"HAS_WEIGHT": True, "BLOCK": 512, "num_warps": 4}
    yield Case(
        "rms_norm",
        rows.rms_norm_kernel,
        (8,),
        (x, y, z, 512, 512),
        norm,
        lambda: bare.rms_norm_2(x, y, z, 512, 512, HAS_WEIGHT=True, BLOCK=512, grid=(8,)),
    )
    yield Case(
        "matmul, tuned",
        matrices.matmul_kernel,
        lambda meta: (-(-64 // meta["BLOCK_M"]), -(-64 // meta["BLOCK_N"])),
        (x, y, z, 64, 64, 64),
        {},
        lambda: bare.matmul(x, y, z, 64, 64, 64, grid=(2, 2)),
    )


def name_of(kernel: Any) -> str:
    """The name of the function that decorators are around."""
    while hasattr(kernel, "fn"):
        kernel = kernel.fn
    return kernel.__name__


def make_site(folder: Path) -> None:
    """Copies the example, builds it there, and unpacks its package."""
    shutil.copytree(
        HERE.parent / "examples/adopt", folder, ignore=shutil.ignore_patterns("build", "dist", "__pycache__")
    )
    result = build(BuildOptions(project=folder, environment=dict(os.environ)), Progress())
    assert not result.failures and result.wheel is not None, result.failures
    with zipfile.ZipFile(result.wheel) as archive:
        archive.extractall(folder)


def fake_tensors(root: Path) -> Callable[[int], Any]:
    """Makes tensors of a fake torch, over a fake driver."""
    launch_cost.compile_native(root)
    native = importlib.import_module("launch_cost_native")
    os.environ["KBUILD_LIBCUDA"] = str(root / "libfakecuda.so")
    torch = launch_cost.fake_torch(native)
    addresses = iter(range(1 << 40, 1 << 41, 1 << 20))
    return lambda size: native.Tensor(next(addresses), torch.float16, torch.device("cuda", 0))


def torch_tensors() -> Callable[[int], Any]:
    """Makes tensors on the GPU."""
    torch = importlib.import_module("torch")
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    return lambda size: torch.zeros(size, dtype=torch.float16, device="cuda")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpu", action="store_true", help="measure on a GPU, with torch")
    parser.add_argument(
        "--site", type=Path, help="the example with its package beside tiny_ops; built by default"
    )
    parser.add_argument(
        "--count", type=int, default=500, help="launches per round, fewer than a stream queues"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        site = options.site or root / "site"
        sys.path[:0] = [str(root), str(site)]
        if not options.site:
            make_site(site)
        tensor = torch_tensors() if options.gpu else fake_tensors(root)
        package = importlib.import_module("adopt")
        found = list(cases(package, tensor))
        times: dict[str, list[str]] = {case.name: [] for case in found}

        def measure(call: Callable[[Case], Callable[[], Any]]) -> None:
            for case in found:
                launch = call(case)
                launch()
                times[case.name].append(f"{1e6 * launch_cost.measure(launch, (), options.count):10.2f}")

        if options.gpu:
            measure(lambda case: case.of(case.kernel))
        package.install(strict=True)
        measure(lambda case: case.of(case.kernel))
        measure(lambda case: case.of(getattr(package.triton, name_of(case.kernel))))
        measure(lambda case: case.bare)
        ways = [*(["Triton's"] if options.gpu else []), "installed", "triton.NAME", "bare"]
        print(f"{'microseconds':26}" + "".join(f"{way:>12}" for way in ways))
        for name, row in times.items():
            print(f"{name:26}" + "".join(f"{time:>12}" for time in row))


if __name__ == "__main__":
    main()
