"""Mutated kernels: statements, operators, calls and numbers changed by way of the syntax tree, and damaged
text."""

from __future__ import annotations

import ast
import copy
import random
from pathlib import Path
from typing import Any

from mutated.text import damaged

import kbuild

KERNEL = """\
import triton
import triton.language as tl

LIMIT: tl.constexpr = 3


@triton.jit
def helper(x, scale):
    if scale > 2:
        return x * scale
    return x + scale


@triton.jit
def kernel(x, y, out, n, stride, factor, BLOCK: tl.constexpr, FLAG: tl.constexpr = True):
    pid = tl.program_id(0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    a = tl.load(x + offsets, mask=mask, other=0.0)
    b = tl.load(y + offsets * stride, mask=mask)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(0, n, 2):
        total += a * factor
        if i > LIMIT:
            total = helper(total, 2.0)
        else:
            total -= b.to(tl.float32)
    k = 0
    while k < n and k * k < 100:
        k += 1
    tile = tl.reshape(total, (BLOCK // 16, 16))
    other = tl.trans(tile)
    squares = tl.dot(tile.to(tl.float16), other.to(tl.float16))
    row = tl.sum(squares, axis=1)
    biggest = tl.max(tl.where(mask, a, -float("inf")), axis=0)
    if FLAG:
        wide = tl.exp(row[:, None] - biggest) + tl.cumsum(tile, axis=1)
        total = tl.reshape(wide, (BLOCK,))
    low, high = offsets % 7, (offsets >> 2) & 3
    tl.atomic_add(out + low, total, mask=mask)
    tl.static_assert(BLOCK % 16 == 0, "whole rows")
    tl.device_assert(n > 0, "nothing to do")
    tl.store(out + offsets, total + high + k, mask=mask)
"""
SIGNATURE = {
    "x": "*fp16:16",
    "y": "*fp32:16",
    "out": "*fp32",
    "n": "i32:16",
    "stride": "i32",
    "factor": "fp32",
}

_OPERATORS = (
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.FloorDiv,
    ast.Mod,
    ast.Pow,
    ast.LShift,
    ast.RShift,
    ast.BitAnd,
    ast.MatMult,
)
_COMPARISONS = (ast.Lt, ast.GtE, ast.Eq, ast.NotEq, ast.In, ast.NotIn, ast.Is, ast.IsNot)
_NAMES = (
    "x",
    "a",
    "n",
    "BLOCK",
    "mask",
    "tl",
    "helper",
    "total",
    "unknown",
    "len",
    "print",
    "int",
    "float",
    "range",
    "None",
    "i",
)
_FUNCTIONS = (
    "load",
    "store",
    "arange",
    "zeros",
    "full",
    "dot",
    "sum",
    "max",
    "reshape",
    "trans",
    "where",
    "exp",
    "cumsum",
    "sort",
    "cat",
    "join",
    "split",
    "gather",
    "histogram",
    "atomic_cas",
    "program_id",
    "static_range",
    "constexpr",
    "float16",
    "reduce",
    "make_block_ptr",
    "make_tensor_descriptor",
    "inline_asm_elementwise",
    "unknown",
    "math",
    "extra",
    "tensor",
)
_STATEMENTS = (
    "break",
    "continue",
    "return",
    "return x",
    "pass",
    "def inner(): pass",
    "a, b = b, a",
    "x[0] = 1",
    "del a",
    "import os",
    "with a: pass",
    "try:\n    pass\nexcept E:\n    pass",
    "raise E",
    "assert a",
    "global a",
    "a: tl.constexpr = 2",
    "lambda: 0",
    "for i in tl.static_range(3): pass",
    "for i in x: pass",
    "while True: pass",
    "a += 1",
    "(a := 1)",
    "yield a",
    "print(a)",
    "f'{a}'",
    "a = [i for i in range(3)]",
    "a = {1: 2}",
    "a = *b,",
    "match a:\n    case 1: pass",
    "class C: pass",
)
_CONSTANTS: tuple[Any, ...] = (
    0,
    1,
    -1,
    3,
    7,
    16,
    1000,
    2**31,
    2**63,
    10**40,
    1.5,
    1e400,
    "text",
    "",
    None,
    True,
    b"b",
    ...,
    1j,
    "\ud800",
)


def mutated(random_: random.Random) -> bytes:
    """The bytes of a source with mistakes in it."""
    if random_.random() < 0.3:
        data = damaged(KERNEL.encode(), random_)
        return data.decode("latin-1").encode("utf-16") if random_.random() < 0.02 else data
    tree = ast.parse(KERNEL)
    for _ in range(random_.choice((1, 1, 2, 3))):
        _mutate(tree, random_)
    try:
        return ast.unparse(ast.fix_missing_locations(tree)).encode("utf-8", "surrogatepass")
    except (ValueError, TypeError, RecursionError, AttributeError):  # No text stands for this tree.
        return damaged(KERNEL.encode(), random_)


def attempt(data: bytes, folder: Path, stop: str = "ptx") -> str:
    """The PTX of a source; raises what kbuild raises."""
    file = folder / "kernel.py"
    file.write_bytes(data)
    arch = "sm_90" if len(data) % 2 else "sm_80"
    return kbuild.compile(
        f"{file}:kernel", signature=SIGNATURE, constexprs={"BLOCK": 256}, target=arch, stop=stop
    ).asm[stop]


def _mutate(tree: ast.AST, random_: random.Random) -> None:
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.expr | ast.stmt)]
    node = random_.choice(nodes)
    expressions = [other for other in nodes if isinstance(other, ast.expr)]
    if isinstance(node, ast.BinOp) and random_.random() < 0.7:
        node.op = random_.choice(_OPERATORS)()
    elif isinstance(node, ast.Compare) and random_.random() < 0.7:
        node.ops = [random_.choice(_COMPARISONS)()]
    elif isinstance(node, ast.Name):
        node.id = random_.choice(_NAMES)
    elif isinstance(node, ast.Attribute):
        node.attr = random_.choice(_FUNCTIONS)
    elif isinstance(node, ast.Constant):
        node.value = random_.choice(_CONSTANTS)
    elif isinstance(node, ast.Call) and random_.random() < 0.8:
        _mutate_call(node, expressions, random_)
    elif isinstance(node, ast.If | ast.For | ast.While | ast.FunctionDef) and random_.random() < 0.8:
        _mutate_body(node.body, random_)
    else:
        _replace(
            tree, node, copy.deepcopy(random_.choice(expressions if isinstance(node, ast.expr) else nodes))
        )


def _mutate_call(call: ast.Call, expressions: list[ast.expr], random_: random.Random) -> None:
    kind, new = random_.randrange(5), copy.deepcopy(random_.choice(expressions))
    if kind == 0 and call.args:
        call.args.pop(random_.randrange(len(call.args)))
    elif kind == 1 and call.args:
        call.args[random_.randrange(len(call.args))] = new
    elif kind == 2:
        call.args.append(new)
    elif kind == 3:
        call.keywords.append(ast.keyword(random_.choice(("mask", "other", "axis", "dtype", "x", None)), new))
    elif call.keywords:
        call.keywords.pop()


def _mutate_body(body: list[ast.stmt], random_: random.Random) -> None:
    index = random_.randrange(len(body))
    if random_.random() < 0.4 and len(body) > 1:
        body.pop(index)
    else:
        body.insert(index, ast.parse(f"async def f():\n  pass\n{random_.choice(_STATEMENTS)}").body[-1])


def _replace(tree: ast.AST, old: ast.AST, new: ast.AST) -> None:
    """Put one node into the place of another; what is then not a tree of Python has no text either."""
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
                return
            if isinstance(value, list) and any(item is old for item in value):
                setattr(parent, name, [new if item is old else item for item in value])
                return
