"""Runs what the lowering writes for single elements on the host: its LLVM text, compiled for this processor.

The approximate instructions have stand-ins that flush subnormal numbers, as they do, and are as far off as is
asked for: by nothing but one rounding, or by all that they may be off upwards, or downwards, by the
emulator's table.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable
from functools import cache, lru_cache

import llvmlite.binding as llvm
import numpy as np

from kbuild.compiler.ir.core import Block, Func, Op
from kbuild.compiler.ir.types import FloatType
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.math import real
from kbuild.compiler.lower.math.functions import FORMULAS
from kbuild.emulator.isa.floats import ROWS
from kbuild.emulator.isa.instruction_spec import Accuracy
from kbuild.targets import find_target

_DIVIDE = re.compile(r'call float asm "div\.full[^"]*", "=f,f,f"\(float ([^,]+), float ([^)]+)\)')
_TINY = "0x3810000000000000"
_HELPERS = f"""
@off = global double 0.0
declare double @exp2(double)
declare double @log2(double)
declare float @tanhf(float)
declare float @llvm.fabs.f32(float)
declare double @llvm.fabs.f64(double)
declare float @llvm.copysign.f32(float, float)
define float @flushed(float %x) {{
  %size = call float @llvm.fabs.f32(float %x)
  %tiny = fcmp olt float %size, {_TINY}
  %zero = call float @llvm.copysign.f32(float 0.0, float %x)
  %r = select i1 %tiny, float %zero, float %x
  ret float %r
}}
define float @moved(double %exact, double %bound) {{
  %off = load double, ptr @off
  %ulps = fmul double %off, %bound
  %rounded = fptrunc double %exact to float
  %bits = bitcast float %rounded to i32
  %next_bits = add i32 %bits, 1
  %next = bitcast i32 %next_bits to float
  %wide = fpext float %rounded to double
  %next_wide = fpext float %next to double
  %step = fsub double %next_wide, %wide
  %move = fmul double %step, %ulps
  %far = fadd double %exact, %move
  %found = fptrunc double %far to float
  %found_wide = fpext float %found to double
  %distance = fsub double %found_wide, %exact
  %size = call double @llvm.fabs.f64(double %distance)
  %most = call double @llvm.fabs.f64(double %move)
  %beyond = fcmp ogt double %size, %most
  %up = fcmp ogt double %ulps, 0.0
  %back = select i1 %up, i32 -1, i32 1
  %found_bits = bitcast float %found to i32
  %nearer_bits = add i32 %found_bits, %back
  %nearer = bitcast i32 %nearer_bits to float
  %within = select i1 %beyond, float %nearer, float %found
  %exponent = and i32 %bits, 2139095040
  %infinite = icmp eq i32 %exponent, 2139095040
  %zero = icmp eq i32 %exponent, 0
  %special = or i1 %infinite, %zero
  %plain = fcmp oeq double %ulps, 0.0
  %as_is = or i1 %special, %plain
  %r = select i1 %as_is, float %rounded, float %within
  ret float %r
}}
"""
_EXACT = {
    "ex2": "%r = call double @exp2(double %w)",
    "lg2": "%r = call double @log2(double %w)",
    "rcp": "%r = fdiv double 1.0, %w",
    "sqrt": "%r = call double @llvm.sqrt.f64(double %w)",
    "rsqrt": "%s = call double @llvm.sqrt.f64(double %w) %r = fdiv double 1.0, %s",
}
"""The exact functions that the approximate instructions approximate, of a double."""


def accuracy(instruction: str) -> Accuracy:
    """How far an approximate instruction of f32 may be from the exact result, by the emulator's table."""
    (row,) = (
        row
        for row in ROWS
        if row.pattern in (f"{instruction}.approx[ftz].f32", f"{instruction}{{full|approx}}[ftz].f32")
    )
    assert row.accuracy is not None
    return row.accuracy


@cache
def _stand_ins() -> str:
    """Functions that replace the approximate instructions: `@off` says whether they are off by one rounding
    only (0), or by as much as allowed upwards (1) or downwards (-1)."""
    parts = [
        f"""define float @approximate.{name}(float %x) {{
          %f = call float @flushed(float %x) %w = fpext float %f to double {exact}
          %m = call float @moved(double %r, double {_double(accuracy(name).bound)})
          %n = call float @flushed(float %m) ret float %n }}"""
        for name, exact in _EXACT.items()
    ]
    quotient = f"""define float @approximate.div(float %a, float %b) {{
      %c = fpext float %a to double %d = fpext float %b to double %q = fdiv double %c, %d
      %m = call float @moved(double %q, double {_double(accuracy("div").bound)}) ret float %m }}"""
    return "\n".join([_HELPERS, *parts, quotient])


def _double(value: float) -> str:
    return f"0x{struct.pack('>d', value).hex()}"


_ENGINES: list[object] = []


def ulps(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """The error in units of the last place of the nearest number of `got`'s type; 0 where both are NaN or the
    same infinity."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(got.dtype)
        spacing = np.spacing(np.maximum(np.abs(rounded), np.finfo(got.dtype).tiny)).astype(exact.dtype)
        error = (np.abs(got.astype(exact.dtype) - exact) / spacing).astype(np.float64)
    equal = (got == rounded) & ~np.isfinite(got) | (np.isnan(got) & np.isnan(rounded))
    return np.where(equal, 0, np.where(np.isnan(error), np.inf, error))


def every_exponent(dtype: type, count: int) -> np.ndarray:
    """So many numbers of each sign and exponent, both ends and subnormal numbers among them, infinities and
    NaN."""
    word, fraction, rest = (np.uint32, 23, 9) if dtype is np.float32 else (np.uint64, 52, 12)
    random = np.random.default_rng(7)
    mantissas = random.integers(0, 1 << fraction, (1 << rest, count), dtype=word)
    mantissas[:, 0], mantissas[:, 1] = 0, (1 << fraction) - 1
    return ((np.arange(1 << rest, dtype=word)[:, None] << word(fraction)) | mantissas).ravel().view(dtype)


def evaluate(row: type[Op], type_: FloatType, *arguments: np.ndarray, off: int = 0) -> np.ndarray:
    """The results of a row's formula for arrays of float32 or float64, with instructions `off` by nothing or
    by as much as allowed."""
    kind = "double" if type_.bits == 64 else "float"
    write = FORMULAS[row].write
    return run(
        lambda emit, names: write(real.Real(emit, type_), *names),
        kind,
        kind,
        arguments[0].dtype,
        *arguments,
        off=off,
    )


def run(
    write: Callable[[Emitter, list[str]], str],
    kind: str,
    result_kind: str,
    result_type: type | np.dtype,
    *arguments: np.ndarray,
    off: int = 0,
) -> np.ndarray:
    """The code that `write` emits for registers of LLVM type `kind`, applied to arrays; lowered for sm_80."""
    emit = Emitter(Func("host", Block(), {"num_warps": 1}), find_target("sm_80"))
    result = write(emit, [f"%a{index}" for index in range(len(arguments))])
    module = _host_module(emit, result, kind, result_kind, len(arguments))
    output = np.empty(arguments[0].shape, result_type)
    kinds = [ctypes.c_int64, ctypes.c_double, *[ctypes.c_void_p] * (len(arguments) + 1)]
    function = ctypes.CFUNCTYPE(None, *kinds)(_compiled(module))
    function(output.size, off, output.ctypes.data, *[argument.ctypes.data for argument in arguments])
    return output


def _host_module(emit: Emitter, result: str, kind: str, result_kind: str, count: int) -> str:
    helpers = _stand_ins()
    declarations = [text for text in emit.declarations.values() if "nvvm" not in text and text not in helpers]
    if not any("@llvm.sqrt.f64" in text for text in declarations):
        declarations.append("declare double @llvm.sqrt.f64(double)")
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
            helpers,
            f"define internal {result_kind} @formula({call}) alwaysinline {{",
            "entry:",
            *emit.finish(),
            f"ret {result_kind} {result}",
            "}",
            f"define void @run(i64 %n, double %off, ptr %out, {pointers}) {{",
            "entry: store double %off, ptr @off br label %loop",
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
    text = _DIVIDE.sub(r"call float @approximate.div(float \1, float \2)", text).replace("addrspace(4) ", "")
    return re.sub(r"@llvm\.nvvm\.(\w+)\.approx\.ftz\.f\(", r"@approximate.\1(", text)


@lru_cache(maxsize=64)
def _compiled(text: str) -> int:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    ctypes.CDLL("libm.so.6", ctypes.RTLD_GLOBAL)
    module = llvm.parse_assembly(text)
    module.verify()
    features = llvm.get_host_cpu_features().flatten()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=2
    )
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    builder.getModulePassManager().run(module, builder)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    _ENGINES.append(engine)
    return engine.get_function_address("run")
