"""Conversions between types."""

from __future__ import annotations

import numpy as np

from kbuild.emulator import fp
from kbuild.emulator.isa.bits import flush
from kbuild.emulator.isa.instruction_spec import TYPES, Form, InstructionSpec, Lanes

_ROUNDING = ("rn", "rz", "rm", "rp", "rna", "rs")
_TO_INTEGER = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def _convert(form: Form) -> Lanes:
    """`cvt.target.source` with one source; small float types go through `fp`."""
    target, source = form.types
    if source in ("bf16", "f16", "f32", "f64") and target in ("bf16", "f16", "f32", "f64"):
        return _between_floats(form, target, source)
    if source in ("f16", "f32", "f64", "bf16"):
        return _to_integer(form, target, source)
    if target in ("f16", "f32", "f64", "bf16"):
        return _from_integer(form, target, source)
    limits = np.iinfo(TYPES[target])
    if form.has("sat"):
        return lambda a: _clamp_integers(a, limits).astype(TYPES[target])
    return lambda a: a.astype(TYPES[target])


def _clamp_integers(values: np.ndarray, limits: np.iinfo) -> np.ndarray:
    own = np.iinfo(values.dtype)
    return np.clip(values, max(limits.min, own.min), min(limits.max, own.max))


def _between_floats(form: Form, target: str, source: str) -> Lanes:
    integral = _TO_INTEGER.get(form.choose(*_TO_INTEGER))
    rounding = form.choose(*_ROUNDING, default="rn")
    exact = {("f16", "f32"), ("f16", "f64"), ("f32", "f64")}
    plain = (source, target) in exact or (rounding == "rn" and (target, source) in exact) or source == target

    def function(a: np.ndarray) -> np.ndarray:
        # A GPU does not flush sources of a half: subnormal ones are too small for a half in any case.
        values = flush(a) if form.has("ftz") and source == "f32" and target != "f16" else a
        if integral is not None and source == "bf16":
            values = fp.convert(integral(fp.convert(values, "bf16", "f32")), "f32", "bf16")
        elif integral is not None:
            values = integral(values)
        if plain:
            values = values.astype(TYPES[target])
        else:
            values = fp.convert(
                values,
                source,
                target,
                rounding=rounding,
                relu=form.has("relu"),
                saturate=form.has("satfinite"),
            )
        if form.has("ftz") and target == "f32":
            values = flush(values)
        return _into_unit(values) if form.has("sat") else values

    return function


def _into_unit(values: np.ndarray) -> np.ndarray:
    """Clamped to [0, 1]; NaN and -0 become 0."""
    return np.where(values > 0, np.minimum(values, 1), 0).astype(values.dtype)


def _to_integer(form: Form, target: str, source: str) -> Lanes:
    """Rounded, then clamped; NaN gives 0, or the top bit alone where source or target are 64 bits wide."""
    rounded = _TO_INTEGER[form.choose(*_TO_INTEGER, default="rzi")]
    dtype = TYPES[target]
    limits = np.iinfo(dtype)
    wide = source == "f64" or dtype.itemsize == 8
    missing = np.array(1 << 8 * dtype.itemsize - 1 if wide else 0, np.uint64).astype(dtype)

    def function(a: np.ndarray) -> np.ndarray:
        values = fp.convert(a, "bf16", "f32") if source == "bf16" else a
        if form.has("ftz") and source == "f32":
            values = flush(values)
        whole = rounded(values.astype(np.float64))
        low, high = whole <= float(limits.min), whole >= float(limits.max)
        inside = np.where(low | high | np.isnan(whole), 0.0, whole).astype(dtype)
        return np.where(
            np.isnan(whole),
            missing,
            np.where(low, limits.min, np.where(high, limits.max, inside).astype(dtype)),
        ).astype(dtype)

    return function


def _from_integer(form: Form, target: str, source: str) -> Lanes:
    rounding = form.choose(*_ROUNDING, default="rn")
    if form.has("sat"):
        return lambda a: fp.convert(np.clip(a, 0, 1).astype(np.float32), "f32", target)
    if rounding == "rn" and target in ("f32", "f64"):
        dtype = TYPES[target]
        return lambda a: a.astype(dtype)
    return lambda a: fp.convert(a, source, target, rounding=rounding)


def _pack(form: Form) -> Lanes:
    """Two float32 into one register of pairs, the first source above."""
    target = form.types[0][: form.types[0].rindex("x")]
    half = TYPES[target].itemsize
    options = {
        "rounding": form.choose(*_ROUNDING, default="rn"),
        "relu": form.has("relu"),
        "saturate": form.has("satfinite"),
    }

    def function(high: np.ndarray, low: np.ndarray) -> np.ndarray:
        parts = np.empty((len(high), 2), f"u{half}")
        parts[:, 0] = fp.convert(low, "f32", target, **options).view(f"u{half}")
        parts[:, 1] = fp.convert(high, "f32", target, **options).view(f"u{half}")
        return parts.view(f"u{2 * half}").ravel()

    return function


def _pairs(form: Form) -> Lanes:
    """Pairs to pairs: `f16x2` to and from two 8-bit floats."""
    target, source = (name[:-2] for name in form.types)
    options = {"rounding": "rn", "relu": form.has("relu"), "saturate": form.has("satfinite")}

    def function(a: np.ndarray) -> np.ndarray:
        elements = np.ascontiguousarray(a).view(TYPES[source])
        result = fp.convert(elements, source, target, **options)
        return result.view(f"u{2 * result.itemsize}")

    return function


def _tensor_float(form: Form) -> Lanes:
    rounding, relu = form.choose("rna", "rn", "rz"), form.has("relu")
    return lambda a: fp.convert(
        a, "f32", "tf32", rounding=rounding, relu=relu, saturate=form.has("satfinite")
    )


def _pack_integers(form: Form) -> Lanes:
    """`cvt.pack.sat`: two clamped integers beside each other, above those of a third source."""
    target = TYPES[form.types[0]]
    limits, width = np.iinfo(target), 8 * target.itemsize

    def function(high: np.ndarray, low: np.ndarray, *rest: np.ndarray) -> np.ndarray:
        unsigned = np.dtype(f"u{target.itemsize}")
        parts = [
            _clamp_integers(value, limits).astype(target).view(unsigned).astype(np.uint32)
            for value in (low, high)
        ]
        result = parts[0] | parts[1] << np.uint32(width)
        return result | (rest[0] << np.uint32(2 * width)) if rest else result

    return function


_INTEGER = "{u8|u16|u32|u64|s8|s16|s32|s64}"
_FLOAT = "{f16|bf16|f32|f64}"

ROWS = [
    InstructionSpec(
        "cvt[sat]" + _INTEGER + _INTEGER, "t0 = t", "integer to integer, clamped with .sat", _convert
    ),
    InstructionSpec(
        "cvt{rni|rzi|rmi|rpi}[ftz][sat]" + _INTEGER + _FLOAT, "t0 = t", "float to integer, clamped", _convert
    ),
    InstructionSpec("cvt{rn|rz|rm|rp}[sat]" + _FLOAT + _INTEGER, "t0 = t", "integer to float", _convert),
    InstructionSpec(
        "cvt[rn|rz|rm|rp|rni|rzi|rmi|rpi][ftz][relu][sat|satfinite]" + _FLOAT + _FLOAT,
        "t0 = t",
        "float to float",
        _convert,
    ),
    InstructionSpec(
        "cvt{rn|rz}[relu][satfinite]{f16x2|bf16x2}.f32", "t0 = t t", "two floats to a pair", _pack
    ),
    InstructionSpec(
        "cvt.rn.satfinite[relu]{e4m3x2|e5m2x2}.f32", "t0 = t t", "two floats to a pair of bytes", _pack
    ),
    InstructionSpec(
        "cvt.rn.satfinite[relu]{e4m3x2|e5m2x2}.f16x2", "t0 = t", "a pair of halves to a pair of bytes", _pairs
    ),
    InstructionSpec(
        "cvt.rn[relu].f16x2{e4m3x2|e5m2x2}", "t0 = t", "a pair of bytes to a pair of halves", _pairs
    ),
    InstructionSpec(
        "cvt.rna[satfinite].tf32.f32", "b32 = f32", "to TensorFloat-32, ties away from zero", _tensor_float
    ),
    InstructionSpec("cvt{rn|rz}[relu][satfinite].tf32.f32", "b32 = f32", "to TensorFloat-32", _tensor_float),
    InstructionSpec(
        "cvt.pack.sat{u16|s16}.s32", "b32 = t t", "two clamped integers to a pair", _pack_integers
    ),
    InstructionSpec(
        "cvt.pack.sat{u8|s8}.s32.b32",
        "b32 = s32 s32 b32",
        "two clamped integers below two earlier ones",
        _pack_integers,
    ),
]
