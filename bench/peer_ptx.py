"""Another compiler's PTX on kbuild's emulator: kernels of bench/peer_kernels.py, compiled by Triton, against
numpy.

    python bench/peer_ptx.py PYTHON [ARCH ...] [--mutants sync|logic]

PYTHON is the interpreter of an environment that has Triton; it compiles, without a GPU, and this one runs the
PTX, with the race detector (leniently: Triton leaves fences out that today's hardware does without).  Prints
a line for each case, and exits with 1 where one is wrong.  With `--mutants sync` or `logic` it makes mistakes
in that PTX instead (kbuild.emulator.mutate), and prints which of them are found, strictly where the PTX
itself passes so.  Triton's output is not kept.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kbuild.emulator import load
from kbuild.emulator.fp import convert
from kbuild.emulator.mutate import OPERATORS, MutantResult, Subject, TrialCase, campaign, table
from kbuild.emulator.mutate.campaign import SURVIVED
from kbuild.emulator.mutate.trial import ADVERSARIES

Arrays = dict[str, Any]
Answers = dict[str, np.ndarray]
KNOWN = {("dot and sum", "sm_90"): "race"}
"""A race that the emulator has to find: Triton 3.6 lets a warp overwrite what others still read, where a tile feeds
two operations."""


def whole(random: np.random.Generator, *shape: int, low: int = -3, high: int = 4) -> np.ndarray:
    return random.integers(low, high, shape).astype(np.float32)


def matmul(
    kind: str, result: str = "f32", m: int = 64, n: int = 64, k: int = 320
) -> Callable[..., tuple[Arrays, Answers]]:
    """A dot of whole numbers in an operand type."""

    def make(random: np.random.Generator) -> tuple[Arrays, Answers]:
        left, right = whole(random, m, k, low=-2, high=3), whole(random, k, n, low=-2, high=3)
        stored = [
            value.astype({"i8": "i1", "f32": "f4"}[kind])
            if kind in ("i8", "f32")
            else convert(value, "f32", kind)
            for value in (left, right)
        ]
        dtype = {"f32": np.float32, "i32": np.int32, "f16": np.float16}[result]
        return {"a": stored[0], "b": stored[1], "c": np.full((m, n), 77, dtype), "K": k}, {
            "c": (left @ right).astype(dtype)
        }

    return make


def attention(random: np.random.Generator) -> tuple[Arrays, Answers]:
    length, depth = 100, 64
    q, k, v = (random.standard_normal((length, depth)).astype(np.float16) for _ in range(3))
    scores = q.astype(np.float64) @ k.astype(np.float64).T * 0.125
    p = np.exp(scores - scores.max(1, keepdims=True))
    right = p / p.sum(1, keepdims=True) @ v.astype(np.float64)
    return {
        "q": q,
        "k": k,
        "v": v,
        "out": np.zeros((length, depth), np.float32),
        "scale": 0.125,
        "L": length,
    }, {"out": right}


def dot_and_sum(random: np.random.Generator) -> tuple[Arrays, Answers]:
    arrays, answers = matmul("f16")(random)
    sums = arrays["a"].astype(np.float32).sum(1)
    scalars = {"K": arrays.pop("K")}
    return {**arrays, "sums": np.zeros(64, np.float32), **scalars}, {**answers, "sums": sums}


def reduce(axis: int) -> Callable[..., tuple[Arrays, Answers]]:
    def make(random: np.random.Generator) -> tuple[Arrays, Answers]:
        x = whole(random, 64, 32, low=-40, high=40)
        count = x.shape[1 - axis]
        return (
            {
                "x": x,
                "sums": np.zeros(count, "f4"),
                "maxima": np.zeros(count, "f4"),
                "places": np.zeros(count, "i4"),
            },
            {"sums": x.sum(axis), "maxima": x.max(axis), "places": x.argmax(axis)},
        )

    return make


def scan(axis: int) -> Callable[..., tuple[Arrays, Answers]]:
    def make(random: np.random.Generator) -> tuple[Arrays, Answers]:
        x = whole(random, 32, 64)
        return {"x": x, "out": np.zeros_like(x)}, {"out": x.cumsum(axis)}

    return make


def sort(random: np.random.Generator) -> tuple[Arrays, Answers]:
    x = whole(random, 8, 64, low=-30, high=30)
    return {"x": x, "out": np.zeros_like(x)}, {"out": np.sort(x, 1)}


def atomics(random: np.random.Generator) -> tuple[Arrays, Answers]:
    x = random.integers(0, 100, 300).astype(np.int32)
    count, old = np.zeros(1, "i4"), np.zeros(1, "i4")
    given = {"x": x, "sums": np.zeros(8, "f4"), "largest": np.full(8, -1, "i4"), "count": count, "old": old}
    sums = np.bincount(x % 8, x, 8)
    largest = [x[x % 8 == place].max(initial=-1) for place in range(8)]
    return {**given, "n": 300}, {
        "sums": sums,
        "largest": np.array(largest),
        "count": np.array([300]),
        "old": np.array([7]),
    }


def gather(random: np.random.Generator) -> tuple[Arrays, Answers]:
    x, index = whole(random, 32, 32), random.integers(0, 32, (32, 32)).astype(np.int32)
    return {"x": x, "index": index, "out": np.zeros_like(x)}, {"out": np.take_along_axis(x, index, 0)}


def histogram(random: np.random.Generator) -> tuple[Arrays, Answers]:
    x = random.integers(0, 32, 512).astype(np.int32)
    return {"x": x, "out": np.zeros(32, np.int32)}, {"out": np.bincount(x, minlength=32)}


def casts(random: np.random.Generator) -> tuple[Arrays, Answers]:
    x = (random.standard_normal(256) * 20).astype(np.float32)
    small, brains = (convert(convert(x, "f32", kind), kind, "f32") for kind in ("e5m2", "bf16"))
    kinds = {"halves": "f2", "brains": "f4", "wholes": "i4", "bytes_": "i1", "small": "f4"}
    given = {name: np.zeros(256, kind) for name, kind in kinds.items()}
    right = {
        "halves": x.astype("f2"),
        "brains": brains,
        "wholes": x.astype("i4"),
        "bytes_": x.astype("i1"),
        "small": small,
    }
    return {"x": x, **given}, right


def philox(seed: int, count: int) -> np.ndarray:
    """The first words of Philox 4x32-10 with counters 0, 1, … (Salmon et al. 2011)."""
    words = [np.arange(count, dtype=np.uint64), *(np.zeros(count, np.uint64) for _ in range(3))]
    keys, mask = [seed & 0xFFFFFFFF, seed >> 32], np.uint64(0xFFFFFFFF)
    for _ in range(10):
        high, low = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
        shift, first, second = np.uint64(32), np.uint64(keys[0]), np.uint64(keys[1])
        words = [
            (low >> shift) ^ words[1] ^ first,
            low & mask,
            (high >> shift) ^ words[3] ^ second,
            high & mask,
        ]
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return words[0].astype(np.uint32).view(np.int32)


def randoms(random: np.random.Generator) -> tuple[Arrays, Answers]:
    drawn = philox(1234, 256)
    uniform = np.where(drawn < 0, -drawn.astype(np.int64) - 1, drawn).astype(np.float32) * np.float32(
        4.6566127342e-10
    )
    return {"out": np.zeros(256, "i4"), "uniform": np.zeros(256, "f4"), "seed": 1234}, {
        "out": drawn,
        "uniform": uniform,
    }


def softmax(random: np.random.Generator) -> tuple[Arrays, Answers]:
    x = (random.standard_normal((3, 200)) * 20).astype(np.float32)
    p = np.exp(x - x.max(1, keepdims=True).astype(np.float64))
    return {"x": x, "out": np.zeros_like(x), "columns": 200}, {"out": p / p.sum(1, keepdims=True)}


def integers(random: np.random.Generator) -> tuple[Arrays, Answers]:
    x, y = (
        random.integers(-(2**31), 2**31, 700).astype(np.int32),
        random.integers(1, 2**20, 700).astype(np.int32),
    )
    quotient = np.trunc(x.astype(np.float64) / y).astype(np.int64)
    remainder = (x.astype(np.int64) - quotient * y).astype(np.int32)
    with np.errstate(over="ignore"):
        right = quotient.astype(np.int32) ^ (remainder + (x >> 3) * (y << 2) - np.minimum(x, y))
    return {"x": x, "y": y, "out": np.zeros(700, "i4"), "n": 700}, {"out": right}


def transpose_join(random: np.random.Generator) -> tuple[Arrays, Answers]:
    x, y = whole(random, 32, 32), whole(random, 32, 32)
    return {"x": x, "y": y, "out": np.zeros_like(x)}, {"out": x - y.T}


INPUTS: Mapping[str, Callable[[np.random.Generator], tuple[Arrays, Answers]]] = {
    "matmul fp16": matmul("f16"),
    "matmul fp16 8 warps": matmul("f16", m=128, n=128),
    "matmul fp16 4 stages": matmul("f16"),
    "matmul bf16": matmul("bf16"),
    "matmul tf32": matmul("f32"),
    "matmul i8": matmul("i8", "i32"),
    "matmul e5m2": matmul("e5m2"),
    "matmul e4m3": matmul("e4m3"),
    "matmul TMA": matmul("f16", "f16"),
    "matmul TMA specialised": matmul("f16", "f16", 128, 128),
    "attention": attention,
    "dot and sum": dot_and_sum,
    "reduce axis 0": reduce(0),
    "reduce axis 1": reduce(1),
    "scan axis 0": scan(0),
    "scan axis 1": scan(1),
    "sort": sort,
    "atomics": atomics,
    "gather": gather,
    "histogram": histogram,
    "casts": casts,
    "random": randoms,
    "softmax": softmax,
    "integers": integers,
    "transpose, join": transpose_join,
}
MUTANTS = 4
"""Mutants of each kind of a kernel that are tried."""
GRIDS = {"attention": 2, "atomics": 3, "softmax": 3, "integers": 3}
TOLERANCE = {"attention": 2e-3, "softmax": 2e-6, "random": 1e-6}
"""As a part of the largest number; all others are exact."""


def subject(facts: Mapping[str, Any], text: str) -> Subject:
    """A case as the emulator runs it, with one launch."""
    name = facts["name"]
    program = load(text)
    threads = program.required_threads
    warps = threads[0] // 32 if threads else facts["warps"]
    arrays, answers = INPUTS[name](np.random.default_rng(7))
    grid = GRIDS.get(name, 1)
    spare = [np.zeros(max(facts["scratch"], 8) * grid, np.uint8), np.zeros(8, np.uint8)]
    arguments = ([arrays[key] for key in facts["arguments"]] + spare)[: len(program.entry.parameters)]

    def judge(outputs: Sequence[np.ndarray | None]) -> str:
        named = dict(zip(facts["arguments"], outputs))
        for key, right in answers.items():
            found = np.asarray(named[key]).astype(np.float64)
            error = np.abs(found - np.asarray(right, np.float64)).max() / max(np.abs(right).max(), 1e-30)
            if not error <= TOLERANCE.get(name, 0.0):
                return f"{key} is wrong, error {error:.2g}"
        return ""

    cases = (TrialCase("the case", tuple(arguments), (grid,), judge),)
    return Subject(f"{name} {facts['arch']}", program, warps, facts["shared"], cases, checks="lenient")


def check(tried: Subject) -> str:
    """The error in a case, or an empty text."""
    (case,) = tried.cases
    for adversary in sorted(ADVERSARIES, key=lambda adversary: not adversary.races):
        report = tried.launch(tried.program, case, adversary)
        if report.findings:
            return f"{report.findings[0].kind} ({adversary}): {report.findings[0].message}"
        problem = case.judge(report.outputs)
        if problem:
            return f"{problem} ({adversary})"
    return ""


def main(python: str, group: str, archs: list[str]) -> int:
    """Compile and run everything, or its mutants of a group; the exit code."""
    wrong = 0
    results: list[MutantResult] = []
    with tempfile.TemporaryDirectory() as folder:
        kernels = str(Path(__file__).with_name("peer_kernels.py"))
        environment = {**os.environ, "PYTHONPATH": "", "TRITON_CACHE_DIR": f"{folder}/cache"}
        subprocess.run([python, kernels, folder, *archs], check=True, env=environment)
        for path in sorted(Path(folder).glob("*.json")):
            facts, started = json.loads(path.read_text()), time.monotonic()
            tried = subject(facts, path.with_suffix(".ptx").read_text())
            if group:
                strict = replace(tried, checks="strict")
                tried = tried if check(strict) else strict
                operators = [operator for operator in OPERATORS if operator.group == group]
                found = (
                    []
                    if (facts["name"], facts["arch"]) in KNOWN
                    else list(campaign(tried, MUTANTS, operators))
                )
                print(f"{tried.name}: {len(found)} mutants, {time.monotonic() - started:.0f} s", flush=True)
                print(
                    *(f"    {result}" for result in found if result.state == SURVIVED),
                    sep="\n",
                    end="\n" * bool(found),
                )
                results += found
                continue
            problem = check(tried)
            expected = KNOWN.get((facts["name"], facts["arch"]), "")
            fine = problem.startswith(expected) if expected else not problem
            wrong += not fine
            what = (
                f"finds the known {expected}"
                if expected and fine
                else problem or f"right in {len(ADVERSARIES)} runs"
            )
            print(
                f"{facts['arch']}  {facts['name']:24} {time.monotonic() - started:5.1f} s  {what}", flush=True
            )
    if group:
        print(table(results))
        return 0
    print(f"{wrong} of {len(INPUTS)} kernels wrong" if wrong else "all as they should be")
    return 1 if wrong else 0


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("python", help="interpreter of an environment that has Triton")
    parser.add_argument(
        "archs", nargs="*", metavar="ARCH", default=["sm_80", "sm_90"], help="sm_80, sm_90 (default: both)"
    )
    parser.add_argument(
        "--mutants", choices=("sync", "logic"), default="", help="make such mistakes, and say which are found"
    )
    found = parser.parse_args()
    if shutil.which(found.python) is None:
        parser.error(f"no interpreter {found.python}")
    return found


if __name__ == "__main__":
    asked = options()
    sys.exit(main(asked.python, asked.mutants, asked.archs))
