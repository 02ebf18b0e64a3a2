"""Asks a GPU what instructions do, for the tests of the emulator: writes
tests/emulator/isa/device_vectors.npz.

    PYTHONPATH=tests python -m tests.gpu.make_device_vectors NAMES [OUTPUT]

NAMES is a text file with an instruction's name in each line, or `-` for those in device_vectors.npz already.
Prints which golden programs the GPU contradicts, and the errors of its approximations over many operands.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from kbuild.gpu.device import LaunchFacts
from tests.emulator.isa import device_products, device_vectors
from tests.emulator.isa.golden_program import Program
from tests.emulator.isa.programs import PROGRAMS
from tests.gpu.device import Device

STORED = Path(__file__).parents[1] / "emulator" / "isa" / "device_vectors.npz"
BATCH = 40
"""Kernels of one module, which the driver compiles at once."""
MANY = 1 << 21
"""Operands of a survey."""


def _reciprocal_root(values: np.ndarray) -> np.ndarray:
    return 1 / np.sqrt(values)


APPROXIMATIONS: dict[str, Callable[..., np.ndarray]] = {
    "ex2.approx.f32": np.exp2,
    "ex2.approx.ftz.f32": np.exp2,
    "lg2.approx.f32": np.log2,
    "rcp.approx.f32": np.reciprocal,
    "rsqrt.approx.f32": _reciprocal_root,
    "sqrt.approx.f32": np.sqrt,
    "sin.approx.f32": np.sin,
    "cos.approx.f32": np.cos,
    "tanh.approx.f32": np.tanh,
    "div.full.f32": np.divide,
    "div.approx.f32": np.divide,
    "ex2.approx.f16": np.exp2,
    "tanh.approx.f16": np.tanh,
    "rsqrt.approx.f64": _reciprocal_root,
    "rsqrt.approx.ftz.f64": _reciprocal_root,
}


def launch(
    device: Device,
    image: str,
    entry: str,
    arrays: Sequence[np.ndarray],
    threads: int,
    blocks: int,
    shared: int = 0,
) -> list[np.ndarray]:
    """The arrays as a kernel leaves them, whose parameters are their addresses."""
    named = {f"x{index}": array for index, array in enumerate(arrays)}
    params = tuple((name, "!tt.ptr<i8>") for name in named)
    facts = LaunchFacts(entry, params, shared, (threads,))
    return list(device.launch(image.encode(), facts, (blocks,), named).values())


def lanes(device: Device, names: list[str]) -> dict[str, np.ndarray]:
    """The results of each lane-wise instruction, as bytes."""
    results = {}
    blocks = device_vectors.COUNT // device_vectors.THREADS
    for start in range(0, len(names), BATCH):
        batch = [device_vectors.asked(name) for name in names[start : start + BATCH]]
        image = device_vectors.module(batch)
        for number, question in enumerate(batch):
            after = launch(device, image, f"k{number}", question.arrays, device_vectors.THREADS, blocks)
            results[question.name] = np.concatenate(
                [array.view(np.uint8) for array in after[len(question.sources) :]]
            )
    return results


def run(device: Device, program: Program) -> dict[str, np.ndarray]:
    """The arrays of a golden program as the GPU leaves them."""
    arrays = list(program.arrays.values())
    after = launch(device, program.text, "test", arrays, program.threads, program.grid[0], program.shared)
    return dict(zip(program.arrays, after))


def mmas(device: Device) -> dict[str, np.ndarray]:
    """The accumulators of each MMA, as bytes."""
    found = {}
    for name in device_products.SYNCHRONOUS + device_products.WARPGROUPS:
        after = run(device, device_products.AskedMma(name).program)
        found[f"{name}/0"] = list(after.values())[-1].view(np.uint8).ravel()
    return found


def contradictions(device: Device) -> None:
    """Print the golden programs whose outputs are others on the GPU; a fault ends it, as the context is lost."""
    tried = [program for program in PROGRAMS if program.cluster == (1, 1, 1)]
    agreed = 0
    for program in tried:
        after = run(device, program)
        wrong = [
            name for name, expected in program.expected.items() if not np.array_equal(after[name], expected)
        ]
        agreed += not wrong
        for name in wrong:
            found, golden = after[name].ravel(), np.ravel(program.expected[name])
            first = np.flatnonzero(found != golden)[:4]
            print(f"program {program.name}: {name}{first} is {found[first]}, golden {golden[first]}")
    print(f"golden programs: {agreed} of {len(tried)} agree")


def survey(device: Device) -> None:
    """Print how wrong approximations are over many operands."""
    for name, exact in APPROXIMATIONS.items():
        question = device_vectors.asked(name)
        dtype = np.dtype({"f16": "f2", "f32": "f4", "f64": "f8"}[question.form.type])
        width = 8 * dtype.itemsize
        count = min(MANY, 1 << width)
        places = np.arange(count, dtype=np.uint64) << np.uint64(max(width - 21, 0))
        bits = places + (
            device_vectors.hashed(count, 5) >> np.uint64(min(64 - width + 21, 63)) if width > 21 else 0
        )
        sources = [bits.astype(f"u{dtype.itemsize}")]
        if len(question.sources) == 2:
            sources.append(device_vectors.hashed(count, 6).astype(sources[0].dtype))
        arrays = [*sources, np.zeros_like(sources[0])]
        blocks = count // device_vectors.THREADS
        found = launch(
            device, device_vectors.module([question]), "k0", arrays, device_vectors.THREADS, blocks
        )[-1].view(dtype)
        print(f"{name}: {errors([source.view(dtype) for source in sources], found, exact)}")


def errors(sources: Sequence[np.ndarray], found: np.ndarray, exact: Callable[..., np.ndarray]) -> str:
    """The largest errors where operands and result are normal numbers, and where a result is of another kind."""
    tiny = np.finfo(found.dtype).tiny
    with np.errstate(all="ignore"):
        right = exact(*(source.astype(np.longdouble) for source in sources))
        rounded = right.astype(found.dtype)
        normal = np.isfinite(rounded) & (np.abs(rounded) >= tiny) & np.isfinite(found)
        for source in sources:
            normal &= np.abs(source) >= tiny
        distance = np.abs(found.astype(np.longdouble) - right)
        relative = distance / np.abs(right)
        largest = {
            "ulp": (distance / np.spacing(np.abs(rounded)))[normal],
            "relative": relative[normal],
            "absolute where both are at most pi": distance[
                normal & (np.abs(sources[0]) <= np.pi) & (np.abs(rounded) <= np.pi)
            ],
            "relative or absolute": np.minimum(distance, relative)[normal],
        }
        kinds = {
            "NaN differs": np.isnan(rounded) != np.isnan(found),
            "subnormal result flushed": (np.abs(rounded) < tiny) & (rounded != 0) & (found == 0),
            "infinity expected": np.isinf(rounded) & np.isfinite(found),
            "zero expected": (rounded == 0) & (found != 0),
        }
    parts = [f"{name} {float(size.max(initial=0)):.4g}" for name, size in largest.items()]
    return ", ".join(
        parts + [f"{name} {int(mask.sum())} times" for name, mask in kinds.items() if mask.any()]
    )


def main(names: list[str], output: Path) -> None:
    device = Device()
    found = lanes(device, names) | mmas(device)
    sizes = np.array([len(value) for value in found.values()], np.uint32)
    np.savez_compressed(
        output, names=np.array("\n".join(found)), sizes=sizes, results=np.concatenate(list(found.values()))
    )
    print(f"{len(names)} instructions, {len(found) - len(names)} MMAs, {output.stat().st_size} bytes")
    survey(device)
    contradictions(device)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    text = str(np.load(STORED)["names"]) if sys.argv[1] == "-" else Path(sys.argv[1]).read_text()
    wanted = [name for name in text.split("\n") if name and "/" not in name]
    main(wanted, Path(sys.argv[2]) if len(sys.argv) == 3 else STORED)
