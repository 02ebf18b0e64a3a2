"""A GPU for `kbuild tune`: loads cubins, launches them on random arrays, and times them.

It needs the driver and cuda-core, not torch or the toolkit.  numpy makes the arrays and compares results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kbuild.aot.manifest.expand import Variant
from kbuild.aot.tune.differences import difference, element_of_argument
from kbuild.aot.tune.interleaved import interleave
from kbuild.aot.tune.tune import SECONDS, DeviceFacts, TimedProgram
from kbuild.aot.verify.cases import LaunchCase
from kbuild.compiler.interp import encode
from kbuild.compiler.interp.formats import memory_dtype
from kbuild.compiler.interp.loaded import Type, is_float
from kbuild.gpu.cuda import asking, core
from kbuild.gpu.device import DeviceKernel, Gpu, LaunchFacts

_RANDOM = 1 << 20
"""Random elements that are made; larger arrays repeat them."""
_CACHE_BYTES = 256 << 20
"""Bytes written before each timed launch: more than any L2 cache holds."""
_TRIAL = 3
"""Launches of the first trial of a candidate."""


class TuningGpu(Gpu):
    """One device, and the arrays of the launch at hand."""

    def __init__(self, ordinal: int = 0, library: str | None = None) -> None:
        super().__init__(ordinal, library)
        self.device = DeviceFacts(self.name, self.capability, self.shared_bytes, self.num_sms)
        self._cache = self.allocate(_CACHE_BYTES)
        self._timed = core.EventOptions(timing_enabled=True)
        self._arrays: dict[str, _PlacedArray] = {}
        self._restored: list[str] = []
        self._loaded: dict[bytes, tuple[DeviceKernel, list[Any]]] = {}

    def place(self, variant: Variant, case: LaunchCase) -> None:
        """Make the arrays of a launch, of zeros or random values, in place of earlier ones."""
        self._loaded.clear()
        for array in self._arrays.values():
            array.fresh.close()
            array.used.close()
        self._arrays = {}
        types, random = dict(variant.signature), np.random.default_rng(0)
        sized = dict(case.sizes or ())
        self._restored = [name for name in (*case.zeros, *case.restored) if name in sized]
        for name, count in sized.items():
            values = _random(element_of_argument(types[name]), count, random)
            values = np.zeros_like(values) if name in case.zeros else values
            self._arrays[name] = _PlacedArray(values, self.placed(values), self.allocate(values.nbytes))

    def results(self, program: TimedProgram) -> dict[str, np.ndarray]:
        """Launch once on fresh arrays, and return those that changed."""
        for array in self._arrays.values():
            self.copy(array.used, array.fresh, array.values.nbytes)
        self._launch(program)
        self.wait()
        found: dict[str, np.ndarray] = {}
        for name, array in self._arrays.items():
            values = np.empty_like(array.values)
            self.download(values, int(array.used.handle))
            if not np.array_equal(values.view(np.uint8), array.values.view(np.uint8)):
                found[name] = values
        return found

    def difference(
        self, variant: Variant, expected: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]
    ) -> str:
        """The error in results, in words; empty if there is none."""
        types = dict(variant.signature)
        for name in expected.keys() | found.keys():
            values = self._arrays[name].values
            problem = difference(types[name], expected.get(name, values), found.get(name, values))
            if problem:
                return f"wrong: {name}: {problem}"
        return ""

    def times(self, programs: Sequence[TimedProgram], seconds: float = SECONDS) -> list[float]:
        """The median time of a launch of each in microseconds, in random order, with a cold cache and with the
        arrays as they were placed that the launch asks for, over about so many seconds of the device's; a few
        launches of each where they are 0."""
        calls = {
            number: lambda program=program: self._launch(program) for number, program in enumerate(programs)
        }
        return list(interleave(calls, self, seconds, 0 if seconds else _TRIAL).values())

    def flush(self) -> None:
        """Make the arrays as they were placed that every launch asks for, and write over the L2 cache: this and
        the following make a `Clock`."""
        for array in map(self._arrays.__getitem__, self._restored):
            self.copy(array.used, array.fresh, array.values.nbytes)
        with asking("writing over the cache"):
            self._cache.fill(0, stream=self.stream)

    def mark(self) -> Any:
        with asking("recording an event"):
            return self.stream.record(options=self._timed)

    def has_passed(self, mark: Any) -> bool:
        with asking("the device"):
            return mark.is_done

    def microseconds(self, start: Any, end: Any) -> float:
        with asking("timing a launch"):
            return (end - start) * 1e3

    def _launch(self, program: TimedProgram) -> None:
        kernel, arguments = self._loaded.get(program.cubin) or self._load(program)
        kernel.launch(self.stream, program.case.grid, arguments)

    def _load(self, program: TimedProgram) -> tuple[DeviceKernel, list[Any]]:
        """The program's kernel with its arguments; it stays loaded as long as the arrays."""
        kernel = self.kernel(program.cubin, LaunchFacts.of(program.facts))
        addresses = {name: int(array.used.handle) for name, array in self._arrays.items()}
        loaded = kernel, kernel.arguments({**dict(program.case.scalars), **addresses})
        self._loaded[program.cubin] = loaded
        return loaded


class _PlacedArray(NamedTuple):
    """An array of the launch at hand."""

    values: np.ndarray
    """As it is before a launch."""
    fresh: Any
    """A buffer that keeps that."""
    used: Any
    """The buffer that launches write."""


def _random(element: Type, count: int, random: np.random.Generator) -> np.ndarray:
    """Normal numbers, and small whole ones for integers; as they lie in memory."""
    if not count:
        return np.zeros(1, memory_dtype(element))
    some = min(count, _RANDOM)
    values = (
        random.standard_normal(some)
        if is_float(element)
        else random.integers(0, 2 if str(element) == "i1" else 4, some)
    )
    return np.resize(encode(np.asarray(values, np.float32), element), count)
