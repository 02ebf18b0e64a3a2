"""Launches random programs on a GPU: what `fuzz_programs.py --emit` wrote, against what the interpreter says.

    python bench/fuzz/fuzz_gpu.py DIR [--library …/libcuda.so.1] [--show 20]

It needs the driver and cuda-core.  Outputs begin poisoned.  Launches run in a process that is restarted where
one breaks or hangs. Prints a table at the end; the exit status is 1 when there was a difference.
"""

from __future__ import annotations

import argparse
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

from random_programs.arrays import difference
from random_programs.cubins import Record, digest, records

from kbuild.errors import ToolError
from kbuild.gpu.device import Gpu, LaunchFacts

PATIENCE = 30
"""Seconds for one launch."""


class Device(Gpu):
    """A GPU that launches records."""

    def outputs(self, record: Record) -> dict[str, np.ndarray]:
        """The outputs of a record after its launch."""
        given: dict[str, Any] = {}
        for argument in record.arguments:
            given |= {argument.name: argument.make(record.seed), **dict(argument.companions)}
        arrays = {argument.name: given[argument.name] for argument in record.arguments if argument.size}
        buffers = {name: self.placed(value) for name, value in arrays.items()}
        addresses = {name: int(buffer.handle) for name, buffer in buffers.items()}
        facts = LaunchFacts("kernel", tuple(record.parameters), record.shared, (32 * record.warps,))
        kernel = self.kernel(zlib.decompress(record.cubin), facts)
        kernel.launch(self.stream, record.grid, kernel.arguments({**given, **addresses}))
        self.wait()
        found = {name: np.empty_like(value) for name, value in arrays.items()}
        for name, after in found.items():
            self.download(after, addresses[name])
            buffers[name].close()
        return found


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


def work(pipe: Any, folder: Path, library: str | None, first: int) -> None:
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
    parser.add_argument("--library", help="the driver's, where it is not the machine's")
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
