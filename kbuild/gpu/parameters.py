"""The values of a kernel's parameters in memory, from where the driver copies them at a launch.

(("x", "!tt.ptr<f32>"), ("n", "i16"))     {"x": 0x1000, "n": -1}     00 10 00 00 00 00 00 00  ff ff 00 00 00 00 00 00
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kbuild.compiler.interp import encode
from kbuild.compiler.interp.formats import element_named
from kbuild.compiler.semantic.types import BY_SIGNATURE_NAME
from kbuild.tensor_map import TensorMapType

_CODED = {"bf16": "bf16", "f8E4M3FN": "fp8e4nv", "f8E4M3B15": "fp8e4b15", "f8E5M2": "fp8e5"}
"""Types of parameters that `struct` lacks, by their names in the IR; in signatures."""
_IR_NAMES = {name: str(dtype.ir) for name, dtype in BY_SIGNATURE_NAME.items()}
"""Parameters of kernels in CUDA C++ have the types of their signatures."""
_FLOATS = {"f16": "e6x", "f32": "f4x", "f64": "d"}
_BITS = {"i1": 8, "i8": 8, "i16": 16, "i32": 32, "i64": 64}
_ADDRESS = (1 << 64) - 1


@dataclass(frozen=True)
class _Parameter:
    name: str
    format: str = "Q"
    """Of `struct`, with 8 bytes."""
    mask: int = 0
    """The bits of a whole number; 0 for a number in floating point."""
    may_lack: bool = False
    """Whether it is 0 where no value is given: a pointer, or a tensor map, which is no number."""
    element: Any = None
    """The type of a number in floating point that `struct` lacks."""

    @staticmethod
    def of(name: str, type_: str) -> _Parameter:
        if type_.startswith(("!tt.ptr", "*")) or TensorMapType.parse(type_):
            return _Parameter(name, mask=_ADDRESS, may_lack=True)
        ir = _IR_NAMES.get(type_, type_)
        if ir in _CODED:
            return _Parameter(name, mask=_ADDRESS, element=element_named(_CODED[ir]))
        if ir in _FLOATS:
            return _Parameter(name, _FLOATS[ir])
        return _Parameter(name, mask=(1 << _BITS[ir]) - 1)


class ParameterLayout:
    """How values become the parameters of a kernel, each in 8 bytes."""

    def __init__(self, params: Sequence[tuple[str, str]]) -> None:
        """`params` are as in `Metadata.params`."""
        self.count = len(params)
        maps = [(number, TensorMapType.parse(type_)) for number, (_, type_) in enumerate(params)]
        self.maps = [(number, map_) for number, map_ in maps if map_ is not None]
        """The parameters that are tensor maps, with their numbers; they do not lie in the 8 bytes."""
        self._parameters = [_Parameter.of(name, type_) for name, type_ in params]
        # Launches read these, which take less time than the parameters do.
        self._masks = [(one.name, one.mask) for one in self._parameters]
        self._lacking = {one.name: 0 for one in self._parameters if one.may_lack}
        self._coded = [one for one in self._parameters if one.element is not None]
        self._struct = struct.Struct("<" + "".join(one.format for one in self._parameters))

    def put(self, values: Mapping[str, Any], memory: Any, offset: int) -> None:
        """Write values, by name, into a buffer from an offset on, 8 bytes for each parameter."""
        given = {**self._lacking, **values}
        for one in self._coded:
            given[one.name] = encode(np.array([values[one.name]], np.float64), one.element)[0]
        words = [int(given[name]) & mask if mask else given[name] for name, mask in self._masks]
        try:
            self._struct.pack_into(memory, offset, *words)
        except OverflowError:
            self._struct.pack_into(memory, offset, *map(_rounded, self._parameters, words))


def _rounded(parameter: _Parameter, word: Any) -> Any:
    """A number that `struct` takes: infinity for one that is rounded to it."""
    try:
        struct.pack(f"<{parameter.format}", word)
    except OverflowError:
        return math.copysign(math.inf, word)
    return word
