"""The driver's functions as a C program calls them, through ctypes."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

ADD_ONE = """\
.version 7.0
.target sm_80
.address_size 64
.global .align 4 .u32 calls = 0;
.visible .entry add_one(.param .u64 x, .param .u32 n)
{
    .reg .b32 %r<6>;
    .reg .b64 %rd<4>;
    .reg .pred %p<2>;
    ld.param.b64 %rd1, [x];
    ld.param.b32 %r1, [n];
    mov.u32 %r2, %tid.x;
    setp.ge.u32 %p1, %r2, %r1;
    @%p1 bra DONE;
    mul.wide.u32 %rd2, %r2, 4;
    add.u64 %rd3, %rd1, %rd2;
    ld.global.b32 %r3, [%rd3];
    add.u32 %r4, %r3, 1;
    st.global.b32 [%rd3], %r4;
DONE:
    ret;
}
"""
"""A kernel that adds one to each of n integers."""


class CudaError(Exception):
    """A call that did not succeed."""

    def __init__(self, name: str, code: int, text: str) -> None:
        super().__init__(f"{name}: {code}: {text}")
        self.code = code


class Cuda:
    """Every method is a function of the driver; those with results through pointers return them."""

    def __init__(self, path: Path, device: int | None = 0) -> None:
        self.library = ctypes.CDLL(str(path))
        self.early = self.stale = ctypes.c_void_p()
        self("cuInit", ctypes.c_uint(0))
        if device is not None:
            self("cuCtxSetCurrent", self.get("cuDevicePrimaryCtxRetain", ctypes.c_int(device)))

    def __call__(self, name: str, *arguments: Any) -> None:
        """Call a function.  Raises CudaError where it fails."""
        code = getattr(self.library, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self.library.cuGetErrorString(code, ctypes.byref(text))
            raise CudaError(name, code, (text.value or b"").decode())

    def get(self, name: str, *arguments: Any, kind: Any = ctypes.c_void_p) -> Any:
        """Call a function whose first argument points to its result, and return that."""
        result = kind()
        self(name, ctypes.byref(result), *arguments)
        return result

    def allocate(self, size: int) -> ctypes.c_uint64:
        return self.get("cuMemAlloc_v2", ctypes.c_size_t(size), kind=ctypes.c_uint64)

    def stream(self, flags: int = 0) -> ctypes.c_void_p:
        return self.get("cuStreamCreate", ctypes.c_uint(flags))

    def event(self) -> ctypes.c_void_p:
        return self.get("cuEventCreate", ctypes.c_uint(0))

    def kernel(self, ptx: str = ADD_ONE, name: str = "add_one") -> ctypes.c_void_p:
        """A kernel of a PTX text."""
        module = self.get("cuModuleLoadData", ctypes.c_char_p(ptx.encode()))
        return self.get("cuModuleGetFunction", module, ctypes.c_char_p(name.encode()))

    def launch(
        self, function: ctypes.c_void_p, *arguments: Any, stream: Any = None, threads: int = 32
    ) -> None:
        """Launch one block."""
        addresses = (ctypes.c_void_p * len(arguments))(
            *(ctypes.addressof(argument) for argument in arguments)
        )
        self("cuLaunchKernel", function, 1, 1, 1, threads, 1, 1, 0, stream, addresses, None)

    def write(self, address: ctypes.c_uint64, values: list[int]) -> None:
        """Put integers on the device."""
        self(
            "cuMemcpyHtoD_v2",
            address,
            (ctypes.c_int * len(values))(*values),
            ctypes.c_size_t(4 * len(values)),
        )

    def read(self, address: ctypes.c_uint64, count: int) -> list[int]:
        """Integers from the device."""
        values = (ctypes.c_int * count)()
        self("cuMemcpyDtoH_v2", values, address, ctypes.c_size_t(4 * count))
        return list(values)
