"""Writes wheels: the same bytes for the same files, whatever the day, the user and the directory.

A wheel is a zip archive in the one form that all installers read alike: sorted names, fixed times and modes,
no data descriptors, no duplicate names, RECORD last.
"""

from __future__ import annotations

import base64
import hashlib
import io
import time
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from kbuild import __version__
from kbuild.aot.artifact.distribution import Distribution
from kbuild.aot.manifest.model import Package
from kbuild.compiler.backend import ptxas_wheels
from kbuild.errors import ToolError

_EARLIEST = 315532800
"""1980-01-01, the first day that zip archives can store, in seconds since 1970."""


def make_wheel(
    files: Mapping[str, bytes],
    package: Package,
    distribution: Distribution,
    platform: str,
    epoch: int | None = None,
    driver: int = 0,
    information: Mapping[str, bytes] | None = None,
) -> tuple[str, bytes]:
    """The name and the bytes of the wheel with these files (paths with /, contents) and those of the distribution.

    `epoch` is SOURCE_DATE_EPOCH, seconds since 1970, for the times in the archive; 1980 when None.  `driver`
    is the branch of drivers from which on the cubins run; the wheel says so unless it is 0.  `information` are
    further files of its `.dist-info`.  Raises ToolError where project and kbuild have a file of one name.
    """
    tag = f"cp310-abi3-{platform}"
    info = distribution.info
    wheel = f"Wheel-Version: 1.0\nGenerator: kbuild {__version__}\nRoot-Is-Purelib: false\nTag: {tag}\n"
    for name in sorted(files.keys() & distribution.files.keys()):
        raise ToolError(
            f"{name}: kbuild makes this file, and the project has one of its own",
            help="choose another package.name, such as one with a dot and a further word",
        )
    entries = {
        **files,
        **distribution.files,
        f"{info}/METADATA": _metadata(package, distribution, driver).encode(),
        f"{info}/WHEEL": wheel.encode(),
        **{f"{info}/licenses/{path}": data for path, data in distribution.licenses.items()},
        **{f"{info}/{path}": data for path, data in (information or {}).items()},
    }
    if distribution.entry_points:
        entries[f"{info}/entry_points.txt"] = distribution.entry_points.encode()
    name = f"{distribution.name}-{distribution.version}-{tag}.whl"
    return name, packed(entries, info, epoch)


def packed(entries: Mapping[str, bytes], info: str, epoch: int | None = None) -> bytes:
    """The archive of a wheel's files; RECORD is made, in the folder `info`."""
    files = {name: data for name, data in sorted(entries.items()) if name != f"{info}/RECORD"}
    for name in files:
        if name.startswith("/") or "\\" in name or ".." in name.split("/"):
            raise ValueError(f"{name!r} cannot be the name of a file in a wheel")
    record = "".join(f"{name},sha256={_record_digest(data)},{len(data)}\n" for name, data in files.items())
    return _zip([*files.items(), (f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode())], epoch)


def _metadata(package: Package, distribution: Distribution, driver: int) -> str:
    """The file METADATA; the readme, or else what users need, is its text."""
    headers, text = distribution.headers, distribution.description
    if driver:
        headers += f"Requires-External: nvidia-driver (>={driver})\n"
    if driver and not text:
        headers += "Description-Content-Type: text/plain\n"
        text = requirements(package, driver) + "\n"
    return f"{headers}\n{text}" if text else headers


def requirements(package: Package, driver: int) -> str:
    """What the users of a package need, in a sentence."""
    archs = " or ".join(
        f"{arch}, and newer GPUs" if arch in package.ptx_archs else arch for arch in package.archs
    )
    cuda = ptxas_wheels.cuda_of(driver)
    shown = f" (CUDA {cuda // 1000}.{cuda % 1000 // 10})" if cuda else ""
    return f"Needs an NVIDIA GPU ({archs}) with a driver {driver} or newer{shown}, and neither CUDA's toolkit nor a compiler."


def _record_digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _zip(entries: Iterable[tuple[str, bytes]], epoch: int | None) -> bytes:
    moment = time.gmtime(max(epoch if epoch is not None else _EARLIEST, _EARLIEST))[:6]
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in entries:
            info = zipfile.ZipInfo(name, moment)
            info.create_system = 3  # Unix, for the modes below to count.
            info.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
            # Archives of cubins are compressed already; storing them also keeps them the same under any zlib.
            info.compress_type = zipfile.ZIP_STORED if name.endswith(".kbz") else zipfile.ZIP_DEFLATED
            archive.writestr(info, data, compresslevel=9)
    return stream.getvalue()


def read_tree(root: Path, patterns: Iterable[str], base: Path | None = None) -> dict[str, bytes]:
    """The files under a directory that match one of the patterns, by their path from `base`, or the
    directory's parent."""
    found = {file for pattern in patterns for file in root.rglob(pattern) if file.is_file()}
    return {file.relative_to(base or root.parent).as_posix(): file.read_bytes() for file in sorted(found)}
