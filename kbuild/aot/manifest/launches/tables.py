"""The tables of launches: `[kernel.verify]` and `[kernel.tune]`."""

from __future__ import annotations

from kbuild.aot.manifest.kinds import ListOf, Number, Pattern, Positive, Setting, Text
from kbuild.aot.manifest.model import Bucket, Tune, Verify
from kbuild.aot.manifest.schema_values import (
    EXPRESSION,
    GRID,
    INSIDE,
    POINTERS,
    TUNED,
    VALUE,
    VALUE_LIST,
    WHEN,
)
from kbuild.aot.manifest.table import Key, Table

SIZES = Table("sizes = { … }", Verify, (Key("<argument>", (Verify, "sizes"), EXPRESSION),), spreads=True)
LOOPS = Table("loops = { … }", Verify, (Key("<argument>", (Verify, "loops"), EXPRESSION),), spreads=True)


def _launch(header: str, record: type) -> Table:
    """The values of a launch's scalars."""
    keys = (
        Key("<integer argument>", (record, "values"), Number(is_integer=True)),
        Key("<other argument>", (record, "values"), Number(is_integer=False)),
    )
    return Table(header, record, keys, spreads=True)


VALUES = _launch("values = [{ … }]", Verify)

REFERENCE_CONSTEXPRS = Table(
    "reference_constexprs = { … }",
    Verify,
    (Key("<constexpr>", (Verify, "reference_constexprs"), VALUE),),
    declares=True,
)
_REFERENCE = Text(
    patterns=(
        Pattern(
            rf"{INSIDE}\.py:[A-Za-z_]\w*",
            "{} names no function of the project",
            'write it as "reference.py:function"',
        ),
    ),
    one_line=True,
)

VERIFY = Table(
    "[kernel.verify]",
    Verify,
    (
        Key("sizes", (Verify, "sizes"), SIZES, True),
        Key("defaults", (Verify, "values"), VALUES, doc="Values of all launches that do not give them."),
        Key("values", (Verify, "values"), VALUES, True, repeated=True),
        Key("loops", (Verify, "loops"), LOOPS),
        Key("grid", (Verify, "grid"), GRID),
        Key("zeros", (Verify, "zeros"), POINTERS),
        Key("ready", (Verify, "ready"), POINTERS),
        Key("reference", (Verify, "reference"), _REFERENCE),
        Key("reference_constexprs", (Verify, "reference_constexprs"), REFERENCE_CONSTEXPRS),
        Key("reference_grid", (Verify, "reference_grid"), GRID),
        Key("tolerance", (Verify, "tolerance"), Positive()),
    ),
)


CANDIDATES = Table(
    "candidates = { … }",
    Bucket,
    (
        *(
            Key(
                option.name,
                (Bucket, "candidates"),
                ListOf(
                    item=Setting(
                        option=option,
                        refusal=f"{{}} cannot be a value of {option.name}",
                        advice=f"it must be {option.expected}",
                    ),
                    what="a list of values",
                    least=1,
                ),
            )
            for option in TUNED
        ),
        Key("<constexpr>", (Bucket, "candidates"), VALUE_LIST),
    ),
    unknown="no configuration gives it",
)

_CANDIDATES = (
    "Values to try of meta-parameters and options such as `num_warps`; they multiply. Without them the configurations of "
    "`@triton.autotune` are tried, where these are the kernel's."
)
TUNE_VALUES = _launch("values = { … }", Bucket)

BUCKET = Table(
    "[[kernel.tune.bucket]]",
    Bucket,
    (
        Key("when", (Bucket, "when"), WHEN),
        Key("values", (Bucket, "values"), TUNE_VALUES, True),
        Key("candidates", (Bucket, "candidates"), CANDIDATES, doc=_CANDIDATES),
        Key("require", (Bucket, "require"), EXPRESSION),
    ),
)

TUNE = Table(
    "[kernel.tune]",
    Tune,
    (
        Key("sizes", (Tune, "sizes"), SIZES),
        Key("candidates", (Bucket, "candidates"), CANDIDATES, doc=_CANDIDATES),
        Key("require", (Bucket, "require"), EXPRESSION),
        Key(
            "defaults",
            (Bucket, "values"),
            TUNE_VALUES,
            doc="Values of all buckets whose `values` do not give them.",
        ),
        Key("bucket", (Tune, "buckets"), BUCKET, repeated=True),
        Key("zeros", (Tune, "zeros"), POINTERS),
        Key("restore", (Tune, "restore"), POINTERS),
    ),
)
