"""Tensor-core instructions of a PTX text whose results nothing uses: the ones that ptxas may leave out.

    wgmma.mma_async… {%r1, …}, a, b, …;      used: %r1 comes to a store
    wgmma.mma_async… {%r9, …}, a, c, …;      unused: %r9 comes to nothing, as where a program uses half of a tile
    st.global.b32 [%rd1], %r1;

LLVM keeps them, for they are asm with side effects.  A register is used where anything but arithmetic reads it, or arithmetic
whose result is used; the order of instructions does not matter, so that some that are unused may be taken for used, and no
used one for unused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_ARITHMETIC = frozenset({
    "abs", "add", "addc", "and", "bfe", "bfi", "bfind", "brev", "clz", "cnot", "copysign", "cos", "cvt", "cvta", "div", "dp2a",
    "dp4a", "ex2", "fma", "fns", "ld", "ldmatrix", "lg2", "lop3", "mad", "madc", "max", "min", "mov", "mul", "mul24", "mad24",
    "neg", "not", "or", "popc", "prmt", "rcp", "rem", "rsqrt", "sad", "selp", "set", "setp", "shf", "shl", "shr", "sin",
    "slct", "sqrt", "sub", "subc", "tanh", "testp", "wgmma", "mma", "wmma", "xor",
})  # fmt: skip
"""Families of instructions that do nothing but give their results."""
_EFFECTS = ("wgmma.fence", "wgmma.commit_group", "wgmma.wait_group", "ld.volatile", "wmma.load", "wmma.store")
_STATEMENT = re.compile(r"(?:@!?([%\w$]+)\s+)?([a-z][\w.:]*)\s+(\S.*)", re.DOTALL)
_BEFORE = re.compile(r"(?:\s|[{}]|[\w$]+:(?!:))*")
"""What may stand between the end of a statement and the next one: braces of a block, labels."""
_REGISTER = re.compile(r"%?[A-Za-z_][\w$]*")
_DESTINATION = re.compile(r"\s*(\{[^}]*\}|[^,]*),?(.*)", re.DOTALL)
_COMMENT = re.compile(r"//[^\n]*")


class _Instruction(NamedTuple):
    name: str
    writes: frozenset[str]
    reads: frozenset[str]


def unused(ptx: str) -> list[str]:
    """The names of the instructions that multiply matrices for nothing, in order."""
    instructions = list(_instructions(_COMMENT.sub("", ptx)))
    used: set[str] = set()
    waiting = [one for one in instructions if one.writes]
    for one in instructions:
        if not one.writes:
            used |= one.reads
    is_growing = True
    while is_growing:
        chosen = [one for one in waiting if one.writes & used]
        waiting = [one for one in waiting if not one.writes & used]
        is_growing = bool(chosen)
        for one in chosen:
            used |= one.reads
    return [one.name for one in waiting if one.name.startswith(("wgmma.", "mma.", "wmma."))]


def _instructions(ptx: str) -> Iterator[_Instruction]:
    """All instructions; those that do more than give results write nothing, as far as this goes."""
    for statement in ptx.split(";"):
        found = _STATEMENT.match(statement, _BEFORE.match(statement).end())  # type: ignore[union-attr]
        if found is None:
            continue
        predicate, name, operands = found.groups()
        destination, sources = _DESTINATION.match(operands).groups()  # type: ignore[union-attr]
        guard = {predicate} if predicate else set()
        if name.partition(".")[0] not in _ARITHMETIC or name.startswith(_EFFECTS):
            yield _Instruction(name, frozenset(), frozenset({*_REGISTER.findall(operands), *guard}))
            continue
        writes = frozenset(_REGISTER.findall(destination))
        yield _Instruction(name, writes, frozenset({*_REGISTER.findall(sources), *guard, *writes}))
