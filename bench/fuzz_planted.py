"""Plants mistakes in the compiler, one at a time, in a copy of it, and says which of them random programs find.

    python bench/fuzz_planted.py [--count 300] [--jobs 2] [NAME ...]

For each mistake programs are checked until the first finding, at most --count of them.  Seeds that the compiler as it is does not
pass are left out.  The exit status is 1 when one of the mistakes was not found, or is not there to be planted any more.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
_FOUND = re.compile(r"^seed (\d+): (.*)", re.MULTILINE)
_LISTED = re.compile(r"seeds ([\d, ]+)$", re.MULTILINE)


class Plant(NamedTuple):
    """A mistake: a text of a module, and what stands there instead."""

    name: str
    file: str
    """Below kbuild/compiler."""
    right: str
    wrong: str


PLANTS = (
    # Those that were in the compiler once, and were found by hand.
    Plant("divisor taken for non-zero", "lower/elementwise.py",
          'divisor = emit.opaque(b, kind) if b[0] == "%" or b == "0" else b', "divisor = b"),
    Plant("quotients of negative numbers rounded down", "analysis/axis_info/rules.py",
          "_divided(_rounded_down(op, known), b)", "_divided(a, b)"),
    Plant("remainders of negative numbers run on", "analysis/axis_info/rules.py",
          "_remaining(_rounded_down(op, known), b)", "_remaining(a, b)"),
    Plant("start values written after wgmma.fence", "lower/wgmma.py",
          "places = [(sums, index) for sums in started for index in sums.starts(emit)]", "places = []"),
    # Transformations of tensors.
    Plant("every comparison of a range is like that of its ends", "transforms/common/fold.py",
          ' or op.predicate in ("eq", "ne")', ""),
    Plant("(x + a) + b = x + b", "transforms/common/fold.py", "op.fold(first, outer), op.lhs.type", "outer, op.lhs.type"),
    Plant("x - x = 1", "transforms/common/fold.py", "Constant.of(0, op.lhs.type) if op.lhs is op.rhs",
          "Constant.of(1, op.lhs.type) if op.lhs is op.rhs"),
    Plant("the sum after a dot that has other users goes into it", "transforms/tensor/combine.py",
          "not is_constant(dot.c, 0) or len(product.users) != 1", "not is_constant(dot.c, 0)"),
    Plant("an unrolled loop repeats its rest", "transforms/common/loop_unroll.py", "middle, tuple(loop.results)",
          "loop.lower, tuple(loop.results)"),
    Plant("operations that depend on an inner block leave the loop", "transforms/common/licm.py",
          "if any(operand in inside for operand in op.operands):\n        return True", "pass"),
    # Analyses.
    Plant("buffers die within a while", "analysis/liveness.py", "isinstance(block.parent, For | While)",
          "isinstance(block.parent, For)"),
    Plant("loads are as constant as their pointers", "analysis/axis_info/rules.py", "for operand in (op.mask, op.other):",
          "for operand in (op.mask,):"),
    # Transformations of layouts and loops.
    Plant("running maxima begin with zero", "transforms/gpu/thread_locality.py", "MaxSI: -signed", "MaxSI: 0"),
    Plant("the last copies of a pipeline are one too late", "transforms/gpu/pipeline/expand.py",
          "AsyncWait(self.schedule.distance - 1)", "AsyncWait(self.schedule.distance)"),
    Plant("copies beyond the last iteration", "transforms/gpu/pipeline/expand.py",
          'CmpI(iteration, self.loop.upper, "slt")', 'CmpI(iteration, self.loop.upper, "sle")'),
    # Lowering.
    Plant("all of a masked tail become the first other", "lower/memory.py", "emit.select(whole, vector[-1], other[-1], kind)",
          "emit.select(whole, vector[-1], other[0], kind)"),
    Plant("atomic minima with a sign", "lower/atomics.py", '"umin": ("min", "u")', '"umin": ("min", "s")'),
    Plant("matrices stored by stmatrix as they lie", "lower/shared.py",
          "stmatrix.sync.aligned.m8n8.x{plan.x}{'.trans' if plan.transposed else ''}", "stmatrix.sync.aligned.m8n8.x{plan.x}"),
    Plant("reductions that do not commute out of order", "lower/reduce.py",
          "plan.shuffles if combine.commutes else reversed(plan.shuffles)", "plan.shuffles"),
    Plant("negative floats ordered as integers", "lower/reduce.py", "return emit.xor(word, emit.and_(sign, str((1 << 31) - 1)))",
          "return word"),
    Plant("scans across warps in one direction", "lower/scan.py",
          "order = range(exchange.slots)[::-1] if self.reverse else range(exchange.slots)", "order = range(exchange.slots)"),
    Plant("truth is minus one", "lower/casts.py", 'opcode = "uitofp" if old == I1 else op.llvm', "opcode = op.llvm"),
    Plant("halves of 64 bits exchanged", "lower/convert_layout.py",
          'emit.or_(emit.shift(wide, 32, "i64"), emit.instruction(f"zext i32 {low} to i64"), "i64")',
          'emit.or_(wide, emit.shift(emit.instruction(f"zext i32 {low} to i64"), 32, "i64"), "i64")'),
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a part of the names of those to plant")
    parser.add_argument("--count", type=int, default=300, help="programs for each")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    chosen = [plant for plant in PLANTS if not options.names or any(name in plant.name for name in options.names)]
    folder = Path(tempfile.mkdtemp(prefix="planted_"))
    for name in ("kbuild", "bench", "tests/random_programs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    text, seconds = checked(folder, options, None)
    skipped = sorted({int(seed) for found in _LISTED.findall(text) for seed in found.split(",")})
    print(f"as it is: {options.count} programs in {seconds:.0f} s, left out: {skipped or 'none'}", flush=True)
    missed = 0
    for plant in chosen:
        outcome = planted(folder, plant, options, skipped)
        missed += "seed" not in outcome
        print(f"{plant.name:60} {outcome}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} found")
    shutil.rmtree(folder)
    return int(missed > 0)


def planted(folder: Path, plant: Plant, options: argparse.Namespace, skipped: list[int]) -> str:
    """What programs say of a compiler with a mistake."""
    path = folder / "kbuild/compiler" / plant.file
    source = path.read_text()
    if source.count(plant.right) != 1:
        return "is not there to be planted"
    path.write_text(source.replace(plant.right, plant.wrong))
    try:
        text, seconds = checked(folder, options, skipped)
    finally:
        path.write_text(source)
    found = _FOUND.search(text)
    return f"seed {found[1]}, {seconds:.0f} s: {found[2][:90]}" if found else f"not found in {seconds:.0f} s"


def checked(folder: Path, options: argparse.Namespace, skipped: list[int] | None) -> tuple[str, float]:
    """What fuzz_programs.py prints over a folder's compiler, and how long it takes: up to the first finding of seeds that are not
    skipped, or to the end where it is not known yet which ones to skip."""
    command = [sys.executable, str(folder / "bench/fuzz_programs.py"), "--seed", str(options.seed), "--count", str(options.count)]
    command += ["--jobs", str(options.jobs), "--shrink", "0"]
    if skipped is not None:
        command += ["--first", "--skip", ",".join(map(str, skipped))]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr)
    return done.stdout, time.monotonic() - started


if __name__ == "__main__":
    sys.exit(main())
