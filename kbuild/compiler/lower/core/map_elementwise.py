"""Functions of scalars, applied to the elements of tensors: the code of the function once for each group of them."""

from __future__ import annotations

from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.lowering import Results, lower, lower_combine
from kbuild.compiler.ops.tensor import MapElementwise
from kbuild.errors import CompileError


@lower(MapElementwise)
def lower_map_elementwise(emit: Emitter, op: MapElementwise) -> Results:
    """Not lazily: the function may have branches, which begin blocks of LLVM."""
    sources = [emit.registers(source)[:] for source in op.srcs]
    count, packed = len(sources[0]), op.packed
    if count % packed:
        raise CompileError(
            f"map_elementwise packs {packed} elements, but each thread holds {count}",
            op.loc,
            "use a larger block or a smaller pack",
        )
    results: list[list[str]] = [[] for _ in op.results]
    for start in range(0, count, packed):
        arguments = [[register] for source in sources for register in source[start : start + packed]]
        found = [registers[0] for registers in lower_combine(emit, op.body, arguments)]
        for number, result in enumerate(results):
            result += found[number * packed : (number + 1) * packed]
    return Results(results)
