"""The function that a kernel of the manifest names, read from its source without executing it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kbuild.aot.manifest.functions.cuda import cuda_closure, cuda_functions, wanted_constants
from kbuild.aot.manifest.functions.kernel_function import KernelFunction, KernelParameter
from kbuild.aot.manifest.functions.python import python_functions
from kbuild.aot.manifest.model import language_of, source_path
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.reader import ManifestReader, described, names_of, suggestion
from kbuild.errors import KbuildError, shown_path
from kbuild.options import CUDA


def find_function(
    reader: ManifestReader, path: KeyPath, table: Mapping[str, Any], values: Mapping[str, Any]
) -> tuple[str, KernelFunction | None]:
    """The function's name, and its signature; None, with the mistake noted, where there is none."""
    if "source" not in values:
        return "", None
    key, source = (*path, "source"), values["source"]
    language = language_of(source)
    if ":" in source and language == CUDA:
        reader.error(
            key, "kernels in CUDA C++ are files of the project", "`include` may name folders of wheels"
        )
        return "", None
    try:
        file = source_path(source, reader.root)
    except KbuildError as error:
        reader.error(key, error.message, error.help)
        return "", None
    if not file.is_file():
        reader.error(key, f"no {'' if language == CUDA else 'Python '}file {described(source)}")
        return "", None
    if ":" not in source and not file.resolve().is_relative_to(reader.root):
        reader.error(key, f"{described(source)} is outside the project")
        return "", None
    if values.get("language", language) != language:
        reader.error(
            (*path, "language"),
            f"{described(source)} is not in that language",
            f'write "{language}", or nothing',
        )
    known = (
        _cuda(reader, path, file, table, values) if language == CUDA else _python(reader, key, file, source)
    )
    if known is None:
        return "", None
    name = values.get("function") or _usual_name(file, values.get("name", ""), known, language)
    if name not in known:
        place = (*path, "function") if "function" in table else key
        close = suggestion(name, known)
        advice = close if "function" in table or not known else f"{close}; the key `function` names it"
        what = "__global__ function" if language == CUDA else "function"
        reader.error(place, f"{source} has no {what} {described(name)}", advice)
        return name, None
    return name, known[name]


def check_digest(reader: ManifestReader, path: KeyPath, values: Mapping[str, Any], name: str) -> None:
    """Notes a source that is another than the one that was captured."""
    # The frontend takes longer to import than manifests to load, and few of them have digests.
    from kbuild.aot.capture.static import static_digest

    try:
        found = static_digest(source_path(values["source"], reader.root), name)
    except KbuildError as error:
        reader.error((*path, "source"), error.message, error.help)
        return
    if found != values["digest"]:
        message = (
            f"{name} of {values['source']} is not what was captured, or takes other constants from its module"
        )
        advice = "capture the library again, or install the version that was captured; without `digest` it is not checked"
        reader.error((*path, "digest"), message, advice)


def _usual_name(file: Path, kernel: str, known: Mapping[str, KernelFunction], language: str) -> str:
    """The function that is meant where the manifest names none."""
    usual = f"{file.stem}_kernel"
    if language == CUDA and usual not in known:
        return kernel if kernel in known or len(known) != 1 else next(iter(known))
    return usual


def _python(
    reader: ManifestReader, key: KeyPath, file: Path, source: str
) -> dict[str, KernelFunction] | None:
    try:
        return python_functions(file)
    except SyntaxError as error:
        reader.error(key, f"{source}:{error.lineno or 1}: {error.msg}")
    except OSError as error:
        reader.error(key, f"{source}: {error.strerror}")
    return None


def _cuda(
    reader: ManifestReader, path: KeyPath, file: Path, table: Mapping[str, Any], values: Mapping[str, Any]
) -> dict[str, KernelFunction] | None:
    """The kernels of a file in CUDA C++; what it includes has to lie in the project."""
    for index, entry in enumerate(values.get("include", ())):
        if ":" not in entry and not (reader.root / entry).is_dir():
            reader.error((*path, "include", index), f"no folder {described(entry)}")
    try:
        found = cuda_closure(file, values.get("include", ()), reader.root)
    except KbuildError as error:
        reader.error((*path, "source"), error.message, error.help)
        return None
    for included in found.files:
        if not Path(included).resolve().is_relative_to(reader.root):
            message = (
                f"{described(values['source'])} includes {shown_path(included)}, which is outside the project"
            )
            reader.error(
                (*path, "source"),
                message,
                "what a kernel includes is part of its project, or lies in a folder of `include`",
            )
    return cuda_functions(found, wanted_constants(table))


def presumed_function(table: Mapping[str, Any]) -> KernelFunction:
    """A function with the parameters that the tables name, so that a missing function hides no other mistake."""
    configs = table.get("config")
    tables = [
        table.get("args"),
        table.get("matrix"),
        table.get("defaults"),
        *(configs if isinstance(configs, list) else ()),
    ]
    run_time, *compile_time = ([*entry] if isinstance(entry, Mapping) else [] for entry in tables)
    run_time = [name for key in run_time for name in names_of(key)]
    names = dict.fromkeys(run_time, False) | {
        name: True for entry in compile_time for name in entry if name not in run_time
    }
    language = language_of(str(table.get("source", "")))
    return KernelFunction(
        tuple(KernelParameter(name, is_constexpr, has_default=True) for name, is_constexpr in names.items()),
        "",
        language=language,
    )
