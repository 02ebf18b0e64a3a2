"""Mutation testing on kernels of the tests' zoo, with trip counts that wrap around their pipelines.

    python bench/mutate/mutate_zoo.py [--group sync|logic] [--limit N] [NAME ...]

For each kernel and architecture it runs the unchanged PTX under all adversaries, then the mutants
(kbuild.emulator.mutate), and prints survivors and the share of each kind that was caught.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from zoo import CASES, Bits, cases_dots, cases_matmul
from zoo import Case as ZooCase
from zoo.attention import forward

import kbuild
from kbuild.emulator import arguments_of, load
from kbuild.emulator.mutate import OPERATORS, MutantResult, Subject, TrialCase, campaign, clean, table
from kbuild.emulator.mutate.campaign import SURVIVED

ROUNDS = (1, 2, 3, 4, 5, 6, 7)
"""Times around a loop: up to twice the depth of its pipeline, and once more."""
DRAWS = 8
"""Times that kernels without such a loop are run, each time on other data: the greatest number has to be
everywhere once."""
FAMILIES: dict[str, list[ZooCase]] = {
    "dot_loop": [cases_dots._loop("dot_loop", "float16", 64, 64, 32, 32 * n, stages=3) for n in ROUNDS],
    "dot_loop_4_stages": [
        cases_dots._loop("dot_loop", "bf16", 64, 64, 32, 32 * n, stages=4) for n in (*ROUNDS, 9)
    ],
    "dot_loop_tf32": [cases_dots._loop("dot_loop", "float32", 64, 32, 32, 32 * n) for n in ROUNDS],
    "matmul": [cases_matmul._matmul("matmul", "float16", 64, 128, 32 * n, (64, 64, 32)) for n in ROUNDS],
    "matmul_one_stage": [
        cases_matmul._matmul("matmul", "float16", 64, 64, 32 * n, (64, 64, 32), stages=1) for n in ROUNDS[:4]
    ],
    "descriptors": [
        cases_dots._descriptors("descriptors", 64, 64, 32 * n, 256, (64, 64, 32)) for n in ROUNDS
    ],
    "specialized": [
        cases_dots._specialized("specialized", 128, 128, 64 * n, (64, 64, 64), 2, 4, 3) for n in ROUNDS
    ],
    "clusters": [cases_matmul._clustered("clusters", 2, 2, False, False, 128, 64 * n, 3) for n in ROUNDS],
    "attention": [
        forward._attention("attention", 16 * n, 64, False, "bf16", 64, 32, 4, 2) for n in range(2, 10)
    ],
    "attention_causal": [
        forward._attention("attention", 64 * n, 64, True, "fp16", 64, 64, 4, 3) for n in ROUNDS[:5]
    ],
    **{
        name: [CASES[name]] * DRAWS
        for name in (
            "reduce_across_warps",
            "reduce_columns",
            "reduce_all",
            "scan_across_warps",
            "scan_columns",
            "sort_up",
            "count_values",
            "transpose",
            "permute",
            "flip",
            "atomic_histogram",
            "locked_sum",
            "dot_chain",
            "dot_batch",
        )
    },
}


def subjects(name: str) -> Iterator[Subject]:
    """A family on each architecture; of its cases those that the first one's PTX is for."""
    cases = FAMILIES[name]
    first = cases[-1]
    signature = first.signature(first.make(np.random.default_rng(0)))
    for arch in first.archs:
        artifact = kbuild.compile(
            first.source,
            signature=signature,
            constexprs=first.constexprs,
            target=arch,
            lineinfo=True,
            stop="ptx",
            options=first.options(arch),
        )
        facts = artifact.metadata
        launches = [
            launch(case, facts.params, number)
            for number, case in enumerate(cases)
            if case.signature(case.make(np.random.default_rng(0))) == signature
        ]
        yield Subject(
            f"{name} {arch}",
            load(artifact.asm["ptx"], facts.name),
            facts.warps,
            facts.shared,
            tuple(launches),
        )


def launch(case: ZooCase, parameters: Sequence[tuple[str, str]], number: int) -> TrialCase:
    """A case of the zoo as a launch."""
    arguments = case.make(np.random.default_rng(number))
    given = {key: value.data if isinstance(value, Bits) else value for key, value in arguments.items()}
    kinds = {key: value.type_name for key, value in arguments.items() if isinstance(value, Bits)}

    def judge(outputs: Sequence[np.ndarray | None]) -> str:
        after: dict[str, Any] = {}
        for (key, _), output in zip(parameters, outputs):
            if output is not None:
                after[key] = Bits(output, kinds[key]) if key in kinds else output
        try:
            case.check(arguments, after)
        except AssertionError as error:
            return str(error) or "wrong"
        return ""

    return TrialCase(f"case {number}", tuple(arguments_of(parameters, given)), tuple(case.grid), judge)


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FAMILIES)}")
    options.add_argument("--group", choices=("sync", "logic"), default="sync")
    options.add_argument("--limit", type=int, default=None, metavar="N", help="mutants of each kind")
    chosen = options.parse_args()
    operators = [operator for operator in OPERATORS if operator.group == chosen.group]
    results: list[MutantResult] = []
    runs = 0
    for name in chosen.names or FAMILIES:
        for subject in subjects(name):
            started = time.monotonic()
            runs += clean(subject)
            found = list(campaign(subject, chosen.limit, operators))
            results += found
            taken = time.monotonic() - started
            print(
                f"{subject.name}: {len(subject.cases)} cases, {len(found)} mutants, {taken:.0f} s", flush=True
            )
            for result in found:
                if result.state == SURVIVED:
                    print(f"    {result}", flush=True)
    print(table(results))
    print(f"{runs} runs of unchanged kernels, all right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
