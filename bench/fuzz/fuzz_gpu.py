"""Launches random programs on a GPU: what `fuzz_programs.py --emit` wrote, against what the interpreter says.

    python bench/fuzz/fuzz_gpu.py DIR [--library libcuda.so.1] [--show 20]

It needs the driver and numpy.  Outputs begin poisoned.  Launches run in a process that is restarted where
one breaks or hangs. Prints a table at the end; the exit status is 1 when there was a difference.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import sys
import time
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[2]))

from kbuild.aot.artifact.tensor_maps import encode
from random_programs.arrays import Argument, difference
from random_programs.cubins import Record, digest, records

from kbuild.aot.tune.gpu import SCALARS, Gpu
from kbuild.errors import ToolError
from kbuild.tensor_map import TensorMapType

PATIENCE = 30
"""Seconds for one launch."""


class Device(Gpu):
    """A GPU that launches records."""

    def outputs(self, record: Record) -> dict[str, np.ndarray]:
        """The outputs of a record after its launch."""
        given: dict[str, Any] = {}
        arrays: dict[str, np.ndarray] = {}
        for argument in record.arguments:
            value = given[argument.name] = argument.make(record.seed)
            given |= dict(argument.companions)
            if argument.size:
                arrays[argument.name] = value
                address = given[argument.name] = self._allocated(value.nbytes)
                self._call(
                    "cuMemcpyHtoD_v2",
                    ctypes.c_uint64(address),
                    value.ctypes.data_as(ctypes.c_void_p),
                    ctypes.c_size_t(value.nbytes),
                )
        self._launched(record, given)
        found = {}
        for name, value in arrays.items():
            after = np.empty_like(value)
            address = ctypes.c_uint64(given[name])
            self._call(
                "cuMemcpyDtoH_v2",
                after.ctypes.data_as(ctypes.c_void_p),
                address,
                ctypes.c_size_t(after.nbytes),
            )
            self._call("cuMemFree_v2", address)
            found[name] = after
        return found

    def _launched(self, record: Record, given: dict[str, Any]) -> None:
        types = {argument.name: argument for argument in record.arguments}
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), zlib.decompress(record.cubin))
        self._call("cuModuleGetFunction", ctypes.byref(function), module, b"kernel")
        if record.shared > 48 * 1024:
            self._call("cuFuncSetAttribute", function, 8, record.shared)
        values = [
            self._value(type_, given.get(name), types.get(name), given) for name, type_ in record.parameters
        ]
        pointers = (ctypes.c_void_p * len(values))(
            *(ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values)
        )
        x, y, z = (*record.grid, 1, 1)[:3]
        self._call(
            "cuLaunchKernel", function, x, y, z, 32 * record.warps, 1, 1, record.shared, None, pointers, None
        )
        self.wait()
        self._call("cuModuleUnload", module)

    def _value(self, type_: str, given: Any, argument: Argument | None, values: dict[str, Any]) -> Any:
        """The value passed for a parameter."""
        if map_ := TensorMapType.parse(type_):
            return encode(self._call, map_, values)
        if argument is None or argument.size:
            return ctypes.c_uint64(given or 0)
        return SCALARS[argument.dtype.signature](given)


def wrong(record: Record, found: dict[str, np.ndarray]) -> str:
    """How outputs differ from the expected ones; empty if they do not."""
    arguments = {argument.name: argument for argument in record.arguments}
    for name, right, contents in record.outputs:
        argument = arguments[name]
        if not argument.tolerance and digest(found[name], argument) == right:
            continue
        if not contents:
            return f"{name} differs: it begins {found[name][:8].tolist()}"
        expected = np.frombuffer(zlib.decompress(contents), argument.dtype.storage)
        message = difference(found[name], expected, argument)
        if message:
            return message
    return ""


def work(pipe: Any, folder: Path, library: str, first: int) -> None:
    """Launch records from number `first` on, and send the outcome of each."""
    try:
        device = Device(library=library)
    except ToolError as error:
        pipe.send((-1, "", str(error)))
        return
    for number, record in enumerate(records(folder)):
        if number >= first:
            pipe.send((number, f"seed {record.seed} {record.arch}", None))
            try:
                pipe.send(
                    (number, f"seed {record.seed} {record.arch}", wrong(record, device.outputs(record)))
                )
            except ToolError as error:
                pipe.send((number, f"seed {record.seed} {record.arch}", f"failed: {error}"))
                return
    pipe.send((-1, "", ""))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--library", default="libcuda.so.1")
    parser.add_argument("--show", type=int, default=40, help="how many differences are printed")
    options = parser.parse_args()
    context, started, tally = multiprocessing.get_context("spawn"), time.monotonic(), Counter[str]()
    number, name, over = -1, "", False
    while not over:
        pipe, other = context.Pipe()
        process = context.Process(
            target=work, args=(other, options.folder, options.library, number + 1), daemon=True
        )
        process.start()
        other.close()
        while True:
            try:
                message = (
                    pipe.recv()
                    if pipe.poll(PATIENCE + 30)
                    else (number, name, f"hangs: no end after {PATIENCE} s")
                )
            except EOFError:
                message = number, name, f"the process died with {process.exitcode}"
            index, name, outcome = message
            if index < 0:
                if outcome:
                    print(outcome)
                    return 2
                over = True
                break
            number = index
            if outcome is None:
                continue
            is_broken = outcome.startswith(("failed", "hangs", "the process"))
            kind = outcome.split(":")[0] if is_broken else "differ" if outcome else "right"
            tally[f"{name.split()[-1]} {kind}"] += 1
            if outcome and sum(count for key, count in tally.items() if "right" not in key) <= options.show:
                print(f"{name}: {outcome}", flush=True)
            if is_broken:
                break
        process.kill()
        process.join()
    seconds = time.monotonic() - started
    print(f"{sum(tally.values())} programs in {seconds:.0f} s")
    for key, count in sorted(tally.items()):
        print(f"{count:6} {key}")
    return int(any("right" not in key for key in tally))


if __name__ == "__main__":
    sys.exit(main())
