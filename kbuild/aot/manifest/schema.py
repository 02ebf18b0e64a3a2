"""The keys of `kernels.toml`, table by table: what the loader takes, and what docs/schema.json and
docs/manifest.md say.

Each key names the field of manifest.py that it fills; the field's doc string is the key's description, unless
it has its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kbuild.aot.manifest.model import (
    ARCHS,
    Argument,
    Axis,
    Bucket,
    Condition,
    Config,
    Kernel,
    Manifest,
    Package,
    Specialization,
    Tune,
    Verify,
)
from kbuild.compiler.backend.ptxas_wheels import LAST_DRIVER, OLDEST_DRIVER
from kbuild.options import CompileOptions, options

TYPE = r"(\*?)(?:([a-z][a-z0-9]*)|\{([A-Za-z_]\w*)\})((?::(?:8|16|1)\??)*)"
"""An argument's type: a pointer or not, an element type or `{axis}`, hints."""
DESCRIPTOR = (
    r"tensordesc<(?:([a-z][a-z0-9]*)|\{([A-Za-z_]\w*)\})\[ *\w+ *(?:, *\w+ *){0,4}\](?::(?:zero|nan))?>"
)
"""An argument's type: a tensor, whose blocks have these sizes (numbers, or names of compile-time values)."""
FACT = r"\s*(<=|>=|==|!=|<|>|!?%)\s*(-?\d{1,18})\s*"
"""A comparison of a run-time argument with an integer."""

TUNED = tuple(option for option in options("variant") if option.changes_code)
"""The options of which `kbuild tune` tries values."""

Shape = Mapping[str, Any]
"""A fragment of JSON Schema."""

_TEXT: Shape = {"type": "string"}
_VALUE: Shape = {"type": ["boolean", "number", "string"]}
_CHOICE: Shape = {"anyOf": [_VALUE, {"type": "array", "items": _VALUE, "minItems": 1}]}
_ARCH: Shape = {"enum": list(ARCHS)}
_ARCH_CHOICE: Shape = {"anyOf": [_ARCH, {"type": "array", "items": _ARCH, "minItems": 1}]}


@dataclass(frozen=True)
class Key:
    """One key of a table."""

    name: str
    """The key; `<…>` for any name of a kind."""
    fills: tuple[type, str]
    """The class and field of manifest.py that its value goes to."""
    shape: Shape | Table
    """What it may be."""
    required: bool = False
    repeated: bool = False
    """Whether it is an array of such tables."""
    doc: str = ""
    """What it means, where the field's doc string is about something else."""


@dataclass(frozen=True)
class Table:
    """One table of the manifest."""

    header: str
    """How it is written."""
    describes: type
    """The class of manifest.py that it becomes."""
    keys: tuple[Key, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The keys that have a fixed name."""
        return tuple(key.name for key in self.keys if not key.name.startswith("<"))

    @property
    def required(self) -> tuple[str, ...]:
        """Those without which the table is not complete."""
        return tuple(key.name for key in self.keys if key.required)


WHEN = Table(
    "when = { … }",
    Condition,
    (
        Key("arch", (Condition, "choices"), _ARCH_CHOICE),
        Key("specialize", (Specialization, "name"), _CHOICE),
        Key("<axis>", (Condition, "choices"), _CHOICE),
        Key("<argument>", (Config, "guards"), {"type": "string", "pattern": f"^{FACT}(,{FACT})*$"}),
    ),
)

EXCLUDE = Table(
    "[[kernel.exclude]]",
    Condition,
    (
        Key("arch", (Condition, "choices"), _ARCH_CHOICE),
        Key("<axis>", (Condition, "choices"), _CHOICE),
    ),
)

SPECIALIZE = Table(
    "[[kernel.specialize]]",
    Specialization,
    (
        Key("name", (Specialization, "name"), _TEXT),
        Key("<argument>", (Specialization, "hints"), {"enum": [16, 8, 1]}),
    ),
)

CONFIG = Table(
    "[[kernel.config]]",
    Config,
    (
        Key("when", (Config, "when"), WHEN),
        *(
            Key(name, (CompileOptions, option.name), option.schema)
            for option in options("variant")
            for name in option.names
        ),
        Key("<constexpr>", (Config, "constexprs"), _VALUE),
    ),
)

DEFAULTS = Table("[kernel.defaults]", Config, tuple(key for key in CONFIG.keys if key.name != "when"))

ARGS = Table(
    "[kernel.args]",
    Argument,
    (Key("<argument>", (Argument, "type"), {"type": "string", "pattern": f"^(?:{TYPE}|{DESCRIPTOR})$"}),),
)

GRID_ARGS = Table(
    "[kernel.grid_args]", Argument, (Key("<name>", (Kernel, "grid_args"), {"enum": ["i32", "i64"]}),)
)

MATRIX = Table(
    "[kernel.matrix]",
    Axis,
    (
        Key(
            "<axis>", (Axis, "values"), {"type": "array", "items": _VALUE, "minItems": 1, "uniqueItems": True}
        ),
    ),
)

SIZES = Table("sizes = { … }", Verify, (Key("<argument>", (Verify, "sizes"), _TEXT),))

VALUES = Table(
    "values = [{ … }]", Verify, (Key("<argument>", (Verify, "values"), {"type": ["number", "string"]}),)
)

LOOPS = Table("loops = { … }", Verify, (Key("<argument>", (Verify, "loops"), _TEXT),))

VERIFY = Table(
    "[kernel.verify]",
    Verify,
    (
        Key("sizes", (Verify, "sizes"), SIZES, True),
        Key("defaults", (Verify, "values"), VALUES, doc="Values of all launches that do not give them."),
        Key("values", (Verify, "values"), VALUES, True, repeated=True),
        Key("loops", (Verify, "loops"), LOOPS),
        Key("grid", (Verify, "grid"), {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": 3}),
        Key("zeros", (Verify, "zeros"), {"type": "array", "items": _TEXT, "uniqueItems": True}),
        Key("ready", (Verify, "ready"), {"type": "array", "items": _TEXT, "uniqueItems": True}),
    ),
)

CANDIDATES = Table(
    "candidates = { … }",
    Bucket,
    (
        *(
            Key(option.name, (Bucket, "candidates"), {"type": "array", "items": option.schema, "minItems": 1})
            for option in TUNED
        ),
        Key("<constexpr>", (Bucket, "candidates"), {"type": "array", "items": _VALUE, "minItems": 1}),
    ),
)

TUNE_VALUES = Table(
    "values = { … }", Bucket, (Key("<argument>", (Bucket, "values"), {"type": ["number", "string"]}),)
)

BUCKET = Table(
    "[[kernel.tune.bucket]]",
    Bucket,
    (
        Key("when", (Bucket, "when"), WHEN),
        Key("values", (Bucket, "values"), TUNE_VALUES, True),
        Key("candidates", (Bucket, "candidates"), CANDIDATES),
        Key("require", (Bucket, "require"), _TEXT),
    ),
)

TUNE = Table(
    "[kernel.tune]",
    Tune,
    (
        Key("sizes", (Tune, "sizes"), SIZES),
        Key("candidates", (Bucket, "candidates"), CANDIDATES),
        Key("require", (Bucket, "require"), _TEXT),
        Key(
            "defaults",
            (Bucket, "values"),
            TUNE_VALUES,
            doc="Values of all buckets whose `values` do not give them.",
        ),
        Key("bucket", (Tune, "buckets"), BUCKET, True, repeated=True),
    ),
)

KERNEL = Table(
    "[[kernel]]",
    Kernel,
    (
        Key("name", (Kernel, "name"), _TEXT, True),
        Key("source", (Kernel, "source"), {"type": "string", "pattern": r"\.py$"}, True),
        Key("function", (Kernel, "function"), _TEXT),
        Key("doc", (Kernel, "doc"), _TEXT),
        Key("grid", (Kernel, "grid"), {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": 3}, True),
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
        Key("op", (Kernel, "op"), {"type": "object"}),
        Key("verify", (Kernel, "verify"), VERIFY),
        Key("unverified", (Kernel, "unverified"), _TEXT),
        Key("tune", (Kernel, "tune"), TUNE),
    ),
)

PACKAGE = Table(
    "[package]",
    Package,
    (
        Key("name", (Package, "name"), _TEXT, True),
        Key("version", (Package, "version"), _TEXT, True),
        Key(
            "archs",
            (Package, "archs"),
            {
                "type": "array",
                "items": {"enum": [arch + suffix for arch in ARCHS for suffix in ("", "+ptx")]},
                "minItems": 1,
            },
            True,
        ),
        Key("summary", (Package, "summary"), _TEXT),
        Key("license", (Package, "license"), _TEXT),
        Key("ptxas", (Package, "ptxas"), {"type": "string", "pattern": r"^\d+\.\d+(\.\d+)?$"}),
        Key(
            "min_driver",
            (Package, "min_driver"),
            {"type": "integer", "minimum": OLDEST_DRIVER, "maximum": LAST_DRIVER},
        ),
    ),
)

MANIFEST = Table(
    "",
    Manifest,
    (
        Key("schema", (Manifest, "schema"), {"const": 1}, True),
        Key("package", (Manifest, "package"), PACKAGE, True),
        Key("kernel", (Manifest, "kernels"), KERNEL, repeated=True),
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
)
"""All of them, in the order in which a manifest is read."""
