"""`kbuild layout`: a layout as a table, with what follows from it, and as a drawing."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from kbuild.cli.verbs.show import write
from kbuild.compiler.driver import read_ir
from kbuild.compiler.views.facts import facts_of, facts_of_both
from kbuild.compiler.views.pictures import picture
from kbuild.compiler.views.sources import ShownLayout, in_words, of_value, parse_shape, place_of
from kbuild.compiler.views.table import table
from kbuild.errors import UsageError
from kbuild.targets import find_target


def run(options: argparse.Namespace) -> int:
    if len(options.archs) > 1:
        raise UsageError("layout takes one --arch")
    if options.output and Path(options.output).suffix != ".svg":
        drawn = Path(options.output).with_suffix(".svg")
        raise UsageError(f"-o {options.output}: drawings are SVG", help=f"write, for example, -o {drawn}")
    target = find_target((options.archs or ["sm_90"])[0])
    shape = parse_shape(options.shape) if options.shape else None
    shown = _asked(options, options.layout, shape)
    other = _asked(options, options.other, shown.layout.shape, shown.element) if options.other else None
    if other is not None and other.layout.shape != shown.layout.shape:
        shapes = " and ".join("x".join(map(str, one.layout.shape)) for one in (shown, other))
        raise UsageError(f"--with {options.other}: the layouts are of shapes {shapes}")
    facts = facts_of(shown, target)
    both = facts_of_both(shown, other, target) if other is not None else {}
    if options.json:
        print(json.dumps({"facts": facts, "with": both}, indent=1))
    else:
        if not options.quiet:
            print(table(shown.layout, shown.element_bits) + "\n")
        if other is not None:
            both = {"with": facts_of(other, target)["layout"], **both}
        width = max(map(len, (*facts, *both)))
        print("\n".join(f"{name.ljust(width)}  {text}" for name, text in (*facts.items(), *both.items())))
    if options.output:
        write(Path(options.output), picture(shown, other, target).encode())
    return 0


def _asked(
    options: argparse.Namespace, text: str, shape: tuple[int, ...] | None, element: str | None = None
) -> ShownLayout:
    """The layout that an argument names."""
    place = place_of(text)
    if place is None:
        return in_words(text, shape, options.type or _signature_name(element) or "fp16")
    file, name = place
    path = Path(options.directory, file)
    try:
        content = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or 'it is not text'}") from None
    names: dict[str, Any] = {}
    module = read_ir(content, str(path), names=names)
    return of_value(text, name, module, names)


def _signature_name(element: str | None) -> str | None:
    """A type of elements as signatures spell it; those of dumps have MLIR's names."""
    spelled = {"f16": "fp16", "f32": "fp32", "f64": "fp64"}
    spelled |= {"f8E4M3FN": "fp8e4nv", "f8E4M3B15": "fp8e4b15", "f8E5M2": "fp8e5"}
    return spelled.get(element, element) if element is not None else None
