"""The sources of a package: the templates, and the filters that put names, literals and expressions into
them.

Whatever comes from a manifest enters a file through a filter: identifiers have been checked, everything else
is written as a literal of the language in question.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2

from kbuild.aot.artifact import selection, served
from kbuild.aot.artifact.selection import (
    HINT_1,
    HINT_16,
    TYPE_MASK,
    TYPES,
    CodeTarget,
    KernelTable,
    LaunchParameter,
)
from kbuild.aot.capture import serving
from kbuild.aot.capture.serving.facts import ServedFunction
from kbuild.aot.files import templates_directory
from kbuild.aot.manifest import expressions
from kbuild.aot.manifest.model import TORCH_DTYPES
from kbuild.aot.op.c_api import c_comment, cpp_name, functions_of_package
from kbuild.aot.op.c_source import operator_context
from kbuild.aot.op.python_source import bare_launches, python_context, resolve_backward
from kbuild.aot.op.tables import OperatorTable
from kbuild.compiler.backend import ptxas_wheels
from kbuild.targets import TARGETS
from kbuild.tensor_map import SWIZZLES, TensorMapType, element_type, number_of

_NOT_PLAIN = re.compile(rb'[^ -~]|["\\?]')
"""Bytes that are written as escapes in strings of C."""

FILES = {
    **{
        name: f"package/{name}.j2"
        for name in (
            "__init__.py",
            "_jax.py",
            "_shapes.py",
            "_table.py",
            "_torch.py",
            "dispatch.py",
            "dispatch.pyi",
            "launch.py",
            "operators.py",
            "operators.pyi",
            "triton.py",
        )
    },
    "launcher_tables.c": "launcher/launcher_tables.c.j2",
    "launcher_functions.c": "launcher/python/launcher_functions.c.j2",
    "library_functions.c": "launcher/library/library_functions.c.j2",
    "include/{symbol}/kernels.h": "package/kernels.h.j2",
    "cmake/{symbol}Config.cmake": "package/config.cmake.j2",
    "cmake/{symbol}ConfigVersion.cmake": "package/config_version.cmake.j2",
}
"""Sources of a package, and what they are rendered from; `{symbol}` is its name in C."""

_OF_OPERATORS = ("operators.py", "operators.pyi", "_jax.py", "_shapes.py", "_torch.py")
"""Those that a package without operators has not."""

_OF_SERVING = ("triton.py",)
"""Those that a package which serves no library has not."""

_SERVING = {
    **{
        name: f"serving/{name}.py"
        for name in (
            "__init__",
            "compiled",
            "facts",
            "functions",
            "graphs",
            "guards",
            "install",
            "launches",
            "live",
            "recording",
            "refusal",
            "remembered",
            "specialize",
            "tuners",
            "values",
        )
    },
    **{
        f"shim_{name}": f"serving/shim/{name}.py"
        for name in ("kernels", "language", "modules", "tools", "torch_view")
    },
    "text": "text.py",
    **{
        name: f"hook/{name}.py"
        for name in ("decorators", "finder", "origin", "plain", "recorder", "specialization")
    },
}
"""Modules of kbuild's that a package which serves a library has in its folder `_serving`, by their names there."""

_OWN_IMPORT = re.compile(
    r"^from kbuild\.aot\.capture\.(?:serving\.|hook\.)?(?:(\w+)|(shim)\.(\w+)) import (.*)", re.MULTILINE
)

_FLOAT_BITS = {"fp16": (5, 10), "bf16": (8, 7), "fp32": (8, 23)}
"""Bits of exponent and mantissa of the scalars that a launch converts from float64."""


@dataclass(frozen=True)
class PackageTable:
    """The values that the sources of a package are rendered from."""

    package: str
    version: str
    summary: str
    targets: tuple[CodeTarget, ...]
    kernels: tuple[KernelTable, ...]
    archives: tuple[tuple[str, str], ...]
    """Names of the archives, with the sha256 of their indices."""
    driver: int = ptxas_wheels.OLDEST_DRIVER
    """The oldest branch of drivers that run the cubins."""
    operators: tuple[OperatorTable, ...] = ()
    """Functions on tensors."""
    served: tuple[ServedFunction, ...] = ()
    """Functions of libraries whose calls it answers."""

    @property
    def build_id(self) -> str:
        """Digest of the table: the launcher and the Python half of a package carry the same one."""
        return hashlib.sha256(repr(self).encode()).hexdigest()


def render(package_dir: Path, table: PackageTable) -> list[Path]:
    """Writes all sources of the package; files that have the right bytes stay untouched.  Returns all their
    paths."""
    context = _context(table)
    left_out = (*(() if table.operators else _OF_OPERATORS), *(() if table.served else _OF_SERVING))
    made = {name: template for name, template in templates().items() if name not in left_out}
    texts = {name.format(**context): template.render(context) for name, template in made.items()}
    texts["_selection.py"] = Path(selection.__file__).read_text(encoding="utf-8")
    texts |= serving_texts() if table.served else {}
    texts["py.typed"] = ""
    paths = []
    for name, text in sorted(texts.items()):
        path = package_dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = text.encode()
        if not path.exists() or path.read_bytes() != data:
            path.write_bytes(data)
        paths.append(path)
    return paths


def serving_texts() -> dict[str, str]:
    """The modules that answer calls of libraries, by their files in a package."""
    own = Path(serving.__file__).parents[1]
    texts = {name: (own / file).read_text(encoding="utf-8") for name, file in _SERVING.items()}
    return {f"_serving/{name}.py": _OWN_IMPORT.sub(_relative, text) for name, text in texts.items()}


def _relative(match: re.Match[str]) -> str:
    """An import of one of kbuild's modules within a package, where those of the folder `shim` are beside the others."""
    module, _, of_shim, names = match.groups()
    if module == "shim":
        return "from . import " + ", ".join(f"shim_{name} as {name}" for name in names.split(", "))
    return f"from .{f'shim_{of_shim}' if of_shim else module} import {names}"


@lru_cache(maxsize=1)
def templates() -> dict[str, jinja2.Template]:
    """The compiled templates, by the files that they make."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_directory()),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters |= {
        "c_string": c_string,
        "c_doc": c_doc,
        "c_condition": c_condition,
        "c_grid": c_grid,
        "option_value": option_value,
        "python": repr,
        "python_doc": python_doc,
        "pyi_parameters": pyi_parameters,
        "c_comment": c_comment,
        "cpp_name": cpp_name,
    }
    return {name: environment.get_template(template) for name, template in FILES.items()}


def _context(table: PackageTable) -> dict[str, Any]:
    """The values that the templates use."""
    passed_lists: dict[tuple[tuple[int, str], ...], int] = {}
    archives = [name for name, _ in table.archives]
    kernels = [_kernel_context(kernel, passed_lists, archives) for kernel in table.kernels]
    maps = list(
        dict.fromkeys(type_ for passed in passed_lists for _, type_ in passed if TensorMapType.parse(type_))
    )
    operators = [python_context(operator, table.kernels) for operator in table.operators]
    resolve_backward(operators, table.operators)
    return {
        "operators": operators,
        "operator_tables": [operator_context(operator) for operator in table.operators],
        **functions_of_package(
            [(table, python["c_doc"]) for table, python in zip(table.operators, operators)],
            [(kernel, kernel_doc(kernel, is_for_c=True)) for kernel in table.kernels],
        ),
        "bare_launches": bare_launches(table.operators, table.kernels),
        "package": table.package,
        "symbol": symbol_of(table.package),
        "version": table.version,
        "doc": _package_doc(table),
        "build_id": table.build_id,
        "targets": table.targets,
        "devices": {t.capability: (t.limits.shared_bytes, t.multiprocessors) for t in TARGETS.values()},
        "served": table.served,
        "option_defaults": served.option_defaults(),
        "archives": table.archives,
        "driver": table.driver,
        "cuda": ptxas_wheels.cuda_of(table.driver),
        "drivers": ptxas_wheels.DRIVERS,
        "kernels": kernels,
        "row_count": sum(len(kernel.rows) for kernel in table.kernels),
        "max_parameters": max((len(kernel.parameters) for kernel in table.kernels), default=0) or 1,
        "max_passed": max(map(len, passed_lists), default=0) or 1,
        "max_slots": max(len(kernel.parameters) + len(kernel.options) + 2 for kernel in table.kernels),
        "max_facts": max(kernel.fact_count for kernel in table.kernels),
        "passed_lists": [
            [_passed_context(place, type_, maps) for place, type_ in passed] for passed in passed_lists
        ],
        "maps": [_map_context(text) for text in maps],
        "max_maps": max((_map_count(passed) for passed in passed_lists), default=0) or 1,
        "types": list(TYPES.items()),
        "type_names": [(name, TYPES[type_]) for name, type_ in _type_names().items()],
        "dtypes": [(type_, name) for name, type_ in TORCH_DTYPES.items()],
        "type_mask": TYPE_MASK,
        "hint_16": HINT_16,
        "hint_1": HINT_1,
    }


def _type_names() -> dict[str, str]:
    """Element types by the names of torch's `dtype` objects, and of those of Triton's language."""
    return TORCH_DTYPES | {"int1": "i1"} | {word: word for word in TYPES if word.startswith(("fp", "bf"))}


def symbol_of(package: str) -> str:
    """The name of a package in C, in CMake and of its library."""
    return package.replace(".", "_")


def _package_doc(table: PackageTable) -> str:
    """The doc string of the package."""
    names = ", ".join(kernel.name for kernel in table.kernels)
    lines = [
        table.summary.strip() or f"GPU kernels, compiled ahead of time: {names}.",
        "",
        "Every kernel is a function that launches it on the device of its tensors, in the caller's stream:",
        "torch tensors, objects with __cuda_array_interface__ or __dlpack__, and plain addresses are taken.",
        "explain(kernel, *arguments) prints which cubin a call takes and why; preload(device) loads ahead of the",
        "first launch, which a capture of CUDA graphs needs.",
    ]
    return "\n".join(lines)


class _KernelContext:
    """A kernel's table, whose rows know the number of their list of passed arguments."""

    def __init__(self, table: KernelTable, rows: list[dict[str, Any]]) -> None:
        self.table = table
        self.rows = rows
        self.doc = kernel_doc(table)
        self.grid_names = frozenset(name for axis in table.grid for name in _parse(axis, self).names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)

    def __repr__(self) -> str:
        return repr(self.table)


def _kernel_context(
    kernel: KernelTable, passed_lists: dict[tuple[tuple[int, str], ...], int], archives: Sequence[str]
) -> _KernelContext:
    rows = []
    for row in kernel.rows:
        number = passed_lists.setdefault(row.passed, len(passed_lists))
        counts = {
            "passed_count": len(row.passed),
            "map_count": _map_count(row.passed),
        }
        own = {
            "passed_list": number,
            "archive_number": archives.index(row.archive),
        }
        rows.append({**vars(row), **own, **counts})
    return _KernelContext(kernel, rows)


def _passed_context(place: int, type_: str, maps: Sequence[str]) -> dict[str, int]:
    exponent, mantissa = _FLOAT_BITS.get(type_, (0, 0))
    map_ = maps.index(type_) if type_ in maps else -1
    return {"parameter": place, "exponent": exponent, "mantissa": mantissa, "map": map_}


def _map_count(passed: Sequence[tuple[int, str]]) -> int:
    return sum(TensorMapType.parse(type_) is not None for _, type_ in passed)


def _map_context(text: str) -> dict[str, Any]:
    """The fields of a tensor map, from its type: axes innermost first, as the driver has them; -1 - p for
    parameter p."""
    map_ = TensorMapType.parse(text)
    assert map_ is not None

    def fields(words: Sequence[str]) -> list[int]:
        return [int(word) if word.isdigit() else -1 - number_of(word) for word in reversed(words)]

    type_, size = element_type(map_.element)
    return {
        "base": number_of(map_.sources.base),
        "sizes": fields(map_.sources.sizes),
        "strides": fields(map_.sources.strides),
        "box": [*reversed(map_.box)],
        "type": type_,
        "element_bytes": size,
        "swizzle": SWIZZLES[map_.swizzle],
        "fill": int(map_.fill_nan),
    }


def c_string(text: str) -> str:
    """A C string literal: everything but plain ASCII is written as octal escapes, as are `?` (trigraphs),
    quotes, backslashes."""
    plain = _NOT_PLAIN.sub(lambda match: b"\\%03o" % match[0][0], text.encode())
    return f'"{plain.decode()}"'


def c_doc(kernel: _KernelContext) -> str:
    """The doc string of a function in C: a signature that `inspect` reads, and the text, one literal for each
    line."""
    text = (
        kernel.table.name
        + selection.signature(kernel.table).replace("(", "($module, ", 1)
        + "\n--\n\n"
        + kernel.doc
    )
    return "\n".join("      " + c_string(line) for line in text.splitlines(keepends=True))


def _reference(kernel: _KernelContext) -> Callable[[str], str]:
    places = {parameter.name: index for index, parameter in enumerate(kernel.parameters)}

    def reference(name: str) -> str:
        if name in places:
            return f"arguments[{places[name]}].integer"
        if name == expressions.NUM_SMS and name not in kernel.constants:
            return name
        return f"constants[{kernel.constants.index(name)}]"

    return reference


def _parse(text: str, kernel: _KernelContext) -> expressions.Expression:
    names = [*(parameter.name for parameter in kernel.parameters), *kernel.constants, expressions.NUM_SMS]
    return expressions.parse(text, names, f'kernel "{kernel.name}"')


def c_condition(text: str, kernel: _KernelContext) -> str:
    """A run-time condition in C."""
    return expressions.to_c(_parse(text, kernel), _reference(kernel))


def c_grid(text: str, kernel: _KernelContext) -> str:
    """One axis of a grid in C."""
    return expressions.to_c(_parse(text, kernel), _reference(kernel))


def option_value(value: bool | int | float | str) -> str:
    """The fields of an OptionValue: text, integer, number, is_float, and the bit of the type that a text
    names."""
    if isinstance(value, str):
        return f"{c_string(value)}, 0, 0, 0, UINT64_C({TYPES.get(value, 0)})"
    if isinstance(value, float):
        return f"NULL, 0, {value!r}, 1, 0"
    return f"NULL, INT64_C({int(value)}), 0, 0, 0"


def python_doc(text: str, indent: int = 0) -> str:
    """A docstring literal: triple-quoted unless the text has something that would end it, else an ordinary
    literal."""
    if '"""' in text or "\\" in text or text.endswith('"') or not text.replace("\n", "").isprintable():
        return repr(text)
    lines = text.strip().splitlines()
    if len(lines) == 1:
        return f'"""{lines[0]}"""'
    margin = " " * indent
    return '"""' + "\n".join(
        [lines[0], *(margin + line if line else "" for line in lines[1:]), f'{margin}"""']
    )


def pyi_parameters(kernel: _KernelContext) -> list[str]:
    """The annotated parameters of a function's stub, in order."""
    kinds = {"pointer": "_Pointer", "integer": "SupportsIndex", "float": "SupportsFloat"}
    annotations = {"stream": "_Stream", "grid": "_Grid"}
    for option in kernel.options:
        names = sorted({type(value).__name__ for value in option.values})
        annotations[option.name] = " | ".join(
            names if option.required or option.default >= 0 else ["object", "None"]
        )
    positional = [
        f"{p.name}: {kinds[p.kind]}{' | None = None' if p.grid_only else ''}" for p in kernel.table.given
    ]
    return [*positional, *selection.keyword_texts(kernel.table, annotations)]


def kernel_doc(kernel: KernelTable, is_for_c: bool = False) -> str:
    """The doc string of a function, or its comment in C: the author's text, then what the arguments and options
    take."""
    lines = [kernel.doc.strip() or f"Launch the kernel {kernel.name}.", ""]
    shapes = {
        extent[0]: extent[2] for parameter in kernel.parameters if (extent := parameter.extent) is not None
    }
    for index, parameter in enumerate(kernel.given):
        rank = f", {shapes[index]} dimensions, the last one contiguous" if index in shapes else ""
        lines.append(f"{parameter.name}: {_parameter_doc(parameter)}{rank}")
    for option in kernel.options:
        default = "" if option.required else ", by default what the arguments imply"
        default = f", by default {option.values[option.default]!r}" if option.default >= 0 else default
        choices = _choices([repr(value) if value == "" else str(value) for value in option.values])
        lines.append(f"{option.name}: {choices}{default}")
    if is_for_c:
        return "\n".join(lines) + "\n"
    lines.append(
        "stream: a torch.cuda.Stream or address of a CUstream, by default torch's current one, else the legacy stream"
    )
    default = f", by default ({', '.join(kernel.grid)})" if kernel.grid else ""
    lines.append(f"grid: programs along each axis{default}")
    return "\n".join(lines) + "\n"


def _parameter_doc(parameter: LaunchParameter) -> str:
    kind = {"pointer": "tensor of ", "integer": "integer, ", "float": "number, "}[parameter.kind]
    return kind + _choices(parameter.types) + (", for the default grid" if parameter.grid_only else "")


def _choices(words: Sequence[str]) -> str:
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
