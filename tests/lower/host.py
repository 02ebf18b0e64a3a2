"""Runs what the lowering writes for single elements on the host: its LLVM text, compiled for this processor.

The approximate instructions stand for exact ones here (rounded once), so what is measured is the formulas' own error.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable

import llvmlite.binding as llvm
import numpy as np

from kbuild.compiler.ir.core import Block, Func, Op
from kbuild.compiler.ir.types import FloatType
from kbuild.compiler.lower import real
from kbuild.compiler.lower.emit import Emitter
from kbuild.compiler.lower.math import FORMULAS
from kbuild.compiler.targets import find_target

_DIVIDE = re.compile(r'call float asm "div\.full[^"]*", "=f,f,f"\(float ([^,]+), float ([^)]+)\)')
_STAND_INS = """
declare float @exp2f(float)
declare float @tanhf(float)
define float @ex2(float %x) { %r = call float @exp2f(float %x) ret float %r }
define float @rcp(float %x) { %r = fdiv float 1.0, %x ret float %r }
define float @root(float %x) { %r = call float @llvm.sqrt.f32(float %x) ret float %r }
define float @rroot(float %x) { %s = call float @llvm.sqrt.f32(float %x) %r = fdiv float 1.0, %s ret float %r }
"""
_NAMES = {
    "llvm.nvvm.ex2.approx.ftz.f": "ex2",
    "llvm.nvvm.rcp.approx.ftz.f": "rcp",
    "llvm.nvvm.sqrt.approx.ftz.f": "root",
    "llvm.nvvm.rsqrt.approx.ftz.f": "rroot",
}
_ENGINES: list[object] = []


def evaluate(row: type[Op], type_: FloatType, *arguments: np.ndarray) -> np.ndarray:
    """What a row's formula gives for arrays of float32 or float64."""
    kind = "double" if type_.bits == 64 else "float"
    write = FORMULAS[row].write
    return run(lambda emit, names: write(real.Real(emit, type_), *names), kind, kind, arguments[0].dtype, *arguments)


def run(
    write: Callable[[Emitter, list[str]], str], kind: str, result_kind: str, result_type: type | np.dtype, *arguments: np.ndarray
) -> np.ndarray:
    """What `write` makes of registers of LLVM type `kind`, applied to arrays; the lowering is that for sm_80."""
    emit = Emitter(Func("host", Block(), {"num_warps": 1}), find_target("sm_80"))
    result = write(emit, [f"%a{index}" for index in range(len(arguments))])
    module = _host_module(emit, result, kind, result_kind, len(arguments))
    output = np.empty(arguments[0].shape, result_type)
    function = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * (len(arguments) + 1))(_compiled(module))
    function(output.size, output.ctypes.data, *[argument.ctypes.data for argument in arguments])
    return output


def _host_module(emit: Emitter, result: str, kind: str, result_kind: str, count: int) -> str:
    declarations = [text for name, text in emit.declarations.items() if name not in _NAMES]
    if not any("@llvm.sqrt.f32" in text for text in declarations):
        declarations.append("declare float @llvm.sqrt.f32(float)")
    pointers = ", ".join(f"ptr %p{index}" for index in range(count))
    loads = []
    for index in range(count):
        loads.append(f"%q{index} = getelementptr {kind}, ptr %p{index}, i64 %i")
        loads.append(f"%a{index} = load {kind}, ptr %q{index}")
    call = ", ".join(f"{kind} %a{index}" for index in range(count))
    text = "\n".join(
        [
            *emit.globals,
            *declarations,
            _STAND_INS,
            f"define internal {result_kind} @formula({call}) alwaysinline {{",
            "entry:",
            *emit.finish(),
            f"ret {result_kind} {result}",
            "}",
            f"define void @run(i64 %n, ptr %out, {pointers}) {{",
            "entry: br label %loop",
            "loop: %i = phi i64 [0, %entry], [%next, %loop]",
            *loads,
            f"%r = call {result_kind} @formula({call})",
            f"%o = getelementptr {result_kind}, ptr %out, i64 %i",
            f"store {result_kind} %r, ptr %o",
            "%next = add i64 %i, 1",
            "%more = icmp slt i64 %next, %n",
            "br i1 %more, label %loop, label %done",
            "done: ret void }",
        ]
    )
    text = _DIVIDE.sub(r"fdiv float \1, \2", text).replace("addrspace(4) ", "")
    for old, new in _NAMES.items():
        text = text.replace(f"@{old}(", f"@{new}(")
    return text


def _compiled(text: str) -> int:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    ctypes.CDLL("libm.so.6", ctypes.RTLD_GLOBAL)
    module = llvm.parse_assembly(text)
    module.verify()
    features = llvm.get_host_cpu_features().flatten()
    machine = llvm.Target.from_default_triple().create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=2)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    builder.getModulePassManager().run(module, builder)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    _ENGINES.append(engine)
    return engine.get_function_address("run")
