"""The only hashing of builds: whether two cubins are the same, judged by what goes into them.

A digest is sha256 of canonical JSON.  Paths, clocks, line numbers and the environment are not in it, so that
a moved line, a copied checkout or a touched file causes no recompilation.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kbuild import __version__
from kbuild.aot.files import templates_directory

_SEAL = "seal"
FORMAT = 1
"""Raised when the meaning of a cubin's facts changes, so that older cache entries are not found."""


def canonical_json(value: object) -> bytes:
    """The one JSON text of a value of plain types: sorted keys, no spaces, ASCII, finite numbers only."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    ).encode()


def digest(value: object) -> str:
    """sha256 of a value of plain types, in hexadecimal."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def bytes_digest(data: bytes) -> str:
    """sha256 of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def seal(fields: Mapping[str, object]) -> bytes:
    """The text of a record, with the digest of its contents."""
    return json.dumps({**fields, _SEAL: digest(fields)}, sort_keys=True, indent=1).encode() + b"\n"


def unseal(data: bytes) -> dict[str, Any] | None:
    """The value that `seal` wrote as these bytes; None if it did not write them."""
    try:
        fields = json.loads(data)
        del fields[_SEAL]
        return fields if seal(fields) == data else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def tree_digest(root: Path, patterns: Iterable[str]) -> str:
    """sha256 over names and contents of the files under a directory that match one of the patterns."""
    return digest(_tree(root, patterns))


def _tree(root: Path, patterns: Iterable[str]) -> list[tuple[str, str]]:
    """The names of these files and the sha256 of their contents, sorted."""
    files = sorted({file for pattern in patterns for file in root.rglob(pattern) if file.is_file()})
    return [(file.relative_to(root).as_posix(), bytes_digest(file.read_bytes())) for file in files]


def templates_digest(root: Path | None = None) -> str:
    """sha256 over the inputs of a package apart from its kernels: sources of the launcher and templates."""
    return tree_digest(root or templates_directory(), ["launcher/**/*", "package/**/*"])


def compiler_digest(root: Path | None = None) -> str:
    """sha256 over the sources of the compiler: `kbuild/compiler/**/*.py`, the architectures, and the options.

    It reads a megabyte of text in a few milliseconds, which no record of file times would make safer or much
    faster.
    """
    return digest(compiler_files(root))


def compiler_files(root: Path | None = None) -> list[tuple[str, str]]:
    """The files that `compiler_digest` is over, each with its sha256."""
    return _tree(root or Path(__file__).parents[1], ["compiler/**/*.py", "targets/*.py", "options.py"])


def kbuild_identity(compiler: str = "") -> dict[str, str]:
    """This kbuild: its version, and a digest of all that makes packages; `compiler` is that of the compiler, where it is
    known."""
    root = Path(__file__).parents[1]
    parts = [compiler or compiler_digest(), tree_digest(root / "aot", ["*.py"]), templates_digest()]
    return {"version": __version__, "digest": digest(parts)}


def request_digest(
    request: Mapping[str, object], source: str, compiler: str, tools: Mapping[str, str]
) -> str:
    """The identity of one cubin.

    `request` is what `compile()` is asked for (function, signature, constexprs, target, options), `source`
    the digest of the kernel and all it reaches, `compiler` that of the compiler, `tools` those of the
    binaries it runs.
    """
    return digest(
        {"format": FORMAT, "request": request, "source": source, "compiler": compiler, "tools": dict(tools)}
    )


class FileDigests:
    """sha256 of large files that seldom change (ptxas, libLLVM), remembered by size and times of the file.

    Only binaries of the tool chain are remembered so; the project's own files are read each time.
    """

    def __init__(self, record: Path) -> None:
        self._known: dict[str, list[object]] = {}
        with suppress(OSError):
            self._known = unseal(record.read_bytes()) or {}

    def get(self, file: Path) -> str:
        """The digest of a file, read again if its size, inode or times differ from those recorded."""
        status = file.stat()
        state = [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]
        entry = self._known.get(str(file))
        if isinstance(entry, list) and len(entry) == 5 and entry[:4] == state and isinstance(entry[4], str):
            return entry[4]
        found = _installed_digest(file, status.st_size, status.st_mtime_ns) or _read_digest(file)
        self._known[str(file)] = [*state, found]
        return found

    def record(self) -> bytes:
        """The record to write."""
        return seal(self._known)


def _read_digest(file: Path) -> str:
    with file.open("rb") as stream:
        found = hashlib.sha256()
        while chunk := stream.read(1 << 20):
            found.update(chunk)
    return found.hexdigest()


def _installed_digest(file: Path, size: int, mtime_ns: int) -> str | None:
    """The digest that the wheel a file was installed from gives for it in its RECORD, the format of PEP 376.

    None where that line is missing, the size is another, or the file is younger than the RECORD, which
    installers write last.  Reading ptxas and LLVM instead, 230 MB, takes as long as compiling two variants,
    before any can start.
    """
    for directory in (parent for parent in file.parents if str(parent) in sys.path):
        line = b"\n" + file.relative_to(directory).as_posix().encode() + b",sha256="
        for record in directory.glob("*.dist-info/RECORD"):
            _, found, rest = (b"\n" + record.read_bytes()).partition(line)
            if found and record.stat().st_mtime_ns >= mtime_ns:
                encoded, _, length = rest.split(b"\n", 1)[0].strip().partition(b",")
                if length == str(size).encode():
                    return base64.urlsafe_b64decode(encoded + b"=").hex()
    return None
