"""Facts of the code of the shipped kernels, without a GPU: a table of counts, compared with the one in
`bench/baseline.txt`.

    python bench/static.py                  build everything, show what differs from the baseline (before → after)
    python bench/static.py --sample         the same for a few variants, compiled now
    python bench/static.py --update         build everything and write the baseline

Registers, spilled bytes and shared bytes are ptxas's; `sass` counts the instructions in the cubin;
`conversions` those changes of layout that go through shared memory; the other columns count instructions of
the PTX.
"""

from __future__ import annotations

import argparse
import json
import re
import struct
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BASELINE = Path(__file__).with_name("baseline.txt")
SAMPLE = 12
"""Variants in the sample."""
MAX_LINES = 60

CLASSES = {
    "mma": r"(wgmma\.mma_async|mma\.sync)",
    "ldmatrix": r"ldmatrix",
    "stmatrix": r"stmatrix",
    "ld.shared": r"ld\.shared",
    "st.shared": r"st\.shared",
    "async": r"cp\.async\.(c[ag]|bulk)",
    "ld.global": r"ld\.global",
    "st.global": r"st\.global",
    "barrier": r"(bar|barrier)\.sync",
    "shuffle": r"shfl",
    "ex2": r"ex2",
}
"""Columns, and how the PTX instructions that they count begin."""
COLUMNS = ("registers", "spilled", "shared", "sass", "conversions", *CLASSES)

Row = dict[str, int]


def main() -> None:
    """Make the table, and write it or compare it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--sample", action="store_true")
    options = parser.parse_args()
    before = read(BASELINE.read_text()) if BASELINE.exists() else {}
    if options.sample:
        after = compiled_sample()
        before = {name: row for name, row in before.items() if name in after}
    else:
        subprocess.run([sys.executable, "-m", "kbuild", "build", "-q", "--strict"], cwd=ROOT, check=True)
        after = built(ROOT / "build")
    print(difference(before, after))
    if options.update and not options.sample:
        BASELINE.write_text(text_of(after))


def built(directory: Path) -> dict[str, Row]:
    """The rows of all variants in a build directory."""
    rows: dict[str, Row] = {}
    for path in sorted(directory.glob("sm_*/*/*.json")):
        facts = json.loads(path.read_bytes())
        cubin, ptx = (path.with_name(path.name[: -len("json")] + suffix) for suffix in ("cubin", "ptx"))
        rows[facts["name"]] = row_of(facts, ptx.read_text(), cubin.read_bytes())
    return rows


def compiled_sample() -> dict[str, Row]:
    """The rows of every so many variants of the manifest, compiled in this process."""
    sys.path.insert(0, str(ROOT))
    import kbuild
    from kbuild.aot.build.plan import constexprs_of
    from kbuild.aot.manifest.expand import expand
    from kbuild.aot.manifest.load import load

    manifest = load(ROOT / "kernels.toml", "kernels.toml")
    variants = sorted(expand(manifest).variants, key=lambda variant: variant.name)
    rows: dict[str, Row] = {}
    for variant in variants[:: -(-len(variants) // SAMPLE)]:
        kernel = manifest.kernel(variant.kernel)
        made = kbuild.compile(
            f"{ROOT / kernel.source}:{kernel.function}",
            signature=dict(variant.signature),
            constexprs=dict(constexprs_of(kernel, variant)),
            target=variant.arch,
            options=variant.options,
            strict=True,
        )
        rows[variant.name] = row_of(vars(made.metadata), made.asm["ptx"], made.asm["cubin"])
    return rows


def row_of(facts: Mapping[str, Any], ptx: str, cubin: bytes) -> Row:
    """One variant's counts."""
    counts = {
        name: len(re.findall(rf"(?m)^\s*(?:@!?%p\d+\s+)?{pattern}", ptx)) for name, pattern in CLASSES.items()
    }
    spilled = facts["spill_stores"] + facts["spill_loads"]
    own = {
        "registers": facts["registers"],
        "spilled": spilled,
        "shared": facts["shared"],
        "sass": instructions(cubin),
    }
    return {**own, "conversions": facts["conversions"], **counts}


def instructions(cubin: bytes) -> int:
    """Instructions in the code of a cubin, each of 16 bytes; the last ones are padding."""
    start, size, count, names = struct.unpack_from("<Q", cubin, 40)[0], *struct.unpack_from("<HHH", cubin, 58)
    sections = [struct.unpack_from("<IIQQQQ", cubin, start + index * size) for index in range(count)]
    strings = sections[names][4]
    return sum(section[5] // 16 for section in sections if cubin.startswith(b".text.", strings + section[0]))


def text_of(rows: Mapping[str, Row]) -> str:
    """The table as the baseline's text: a line for each variant, its name last."""
    lines = [[*(str(row[column]) for column in COLUMNS), name] for name, row in sorted(rows.items())]
    return aligned([[*COLUMNS, "variant"], *lines])


def read(text: str) -> dict[str, Row]:
    """The rows of a baseline's text."""
    header, *lines = (line.split() for line in text.splitlines())
    return {words[-1]: dict(zip(header, map(int, words[:-1]))) for words in lines}


def difference(before: Mapping[str, Row], after: Mapping[str, Row]) -> str:
    """What changed, as a table: a line for each variant that did, with `before→after` where they differ, and
    the sums."""
    changed = [name for name in after if name in before and before[name] != after[name]]
    lines = [[*COLUMNS, "variant"]]
    lines += [
        [*(shown(before[name].get(c, 0), after[name][c]) for c in COLUMNS), name]
        for name in changed[:MAX_LINES]
    ]
    both = [name for name in after if name in before]
    lines.append([*(shown(total(before, both, c), total(after, both, c)) for c in COLUMNS), "all together"])
    rest = f" (the first {MAX_LINES} are shown)" if len(changed) > MAX_LINES else ""
    gone, new = len(set(before) - set(after)), len(set(after) - set(before))
    return (
        aligned(lines)
        + f"{len(changed)} of {len(both)} variants changed{rest}; {new} are new, {gone} are gone"
    )


def total(rows: Mapping[str, Row], names: Iterable[str], column: str) -> int:
    return sum(rows[name].get(column, 0) for name in names)


def shown(before: int, after: int) -> str:
    return str(after) if before == after else f"{before}→{after}"


def aligned(lines: list[list[str]]) -> str:
    """Words in columns, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "".join("  ".join([*map(str.rjust, line[:-1], widths), line[-1]]) + "\n" for line in lines)


if __name__ == "__main__":
    main()
