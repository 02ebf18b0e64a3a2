"""Host time of a launch through a generated package, and by `kbuild.load`, against a bare C loop over cuLaunchKernel.

    python bench/launch_cost.py                       a fake driver and a fake torch: the launcher's own time
    python bench/launch_cost.py --driver libcuda.so.1 the real driver and torch's tensors, on a machine with a
    GPU

Prints microseconds per launch (median of 9 rounds) for kernels of 4, 10 and 23 parameters.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import types
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import kbuild  # noqa: E402
from kbuild.aot.artifact import archive, rendering, tables  # noqa: E402
from kbuild.aot.build.launcher import build_launcher  # noqa: E402
from kbuild.aot.manifest.expand import Variant  # noqa: E402
from kbuild.aot.manifest.model import Kernel, Manifest, Package  # noqa: E402

SHAPES = {"four": (3, 1), "ten": (4, 6), "twenty_three": (6, 17)}
"""Kernels: pointers and integers that they take."""


def ptx_of(name: str, count: int) -> bytes:
    """An empty kernel with so many 64-bit parameters."""
    parameters = ", ".join(f".param .u64 p{i}" for i in range(count))
    return f".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry {name}({parameters}) {{ ret; }}\n".encode()


def make_package(root: Path) -> None:
    """A package of empty kernels, PTX only, with the rows that a real one has: types, alignment, values."""
    kernels, built, entries = [], [], []
    for name, (pointers, integers) in SHAPES.items():
        names = [f"p{i}" for i in range(pointers)], [f"n{i}" for i in range(integers)]
        kernels.append(Kernel(name, "", "", ("cdiv(n0, BLOCK)",), ()))
        for dtype, hint in itertools.product(("fp16", "bf16", "fp32"), (":16", "")):
            signature = (*((p, f"*{dtype}:16") for p in names[0]), *((n, f"i64{hint}") for n in names[1]))
            variant = Variant(name, "sm_80", (("dtype", dtype),), signature, (("BLOCK", 1024),))
            key = f"{name}.{variant.file_name}"
            image = ptx_of(name, pointers + integers)
            entries.append(
                archive.ArchiveEntry(key, "ptx", name, str(variant), "sm_80", name, 0, 4, 8, image)
            )
            facts = {
                "arch": "sm_80",
                "entry": name,
                "params": [(p, type_.partition(":")[0]) for p, type_ in signature],
                "shared": 0,
                "num_warps": 4,
                "static_shared": 0,
                "block": (128, 1, 1),
                "registers": 8,
                "sha256": "",
                "archive": "sm_80",
                "key": key,
                "ptx_key": key,
            }
            built.append((variant, facts))
    directory = root / "launch_cost_kernels"
    digest, _ = archive.write_archive(directory / "cubins" / "sm_80.kbz", entries)
    manifest = Manifest(Package(directory.name, "1", ("sm_80",), ("sm_80",)), tuple(kernels))
    table = tables.make_table(
        manifest, [(variant, facts | {"archive_sha256": digest}) for variant, facts in built]
    )
    rendering.render(directory, table)
    build_launcher(directory)


def compile_native(root: Path) -> None:
    """The fakes: tensor, bare loop, and driver."""
    include = sysconfig.get_path("include")
    native = root / "launch_cost_native.so"
    fake = HERE.parent / "tests" / "launcher" / "fake_libcuda.c"
    subprocess.run(
        ["cc", "-O2", "-shared", "-fPIC", f"-I{include}", HERE / "launch_cost.c", "-o", native, "-ldl"],
        check=True,
    )
    # cuda.bindings asks the loader for a library of that name.
    named = ["-Wl,-soname,libcuda.so.1", "-o", root / "libfakecuda.so"]
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", fake, *named, "-lpthread"], check=True)


class Dtype(str):
    """A type of elements of the fake torch."""


class Device:
    """A device of the fake torch."""

    def __init__(self, type: str, index: int) -> None:
        self.type, self.index = type, index


def fake_torch(native) -> types.ModuleType:
    """The parts of torch that the launcher uses; the stream's lookup is a C function, as torch's is."""
    torch = types.ModuleType("torch")
    vars(torch).update(
        Tensor=native.Tensor,
        device=Device,
        float16=Dtype("torch.float16"),
        _C=types.SimpleNamespace(_cuda_getCurrentRawStream=abs),
        cuda=types.SimpleNamespace(current_stream=lambda device: types.SimpleNamespace(cuda_stream=0)),
    )
    sys.modules["torch"] = torch
    return torch


def loaded_kernel(root: Path, name: str, target: str):
    """A kernel with the parameters of a shape, as `kbuild.load` launches it."""
    pointers, integers = SHAPES[name]
    signature = {f"p{i}": "*fp16:16" for i in range(pointers)} | {f"n{i}": "i64:16" for i in range(integers)}
    source = root / f"{name}.py"
    source.write_text(f"import triton\n\n@triton.jit\ndef {name}({', '.join(signature)}):\n    pass\n")
    return kbuild.load(kbuild.compile(f"{source}:{name}", signature=signature, target=target, stop="ptx"))


def measure(call, arguments: tuple, count: int) -> float:
    """Seconds per call: the median of 9 rounds, the calls written out so that the loop costs next to nothing."""
    rounds = []
    for _ in range(9):
        start = time.perf_counter()
        for _ in range(count // 4):
            call(*arguments)
            call(*arguments)
            call(*arguments)
            call(*arguments)
        rounds.append((time.perf_counter() - start) / count)
        time.sleep(0.01)
    return statistics.median(rounds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--driver", default="", help="the driver's library; a fake one by default")
    parser.add_argument("--count", type=int, default=2000, help="launches per round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        sys.path.insert(0, directory)
        make_package(root)
        compile_native(root)
        native = importlib.import_module("launch_cost_native")
        library = options.driver or str(root / "libfakecuda.so")
        os.environ |= {"KBUILD_LIBCUDA": library, "FAKE_CUDA_VERSION": "13000"}
        torch = importlib.import_module("torch") if options.driver else fake_torch(native)
        start = time.perf_counter()
        package = importlib.import_module("launch_cost_kernels")
        print(f"import of the package: {1e3 * (time.perf_counter() - start):.1f} ms")
        for name, (pointers, integers) in SHAPES.items():
            if options.driver:
                tensors = [torch.zeros(1024, dtype=torch.float16, device="cuda") for _ in range(pointers)]
            else:
                tensors = [
                    native.Tensor((1 << 40) + 256 * i, torch.float16, torch.device("cuda", 0))
                    for i in range(pointers)
                ]
            arguments = (*tensors, *(1024 + 16 * i for i in range(integers)))
            function = getattr(package.launch, name)
            function(*arguments)
            count = pointers + integers
            loops = [
                native.bare_loop(library, ptx_of(name, count), name, count, options.count) for _ in range(9)
            ]
            launch = measure(function, arguments, options.count)
            kernel = loaded_kernel(root, name, "sm_80")
            loaded = measure(lambda *given: kernel[1](*given), arguments, options.count)
            print(
                f"{count:3d} parameters: launch {1e6 * launch:.2f} us, kbuild.load {1e6 * loaded:.2f} us, "
                f"bare C loop {1e6 * statistics.median(loops):.2f} us"
            )


if __name__ == "__main__":
    main()
