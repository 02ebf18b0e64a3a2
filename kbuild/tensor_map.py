"""Tensor maps as parameters of kernels: what the compiler requires of the launch.

    tensormap f16:nan 1x128x64 128 a Z,M,K stride_z,stride
              element box      swizzle base sizes strides

The compiler writes such a type in `Metadata.params`, and a build keeps it with the facts of a variant, where packages,
`kbuild tune` and tests read it.  The emulator, which knows nothing of the compiler, has its own parser.  What the driver
makes a map of, in its own numbers, is an `Encoding`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

_PREFIX = "tensormap "
_FILL = ":nan"


@dataclass(frozen=True)
class MapSources:
    """The parameters that a map is made from.  Each word is the name of a parameter, its number with `#` before it,
    or, for sizes and strides, a number."""

    base: str
    """Address of the tensor."""
    sizes: tuple[str, ...]
    """Elements along each axis."""
    strides: tuple[str, ...]
    """Elements from one index to the next, along all axes but the last, where they are neighbours."""

    def __str__(self) -> str:
        return " ".join((self.base, ",".join(self.sizes), ",".join(self.strides)))

    @staticmethod
    def parse(text: str) -> MapSources:
        """The sources whose `str` is this text; ValueError if there are none."""
        base, sizes, strides = text.split(" ")
        return MapSources(base, tuple(sizes.split(",")), tuple(strides.split(",")))

    def renamed(self, name: Callable[[str], str]) -> MapSources:
        """The same with other words for the parameters."""

        def renamed(word: str) -> str:
            return word if word.isdigit() else name(word)

        return MapSources(
            renamed(self.base), tuple(map(renamed, self.sizes)), tuple(map(renamed, self.strides))
        )


def number_of(word: str) -> int:
    """The number of the parameter that a source such as `#3` is."""
    return int(word.removeprefix("#"))


@dataclass(frozen=True)
class TensorMapType:
    """The type of a parameter that is a tensor map."""

    element: str
    """Type of the elements.  `tf32` is an f32 that is rounded to tf32 as it is copied, `s32` an i32 with a sign."""
    box: tuple[int, ...]
    """Elements along each axis that one copy moves."""
    swizzle: int
    """Bytes of a swizzled row in shared memory; 0 for none."""
    sources: MapSources
    """The tensor."""
    fill_nan: bool = False
    """Whether NaN is read beyond the tensor, instead of zero."""

    def __str__(self) -> str:
        element = self.element + _FILL * self.fill_nan
        return f"{_PREFIX}{element} {'x'.join(map(str, self.box))} {self.swizzle} {self.sources}"

    @staticmethod
    def parse(text: str) -> TensorMapType | None:
        """The map whose `str` is this text; None for the type of another parameter.  ValueError for a malformed
        map."""
        if not text.startswith(_PREFIX):
            return None
        element, box, swizzle, sources = text.removeprefix(_PREFIX).split(" ", 3)
        return TensorMapType(
            element.removesuffix(_FILL),
            tuple(map(int, box.split("x"))),
            int(swizzle),
            MapSources.parse(sources),
            element.endswith(_FILL),
        )

    def renamed(self, name: Callable[[str], str]) -> TensorMapType:
        """The same with other words for the parameters."""
        return replace(self, sources=self.sources.renamed(name))


_DRIVER_TYPES = {
    "f16": (6, 2),
    "bf16": (9, 2),
    "f32": (7, 4),
    "tf32": (11, 4),
    "i16": (1, 2),
    "i32": (2, 4),
    "s32": (3, 4),
    "i64": (4, 8),
    "s64": (5, 8),
    "f64": (8, 8),
}

SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
"""CUtensorMapSwizzle by its bytes."""


def element_type(name: str) -> tuple[int, int]:
    """CUtensorMapDataType and bytes of an element, by its name in the compiler; all that are not named here
    are single bytes."""
    return _DRIVER_TYPES.get(name, (0, 1))


_DEVICE_TYPES = {"f64": 9, "bf16": 10}
"""Where the numbers of the driver are not those of `tensormap.replace`."""


def device_element(name: str) -> int:
    """What `tensormap.replace` takes for an element, by its name in the compiler."""
    return _DEVICE_TYPES.get(name, element_type(name)[0])


class Encoding(NamedTuple):
    """What `cuTensorMapEncodeTiled` takes: dimensions innermost first, as the driver has them."""

    type: int
    """CUtensorMapDataType."""
    base: int
    """Address of the tensor."""
    sizes: tuple[int, ...]
    """Elements; a size of zero is taken for one, for the driver takes none."""
    pitches: tuple[int, ...]
    """Bytes from one index to the next, of all dimensions but the first."""
    box: tuple[int, ...]
    swizzle: int
    """CUtensorMapSwizzle."""
    fill: int
    """CUtensorMapFloatOOBfill: zeros, or NaN."""


def encoding(map_: TensorMapType, values: Mapping[str, int]) -> Encoding:
    """A map with the values of the parameters that it is made from."""
    type_, size = element_type(map_.element)
    sources = map_.sources

    def numbers(words: Sequence[str]) -> list[int]:
        return [int(word) if word.isdigit() else int(values[word]) for word in reversed(words)]

    return Encoding(
        type_,
        values[sources.base],
        tuple(max(extent, 1) for extent in numbers(sources.sizes)),
        tuple(stride * size for stride in numbers(sources.strides)),
        map_.box[::-1],
        SWIZZLES[map_.swizzle],
        int(map_.fill_nan),
    )
