"""Tensor-core instructions of a PTX text whose results nothing uses: the ones that ptxas may leave out.

    wgmma.mma_async… {%r1, …}, a, b, …;      used: %r1 comes to a store
    wgmma.mma_async… {%r9, …}, a, c, …;      unused: %r9 comes to nothing, as where a program uses half of a tile
    st.global.b32 [%rd1], %r1;

LLVM keeps them, because they are asm with side effects.  A register is used where anything but arithmetic reads
it, or arithmetic whose result is used, before it is overwritten: a register that holds a loop's sum which
nothing reads may have held a constant with many readers.  (Faint variables: R. Giegerich, U. Möncke and R.
Wilhelm, "Invariance of Approximative Semantics with Respect to Program Transformations", 1981.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_ARITHMETIC = frozenset(
    {
        "abs",
        "add",
        "addc",
        "and",
        "bfe",
        "bfi",
        "bfind",
        "brev",
        "clz",
        "cnot",
        "copysign",
        "cos",
        "cvt",
        "cvta",
        "div",
        "dp2a",
        "dp4a",
        "ex2",
        "fma",
        "fns",
        "ld",
        "ldmatrix",
        "lg2",
        "lop3",
        "mad",
        "madc",
        "max",
        "min",
        "mov",
        "mul",
        "mul24",
        "mad24",
        "neg",
        "not",
        "or",
        "popc",
        "prmt",
        "rcp",
        "rem",
        "rsqrt",
        "sad",
        "selp",
        "set",
        "setp",
        "shf",
        "shl",
        "shr",
        "sin",
        "slct",
        "sqrt",
        "sub",
        "subc",
        "tanh",
        "testp",
        "wgmma",
        "mma",
        "wmma",
        "xor",
    }
)
"""Families of instructions without side effects."""
_EFFECTS = ("wgmma.fence", "wgmma.commit_group", "wgmma.wait_group", "ld.volatile", "wmma.load", "wmma.store")
_STATEMENT = re.compile(r"(?:@!?([%\w$]+)\s+)?([a-z][\w.:]*)\s*(.*)", re.DOTALL)
_BEFORE = re.compile(r"(?:\s|[{}]|[\w$]+:(?!:))*")
"""Text that may stand between two statements: braces of a block, labels."""
_LABEL = re.compile(r"([\w$]+):(?!:)")
_ENDS = frozenset({"bra", "ret", "exit", "trap", "brx"})
"""Families of instructions behind which a program goes on elsewhere, or nowhere."""
_NAME = re.compile(r"[%$]?[A-Za-z_][\w$]*")
"""A register, or a label, which may begin with a dollar sign."""
_DESTINATION = re.compile(r"\s*(\{[^}]*\}|[^,]*),?(.*)", re.DOTALL)
_COMMENT = re.compile(r"//[^\n]*")


class _Instruction(NamedTuple):
    name: str
    labels: tuple[str, ...]
    """The labels before it."""
    writes: frozenset[str]
    """The registers that it writes, where it has no side effects; otherwise empty."""
    reads: frozenset[str]
    """Registers, and the label that a branch goes to."""
    is_guarded: bool


def unused(ptx: str) -> list[str]:
    """The names of the MMAs whose results nothing uses, in order."""
    instructions = list(_instructions(_COMMENT.sub("", ptx)))
    at_label: dict[str, set[str]] = {label: set() for one in instructions for label in one.labels}
    while True:
        size = sum(map(len, at_label.values()))
        found = list(_unused(instructions, at_label))
        if size == sum(map(len, at_label.values())):
            break
    return [name for name in reversed(found) if name.startswith(("wgmma.", "mma.", "wmma."))]


def _unused(instructions: list[_Instruction], at_label: dict[str, set[str]]) -> Iterator[str]:
    """The MMAs whose results nothing uses, the last one first, given the registers that are known to be used at
    labels; more are added there."""
    used: set[str] = set()
    for one in reversed(instructions):
        family = one.name.partition(".")[0]
        if family in _ENDS:
            targets = one.reads & at_label.keys()
            if family == "brx" or (family == "bra" and not targets):
                targets = (
                    at_label.keys()
                )  # A table of labels, or a label that is not in the text: any of them.
            used = set().union(
                used if one.is_guarded else (), one.reads, *(at_label[target] for target in targets)
            )
        elif not one.writes:
            used |= one.reads
        elif one.writes & used:
            used -= frozenset() if one.is_guarded else one.writes
            used |= one.reads
        else:
            yield one.name
        for label in one.labels:
            at_label[label] |= used


def _instructions(ptx: str) -> Iterator[_Instruction]:
    """All instructions; those with side effects count as writing no registers."""
    labels: list[str] = []
    for statement in ptx.split(";"):
        before = _BEFORE.match(statement)
        assert before is not None  # It matches nothing, too.
        labels += _LABEL.findall(before[0])
        found = _STATEMENT.match(statement, before.end())
        if found is None:
            continue
        predicate, name, operands = found.groups()
        guard = {predicate} if predicate else set()
        reads, writes = {*_NAME.findall(operands), *guard}, frozenset[str]()
        if name.partition(".")[0] in _ARITHMETIC and not name.startswith(_EFFECTS):
            destination, sources = _DESTINATION.match(operands).groups()  # type: ignore[union-attr]
            writes = frozenset(_NAME.findall(destination))
            if not name.startswith("wgmma."):  # It adds to its destination.
                reads = {*_NAME.findall(sources), *guard}
        yield _Instruction(name, tuple(labels), writes, frozenset(reads), bool(predicate))
        labels = []
