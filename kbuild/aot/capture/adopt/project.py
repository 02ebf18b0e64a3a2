"""From captures to the files of a project."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.aot.capture.adopt.calls import Calls, grouped_calls
from kbuild.aot.capture.adopt.embed import NotEmbedded, embedded, own_name
from kbuild.aot.capture.adopt.locate import Located, Locator, NotLocated
from kbuild.aot.capture.adopt.rows import Table, table_of
from kbuild.aot.capture.adopt.write import FOLDER, head_text, kernel_text
from kbuild.aot.capture.records import Capture, CapturedKernel
from kbuild.aot.capture.static import static_digest
from kbuild.aot.files import write_files
from kbuild.aot.init.project import kernel_name, package_name
from kbuild.aot.manifest.load import load
from kbuild.errors import InternalError, KbuildError, UsageError, shown_path
from kbuild.targets import ARCHS

_USUAL = ("sm_80", "sm_90")


@dataclass(frozen=True)
class Request:
    """What to import."""

    manifest: Path
    libraries: Sequence[str] = ()
    """Packages or modules whose kernels are meant; all of them when empty."""
    archs: Sequence[str] = ()
    """Architectures of the package; those captured when empty."""
    append: bool = False
    """Whether the manifest is there and gets what it does not have."""
    embed: bool = False
    """Whether kernels that no file has are copied into the project."""
    dry_run: bool = False


@dataclass
class Adopted:
    """What was made of captures."""

    files: dict[Path, str] = field(default_factory=dict[Path, str])
    """Texts by file; the manifest's is whole."""
    kernels: dict[str, Table] = field(default_factory=dict[str, Table])
    """The kernels by their names in the manifest."""
    sources: dict[str, Located] = field(default_factory=dict[str, Located])
    notes: list[str] = field(default_factory=list[str])
    """What generalises and what does not, with the kernel."""
    left_out: list[str] = field(default_factory=list[str])
    """Kernels and variants that are not built, with the reasons."""


def adopt(capture: Capture, request: Request) -> Adopted:
    """Makes a manifest of a capture, and writes it with its lists unless that is not wanted.

    Raises UsageError where there is nothing to write, and what reading the manifest raises.
    """
    found = Adopted()
    root = request.manifest.parent
    present = load(request.manifest, shown_path(str(request.manifest))) if request.append else None
    known = (
        {(kernel.source, kernel.function, kernel.digest) for kernel in present.kernels} if present else set()
    )
    names = {kernel.name for kernel in present.kernels} if present else set[str]()
    lines: list[str] = []
    locator = Locator(root)
    for kernel in _wanted(capture, request.libraries):
        variants = [one for one in capture.variants.values() if one.kernel == kernel.id]
        groups = grouped_calls(kernel, variants, capture.lines, found.left_out)
        if not groups:
            continue
        located = _located(kernel, locator, root if request.embed else None, found)
        if located is None:
            continue
        if (located.source, located.function, kernel.digest) in known:
            found.left_out.append(f"{kernel.module}:{kernel.name} is there already")
            continue
        first = kernel_name(located.function, names)
        for index, calls in enumerate(groups):
            name = kernel_name(f"{first}_{index + 1}", names) if index else first
            lines += ["", *_add(name, calls, located, root, found)]
            names.add(name)
    if others := _other_modules(capture, request.libraries):
        found.notes.append(others)
    if not found.kernels:
        if request.append:
            return found
        raise UsageError(
            "no kernel can be written", help="; ".join(found.left_out) or _nothing(capture, request)
        )
    before = request.manifest.read_text() if request.append else _head(capture, request, found)
    found.files[request.manifest] = before.rstrip("\n") + "\n" + "\n".join(lines) + "\n"
    if not request.dry_run:
        _write(found, request)
    return found


def _wanted(capture: Capture, libraries: Sequence[str]) -> list[CapturedKernel]:
    """The kernels that are meant, by module and name."""
    chosen = [
        kernel
        for kernel in capture.kernels.values()
        if not libraries or any(f"{kernel.module}.".startswith(f"{library}.") for library in libraries)
    ]
    return sorted(
        chosen, key=lambda kernel: (kernel.module, kernel.parts[0].line, kernel.name, kernel.digest)
    )


def _other_modules(capture: Capture, libraries: Sequence[str]) -> str:
    """Says which modules with kernels are not meant: libraries generate modules with names of their own."""
    meant = {kernel.id for kernel in _wanted(capture, libraries)}
    others = [kernel.module for kernel in capture.kernels.values() if kernel.id not in meant]
    if not others:
        return ""
    names = sorted(set(others))
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    count = f"{len(others)} kernels of {shown} are" if len(others) > 1 else f"a kernel of {shown} is"
    return f"{count} not meant by --library"


def _nothing(capture: Capture, request: Request) -> str:
    modules = sorted({kernel.module.split(".")[0] for kernel in capture.kernels.values()})
    return f"the capture has kernels of {', '.join(modules)}" if modules else "the capture has no kernels"


def _located(
    kernel: CapturedKernel, locator: Locator, embed_in: Path | None, found: Adopted
) -> Located | None:
    """The source of a kernel, if need be embedded in a project; None, with the reason noted, where there is none."""
    shown = f"{kernel.module}:{kernel.name}"
    try:
        return locator.locate(kernel)
    except NotLocated as why:
        if embed_in is None:
            found.left_out.append(f"{shown}: {why}; --embed copies it as it ran")
            return None
    name = own_name(kernel.parts[0])
    stem = re.sub(r"\W+", "_", name).strip("_") or "kernel"
    folder = f"{FOLDER}/sources"
    try:
        texts = embedded(kernel, f"{stem}_{kernel.digest[:8]}")
    except NotEmbedded as why:
        found.left_out.append(f"{shown} cannot be embedded: {why}")
        return None
    found.files |= {embed_in / folder / name: text for name, text in texts.items()}
    return Located(f"{folder}/{next(iter(texts))}", name)


def _add(name: str, calls: Calls, located: Located, root: Path, found: Adopted) -> list[str]:
    """Adds the kernel of calls of one shape; its lines of the manifest."""
    table = table_of(calls)
    found.kernels[name], found.sources[name] = table, located
    lines, lists = kernel_text(name, table, located)
    found.files |= {root / file: text for file, text in lists.items()}
    if calls.absent:
        table.notes.insert(0, f"for calls without {', '.join(calls.absent)}")
    found.notes += [f"{name}: {note}" for note in table.notes]
    return lines


def _head(capture: Capture, request: Request, found: Adopted) -> str:
    seen = [arch for arch in ARCHS if arch in capture.facts.get("device", ())]
    name = package_name(request.manifest.parent.resolve().name)
    libraries = {table.calls.kernel.module.partition(".")[0] for table in found.kernels.values()}
    if name in libraries:  # A checkout's directory is often called as what it has.
        name = package_name(f"{name}_kernels")
    wheels = {located.source.partition(":")[0] for located in found.sources.values() if ":" in located.source}
    return "\n".join(head_text(name, request.archs or seen or _USUAL, sorted(wheels))) + "\n"


def _write(found: Adopted, request: Request) -> None:
    """Writes the files, the manifest last, which has to load."""
    manifest = request.manifest
    write_files({path: text.encode() for path, text in found.files.items() if path != manifest})
    _check_sources(found, manifest.parent)
    before = manifest.read_bytes() if request.append else None
    write_files({manifest: found.files[manifest].encode()})
    try:
        load(manifest, shown_path(str(manifest)))
    except KbuildError as error:
        if before is None:
            manifest.unlink()
        else:
            write_files({manifest: before})
        message = "; ".join(str(single) for single in error.errors())
        raise InternalError(f"the manifest that import wrote does not load: {message}") from None


def _check_sources(found: Adopted, root: Path) -> None:
    """That embedded sources mean what ran."""
    for name, located in found.sources.items():
        if root / located.source in found.files:
            digest = found.kernels[name].calls.kernel.digest
            if static_digest(root / located.source, located.function) != digest:
                raise InternalError(f"{located.source} is not what was captured")
