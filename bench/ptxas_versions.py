"""Compares versions of ptxas on the shipped kernels, without a GPU.

    python bench/ptxas_versions.py                            every version that is installed, on the PTX of the last build
    python bench/ptxas_versions.py --ptx FOLDER 12.9 /opt/cuda/bin/ptxas

The PTX is that for the ptxas of the build: what is made for versions from 13.3 on is refused by earlier ones
where they overwrite operands, and what is made for those (`KBUILD_PTXAS=… kbuild build`) by none.

Registers are means of the variants that all versions make code for; spilled bytes, instructions, seconds, and
variants that are refused (a cubin that does not fit its PTX, for one) are sums.  What a version does to the
time on a GPU takes a wheel of each:

    KBUILD_PTXAS=… kbuild build -o old; KBUILD_PTXAS=… kbuild build -o new; python bench/speed/wheels.py old/*.whl
    new/*.whl
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from kbuild.aot.toolchain import installed_ptxas
from kbuild.compiler.backend.cubin import assemble, ptxas_version
from kbuild.compiler.backend.elf import sections
from kbuild.compiler.backend.ptxas_wheels import choose
from kbuild.compiler.backend.sass import BYTES
from kbuild.errors import ToolError

ROOT = Path(__file__).parent.parent


class Code(NamedTuple):
    """The code that a version of ptxas generates for a kernel."""

    group: str
    """Kernel and architecture."""
    registers: int = 0
    spilled: int = 0
    instructions: int = 0
    seconds: float = 0.0
    refused: str = ""


def main() -> None:
    """Parse the command line and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("versions", nargs="*", help="versions that are installed, or paths of programs")
    parser.add_argument(
        "--ptx", type=Path, default=ROOT / "build", help="folder with PTX files, at any depth"
    )
    parser.add_argument("--every", type=int, default=1, help="take one file in so many")
    options = parser.parse_args()
    there = installed_ptxas()
    tools = [choose(there, name).path if re.fullmatch(r"[\d.]+", name) else name for name in options.versions]
    tools = tools or [one.path for one in there]
    files = sorted(options.ptx.rglob("*.ptx"))[:: options.every]
    if not files:
        parser.error(f"{options.ptx} has no PTX: run kbuild build")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = {
            ptxas_version(tool): list(pool.map(lambda file, tool=tool: code_of(file, tool), files))
            for tool in tools
        }
    print("\n".join(table(made)))


def code_of(file: Path, ptxas: str) -> Code:
    """The code that a ptxas generates for a file."""
    ptx = file.read_text()
    found = re.search(r"(?m)^\.target (\w+)", ptx)
    arch = found[1] if found else "sm_80"
    group = f"{file.name.partition('.')[0]} {arch.removesuffix('a')}"
    started = time.perf_counter()
    try:
        cubin, facts = assemble(ptx, arch, ptxas)
    except ToolError as error:
        return Code(group, refused=f"{file.name}: {error}")
    seconds = time.perf_counter() - started
    instructions = sum(
        len(section.data) // BYTES for section in sections(cubin) if section.name.startswith(".text.")
    )
    return Code(group, facts.registers, facts.spill_stores + facts.spill_loads, instructions, seconds)


def table(made: dict[str, list[Code]]) -> Iterator[str]:
    """The table in Markdown, a line for each kernel and one for all, and what was refused."""
    columns = list(zip(*made.values()))
    yield f"| kernel | variants | registers {' / '.join(made)} | spilled bytes | instructions | seconds | refused |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for name in [*sorted({row[0].group for row in columns}), "all"]:
        rows = [row for row in columns if name in (row[0].group, "all")]
        good = [row for row in rows if not any(code.refused for code in row)]
        cells = [
            [f"{sum(code.registers for code in codes) / len(good):.1f}" for codes in zip(*good)],
            [str(sum(code.spilled for code in codes)) for codes in zip(*good)],
            [str(sum(code.instructions for code in codes)) for codes in zip(*good)],
            [f"{sum(code.seconds for code in codes):.1f}" for codes in zip(*good)],
            [str(sum(bool(code.refused) for code in codes)) for codes in zip(*rows)],
        ]
        yield f"| {name} | {len(rows)} | {' | '.join(' / '.join(cell) for cell in cells)} |"
    for version, codes in made.items():
        for text, count in Counter(code.refused for code in codes if code.refused).items():
            yield f"\n{version}, {count}: {text}"


if __name__ == "__main__":
    main()
