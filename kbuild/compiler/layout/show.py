"""The text of a layout, as the IR prints it at the top of a module, and back.

    #linear{register=[[0, 1], [0, 2]], lane=[[0, 4], …], warp=[[16, 0], [32, 0]]}
    #shared{offset=[[0, 1], [0, 2], …]}
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from kbuild.compiler.layout.linear import IN_DIMS, SHARED_DIMS, LinearLayout
from kbuild.errors import CompileError, KbuildError

_FIELD = re.compile(r"\s*(\w+)\s*=\s*(\[[^=]*\])\s*(?:,|$)")


def describe(layout: LinearLayout) -> str:
    """The text of a layout: its bases as coordinates; input dimensions without bits are left out."""
    fields = [
        f"{dim}={[list(layout.unflatten(basis)) for basis in layout.bases_of(dim)]}" for dim in layout.dims if layout.bits(dim)
    ]
    return f"#{'shared' if layout.is_shared else 'linear'}{{{', '.join(fields)}}}"


def parse_layout(text: str, shape: Sequence[int]) -> LinearLayout:
    """The layout of a tensor of `shape` that `describe` writes as `text`.  Raises `CompileError` for anything else."""
    match = re.fullmatch(r"\s*#(linear|shared)\{(.*)\}\s*", text)
    if match is None:
        raise CompileError(f"{text.strip()!r} is no layout", hint="expected #linear{...} or #shared{...}")
    known = SHARED_DIMS if match[1] == "shared" else IN_DIMS
    bases: dict[str, list[tuple[int, ...]]] = {"offset": []} if match[1] == "shared" else {}
    position = 0
    while position < len(match[2]):
        field = _FIELD.match(match[2], position)
        if field is None or field[1] not in known:
            raise CompileError(f"a layout has the fields {', '.join(known)}, found {match[2][position:]!r}")
        bases[field[1]] = [tuple(basis) for basis in ast.literal_eval(field[2])]
        position = field.end()
    try:
        return LinearLayout.make(shape, **bases)
    except KbuildError as error:
        raise CompileError(f"{text.strip()} does not fit the shape {list(shape)}: {error.message}") from error
