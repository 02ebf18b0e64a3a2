"""The operations whose text is not made of the usual parts: modules and functions, loops and branches, constants,
partitions of warps."""

from __future__ import annotations

import re

from kbuild.compiler.ir.types import Type
from kbuild.compiler.upstream.generic_form import function_of
from kbuild.compiler.upstream.syntax import RawBlock, RawFunction, RawOp, Syntax, form, generic

_PARTITION = re.compile(r"partition\d+$")


def functions(syntax: Syntax) -> tuple[list[RawFunction], dict[str, object], list[RawBlock]]:
    """The functions of a text, the attributes of its module, and the operations that stand in neither."""
    found: list[RawFunction] = []
    attributes: dict[str, object] = {}
    loose = RawBlock()
    depth = 0
    while syntax.kind != "end":
        if syntax.kind in ("attribute", "type") and syntax.token in syntax.places:
            syntax.skip_alias()
        elif syntax.at("module", "builtin.module"):
            syntax.advance()
            if syntax.kind == "symbol":
                syntax.advance()
            if syntax.accept("attributes"):
                attributes.update(syntax.dictionary())
            syntax.expect("{")
            depth += 1
        elif depth and syntax.accept("}"):
            syntax.location()
            depth -= 1
        elif syntax.at("tt.func", "func.func"):
            found.append(function(syntax))
        else:
            _sort(syntax.op(), found, attributes, loose)
    if depth:
        syntax.fail("expected '}' of the module, found the end")
    return found, attributes, [loose]


def _sort(op: RawOp, found: list[RawFunction], attributes: dict[str, object], loose: RawBlock) -> None:
    """What an operation is outside of functions: in the generic form, a module and its functions are operations, too."""
    if op.name in ("builtin.module", "module"):
        attributes.update(op.attributes)
        for inner in op.regions[0][0].ops if op.regions else ():
            _sort(inner, found, attributes, loose)
    elif op.name in ("tt.func", "func.func"):
        found.append(function_of(op))
    else:
        loose.ops.append(op)


def function(syntax: Syntax) -> RawFunction:
    """`tt.func public @f(%x: i32 {tt.divisibility = 16 : i32}) -> i32 attributes {…} { … }`; one that is only declared
    has no blocks."""
    syntax.advance()
    if syntax.at("public", "private", "nested"):
        syntax.advance()
    place = (syntax.start, syntax.position)
    made = RawFunction(syntax.take("symbol")[1:].strip('"'), place)
    syntax.expect("(")
    more = not syntax.accept(")")
    while more:
        _argument(syntax, made)
        more = syntax.separated(")")
    if syntax.accept("->"):
        made.results = _result_types(syntax)
    if syntax.accept("attributes"):
        made.attributes = syntax.dictionary()
    if syntax.at("{"):
        made.body = syntax.region()
    made.loc = syntax.location() or syntax.loc(*place)
    return made


def _argument(syntax: Syntax, made: RawFunction) -> None:
    """One argument; of a declaration only the type."""
    name = ""
    if syntax.kind == "value":
        name = syntax.advance()
        syntax.expect(":")
    type_ = syntax.type()
    made.argument_attributes.append(syntax.dictionary() if syntax.at("{") else {})
    syntax.location()
    made.arguments.append((name, type_))
    made.names.append(syntax.source_name or name[1:])


def _result_types(syntax: Syntax) -> list[Type]:
    """The types of a function's results, whose attributes are left out."""
    if not syntax.accept("("):
        return [syntax.type()]
    found: list[Type] = []
    more = not syntax.accept(")")
    while more:
        found.append(syntax.type())
        if syntax.at("{"):
            syntax.dictionary()
        more = syntax.separated(")")
    return found


def _trailing(syntax: Syntax, op: RawOp) -> None:
    """The attributes after the regions."""
    if syntax.accept("attributes") or syntax.at("{"):
        op.attributes.update(syntax.dictionary())


@form("arith.constant")
def read_constant(syntax: Syntax, op: RawOp) -> None:
    if syntax.at("{"):
        op.attributes.update(syntax.dictionary())
        if "value" in op.attributes:
            op.literals.append(op.attributes.pop("value"))
            return
    value = syntax.value()
    if isinstance(value, bool):
        op.result_types = [syntax.scalar_type("i1")]
    if syntax.accept(":"):
        op.result_types = [syntax.type()]
        value = syntax.typed(value, op.result_types[0])
    op.literals.append(value)


@form("scf.for")
def read_for(syntax: Syntax, op: RawOp) -> None:
    """`scf.for %i = %low to %high step %step iter_args(%a = %b) -> (f32) : i32 { … } {…}`.

    The operands are the bounds, the step and the first values; the block's arguments are the counter and what is
    carried."""
    syntax.accept("unsigned")
    block = RawBlock()
    counter = syntax.take("value")
    for separator in ("=", "to", "step"):
        syntax.expect(separator)
        op.operands.append(syntax.take("value"))
    carried = _initial(syntax, op) if syntax.accept("iter_args") else []
    if syntax.accept("->"):
        op.result_types = syntax.types()
    counter_type = syntax.type() if syntax.accept(":") else syntax.scalar_type("index")
    if len(carried) != len(op.result_types):
        syntax.fail(f"{len(carried)} values are carried, and {len(op.result_types)} types given", op.place)
    blocks = syntax.region()
    if len(blocks) != 1:
        syntax.fail("a loop of several blocks", op.place)
    block.arguments = [(counter, counter_type), *zip(carried, op.result_types)]
    block.ops = blocks[0].ops
    op.regions = [[block]]
    _trailing(syntax, op)


def _initial(syntax: Syntax, op: RawOp) -> list[str]:
    """`(%a = %b, %c = %d)`: the names, whose first values become operands."""
    names: list[str] = []
    syntax.expect("(")
    more = not syntax.accept(")")
    while more:
        names.append(syntax.take("value"))
        syntax.expect("=")
        op.operands.append(syntax.take("value"))
        more = syntax.separated(")")
    return names


@form("scf.if")
def read_if(syntax: Syntax, op: RawOp) -> None:
    op.operands = [syntax.take("value")]
    if syntax.accept("->"):
        op.result_types = syntax.types()
    op.regions = [syntax.region()]
    op.regions.append(syntax.region() if syntax.accept("else") else [RawBlock()])
    _trailing(syntax, op)


@form("scf.while")
def read_while(syntax: Syntax, op: RawOp) -> None:
    """`scf.while (%a = %b) : (i32) -> i32 { … } do { … }`."""
    names = _initial(syntax, op) if syntax.at("(") else []
    syntax.expect(":")
    syntax.signature(op)
    before = syntax.region()
    before[0].arguments = list(zip(names, op.operand_types))
    syntax.expect("do")
    op.regions = [before, syntax.region()]
    _trailing(syntax, op)


@form("cf.br", "cf.cond_br")
def read_branch(syntax: Syntax, op: RawOp) -> None:
    """`cf.cond_br %c, ^bb1(%a : i32), ^bb2`."""
    if syntax.kind == "value":
        op.operands.append(syntax.advance())
        if syntax.at("weights"):
            syntax.fail("branches with weights are not read")
        syntax.expect(",")
    more = True
    while more:
        label, passed = syntax.take("label"), []
        if syntax.accept("("):
            passed = syntax.values()
            if syntax.accept(":"):
                syntax.types()
            syntax.expect(")")
        op.successors.append((label, passed))
        more = syntax.accept(",")
    _trailing(syntax, op)


@form("ttg.warp_specialize")
def read_warp_specialize(syntax: Syntax, op: RawOp) -> None:
    """`ttg.warp_specialize(%a) attributes {…} default { … } partition0(%b: i32) num_warps(4) { … } : (i32) -> ()`.

    The regions are the default one and the partitions; the literals, how many warps each partition has."""
    if syntax.at("("):
        op.operands = syntax.operand_list()
    _trailing(syntax, op)
    syntax.expect("default")
    op.regions = [syntax.region()]
    while syntax.kind == "word" and _PARTITION.match(syntax.token):
        syntax.advance()
        arguments = syntax.arguments([])
        syntax.expect("num_warps")
        syntax.expect("(")
        op.literals.append(int(syntax.take("number")))
        syntax.expect(")")
        blocks = syntax.region()
        blocks[0].arguments = arguments
        op.regions.append(blocks)
    syntax.expect(":")
    syntax.signature(op)


@form("tt.elementwise_inline_asm", "tt.assert", "tt.print")
def read_with_text(syntax: Syntax, op: RawOp) -> None:
    """A string comes first in some; it is not the start of another operation."""
    if syntax.kind == "string":
        op.literals.append(syntax.value())
    generic(syntax, op)


@form("ttg.barrier")
def read_barrier(syntax: Syntax, op: RawOp) -> None:
    """`ttg.barrier local|global_read`: for which memory it is; kbuild's is for all."""
    more = syntax.kind == "word"
    while more:
        syntax.advance()
        more = syntax.accept("|")
    _trailing(syntax, op)
