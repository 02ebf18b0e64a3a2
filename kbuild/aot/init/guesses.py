"""Names, and what parameters of these names usually are; values where the source gives none."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from kbuild.aot.init.uses import Uses
from kbuild.aot.manifest.configs.evaluate import last_name
from kbuild.aot.manifest.model import TYPE_WORDS

BOUNDS = (256, 1024, 4096, 16384)
"""Largest values of an argument that blocks follow from: a configuration is written for each."""
AXES = ("dtype", "element", "element_type", "elements")
"""Names for the axis of element types; the first that the kernel does not use itself is taken."""
TYPES = ("fp16", "bf16", "fp32")
"""The types that such an axis has."""
_FLOATS = re.compile(
    r"(?:.*_)?(?:eps|epsilon|scale|alpha|beta|gamma|p|prob|dropout|lr|momentum|factor|temperature|softcap|slope"
    r"|threshold|weight_decay|smoothing|inv_\w+)",
    re.I,
)
_FP32 = re.compile(r"(?:.*_)?(?:means?|rstd|inv_std|lse|logsumexp|loss|losses|delta)(?:_ptr|_ptrs)?", re.I)
_I32 = re.compile(r".*(?:len|lens|cu_|lock|count|counter|ticket|block_table).*", re.I)
_INDEX = re.compile(r"(?:.*_)?(?:idx|index|indices|ids|positions?)(?:_ptr)?", re.I)
_MASK = re.compile(r"(?:.*_)?mask(?:_ptr)?", re.I)
_FLAG = re.compile(
    r"(?:IS|HAS|USE|DO|EVEN|WITH|STORE|RETURN|APPLY|ENABLE|NEED)_\w+|\w*(?:CAUSAL|NORMALIZED|INPLACE|TRANSPOSED?|REVERSE)",
    re.I,
)

_COUNTS = re.compile(r"(?:n|num)_(?!rows|cols|elem)|.*heads?$", re.I)
_SIZES = re.compile(r"(?:n|num)_(?:rows|cols|elem\w*)|[MNK]", re.I)
_NUMBER = re.compile(r"GROUP|NUM|SIZE|BLOCK|TILE|DIM|STAGES|WARPS|COUNT", re.I)


@dataclass(frozen=True)
class Guess:
    """A guess, or what was left out: what it is about, and what it says."""

    subject: str
    text: str


def is_float_name(name: str) -> bool:
    """Whether a run-time number of this name is usually a floating-point number."""
    return _FLOATS.fullmatch(name) is not None


def element_type(name: str, uses: Uses) -> str:
    """The type of elements that a pointer's uses or name say; empty for one that the caller chooses."""
    kinds = uses.pointers.get(name, set())
    if kinds & {"atomic_cas", "atomic_xchg", "atomic_and", "atomic_or", "atomic_xor"}:
        return "i32"
    if name in uses.indices:
        return "i32" if _I32.fullmatch(name) else "i64"
    if _FP32.fullmatch(name):
        return "fp32"
    if "atomic_add" in kinds:
        return "i32" if _I32.fullmatch(name) else "fp32"
    if _INDEX.fullmatch(name):
        return "i64"
    if _MASK.fullmatch(name):
        return "i1"
    return ""


def is_flag(name: str, uses: Uses) -> bool:
    """Whether a constexpr parameter is a choice of two: by its name, or since it stands alone in conditions."""
    if _FLAG.fullmatch(name):
        return True
    if _NUMBER.search(name):
        return False
    tests: list[ast.expr] = []
    others = 0
    for node in ast.walk(uses.kernel.node):
        if isinstance(node, ast.If | ast.IfExp):
            tests.append(node.test)
        elif isinstance(node, ast.BinOp | ast.Compare) or (
            isinstance(node, ast.Call) and last_name(node.func) in ("arange", "range", "static_range", "cdiv")
        ):
            others += any(isinstance(n, ast.Name) and n.id == name for n in ast.iter_child_nodes(node))
    plain = [test.operand if isinstance(test, ast.UnaryOp) else test for test in tests]
    return not others and any(isinstance(test, ast.Name) and test.id == name for test in plain)


def is_type(name: str, uses: Uses) -> bool:
    """Whether a constexpr parameter is a type: it is used as one, or called so and compared with no word."""
    for node in ast.walk(uses.kernel.node):
        found: list[ast.expr] = []
        match node:
            case ast.Call(func=function, args=given, keywords=keywords):
                found = [keyword.value for keyword in keywords if keyword.arg in ("dtype", "out_dtype")]
                place = {"to": 0, "cast": 1, "zeros": 1, "full": 2, "pointer_type": 0}.get(
                    last_name(function)
                )
                found += given[place : place + 1] if place is not None else []
            case ast.Compare(left=left, comparators=[right]) if TYPE_WORDS.get(last_name(right)):
                found = [left] if isinstance(right, ast.Attribute) else []
            case ast.Attribute(value=owner, attr="primitive_bitwidth"):
                found = [owner]
            case _:
                continue
        if any(isinstance(one, ast.Name) and one.id == name for one in found):
            return True
    return "dtype" in name.lower() and not words_compared(name, uses)


def words_compared(name: str, uses: Uses) -> list[str]:
    """The texts that a constexpr parameter is compared with."""
    found = [
        other.value
        for node in ast.walk(uses.kernel.node)
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name) and node.left.id == name
        for other in node.comparators
        if isinstance(other, ast.Constant) and isinstance(other.value, str)
    ]
    return [*dict.fromkeys(found)]


def is_block(name: str, uses: Uses) -> bool:
    """Whether a constexpr parameter is the size of a block: by its name, or as the end of `tl.arange`."""
    if "BLOCK" in name.upper() or "TILE" in name.upper():
        return True
    return any(
        isinstance(node, ast.Call)
        and last_name(node.func) == "arange"
        and any(isinstance(n, ast.Name) and n.id == name for given in node.args[:2] for n in ast.walk(given))
        for node in ast.walk(uses.kernel.node)
    )


def number_for(name: str, blocks: int) -> int:
    """A value for a constexpr parameter that nothing is known of; `blocks` is how many such parameters are sizes
    of blocks, and 0 for one that is not."""
    if "GROUP" in name.upper():
        return 8
    if not blocks and _SIZES.fullmatch(name):
        return 1024
    if not blocks:
        return 64 if "DIM" in name.upper() or name.lower() == "hd" else 8 if _COUNTS.match(name) else 1
    return 1024 if blocks == 1 else 64
