"""Compares a cubin with the PTX that it was made from: ptxas is not trusted.

ptxas 13.5.37 was seen to leave out `wgmma` instructions without a word, and ptxas before 13.3 to overwrite
their operands; a program in the place of ptxas may give another kernel's cubin.  The comparison takes up to
3 ms: the kernel's name, its architecture, the bytes of its parameters, the threads of a program, and how many
tensor-core instructions of each kind there are. Code whose asynchronous wgmmas read registers is also
followed along its paths (async_operands.py), fp8 MMAs must have no constant operands where ptxas widens them,
and no upper halves of registers may be spilled (halves.py).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

from kbuild.compiler.backend.async_operands import overwritten
from kbuild.compiler.backend.elf import CubinKernel, Section, capability, code, kernels, sections
from kbuild.compiler.backend.opaque_predicates import opaque
from kbuild.compiler.backend.sass import (
    CAPABILITIES,
    MmaKind,
    expected,
    in_code,
    in_ptx,
    stores_upper_halves,
    widened_numbers,
    widens_fp8,
)
from kbuild.compiler.backend.unused_mmas import unused
from kbuild.errors import ToolError
from kbuild.targets import capability_of

_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*(?:\(([^)]*)\))?([^{;]*)")
_PARAMETER = re.compile(r"\.(?:[bsuf](8|16|32|64))\b[^,\[]*(?:\[(\d+)\])?")
_THREADS = re.compile(r"\.reqntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
_WIDENING = re.compile(r"\bcvt\.rn\.f16x2\.(?:e4m3|e5m2)x2\b")
_WITH_WGMMA = 90


def require_same(ptx: str, arch: str, cubin: bytes, ptxas: str, reassemble: Callable[[str], bytes]) -> None:
    """Raise `ToolError` unless a cubin appears to be the code of a PTX text for an architecture.

    `ptxas` says which one made it: its version.  `reassemble` has it assemble another text, which is asked for
    only where there are fewer tensor-core instructions than expected.
    """
    found = sections(cubin)
    differences = [*_of_kernels(ptx, kernels(found)), *_of_architecture(arch, capability(cubin))]
    differences += [*_of_mmas(ptx, arch, found, reassemble), *_of_halves(ptx, found)]
    if capability(cubin) == _WITH_WGMMA:
        differences += _of_operands(found)
    if widens_fp8(capability(cubin)):
        differences += _of_constants(ptx, found)
    if differences:
        listed = "\n".join(f"    {difference}" for difference in differences)
        raise ToolError(
            f"ptxas {ptxas} made a cubin that does not fit its PTX (by {_writer()}):\n{listed}",
            help="take another version: set KBUILD_PTXAS to it, or name it as `ptxas` under [package] of kernels.toml",
        )


def _of_architecture(arch: str, found: int) -> Iterator[str]:
    wanted = capability_of(arch)
    if wanted != found:
        yield f"architecture: expected sm_{wanted}, found sm_{found}"


def _of_kernels(ptx: str, found: list[CubinKernel]) -> Iterator[str]:
    wanted = [_kernel(*entry.groups(default="")) for entry in _ENTRY.finditer(ptx)]
    names, others = sorted(kernel.name for kernel in wanted), sorted(kernel.name for kernel in found)
    if names != others:
        yield f"kernel: expected {', '.join(names)}, found {', '.join(others) or 'none'}"
        return
    for one, other in zip(sorted(wanted), sorted(found)):
        if one.parameters != other.parameters:
            yield f"{one.name}, bytes of its parameters: expected {_numbers(one.parameters)}, found {_numbers(other.parameters)}"
        elif (
            not sum(one.parameters) <= other.parameter_bytes <= sum(one.parameters) + 64 * len(one.parameters)
        ):
            yield f"{one.name}, bytes of all parameters: expected about {sum(one.parameters)}, found {other.parameter_bytes}"
        if one.threads and one.threads != other.threads:
            yield f"{one.name}, threads of a program: expected {_numbers(one.threads)}, found {_numbers(other.threads)}"


def _kernel(name: str, parameters: str, directives: str) -> CubinKernel:
    """A kernel of the PTX, by what stands around its parameters."""
    sizes = tuple(
        int(found[1]) // 8 * int(found[2] or 1)
        for parameter in parameters.split(".param")[1:]
        if (found := _PARAMETER.search(parameter))
    )
    threads = _THREADS.search(directives)
    return CubinKernel(
        name, sizes, sum(sizes), tuple(int(number or 1) for number in threads.groups()) if threads else ()
    )


def _of_mmas(ptx: str, arch: str, found: list[Section], reassemble: Callable[[str], bytes]) -> Iterator[str]:
    number = capability_of(arch)
    names = in_ptx(ptx)
    if not names or number not in CAPABILITIES:
        return
    needed, made = expected(names, number), _mmas(found)
    if needed - made:  # Otherwise none is missing.
        needed -= expected(unused(ptx), number)
    if needed - made:  # ptxas may know that their results are never used.
        made = _mmas(sections(reassemble(opaque(ptx))))
    for kind, wanted in needed.items():
        if made[kind] < wanted:
            yield f"tensor-core instructions ({kind}): expected {wanted}, found {made[kind]}; the results would be wrong"


def _mmas(found: list[Section]) -> Counter[MmaKind]:
    made: Counter[MmaKind] = Counter()
    for section in code(found):
        made += in_code(section.data)
    return made


def spills_upper_halves(ptx: str, cubin: bytes) -> bool:
    """Whether code spills upper halves of registers, in place of which ptxas may have written the lower ones."""
    return any(_of_halves(ptx, sections(cubin)))


def _of_halves(ptx: str, found: list[Section]) -> Iterator[str]:
    if "st.local" in ptx:  # Its own may have 16 bits.
        return
    for section in code(found):
        if stores_upper_halves(section.data):
            yield f"{section.name}: upper halves of registers are spilled, and maybe the lower ones in their place"


def _of_operands(found: list[Section]) -> Iterator[str]:
    for section in code(found):
        if wrong := overwritten(section.data):
            first, more = wrong[0], f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            yield (
                f"{section.name}, register R{first.register}: written at {first.place:#x} while the wgmma at "
                f"{first.wgmma:#x} may still read it{more}; the results would be wrong"
            )


def _of_constants(ptx: str, found: list[Section]) -> Iterator[str]:
    """ptxas widens the upper half of an fp8 constant wrongly where it finds late that an operand is one; the
    lowering hides operands that may be constants.  Correct conversions of constants look the same in the
    code, so code that has some is not checked."""
    has_fp8 = any(name.startswith("mma.") and (".e4m3" in name or ".e5m2" in name) for name in in_ptx(ptx))
    if not has_fp8 or _WIDENING.search(ptx):
        return
    for section in code(found):
        if numbers := widened_numbers(section.data):
            listed = ", ".join(f"{number:#x}" for number in numbers[:4])
            yield f"{section.name}, constant operands of fp8 MMAs: found {listed}; the results may be wrong"


def _numbers(values: tuple[int, ...]) -> str:
    return ", ".join(map(str, values)) or "none"


def _writer() -> str:
    """The programs that made the PTX, with versions."""
    # Half of the time of a check; only for errors.
    from importlib.metadata import (
        PackageNotFoundError,
        version,
    )

    words: list[str] = []
    for name in ("kbuild", "llvmlite"):
        try:
            words.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            words.append(name)
    return ", ".join(words)
