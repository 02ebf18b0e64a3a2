"""Cases of blocks that are combined with memory, and of rows that are picked by their numbers."""

from __future__ import annotations

from functools import reduce

import numpy as np
from zoo.arrays import operand, poisoned
from zoo.case import Bits, Case, bf16, numbers

FOLDS = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


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
        f"fold_{kind}_{dtype}",
        "descriptors.py",
        "fold_rows",
        lambda rng: {
            "x": _array(rng, dtype, rows, pitch),
            "out": _array(rng, dtype, tile_m, pitch),
            "rows": rows,
            "columns": columns,
            "pitch": pitch,
        },
        expect,
        {"KIND": kind, "TILE_M": tile_m, "TILE_N": tile_n},
        grid=(programs,),
    )


def _moved(name: str, dtype: str, rows: int, columns: int, left: int, count: int, width: int) -> Case:
    """Rows and columns beyond the tensors among them."""

    def make(rng):
        picked = rng.integers(-2, rows + 2, count).astype(np.int32)
        placed = (rng.permutation(rows + 4)[:count] - 2).astype(np.int32)
        return {
            "x": _array(rng, dtype, rows, columns),
            "out": _array(rng, dtype, rows, columns),
            "source_rows": picked,
            "target_rows": placed,
            "rows": rows,
            "columns": columns,
            "left": left,
        }

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


def _vector(name: str, dtype: str, size: int, tile: int, programs: int) -> Case:
    def expect(x, out, n):
        right = numbers(out)
        right[:n] = 2 * numbers(x)[:n]
        return {"out": right}

    return Case(
        name,
        "descriptors.py",
        "copy_vector",
        lambda rng: {
            "x": _array(rng, dtype, size + 16),
            "out": poisoned(size + 16, dtype=np.dtype(dtype)),
            "n": size,
        },
        expect,
        {"TILE": tile},
        grid=(programs,),
    )


def _matrix(dtype: str, rows: int, columns: int, tile: tuple[int, int], warps: int = 4) -> Case:
    pitch = -(-columns // 16) * 16

    def expect(x, out, **_):
        right = numbers(out)
        right[:, :columns] = numbers(x)[:, :columns]
        return {"out": right}

    return Case(
        f"copy_{dtype}_{tile[0]}x{tile[1]}",
        "descriptors.py",
        "copy_matrix",
        lambda rng: {
            "x": _array(rng, dtype, rows, pitch),
            "out": _array(rng, dtype, rows, pitch),
            "rows": rows,
            "columns": columns,
            "pitch": pitch,
        },
        expect,
        {"TILE_M": tile[0], "TILE_N": tile[1]},
        grid=(-(-rows // tile[0]), -(-columns // tile[1])),
        num_warps=warps,
    )


def _blocks(name: str, function: str, dtype: str, shape: tuple[int, ...], constexprs: dict[str, int]) -> Case:
    return Case(
        name,
        "descriptors.py",
        function,
        lambda rng: {"x": _array(rng, dtype, *shape), "out": poisoned(*shape, dtype=np.dtype(dtype))},
        lambda x, out: {"out": numbers(x)},
        dict(zip("ABCDE", shape)) | constexprs,
    )


def _again(rows: int, columns: int, tile: int) -> Case:
    pitch = -(-columns // 16) * 16

    def expect(x, out, sums, **_):
        right, total, given = numbers(out), numbers(sums), np.zeros((rows + tile + 1, columns + 2 * tile))
        given[:rows, :columns] = numbers(x)[:, :columns]
        padded = np.full((rows + tile + 1, columns + 2 * tile), np.nan)
        padded[:rows, :columns] = right[:, :columns]
        for row in range(0, rows, tile):
            for column in range(0, columns, 2 * tile):
                left, other = (given[row : row + tile, at : at + tile] for at in (column, column + tile))
                padded[row + 1 : row + 1 + tile, column : column + tile] = left - 1
                if row < 2 * tile:
                    padded[row : row + tile, column : column + tile] = left
                    total[:, column : min(column + tile, columns)] += left[:, : max(columns - column, 0)]
                padded[row : row + tile, column + tile : column + 2 * tile] = other
                total[:, column + tile : min(column + 2 * tile, columns)] += other[
                    :, : max(columns - column - tile, 0)
                ]
        padded[:tile, :tile] = 0
        right[:, :columns] = padded[:rows, :columns]
        return {"out": right, "sums": total}

    return Case(
        "write_again",
        "descriptors.py",
        "write_again",
        lambda rng: {
            "x": _array(rng, "float32", rows, pitch),
            "out": poisoned(rows, pitch),
            "sums": _array(rng, "float32", tile, pitch),
            "rows": rows,
            "columns": columns,
            "pitch": pitch,
        },
        expect,
        {"TILE": tile},
    )


_GROUPS = ((72, 90, 200), (0, 64, 64), (64, 64, 64), (130, 33, 0), (1, 100, 77), (100, 40, 328))
"""M, N and K of matrices that are multiplied by one kernel."""


def _grouped(
    name: str, dtype: str, tile: tuple[int, int, int], programs: int, warps: int = 4, stages: int = 3
) -> Case:
    """Matrices of several sizes, whose tensor maps the kernel makes; around each matrix lie numbers that it must not
    read."""
    unit = {"float32": 4, "fp8e4nv": 16}.get(dtype, 8)
    sizes = [(m, n, k, k + unit + -k % unit, k + 3 * unit + -k % unit, n + 3) for m, n, k in _GROUPS]
    counts = [
        (unit * -(-m * lda // unit), unit * -(-n * ldb // unit), m * ldc) for m, n, _, lda, ldb, ldc in sizes
    ]
    starts = np.cumsum([(0, 0, 0), *counts], axis=0)

    def expect(a, b, c, **_):
        right = numbers(c)
        for (m, n, k, lda, ldb, ldc), (x, y, z) in zip(sizes, starts):
            left, other = (
                numbers(flat)[start : start + rows * pitch].reshape(rows, pitch)[:, :k]
                for flat, start, rows, pitch in ((a, x, m, lda), (b, y, n, ldb))
            )
            right[z : z + m * ldc].reshape(m, ldc)[:, :n] = left @ other.T
        return {"c": right}

    return Case(
        name,
        "descriptors.py",
        "dot_grouped",
        lambda rng: {
            **{key: operand(rng, dtype, int(starts[-1][place])) for place, key in enumerate("ab")},
            "c": poisoned(int(starts[-1][2]), dtype=np.float16),
            "starts": starts[:-1].astype(np.int64),
            "sizes": np.array(sizes, np.int32),
            "groups": len(sizes),
        },
        expect,
        dict(zip(("TILE_M", "TILE_N", "TILE_K"), tile)),
        grid=(programs,),
        num_warps=warps,
        num_stages=stages,
        archs=("sm_90",) if dtype == "fp8e4nv" else ("sm_80", "sm_90"),
    )


def _added(name: str, dtype: str, warps: int) -> Case:
    sizes = [(m, n, n + -n % 16 + 16) for m, n, _ in _GROUPS]
    starts = np.cumsum([0, *(m * pitch for m, _, pitch in sizes)])

    def expect(x, out, **_):
        right = numbers(out)
        for (rows, columns, pitch), start in zip(sizes, starts):
            part = slice(start, start + rows * pitch)
            right[part].reshape(rows, pitch)[:, :columns] = (
                numbers(x)[part].reshape(rows, pitch)[:, :columns] + 1
            )
        return {"out": right}

    return Case(
        name,
        "descriptors.py",
        "add_grouped",
        lambda rng: {
            "x": _array(rng, dtype, int(starts[-1])),
            "out": poisoned(int(starts[-1]), dtype=np.dtype(dtype)),
            "starts": starts[:-1].astype(np.int64),
            "sizes": np.array(sizes, np.int32),
            "groups": len(sizes),
        },
        expect,
        {"TILE": 64},
        grid=(2,),
        num_warps=warps,
    )


def _doubled(batches: int, rows: int, columns: int, programs: int) -> Case:
    def expect(x, sums, **_):
        return {"out": 2 * numbers(x), "sums": numbers(sums) + numbers(x).sum(axis=0)}

    return Case(
        "double_batches",
        "descriptors.py",
        "double_batches",
        lambda rng: {
            "x": _array(rng, "float32", batches, rows, columns),
            "out": poisoned(batches, rows, columns),
            "sums": _array(rng, "float32", rows, columns),
            "batches": batches,
            "rows": rows,
            "columns": columns,
        },
        expect,
        {"TILE": 32},
        grid=(programs,),
    )


CASES = [
    _vector("vector_fp32", "float32", 1008, 128, 2),
    _vector("vector_int8_long", "int8", 3008, 2048, 1),
    _vector("vector_fp64_one_tile", "float64", 32, 64, 1),
    _vector("vector_int16_idle", "int16", 112, 64, 3),
    _vector("vector_int16_odd", "int16", 100, 64, 1),
    _matrix("float16", 300, 48, (256, 64), 8),
    _matrix("float16", 30, 208, (16, 128)),
    _matrix("bf16", 520, 48, (512, 32)),
    _matrix("float32", 9, 1008, (1, 512)),
    _matrix("float32", 9, 608, (4, 512)),
    _matrix("int8", 40, 304, (32, 256)),
    _matrix("int8", 24, 16, (16, 16), 1),
    _matrix("int16", 40, 48, (16, 32)),
    _matrix("float64", 30, 48, (16, 32)),
    _matrix("int64", 17, 16, (8, 4), 2),
    _matrix("uint8", 12, 48, (4, 64)),
    _matrix("float16", 30, 50, (32, 64)),
    _matrix("float32", 50, 77, (32, 64)),
    _matrix("int8", 70, 90, (64, 64), 1),
    _matrix("bf16", 20, 301, (16, 256), 2),
    _blocks("blocks_3d", "copy_3d", "float16", (3, 5, 40), {"a": 2, "b": 4, "c": 32}),
    _blocks("blocks_3d_wide", "copy_3d", "float32", (5, 9, 48), {"a": 4, "b": 8, "c": 64}),
    _blocks("blocks_3d_tall", "copy_3d", "int8", (2, 520, 32), {"a": 2, "b": 512, "c": 32}),
    _blocks("blocks_5d", "copy_5d", "float16", (2, 3, 3, 5, 40), {"TILE": 64}),
    _again(40, 48, 16),
    _grouped("grouped", "float16", (64, 64, 64), 3),
    _grouped("grouped_by_8_warps", "float16", (128, 64, 32), 2, 8, 2),
    _grouped("grouped_bf16", "bf16", (64, 64, 64), 2),
    _grouped("grouped_fp32", "float32", (64, 64, 32), 4),
    _grouped("grouped_fp8", "fp8e4nv", (64, 64, 128), 3),
    _added("add_grouped", "float32", 4),
    _added("add_grouped_by_2_warps", "int16", 2),
    _doubled(5, 40, 48, 2),
    _fold("add", "float32", 50, 48, (16, 32)),
    _fold("add", "float16", 64, 64, (16, 64)),
    _fold("add", "uint64", 20, 16, (8, 32), 3),
    _fold("min", "int32", 40, 48, (16, 32)),
    _fold("max", "uint32", 33, 16, (16, 16)),
    _fold("max", "int64", 30, 48, (8, 32)),
    _fold("min", "uint64", 16, 16, (8, 16)),
    _fold("and", "uint32", 48, 48, (16, 32)),
    _fold("or", "int32", 20, 9, (4, 8)),
    _fold("xor", "int64", 32, 32, (16, 16), 1),
    _moved("rows_fp32", "float32", 40, 48, 8, 16, 32),
    _moved("rows_fp16_beyond", "float16", 20, 40, 24, 8, 32),
    _moved("rows_int32_before", "int32", 12, 16, -8, 16, 16),
]
