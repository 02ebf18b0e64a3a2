"""Records of the files that the steps of a build made, by which the next build, and the step that packs the
wheel, check them.

A step leaves one record beside its files:

    {"files": {"sm_90/scale/<variant>.cubin": "<sha256>", …}, "made_from": "<digest>", …, "seal": "<sha256 of
    all that>"}

Names are relative to the build directory.  A file that was cut short, emptied by a power failure, flipped by
a disk or made by a client that did nothing does not fit its record; neither does one that was made from
other inputs than those of now. Whatever does not fit is made again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kbuild.aot.files import write_files
from kbuild.aot.identity import bytes_digest, seal, unseal


def write(
    build: Path,
    record: str,
    files: Mapping[str, bytes],
    made_from: str,
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Writes the files of a step, and its record, with `facts` in it."""
    digests = {name: bytes_digest(data) for name, data in files.items()}
    sealed = seal({**(facts or {}), "files": digests, "made_from": made_from})
    write_files({build / name: data for name, data in {**files, record: sealed}.items()})


def read(build: Path, record: str, made_from: str) -> tuple[dict[str, Any], dict[str, bytes]] | None:
    """A record, and the files that it names: None unless all were made from these inputs and are unchanged
    since."""
    try:
        fields = unseal((build / record).read_bytes())
        if fields is None or fields.get("made_from") != made_from:
            return None
        files = {name: (build / name).read_bytes() for name in fields["files"]}
    except OSError:
        return None
    return (
        (fields, files)
        if all(bytes_digest(data) == fields["files"][name] for name, data in files.items())
        else None
    )
