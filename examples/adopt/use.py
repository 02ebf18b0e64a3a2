"""What the library is used for; `kbuild capture -- python use.py` records it."""

import tiny_ops
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def some(*shape, dtype=torch.float32):
    return torch.randn(*shape, device=DEVICE).to(dtype)


for dtype in (torch.float16, torch.float32):
    for n in (1000, 4096):
        x, y, weight = (some(n, dtype=dtype) for _ in range(3))
        tiny_ops.add(x, y)
        tiny_ops.scale(x, 0.5)
        tiny_ops.lerp(x, y, weight)
        tiny_ops.gelu(x)
        tiny_ops.gelu(x, "tanh")
    for n in (100, 512, 2048):
        x = some(8, n, dtype=dtype)
        tiny_ops.softmax(x)
        tiny_ops.rms_norm(x)
        tiny_ops.rms_norm(x, some(n, dtype=dtype))
        tiny_ops.row_max(x)
        tiny_ops.cross_entropy(x, torch.randint(0, n, (8,), device=DEVICE))
    tiny_ops.transpose(some(100, 70, dtype=dtype))
    for size in (64, 100):
        tiny_ops.matmul(some(size, size, dtype=dtype), some(size, size, dtype=dtype))
