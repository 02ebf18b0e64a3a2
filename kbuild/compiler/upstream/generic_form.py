"""MLIR's generic form, which is the same for all operations: it prints modules so that do not hold together, and on
request.

    %0 = "tt.load"(%p, %m) <{cache = 1 : i32, operandSegmentSizes = array<i32: 1, 1, 0>}> : (…) -> tensor<8xf32>

An operation in this form gets the parts that the one of its dialect has, so both are read alike: numbers become the
words that they stand for, and operands the lists and groups that they are in.
"""

from __future__ import annotations

from typing import Any

from kbuild.compiler.upstream.attributes import FunctionType
from kbuild.compiler.upstream.syntax import QUOTED, RawBlock, RawFunction, RawOp, Syntax, form, generic

_CACHES = ("", "none", "ca", "cg", "wb", "cs", "wt", "cv")
_EVICTIONS = ("", "evict_normal", "evict_first", "evict_last")
_SEMANTICS = ("", "relaxed", "acquire", "release", "acq_rel")
_SCOPES = ("", "gpu", "cta", "sys")
_ATOMICS = ("", "and", "or", "xor", "add", "fadd", "max", "min", "umax", "umin", "exch")
_REDUCTIONS = ("", "add", "min", "max", "inc", "dec", "and", "or", "xor")
_INTEGERS = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_FLOATS = (
    *("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord"),
    *("ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true"),
)
_NAMED = {
    "cache": ("cacheModifier", _CACHES),
    "evict": ("evictionPolicy", _EVICTIONS),
    "rounding": ("rounding", ("rtz", "rtne", "rs")),
}
"""Attributes whose number stands for a word, with the names that they have in the other form."""
_WORDS: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "arith.cmpi": (("predicate", _INTEGERS),),
    "arith.cmpf": (("predicate", _FLOATS),),
    "tt.atomic_rmw": (("atomic_rmw_op", _ATOMICS), ("sem", _SEMANTICS), ("scope", _SCOPES)),
    "tt.atomic_cas": (("sem", _SEMANTICS), ("scope", _SCOPES)),
    "tt.descriptor_reduce": (("kind", _REDUCTIONS),),
    "ttng.async_tma_reduce": (("kind", _REDUCTIONS),),
}
"""Those that are bare words in the other form."""
_LITERALS = {
    "arith.constant": "value",
    "tt.assert": "message",
    "tt.elementwise_inline_asm": "asm_string",
    "tt.print": "prefix",
    "ttng.arrive_barrier": "count",
    "ttng.barrier_expect": "size",
    "ttng.init_barrier": "count",
}
"""Attributes that stand among the operands in the other form."""
_LIST = "[]"
_PARTS = {
    "tt.make_tensor_ptr": ("base", _LIST, _LIST, _LIST),
    "tt.make_tensor_descriptor": ("base", _LIST, _LIST),
    "tt.advance": ("ptr", _LIST),
    "tt.gather": ("src", _LIST),
    "tt.descriptor_gather": ("desc", _LIST),
    "tt.descriptor_load": ("desc", _LIST),
    "tt.descriptor_reduce": ("desc", "src", _LIST),
    "tt.descriptor_scatter": ("desc", _LIST, "src"),
    "tt.descriptor_store": ("desc", "src", _LIST),
    "ttg.async_copy_global_to_local": ("src", "result", "mask=", "other="),
    "ttg.local_load": ("src", "token="),
    "ttng.async_tma_copy_global_to_local": ("desc", _LIST, "barrier", "result", "pred"),
    "ttng.async_tma_copy_local_to_global": ("desc", _LIST, "src"),
    "ttng.async_tma_reduce": ("desc", _LIST, "src"),
    "ttng.tensormap_create": ("desc", "base", _LIST, _LIST, _LIST, _LIST),
    "ttng.wait_barrier": ("alloc", "phase", "pred?", "deps="),
}
"""What the operands are one after the other: values, lists, and groups, which have the word before the `=`."""
_FLAGS = ("allow_reorder", "efficient_layout")
"""Attributes that are bare words in the other form, or have no meaning."""


@form(QUOTED)
def read_quoted(syntax: Syntax, op: RawOp) -> None:
    """An operation in the generic form; reductions and scans have no other."""
    generic(syntax, op)
    attributes = op.attributes
    sizes = attributes.pop("operandSegmentSizes", None)
    for key, (name, words) in _NAMED.items():
        if key in attributes:
            attributes[name] = _word(syntax, op, attributes.pop(key), words)
    for key, words in _WORDS.get(op.name, ()):
        if key in attributes:
            op.words.append(_word(syntax, op, attributes.pop(key), words))
    op.words += [flag for flag in _FLAGS[:1] if attributes.pop(flag, False)]
    if _LITERALS.get(op.name) in attributes:
        op.literals.append(attributes.pop(_LITERALS[op.name]))
    if op.name == "ttg.memdesc_subslice":
        op.lists.append(attributes.pop("offsets"))
    if "propagateNan" in attributes:
        attributes["propagateNan"] = "all" if attributes["propagateNan"] else "none"
    op.symbol = str(attributes.pop("callee", op.symbol))
    if op.name in _PARTS:
        _part(syntax, op, _PARTS[op.name], sizes)
    elif op.name == "cf.cond_br" and sizes:
        _pass(op, sizes)
    elif op.name == "cf.br":
        op.successors = [(label, op.operands) for label, _ in op.successors]
        op.operands = []
    elif op.name == "ttg.warp_specialize":
        op.literals = [*attributes.pop("partitionNumWarps", ())]
        op.regions[1:] = op.regions[1][0].ops[0].regions


def _word(syntax: Syntax, op: RawOp, number: Any, words: tuple[str, ...]) -> str:
    """The word that a number stands for."""
    if not isinstance(number, int) or not 0 <= number < len(words) or not words[number]:
        syntax.fail(f"{op.name}: {number} stands for none of {', '.join(filter(None, words))}", op.place)
    return words[number]


def _part(syntax: Syntax, op: RawOp, parts: tuple[str, ...], sizes: list[int] | None) -> None:
    """Sort the operands; without their sizes given, lists share what single ones leave."""
    lists = parts.count(_LIST)
    if sizes is None:
        rest = len(op.operands) - (len(parts) - lists)
        optional = [part for part in parts if part[-1] in "?="]
        each = rest // lists if lists else 0
        missing = max(0, -rest) if not lists else 0
        sizes = [each if part == _LIST else 1 for part in parts]
        for index, part in enumerate(parts):
            if part in optional[len(optional) - missing :]:
                sizes[index] = 0
    if len(sizes) != len(parts) or sum(sizes) != len(op.operands):
        syntax.fail(f"{op.name}: {len(op.operands)} operands do not fill its parts", op.place)
    values = iter(op.operands)
    singles: list[str] = []
    for part, size in zip(parts, sizes):
        given = [next(values) for _ in range(size)]
        if part == _LIST:
            op.lists.append(given)
        elif part[-1] == "=":
            op.groups.update({part[:-1]: given} if given else {})
        else:
            singles += given
    if op.name == "ttng.async_tma_copy_global_to_local":
        singles[1:3] = reversed(singles[1:3])  # The tile comes before its barrier in the other form.
    op.operands = singles


def _pass(op: RawOp, sizes: list[int]) -> None:
    """Give the blocks of a conditional branch the values that are passed to them."""
    first = op.operands[1 : 1 + sizes[1]]
    (yes, _), (no, _) = op.successors
    op.successors = [(yes, first), (no, op.operands[1 + sizes[1] :])]
    op.operands = op.operands[:1]


def function_of(op: RawOp) -> RawFunction:
    """A function, `"tt.func"() <{sym_name = "f", function_type = (i32) -> ()}> ({ … })`."""
    attributes = dict(op.attributes)
    made = RawFunction(str(attributes.pop("sym_name", "")), op.place, loc=op.loc)
    type_ = attributes.pop("function_type", None)
    if isinstance(type_, FunctionType):
        made.results = list(type_.results)
    body: list[RawBlock] = op.regions[0] if op.regions else []
    if body and body != [RawBlock()]:
        made.arguments, made.names, made.body = body[0].arguments, body[0].names, body
    given = attributes.pop("arg_attrs", [])
    made.argument_attributes = [
        given[index] if index < len(given) else {} for index in range(len(made.arguments))
    ]
    made.attributes = attributes
    return made
