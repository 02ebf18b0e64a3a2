"""A whole text: is it Triton's, and which module does it make?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kbuild.compiler.ir.core import Func, Module, Value
from kbuild.compiler.ops.control import Return
from kbuild.compiler.upstream import dots, library, memory, nvidia, tensors  # noqa: F401  register what they read
from kbuild.compiler.upstream.building import Building
from kbuild.compiler.upstream.control import build_function
from kbuild.compiler.upstream.forms import functions
from kbuild.compiler.upstream.rows import ROWS
from kbuild.compiler.upstream.syntax import RawBlock, RawFunction, Syntax
from kbuild.errors import UsageError, register_source
from kbuild.targets import Target, find_target

_MARKS = re.compile(
    r"^\s*(?:module\b|builtin\.module\b|tt\.func (?:public|private)\b|tt\.func @\w+\([^)]*\) ->|\#\w+\s*=\s*(?:\#|loc\()|\^\w+"
    r'|%[\w.$-]+(?::\d+)?(?:\s*,\s*%[\w.$-]+(?::\d+)?)*\s*=\s*["\w]'
    r"|[a-z]\w*\.[\w.]+ [^{\n]*%[^{\n]* : [!a-z(<]"
    r'|tt\.(?:print|assert) [^{\n]*"|ttg\.barrier \w|"[a-z]\w*\.[\w.]+"\()',
    re.MULTILINE,
)
_FUNCTION = re.compile(r'^\s*"?(?:module|builtin\.module|tt\.func|func\.func)\b', re.MULTILINE)
_DEFAULT_TARGET = "cuda:90"


def is_upstream(text: str) -> bool:
    """Whether a text is MLIR's: kbuild's own gives types before `=`, and none at the end of a line."""
    return _MARKS.search(text) is not None


def read_upstream(
    text: str, file: str, defaults: Mapping[str, Any], names: dict[str, Value] | None = None
) -> Module:
    """The module of a text of Triton's.  `defaults` are attributes of functions that ttir, which is for no target in
    particular, does not state.  `names` gets the values by their names in the text; of those in several functions,
    the first.

    Raises `CompileError` at the place of what kbuild cannot read, or has no operation for.
    """
    register_source(file, text)
    syntax = Syntax(text, file, is_fragment=not _FUNCTION.search(text))
    raw, attributes, (loose,) = functions(syntax)
    if loose.ops and raw:
        syntax.fail("an operation outside of the functions", loose.ops[0].place)
    if not raw and not loose.ops:
        syntax.fail("the text has no function", (0, 1))
    target = _target(syntax, attributes)
    module = Module()
    own = dict(defaults)
    if "ttg.num-warps" in attributes:
        # With layouts, which Triton has chosen, as the waits have their places.
        own = {name: value for name, value in own.items() if name not in ("num_ctas", "asked_warps")}
        own |= {"num_warps": attributes["ttg.num-warps"], "explicit_layouts": True}
    if loose.ops:
        building = Building(syntax, target, ROWS)
        module.add(_fragment(building, loose, own))
        _keep_names(building, names)
        return module
    # The kernel comes first; the others are what it calls.
    for function in sorted(raw, key=lambda one: one.attributes.get("noinline", False)):
        if function.body:
            building = Building(syntax, target, ROWS)
            module.add(build_function(building, function, own))
            _keep_names(building, names)
    return module


def _keep_names(building: Building, names: dict[str, Value] | None) -> None:
    if names is not None:
        for name, value in building.values.items():
            if value is not None:
                names.setdefault(name, value)


def _fragment(building: Building, loose: RawBlock, attributes: Mapping[str, Any]) -> Func:
    """A function of the operations of a fragment."""
    raw = RawFunction("fragment", loose.ops[0].place, body=[loose], loc=loose.ops[0].loc)
    func = build_function(building, raw, attributes)
    if func.body.last is None or not func.body.last.is_terminator:
        func.body.append(Return(()))
    return func


def _target(syntax: Syntax, attributes: Mapping[str, Any]) -> Target:
    """The architecture that the module is for."""
    text = str(attributes.get("ttg.target", _DEFAULT_TARGET))
    kind, _, capability = text.partition(":")
    if kind != "cuda":
        syntax.fail(f"the module is for {text}, and kbuild compiles for NVIDIA's GPUs", (0, 1))
    try:
        return find_target(f"sm_{capability}")
    except UsageError as error:
        syntax.fail(error.message, (0, 1), error.help)
