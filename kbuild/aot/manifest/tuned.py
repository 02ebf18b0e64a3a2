"""The table that `kbuild tune` writes and builds read: `kernels.tune.toml`, beside the manifest.

Each entry says, for one device and one kind of calls, which configuration was fastest.  A build puts it
before the configuration of the manifest that those calls would take, so that dispatch finds it first; where
several devices of one architecture differ, the one that gains the most decides.  An entry holds for the
kernel's source that was timed; after a change it is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomli

from kbuild.aot.files import write_files
from kbuild.aot.manifest.expand import parse_guard
from kbuild.aot.manifest.model import Config, Guard, Kernel, Manifest, PointCondition, Value
from kbuild.errors import KbuildError, ManifestError
from kbuild.options import by_name, options

FILE = "kernels.tune.toml"

_HEADER = """\
# Made by `kbuild tune`, read by `kbuild build`: docs/tune.md.  Entries may be deleted.
schema = 1
"""
_KEYS = {
    "kernel": str,
    "device": str,
    "capability": int,
    "digest": str,
    "when": dict,
    "facts": list,
    "config": dict,
    "us": float,
    "default_us": float,
}


@dataclass(frozen=True)
class TunedEntry:
    """The fastest configuration for one kind of calls on one device."""

    kernel: str
    """Name of the kernel in the manifest."""
    device: str
    """The device's name, as its driver reports it."""
    capability: int
    """10 * major + minor."""
    digest: str
    """Digest of the kernel's source closure."""
    when: tuple[tuple[str, Value], ...]
    """The point: `arch`, values of the axes, and `specialize`."""
    facts: tuple[Guard, ...]
    """What holds of the integer arguments."""
    config: tuple[tuple[str, Value], ...]
    """Meta-parameters and options; among these `num_warps` and `num_stages`."""
    us: float
    """Microseconds of the launch that was timed."""
    default_us: float
    """The same with the manifest's configuration."""

    @property
    def place(self) -> tuple[object, ...]:
        """The calls that the entry is for, apart from the device."""
        return self.kernel, self.when, self.facts

    @property
    def options(self) -> dict[str, Value]:
        """Those values of `config` that are options."""
        return {name: value for name, value in self.config if by_name(name, "variant")}

    def as_config(self, base: Config) -> Config:
        """The entry as a configuration of the manifest; options that it does not give are those of `base`."""
        where = PointCondition(tuple((name, (value,)) for name, value in self.when))
        chosen = base.options.changed(self.options)
        values = [(name, value) for name, value in self.config if name not in self.options]
        # What the kernel takes as well.
        values += [(name, getattr(chosen, name)) for name, _ in base.constexprs if by_name(name, "variant")]
        return Config(where, self.facts, tuple(values), chosen)


def read(file: Path) -> tuple[TunedEntry, ...]:
    """The entries of a table; none where the file is missing.  ManifestError where it is not such a table."""
    try:
        text = file.read_text()
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(
            f"{file.name}: {getattr(error, 'strerror', '') or 'the text is not UTF-8'}"
        ) from None
    try:
        table = tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        raise ManifestError(
            f"{file.name}: {error}", help="delete it, and kbuild tune writes a new one"
        ) from None
    entries = table.get("entry", [])
    if table.get("schema") != 1 or not isinstance(entries, list):
        raise ManifestError(f"{file.name}: not a table of kbuild tune: expected schema = 1 and [[entry]]")
    return tuple(_entry(f"{file.name}: entry[{index}]", entry) for index, entry in enumerate(entries))


def _entry(where: str, table: Any) -> TunedEntry:
    if not isinstance(table, dict) or set(table) != set(_KEYS):
        raise ManifestError(f"{where}: expected a table with the keys {', '.join(_KEYS)}")
    for name, kind in _KEYS.items():
        if not isinstance(table[name], kind) or isinstance(table[name], bool):
            raise ManifestError(f"{where}: {name}: expected {kind.__name__}, found {table[name]!r}")
    values = dict(table)
    for option in options("variant"):
        if option.is_shown and option.name not in values["config"]:
            raise ManifestError(f"{where}: config: {option.name} is missing")
        if option.name in values["config"] and not option.is_legal(found := values["config"][option.name]):
            raise ManifestError(
                f"{where}: config: {option.name}: expected {option.expected}, found {found!r}"
            )
    for name in ("when", "config"):
        values[name] = tuple(values[name].items())
    try:
        values["facts"] = tuple(parse_guard(str(fact).replace(" ", "")) for fact in values["facts"])
    except ValueError as error:
        raise ManifestError(f"{where}: facts: {error}") from None
    return TunedEntry(**values)


def write(file: Path, entries: Iterable[TunedEntry]) -> None:
    """Write a table; the same entries give the same bytes."""
    ordered = sorted(entries, key=lambda entry: (entry.kernel, entry.device))
    write_files({file: "\n".join([_HEADER, *(_text(entry) for entry in ordered)]).encode()})


def _text(entry: TunedEntry) -> str:
    facts = ", ".join(_word(f"{fact.argument} {fact.operator} {fact.value}") for fact in entry.facts)
    lines = [
        f"{name} = {_word(getattr(entry, name))}" for name in ("kernel", "device", "capability", "digest")
    ]
    lines += [f"when = {_inline(entry.when)}", f"facts = [{facts}]", f"config = {_inline(entry.config)}"]
    return "\n".join(
        ["[[entry]]", *lines, f"us = {entry.us:.3f}", f"default_us = {entry.default_us:.3f}", ""]
    )


def _inline(values: Iterable[tuple[str, Value]]) -> str:
    return "{ " + ", ".join(f"{name} = {_word(value)}" for name, value in values) + " }"


def _word(value: Value) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(char if char.isprintable() else "?" for char in escaped) + '"'
    return str(value).lower() if isinstance(value, bool) else repr(value)


def merged(old: Iterable[TunedEntry], new: Iterable[TunedEntry]) -> tuple[TunedEntry, ...]:
    """Both tables as one; of two entries about the same on the same device, the new one."""
    together = {(entry.device, entry.place): entry for entry in (*old, *new)}
    return tuple(together.values())


def with_table(
    manifest: Manifest, root: Path, digest: Callable[..., str]
) -> tuple[Manifest, tuple[str, ...]]:
    """A project's manifest with its tuned configurations, and warnings about entries that are left out.

    `digest` gives the digest of a kernel's source closure, from what `Kernel.source_in` gives.
    """
    entries = read(root / FILE)
    if not entries:
        return manifest, ()
    digests: dict[str, str] = {}
    for kernel in manifest.kernels:
        if any(entry.kernel == kernel.name for entry in entries):
            try:
                digests[kernel.name] = digest(*kernel.source_in(root))
            except KbuildError:  # Compiling the kernel reports what is wrong with it.
                digests[kernel.name] = ""
    return applied(manifest, entries, digests)


def applied(
    manifest: Manifest, entries: Iterable[TunedEntry], digests: Mapping[str, str]
) -> tuple[Manifest, tuple[str, ...]]:
    """The manifest with each entry that holds before the configuration it replaces, and warnings about the
    others."""
    warnings: dict[str, None] = {}
    best: dict[tuple[object, ...], TunedEntry] = {}
    kernels = {kernel.name: kernel for kernel in manifest.kernels}
    for entry in entries:
        why = _obstacle(kernels.get(entry.kernel), entry, digests.get(entry.kernel))
        known = best.get(entry.place)
        if why:
            warnings[f"{FILE}: {entry.kernel}: {why}; run kbuild tune again"] = None
        elif known is None or entry.default_us * known.us > known.default_us * entry.us:
            best[entry.place] = entry
    chosen = [
        [entry for entry in best.values() if entry.kernel == kernel.name] for kernel in manifest.kernels
    ]
    changed = tuple(
        replace(kernel, configs=_with(kernel, own)) for kernel, own in zip(manifest.kernels, chosen)
    )
    return replace(manifest, kernels=changed), tuple(warnings)


def _with(kernel: Kernel, entries: Iterable[TunedEntry]) -> tuple[Config, ...]:
    """The kernel's configurations with those of the entries, in the order of the buckets where one could take
    another's calls."""
    before: dict[int, list[TunedEntry]] = {}
    for entry in entries:
        before.setdefault(_place_in(kernel, entry), []).append(entry)
    found: list[Config] = []
    for index, config in enumerate(kernel.configs):
        buckets = [{*config.guards, *bucket.guards} for bucket in kernel.tune.buckets] if kernel.tune else []
        own = sorted(before.get(index, []), key=lambda entry: _place_of(entry, buckets))
        found += [*(entry.as_config(config) for entry in own), config]
    return tuple(found)


def _place_of(entry: TunedEntry, buckets: Sequence[Collection[Guard]]) -> tuple[int, int]:
    """Where an entry stands: in the order of the buckets, and one that asks for more facts before the others."""
    facts = {*entry.facts}
    exact = [place for place, asked in enumerate(buckets) if facts == {*asked}]
    wider = [place for place, asked in enumerate(buckets) if facts >= {*asked}]
    return (*exact, *wider, len(buckets))[0], -len(facts)


def _place_in(kernel: Kernel, entry: TunedEntry) -> int:
    """Which configuration the entry stands before: that which it replaces, or where dispatch compares costs, the first that
    has one, for an entry has none."""
    replaced = _replaced(kernel, entry)
    if not kernel.configs[replaced].cost:
        return replaced
    point = dict(entry.when)
    return next(
        index for index, config in enumerate(kernel.configs) if config.cost and config.when.holds(point)
    )


def _replaced(kernel: Kernel, entry: TunedEntry) -> int:
    """Which configuration of the manifest the entry's calls would take; -1 if none."""
    point, facts = dict(entry.when), set(entry.facts)
    for index, config in enumerate(kernel.configs):
        if config.when.holds(point) and facts.issuperset(config.guards):
            return index
    return -1


def _obstacle(kernel: Kernel | None, entry: TunedEntry, digest: str | None) -> str:
    """Why an entry cannot be used; empty if it can."""
    if kernel is None:
        return "the manifest has no such kernel"
    if digest != entry.digest:
        return "entries are for an earlier source"
    names = {"arch", "specialize"} | {axis.name for axis in kernel.matrix}
    constexprs = {*kernel.meta_parameters}
    arguments = {argument.name for argument in kernel.args}
    used = {name for name, _ in entry.config} - entry.options.keys()
    asked = {factor for fact in entry.facts for factor in fact.arguments}
    if used - constexprs or asked - arguments:
        return "an entry names what the manifest no longer has"
    if {name for name, _ in entry.when} != names or _replaced(kernel, entry) < 0:
        return "the manifest has no configuration for an entry's calls"
    return ""
