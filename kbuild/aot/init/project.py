"""From the files of a command line to a manifest that loads."""

from __future__ import annotations

import keyword
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.aot.init.draft import draft_kernel
from kbuild.aot.init.guesses import Guess
from kbuild.aot.init.render import ManifestText, add_head, add_kernel
from kbuild.aot.init.source import KernelSource, SourceFile, chosen_kernels, read_source
from kbuild.aot.manifest.kinds import Name
from kbuild.aot.manifest.load import load, load_text
from kbuild.aot.manifest.model import Manifest
from kbuild.errors import CompileError, InternalError, KbuildError, Loc, UsageError, shown_path

_SHADOWED = {*sys.stdlib_module_names, "kbuild", "numpy", "torch", "triton"}


@dataclass
class Initialized:
    """A manifest to write."""

    text: str
    """All of the file, or with `append` what it grows by."""
    kernels: list[str] = field(default_factory=list)
    guesses: list[tuple[int, Guess]] = field(default_factory=list)
    """Lines of the whole file, with what was guessed there."""
    left_out: list[str] = field(default_factory=list)
    """Kernels that no manifest can have, or that this one has already, with the reasons."""


def initialize(
    requests: Mapping[Path, Sequence[str]],
    manifest: Path,
    append: bool = False,
    directory: Path | None = None,
) -> Initialized:
    """The manifest for kernels of files, each with the functions that are meant, or none for all; nothing is
    written.  `directory` names the package where the manifest is made anew."""
    before = manifest.read_bytes() if append else b""
    present = load(manifest, shown_path(str(manifest))) if append else None
    text = ManifestText()
    found = Initialized("")
    if not append:
        add_head(text, package_name((directory or manifest.parent).resolve().name))
    names = {kernel.name for kernel in present.kernels} if present else set[str]()
    for path, functions in requests.items():
        source = _relative(path, manifest)
        _guarded(
            path,
            lambda path=path, functions=functions, source=source: _add_file(
                text, found, read_source(path), functions, source, present, names
            ),
        )
    if not found.kernels:
        if not append:
            raise UsageError("no kernel can be written", help="; ".join(found.left_out))
        return found
    head = before.count(b"\n") + (not before.endswith(b"\n")) + 1 if append else 0
    found.text = ("\n" * (2 - before.endswith(b"\n")) if append else "") + str(text)
    found.guesses = [(head + line, guess) for line, guess in text.guesses]
    _check(before + found.text.encode(), manifest, append)
    return found


def _guarded(path: Path, step: Callable[[], None]) -> None:
    """Runs a step that walks a syntax tree, which may be deeper than Python's stack."""
    try:
        step()
    except RecursionError:
        raise CompileError("the source nests too deeply to be read", Loc(str(path), 1)) from None


def _add_file(
    text: ManifestText,
    found: Initialized,
    file: SourceFile,
    functions: Sequence[str],
    source: str,
    present: Manifest | None,
    names: set[str],
) -> None:
    """Adds the kernels of one file."""
    for kernel in chosen_kernels(file, functions):
        known = present.kernels if present else ()
        same = next((one for one in known if (one.source, one.function) == (source, kernel.name)), None)
        if same:
            found.left_out.append(f"{source}:{kernel.name} is there already, as {same.name}")
            continue
        if reason := _impossible(kernel):
            found.left_out.append(f"{source}:{kernel.name} is left out: {reason}")
            continue
        name = kernel_name(kernel.name, names)
        names.add(name)
        add_kernel(text, draft_kernel(file, kernel, name, source))
        found.kernels.append(name)


def _impossible(kernel: KernelSource) -> str:
    """Why no manifest can have a kernel; empty for all others."""
    names = [parameter.name for parameter in kernel.parameters]
    if len({*names}) < len(names):
        return "two of its parameters have the same name"
    wrong = [parameter.name for parameter in kernel.run_time if not _is_name(parameter.name)]
    return f"a manifest cannot name its parameter {wrong[0]}" if wrong else ""


def _is_name(text: str) -> bool:
    return Name().takes(text)


def kernel_name(function: str, taken: set[str]) -> str:
    """The name in the package: the function's, without `_kernel` at its end."""
    short = re.sub(r"[^A-Za-z0-9_]", "_", function.removesuffix("_kernel")).strip("_")
    candidates = [
        short,
        function.strip("_"),
        f"{short}_kernel",
        *(f"{short or 'kernel'}_{n}" for n in range(2, 10_000)),
    ]
    return next(name for name in candidates if _is_name(name) and name not in taken)


def package_name(directory: str) -> str:
    """An import name like a directory's name, which hides no other module."""
    name = re.sub(r"[^A-Za-z0-9_]+", "_", directory).strip("_").lower()
    if name[:1].isdigit():
        name = f"kernels_{name}"
    if not name:
        return "my_kernels"
    if name in _SHADOWED or keyword.iskeyword(name) or not _is_name(name):
        name = f"{name}_kernels"
    return name[:128]


def _relative(path: Path, manifest: Path) -> str:
    """A source as the manifest names it."""
    root = Path(os.path.realpath(manifest)).parent
    resolved = Path(os.path.realpath(path))
    if not resolved.is_relative_to(root):
        where = (
            f"{shown_path(str(path))} is not below {shown_path(str(root)) or '.'}, the manifest's directory"
        )
        raise UsageError(where, help="-o FILE writes the manifest elsewhere, -C DIR names another project")
    relative = Path(os.path.relpath(resolved, root)).as_posix()
    if not relative.endswith(".py"):
        raise UsageError(f"{shown_path(str(path))} is not a Python file", help="a manifest names files *.py")
    if not relative.isprintable() or "\\" in relative:
        raise UsageError(f"a manifest cannot name the file {relative!a}", help="give it another name")
    return relative


def _check(data: bytes, manifest: Path, append: bool) -> None:
    """That the manifest loads; InternalError where it does not."""
    try:
        load_text(data, manifest, shown_path(str(manifest)))
    except KbuildError as error:
        message = "; ".join(str(single) for single in error.errors())
        if append:
            help = "write another file by -o, and take over from it what you need"
            raise UsageError(f"the kernels cannot be appended: {message}", help=help) from None
        raise InternalError(f"the manifest that init wrote does not load: {message}") from None
