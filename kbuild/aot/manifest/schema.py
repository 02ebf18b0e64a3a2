"""The keys of `kernels.toml`, table by table: what the loaders check a manifest against, and what docs/schema.json
and docs/manifest.md say.

Each row has all rules for one key: its values, with their patterns and limits, whether there may be
several, whether it has to be there, and what its mistakes are called.  It names the field of model.py that it fills,
whose default is that of the key, and whose doc string describes it unless the row has its own.  The loaders add what
holds between keys.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from kbuild.aot.manifest.kinds import (
    Integer,
    ListOf,
    Name,
    Nothing,
    Number,
    OneOf,
    Pattern,
    Setting,
    Text,
    TextOrTuple,
)
from kbuild.aot.manifest.launches.tables import (
    BUCKET,
    CANDIDATES,
    LOOPS,
    REFERENCE_CONSTEXPRS,
    SIZES,
    TUNE,
    TUNE_VALUES,
    VALUES,
    VERIFY,
)
from kbuild.aot.manifest.model import (
    HINTS,
    LANGUAGES,
    Argument,
    Axis,
    Config,
    Kernel,
    Manifest,
    Package,
    PointCondition,
    Specialization,
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
from kbuild.aot.manifest.schema_values import (
    ARCH_CHOICE,
    CHOICE,
    GRID,
    INSIDE,
    TEXT,
    VALUE,
    WHEN,
)
from kbuild.aot.manifest.table import Key, Table
from kbuild.aot.op.schema import OP
from kbuild.aot.op.schema import TABLES as OP_TABLES
from kbuild.compiler.backend import ptxas_wheels
from kbuild.options import CompileOptions, options
from kbuild.targets import ARCHS

TYPE = r"(\*?)(?:([a-z][a-z0-9]*)|\{([A-Za-z_]\w*)\})((?::(?:4|8|16|1)\??)*)"
"""An argument's type: a pointer or not, an element type or `{axis}`, hints."""
DESCRIPTOR = (
    r"tensordesc<(?:([a-z][a-z0-9]*)|\{([A-Za-z_]\w*)\})\[ *\w+ *(?:, *\w+ *){0,4}\](?::(?:zero|nan))?"
    r"(?::swizzle(?:32|64|128))?(?:, *(gl\.[^<>]*))?>"
)
"""An argument's type: a tensor, whose blocks have these sizes (numbers, or names of compile-time values), and in shared
memory this swizzle (CUDA C++) or layout (Gluon)."""
HINT_ADVICE = "16, 8, 4: divisible by it; 1: equal to it"
"""The meaning of hints, as advice for a wrong one."""

# Values that several keys have.

_PATHS = ListOf(
    item=Text(
        patterns=(
            Pattern(
                INSIDE, "{} is not a path within the project", "write it relative to the manifest, with /"
            ),
        ),
        one_line=True,
    ),
    what="a list of paths",
    unique=True,
)
_FOLDERS = ListOf(
    item=Text(
        patterns=(
            Pattern(
                rf"{INSIDE}|[A-Za-z0-9][\w.-]*:{INSIDE}",
                "{} is not a folder within the project or a wheel",
                'write "include", or "nvidia-cutlass:cutlass_library/source/include"',
            ),
            Pattern(r"[^,]*", "{} has a comma in it"),
        ),
        one_line=True,
    ),
    what="a list of folders",
    unique=True,
)


def _list(what: str) -> Text:
    """A file of JSON lines in the project."""
    return Text(
        patterns=(
            Pattern(
                INSIDE, "{} is not a path within the project", "write it relative to the manifest, with /"
            ),
            Pattern(r".*\.jsonl", f"{{}} is not a list of {what}", "its name ends in .jsonl"),
        ),
        one_line=True,
    )


_BLOCK = ListOf(
    item=Number(is_integer=True),
    what="a list of numbers and expressions",
    least=1,
    most=3,
    lengths="a block has one to three sizes, not {}",
)
_SUGGESTED = 'write it as "*fp16:16", "i32:16?", "*{dtype}", "fp32" or "tensordesc<fp16[64, 64]>", and for a tuple a list of them'

EXCLUDE = Table(
    "[[kernel.exclude]]",
    PointCondition,
    (
        Key("arch", (PointCondition, "choices"), ARCH_CHOICE),
        Key("<axis>", (PointCondition, "choices"), CHOICE),
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
        Key("name", (Specialization, "name"), TEXT),
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
    Key("<constexpr>", (Config, "constexprs"), VALUE),
)

_COST = Key("cost", (Config, "cost"), Number(is_integer=True))

CONFIG = Table(
    "[[kernel.config]]",
    Config,
    (Key("when", (Config, "when"), WHEN), _COST, *_META_PARAMETERS),
    unknown="the kernel has no such parameter",
)

DEFAULTS = Table(
    "[kernel.defaults]",
    Config,
    (
        replace(
            _COST,
            doc="The cost of configurations that do not give one; or, if it names `cost`, that of those that do, whose own "
            "`cost` is meant.",
        ),
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


def options_of(table: Table, language: str, parameters: Collection[str]) -> Table:
    """A table of meta-parameters of a kernel with these constexpr parameters, without the options of other languages, whose
    names are free, and without a cost where that is the name of a parameter."""
    others = {
        name
        for option in options("variant")
        if option.language not in ("", language)
        for name in option.names
    }
    others |= {_COST.name} & set(parameters)
    return replace(table, keys=tuple(key for key in table.keys if key.name not in others))


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
            ListOf(item=VALUE, what="a list of values", least=1, unique=True, alike=True),
        ),
    ),
    declares=True,
)

SEEN = Table(
    "[kernel.seen]",
    Kernel,
    (Key("<parameter>", (Kernel, "seen"), ListOf(item=VALUE, what="a list of sizes", least=1)),),
    declares=True,
)

KERNEL = Table(
    "[[kernel]]",
    Kernel,
    (
        Key("name", (Kernel, "name"), Name(), True),
        Key("like", (Kernel, "like"), TEXT),
        Key(
            "source",
            (Kernel, "source"),
            Text(
                patterns=(
                    Pattern(
                        rf"{INSIDE}|[A-Za-z0-9][\w.-]*:{INSIDE}",
                        "{} is not a path within the project or a wheel",
                        "write it relative to the manifest, with /",
                    ),
                    Pattern(
                        r".*\.(?:py|cu)", "no file in Python or CUDA C++ {}", "its name ends in .py or .cu"
                    ),
                ),
                one_line=True,
            ),
            True,
        ),
        Key("language", (Kernel, "language"), OneOf(values=LANGUAGES)),
        Key("function", (Kernel, "function"), TEXT),
        Key("include", (Kernel, "include"), _FOLDERS),
        Key("block", (Kernel, "block"), _BLOCK),
        Key("shared", (Kernel, "shared"), Number(is_integer=True)),
        Key("doc", (Kernel, "doc"), TEXT),
        Key("grid", (Kernel, "grid"), GRID, True),
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
        Key("variants", (Kernel, "variants"), _list("variants")),
        Key("launches", (Kernel, "launches"), _list("launches")),
        Key(
            "digest",
            (Kernel, "digest"),
            Text(patterns=(Pattern("[0-9a-f]{64}", "{} is not a digest", "kbuild import writes it"),)),
        ),
        Key(
            "serves",
            (Kernel, "serves"),
            Text(
                patterns=(
                    Pattern(
                        r"[A-Za-z_]\w*(\.\w+)*:\w+(\.(\w+|<locals>))*",
                        "{} is no function of a module",
                        "as `liger_kernel.ops.rms_norm:_rms_norm_forward_kernel`; kbuild import writes it",
                    ),
                )
            ),
        ),
        Key("seen", (Kernel, "seen"), SEEN),
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
    SEEN,
    SPECIALIZE,
    CONFIG,
    DEFAULTS,
    WHEN,
    EXCLUDE,
    VERIFY,
    SIZES,
    VALUES,
    LOOPS,
    REFERENCE_CONSTEXPRS,
    TUNE,
    BUCKET,
    TUNE_VALUES,
    CANDIDATES,
    *OP_TABLES,
)
"""All of them, in the order in which a manifest is read."""
