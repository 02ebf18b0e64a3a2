"""A GPU that launches a kernel on numpy arrays, and says what it did to them.

Every array lies between two red zones; a kernel that writes outside of its arrays is caught.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from zoo import Bits

from kbuild.gpu.device import Gpu, LaunchFacts

RED_ZONE = 4096
PATTERN = 0xA5


class Device(Gpu):
    """One GPU."""

    def launch(
        self, image: bytes, facts: LaunchFacts, grid: Sequence[int], arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Run a kernel of a cubin, or of PTX, once and give back the arrays it was given, as they are afterwards.

        Raises ToolError where the driver refuses, AssertionError for a write into a red zone.
        """
        kernel = self.kernel(image, facts)
        arrays = {name: value for name, value in arguments.items() if isinstance(value, np.ndarray | Bits)}
        buffers = {name: self.placed(_padded(value)) for name, value in arrays.items()}
        addresses = {name: int(buffer.handle) + RED_ZONE for name, buffer in buffers.items()}
        try:
            kernel.launch(self.stream, grid, kernel.arguments({**arguments, **addresses}))
            self.wait()
            return {
                name: self._read(name, addresses[name] - RED_ZONE, value) for name, value in arrays.items()
            }
        finally:
            for buffer in buffers.values():
                buffer.close()

    def _read(self, name: str, address: int, value: Any) -> Any:
        """An array as it is now.  Raises AssertionError where the bytes around it are not as they were."""
        data = _data(value)
        padded = np.empty(data.nbytes + 2 * RED_ZONE, np.uint8)
        self.download(padded, address)
        before, after = padded[:RED_ZONE], padded[RED_ZONE + data.nbytes :]
        assert (before == PATTERN).all() and (after == PATTERN).all(), f"the kernel wrote outside of {name}"
        result = padded[RED_ZONE : RED_ZONE + data.nbytes].view(data.dtype).reshape(data.shape).copy()
        return Bits(result, value.type_name) if isinstance(value, Bits) else result


def _data(value: Any) -> np.ndarray:
    return np.ascontiguousarray(value.data if isinstance(value, Bits) else value)


def _padded(value: Any) -> np.ndarray:
    """The bytes of an array between two red zones."""
    zone = np.full(RED_ZONE, PATTERN, np.uint8)
    return np.concatenate([zone, _data(value).reshape(-1).view(np.uint8), zone])
