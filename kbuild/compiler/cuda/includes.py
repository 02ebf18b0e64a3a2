"""The files that a `.cu` file is made of, and the digest of all that its meaning depends on."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from kbuild.compiler.cuda.headers import versions
from kbuild.compiler.cuda.source import CudaSource, read_file, text_of
from kbuild.compiler.cuda.tokens import tokens


@dataclass(frozen=True)
class Closure:
    """A file, and the files of the project that it includes, directly or indirectly."""

    files: dict[str, CudaSource]
    """By path, the file itself first."""
    names: frozenset[str]
    """The names of headers that are not among them: of CUDA, of wheels, or missing."""

    @property
    def words(self) -> frozenset[str]:
        """The identifiers of all files."""
        return frozenset[str]().union(*(source.words for source in self.files.values()))

    @property
    def tested(self) -> frozenset[str]:
        """The macros of which any file asks whether they are defined."""
        return frozenset[str]().union(*(source.tested for source in self.files.values()))

    def definition(self, macro: str) -> tuple[str, int] | None:
        """Where a macro is defined whatever is defined before; None where it is not."""
        places = ((path, source.defined.get(macro)) for path, source in self.files.items())
        return next(((path, line) for path, line in places if line), None)


def closure(path: str, include: Collection[str] = (), root: str = "") -> Closure:
    """The files that a file is made of.  `include` are entries as `header_path` takes them; what lies in wheels is not
    followed.  Raises `UsageError` for a file that cannot be read."""
    folders = [os.path.join(root, entry) for entry in include if ":" not in entry]
    files: dict[str, CudaSource] = {}
    missing: set[str] = set()
    waiting = [path]
    while waiting:
        file = waiting.pop(0)
        if file in files:
            continue
        files[file] = read_file(file)
        for name, is_quoted, _ in files[file].includes:
            found = _find(name, [os.path.dirname(file)] * is_quoted + folders)
            if found:
                waiting.append(found)
            else:
                missing.add(name)
    return Closure(files, frozenset(missing))


def _find(name: str, folders: Iterable[str]) -> str | None:
    paths = (os.path.normpath(os.path.join(folder, name)) for folder in folders)
    return next((path for path in paths if os.path.isfile(path)), None)


def cuda_digest(path: str, places: bool = False, include: Collection[str] = (), root: str = "") -> str:
    """The sha256 of a file's tokens, of those of all files of the project that it includes, and of the versions of
    the compiler and of the headers from wheels.  Comments and places do not count, unless `places` are wanted."""
    found = closure(path, include, root)
    hasher = hashlib.sha256()
    for text in _texts(found, places):
        hasher.update(text.encode())
        hasher.update(b"\0")
    for entry in sorted(versions(include).items()):
        hasher.update(repr(entry).encode())
    return hasher.hexdigest()


def _texts(found: Closure, places: bool) -> Iterator[str]:
    first = os.path.dirname(next(iter(found.files)))
    for file in found.files:
        yield os.path.relpath(file, first)
        for token in tokens(text_of(file)):
            yield f"{token.line}:{token.text}" if places else token.text
