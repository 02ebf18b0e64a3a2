"""Tensor maps as parameters of kernels in CUDA C++: the manifest says the tensor's block and its swizzle.

a = "tensordesc<fp16[128, 64]:swizzle128>"     const __grid_constant__ CUtensorMap a
"""

from __future__ import annotations

import re

from kbuild.compiler.cuda.source import CudaParameter
from kbuild.errors import CompileError
from kbuild.tensor_map import MapSources, TensorMapType

_TYPE = re.compile(r"tensordesc<(\w+)\[([\d, x]+)\](?::(zero|nan))?(?::swizzle(32|64|128))?>")
_ELEMENTS = {"fp16": "f16", "bf16": "bf16", "fp32": "f32", "fp64": "f64"}
"""The names that types of tensor maps have for elements; integers are copied as their bytes."""


def require_map(parameter: CudaParameter, given: str) -> None:
    """Raise `CompileError` for the type of a tensor map that says no map."""
    if given.startswith("tensordesc") and _TYPE.fullmatch(given.strip()) is None:
        raise CompileError(
            f"the parameter {parameter.name} is a tensor map, which {given!r} does not describe",
            parameter.loc,
            'write it as "tensordesc<fp16[128, 64]:swizzle128>"',
        )


def launched_type(given: str) -> str:
    """The type as launches from Python check it: without the swizzle, and without `:1`, for the parameter is there."""
    return re.sub(r":swizzle\d+|:1$", "", given)


def parameter_type(name: str, given: str) -> str:
    """The type of a parameter in `Metadata.params`, from that of the signature."""
    match = _TYPE.fullmatch(given.strip())
    if match is None:
        return given.partition(":")[0]
    element, box, fill, swizzle = match.groups()
    sizes = tuple(int(size) for size in re.split(r"\s*[,x]\s*", box.strip()))
    rank = len(sizes)
    sources = MapSources(
        name,
        tuple(f"{name}_shape_{axis}" for axis in range(rank)),
        tuple(f"{name}_stride_{axis}" for axis in range(rank - 1)),
    )
    kind = _ELEMENTS.get(element, element.replace("u", "i"))
    return str(TensorMapType(kind, sizes, int(swizzle or 0), sources, fill == "nan"))
