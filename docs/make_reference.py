"""Writes those parts of the documentation that the code itself says: `python docs/make_reference.py`;
`--check` only looks.

A page holds prose and regions, `<!-- NAME: made by make_reference.py -->` to `<!-- end -->`, which this
script fills. docs/schema.json, the JSON Schema of manifests, and docs/swizzle.svg are its work altogether.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import kbuild.compiler.transforms  # noqa: F401  registers the passes
import kbuild.language as tl
from kbuild.aot.environment import VARIABLES
from kbuild.aot.manifest import schema
from kbuild.aot.manifest.table import Key, Table
from kbuild.compiler import library
from kbuild.compiler.frontend.sources.modules import ABSENT
from kbuild.compiler.frontend.visitor import NOT_IN_KERNELS
from kbuild.compiler.ir.core import Op, registered_ops
from kbuild.compiler.ir.passes import registered_passes
from kbuild.compiler.lower.math.functions import FORMULAS
from kbuild.compiler.ops.elementwise import Elementwise
from kbuild.compiler.semantic import TABLES
from kbuild.compiler.semantic.types import BY_SIGNATURE_NAME, BY_TL_NAME
from kbuild.compiler.upstream.building import READINGS
from kbuild.compiler.upstream.rows import ROWS
from kbuild.compiler.upstream.syntax import FORMS, QUOTED
from kbuild.compiler.views.analyses import ANALYSES
from kbuild.compiler.views.pictures import picture
from kbuild.compiler.views.sources import in_words
from kbuild.emulator.isa.table import SECTIONS, InstructionSpec
from kbuild.emulator.race import KINDS, LENIENT
from kbuild.options import CompileOptions, Option, by_name, options
from kbuild.targets import ARCHS, TARGETS, find_target

DOCS = Path(__file__).resolve().parent
_REGION = re.compile(r"(<!-- ([\w ]+): made by make_reference\.py -->\n).*?(<!-- end -->)", re.DOTALL)


def row(*cells: str) -> str:
    """One row of a table; `|` would end a cell."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join([row(*head), "|" + "---|" * len(head), *(row(*cells) for cells in rows)])


def one_line(text: str | None) -> str:
    """The first paragraph of a doc string, on one line."""
    return " ".join((text or "").split("\n\n")[0].split())


# The manifest


def field_docs(cls: type) -> dict[str, str]:
    """The doc strings under the fields of a dataclass."""
    body = ast.parse(inspect.getsource(cls)).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for field, text in zip(body.body, body.body[1:]):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
        ):
            found[field.target.id] = " ".join(ast.literal_eval(text.value).split())
    return found


def key_doc(key: Key) -> str:
    """What a key means: its own doc, or the doc string of the field that it fills."""
    if key.doc or not key.fills:
        return key.doc
    cls, field = key.fills
    if cls is CompileOptions and (option := by_name(field)):
        return sentence(option) + (f" Triton's name of `{option.name}`." if key.name == option.alias else "")
    return field_docs(cls)[field]


def sentence(option: Option) -> str:
    """What an option does."""
    return f"{option.doc[:1].upper()}{option.doc[1:]}. Default: `{json.dumps(option.default)}`."


def compile_options() -> str:
    """The fields of `CompileOptions`, and where else each can be given."""
    rows = []
    for option in options():
        flag = f"`{option.flag}`" if option.is_flag else ""
        key = {"variant": "`[[kernel.config]]`", "kernel": "`[[kernel]]`"}.get(option.scope, "")
        names = " or ".join(f"`{name}`" for name in option.names)
        rows.append((names, option.expected, ", ".join(filter(None, (key, flag))), sentence(option)))
    return table(("option", "values", "also given by", "meaning"), rows)


def json_schema(given: Table) -> dict[str, Any]:
    """The JSON Schema of a table."""
    named = {key.name: _json_key(key) for key in given.keys if not key.is_open}
    others = [_json_key(key) for key in given.keys if key.is_open]
    rest = others[0] if len(others) == 1 else {"anyOf": others} if others else False
    shape = {
        "type": "object",
        "properties": named,
        "required": list(given.required),
        "additionalProperties": rest,
    }
    if "like" in named:  # Which gives what else is required.
        shape["required"] = [name for name in ("name",) if name in named]
        shape["anyOf"] = [{"required": [*given.required]}, {"required": ["like"]}]
    return {"description": one_line(given.describes.__doc__), **shape}


def _json_key(key: Key) -> dict[str, Any]:
    shape = json_schema(key.value) if isinstance(key.value, Table) else dict(key.shape)
    if key.repeated:
        shape = {"type": "array", "items": shape} | ({"minItems": key.least} if key.least else {})
    return {**shape, "description": key_doc(key)}


def manifest_keys() -> str:
    """A table of keys for each table of the manifest."""
    parts = []
    for given in schema.TABLES:
        rows = [
            (f"`{key.name}`" + " (required)" * key.required, shown(key), key_doc(key)) for key in given.keys
        ]
        title = f"`{given.header}`" if given.header else "The manifest itself"
        parts.append(
            f"### {title}\n\n{one_line(given.describes.__doc__)}\n\n"
            + table(("key", "value", "meaning"), rows)
        )
    return "\n\n".join(parts)


def shown(key: Key) -> str:
    """What a key may be, in words."""
    if isinstance(key.value, Table):
        return "tables" if key.repeated else "a table"
    shape = key.shape
    values = shape.get("enum") or [shape[name] for name in ("const",) if name in shape]
    return ", ".join(f"`{json.dumps(value)}`" for value in values) or key.value.words


# The language


def language_functions() -> str:
    """The functions of `tl`, by the file that has them."""
    groups: dict[str, list[Sequence[str]]] = {}
    for name, builtin in sorted(TABLES["tl"].items()):
        if not name.startswith("_") and name in dir(tl):
            title = title_of(inspect.getmodule(builtin.function).__doc__)
            groups.setdefault(title, []).append(function_row(name, builtin.method))
    for name in sorted(library.public_names()):
        title = "Random numbers" if library.index()[name][0].endswith("random.py") else "Made of others"
        groups.setdefault(title, []).append(function_row(name, name in library.METHODS))
    for name, builtin in sorted(TABLES["descriptor"].items()):
        groups["Tensor descriptors"].append(descriptor_row(name, builtin.function))
    head = ("function", "method", "meaning")
    parts = [f"### {title}\n\n" + table(head, rows) for title, rows in groups.items()]
    return "\n\n".join(parts)


def title_of(text: str | None) -> str:
    return one_line(text).split(":")[0].split(";")[0].rstrip(".")


def function_row(name: str, method: bool) -> Sequence[str]:
    function = getattr(tl, name)
    signature = str(inspect.signature(function)).replace("fp32", "tl.float32")
    return f"`{name}{signature}`", "yes" if method else "", one_line(function.__doc__)


def descriptor_row(name: str, function: Callable[..., Any]) -> Sequence[str]:
    """A method of tensor descriptors."""
    _, _, *parameters = inspect.signature(function).parameters
    return f"`desc.{name}({', '.join(parameters)})`", "yes", one_line(function.__doc__)


def gluon_functions() -> str:
    """The functions that Gluon has more than `tl`, by module; then the methods of shared memory."""
    owners = {key: key for key in sorted(TABLES) if key.split(".")[0] == "gl"} | {"shared_memory": "tile"}
    head = ("function", "meaning")
    parts = []
    for key, owner in owners.items():
        rows = []
        for name, builtin in sorted(TABLES[key].items()):
            _, *parameters = inspect.signature(builtin.function).parameters.values()
            taken = parameters[1:] if owner == "tile" else parameters
            call = f"{owner.rpartition('.')[2]}.{name}({', '.join(map(str, taken))})"
            rows.append((f"`{call}`", one_line(builtin.function.__doc__)))
        title = "Shared memory" if owner == "tile" else f"`{owner}`"
        parts.append(f"### {title}\n\n" + table(head, rows))
    return "\n\n".join(parts)


def other_functions() -> str:
    """The names of the other tables: libdevice, `tl.extra.cuda`, torch's helpers, and Python's own functions."""
    titles = {"libdevice": "`tl.extra.cuda.libdevice`", "cuda": "`tl.extra.cuda`", "python": "Python's own"}
    names = {title: [*TABLES[key]] for key, title in titles.items()}
    names["`tl.extra.cuda.libdevice`"] += library.public_names(library.LIBDEVICE)
    names["`torch._inductor.runtime.triton_helpers`"] = library.public_names(library.INDUCTOR)
    lists = {
        title: dict.fromkeys(family(name) for name in sorted(found) if name[0] != "_")
        for title, found in names.items()
    }
    return "\n\n".join(
        f"{title}: " + ", ".join(f"`{name}`" for name in names) + "." for title, names in lists.items()
    )


def family(name: str) -> str:
    """A name; those that differ in the direction of rounding alone are one, `add_r[nzud]`."""
    return re.sub(r"_r[nzud]$", "_r[nzud]", name)


def types() -> str:
    """The element types, by both names."""
    names = {dtype.name: name for name, dtype in BY_TL_NAME.items()}
    rows = [(f"`{name}`", f"`tl.{names[dtype.name]}`") for name, dtype in BY_SIGNATURE_NAME.items()]
    return table(("in signatures", "in kernels"), rows)


def absent() -> str:
    """What Triton has and kbuild does not, and the syntax that no kernel can use."""
    rows = {f"`tl.{name}`": advice for name, advice in ABSENT.items()}
    for message, advice in NOT_IN_KERNELS.values():
        rows.setdefault(message.replace(" is not possible", "").removesuffix(" in a kernel"), advice)
    return table(("not available", "instead"), rows.items())


# The compiler


def operations() -> str:
    """All operations, by dialect."""
    dialects: dict[str, list[Sequence[str]]] = {}
    for name, cls in sorted(registered_ops().items()):
        marks = {"one": "", "optional": "?", "tuple": "*"}
        operands = ", ".join(field + marks[kind] for field, kind in cls.operand_fields.items())
        attributes = ", ".join([*cls.attribute_fields, *cls.region_fields])
        shape = (operands + (f" {{{attributes}}}" if attributes else "")).strip()
        dialects.setdefault(name.split(".")[0], []).append(
            (f"`{name}`", f"`{shape}`" if shape else "", meaning_of(cls))
        )
    head = ("operation", "operands {attributes}", "meaning")
    return "\n\n".join(f"### `{dialect}`\n\n" + table(head, rows) for dialect, rows in dialects.items())


def meaning_of(cls: type[Op]) -> str:
    """An operation's doc string, or what it is called elsewhere."""
    if cls.__doc__ or not issubclass(cls, Elementwise):
        return one_line(cls.__doc__)
    if cls in FORMULAS:
        return one_line(FORMULAS[cls].text)
    return f"LLVM's `{cls.llvm.removeprefix('@llvm.')}`." if cls.llvm else f"numpy's `{cls.numpy}`."


def passes() -> str:
    """The passes, in the order of the pipelines."""
    known = registered_passes()
    parts = []
    for title, stage in (("tensor", "ttir"), ("gpu", "ttgir")):
        rows = []
        pipelines = {arch: getattr(find_target(arch), f"{title}_pipeline") for arch in ARCHS}
        for name in dict.fromkeys(text.split("{")[0] for pipeline in pipelines.values() for text in pipeline):
            where = {arch: places(pipeline, name) for arch, pipeline in pipelines.items()}
            same = len(set(where.values())) == 1
            place = (
                where[ARCHS[0]]
                if same
                else "; ".join(f"{arch}: {text}" for arch, text in where.items() if text)
            )
            rows.append((f"`{name}`", place, one_line(sys.modules[known[name].function.__module__].__doc__)))
        parts.append(
            f"### The pipeline `{title}`, which ends in {stage}\n\n"
            + table(("pass", "place", "what it does"), rows)
        )
    return "\n\n".join(parts)


def places(pipeline: Sequence[str], name: str) -> str:
    """Where a pass stands in a pipeline, counted from 1."""
    return ", ".join(str(number) for number, text in enumerate(pipeline, 1) if text.split("{")[0] == name)


def targets() -> str:
    """The architectures and their tensor-core instructions."""
    found = [find_target(arch) for arch in ARCHS]
    rows = [
        (
            f"`{t.arch}`",
            f"{t.limits.shared_bytes:,}",
            str(t.limits.registers),
            str(t.limits.max_warps),
            str(t.limits.cluster_size),
            ", ".join(f"`{name}`" for name in sorted(t.features)),
            ", ".join(f"`{atom.name}`" for atom in t.atoms),
            ", ".join(dict.fromkeys(f"`{a.types}`" for a in t.wgmma_atoms)),
        )
        for t in found
    ]
    return table(
        (
            "architecture",
            "shared bytes of a program",
            "registers of a thread",
            "warps of a multiprocessor",
            "programs of a cluster",
            "has",
            "`mma.sync`",
            "`wgmma`",
        ),
        rows,
    )


def architectures() -> str:
    """The architectures that a manifest may name."""
    rows = []
    for arch, target in TARGETS.items():
        module = importlib.import_module(f"kbuild.targets.{arch}")
        ends = dict.fromkeys(f"{end / 10}" for end in (target.devices.first, target.devices.last))
        runs = " to ".join(ends)
        rows.append((f"`{arch}`", one_line(module.__doc__).rstrip("."), runs))
    return table(("architecture", "GPUs", "its cubins run on compute capability"), rows)


def formulas() -> str:
    """The mathematical functions and their errors."""
    rows = [
        (f"`{cls.op_name}`", ulp(formula.f32), ulp(formula.f64), one_line(formula.text))
        for cls, formula in sorted(FORMULAS.items(), key=lambda item: item[0].op_name)
    ]
    return table(("operation", "f32, ulp", "f64, ulp", "what it computes"), rows)


# The emulator


def opcodes() -> str:
    """The one table of opcodes, section by section."""
    head = ("instruction", "results = sources", "meaning", "effects", "accuracy")
    parts = []
    for module in SECTIONS:
        rows = [
            (
                f"`{given.pattern}`",
                f"`{given.operands}`" * bool(given.operands),
                given.summary,
                effects(given),
                str(given.accuracy or (given.unasked and f"no GPU was asked: {given.unasked}")),
            )
            for given in module.ROWS
        ]
        parts.append(f"### {title_of(module.__doc__)}\n\n" + table(head, rows))
    return "\n\n".join(parts)


def race_findings() -> str:
    """What the race detector finds."""
    rows = [(f"`{kind}`", meaning, "yes" * (kind in LENIENT)) for kind, meaning in KINDS.items()]
    return table(("kind", "what it is", "only by the letter"), rows)


def effects(given: InstructionSpec) -> str:
    """What a row does besides writing registers, in words."""
    does = given.effects
    words = [f"reads {space}" for space in does.reads] + [f"writes {space}" for space in does.writes]
    words += [name for name in ("atomic", "asynchronous", "aligned", "waits") if getattr(does, name)]
    return ", ".join(words + [f"collective of the {does.collective}"] * bool(does.collective))


def ulp(error: float | None) -> str:
    return "not available" if error is None else f"{error:g}"


def variables() -> str:
    """The variables of the environment."""
    return table(
        ["variable", "also", "read by", "meaning"],
        (
            [f"`{one.name}`", ", ".join(f"`{name}`" for name in one.also), one.reader, one.doc]
            for one in VARIABLES
        ),
    )


def analyses() -> str:
    """What `kbuild opt --print` shows."""
    return table(["analysis", "shows"], ([f"`{name}`", one.doc] for name, one in ANALYSES.items()))


def upstream_operations() -> str:
    """The operations of Triton's that are read into others, beside those of the same name."""
    named = {*READINGS, *ROWS, *FORMS} - {"kbuild.alias", QUOTED}
    dialects = sorted({name.split(".")[0] for name in named})
    return table(
        ["dialect", "operations"],
        (
            [
                f"`{dialect}`",
                ", ".join(sorted(name.split(".", 1)[1] for name in named if name.startswith(dialect + "."))),
            ]
            for dialect in dialects
        ),
    )


REGIONS: Mapping[str, Callable[[], str]] = {
    "manifest keys": manifest_keys,
    "language functions": language_functions,
    "gluon functions": gluon_functions,
    "other functions": other_functions,
    "types": types,
    "absent": absent,
    "operations": operations,
    "passes": passes,
    "targets": targets,
    "architectures": architectures,
    "formulas": formulas,
    "opcodes": opcodes,
    "race findings": race_findings,
    "compile options": compile_options,
    "variables": variables,
    "analyses": analyses,
    "upstream operations": upstream_operations,
}


def pages() -> dict[Path, str]:
    """All files that have something to be made, with their right contents."""
    found = {}
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text()
        if _REGION.search(text):
            found[page] = _REGION.sub(lambda match: f"{match[1]}{REGIONS[match[2]]()}\n{match[3]}", text)
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "kernels.toml",
        **json_schema(schema.MANIFEST),
    }
    tile = in_words("SwizzledSharedLayout(8, 1, 8, [1,0])", (16, 64), "fp16")
    found[DOCS / "swizzle.svg"] = picture(tile, None, find_target("sm_90"))
    found[DOCS / "schema.json"] = json.dumps(whole, indent=1, ensure_ascii=False) + "\n"
    return found


def main(check: bool) -> int:
    """Writes what has changed, or with `check` names it; the exit code."""
    stale = [path for path, text in pages().items() if not path.is_file() or path.read_text() != text]
    for path in stale:
        print(f"{path.name} is {'out of date' if check else 'written'}", file=sys.stderr)
    if check:
        return 1 if stale else 0
    for path, text in pages().items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
