"""A wheel's kernels as Hugging Face's `kernels` loads them from the Hub.

    build/torch-stable-abi20-cu130-x86_64-linux/
        metadata.json               what the loader reads first
        __init__.py, …              the files of the package, as in the wheel
        my_kernels/__init__.py      the same for loaders before they took it from the folder above

A variant's folder names what it needs; the loader takes the first that fits the machine.

* `torch-stable-abi20`: torch 2.0 or newer.  The launcher uses nothing of torch's, and so is as stable as what links
  only against its stable ABI.  The variants without a processor in their names, `torch-cuda` and the former
  `torch-universal`, are for kernels in Python alone.
* `cu130`: torch of CUDA 13, of which 13.0 is old enough.  Such a torch needs a driver that runs the cubins; where
  cubins also run with the drivers of CUDA 12, there is a `cu120` with the same files.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import Version

from kbuild.aot.artifact.archive import read_index
from kbuild.aot.artifact.platforms import machine_of
from kbuild.compiler.backend import ptxas_wheels
from kbuild.errors import UsageError
from kbuild.targets import find_target

METADATA = "metadata.json"
"""What a folder with a variant has, for loaders to read first."""
_FRAMEWORK = "torch-stable-abi20"
_NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]")
"""Names of kernels on the Hub."""

_FORWARD = '''\
"""For loaders that look for the kernel here: it lies in the folder around this one."""

import importlib.util
import sys
from pathlib import Path

_name = __name__ + "_flat"
_spec = importlib.util.spec_from_file_location(_name, Path(__file__).parents[1] / "__init__.py")
_module = importlib.util.module_from_spec(_spec)
sys.modules[_name] = _module
_spec.loader.exec_module(_module)
__all__ = _module.__all__
globals().update({name: getattr(_module, name) for name in __all__})
'''


def hub_files(wheel: Path) -> dict[str, bytes]:
    """The files of a repository on the Hub that hold a wheel's kernels, by their paths in it.

    Raises UsageError for another file than a wheel of kbuild, and for a name that the Hub does not take.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            entries = {name: archive.read(name) for name in archive.namelist()}
    except FileNotFoundError:
        raise UsageError(f"no file {wheel}") from None
    except (OSError, zipfile.BadZipFile) as error:
        raise UsageError(f"{wheel.name} is not a wheel, or damaged: {error}") from None
    launchers = [name for name in entries if name.endswith("/_launcher.abi3.so")]
    headers = [name for name in entries if name.endswith(".dist-info/METADATA")]
    if len(launchers) != 1 or len(headers) != 1:
        raise UsageError(f"{wheel.name} is not a wheel of kbuild: it has no launcher")
    folder = launchers[0].rpartition("/")[0]
    said = Parser().parsestr(entries[headers[0]].decode())
    name = canonicalize_name(said["Name"])
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name} cannot be the name of a kernel on the Hub, which begins with a letter",
            help="package.distribution gives the wheel another name",
        )
    module = name.replace("-", "_")
    files = {
        path.removeprefix(f"{folder}/"): data
        for path, data in entries.items()
        if path.startswith(f"{folder}/")
    }
    files[f"{module}/__init__.py"] = _FORWARD.encode()
    files[METADATA] = _metadata(name, said, files)
    machine = machine_of(wheel.stem.rpartition("-")[2])
    places = [f"build/{_FRAMEWORK}-{cuda}-{machine}-linux" for cuda in _cuda_versions(_driver(said))]
    return {f"{place}/{path}": data for place in places for path, data in files.items()}


def _metadata(name: str, said: Message, files: Mapping[str, bytes]) -> bytes:
    """The file `metadata.json`; its digests are of all other files."""
    digests = {path: hashlib.sha256(data).digest() for path, data in sorted(files.items())}
    unique = hashlib.sha256(repr(digests).encode()).hexdigest()[:10]
    archives = [data for path, data in sorted(files.items()) if path.endswith(".kbz")]
    fields = {
        "name": name,
        "id": f"_{name.replace('-', '_')}_cuda_{unique}",
        "version": Version(said["Version"]).major,
        "license": said["License-Expression"] or "unknown",
        "python-depends": [],
        "backend": {"type": "cuda", "archs": _capabilities(archives)},
        "digest": {
            "algorithm": "sha256",
            "files": {path: base64.b64encode(digest).decode() for path, digest in digests.items()},
        },
    }
    return json.dumps(fields, indent=2).encode() + b"\n"


def _capabilities(archives: Iterable[bytes]) -> list[str]:
    """The architectures of archives as CUDA's compute capabilities, in order: `9.0`, or `9.0+PTX`."""
    found: dict[int, str] = {}
    for data in archives:
        entries = read_index(data)
        for capability in {_capability(entry) for entry in entries}:
            has_ptx = any(entry["kind"] == "ptx" and _capability(entry) == capability for entry in entries)
            found[capability] = f"{capability // 10}.{capability % 10}" + "+PTX" * has_ptx
    return [text for _, text in sorted(found.items())]


def _capability(entry: Mapping[str, Any]) -> int:
    return find_target(entry["arch"].rstrip("af")).capability


def _driver(said: Message) -> int:
    """The branch of drivers that a wheel needs, by its metadata."""
    lines = said.get_all("Requires-External") or []
    found = [re.fullmatch(r"nvidia-driver \(>=(\d+)\)", str(line)) for line in lines]
    return next((int(match[1]) for match in found if match), ptxas_wheels.OLDEST_DRIVER)


def _cuda_versions(driver: int) -> Iterator[str]:
    """The oldest version of each CUDA that comes with a driver of this branch or a newer one, as `cu130`."""
    fitting = [version for version, branch in sorted(ptxas_wheels.DRIVERS.items()) if branch >= driver]
    seen: set[int] = set()
    for version in fitting or [max(ptxas_wheels.DRIVERS)]:
        major, minor = version // 1000, version % 1000 // 10
        if major not in seen:
            seen.add(major)
            yield f"cu{major}{minor}"
