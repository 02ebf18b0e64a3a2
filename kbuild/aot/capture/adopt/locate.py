"""Where the source of a captured kernel is: a file of the project, or of an installed wheel, with the digest that was
captured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path

from kbuild.aot.capture.records import CapturedKernel
from kbuild.aot.capture.static import static_digest
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
                return Located(source, kernel.name)
        raise NotLocated(f"{candidates[0][1]} is another source than the one that was captured")

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
