"""Editable installations (PEP 660): the project's own modules are imported from where they are edited.

    wheel                          editable wheel           in the project
    fast_norms/__init__.py         fast_norms.pth           src/fast_norms/__init__.py, as it was
    fast_norms/kernels/…                                    src/fast_norms/kernels/…, which git ignores
    fast_norms-1.0.dist-info/…     the same

Kernels that are a package of their own stay in the wheel: only those inside a package of the project have to lie
beside its modules, since Python looks for them there.  Either way a changed kernel needs another installation.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path, PurePosixPath

from kbuild.aot.artifact.distribution import IGNORED, Distribution
from kbuild.aot.artifact.wheel import packed
from kbuild.aot.manifest.model import Package


def editable_wheel(
    wheel: bytes, root: Path, package: Package, distribution: Distribution, epoch: int | None = None
) -> tuple[bytes, dict[Path, bytes]]:
    """The editable form of a project's wheel, and the files to put into the project.

    `root` is the project's folder.  The name of the wheel is that of the other.
    """
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    entries = {name: data for name, data in entries.items() if name not in distribution.files}
    in_place: dict[Path, bytes] = {}
    if (base := _base(package)) is not None:
        made = [name for name in entries if name.startswith(f"{package.path}/")]
        in_place = {root / base / name: entries.pop(name) for name in made}
        lines = [name.removeprefix(package.path) for name in (*made, f"{package.path}/{IGNORED}")]
        in_place[root / base / package.path / IGNORED] = "".join(
            f"{line}\n" for line in sorted(lines)
        ).encode()
    paths = [str((root / base).resolve()) for base in distribution.roots]
    if paths:
        entries[f"{distribution.name}.pth"] = "".join(f"{path}\n" for path in paths).encode()
    return packed(entries, distribution.info, epoch), in_place


def _base(package: Package) -> PurePosixPath | None:
    """The folder around the project's package that the kernels are part of; None where there is none."""
    top, dot, _ = package.name.partition(".")
    folders = [PurePosixPath(folder) for folder in package.packages]
    return next((folder.parent for folder in folders if dot and folder.name == top), None)
