"""The PTX that NVRTC writes, made that of one kernel with one block: what a manifest says of a launch becomes part of the
code, where ptxas takes it into account, and where the driver and the emulator refuse another launch.

    .visible .entry sgemm(…)            .visible .entry sgemm(…)
    .maxntid 256, 1, 1             ▶    .reqntid 16, 16, 1
    .minnctapersm 2                     .minnctapersm 2
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kbuild.options import Block, CompileOptions

_DIRECTIVE = re.compile(
    r"^\.(maxntid|reqntid|maxnreg|minnctapersm|reqnctapercluster|explicitcluster)\b[ \t]*([^\n]*)\n",
    re.MULTILINE,
)
_SCAN = re.compile(
    r'(?P<skip>//[^\n]*|/\*.*?\*/|"[^"\n]*")|(?P<word>[.%]?[A-Za-z_$][\w$]*)|[{}();\n]',
    re.DOTALL,
)
_COMMENT = re.compile(r"//[^\n]*")
_WORD = re.compile(r"[A-Za-z_$][\w$]*")
_LINES = (".version", ".target", ".address_size", ".file", ".section", ".pragma")
"""Directives at the top level that end with their line."""
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


def reduced(ptx: str, entry: str) -> str:
    """The text with one kernel, and what that needs of functions and variables: NVRTC compiles all kernels of a file."""
    items = [*_items(ptx)]
    texts: dict[str, list[str]] = {}  # A function may be declared before it is defined.
    for name, text in items:
        texts.setdefault(name, []).append(text)
    needed, waiting = {""}, [entry]
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += {
                word for text in texts[name] for word in _WORD.findall(_COMMENT.sub("", text))
            } & texts.keys()
    return "".join(text for name, text in items if name in needed)


def _items(ptx: str) -> Iterator[tuple[str, str]]:
    """The parts of a text at its top level, each with the name that it declares: empty for directives of a line.
    Comments between parts are left out, for they name parts that need not be there."""
    text, name, kind, depth, end = "", "", "", 0, 0
    for match in _SCAN.finditer(ptx):
        text += ptx[end : match.start()]
        end = match.end()
        is_comment = match.lastgroup == "skip" and not match[0].startswith('"')
        if not (is_comment and depth == 0 and kind):
            text += match[0]
        if match.lastgroup == "word" and depth == 0:
            word = match[0]
            if word in _LINES:
                kind = "line"
            elif word in (".entry", ".func"):
                kind = "function"
            elif kind in ("", "between"):
                kind = "variable"
            elif kind != "line" and not name and not word.startswith("."):
                name = word
        depth += {"{": 1, "(": 1, "}": -1, ")": -1}.get(match[0], 0)
        ends = {"\n": "line", "}": "function", ";": kind}.get(match[0])
        if depth == 0 and ends == kind and kind not in ("", "between"):
            yield name, text
            text, name, kind = "", "", "between"
    yield "", text


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
