"""A compiler whose kernels do nothing: for tests of the steps before a kernel runs."""

from __future__ import annotations

import hashlib
from typing import Any

from kbuild.compiler.driver import Artifact, Metadata
from kbuild.options import CompileOptions

_BITS = {"i64": 64, "u64": 64, "fp64": 64, "i1": 8, "i8": 8, "i16": 16, "fp16": 16, "bf16": 16}


def compile(
    source: str,
    *,
    signature: Any,
    constexprs: Any,
    target: str,
    options: CompileOptions,
    texts: Any,
    ptxas_version: str = "12.9.86",
) -> Artifact:
    """An artifact that takes the arguments of the signature, but for those equal to one, and does nothing
    with them."""
    name = source.rpartition(":")[2]
    params = [
        (argument, type_.partition(":")[0])
        for argument, type_ in signature.items()
        if not type_.endswith(":1")
    ]
    widths = [(argument, 64 if type_[0] == "*" else _BITS.get(type_, 32)) for argument, type_ in params]
    declared = ", ".join(f".param .b{bits} {argument}" for argument, bits in widths)
    request = repr((source, signature, constexprs, target, options.code(), texts)).encode()
    ptx = f".version 7.0\n.target {target}\n.address_size 64\n.visible .entry {name}({declared}) {{ ret; }}\n"
    # A header, whose tables come last and are empty, and the digest; byte 8 is the version of the ABI.
    abi = 8 if ptxas_version.startswith("13") else 7
    header = (
        b"\x7fELF\x02\x01\x01\x00" + bytes([abi]) + bytes(31) + (64 + 32).to_bytes(8, "little") + bytes(16)
    )
    facts = Metadata(
        name,
        target,
        target,
        options,
        block=options.threads,
        shared=0,
        params=tuple(params),
        registers=32,
        spill_stores=0,
        spill_loads=0,
        ptxas_version=ptxas_version,
        waits_for_launches=True,
    )
    return Artifact({"ptx": ptx, "cubin": header + hashlib.sha256(request).digest()}, facts)


def compile_by_ptxas_13(*arguments: Any, **options: Any) -> Artifact:
    """The same with cubins as ptxas 13 makes them."""
    return compile(*arguments, **options, ptxas_version="13.5.37")
