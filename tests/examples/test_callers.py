"""The callers in C++ and JAX, with a package of this repository's operators whose cubins are other bytes.

There is no CUDA runtime and no GPU here: the program has headers in place of the runtime's, and a driver that logs
launches and does nothing; JAX compiles its model, and does not run it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.aot.artifact import rendering, tables
from kbuild.aot.artifact.archive import ArchiveEntry, write_archive
from kbuild.aot.build.launcher import build_launcher
from kbuild.aot.manifest.descriptors import expanded
from kbuild.aot.manifest.expand import expand
from kbuild.aot.manifest.load import load
from tests.launcher.example_package import built, image_of

ROOT = Path(__file__).resolve().parents[2]
CALLERS = ROOT / "examples/callers"

RUNTIME = """\
#include <cstdint>
#include <cstdlib>
#include <cstring>
typedef int cudaError_t;
typedef void *cudaStream_t;
enum { cudaSuccess = 0, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
inline const char *cudaGetErrorString(int) { return "an error"; }
inline int cudaMalloc(void **to, size_t bytes) { *to = std::calloc(bytes, 1); return 0; }
inline int cudaFree(void *memory) { std::free(memory); return 0; }
inline int cudaMemcpy(void *to, const void *from, size_t bytes, int) { std::memcpy(to, from, bytes); return 0; }
inline int cudaStreamCreate(cudaStream_t *stream) { *stream = nullptr; return 0; }
inline int cudaStreamSynchronize(cudaStream_t) { return 0; }
"""
BF16 = """\
struct __nv_bfloat16 { unsigned short bits; };
inline __nv_bfloat16 __float2bfloat16(float x) { unsigned u; __builtin_memcpy(&u, &x, 4); return { (unsigned short)(u >> 16) }; }
inline float __bfloat162float(__nv_bfloat16 x) { unsigned u = x.bits << 16; float f; __builtin_memcpy(&f, &u, 4); return f; }
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package's folder."""
    manifest = load(ROOT / "kernels.toml")
    wanted = [kernel for kernel in manifest.kernels if re.match("flash_attention|layer_norm", kernel.name)]
    manifest = replace(manifest, kernels=tuple(wanted))
    folder = tmp_path_factory.mktemp("site") / "kbuild_kernels"
    rows, entries = [], []
    for variant in expand(manifest, ("sm_90",)).variants:
        _, facts = built(variant)
        types = [(name, type_) for name, type_, _ in expanded(variant.signature) if not type_.endswith(":1")]
        facts["params"] = [(name, type_.partition(":")[0]) for name, type_ in types]
        image = image_of(facts["key"], len(types))
        facts["sha256"] = hashlib.sha256(image).hexdigest()
        names = {"kind": "cubin", "kernel": variant.kernel, "variant": variant.name, "arch": "sm_90"}
        numbers = {name: facts[name] for name in ("entry", "shared", "num_warps", "registers")}
        entries.append(ArchiveEntry(facts["key"], **names, **numbers, data=image))
        rows.append((variant, facts))
    digest, places = write_archive(folder / "cubins/sm_90.kbz", entries)
    rows = [(v, {**facts, "archive_sha256": digest, "place": places[facts["key"]]}) for v, facts in rows]
    rendering.render(folder, tables.make_table(manifest, rows))
    build_launcher(folder)
    return folder


def test_the_program_in_cpp(package: Path, fake_driver: Path, tmp_path: Path) -> None:
    """It is built, finds its archive, launches, and reports what the driver has not computed, and a wrong call."""
    if shutil.which("c++") is None:
        pytest.skip("no compiler for C++ here")
    for name, text in (("cuda_runtime.h", RUNTIME), ("cuda_bf16.h", BF16)):
        (tmp_path / name).write_text(text)
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{tmp_path}", f"-I{package / 'include'}"]
    linked = [f"-L{package}", "-lkbuild_kernels", f"-Wl,-rpath,{package}", "-o", tmp_path / "attention"]
    subprocess.run(["c++", *flags, CALLERS / "attention.cpp", *linked], check=True)
    environment = {"KBUILD_LIBCUDA": str(fake_driver), "FAKE_CUDA_DEVICES": "90"}
    done = subprocess.run(
        [tmp_path / "attention"], env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 1 and done.stderr == "that is too much\n"
    assert "a wrong call: flash_attention(): N is 256 in q and 300 in out" in done.stdout
    assert "largest difference from double: " in done.stdout


LOWERED = """\
import jax_caller as caller
traced = caller.step.trace(*caller.inputs(), caller.kernel_attention, caller.kernels.layer_norm)
print(traced.lower(lowering_platforms=("cuda",)).as_text())
"""


def test_the_model_of_jax(package: Path) -> None:
    """It is compiled for a GPU, with a custom call for each operator and each of their gradients; in a process of its own,
    for another package of this name may be in this one, and in torch."""
    pytest.importorskip("jax")
    path = os.pathsep.join([str(package.parent), str(CALLERS), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", LOWERED]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in ("flash_attention", "layer_norm"):
        assert (
            f"@kbuild_kernels.{name}(" in done.stdout and f"@kbuild_kernels.{name}_backward(" in done.stdout
        )
