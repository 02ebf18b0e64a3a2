"""The bill of materials of a wheel: `.dist-info/sboms/kbuild.cdx.json` (PEP 770), in CycloneDX 1.6.

    metadata.component     the wheel
    metadata.tools         what made it: kbuild, ptxas, llvmlite and its LLVM, the C compiler
    components             what is in it: kbuild's launcher, and the files that the kernels were compiled from
    dependencies           that the first consists of the last

It is the same for the same wheel wherever that is made: it has neither a serial number nor paths of the machine, and
a time only where SOURCE_DATE_EPOCH gives one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from packaging.utils import canonicalize_name

from kbuild import __version__
from kbuild.aot.artifact.distribution import Distribution

FILE = "sboms/kbuild.cdx.json"
"""Its place in the wheel's `.dist-info`."""

_KBUILD = {"type": "application", "licenses": [{"license": {"id": "Apache-2.0"}}]}
_LLVM_LICENSE = [{"expression": "Apache-2.0 WITH LLVM-exception"}]
_NVIDIA = {
    "supplier": {"name": "NVIDIA Corporation"},
    "licenses": [{"license": {"name": "NVIDIA CUDA Toolkit End User License Agreement"}}],
}
_TOOLS: dict[str, dict[str, Any]] = {
    "kbuild": _KBUILD,
    "ptxas": {"type": "application", **_NVIDIA},
    "nvrtc": {"type": "library", **_NVIDIA},
    "llvmlite": {"type": "library", "licenses": [{"license": {"id": "BSD-2-Clause"}}]},
    "LLVM": {"type": "library", "licenses": _LLVM_LICENSE},
    "clang": {"type": "application", "licenses": _LLVM_LICENSE},
    "gcc": {"type": "application", "licenses": [{"license": {"id": "GPL-3.0-or-later"}}]},
}
"""What is known of the tools, besides their versions."""
_FROM_PYPI = ("kbuild", "llvmlite")


def bill_of_materials(
    distribution: Distribution,
    sources: Mapping[str, str],
    tools: Mapping[str, str],
    epoch: int | None = None,
) -> bytes:
    """The text of the bill.

    `sources` maps files of the project to their sha256, `tools` names to versions; `epoch` is SOURCE_DATE_EPOCH.
    """
    wheel = {
        "type": "library",
        "bom-ref": "wheel",
        "name": distribution.project,
        "version": distribution.version,
        "purl": _purl(distribution.project, distribution.version),
    }
    wheel |= {"licenses": found} if (found := list(_licenses(distribution))) else {}
    parts = [_launcher(), *(_source(path, digest) for path, digest in sorted(sources.items()))]
    metadata: dict[str, Any] = {} if epoch is None else {"timestamp": _time(epoch)}
    metadata |= {
        "lifecycles": [{"phase": "build"}],
        "tools": {"components": [_tool(name, version) for name, version in sorted(tools.items())]},
        "component": wheel,
    }
    bill = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": metadata,
        "components": parts,
        "dependencies": [
            {"ref": "wheel", "dependsOn": [part["bom-ref"] for part in parts]},
            *({"ref": part["bom-ref"]} for part in parts),
        ],
    }
    return json.dumps(bill, indent=1, ensure_ascii=False).encode() + b"\n"


def _licenses(distribution: Distribution) -> Iterator[dict[str, Any]]:
    """The licence that METADATA has: an SPDX expression, or a text of the old form."""
    for line in distribution.headers.splitlines():
        name, _, value = line.partition(": ")
        if name == "License-Expression":
            yield {"expression": value}
        elif name == "License":
            yield {"license": {"name": value}}


def _launcher() -> dict[str, Any]:
    """kbuild's share of what is installed: the launcher in C, and the Python modules around it."""
    name, ref = "kbuild launcher", "launcher"
    made = {**_KBUILD, "type": "library", "bom-ref": ref, "name": name, "version": __version__}
    return made | {"purl": _purl("kbuild", __version__)}


def _source(path: str, digest: str) -> dict[str, Any]:
    hashes = [{"alg": "SHA-256", "content": digest}]
    return {"type": "file", "bom-ref": f"source:{path}", "name": path, "hashes": hashes}


def _tool(name: str, version: str) -> dict[str, Any]:
    known = _TOOLS.get(name, {"type": "application"})
    made = {**known, "bom-ref": f"tool:{name}", "name": name, "version": version}
    return made | ({"purl": _purl(name, version)} if name in _FROM_PYPI else {})


def _purl(name: str, version: str) -> str:
    """The package URL of a project on PyPI; `+` is one of the characters that it escapes."""
    return f"pkg:pypi/{canonicalize_name(name)}@{version.replace('+', '%2B')}"


def _time(epoch: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch))
