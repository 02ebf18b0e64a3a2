"""Compiles one variant: writes `<arch>/<kernel>/<variant>.cubin`, `.ptx` and `.json` with the facts, which is
their record (`records.py`), from the cache if they are there.  Nothing is imported here that a cache hit does
not need.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kbuild.aot.build import ask, records
from kbuild.aot.build.cache import Cache
from kbuild.aot.build.plan import STATE, Job
from kbuild.aot.identity import bytes_digest, canonical_json
from kbuild.errors import CompileError, ErrorGroup, ToolError
from kbuild.options import CompileOptions
from kbuild.targets import devices_of

_CUBIN_MAGIC = b"\x7fELF\x02\x01"
_READ_FACTS = {"arch", "serialized", "waits_for_launches", "warnings"}
"""Facts that are needed here, whoever compiled."""


def compile_job(job: Job, settings: Mapping[str, Any], build: Path) -> bool:
    """Makes the files of one job in the build directory; returns whether they came from the cache.

    The current directory has to be the project's, so that messages and line information name its files as
    the manifest does.
    """
    if job.like and _copy(job, build):
        return True
    parts, is_cached = _parts(job, job.identity, job.variant.options, settings, build)
    facts = json.loads(parts["facts"])
    # From the cache, for the compiler makes no such thing then.
    if settings.get("strict") and facts["serialized"]:
        raise ErrorGroup(
            CompileError(text, help="without --strict this is a warning") for text in facts["serialized"]
        )
    if job.variant.options.launch_pdl and not facts["waits_for_launches"]:
        raise CompileError(
            f"{job.variant.kernel}: launch_pdl, but {job.function} never waits for the launch before it, whose results it would "
            "not see",
            help="call tl.extra.cuda.gdc_wait() before it reads or writes memory",
        )
    facts |= _own_facts(job, parts["cubin"])
    files = {f"{job.stem}.{suffix}": parts[suffix] for suffix in ("cubin", "ptx")}
    if job.portable and devices_of(facts["arch"], is_ptx=True).are_alike:
        is_cached &= _add_portable(job, settings, build, files, facts)
    records.write(build, job.record, files, bytes_digest(job.encode()), facts)
    return is_cached


def _own_facts(job: Job, cubin: bytes) -> dict[str, object]:
    """Facts of a variant that the compiler does not know."""
    return {
        "identity": job.identity,
        "kernel": job.variant.kernel,
        "name": job.variant.name,
        "sha256": bytes_digest(cubin),
        "size": len(cubin),
        "variant": str(job.variant),
    }


def _copy(job: Job, build: Path) -> bool:
    """Makes the files of a job from those of the variant that is like it; returns whether these were there."""
    try:
        made_from = bytes_digest((build / STATE / "jobs" / f"{job.like}.json").read_bytes())
    except FileNotFoundError:
        return False
    found = records.read(build, f"{job.like}.json", made_from)
    if found is None:
        return False
    facts, files = found
    own = {f"{job.stem}{name[len(job.like) :]}": data for name, data in files.items()}
    kept = {name: value for name, value in facts.items() if name not in ("files", "made_from")}
    kept |= _own_facts(job, own[f"{job.stem}.cubin"])
    records.write(build, job.record, own, bytes_digest(job.encode()), kept)
    return True


def _add_portable(
    job: Job, settings: Mapping[str, Any], build: Path, files: dict[str, bytes], facts: dict[str, Any]
) -> bool:
    """Adds PTX that newer GPUs run, or a warning that there is none; returns whether it came from the cache."""
    try:
        parts, is_cached = _parts(job, job.portable, job.variant.portable().options, settings, build)
    except (CompileError, ErrorGroup) as error:
        mistakes = "; ".join(str(single).splitlines()[0] for single in error.errors())
        facts["warnings"] = [*facts["warnings"], f"it has no PTX for newer GPUs: {mistakes}"]
        return False
    files[job.portable_ptx] = parts["ptx"]
    facts["portable"] = json.loads(parts["facts"])
    return is_cached


def _parts(
    job: Job, identity: str, options: CompileOptions, settings: Mapping[str, Any], build: Path
) -> tuple[dict[str, bytes], bool]:
    """Cubin, PTX and facts of a job, and whether they came from the cache."""
    cache = Cache(Path(settings["cache"]) if settings.get("cache") else None)
    found = cache.get(identity)
    is_shared = bool(settings.get("shares"))
    if found is None and is_shared and ask.want(build, identity):
        found = cache.get(identity)
    if found is not None and _is_compiled(found):
        return found, True
    made = compile_parts(job, options, settings)
    if digest_of(job, settings["source_digest"]) != job.source_digest:
        raise CompileError(f"{job.source} changed while it was being compiled", help="run kbuild build again")
    if cache.put(identity, made) and is_shared:
        ask.made(build, identity)
    return made, False


def _is_compiled(parts: Mapping[str, bytes]) -> bool:
    """Whether parts are those of a compilation: an entry may come from elsewhere."""
    if set(parts) != {"cubin", "ptx", "facts"} or not parts["cubin"].startswith(_CUBIN_MAGIC):
        return False
    try:
        facts = json.loads(parts["facts"])
    except ValueError:
        return False
    return isinstance(facts, dict) and facts.keys() >= _READ_FACTS


def compile_parts(job: Job, options: CompileOptions, settings: Mapping[str, Any]) -> dict[str, bytes]:
    """Cubin, PTX and facts of a job, from the compiler."""
    artifact = resolve(settings["compiler"])(
        f"{job.source}:{job.function}",
        signature=dict(job.variant.signature),
        constexprs=dict(job.constexprs),
        target=job.variant.arch,
        options=replace(options, ptxas=settings["ptxas"], strict=bool(settings.get("strict"))),
        texts=("ptx",),
        **_dump_of(job, settings),
    )
    cubin, ptx = artifact.asm["cubin"], artifact.asm["ptx"]
    if not cubin.startswith(_CUBIN_MAGIC):
        raise ToolError(f"ptxas wrote {len(cubin)} bytes that are not a cubin")
    return {"cubin": cubin, "ptx": ptx.encode(), "facts": canonical_json(compile_facts(artifact.metadata))}


def digest_of(job: Job, source_digest: str) -> str:
    """The digest of a job's source now, by the function that `source_digest` names."""
    include = [job.variant.options.include] if job.variant.options.include else []
    return resolve(source_digest)(job.source, job.function, False, *include)


def _dump_of(job: Job, settings: Mapping[str, Any]) -> dict[str, str]:
    """The folder in which the compiler leaves the IR of a job after each pass, where that is wanted."""
    folder, only = settings.get("dump") or (None, "")
    return {"dump": f"{folder}/{job.stem}"} if folder and only in ("", job.function) else {}


def compile_facts(metadata: Any) -> dict[str, object]:
    """The part of a compile's metadata that is the same in every run: no seconds, for example."""
    return {
        **metadata.options.stated(),
        "arch": metadata.arch,
        "block": list(metadata.block),
        "conversions": metadata.conversions,
        "entry": metadata.name,
        "num_warps": metadata.options.num_warps,
        "nvrtc_version": metadata.nvrtc_version,
        "params": [[name, type_] for name, type_ in metadata.params],
        "ptxas_version": metadata.ptxas_version,
        "registers": metadata.registers,
        "serialized": list(metadata.serialized),
        "shared": metadata.shared,
        "signature": [[name, type_] for name, type_ in metadata.signature or ()],
        "spill_loads": metadata.spill_loads,
        "spill_stores": metadata.spill_stores,
        "static_shared": metadata.static_shared,
        "tma": list(metadata.tma),
        "waits_for_launches": metadata.waits_for_launches,
        "warnings": list(metadata.warnings),
        "warps": metadata.warps,
    }


def resolve(reference: str) -> Callable[..., Any]:
    """The function that `package.module:function` names."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)
