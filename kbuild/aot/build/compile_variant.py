"""Compiles one variant: writes `<arch>/<kernel>/<variant>.cubin`, `.ptx` and `.json` with the facts, which is
their record (`records.py`), from the cache if they are there.  Nothing is imported here that a cache hit does
without.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kbuild.aot.build import records
from kbuild.aot.build.cache import Cache
from kbuild.aot.build.plan import Job
from kbuild.aot.identity import bytes_digest, canonical_json
from kbuild.errors import CompileError, ErrorGroup, ToolError

_CUBIN_MAGIC = b"\x7fELF\x02\x01"


def compile_job(job: Job, settings: Mapping[str, Any], build: Path) -> bool:
    """Makes the files of one job in the build directory; says whether they came from the cache.

    The current directory has to be the project's, so that its files are called in messages, and in line
    information, as the manifest calls them.
    """
    cache = Cache(Path(settings["cache"]) if settings.get("cache") else None)
    parts = cache.get(job.identity)
    is_cached = parts is not None and set(parts) == {"cubin", "ptx", "facts"}
    if parts is None or not is_cached:
        parts = _compile(job, settings)
        cache.put(job.identity, parts)
    facts = json.loads(parts["facts"])
    # From the cache, for the compiler makes no such thing then.
    if settings.get("strict") and facts["serialized"]:
        raise ErrorGroup(
            CompileError(text, hint="without --strict this is a warning") for text in facts["serialized"]
        )
    if job.variant.options.launch_pdl and not facts["waits_for_launches"]:
        raise CompileError(
            f"{job.variant.kernel}: launch_pdl, but {job.function} never waits for the launch before it, whose results it would "
            "not see",
            hint="call tl.extra.cuda.gdc_wait() before it reads or writes memory",
        )
    facts |= {
        "identity": job.identity,
        "kernel": job.variant.kernel,
        "name": job.variant.name,
        "sha256": bytes_digest(parts["cubin"]),
        "size": len(parts["cubin"]),
        "variant": str(job.variant),
    }
    files = {f"{job.stem}.{suffix}": parts[suffix] for suffix in ("cubin", "ptx")}
    records.write(build, job.record, files, bytes_digest(job.encode()), facts)
    return is_cached


def _compile(job: Job, settings: Mapping[str, Any]) -> dict[str, bytes]:
    """Cubin, PTX and facts of a job, from the compiler."""
    artifact = resolve(settings["compiler"])(
        f"{job.source}:{job.function}",
        signature=dict(job.variant.signature),
        constexprs=dict(job.constexprs),
        target=job.variant.arch,
        options=replace(job.variant.options, ptxas=settings["ptxas"], strict=bool(settings.get("strict"))),
        texts=("ptx",),
    )
    if resolve(settings["source_digest"])(job.source, job.function) != job.source_digest:
        raise CompileError(f"{job.source} changed while it was being compiled", hint="run kbuild build again")
    cubin, ptx = artifact.asm["cubin"], artifact.asm["ptx"]
    if not cubin.startswith(_CUBIN_MAGIC):
        raise ToolError(f"ptxas gave {len(cubin)} bytes that are no cubin")
    return {"cubin": cubin, "ptx": ptx.encode(), "facts": canonical_json(compile_facts(artifact.metadata))}


def compile_facts(metadata: Any) -> dict[str, object]:
    """What is kept of a compile's metadata: nothing that differs between two runs, such as seconds."""
    return {
        **metadata.options.attributes(),
        "arch": metadata.arch,
        "conversions": metadata.conversions,
        "entry": metadata.name,
        "params": [[name, type_] for name, type_ in metadata.params],
        "ptxas_version": metadata.ptxas_version,
        "registers": metadata.registers,
        "serialized": list(metadata.serialized),
        "shared": metadata.shared,
        "spill_loads": metadata.spill_loads,
        "spill_stores": metadata.spill_stores,
        "tma": list(metadata.tma),
        "waits_for_launches": metadata.waits_for_launches,
        "warnings": list(metadata.warnings),
        "warps": metadata.warps,
    }


def resolve(reference: str) -> Callable[..., Any]:
    """The function that `package.module:function` names."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)
