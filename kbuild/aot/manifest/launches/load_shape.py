"""The keys `block`, `shared` and `include` of kernels in CUDA C++, checked."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from kbuild.aot.manifest.expand import points
from kbuild.aot.manifest.launches.load_verify import check_expression
from kbuild.aot.manifest.launches.shape import BYTES, LaunchShapeError, with_launch_shape
from kbuild.aot.manifest.model import DTYPES, Kernel, Value
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.reader import ManifestReader
from kbuild.options import CUDA, CompileOptions
from kbuild.targets import ARCHS


def check_launch_shape(
    reader: ManifestReader,
    path: KeyPath,
    given: Mapping[str, Any],
    kernel: Kernel,
    constants: Collection[str],
    was_right: bool,
) -> None:
    """Notes keys that a kernel of its language does not have or lacks, and blocks that no variant can have; `given` is the
    kernel's table, and `constants` what expressions may name.  Blocks are computed where the rest `was_right`."""
    if not kernel.source:
        return
    if kernel.language != CUDA:
        for name in ("block", "shared", "include"):
            if name in given:
                message = "is for kernels in CUDA C++"
                reader.error(
                    (*path, name),
                    message,
                    "num_warps says how many threads a program has" if name == "block" else "",
                )
        return
    if "block" not in given:
        reader.error(
            path,
            'missing key "block"',
            "it says the threads of a block of a kernel in CUDA C++, as block = [16, 16]",
        )
    names = {*constants, *(f"{name}{BYTES}" for name in _type_names(kernel))}
    before = len(reader.errors)
    for axis, text in enumerate(kernel.block):
        check_expression(reader, (*path, "block", axis), text, sorted(names))
    check_expression(reader, (*path, "shared"), kernel.shared, sorted(names))
    if not was_right or len(reader.errors) > before or not 0 < len(kernel.block) <= 3:
        return
    for options, point in _points(kernel):
        try:
            with_launch_shape(kernel, options, point)
        except LaunchShapeError as error:
            return reader.error((*path, *error.key), error.message)


def _type_names(kernel: Kernel) -> Iterator[str]:
    """Axes and meta-parameters that are types in every variant."""
    yield from (axis.name for axis in kernel.matrix if all(value in DTYPES for value in axis.values))
    by_config = [{name for name, value in config.constexprs if value in DTYPES} for config in kernel.configs]
    yield from set.intersection(*by_config) if by_config else ()


def _points(kernel: Kernel) -> Iterator[tuple[CompileOptions, dict[str, Value]]]:
    """Options and compile-time values of every variant, once each."""
    defaults = dict(kernel.defaults)
    for point, config in itertools.product(points(kernel), kernel.configs):
        facts = [
            dict(point) | {"arch": arch, "specialize": one.name}
            for arch in ARCHS
            for one in kernel.specializations
        ]
        if any(
            config.when.holds(each) and not any(exclude.holds(each) for exclude in kernel.excludes)
            for each in facts
        ):
            yield config.options, defaults | dict(point) | dict(config.constexprs)
