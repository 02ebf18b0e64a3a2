"""The memory of a launch's tensors: saved, restored, and compared."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from timed_rows import Difference

_CHUNK = 1 << 24
"""Elements that are compared at a time, so that comparing takes little memory."""
_BITS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}
"""Types of torch for the bits of elements, by their bytes."""


@dataclass(frozen=True)
class Place:
    """The storage of one tensor or of several, whole."""

    argument: str
    """The first that has it."""
    dtype: Any
    """The type that it has there."""
    storage: Any


def tensors(value: Any) -> Iterator[Any]:
    """The tensors of an argument: itself, those of a tuple, and what a descriptor or a view of another type is of."""
    if hasattr(value, "untyped_storage"):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors(item)
    elif hasattr(value, "base"):
        yield from tensors(value.base)


def places(arguments: Mapping[str, Any]) -> list[Place]:
    """The storages that a launch's arguments have, each once."""
    found: dict[int, Place] = {}
    for name, value in arguments.items():
        for tensor in tensors(value):
            storage = tensor.untyped_storage()
            known = found.get(storage.data_ptr())
            # A tensor that came by DLPack has a storage of its own, which ends where the tensor does.
            if storage.nbytes() > (known.storage.nbytes() if known else 0):
                found[storage.data_ptr()] = Place(name, tensor.dtype, storage)
    return list(found.values())


def size_of(found: Sequence[Place]) -> int:
    """Bytes."""
    return sum(place.storage.nbytes() for place in found)


def copies(found: Sequence[Place]) -> list[Any]:
    """Their contents now."""
    return [place.storage.clone() for place in found]


def restore(found: Sequence[Place], contents: Sequence[Any]) -> None:
    """Give them the contents that they had."""
    for place, kept in zip(found, contents):
        place.storage.copy_(kept)


def differences(
    torch: Any, found: Sequence[Place], before: Sequence[Any], theirs: Sequence[Any]
) -> Iterator[Difference]:
    """How what the storages have now differs from what Triton's kernel left there, of those where it does, and of those
    to which either has written NaNs.

    Elements that have the bits that they had before are left out: memory that nobody initialized may be anything.
    """
    for place, old, right in zip(found, before, theirs):
        made = difference(torch, place, old, right)
        if made.relative or made.odd or any(made.nans):
            yield made


def compared_again(
    torch: Any,
    made: Sequence[Difference],
    found: Sequence[Place],
    before: Sequence[Any],
    theirs: Sequence[Any],
) -> tuple[Difference, ...]:
    """Differences with those of Triton's kernel to itself, once it has run a second time."""
    again = {
        one.argument: math.inf if one.odd else one.relative
        for one in differences(torch, found, before, theirs)
    }
    return tuple(replace(one, again=again.get(one.argument, 0.0)) for one in made)


def difference(torch: Any, place: Place, before: Any, theirs: Any) -> Difference:
    """How a storage differs from what Triton's kernel made of its contents."""
    bits = getattr(torch, _BITS[place.dtype.itemsize])
    parts = [_elements(torch, storage, bits) for storage in (before, theirs, place.storage)]
    sums = _Sums()
    for start in range(0, len(parts[0]), _CHUNK):
        old, right, ours = (part[start : start + _CHUNK] for part in parts)
        written = (old != right) | (old != ours)
        right, ours = right[written], ours[written]
        if place.dtype.is_floating_point:
            sums.add_reals(right.view(place.dtype).double(), ours.view(place.dtype).double())
        else:
            sums.add_bits(right, ours)
    return sums.difference(place.argument)


def as_bytes(torch: Any, storage: Any) -> Any:
    """A storage as a tensor of bytes."""
    return _elements(torch, storage, torch.uint8)


def _elements(torch: Any, storage: Any, dtype: Any) -> Any:
    """A storage as a tensor of one dimension."""
    return torch.empty(0, dtype=dtype, device=storage.device).set_(storage)


@dataclass
class _Sums:
    """What is known of the elements seen so far."""

    squares: float = 0.0
    """Of differences."""
    norm: float = 0.0
    """Squares of Triton's elements."""
    odd: int = 0
    our_nans: int = 0
    their_nans: int = 0
    count: int = 0
    unequal: int = 0

    def add_bits(self, theirs: Any, ours: Any) -> None:
        self.count += len(theirs)
        self.unequal += int((theirs != ours).sum())

    def add_reals(self, theirs: Any, ours: Any) -> None:
        is_same = (theirs == ours) | (theirs.isnan() & ours.isnan())
        gap = (ours - theirs).masked_fill(is_same, 0.0)
        self.odd += int((~gap.isfinite()).sum())
        self.squares += float(gap.nan_to_num(0.0, 0.0, 0.0).square().sum())
        self.norm += float(theirs.nan_to_num(0.0, 0.0, 0.0).square().sum())
        self.our_nans += int(ours.isnan().sum())
        self.their_nans += int(theirs.isnan().sum())

    def difference(self, argument: str) -> Difference:
        if self.count:
            return Difference(argument, self.unequal / self.count)
        relative = math.sqrt(self.squares / max(self.norm, 1e-60))
        return Difference(argument, relative, self.odd, (self.our_nans, self.their_nans))
