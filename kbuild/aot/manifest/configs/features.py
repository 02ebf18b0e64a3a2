"""Options that take a feature of the architecture, in a package for some that lack it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kbuild.aot.manifest.reader import ManifestReader
from kbuild.options import Option, Value
from kbuild.targets import ARCHS, find_target


def obstacle(
    reader: ManifestReader, option: Option, value: Value, archs: Collection[Value] = ARCHS
) -> tuple[str, str] | None:
    """Why an option cannot have a value for those of the package's architectures that are among `archs`, and which can; None
    where nothing is in the way."""
    if not option.needs_feature or value == option.default:
        return None
    package = reader.table.get("package", {})
    given = package.get("archs", ()) if isinstance(package, Mapping) else ()
    able = [arch for arch in ARCHS if find_target(arch).has(option.feature)]
    for arch in given if isinstance(given, list) else ():
        name = str(arch).removesuffix("+ptx")
        if name in ARCHS and name in archs and name not in able:
            return f"is {value}, but {name} has no {option.feature}", f"it takes {' or '.join(able)}"
    return None
