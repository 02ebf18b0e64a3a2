"""Plants mistakes in the compiler, one at a time, in a copy of it, and says which of them random programs
find.

    python bench/fuzz/fuzz_planted.py [--count 300] [--jobs 2] [NAME ...]

For each mistake programs are drawn until the first finding, at most --count of them; only those whose code the
mistake changes are run.  The exit status is 1 when one of the mistakes was not found, or its text is no longer
in the module.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from random_programs.campaign import FAULTS
from random_programs.compare import ARCHS, Checker, Kernel, TimeIsUp, limited
from random_programs.generator import program

from kbuild.compiler.lower import lower_module
from kbuild.targets import find_target

ROOT = Path(__file__).parents[2]


class Plant(NamedTuple):
    """A mistake: a text of a module, and its replacement."""

    name: str
    file: str
    """Below kbuild/compiler."""
    right: str
    wrong: str


PLANTS = (
    # Those that were in the compiler once, and were found by hand.
    Plant(
        "divisor taken for non-zero",
        "lower/core/elementwise.py",
        'f"{op.llvm} {kind} {a}, {emit.opaque(b, kind)}"',
        'f"{op.llvm} {kind} {a}, {b}"',
    ),
    Plant(
        "quotients of negative numbers rounded down",
        "analysis/axis_info/rules.py",
        "_divided(_rounded_down(op, known), b)",
        "_divided(a, b)",
    ),
    Plant(
        "remainders of negative numbers run on",
        "analysis/axis_info/rules.py",
        "_remaining(_rounded_down(op, known), b)",
        "_remaining(a, b)",
    ),
    Plant(
        "start values written after wgmma.fence",
        "lower/mma/wgmma.py",
        "places = [(sums, index) for sums in started for index in sums.starts(emit)]",
        "places = []",
    ),
    # Transformations of tensors.
    Plant(
        "numbers of equal ranges are equal",
        "transforms/common/canonicalize/ranges.py",
        "left.low == left.high == right.low == right.high",
        "left == right",
    ),
    Plant(
        "(x + a) + b = x + b",
        "transforms/common/canonicalize/fold.py",
        "op.fold(first, outer), op.lhs.type",
        "outer, op.lhs.type",
    ),
    Plant(
        "x - x = 1",
        "transforms/common/canonicalize/fold.py",
        "Constant.of(0, op.lhs.type) if op.lhs is op.rhs",
        "Constant.of(1, op.lhs.type) if op.lhs is op.rhs",
    ),
    Plant(
        "the sum after a dot takes the place of its start value",
        "transforms/tensor/combine.py",
        "or not is_constant(dot.c, 0)",
        "or False",
    ),
    Plant(
        "an unrolled loop repeats its rest",
        "transforms/common/loop_unroll.py",
        "middle, tuple(loop.results)",
        "loop.lower, tuple(loop.results)",
    ),
    Plant(
        "operations that depend on an inner block leave the loop",
        "transforms/common/licm.py",
        "if any(operand in inside for operand in op.operands):\n        return True",
        "pass",
    ),
    # Analyses.
    Plant(
        "buffers die within a while",
        "analysis/liveness.py",
        "isinstance(block.parent, For | While | WarpPartitions)",
        "isinstance(block.parent, For | WarpPartitions)",
    ),
    Plant(
        "loads are as constant as their pointers",
        "analysis/axis_info/rules.py",
        "for operand in (op.mask, op.other):",
        "for operand in (op.mask,):",
    ),
    # Transformations of layouts and loops.
    Plant(
        "running maxima begin with zero",
        "transforms/gpu/layout/thread_locality.py",
        "MaxSI: -signed",
        "MaxSI: 0",
    ),
    Plant(
        "the last copies of a pipeline are one too late",
        "transforms/gpu/pipeline/expand.py",
        "waits_ahead:\n                self.builder.add(AsyncWait(self.schedule.distance - 1))",
        "waits_ahead:\n                self.builder.add(AsyncWait(self.schedule.distance))",
    ),
    Plant(
        "copies beyond the last iteration",
        "transforms/gpu/pipeline/expand.py",
        'CmpI(iteration, self.loop.upper, "slt")',
        'CmpI(iteration, self.loop.upper, "sle")',
    ),
    # Lowering.
    Plant(
        "all of a masked tail become the first other",
        "lower/memory/global_memory.py",
        "emit.select(whole, vector[-1], other[-1], kind)",
        "emit.select(whole, vector[-1], other[0], kind)",
    ),
    Plant(
        "atomic minima with a sign", "lower/memory/atomics.py", '"umin": ("min", "u")', '"umin": ("min", "s")'
    ),
    Plant(
        "matrices stored by stmatrix as they lie",
        "lower/memory/shared_memory.py",
        "stmatrix.sync.aligned.m8n8.x{plan.x}{'.trans' if plan.transposed else ''}",
        "stmatrix.sync.aligned.m8n8.x{plan.x}",
    ),
    Plant(
        "reductions that do not commute out of order",
        "lower/collective/reduce.py",
        "plan.steps if combine.commutes else reversed(plan.steps)",
        "plan.steps",
    ),
    Plant(
        "negative floats ordered as integers",
        "lower/collective/reduce.py",
        "return emit.xor(word, emit.and_(sign, str((1 << 31) - 1)))",
        "return word",
    ),
    Plant(
        "scans across warps in one direction",
        "lower/collective/scan.py",
        "order = range(exchange.slots)[::-1] if self.reverse else range(exchange.slots)",
        "order = range(exchange.slots)",
    ),
    Plant(
        "truth is minus one",
        "lower/core/casts.py",
        'opcode = "uitofp" if old == I1 else op.llvm',
        'opcode = "sitofp" if old == I1 else op.llvm',
    ),
    Plant(
        "halves of 64 bits exchanged",
        "lower/collective/convert_layout.py",
        'emit.or_(emit.shift(wide, 32, "i64"), emit.instruction(f"zext i32 {low} to i64"), "i64")',
        'emit.or_(wide, emit.shift(emit.instruction(f"zext i32 {low} to i64"), 32, "i64"), "i64")',
    ),
)


class Outcome(NamedTuple):
    """The findings of programs in a compiler with a mistake."""

    tried: int = 0
    """Number of programs, including the one that finds it."""
    reached: tuple[int, ...] = ()
    """The seeds whose code the mistake changes."""
    seed: int = -1
    finding: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="a part of the names of those to plant")
    parser.add_argument("--count", type=int, default=300, help="programs for each")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--jobs", type=int, default=1, help="mistakes at a time")
    parser.add_argument("--within", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.count)
    if options.within:
        print(json.dumps(found(seeds, json.loads(options.within.read_text()))))
        return 0
    chosen = [
        plant for plant in PLANTS if not options.names or any(name in plant.name for name in options.names)
    ]
    with tempfile.TemporaryDirectory(prefix="planted_") as folder:
        texts = Path(folder) / "texts.json"
        started = time.monotonic()
        texts.write_text(json.dumps(right_texts(seeds, options.jobs)))
        print(f"{options.count} programs compiled in {time.monotonic() - started:.0f} s", flush=True)
        with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
            tasks = [(Path(folder) / str(number), plant, texts, seeds) for number, plant in enumerate(chosen)]
            outcomes = list(pool.imap(_reported, tasks))
    missed = sum(outcome is None or outcome.seed < 0 for outcome in outcomes)
    print(f"{len(chosen) - missed} of {len(chosen)} found")
    return int(missed > 0)


def _reported(task: tuple[Path, Plant, Path, range]) -> Outcome | None:
    plant, started = task[1], time.monotonic()
    outcome = planted(*task)
    seconds = time.monotonic() - started
    if outcome is None:
        text = "is not there to be planted"
    elif outcome.seed < 0:
        few = ", ".join(map(str, outcome.reached[:8]))
        text = f"NOT FOUND in {outcome.tried} programs, {seconds:.0f} s; {len(outcome.reached)} differ: {few}"
    else:
        differ = len(outcome.reached)
        text = f"{outcome.tried:4} programs, {differ:3} differ, {seconds:3.0f} s: seed {outcome.seed} {outcome.finding}"
    print(f"{plant.name:52} {text[:180]}", flush=True)
    return outcome


def planted(folder: Path, plant: Plant, texts: Path, seeds: range) -> Outcome | None:
    """The findings of programs in a copy of the compiler with a mistake in it; None if its text is not in the
    module."""
    source = (ROOT / "kbuild/compiler" / plant.file).read_text()
    if source.count(plant.right) != 1:
        return None
    for name in ("kbuild", "bench", "tests/random_programs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "kbuild/compiler" / plant.file).write_text(source.replace(plant.right, plant.wrong))
    command = [sys.executable, str(folder / "bench/fuzz/fuzz_planted.py"), "--within", str(texts)]
    command += ["--seed", str(seeds.start), "--count", str(len(seeds))]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False)
    shutil.rmtree(folder)
    if done.returncode:
        raise SystemExit(done.stderr)
    outcome = Outcome(*json.loads(done.stdout))
    if outcome.seed >= 0 and (blamed := Checker().check(kernel(outcome.seed))) is not None:
        raise SystemExit(f"seed {outcome.seed} fails without a mistake, too: {blamed}; begin beyond it")
    return outcome


def right_texts(seeds: range, jobs: int) -> dict[str, str]:
    """Digests of the code that the unchanged compiler generates for programs."""
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        return dict(pool.imap_unordered(_texts, seeds, chunksize=4))


def _texts(seed: int) -> tuple[str, str]:
    return str(seed), " ".join(text(kernel(seed), arch) for arch in ARCHS)


def found(seeds: Iterable[int], right: dict[str, str]) -> Outcome:
    """The first difference that this compiler shows.  Only programs whose code differs can show one."""
    checker, number = Checker(), 0
    reached: list[int] = []
    for number, seed in enumerate(seeds, 1):
        tried = kernel(seed)
        if _texts(seed)[1] == right[str(seed)]:
            continue
        reached.append(seed)
        finding = checker.check(tried, 120)
        if finding is not None and finding.kind in FAULTS:
            return Outcome(number, tuple(reached), seed, " ".join(str(finding).split()))
    return Outcome(number, tuple(reached))


def kernel(seed: int) -> Kernel:
    return Kernel.of(program(seed), seed)


def text(tried: Kernel, arch: str) -> str:
    """A digest of a program's code for LLVM, or of why there is none."""
    checker, target = Checker((arch,)), find_target(arch)
    try:
        with limited(60):
            module = checker.built(tried)
            checker.passes(tried, module, target, None)
            made = lower_module(module, target)
    except TimeIsUp:
        made = "too slow"
    except Exception as error:
        made = type(error).__name__
    finally:
        shutil.rmtree(checker.folder)
    return hashlib.blake2b(made.encode(), digest_size=8).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
