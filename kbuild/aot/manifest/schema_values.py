"""Values that several tables of the manifest have."""

from __future__ import annotations

from kbuild.aot.manifest.kinds import ConstexprKind, ListOf, OneOf, Pattern, Scalar, Text
from kbuild.aot.manifest.model import Config, PointCondition, Specialization
from kbuild.aot.manifest.table import Key, Table
from kbuild.options import options
from kbuild.targets import ARCHS

FACT = (
    r"\s*(<=|>=|==|!=|<|>|!?%(?=\s*0*[1-9]\d*\s*(?:,|$)))"
    r"\s*((?:[1-9]\d{0,8}\s*\*\s*)?num_sms(?:\s*//\s*[1-9]\d{0,8})?|-?\d{1,18})\s*"
)
"""A comparison of a run-time argument with an integer, or with a share of the device's multiprocessors."""
INSIDE = r"(?!/)(?!(?:.*/)?\.\.(?:/|$))[^\\]*"
"""A path that does not lead out of a folder."""
TUNED = tuple(option for option in options("variant") if option.changes_code)
"""The options of which `kbuild tune` tries values."""

TEXT = Text()
EXPRESSION = Text(what="an expression in quotes")
GRID = ListOf(
    item=EXPRESSION,
    what="a list of expressions",
    least=1,
    most=3,
    lengths="a grid has one to three expressions, not {}",
)
POINTERS = ListOf(item=Text(what="an argument that is a pointer"), what="a list of arguments", unique=True)
VALUE = ConstexprKind()
VALUE_LIST = ListOf(item=VALUE, what="a list of values", least=1)
CHOICE = ListOf(
    item=Scalar(),
    what="a value, or a list of them",
    least=1,
    lengths="expected at least one value, found an empty list",
    or_one=True,
)
ARCH_CHOICE = ListOf(
    item=OneOf(values=ARCHS, refusal="{} is not a value of arch", suggests=True),
    what=CHOICE.what,
    least=1,
    lengths=CHOICE.lengths,
    or_one=True,
)
FACTS = ListOf(
    item=Text(
        patterns=(Pattern(f"{FACT}(,{FACT})*"),),
        refusal="{} is not a fact",
        advice='write it as "<= 64", "% 16", "> 16, <= 64" or "<= 2 * num_sms"',
    ),
    what="a fact, or a list of them",
    least=1,
    or_one=True,
)

WHEN = Table(
    "when = { … }",
    PointCondition,
    (
        Key("arch", (PointCondition, "choices"), ARCH_CHOICE),
        Key("specialize", (Specialization, "name"), CHOICE),
        Key("<axis>", (PointCondition, "choices"), CHOICE),
        Key(
            "<argument>",
            (Config, "guards"),
            FACTS,
        ),
    ),
    unknown="no such architecture, axis or argument",
)
