"""The keys of `kernels.toml`, table by table: what the loaders check a manifest against, and what docs/schema.json
and docs/manifest.md say.

Each row has all rules for one key: its values, with their patterns and limits, whether there may be
several, whether it has to be there, and what its mistakes are called.  It names the field of model.py that it fills,
whose default is that of the key, and whose doc string describes it unless the row has its own.  The loaders add what
holds between keys.
"""

from __future__ import annotations

from kbuild.aot.manifest.kinds import (
    ConstexprKind,
    Integer,
    ListOf,
    Name,
    Nothing,
    Number,
    OneOf,
    Pattern,
    Scalar,
    Setting,
    Text,
    TextOrTuple,
)
from kbuild.aot.manifest.model import (
    HINTS,
    Argument,
    Axis,
    Bucket,
    Config,
    Kernel,
    Manifest,
    Package,
    PointCondition,
    Specialization,
    Tune,
    Verify,
)
from kbuild.aot.manifest.package_kinds import (
    Architecture,
    ModuleName,
    SchemaVersion,
    distribution_name,
    license_expression,
    ptxas_series,
    version,
)
from kbuild.aot.manifest.table import Key, Table
from kbuild.aot.op.schema import OP
from kbuild.aot.op.schema import TABLES as OP_TABLES
from kbuild.compiler.backend import ptxas_wheels
from kbuild.options import CompileOptions, options
from kbuild.targets import ARCHS

TYPE = r"(\*?)(?:([a-z][a-z0-9]*)|\{([A-Za-z_]\w*)\})((?::(?:8|16|1)\??)*)"
"""An argument's type: a pointer or not, an element type or `{axis}`, hints."""
DESCRIPTOR = (
    r"tensordesc<(?:([a-z][a-z0-9]*)|\{([A-Za-z_]\w*)\})\[ *\w+ *(?:, *\w+ *){0,4}\](?::(?:zero|nan))?"
    r"(?:, *gl\.NVMMASharedLayout\([^<>()]*\) *)?>"
)
"""An argument's type: a tensor, whose blocks have these sizes (numbers, or names of compile-time values), and for
kernels of Gluon, in shared memory, that layout."""
FACT = (
    r"\s*(<=|>=|==|!=|<|>|!?%(?=\s*0*[1-9]\d*\s*(?:,|$)))"
    r"\s*((?:[1-9]\d{0,8}\s*\*\s*)?num_sms(?:\s*//\s*[1-9]\d{0,8})?|-?\d{1,18})\s*"
)
"""A comparison of a run-time argument with an integer, or with a share of the device's multiprocessors."""
_INSIDE = r"(?!/)(?!(?:.*/)?\.\.(?:/|$))[^\\]*"
"""A path that does not lead out of a folder."""

HINT_ADVICE = "16, 8: divisible by it; 1: equal to it"
"""The meaning of hints, as advice for a wrong one."""
TUNED = tuple(option for option in options("variant") if option.changes_code)
"""The options of which `kbuild tune` tries values."""


# Values that several keys have.

_TEXT = Text()
_EXPRESSION = Text(what="an expression in quotes")
_GRID = ListOf(
    item=_EXPRESSION,
    what="a list of expressions",
    least=1,
    most=3,
    lengths="a grid has one to three expressions, not {}",
)
POINTERS = ListOf(item=Text(what="an argument that is a pointer"), what="a list of arguments", unique=True)
_VALUE = ConstexprKind()
_VALUES = ListOf(item=_VALUE, what="a list of values", least=1)
_CHOICE = ListOf(
    item=Scalar(),
    what="a value, or a list of them",
    least=1,
    lengths="expected at least one value, found an empty list",
    or_one=True,
)
_ARCH_CHOICE = ListOf(
    item=OneOf(values=ARCHS, refusal="{} is not a value of arch", suggests=True),
    what=_CHOICE.what,
    least=1,
    lengths=_CHOICE.lengths,
    or_one=True,
)
_PATHS = ListOf(
    item=Text(
        patterns=(
            Pattern(
                _INSIDE, "{} is not a path within the project", "write it relative to the manifest, with /"
            ),
        ),
        one_line=True,
    ),
    what="a list of paths",
    unique=True,
)
_SUGGESTED = 'write it as "*fp16:16", "i32:16?", "*{dtype}", "fp32" or "tensordesc<fp16[64, 64]>", and for a tuple a list of them'

_FACTS = ListOf(
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
        Key("arch", (PointCondition, "choices"), _ARCH_CHOICE),
        Key("specialize", (Specialization, "name"), _CHOICE),
        Key("<axis>", (PointCondition, "choices"), _CHOICE),
        Key(
            "<argument>",
            (Config, "guards"),
            _FACTS,
        ),
    ),
    unknown="no such architecture, axis or argument",
)

EXCLUDE = Table(
    "[[kernel.exclude]]",
    PointCondition,
    (
        Key("arch", (PointCondition, "choices"), _ARCH_CHOICE),
        Key("<axis>", (PointCondition, "choices"), _CHOICE),
    ),
    unknown="no such architecture or axis",
)

SPECIALIZE = Table(
    "[[kernel.specialize]]",
    Specialization,
    (
        Key(
            "<argument>",
            (Specialization, "hints"),
            OneOf(
                values=tuple(sorted(map(int, HINTS), reverse=True)),
                refusal="{} is not a specialisation",
                advice=HINT_ADVICE,
            ),
        ),
        Key("name", (Specialization, "name"), _TEXT),
    ),
    unknown="is not a run-time argument",
    spreads=True,
)

_META_PARAMETERS = (
    *(
        Key(name, (CompileOptions, option.name), Setting(option=option))
        for option in options("variant")
        for name in option.names
    ),
    Key("<constexpr>", (Config, "constexprs"), _VALUE),
)

CONFIG = Table(
    "[[kernel.config]]",
    Config,
    (Key("when", (Config, "when"), WHEN), *_META_PARAMETERS),
    unknown="the kernel has no such parameter",
)

DEFAULTS = Table(
    "[kernel.defaults]",
    Config,
    (
        *_META_PARAMETERS,
        Key(
            "when",
            None,
            Nothing(refusal="defaults are for all configurations", advice="give `when` in config"),
            doc="Defaults are for all configurations; give `when` in `config`.",
        ),
    ),
    unknown=CONFIG.unknown,
)

ARGS = Table(
    "[kernel.args]",
    Argument,
    (
        Key(
            "<argument>",
            (Argument, "type"),
            TextOrTuple(
                what="a type in quotes, or for a tuple a list of types",
                patterns=(Pattern(f"{TYPE}|{DESCRIPTOR}"),),
                refusal="{} is not a type",
                advice=_SUGGESTED,
            ),
        ),
    ),
    declares=True,
    spreads=True,
)

GRID_ARGS = Table(
    "[kernel.grid_args]",
    Argument,
    (Key("<name>", (Kernel, "grid_args"), OneOf(values=("i32", "i64"))),),
    declares=True,
    spreads=True,
)

MATRIX = Table(
    "[kernel.matrix]",
    Axis,
    (
        Key(
            "<axis>",
            (Axis, "values"),
            ListOf(item=_VALUE, what="a list of values", least=1, unique=True, alike=True),
        ),
    ),
    declares=True,
)

SIZES = Table("sizes = { … }", Verify, (Key("<argument>", (Verify, "sizes"), _EXPRESSION),), spreads=True)
LOOPS = Table("loops = { … }", Verify, (Key("<argument>", (Verify, "loops"), _EXPRESSION),), spreads=True)


def _launch(header: str, record: type) -> Table:
    """The values of a launch's scalars."""
    keys = (
        Key("<integer argument>", (record, "values"), Number(is_integer=True)),
        Key("<other argument>", (record, "values"), Number(is_integer=False)),
    )
    return Table(header, record, keys, spreads=True)


VALUES = _launch("values = [{ … }]", Verify)

VERIFY = Table(
    "[kernel.verify]",
    Verify,
    (
        Key("sizes", (Verify, "sizes"), SIZES, True),
        Key("defaults", (Verify, "values"), VALUES, doc="Values of all launches that do not give them."),
        Key("values", (Verify, "values"), VALUES, True, repeated=True),
        Key("loops", (Verify, "loops"), LOOPS),
        Key("grid", (Verify, "grid"), _GRID),
        Key("zeros", (Verify, "zeros"), POINTERS),
        Key("ready", (Verify, "ready"), POINTERS),
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
        Key("<constexpr>", (Bucket, "candidates"), _VALUES),
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
        Key("require", (Bucket, "require"), _EXPRESSION),
    ),
)

TUNE = Table(
    "[kernel.tune]",
    Tune,
    (
        Key("sizes", (Tune, "sizes"), SIZES),
        Key("candidates", (Bucket, "candidates"), CANDIDATES, doc=_CANDIDATES),
        Key("require", (Bucket, "require"), _EXPRESSION),
        Key(
            "defaults",
            (Bucket, "values"),
            TUNE_VALUES,
            doc="Values of all buckets whose `values` do not give them.",
        ),
        Key("bucket", (Tune, "buckets"), BUCKET, True, repeated=True),
        Key("zeros", (Tune, "zeros"), POINTERS),
        Key("restore", (Tune, "restore"), POINTERS),
    ),
)

KERNEL = Table(
    "[[kernel]]",
    Kernel,
    (
        Key("name", (Kernel, "name"), Name(), True),
        Key("like", (Kernel, "like"), _TEXT),
        Key(
            "source",
            (Kernel, "source"),
            Text(
                patterns=(
                    Pattern(
                        _INSIDE,
                        "{} is not a path within the project",
                        "write it relative to the manifest, with /",
                    ),
                    Pattern(r".*\.py", "no Python file {}"),
                ),
                one_line=True,
            ),
            True,
        ),
        Key("function", (Kernel, "function"), _TEXT),
        Key("doc", (Kernel, "doc"), _TEXT),
        Key("grid", (Kernel, "grid"), _GRID, True),
        Key("args", (Kernel, "args"), ARGS, True),
        Key("grid_args", (Kernel, "grid_args"), GRID_ARGS),
        Key("matrix", (Kernel, "matrix"), MATRIX),
        Key("specialize", (Kernel, "specializations"), SPECIALIZE, repeated=True),
        Key(
            "defaults",
            (Kernel, "configs"),
            DEFAULTS,
            doc="Meta-parameters and options of configurations that do not give them.",
        ),
        Key("config", (Kernel, "configs"), CONFIG, repeated=True),
        Key("exclude", (Kernel, "excludes"), EXCLUDE, repeated=True),
        Key("op", (Kernel, "op"), OP),
        Key("verify", (Kernel, "verify"), VERIFY),
        Key(
            "unverified",
            (Kernel, "unverified"),
            Text(
                patterns=(Pattern(r".*\S.*", "expected the reason, in one line of printable text"),),
                one_line=True,
            ),
        ),
        Key("tune", (Kernel, "tune"), TUNE),
    ),
)

PACKAGE = Table(
    "[package]",
    Package,
    (
        Key("name", (Package, "name"), ModuleName(), True),
        Key("version", (Package, "version"), Text(form=version)),
        Key(
            "archs",
            (Package, "archs"),
            ListOf(
                item=Architecture(
                    values=tuple(arch + suffix for arch in ARCHS for suffix in ("", "+ptx")),
                    refusal="unknown architecture {}",
                ),
                least=1,
                lengths="no architecture is named",
                advice=f"known: {', '.join(ARCHS)}",
                unique=True,
            ),
            True,
        ),
        Key("summary", (Package, "summary"), Text(one_line=True)),
        Key("license", (Package, "license"), Text(one_line=True, form=license_expression)),
        Key("distribution", (Package, "distribution"), Text(form=distribution_name)),
        Key("packages", (Package, "packages"), _PATHS),
        Key("include", (Package, "include"), _PATHS),
        Key(
            "ptxas",
            (Package, "ptxas"),
            Text(
                patterns=(
                    Pattern(
                        r"\d{1,3}\.\d{1,3}(\.\d{1,4})?",
                        "{} is not a version of ptxas",
                        'write it as "12.9" or "12.9.86"',
                    ),
                ),
                form=ptxas_series,
            ),
        ),
        Key(
            "min_driver",
            (Package, "min_driver"),
            Integer(
                minimum=ptxas_wheels.OLDEST_DRIVER,
                maximum=ptxas_wheels.LAST_DRIVER,
                refusal="no ptxas makes code for drivers of {}",
            ),
        ),
    ),
)

MANIFEST = Table(
    "",
    Manifest,
    (
        Key(
            "schema",
            (Manifest, "schema"),
            SchemaVersion(minimum=1, maximum=1, advice="this kbuild reads schema = 1"),
            True,
        ),
        Key("package", (Manifest, "package"), PACKAGE, True),
        Key(
            "kernel",
            (Manifest, "kernels"),
            KERNEL,
            True,
            repeated=True,
            least=1,
            missing="no kernel: add a [[kernel]] table",
        ),
    ),
)

TABLES = (
    MANIFEST,
    PACKAGE,
    KERNEL,
    ARGS,
    GRID_ARGS,
    MATRIX,
    SPECIALIZE,
    CONFIG,
    DEFAULTS,
    WHEN,
    EXCLUDE,
    VERIFY,
    SIZES,
    VALUES,
    LOOPS,
    TUNE,
    BUCKET,
    TUNE_VALUES,
    CANDIDATES,
    *OP_TABLES,
)
"""All of them, in the order in which a manifest is read."""
