"""Golden programs for the tensor cores: fragments by the figures of the PTX ISA, matrix multiplications by
numpy.

Of the lane `l`, `g` is `l // 4` and `t` is `l % 4`.  A register of A or B holds `w` consecutive elements
along k.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.emulator.isa.golden_program import Program, at

BITS = {
    "f16": 16,
    "bf16": 16,
    "tf32": 32,
    "f32": 32,
    "s32": 32,
    "f64": 64,
    "e4m3": 8,
    "e5m2": 8,
    "s8": 8,
    "u8": 8,
    "s4": 4,
    "u4": 4,
    "b1": 1,
}
SMALL = {"e4m3": [0, 0x38, 0x40, 0x44, 0x48], "e5m2": [0, 0x3C, 0x40, 0x42, 0x44]}


def encode(value: int, kind: str) -> int:
    """The bits of a small integer."""
    if kind in SMALL:
        return SMALL[kind][value]
    if kind == "f16":
        return int(np.float16(value).view(np.uint16))
    if kind in ("f32", "tf32", "bf16"):
        return int(np.float32(value).view(np.uint32)) >> (16 if kind == "bf16" else 0)
    if kind == "f64":
        return int(np.float64(value).view(np.uint64))
    return value & ((1 << BITS[kind]) - 1)


def fragment(
    matrix: np.ndarray, kind: str, place: Callable[[int, int, int, int], tuple[int, int]], count: int
) -> np.ndarray:
    """Registers [count, 32]; `place(register, element, g, t)` says which element of the matrix stands there."""
    width = 64 if kind == "f64" else 32
    registers = np.zeros((count, 32), np.uint64)
    for register in range(count):
        for lane in range(32):
            for element in range(width // BITS[kind]):
                value = encode(int(matrix[place(register, element, lane // 4, lane % 4)]), kind)
                registers[register, lane] |= np.uint64(value << (element * BITS[kind]))
    return registers.astype(np.uint64 if width == 64 else np.uint32)


def mma(name: str, largest: int = 4) -> Program:
    """The program of one form of `mma.sync`, on small random integers."""
    words = name.split(".")
    m, n, k = map(int, words[3].replace("m", "").replace("n", " ").replace("k", " ").split())
    d, a, b, c = (word for word in words[6:] if word in BITS)
    random = np.random.default_rng(len(name) + k)
    low = -largest if a in ("s8", "s4", "f16", "bf16", "tf32", "f64") else 0
    low_b = -largest if b in ("s8", "s4", "f16", "bf16", "tf32", "f64") else 0
    high = 2 if a == "b1" else largest + 1
    left, right = random.integers(low, high, (m, k)), random.integers(low_b, high, (k, n))
    add = random.integers(0, 9, (m, n))
    w = (64 if a == "f64" else 32) // BITS[a]
    rows = m // 8
    fragments = [
        fragment(
            left,
            a,
            lambda r, e, g, t: (g + 8 * (r % rows), w * t + e + 4 * w * (r // rows)),
            m * k // (32 * w),
        ),
        fragment(right, b, lambda r, e, g, t: (w * t + e + 4 * w * r, g), k * n // (32 * w)),
        accumulator(add, c),
    ]
    total = _combined(left, right, words) + add
    return _program(name, "d" if a == "f64" else "r", fragments, accumulator(total, d))


def _combined(left: np.ndarray, right: np.ndarray, words: list[str]) -> np.ndarray:
    if "xor" in words:
        return (left[:, :, None] != right[None]).sum(1)
    return left @ right


def accumulator(matrix: np.ndarray, kind: str) -> np.ndarray:
    rows = len(matrix) // 8
    if kind == "f16":
        return fragment(matrix, kind, lambda r, e, g, t: (g + 8 * r, 2 * t + e), rows)
    return fragment(matrix, kind, lambda r, e, g, t: (g + 8 * (r // 2), 2 * t + r % 2), 2 * rows)


def _program(name: str, letter: str, fragments: list[np.ndarray], expected: np.ndarray) -> Program:
    """Loads the registers of A, B and C (each lane's one after the other), multiplies, stores those of D."""
    size = 8 if letter == "d" else 4
    body, lists, first = "", [], 10
    for index, registers in enumerate(fragments):
        names = [f"%{letter}{first + number}" for number in range(len(registers))]
        body += at(f"m{index}", size * len(registers))
        body += "".join(
            f"    ld.global.b{8 * size} {name}, [%d0+{size * number}];\n" for number, name in enumerate(names)
        )
        lists.append("{" + ", ".join(names) + "}")
        first += len(registers)
    results = [f"%{letter}{first + number}" for number in range(len(expected))]
    body += f"    {name} {{{', '.join(results)}}}, {', '.join(lists)};\n" + at("d", size * len(expected))
    body += "".join(
        f"    st.global.b{8 * size} [%d0+{size * number}], {result};\n"
        for number, result in enumerate(results)
    )
    arrays = {f"m{index}": np.ascontiguousarray(registers.T) for index, registers in enumerate(fragments)}
    return Program(name, body, {"d": expected.T}, {**arrays, "d": np.zeros_like(expected.T, order="C")})


def matrices(count: int, transposed: bool, store: bool) -> Program:
    """`ldmatrix` or `stmatrix` of a table of halves whose value is their place."""
    rows = np.arange(count * 64, dtype=np.uint16).reshape(count, 8, 8)
    seen = rows.swapaxes(1, 2) if transposed else rows
    lanes = np.arange(32)
    pairs = np.stack([seen[:, lanes // 4, 2 * (lanes % 4) + half] for half in (0, 1)], -1)
    values = np.ascontiguousarray(pairs).view(np.uint32)[..., 0]
    names = ", ".join(f"%r{number + 10}" for number in range(count))
    form = f"matrix.sync.aligned.m8n8.x{count}{'.trans' if transposed else ''}.shared.b16"
    body = "    and.b32 %r1, %r_tid, " + str(8 * count - 1) + ";\n    shl.b32 %r1, %r1, 4;\n"
    for number in range(count):
        body += at("a", 4, index="%r_tid") + f"    ld.global.b32 %r{number + 10}, [%d0+{128 * number}];\n"
    if store:
        body += f"    st{form} [%r1], {{{names}}};\n    bar.warp.sync -1;\n    shl.b32 %r2, %r_tid, 2;\n"
        loads = [f"    ld.shared.b32 %r{number + 10}, [%r2+{128 * number}];\n" for number in range(count)]
    else:
        body += "    shl.b32 %r2, %r_tid, 2;\n"
        body += "".join(
            f"    st.shared.b32 [%r2+{128 * number}], %r{number + 10};\n" for number in range(count)
        )
        loads = [f"    bar.warp.sync -1;\n    ld{form} {{{names}}}, [%r1];\n"]
    body += "".join(loads)
    body += "".join(
        at("o", 4) + f"    st.global.b32 [%d0+{128 * number}], %r{number + 10};\n" for number in range(count)
    )
    memory = rows.view(np.uint32).reshape(count, 32)
    given, wanted = (values, memory) if store else (memory, values)
    arrays = {"a": np.ascontiguousarray(given), "o": np.zeros((count, 32), np.uint32)}
    return Program(f"{'st' if store else 'ld'}{form}", body, {"o": wanted}, arrays, shared=512)


MMAS = [
    *(
        mma("mma.sync.aligned." + name)
        for name in (
            "m16n8k16.row.col.f32.f16.f16.f32",
            "m16n8k8.row.col.f32.f16.f16.f32",
            "m16n8k16.row.col.f16.f16.f16.f16",
            "m16n8k16.row.col.f32.bf16.bf16.f32",
            "m16n8k8.row.col.f32.bf16.bf16.f32",
            "m16n8k8.row.col.f32.tf32.tf32.f32",
            "m16n8k4.row.col.f32.tf32.tf32.f32",
            "m16n8k32.row.col.f32.e4m3.e5m2.f32",
            "m16n8k32.row.col.f16.e5m2.e5m2.f16",
            "m16n8k32.row.col.satfinite.s32.s8.s8.s32",
            "m16n8k16.row.col.s32.u8.s8.s32",
            "m8n8k16.row.col.s32.s8.s8.s32",
            "m16n8k64.row.col.s32.s4.u4.s32",
            "m8n8k4.row.col.f64.f64.f64.f64",
            "m16n8k8.row.col.f64.f64.f64.f64",
            "m16n8k256.row.col.s32.b1.b1.s32.xor.popc",
            "m16n8k128.row.col.s32.b1.b1.s32.and.popc",
        )
    ),
    *(
        matrices(count, transposed, store)
        for count in (1, 2, 4)
        for transposed in (False, True)
        for store in (False, True)
    ),
    Program(
        "movmatrix",
        "    mov.b32 %r1, %r_tid;\n    movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r1;\n"
        + at("out", 4)
        + "    st.global.b32 [%d0], %r0;\n",
        {
            "out": np.array(
                [
                    [(8 * t + g // 2) * (1 - g % 2), (8 * t + 4 + g // 2) * (1 - g % 2)]
                    for g in range(8)
                    for t in range(4)
                ]
            )
            @ np.array([1, 1 << 16])
        },
        {"out": np.zeros(32, np.uint32)},
    ),
]
