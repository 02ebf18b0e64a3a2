"""A compiler for tests of the build: quick, deterministic, and it notes in `compiled.log` beside the source
what it made.

A line `MODE = "..."` in the kernel's file makes it fail in one of the ways that a compiler can; when it is
slow, it first leaves a file `at_work` there.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kbuild.errors import CompileError, Loc
from kbuild.options import CompileOptions

ELF = b"\x7fELF\x02\x01\x01"


def source_digest(path: Path, function: str, places: bool = False) -> str:
    """The digest of the file's syntax tree, which has no comments, and has lines if asked for."""
    tree = ast.dump(ast.parse(Path(path).read_text()), include_attributes=places)
    return hashlib.sha256((tree + function).encode()).hexdigest()


def compile(
    source: str, *, signature: Any, constexprs: Any, target: str, options: CompileOptions, texts: Any
) -> Any:
    """An artifact whose cubin is a digest of the whole request."""
    file, _, function = source.rpartition(":")
    mode = re.search(r'^MODE = "(\w+)"', Path(file).read_text(), re.MULTILINE)
    match mode[1] if mode else "":
        case "error" if constexprs.get("NEGATE"):
            raise CompileError("NEGATE is not for this kernel", Loc(file, 6, 5, 8, function), "leave it out")
        case "abort" if constexprs.get("NEGATE"):
            os.abort()
        case "broken" if constexprs.get("NEGATE"):
            raise ZeroDivisionError("division by zero")
        case "unportable" if options.portable and constexprs.get("NEGATE"):
            raise CompileError("NEGATE is of Hopper alone", Loc(file, 6, 5, 8, function))
        case "slow":
            Path(file).with_name("at_work").touch()
            time.sleep(30)
        case "late":
            time.sleep(0.5)
        case "edit":
            with open(file, "a") as stream:
                stream.write(f"X{time.time_ns()} = 1\n")
    is_of_hopper = mode and mode[1] in ("accelerated", "unportable") and not options.portable
    serialized = (
        (f"{file}:6: this dot runs slower than it could: registers",)
        if mode and mode[1] == "serialized"
        else ()
    )
    if serialized and options.strict:
        raise CompileError("this dot runs slower than it could: registers", Loc(file, 6, 5, 8, function))
    asked = {
        **options.code(),
        "signature": signature,
        "constexprs": constexprs,
        "target": target,
        "texts": texts,
    }
    request = repr((source_digest(Path(file), function), sorted(asked.items(), key=str)))
    with open(Path(file).with_name("compiled.log"), "a") as log:
        log.write(f"{function} {target} {sorted(constexprs.items())}\n")
    facts = SimpleNamespace(
        name=function,
        arch=target + "a" * bool(is_of_hopper),
        options=options,
        warps=options.num_warps,
        block=options.threads,
        shared=0,
        static_shared=0,
        nvrtc_version="",
        registers=32,
        spill_stores=0,
        spill_loads=0,
        params=tuple(signature.items()),
        signature=tuple(signature.items()),
        ptxas_version="13.5",
        warnings=serialized,
        conversions=0,
        tma=(),
        serialized=serialized,
        waits_for_launches="gdc_wait" in Path(file).read_text(),
        stage_seconds={"ttir": time.time()},
    )
    cubin = ELF + hashlib.sha256(request.encode()).digest() * 50
    return SimpleNamespace(asm={"ptx": f"// {request}\n", "cubin": cubin}, metadata=facts)
