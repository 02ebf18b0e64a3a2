"""`kbuild doctor`: the tools that a build would use, and what is missing."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from kbuild import __version__
from kbuild.aot import toolchain
from kbuild.aot.build.cache import usable
from kbuild.aot.build.launcher import python_headers
from kbuild.aot.environment import cache_directory
from kbuild.errors import KbuildError, ToolError

Row = tuple[str, str, bool]
"""What was looked for, what was found, and whether that is enough."""

_GPU = ("cuda-core", "cuda-bindings")
"""The packages of the extra `gpu`."""


def run(options: argparse.Namespace) -> int:
    rows = [
        ("kbuild", f"{__version__}; {Path(__file__).parents[2]}", True),
        ("python", f"{sys.version.split()[0]}; {sys.executable}", sys.version_info >= (3, 10)),
        _found("ptxas", lambda: _ptxas(toolchain.find_ptxas(options.environment))),
        _found("llvmlite", lambda: _library(toolchain.find_llvm())),
        _found("ninja", lambda: _program(toolchain.find_ninja(options.environment))),
        _found("cc", lambda: _program(toolchain.find_cc(options.environment))),
        _found("Python.h", python_headers),
        _cache(cache_directory(options.environment)),
        _gpu(),
        _nvrtc(),
    ]
    if options.json:
        print(
            json.dumps([{"name": name, "found": text, "good": good} for name, text, good in rows], indent=1)
        )
    else:
        for name, text, good in rows:
            print(f"{'ok     ' if good else 'missing'}  {name:9} {text}")
    return 0 if all(good for _, _, good in rows) else 1


def _found(name: str, find: Callable[[], str]) -> Row:
    try:
        return name, find(), True
    except KbuildError as error:
        return name, "; ".join(text for text in (error.message, error.help) if text), False


def _program(tool: toolchain.Tool) -> str:
    version = toolchain.version(tool)
    if version.startswith("("):
        raise ToolError(f"{tool.path} ({tool.origin}) does not run: {version[1:-1]}")
    return f"{version}; {tool.path} ({tool.origin})"


def _ptxas(tool: toolchain.Tool) -> str:
    """The ptxas of a build that asks for none, which drivers run what it makes, and what else there is."""
    text = f"{_program(tool)}; for drivers from {toolchain.oldest_driver(tool)} on"
    others = [one.name for one in toolchain.installed_ptxas() if one.path != tool.path]
    return text + (f"; also installed: {', '.join(others)}" if others else "")


def _library(tool: toolchain.Tool) -> str:
    return f"{metadata.version(tool.name)}; {tool.path}"


def _cache(directory: Path | None) -> Row:
    if directory is None:
        return "cache", "switched off", True
    why = usable(directory)
    return "cache", f"building without one: {why}" if why else str(directory), not why


def _nvrtc() -> Row:
    """What builds without kernels in CUDA C++ do without."""
    try:
        return "nvrtc", toolchain.nvrtc_version(), True
    except ToolError as error:
        return "nvrtc", f"{error.message}: {error.help}", True


def _gpu() -> Row:
    """What builds do without."""
    try:
        return "gpu", ", ".join(f"{name} {metadata.version(name)}" for name in _GPU), True
    except metadata.PackageNotFoundError as error:
        return (
            "gpu",
            f"{error.name} is not installed: kbuild tune, kbuild run --device and kbuild.load take kbuild[gpu]",
            True,
        )
