"""The summary of a library for the page: its variants with their facts and states, its builds, its wheel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kbuild import __version__
from kbuild.aot.artifact.sizes import PARTS, WheelSizes, dtype_of, label, wheel_sizes
from kbuild.aot.build.plan import WHEEL, Job
from kbuild.aot.history.ledger import BuildRun
from kbuild.aot.history.now import Answer, Project
from kbuild.aot.identity import unseal
from kbuild.aot.manifest.expand import Variant
from kbuild.aot.report.timeline import timeline
from kbuild.errors import KbuildError
from kbuild.targets import find_target

_FACTS = ("registers", "spill_stores", "spill_loads", "shared", "warps", "conversions", "size", "arch")
"""Facts of a variant's record that the page shows as they are."""


def summary(state: Project) -> dict[str, Any]:
    """All that the page knows without a variant's detail; plain types for JSON."""
    sizes = _sizes(state.build)
    stored = sizes.by(label) if sizes else {}
    seconds = _compile_seconds(state.history.builds)
    failed = _failed(state.history.builds)
    variants = [
        _variant(state, job, stored.get(name), seconds.get(name), name in failed)
        for name, job in state.jobs.items()
    ]
    package = state.manifest.package
    return {
        "package": package.distribution or package.name,
        "version": package.version,
        "kbuild": __version__,
        "archs": list(package.archs),
        "kernels": [
            {"name": kernel.name, "source": kernel.source, "function": kernel.function, "doc": kernel.doc}
            for kernel in state.manifest.kernels
        ],
        "variants": variants,
        "excluded": len(state.expansion.excluded),
        "builds": [timeline(build) for build in state.history.builds if build.steps],
        "earlier": [[build.number, build.ended, build.jobs] for build in state.history.builds],
        "wheel": _wheel(sizes) if sizes else None,
        "limits": _limits(variants),
    }


def _variant(
    state: Project, job: Job, stored: int | None, seconds: float | None, is_failed: bool
) -> dict[str, Any]:
    """A variant: what it is, what is known of its code, and what a build would do with it."""
    variant = job.variant
    answer = state.answer(variant.name)
    facts = _facts(state.build / job.record)
    found: dict[str, Any] = {
        "name": variant.name,
        "kernel": variant.kernel,
        "arch": variant.arch,
        "dtype": dtype_of(variant),
        "axes": [[name, value] for name, value in variant.matrix],
        "config": [[name, value] for name, value in variant.constexprs if value is not None],
        "options": variant.options.words,
        "hints": [[name, type_] for name, type_ in variant.signature],
        "guards": [guard.expression for guard in variant.guards],
        "cost": variant.cost,
        "num_warps": variant.options.num_warps,
        "num_stages": variant.options.num_stages,
        "command": job.command(),
        "identity": job.identity,
        "state": "failed" if is_failed and facts is None else answer.state,
        "why": _why(answer),
        "seconds": seconds,
        "stored": stored,
        "facts": None,
    }
    if facts is not None:
        found["facts"] = {name: facts[name] for name in _FACTS} | {
            "warnings": _warnings(facts),
            "tma": facts.get("tma", []),
            "params": [name for name, _ in facts.get("params", ())],
            "occupancy": _occupancy(variant, facts),
        }
    return found


def _facts(record: Path) -> dict[str, Any] | None:
    try:
        found = unseal(record.read_bytes())
    except OSError:
        return None
    return found if found is not None and all(name in found for name in _FACTS) else None


def _warnings(facts: Mapping[str, Any]) -> list[str]:
    """The warnings but those of spills, which the page has as numbers."""
    return [text for text in facts.get("warnings", ()) if "spilled" not in text]


def _occupancy(variant: Variant, facts: Mapping[str, Any]) -> dict[str, Any]:
    shared = facts["shared"] + facts.get("static_shared", 0)
    found = find_target(variant.arch).limits.occupancy(shared, facts["warps"], facts["registers"])
    return asdict(found) | {"share": round(found.share, 4)}


def _why(answer: Answer) -> dict[str, Any]:
    """What `kbuild why` says."""
    return {
        "build": answer.last.build if answer.last else None,
        "how": answer.last.how if answer.last else "",
        "nearest": answer.nearest,
        "reasons": [
            {
                "kind": reason.kind,
                "text": reason.text,
                "place": reason.place,
                "diff": [list(line) for line in reason.diff],
            }
            for reason in answer.reasons
        ],
    }


def _compile_seconds(builds: Sequence[BuildRun]) -> dict[str, float]:
    """How long the compiler was at each variant the last time."""
    return {
        step.what: round(step.end - step.start, 3)
        for build in builds
        for step in build.steps
        if step.kind == "compile" and step.how == "compiled" and step.start is not None
    }


def _failed(builds: Sequence[BuildRun]) -> set[str]:
    """The variants whose last step failed."""
    how = {step.what: step.how for build in builds for step in build.steps if step.kind == "compile"}
    return {name for name, last in how.items() if last == "failed"}


def _sizes(build: Path) -> WheelSizes | None:
    """The wheel of the last build, if there is one."""
    try:
        made = unseal((build / WHEEL).read_bytes())
        return wheel_sizes(build / made["wheel"]) if made else None
    except (OSError, KbuildError):
        return None


def _wheel(sizes: WheelSizes) -> dict[str, Any]:
    return {
        "name": sizes.name,
        "bytes": sizes.total,
        "by": {name: sizes.by(part) for name, part in PARTS.items()},
        "other": dict(sizes.other),
        "entries": len(sizes.code),
        "distinct": sizes.distinct,
        "saved": sizes.shared,
    }


def _limits(variants: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The largest values, by which bars are drawn."""
    known = [each["facts"] for each in variants if each["facts"]]
    return {
        name: max((facts[name] for facts in known), default=0) for name in ("registers", "shared", "size")
    }
