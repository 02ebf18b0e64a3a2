"""The PTX that NVRTC writes, made that of one kernel with one block: what a manifest says of a launch becomes part of the
code, where ptxas takes it into account, and where the driver and the emulator refuse another launch.

    .visible .entry sgemm(…)            .visible .entry sgemm(…)
    .maxntid 256, 1, 1             ▶    .reqntid 16, 16, 1
    .minnctapersm 2                     .minnctapersm 2
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kbuild.options import Block, CompileOptions

_DIRECTIVE = re.compile(
    r"^\.(maxntid|reqntid|maxnreg|minnctapersm|reqnctapercluster|explicitcluster)\b[ \t]*([^\n]*)\n",
    re.MULTILINE,
)
_VERSION = re.compile(r"^\.version (\d+)\.(\d+)$", re.MULTILINE)
_ACCELERATED = re.compile(
    r"\b(?:wgmma|setmaxnreg|tcgen05|tensormap\.replace)\b|\.multicast::cluster\b|\.kind::|\bcvt\.\S*\.(?:e2m1|e2m3|e3m2|ue8m0)"
)
"""Instructions that an architecture has only in code of its own kind, such as `sm_90a`."""


@dataclass(frozen=True)
class Bounds:
    """What the source says of the kernel's launches."""

    most: int | None
    """Threads of a block at most, by `__launch_bounds__`."""
    exactly: Block | None
    """Threads of a block along each axis."""
    cluster: Block | None
    """Blocks of a cluster along each axis, by `__cluster_dims__`."""


def is_accelerated(text: str) -> bool:
    """Whether PTX, or the source of some, takes instructions that are an architecture's own."""
    return _ACCELERATED.search(text) is not None


def bounds_of(ptx: str, entry: str) -> Bounds:
    """What the directives of a kernel say."""
    found = {match[1]: match[2] for match in _DIRECTIVE.finditer(_head(ptx, entry))}
    most = None
    if "maxntid" in found:
        most = 1
        for size in _three(found["maxntid"]):
            most *= size
    exactly = _three(found["reqntid"]) if "reqntid" in found else None
    cluster = _three(found["reqnctapercluster"]) if "reqnctapercluster" in found else None
    return Bounds(most, exactly, cluster)


def for_launches(ptx: str, entry: str, options: CompileOptions) -> str:
    """The PTX for the block of the options, with their bound on registers and their clusters."""
    head = _head(ptx, entry)
    kept = {match[1]: match[2] for match in _DIRECTIVE.finditer(head)}
    kept.pop("maxntid", None)
    kept["reqntid"] = ", ".join(map(str, options.threads))
    if options.max_registers is not None:
        kept.pop("minnctapersm", None)  # The two exclude each other.
        kept["maxnreg"] = str(options.max_registers)
    if options.cluster_size > 1 and "reqnctapercluster" not in kept:
        kept["explicitcluster"] = ""
        kept["reqnctapercluster"] = f"{options.cluster_size}, 1, 1"
    lines = "".join(f".{name} {value}".rstrip() + "\n" for name, value in kept.items())
    start = ptx.index(head)
    return f"{ptx[:start]}{_DIRECTIVE.sub('', head)}{lines}{ptx[start + len(head) :]}"


def without_variables(ptx: str, symbols: set[str]) -> str:
    """The text without the declarations of some global variables, which nothing uses."""
    return "".join(
        line
        for line in ptx.splitlines(keepends=True)
        if not (".global" in line.split(" ")[:2] and line.rstrip(";\n").split(" ")[-1] in symbols)
    )


def with_version(ptx: str, feature: str) -> str:
    """The text for assemblers and drivers that know the PTX of a feature, `ptx84`, and none later.  What it has of later
    versions, they refuse."""
    match = _VERSION.search(ptx)
    wanted = divmod(int(feature.removeprefix("ptx")), 10)
    if match is None or (int(match[1]), int(match[2])) <= wanted:
        return ptx
    return f"{ptx[: match.start()]}.version {wanted[0]}.{wanted[1]}{ptx[match.end() :]}"


def _head(ptx: str, entry: str) -> str:
    """A kernel's text from its name to its body."""
    match = re.search(rf"\.entry\s+{re.escape(entry)}\b[^{{]*", ptx)
    assert match is not None, f"NVRTC named the kernel {entry}"
    return match[0]


def _three(text: str) -> Block:
    x, y, z = (*(int(word) for word in text.split(",")), 1, 1)[:3]
    return x, y, z
