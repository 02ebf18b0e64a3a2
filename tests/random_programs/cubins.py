"""Random programs as cubins, with their expected outputs, for a machine that has a GPU and nothing else.

A program for sm_80 is assembled for sm_90, too: cubins of one generation do not run on the next.
"""

from __future__ import annotations

import gc
import hashlib
import multiprocessing
import pickle
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from random_programs.arrays import Argument, decoded

FILE = "programs.pickle"
_SMALL = 1024
"""Bytes, compressed, up to which an output's right contents are kept; of others their digest."""


@dataclass(frozen=True)
class Record:
    """One program: everything that a launch needs, compressed."""

    seed: int
    arch: str
    cubin: bytes
    parameters: tuple[tuple[str, str], ...]
    arguments: tuple[Argument, ...]
    grid: tuple[int, ...]
    warps: int
    shared: int
    outputs: tuple[tuple[str, bytes, bytes], ...]
    """Name, digest, and contents where they are small or compared with a tolerance."""


def digest(array: np.ndarray, argument: Argument) -> bytes:
    """The same for contents that count as equal: for NaN of all kinds, and zeros of either sign."""
    if argument.dtype.is_float:
        numbers = decoded(array, argument.dtype) + 0.0
        array = np.where(np.isnan(numbers), np.nan, numbers)
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=12).digest()


def emit(count: int, folder: Path, first: int, jobs: int) -> int:
    """Write records of seeds from `first` on until there are so many."""
    folder.mkdir(parents=True, exist_ok=True)
    tally: Counter[str] = Counter()
    size = 0
    with (
        open(folder / FILE, "wb") as file,
        multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=100) as pool,
    ):
        for number, outcome in enumerate(pool.imap_unordered(_record, _seeds(first), chunksize=4)):
            if isinstance(outcome, str):
                kind, _, seed = outcome.rpartition(", seed ")
                tally[kind] += 1
                print(f"seed {seed}: {kind}", flush=True)
            else:
                data = pickle.dumps(outcome)
                file.write(len(data).to_bytes(4, "little") + data)
                tally["written"] += 1
                size += len(data)
            if number % 50 == 0:
                print(f"{tally['written']} programs, {size >> 20} MB", flush=True)
            if tally["written"] >= count:
                pool.terminate()
                break
    print(
        f"{folder / FILE}: {size / 1e6:.1f} MB;",
        ", ".join(f"{number} {kind}" for kind, number in tally.items()),
    )
    return 0


def records(folder: Path) -> Iterator[Record]:
    """What `emit` wrote."""
    data = (folder / FILE).read_bytes()
    place = 0
    while place < len(data):
        size = int.from_bytes(data[place : place + 4], "little")
        yield pickle.loads(data[place + 4 : place + 4 + size])
        place += 4 + size


def _seeds(first: int) -> Iterator[int]:
    while True:
        yield first
        first += 1


def _record(seed: int) -> Record | str:
    """The record of a seed, or why there is none, with the seed."""
    made = _made(seed)
    return f"{made}, seed {seed}" if isinstance(made, str) else made


def _made(seed: int) -> Record | str:
    from random_programs.compare import ARCHS, Checker, Kernel, TimeIsUp, limited
    from random_programs.generator import program

    from kbuild.compiler.backend.cubin import assemble
    from kbuild.errors import ErrorGroup, KbuildError

    gc.disable()
    if seed % 16 == 0:
        gc.collect()
    arch, checker = ARCHS[seed % 2], Checker()
    try:
        with limited(120):
            kernel = Kernel.of(program(seed), seed)
            right = checker.interpreted(kernel, checker.built(kernel))
            compiled = checker.compiled(kernel, arch)
            cubin, _ = assemble(compiled.ptx, "sm_90a" if compiled.arch.endswith("a") else "sm_90")
    except (KbuildError, ErrorGroup) as error:
        return f"{type(error).__name__} ({str(error).splitlines()[0].split('error: ')[-1][:60]})"
    except TimeIsUp:
        return "too slow"
    except Exception as error:
        return type(error).__name__
    outputs = []
    for argument in kernel.outputs:
        contents = zlib.compress(right[argument.name].tobytes(), 9)
        keep = contents if argument.tolerance or len(contents) <= _SMALL else b""
        outputs.append((argument.name, digest(right[argument.name], argument), keep))
    return Record(
        seed,
        arch,
        zlib.compress(cubin, 9),
        compiled.parameters,
        kernel.arguments,
        kernel.grid,
        compiled.warps,
        compiled.shared,
        tuple(outputs),
    )
