"""Code for the kernels of others, beside Triton's: registers, spills, shared memory and instructions, without a GPU.

    python bench/others/counts.py --requests liger.jsonl.gz tritonbench.jsonl.gz --liger CHECKOUT --tritonbench
    CHECKOUT [--one-each] [--known FILE] [--triton FILE] [--table FILE]

The requests are those of `bench/corpus.py`.  Both compilers' PTX is assembled by the same ptxas, so that the counts
differ by what the compilers did.  A function is flagged where ours takes more than 1.3 times what Triton takes of
anything; the exit code is 1 if one is that `--known` does not list, a name a line.  Triton's counts, for which it
has to be installed, are kept in the file `--triton`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

import corpus
from forks import run_all
from static import instructions

from kbuild.compiler.backend.cubin import assemble

RATIO = 1.3
"""From which on more is flagged."""
SLACK = {"registers": 8, "spilled": 16, "shared": 1024, "sass": 100}
"""What may be more besides, by column: so little changes neither occupancy nor time."""

Counts = dict[str, int]


class Pair(NamedTuple):
    """One request compiled by both."""

    ours: Counts | str
    """The counts, or an error."""
    theirs: Counts | str


def main() -> int:
    """Compile all requests, print what is flagged, and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    corpus.add_arguments(parser)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--known", type=Path, help="functions that may be flagged")
    parser.add_argument("--triton", type=Path, help="where Triton's counts are kept")
    parser.add_argument("--table", type=Path, help="write the counts of all requests here, as JSON")
    options = parser.parse_args()
    folders, requests = corpus.folders_of(options), corpus.chosen(options)
    before = json.loads(options.triton.read_text()) if options.triton and options.triton.exists() else {}

    def both(request: Any) -> Pair:
        kept = before.get(key_of(request, options.arch))
        return Pair(
            tried(lambda: ours(request, folders, options.arch)),
            kept or tried(lambda: theirs(request, folders, options.arch)),
        )

    pairs = run_all(requests, both, lambda text: Pair(text, text), options.jobs, 2 * corpus.SECONDS)
    if options.triton:
        made = {key_of(one, options.arch): pair.theirs for one, pair in zip(requests, pairs)}
        before |= {key: counts for key, counts in made.items() if not isinstance(counts, str)}
        options.triton.write_text(json.dumps(before))
    if options.table:
        rows = [{"function": corpus.name_of(one), **pair._asdict()} for one, pair in zip(requests, pairs)]
        options.table.write_text(json.dumps(rows, indent=1))
    known = set(options.known.read_text().split("\n")) if options.known else set()
    return report([(corpus.name_of(one), pair) for one, pair in zip(requests, pairs)], known)


def key_of(request: Any, arch: str) -> str:
    """What a request is kept by."""
    asked = [request[key] for key in ("file", "name", "signature", "constants", "attrs", "options")]
    return hashlib.sha256(json.dumps([arch, *asked], sort_keys=True).encode()).hexdigest()


def tried(compile_it: Callable[[], Counts]) -> Counts | str:
    """The counts, or the error in one line."""
    try:
        return compile_it()
    except BaseException as error:  # Triton's extension ends some errors by SystemExit.
        return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def ours(request: Any, folders: dict[str, Path], arch: str) -> Counts:
    made = corpus.compiled(request, folders, arch)
    facts = made.metadata
    return counted(made.asm["cubin"], facts.registers, facts.spill_stores, facts.spill_loads, facts.shared)


def theirs(request: Any, folders: dict[str, Path], arch: str) -> Counts:
    from triton_side import compiled  # Triton need not be installed where its counts are kept.

    ptx, shared = compiled(request, corpus.source_of(request, folders), int(arch.removeprefix("sm_")))
    named = re.search(r"(?m)^\.target\s+(\w+)", ptx)
    assert named is not None
    cubin, facts = assemble(ptx, named[1])
    return counted(cubin, facts.registers, facts.spill_stores, facts.spill_loads, shared)


def counted(
    cubin: bytes, registers: int | None, stored: int | None, loaded: int | None, shared: int
) -> Counts:
    return {
        "registers": registers or 0,
        "spilled": (stored or 0) + (loaded or 0),
        "shared": shared,
        "sass": instructions(cubin),
    }


def flagged(pair: Pair) -> list[str]:
    """The columns in which ours takes too much."""
    if isinstance(pair.ours, str) or isinstance(pair.theirs, str):
        return []
    return [
        column for column, slack in SLACK.items() if pair.ours[column] > RATIO * pair.theirs[column] + slack
    ]


def report(pairs: list[tuple[str, Pair]], known: set[str]) -> int:
    """Print a line for each flagged request and for each that one of the two refused; the exit code."""
    columns, new = Counter[str](), set[str]()
    for name, pair in pairs:
        if isinstance(pair.ours, str) and not isinstance(pair.theirs, str):
            print(f"refused  {name}: {pair.ours}")
            new |= {name} - known
        for column in flagged(pair):
            assert not isinstance(pair.ours, str) and not isinstance(pair.theirs, str)
            print(f"{column:9} {pair.ours[column]:7} Triton's {pair.theirs[column]:7}  {name}")
            columns[column] += 1
            new |= {name} - known
    compared = sum(not isinstance(pair.ours, str) and not isinstance(pair.theirs, str) for _, pair in pairs)
    found = ", ".join(f"{count} in {column}" for column, count in columns.items()) or "none"
    print(
        f"{compared} of {len(pairs)} requests compared; flagged: {found}; {len(new)} functions are not known"
    )
    return int(bool(new))


if __name__ == "__main__":
    sys.exit(main())
