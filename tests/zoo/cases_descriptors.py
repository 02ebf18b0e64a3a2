"""Cases of blocks that are combined with memory, and of rows that are picked by their numbers."""

from __future__ import annotations

from functools import reduce

import numpy as np
from zoo.case import Bits, Case, bf16, numbers

FOLDS = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


def _array(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray | Bits:
    """Small whole numbers; those without a sign have bits in all places."""
    if dtype.startswith("uint"):
        return rng.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True) >> np.dtype(dtype).type(2)
    values = rng.integers(-9, 10, shape)
    return bf16(values) if dtype == "bf16" else values.astype(dtype)


def _fold(kind: str, dtype: str, rows: int, columns: int, tile: tuple[int, int], programs: int = 2) -> Case:
    """Columns beyond the tensor, up to the pitch, stay as they are."""
    tile_m, tile_n = tile
    pitch = -(-columns // 16) * 16

    def expect(x, out, **_):
        given, right = (item.copy() if isinstance(item, np.ndarray) else numbers(item) for item in (x, out))
        zeros = np.zeros((-rows % tile_m, columns), given.dtype)
        padded = np.concatenate([given[:, :columns], zeros]).reshape(-1, tile_m, columns)
        right[:, :columns] = reduce(FOLDS[kind], padded, right[:, :columns])
        return {"out": right}

    return Case(
        f"fold_{kind}_{dtype}", "descriptors.py", "fold_rows",
        lambda rng: {"x": _array(rng, dtype, rows, pitch), "out": _array(rng, dtype, tile_m, pitch),
                     "rows": rows, "columns": columns, "pitch": pitch},
        expect, {"KIND": kind, "TILE_M": tile_m, "TILE_N": tile_n}, grid=(programs,),
    )  # fmt: skip


def _moved(name: str, dtype: str, rows: int, columns: int, left: int, count: int, width: int) -> Case:
    """Rows and columns beyond the tensors among them."""

    def make(rng):
        picked = rng.integers(-2, rows + 2, count).astype(np.int32)
        placed = (rng.permutation(rows + 4)[:count] - 2).astype(np.int32)
        return {"x": _array(rng, dtype, rows, columns), "out": _array(rng, dtype, rows, columns), "source_rows": picked,
                "target_rows": placed, "rows": rows, "columns": columns, "left": left}  # fmt: skip

    def expect(x, out, source_rows, target_rows, **_):
        right = numbers(out)
        padded = np.zeros((rows, columns + 2 * width))
        padded[:, width : width + columns] = numbers(x)
        first, last = max(left, 0), min(left + width, columns)
        for picked, placed in zip(source_rows, target_rows):
            if 0 <= placed < rows:
                row = padded[picked, width:] if 0 <= picked < rows else np.zeros(columns + width)
                right[placed, first:last] = row[first:last] + 1
        return {"out": right}

    return Case(name, "descriptors.py", "move_rows", make, expect, {"N": count, "WIDTH": width})


CASES = [
    _fold("add", "float32", 50, 40, (16, 32)), _fold("add", "float16", 64, 64, (16, 64)),
    _fold("add", "uint64", 20, 12, (8, 8), 3),
    _fold("min", "int32", 40, 60, (16, 32)), _fold("max", "uint32", 33, 16, (16, 16)), _fold("max", "int64", 30, 20, (8, 16)),
    _fold("min", "uint64", 16, 16, (8, 16)),
    _fold("and", "uint32", 48, 40, (16, 32)), _fold("or", "int32", 20, 9, (4, 8)), _fold("xor", "int64", 32, 32, (16, 16), 1),
    _moved("rows_fp32", "float32", 40, 48, 8, 16, 32), _moved("rows_fp16_beyond", "float16", 20, 40, 24, 8, 32),
    _moved("rows_int32_before", "int32", 12, 16, -8, 16, 16),
]
