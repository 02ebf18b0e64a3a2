"""What the products of warpgroups mean to a program of one thread.

They compute when they are issued, but show NaN until a wait covers them; and for good, if their tiles have changed by then.
So a missing wait, or a buffer used again too early, changes the results.
"""

from __future__ import annotations

import numpy as np

from kbuild.compiler.interp.formats import Array
from kbuild.compiler.interp.machine import InFlight, Machine, means
from kbuild.compiler.interp.memory import Tile
from kbuild.compiler.interp.tensor import matrix_product
from kbuild.compiler.ops.nvidia import FenceAsyncShared, WarpGroupDot, WarpGroupDotWait


class Product(InFlight):
    """The result of a product that may not have ended."""

    def __init__(self, value: Array, tiles: list[tuple[Tile, Array]], previous: InFlight | None) -> None:
        super().__init__(value)
        self.tiles = tiles
        self.previous = previous

    def end(self) -> None:
        changed = any(not np.array_equal(tile.read(), seen, equal_nan=True) for tile, seen in self.tiles)
        if changed or (self.previous is not None and self.previous.spoiled):
            self.spoiled = True
        self.ended = True


@means(WarpGroupDot)
def warp_group_dot(machine: Machine, op: WarpGroupDot) -> Array | Product:
    tiles: list[tuple[Tile, Array]] = []
    operands = []
    for value in (machine[op.a], machine[op.b]):
        if isinstance(value, Tile):
            tiles.append((value, value.read()))
            value = tiles[-1][1]
        operands.append(value)
    c = machine.values[op.c]
    total = matrix_product(operands[0], operands[1], c.value if isinstance(c, InFlight) else c, op.c.type)
    if not op.is_async:
        end_products(machine, 0)
        return total
    product = Product(total, tiles, c if isinstance(c, InFlight) else None)
    machine.products.append(product)
    return product


@means(WarpGroupDotWait)
def warp_group_dot_wait(machine: Machine, op: WarpGroupDotWait) -> tuple[Array, ...]:
    end_products(machine, op.pendings)
    return tuple(machine[value] for value in op.values)


def end_products(machine: Machine, pendings: int) -> None:
    """Let all but the last so many products end."""
    count = max(len(machine.products) - pendings, 0)
    for product in machine.products[:count]:
        product.end()
    del machine.products[:count]


@means(FenceAsyncShared)
def fence_async_shared(machine: Machine, op: FenceAsyncShared) -> None:
    pass
