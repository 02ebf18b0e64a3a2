"""What another machine does for a step: it compiles one variant into an entry of the cache.

Run by `on_worker.py` in the input root of an action (`engine.py`):

    action.json     the job, what tools it needs, and the key of the entry
    project/        the files that the kernel needs, by their names in its project
    entry           made here

It exits with 0 if that succeeded, with `COMPILE_ERROR` where the kernel is wrong, which the machine that asked finds
out for itself, and with another code where this machine cannot do it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from kbuild.aot import toolchain
from kbuild.aot.build.cache import encode
from kbuild.aot.build.compile_variant import compile_parts, digest_of
from kbuild.aot.build.plan import Job
from kbuild.aot.identity import FileDigests
from kbuild.aot.manifest.model import language_of
from kbuild.errors import CompileError, ErrorGroup, KbuildError, ToolError, render
from kbuild.options import CUDA

COMPILE_ERROR = 3
UNABLE = 4
ENTRY = "entry"
"""As `protos.OUTPUT`, which is not loaded here."""


def main() -> int:
    """Does the action in the current directory; the exit code."""
    root = Path.cwd()
    fields = json.loads((root / "action.json").read_bytes())
    try:
        settings = {"compiler": fields["compiler"], "ptxas": _tools(fields["tools"])}
        job = Job.decode(fields["job"])
        os.chdir(root / "project")  # Where messages and line information count from.
        _check_headers(job, fields["source_digest"])
        options = job.variant.portable().options if fields["is_portable"] else job.variant.options
        parts = compile_parts(job, options, settings)
    except (CompileError, ErrorGroup) as error:
        print(render(error), file=sys.stderr)
        return COMPILE_ERROR
    except KbuildError as error:
        print(render(error), file=sys.stderr)
        return UNABLE
    (root / ENTRY).write_bytes(encode(fields["key"], parts))
    return 0


def _tools(wanted: Mapping[str, str]) -> str:
    """The path of ptxas; ToolError unless this machine has the very tools that the entry's key stands for."""
    digests = FileDigests(Path(os.devnull))
    llvm = toolchain.find_llvm()
    if digests.get(Path(llvm.path)) != wanted[llvm.name]:
        versions = ", ".join(f"{name} {version}" for name, version in toolchain.llvm_versions().items())
        raise ToolError(f"{_here()} has {versions}, which is another library than the build's")
    for path in _ptxas():
        if digests.get(Path(path)) == wanted["ptxas"]:
            return path
    raise ToolError(f"{_here()} has no ptxas of the build's version")


def _check_headers(job: Job, source_digest: str) -> None:
    """Raise ToolError where the digest of a kernel in CUDA C++, which knows NVRTC and all headers by their versions, is
    another here.  That of Python's syntax is another with each Python, and knows nothing of the machine."""
    if language_of(job.source) == CUDA and digest_of(job, source_digest) != job.source_digest:
        raise ToolError(f"{_here()} has another NVRTC than the build, or other headers of CUDA")


def _ptxas() -> Iterable[str]:
    yield from (found.path for found in toolchain.installed_ptxas())
    if path := shutil.which("ptxas"):
        yield os.path.realpath(path)


def _here() -> str:
    return os.uname().nodename
