"""Small PTX kernels for tests: bodies with typed arrays in and out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kbuild.emulator.engine.launch import Report, run

HEADER = ".version 8.8\n.target sm_90a\n.address_size 64\n"
REGISTERS = """
    .reg .pred %p<16>;
    .reg .b16 %h<32>;
    .reg .b32 %r<64>;
    .reg .b64 %d<64>;
"""


def kernel(body: str, arrays: Sequence[str] = (), module: str = "", threads: int = 32) -> str:
    """A kernel `test` whose parameters are the arrays' addresses; `%d_NAME` holds each, `%r_tid` the thread."""
    parameters = ", ".join(f".param .u64 {name}" for name in arrays)
    loads = "".join(f"    .reg .b64 %d_{name};\n    ld.param.b64 %d_{name}, [{name}];\n" for name in arrays)
    return f"""{HEADER}{module}
.visible .entry test({parameters})
.reqntid {threads}
{{{REGISTERS}{loads}    .reg .b32 %r_tid;
    mov.u32 %r_tid, %tid.x;
{body}
    ret;
}}
"""


def launch(
    body: str,
    arrays: Mapping[str, np.ndarray],
    *,
    module: str = "",
    threads: int = 32,
    grid: Sequence[int] = (1,),
    shared: int = 0,
    **options: Any,
) -> Report:
    """Run a body on arrays."""
    text = kernel(body, tuple(arrays), module, threads)
    return run(text, "test", grid, -(-threads // 32), shared, list(arrays.values()), **options)


def at(array: str, size: int, register: str = "%d0", index: str = "%r_tid") -> str:
    """Code that puts the address of an array's element into a register."""
    return f"    mad.wide.u32 {register}, {index}, {size}, %d_{array};\n"


def results(body: str, threads: int = 32, **inputs: np.ndarray) -> np.ndarray:
    """The u32 that each thread leaves in %r0; the inputs are u32, one per thread, in registers named after
    them."""
    code = ""
    for name in inputs:
        code += f"    .reg .b32 %r_{name};\n{at(name, 4)}    ld.global.b32 %r_{name}, [%d0];\n"
    code += body + at("out", 4) + "    st.global.b32 [%d0], %r0;\n"
    arrays = {
        **{name: np.asarray(value, np.uint32) for name, value in inputs.items()},
        "out": np.zeros(threads, np.uint32),
    }
    report = launch(code, arrays, threads=threads).check()
    found = report.outputs[-1]
    assert found is not None
    return found
