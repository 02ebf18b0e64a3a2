"""The keys of `[kernel.op]`, for the loader, docs/schema.json and docs/manifest.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kbuild.aot.manifest.kinds import (
    ListOf,
    MistakeReporter,
    Name,
    Number,
    OneOf,
    Pattern,
    Scalar,
    Shape,
    Text,
)
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.table import Key, Table
from kbuild.aot.op.model import (
    Op,
    OpBackward,
    OpChoice,
    OpLaunch,
    OpRequirement,
    OpRow,
    OpScalar,
    OpTensor,
    OpValue,
)

_EXPRESSION = Text(what="an expression in quotes")
_NAMES = ListOf(item=Text(what="a name"), what="a list of names", unique=True)
_SHAPE = Text(
    what='names of dimensions in quotes, such as "Z H N D"',
    patterns=(Pattern(r"\s*\S.*|", 'expected names of dimensions, such as "Z H N D"'),),
    one_line=True,
)


def _tensors(header: str, field: str) -> Table:
    return Table(header, OpTensor, (Key("<tensor>", (Op, field), _SHAPE),), declares=True, spreads=True)


INPUTS = _tensors("inputs = { … }", "inputs")
OUTPUTS = _tensors("outputs = { … }", "outputs")
WORKSPACES = _tensors("workspaces = { … }", "workspaces")


@dataclass(frozen=True, kw_only=True)
class _ScalarOrWords(Scalar):
    """What a scalar is by default, or the words that it may be."""

    _list = ListOf(item=Text(what="a word"), what="a list of words", least=1, unique=True)

    @property
    def shape(self) -> Shape:
        return {"anyOf": [super().shape, self._list.shape]}

    @property
    def words(self) -> str:
        return f"{super().words}, or a list of words"

    def read(self, value: object, path: KeyPath, note: MistakeReporter) -> Any:
        reader = self._list if isinstance(value, list) else super()
        return reader.read(value, path, note)


SCALARS = Table(
    "scalars = { … }",
    OpScalar,
    (Key("<scalar>", (Op, "scalars"), _ScalarOrWords()),),
    declares=True,
    spreads=True,
)

LET = Table("let = { … }", OpValue, (Key("<value>", (Op, "values"), _EXPRESSION),), declares=True)

ROW = Table(
    "of = [{ … }]",
    OpRow,
    (
        Key("when", (OpRow, "when"), _EXPRESSION),
        Key("<column>", (OpRow, "columns"), Number(is_integer=True)),
    ),
    declares=True,
)

CHOOSE = Table(
    "[[kernel.op.choose]]",
    OpChoice,
    (
        Key(
            "like",
            (OpChoice, "rows"),
            Text(),
            doc="A kernel before this one, the keys of whose operator's choice of the same number stand for those that "
            "are not given here; what its expressions name, each operator has itself.",
        ),
        Key("of", (OpChoice, "rows"), ROW, True, repeated=True, least=1),
        Key("let", (OpChoice, "values"), LET),
        Key("least", (OpChoice, "least"), _EXPRESSION, True),
    ),
)

DTYPES = Table(
    "dtypes = { … }",
    OpTensor,
    (Key("<tensor>", (OpTensor, "types"), Text(what="an element type")),),
    unknown="no such output or workspace",
    spreads=True,
)

BIND = Table(
    "bind = { … }",
    OpLaunch,
    (
        Key(
            "<argument>",
            (OpLaunch, "values"),
            ListOf(
                item=_EXPRESSION,
                what="an expression, or a list of some that have to be equal",
                least=1,
                lengths="no expression is given",
                or_one=True,
            ),
            doc="What an argument of the kernel is: of a pointer the name of a tensor, of others an expression, or "
            'several that have to be equal, as `stride_h = ["stride(q, H)", "stride(k, G)"]`; by default the '
            "tensor, dimension or scalar of the same name.",
        ),
    ),
    unknown="no launch has such an argument",
    spreads=True,
)

REQUIRE = Table(
    "require = { … }",
    OpRequirement,
    (Key("<condition>", (Op, "requirements"), Text(what="the message of the error", one_line=True)),),
)

LAUNCH = Table(
    "launch = [{ … }]",
    OpLaunch,
    (
        Key("kernel", (OpLaunch, "kernel"), Text()),
        Key("bind", (OpLaunch, "values"), BIND, doc="The same for this launch alone."),
        Key("when", (OpLaunch, "when"), _EXPRESSION),
    ),
)

BACKWARD = Table(
    "[kernel.op.backward]",
    OpBackward,
    (
        Key("op", (OpBackward, "op"), Text(), True),
        Key(
            "bind",
            (OpBackward, "bind"),
            Table(
                "bind = { … }",
                OpBackward,
                (Key("<argument>", (OpBackward, "bind"), Text()),),
                unknown="the operator of the backward pass has no such argument",
            ),
        ),
        Key(
            "grads",
            (OpBackward, "grads"),
            Table(
                "grads = { … }",
                OpBackward,
                (Key("<input>", (OpBackward, "grads"), Text()),),
                unknown="no such input",
            ),
            True,
        ),
    ),
)

OP = Table(
    "[kernel.op]",
    Op,
    (
        Key("name", (Op, "name"), Name()),
        Key("doc", (Op, "doc"), Text()),
        Key("inputs", (Op, "inputs"), INPUTS, True),
        Key("outputs", (Op, "outputs"), OUTPUTS),
        Key("workspaces", (Op, "workspaces"), WORKSPACES),
        Key("scalars", (Op, "scalars"), SCALARS),
        Key("let", (Op, "values"), LET),
        Key(
            "choose",
            (Op, "values"),
            CHOOSE,
            repeated=True,
            doc="More such numbers, which a call takes from the row of a table that costs least.",
        ),
        Key(
            "optional",
            (OpTensor, "is_optional"),
            _NAMES,
            doc="Inputs that may be None, and outputs that are made only where a call gives one of these, or where torch's "
            "dispatcher or JAX, as for gradients, takes all; else the kernel gets a null pointer.  `given(bias)` is 1 "
            "where one is there.",
        ),
        Key(
            "mutates",
            (OpTensor, "is_mutated"),
            _NAMES,
            doc="Inputs that the kernels write.",
        ),
        Key(
            "zeros",
            (OpTensor, "is_zeroed"),
            _NAMES,
            doc="Outputs and workspaces whose memory is zeroed before the first launch, if the operator has made them or not.",
        ),
        Key(
            "aliases",
            (OpTensor, "may_alias"),
            _NAMES,
            doc="Outputs that a call may give as the very memory of an input; no other memory is shared with what is written.",
        ),
        Key(
            "dtypes",
            (OpTensor, "types"),
            DTYPES,
            doc="Element types of outputs and workspaces which neither the kernel's type nor an input decides.",
        ),
        Key(
            "bind",
            (OpLaunch, "values"),
            BIND,
            doc="What arguments of the kernels are, in all launches: pointers a tensor, others an expression.",
        ),
        Key("require", (Op, "requirements"), REQUIRE),
        Key("launch", (Op, "launches"), LAUNCH, repeated=True),
        Key("returns", (Op, "returns"), _NAMES),
        Key("backward", (Op, "backward"), BACKWARD),
        Key("autocast", (Op, "autocast"), OneOf(values=("lower", "fp32"))),
    ),
)

TABLES = (OP, INPUTS, OUTPUTS, WORKSPACES, SCALARS, LET, ROW, CHOOSE, DTYPES, BIND, REQUIRE, LAUNCH, BACKWARD)
"""All of them, in the order in which they are read."""
