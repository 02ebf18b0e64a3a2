"""Where the source of a captured kernel is: a file of the project, or of an installed wheel, with the digest that was
captured."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path

from kbuild.aot.capture.records import CapturedKernel
from kbuild.aot.capture.static import static_digest, static_parts
from kbuild.aot.capture.text import text_digest
from kbuild.aot.manifest.functions.python import python_functions
from kbuild.compiler.frontend.sources.files import is_ambiguous
from kbuild.errors import KbuildError


@dataclass(frozen=True)
class Located:
    """A source as a manifest names it."""

    source: str
    """`ops/norm.py`, or `liger-kernel:liger_kernel/ops/rms_norm.py`."""
    function: str
    """Its function."""


class NotLocated(Exception):
    """A kernel that no file has as it ran; the text says why."""


class Locator:
    """Finds sources for a manifest."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def locate(self, kernel: CapturedKernel) -> Located:
        """The source of a kernel.  Raises `NotLocated`."""
        file = kernel.parts[0].file
        if "." in kernel.name:
            raise NotLocated(
                "it is made within a function, and a manifest names functions at the top of a file"
            )
        candidates = [*self._in_project(file), *self._in_wheels(file)]
        if not candidates:
            raise NotLocated(f"neither this project nor an installed package has {file or 'its file'}")
        for path, source in candidates:
            try:
                found = static_digest(path, kernel.name)
            except KbuildError as error:
                raise NotLocated(error.message) from None
            if found == kernel.digest:
                if kernel.name not in python_functions(path):
                    raise NotLocated(f"{source} has it as no function that a manifest can name")
                return Located(source, kernel.name)
        path, source = candidates[0]
        raise NotLocated(
            f"{source} is another source than the one that was captured: {_difference(kernel, path)}"
        )

    def _in_project(self, file: str) -> Iterator[tuple[Path, str]]:
        """The file below the project's directory, or below a folder there from which packages are imported."""
        places = [self._root / file]
        if not Path(file).is_absolute():
            folders = sorted(
                path for path in self._root.iterdir() if path.is_dir() and path.name.isidentifier()
            )
            places += [folder / file for folder in folders]
        for path in places:
            if path.is_relative_to(self._root) and path.suffix == ".py" and path.is_file():
                yield path, path.relative_to(self._root).as_posix()

    def _in_wheels(self, file: str) -> Iterator[tuple[Path, str]]:
        """The file of installed wheels."""
        package = file.split("/")[0].removesuffix(".py")
        for name in dict.fromkeys(self._distributions.get(package, ())):
            path = Path(str(metadata.distribution(name).locate_file(file)))
            if path.is_file():
                yield path, f"{name}:{file}"

    @cached_property
    def _distributions(self) -> Mapping[str, list[str]]:
        """The installed wheels by the packages that they have."""
        return metadata.packages_distributions()


def _difference(kernel: CapturedKernel, path: Path) -> str:
    """What a kernel's file says otherwise than what ran."""
    found = {text_digest([part.text]): part for part in static_parts(path, kernel.name)}
    for part in kernel.parts:
        name = part.name.rpartition(".")[2]
        same = found.get(text_digest([part.text])) if part.text else None
        if same is None:
            others = [other for other in found.values() if other.name == name]
            if not others:
                return f"it reaches {name} of {part.file} when it runs"
            if is_ambiguous(others[0].file, name):
                return f"{part.file} has several functions {name}, and does not say by itself which of them is meant"
            return f"{name} of {part.file} has another text"
        for value in sorted({*part.values, *same.values}):
            was, says = (
                json.dumps(one.get(value)) if value in one else "" for one in (part.values, same.values)
            )
            if was != says:
                said = f"says {says}" if says else "does not say it by itself"
                return f"{value} was {was or 'nothing'} for {name}, and {part.file} {said}"
    return "it reaches other functions"
