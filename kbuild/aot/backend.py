"""PEP 517: lets `pip` and `build` make the wheel of a project whose pyproject.toml says

    [build-system]
    requires = ["kbuild"]
    build-backend = "kbuild.aot.backend"

With cli/__init__.py this is the only module that reads the environment.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from kbuild.aot.artifact.distribution import read_distribution
from kbuild.aot.artifact.editable import editable_wheel
from kbuild.aot.artifact.sources import reached
from kbuild.aot.build import project as builder
from kbuild.aot.build import results
from kbuild.aot.build.cache import CAPACITY, usable
from kbuild.aot.build.progress import Lines
from kbuild.aot.environment import (
    STRICT,
    cache_capacity,
    cache_directory,
    epoch,
    flag,
    number,
    prepare,
    remote,
)
from kbuild.aot.files import write_files
from kbuild.aot.manifest.load import load
from kbuild.aot.manifest.tuned import FILE as TUNED
from kbuild.errors import ErrorGroup
from kbuild.options import DEFAULTS

_SDIST_FILES = ("kernels.toml", TUNED, "pyproject.toml", "README*", "LICENSE*", "LICENCE*", "NOTICE*")


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """Nothing beyond kbuild itself."""
    return []


def get_requires_for_build_editable(config_settings: dict[str, Any] | None = None) -> list[str]:
    """Nothing beyond kbuild itself."""
    return []


def get_requires_for_build_sdist(config_settings: dict[str, Any] | None = None) -> list[str]:
    """Nothing beyond kbuild itself."""
    return []


def build_wheel(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """Builds the project in the current directory; the name of the wheel in `wheel_directory`."""
    return _built(Path(wheel_directory)).name


def build_editable(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """Builds the project in the current directory for `pip install -e`; the name of the wheel in
    `wheel_directory`."""
    root = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        wheel = _built(Path(folder))
        package = load(root / builder.MANIFEST).package
        data, in_place = editable_wheel(
            wheel.read_bytes(), root, package, read_distribution(root, package), epoch(os.environ)
        )
    write_files({**in_place, Path(wheel_directory, wheel.name): data})
    return wheel.name


def _built(dist: Path) -> Path:
    """The wheel of the project in the current directory, made in `dist`."""
    cache = cache_directory(os.environ)
    environment = dict(os.environ)
    prepare(environment)
    options = builder.BuildOptions(
        project=Path.cwd(),
        environment=environment,
        jobs=number(os.environ, "MAX_JOBS") or 0,
        cache=cache if cache and not usable(cache) else None,
        capacity=cache_capacity(os.environ, CAPACITY),
        remote=remote(environment),
        dist=dist,
        epoch=epoch(os.environ),
        compile=DEFAULTS.changed({"strict": flag(os.environ, STRICT)}),
    )
    result = builder.build(options, Lines(sys.stderr))
    if result.failures:
        raise ErrorGroup(results.grouped(result.failures))
    assert result.wheel is not None
    return result.wheel


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    """Packs manifest, project files, the directories of the kernels and what these import; the name of the
    archive, whose bytes are reproducible."""
    root = Path.cwd()
    manifest = load(root / builder.MANIFEST)
    distribution = read_distribution(root, manifest.package)
    name = f"{distribution.name}-{distribution.version}"
    files = set(distribution.sources)
    files |= {file for pattern in _SDIST_FILES for file in root.glob(pattern) if file.is_file()}
    for kernel in manifest.kernels:
        files |= reached([root / source for source in kernel.sources], root, kernel.include)
        if ":" in kernel.source:  # What another wheel has is not packed.
            continue
        top = root / Path(kernel.source).parts[0]
        files |= (
            set()
            if top.is_file()
            else {file for name in ("*.py", "*.cu", "*.cuh") for file in top.rglob(name)}
        )
    metadata = f"{distribution.headers}\n{distribution.description}".rstrip("\n") + "\n"
    contents = {file.relative_to(root).as_posix(): file.read_bytes() for file in files} | {
        "PKG-INFO": metadata.encode()
    }
    moment = epoch(os.environ) or 0
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, data in sorted(contents.items()):
            member = tarfile.TarInfo(f"{name}/{path}")
            member.size, member.mtime, member.mode = len(data), moment, 0o644
            archive.addfile(member, io.BytesIO(data))
    target = Path(sdist_directory) / f"{name}.tar.gz"
    with target.open("wb") as stream, gzip.GzipFile("", "wb", 9, stream, mtime=moment) as zipped:
        packed.seek(0)
        shutil.copyfileobj(packed, zipped)
    return target.name
