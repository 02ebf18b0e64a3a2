"""A small project of kernels in CUDA C++, which the tests change as they need."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.manifests import package_table

MANIFEST = (
    package_table("cuda_kernels", "sm_80", "sm_90")
    + """\
[[kernel]]
name = "matmul"
source = "kernels/matmul.cu"
block = ["TILE", "TILE"]
shared = "2 * TILE * TILE * T_bytes"
grid = ["cdiv(N, TILE)", "cdiv(M, TILE)"]
args = { "a, b" = "*{T}", c = "*fp32:16", "M, N, K" = "i32", alpha = "fp32" }
matrix = { T = ["fp32", "fp16"], RELU = [false, true] }
config = [{ TILE = 16, when = { M = ">= 16" } }, { TILE = 8 }]
[kernel.op]
inputs = { a = "M K", b = "K N" }
outputs = { c = "M N" }
dtypes = { c = "fp32" }
scalars = { alpha = 1.0, RELU = false }
bind = { M = "M", N = "N", K = "K" }
[kernel.verify]
reference = "reference.py:matmul"
sizes = { a = "M * K", b = "K * N", c = "M * N" }
values = [{ M = 17, N = 20, K = 40, alpha = 0.5 }, { M = 3, N = 9, K = 5, alpha = 2.0 }]

[[kernel]]
name = "scale"
source = "kernels/scale.cu"
function = "tools::scale_all"
block = [128]
grid = ["cdiv(n, 128)"]
args = { x = "*fp32", y = "*fp32", n = "i64" }
config = [{ FACTOR = 3 }]
[kernel.verify]
reference = "kernels/scale.py:scale_kernel"
reference_constexprs = { BLOCK = 64 }
reference_grid = ["cdiv(n, BLOCK)"]
sizes = { "x, y" = "n" }
values = [{ n = 300 }]
"""
)

MATMUL = """\
#include "index.cuh"
#include <cuda_fp16.h>

/* Multiplies two matrices by tiles in shared memory. */
template <int TILE, class T, bool RELU = false>
__global__ void __launch_bounds__(TILE * TILE)
matmul(const T *__restrict__ a, const T *__restrict__ b, float *c, int M, int N, int K, float alpha) {
  extern __shared__ unsigned char raw[];
  T *as = reinterpret_cast<T *>(raw), *bs = as + TILE * TILE;
  const int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * TILE + y, column = blockIdx.x * TILE + x;
  float sum = 0;
  for (int k = 0; k < K; k += TILE) {
    as[y * TILE + x] = row < M && k + x < K ? a[at(row, k + x, K)] : T(0.0f);
    bs[y * TILE + x] = k + y < K && column < N ? b[at(k + y, column, N)] : T(0.0f);
    __syncthreads();  // filled
    for (int i = 0; i < TILE; ++i)
      sum += float(as[y * TILE + i]) * float(bs[i * TILE + x]);
    __syncthreads();  // read
  }
  if (row < M && column < N)
    c[at(row, column, N)] = alpha * (RELU && sum < 0 ? 0 : sum);
}
"""

INDEX = """\
#pragma once
__device__ __forceinline__ int at(int row, int column, int stride) { return row * stride + column; }
"""

SCALE = """\
namespace tools {
__global__ void scale_all(const float *x, float *y, long long n) {
  const long long i = blockIdx.x * 128ll + threadIdx.x;
  if (i < n)
    y[i] = x[i] * FACTOR;
}
}
"""

SCALE_PY = """\
import triton, triton.language as tl

@triton.jit
def scale_kernel(x, y, n, BLOCK: tl.constexpr, FACTOR: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * FACTOR, mask=i < n)
"""

REFERENCE = """\
import numpy as np

def matmul(a, b, c, M, N, K, alpha, RELU):
    product = a.reshape(M, K) @ b.reshape(K, N)
    c[:] = alpha * (np.maximum(product, 0) if RELU else product).ravel()
"""

FILES = {
    "kernels.toml": MANIFEST,
    "kernels/matmul.cu": MATMUL,
    "kernels/index.cuh": INDEX,
    "kernels/scale.cu": SCALE,
    "kernels/scale.py": SCALE_PY,
    "reference.py": REFERENCE,
}


def write_project(folder: Path) -> Path:
    """The project in a folder."""
    (folder / "kernels").mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The directory of the project."""
    return write_project(tmp_path)


def edit(file: Path, before: str, after: str) -> None:
    """Replace the only place where a file has some text."""
    text = file.read_text()
    assert text.count(before) == 1, text
    file.write_text(text.replace(before, after))
