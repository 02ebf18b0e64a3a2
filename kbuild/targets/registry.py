"""The architectures: one for each file `sm_*.py` of this folder."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from kbuild.errors import UsageError
from kbuild.targets.devices import capability_of
from kbuild.targets.target import Target


def _load() -> dict[str, Target]:
    """The targets by the names of their files, the lowest capability first."""
    found: dict[str, Target] = {}
    for file in Path(__file__).parent.glob("sm_*.py"):
        target = import_module(f"kbuild.targets.{file.stem}").TARGET
        assert isinstance(target, Target) and target.arch == file.stem, (
            f"{file} describes another architecture"
        )
        found[target.arch] = target
    return dict(sorted(found.items(), key=lambda item: item[1].capability))


TARGETS = _load()
ARCHS = tuple(TARGETS)
"""The names of all architectures, the lowest capability first."""


def find_target(arch: str) -> Target:
    """The target of an architecture name.  Raises `UsageError` for one that kbuild does not know."""
    if arch not in TARGETS:
        raise UsageError(f"unknown architecture {arch!r}", help=f"known: {', '.join(ARCHS)}")
    return TARGETS[arch]


def nearest_target(capability: int) -> Target:
    """The record that describes a device best: of its own capability, or of the highest below it."""
    below = [target for target in TARGETS.values() if target.capability <= capability]
    return below[-1] if below else TARGETS[ARCHS[0]]


def target_of_code(arch: str) -> Target:
    """The target that code for an architecture belongs to: `sm_90` for `sm_90a`, too."""
    return find_target(f"sm_{capability_of(arch)}")
