"""Modules of torch over the operators, which have gradients and are traced by torch.compile."""

import torch

from fused_norms.kernels import rms_norm, swiglu


class RMSNorm(torch.nn.Module):
    """x / sqrt(mean of x² + eps) · weight over the last dimension, of `size` elements."""

    def __init__(self, size: int, eps: float = 1e-6, device=None, dtype=None) -> None:
        super().__init__()
        self.eps = eps
        self.weight = torch.nn.Parameter(torch.ones(size, device=device, dtype=dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, self.weight, eps=self.eps)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, eps={self.eps}"


class SwiGLU(torch.nn.Module):
    """The feed-forward layer of many transformers: down(silu(gate(x)) · up(x)), with gate and up in one product."""

    def __init__(self, size: int, hidden: int, device=None, dtype=None) -> None:
        super().__init__()
        self.gate_up = torch.nn.Linear(size, 2 * hidden, bias=False, device=device, dtype=dtype)
        self.down = torch.nn.Linear(hidden, size, bias=False, device=device, dtype=dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(swiglu(gate, up))
