"""Golden programs for `wmma` and `mma.sp`: matrices multiplied by numpy, fragments and metadata by the PTX
ISA."""

from __future__ import annotations

import numpy as np

from tests.emulator.isa.golden_program import Program, at
from tests.emulator.isa.products import BITS, accumulator, encode, fragment

COUNTS = {"f16": 8}
"""Registers of A and B, where they are not those that the elements fill."""
FACTORS = ("s8", "s4", "f16", "bf16", "tf32", "f64")


def stored(matrix: np.ndarray, kind: str, by_rows: bool, stride: int) -> np.ndarray:
    """A matrix as memory holds it, in bytes; rows (or columns) begin `stride` elements apart."""
    lines = matrix if by_rows else matrix.T
    numbers = np.zeros((len(lines), stride), np.uint64)
    for place in np.ndindex(lines.shape):
        numbers[place] = encode(int(lines[place]), kind)
    bits = BITS[kind]
    if bits >= 8:
        return numbers.astype(f"u{bits // 8}").view(np.uint8).ravel()
    each = (numbers[..., None] >> np.arange(bits, dtype=np.uint64) & np.uint64(1)).astype(np.uint8)
    return np.packbits(each.reshape(-1), bitorder="little")


def wmma(
    shape: str,
    types: str,
    layouts: str = "row.col",
    operation: str = "",
    space: str = "global",
    extra: int = 0,
) -> Program:
    """Loads A, B and C, multiplies and stores D by rows; C and D lie `extra` elements further apart than they
    need."""
    m, n, k = map(int, shape.replace("m", "").replace("n", " ").replace("k", " ").split())
    kinds = types.split(".")
    d, a, b, c = (kinds[0], "f16", "f16", kinds[1]) if len(kinds) == 2 else kinds[:4]
    random = np.random.default_rng(len(shape + types) + k)
    high = 2 if a == "b1" else 5
    left = random.integers(-4 if a in FACTORS else 0, high, (m, k))
    right = random.integers(-4 if b in FACTORS else 0, high, (k, n))
    add = random.integers(0, 9, (m, n))
    by_rows = [layout == "row" for layout in layouts.split(".")]
    both = (left[:, :, None] != right[None]).sum(1) if operation == "xor" else left @ right
    memory = {
        "a": stored(left, a, by_rows[0], k if by_rows[0] else m),
        "b": stored(right, b, by_rows[1], n if by_rows[1] else k),
        "c": stored(add, c, True, n + extra),
        "d": stored(both + add, d, True, n + extra),
    }
    body = "    .reg .b32 %x<100>;\n    .reg .b64 %y<20>;\n"
    names, first = {}, 0
    for role, kind, size in (("a", a, m * k), ("b", b, k * n), ("c", c, m * n), ("d", d, m * n)):
        count = COUNTS.get(kind, 0) if role in "ab" else 0
        count = count or size * BITS[kind] // (2048 if kind == "f64" else 1024)
        letter = "y" if kind == "f64" else "x"
        names[role] = "{" + ", ".join(f"%{letter}{first + index}" for index in range(count)) + "}"
        first += count
    for role, kind, layout in (
        ("a", a, layouts.split(".")[0]),
        ("b", b, layouts.split(".")[1]),
        ("c", c, "row"),
    ):
        stride = f", {n + extra}" if extra and role == "c" else ""
        place = f"%d_{role}"
        if role == "a" and space == "shared":
            body += "    mov.b32 %r1, buffer;\n    setp.eq.u32 %p1, %r_tid, 0;\n"
            for offset in range(0, len(memory["a"]), 16):
                body += f"    @%p1 ld.global.v2.b64 {{%d1, %d2}}, [%d_a+{offset}];\n"
                body += f"    @%p1 st.shared.v2.b64 [%r1+{offset}], {{%d1, %d2}};\n"
            body += "    bar.warp.sync -1;\n"
            place = "%r1"
        at_space = space if role == "a" else "global"
        body += f"    wmma.load.{role}.sync.aligned.{layout}.{shape}.{at_space}.{kind} {names[role]}, [{place}]{stride};\n"
    head = f"wmma.mma.{operation}.popc" if operation else "wmma.mma"
    body += f"    {head}.sync.aligned.{layouts}.{shape}.{types} {names['d']}, {names['a']}, {names['b']}, {names['c']};\n"
    stride = f", {n + extra}" if extra else ""
    body += f"    wmma.store.d.sync.aligned.row.{shape}.global.{d} [%d_d], {names['d']}{stride};\n"
    arrays = {**{role: memory[role] for role in "abc"}, "d": np.zeros_like(memory["d"])}
    name = f"{head} {layouts} {shape} {types}"
    module = ".extern .shared .align 128 .b8 buffer[];" if space == "shared" else ""
    return Program(
        name, body, {"d": memory["d"]}, arrays, shared=len(memory["a"]) if module else 0, module=module
    )


def sparse(name: str, selector: int = 0, ordered: bool = True) -> Program:
    """`mma.sp` of small integers: of each group of A's row two elements are kept (or one of two, or two pairs
    of four)."""
    shape, *_, d, a, b, c = name.removesuffix(".satfinite").split(".")
    k = int(shape.split("k")[1])
    random = np.random.default_rng(len(name) + k + selector)
    group, unit, kept = {32: (2, 1, 1), 4: (8, 2, 2)}.get(BITS[a], (4, 1, 2))
    groups, low = k // group, -4 if a in FACTORS else 0
    packed, right = (
        random.integers(low, 5, (16, k // 2)),
        random.integers(-4 if b in FACTORS else 0, 5, (k, 8)),
    )
    add = random.integers(0, 9, (16, 8))
    left, nibbles = np.zeros((16, k), int), np.zeros((16, groups), np.int64)
    for row, number in np.ndindex(16, groups):
        chosen = sorted(
            random.choice(4 if kept == 2 else 2, kept, replace=False).tolist(), reverse=not ordered
        )
        nibbles[row, number] = [0b0100, 0b1110][chosen[0]] if kept == 1 else chosen[0] | chosen[1] << 2
        for index, place in enumerate(chosen):
            for element in range(unit):
                source = (number * kept + index) * unit + element
                left[row, number * group + place * unit + element] = packed[row, source]
    w = 32 // BITS[a]
    fragments = [
        fragment(
            packed, a, lambda r, e, g, t: (g + 8 * (r % 2), w * t + e + 4 * w * (r // 2)), k * BITS[a] // 128
        ),
        fragment(right, b, lambda r, e, g, t: (w * t + e + 4 * w * r, g), k * BITS[a] // 128),
        accumulator(add, c),
    ]
    body, lists, first = at("e", 4) + "    ld.global.b32 %r1, [%d0];\n", [], 10
    for index, registers in enumerate(fragments):
        given = [f"%r{first + number}" for number in range(len(registers))]
        body += at(f"m{index}", 4 * len(registers))
        body += "".join(
            f"    ld.global.b32 {register}, [%d0+{4 * number}];\n" for number, register in enumerate(given)
        )
        lists.append("{" + ", ".join(given) + "}")
        first += len(registers)
    expected = accumulator(left @ right + add, d)
    results = [f"%r{first + number}" for number in range(len(expected))]
    opcode = "mma.sp::ordered_metadata" if ordered else "mma.sp"
    body += (
        f"    {opcode}.sync.aligned.{name} {{{', '.join(results)}}}, {', '.join(lists)}, %r1, {selector};\n"
    )
    body += at("d", 4 * len(expected))
    body += "".join(
        f"    st.global.b32 [%d0+{4 * number}], {register};\n" for number, register in enumerate(results)
    )
    arrays = {
        "e": metadata(nibbles, BITS[a], selector),
        **{f"m{i}": np.ascontiguousarray(f.T) for i, f in enumerate(fragments)},
    }
    text = f"{opcode}.{name} {selector}"
    return Program(text, body, {"d": expected.T}, {**arrays, "d": np.zeros_like(expected.T, order="C")})


def metadata(nibbles: np.ndarray, bits: int, selector: int) -> np.ndarray:
    """The word of each lane: where an H200 looks for the metadata of a row's group.  All others have bits
    that must not be used."""
    words = np.zeros(32, np.uint32)
    lanes = nibbles.shape[1] // 4
    for (row, number), value in np.ndenumerate(nibbles):
        if bits >= 16:
            lane, place = number // 4, number % 4 + 4 * (row // 8)
        else:
            lane, place = 2 * (number // 8) + row // 8, number % 8
        words[4 * (row % 8) + lanes * selector + lane] |= np.uint32(value << 4 * place)
    return words


WMMA = [
    wmma("m16n16k16", "f32.f32"),
    wmma("m16n16k16", "f16.f32", "col.row"),
    wmma("m32n8k16", "f16.f16", "row.row", extra=8),
    wmma("m8n32k16", "f32.f16", "col.col", space="shared"),
    wmma("m16n16k16", "f32.bf16.bf16.f32", extra=16),
    wmma("m8n32k16", "f32.bf16.bf16.f32", "col.row"),
    wmma("m32n8k16", "f32.bf16.bf16.f32"),
    wmma("m16n16k8", "f32.tf32.tf32.f32"),
    wmma("m16n16k8", "f32.tf32.tf32.f32", "col.row"),
    wmma("m8n8k4", "f64.f64.f64.f64"),
    wmma("m8n8k4", "f64.f64.f64.f64", "col.row", extra=2),
    wmma("m16n16k16", "s32.s8.s8.s32"),
    wmma("m32n8k16", "s32.u8.u8.s32.satfinite", "col.row"),
    wmma("m8n32k16", "s32.s8.s8.s32", extra=4),
    wmma("m8n8k32", "s32.s4.s4.s32"),
    wmma("m8n8k32", "s32.u4.u4.s32"),
    wmma("m8n8k128", "s32.b1.b1.s32", operation="xor"),
    wmma("m8n8k128", "s32.b1.b1.s32", operation="and"),
]
SPARSE = [
    *(sparse("m16n8k16.row.col.f32.f16.f16.f32", selector) for selector in range(4)),
    *(
        sparse(f"m16n8k32.row.col.f32.{kind}.{kind}.f32", selector)
        for kind in ("f16", "bf16")
        for selector in range(2)
    ),
    sparse("m16n8k32.row.col.f16.f16.f16.f16"),
    sparse("m16n8k16.row.col.f32.f16.f16.f32", ordered=False),
    sparse("m16n8k8.row.col.f32.tf32.tf32.f32", 3),
    sparse("m16n8k16.row.col.f32.tf32.tf32.f32", 1),
    sparse("m16n8k64.row.col.f32.e4m3.e5m2.f32"),
    sparse("m16n8k32.row.col.s32.s8.u8.s32", 1),
    sparse("m16n8k64.row.col.satfinite.s32.u8.s8.s32"),
    sparse("m16n8k64.row.col.s32.s4.u4.s32", 1),
    sparse("m16n8k128.row.col.s32.u4.s4.s32"),
]
