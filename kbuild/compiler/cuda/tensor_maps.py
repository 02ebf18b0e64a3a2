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


def parameter_type(parameter: CudaParameter, given: str) -> str:
    """The type of a parameter in `Metadata.params`, from that of the signature."""
    if not given.startswith("tensordesc"):
        return given.partition(":")[0]
    match = _TYPE.fullmatch(given.strip())
    if match is None:
        raise CompileError(
            f"the parameter {parameter.name} is a tensor map, which {given!r} does not describe",
            parameter.loc,
            'write it as "tensordesc<fp16[128, 64]:swizzle128>"',
        )
    element, box, fill, swizzle = match.groups()
    sizes = tuple(int(size) for size in re.split(r"\s*[,x]\s*", box.strip()))
    name, rank = parameter.name, len(sizes)
    sources = MapSources(
        name,
        tuple(f"{name}_shape_{axis}" for axis in range(rank)),
        tuple(f"{name}_stride_{axis}" for axis in range(rank - 1)),
    )
    kind = _ELEMENTS.get(element, element.replace("u", "i"))
    return str(TensorMapType(kind, sizes, int(swizzle or 0), sources, fill == "nan"))
