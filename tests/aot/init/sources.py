"""Files with kernels, as their authors write them."""

HEAD = "import torch\nimport triton\nimport triton.language as tl\n"

VECTOR_ADD = (
    HEAD
    + """

@triton.jit
def add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    tl.store(output_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask), mask=mask)


def add(x: torch.Tensor, y: torch.Tensor):
    output = torch.empty_like(x)
    n_elements = output.numel()
    grid = lambda meta: (triton.cdiv(n_elements, meta["BLOCK_SIZE"]),)
    add_kernel[grid](x, y, output, n_elements, BLOCK_SIZE=1024)
    return output
"""
)

SOFTMAX = (
    HEAD
    + """

@triton.jit
def softmax_kernel(output_ptr, input_ptr, input_row_stride, output_row_stride, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK_SIZE)
    values = tl.load(input_ptr + row * input_row_stride + offsets, mask=offsets < n_cols, other=-float("inf"))
    numerator = tl.exp(values - tl.max(values, axis=0))
    output = numerator / tl.sum(numerator, axis=0)
    tl.store(output_ptr + row * output_row_stride + offsets, output, mask=offsets < n_cols)


def softmax(x):
    n_rows, n_cols = x.shape
    BLOCK_SIZE = triton.next_power_of_2(n_cols)
    y = torch.empty_like(x)
    softmax_kernel[(n_rows,)](y, x, x.stride(0), y.stride(0), n_cols, num_warps=8, BLOCK_SIZE=BLOCK_SIZE)
    return y
"""
)

MATMUL = (
    HEAD
    + """

def configs():
    return [
        triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 32, "GROUP_M": 8}, num_warps=w, num_stages=s)
        for m, n, w, s in [(128, 256, 8, 3), (64, 256, 4, 4), (128, 128, 4, 4)]
    ]


@triton.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


@triton.autotune(configs=configs(), key=["M", "N", "K"], prune_configs_by={"early_config_prune": prune})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, ACTIVATION: tl.constexpr,
):
    pid = tl.program_id(axis=0)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    first_pid_m = pid // (GROUP_M * num_pid_n) * GROUP_M
    group_size_m = min(tl.cdiv(M, BLOCK_M) - first_pid_m, GROUP_M)
    pid_m = first_pid_m + ((pid % (GROUP_M * num_pid_n)) % group_size_m)
    pid_n = (pid % (GROUP_M * num_pid_n)) // group_size_m
    offs_am = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    offs_bn = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_K, other=0.0)
        accumulator = tl.dot(a, b, accumulator)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if ACTIVATION == "leaky_relu":
        accumulator = leaky_relu(accumulator)
    offs_cm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_cn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c_ptr + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :]
    tl.store(c_ptrs, accumulator.to(c_ptr.dtype.element_ty), mask=(offs_cm[:, None] < M) & (offs_cn[None, :] < N))


def matmul(a, b, activation=""):
    M, K = a.shape
    K, N = b.shape
    c = torch.empty((M, N), device=a.device, dtype=torch.float16)
    grid = lambda META: (triton.cdiv(M, META["BLOCK_M"]) * triton.cdiv(N, META["BLOCK_N"]),)
    matmul_kernel[grid](
        a, b, c, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0), c.stride(1),
        ACTIVATION=activation,
    )
    return c
"""
)

LAYER_NORM = (
    HEAD
    + """

@triton.heuristics({
    "HAS_BIAS": lambda args: args["bias"] is not None,
    "EVEN": lambda args: args["n_cols"] % args["BLOCK"] == 0,
    "num_warps": lambda args: 8 if args["BLOCK"] > 2048 else 4,
})
@triton.jit
def layer_norm(
    x, out, weight, bias, mean, rstd, stride, n_cols, eps,
    BLOCK: tl.constexpr, HAS_BIAS: tl.constexpr, EVEN: tl.constexpr,
):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < n_cols
    values = tl.load(x + row * stride + columns) if EVEN else tl.load(x + row * stride + columns, mask=inside, other=0.0)
    average = tl.sum(values) / n_cols
    centred = tl.where(inside, values - average, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred) / n_cols + eps)
    tl.store(mean + row, average)
    tl.store(rstd + row, scale)
    y = centred * scale * tl.load(weight + columns, mask=inside)
    if HAS_BIAS:
        y += tl.load(bias + columns, mask=inside)
    tl.store(out + row * stride + columns, y, mask=inside)


def forward(x, weight, bias):
    n_rows, n_cols = x.shape
    out = torch.empty_like(x)
    mean = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    rstd = torch.empty_like(mean)
    layer_norm[(n_rows,)](x, out, weight, bias, mean, rstd, x.stride(0), n_cols, 1e-5, BLOCK=1024)
    return out
"""
)
