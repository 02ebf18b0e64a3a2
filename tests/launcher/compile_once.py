"""A C compiler that compiles each text once: the tests make the same launcher again and again, mostly without a cache,
which takes five seconds of a processor each time.

`with_compilers(programs, kept)` puts it before the compilers on PATH, as `cc` and `gcc`. A command whose flags it knows is
answered from the folder `kept`, by the preprocessed sources, the contents of objects and the arguments; all others, and
those that fail or warn, are the compiler's own. `REAL` in the environment turns it off for tests of what the compiler does.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

REAL = "REAL_CC"
"""Where this is set, all commands are the compiler's own."""
NAMES = ("cc", "gcc")
_KEPT = "kept"
"""The file beside them that names the folder of this run."""
_KNOWN = re.compile(
    r"-(c|s|shared|pthread|[OWDUI].*|std=.*|f(?!stack-usage|profile|dump|sanitize).*|l(dl|pthread|m))"
)
"""Flags with which the output follows from the texts: none that makes more files, or looks for others."""


def with_compilers(programs: Path, kept: Path) -> dict[str, str]:
    """What to set in the environment so that commands find these compilers, which are written to the folder `programs`: the
    same in each run, as what is compiled by a program of another path or text has another identity in caches."""
    path = os.environ["PATH"]
    if str(programs) in path.split(os.pathsep):
        return {}  # A run within a run.
    programs.mkdir(parents=True, exist_ok=True)
    (programs / _KEPT).write_text(str(kept))
    for name in NAMES:
        if real := shutil.which(name, path=path):
            program = programs / name
            words = [sys.executable, "-I", "-S", __file__, str(programs / _KEPT), real]
            program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            program.chmod(0o755)
    return {"PATH": f"{programs}{os.pathsep}{path}"}


def key_of(real: str, arguments: list[str]) -> str:
    """What the output of a command follows from, as a digest; empty where that is not known."""
    digest, sources, flags = hashlib.sha256(), [], []
    for argument in arguments:
        if argument.startswith("-"):
            if not _KNOWN.fullmatch(argument):
                return ""
            flags.append(argument)
        elif argument.endswith(".c"):
            sources.append(argument)
        else:
            try:
                digest.update(hashlib.sha256(Path(argument).read_bytes()).digest())
            except OSError:
                return ""
    if not sources:
        return ""
    command = [real, *(flag for flag in flags if flag not in ("-c", "-shared", "-s")), "-E", *sources]
    preprocessed = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if preprocessed.returncode:
        return ""
    digest.update("\0".join((real, *flags)).encode())
    digest.update(preprocessed.stdout)
    return digest.hexdigest()


def main(kept: Path, real: str, arguments: list[str]) -> int:
    """Run a command of the compiler, or take its output from the folder."""
    place = arguments.index("-o") + 1 if "-o" in arguments[:-1] else 0
    known = place and REAL not in os.environ and kept.is_dir()
    key = key_of(real, arguments[: place - 1] + arguments[place + 1 :]) if known else ""
    if not key:
        os.execv(real, [real, *arguments])
    output, stored = Path(arguments[place]), kept / key
    if stored.exists():
        output.unlink(missing_ok=True)
        shutil.copy(stored, output)
        return 0
    done = subprocess.run([real, *arguments], stderr=subprocess.PIPE)
    sys.stderr.buffer.write(done.stderr)
    if done.returncode == 0 and not done.stderr:
        part = kept / f"{key}.{os.getpid()}"
        shutil.copy(output, part)
        part.replace(stored)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(Path(Path(sys.argv[1]).read_text()), sys.argv[2], sys.argv[3:]))
