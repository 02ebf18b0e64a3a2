"""The two forms of dispatch are one: the launcher's choice in C against `select` in Python, and the same for devices."""

import random

import pytest
from example_package import Facts, Kernel, Manifest, Tensor, Variant, built, example_table

from kbuild.aot import dispatch, tables
from kbuild.errors import ManifestError


@pytest.fixture
def launcher(world):
    return world.package.dispatch._launcher


def test_select_in_c_and_in_python(launcher):
    table, _ = example_table()
    chance = random.Random(1)
    seen = set()
    for index, kernel in enumerate(table.kernels):
        for _ in range(3000):
            row = chance.choice(kernel.rows)
            noise = [chance.choice((0, 0, 0, 1 << chance.randrange(64), dispatch.ALL_BITS)) for _ in row.required]
            facts = tuple((need | bits) & ~(chance.random() < 0.05 and need) for need, bits in zip(row.required, noise))
            chosen = dispatch.select(kernel, facts)
            trace = tuple(failed[0] if failed else -1 for failed in chosen.trace)
            assert launcher._select(index, facts) == (chosen.row, trace)
            seen.add(min(chosen.row, 2))
    assert seen == {dispatch.AMBIGUOUS, dispatch.NO_ROW, 0, 1, 2}


def test_device_facts_in_c_and_in_python(launcher):
    table, _ = example_table()
    for index, kernel in enumerate(table.kernels):
        for capability in (75, 80, 86, 89, 90, 100, 103, 120):
            for shared in (49152, 65536, 101376, 166912, 232448):
                facts = dispatch.device_facts(kernel, table.targets, capability, shared)
                assert launcher._device_facts(index, capability, shared) == facts
    names = {t.name: [c for c in (75, 80, 86, 90, 100, 120) if dispatch.runs_on(t, c)] for t in table.targets}
    assert names == {"sm_80": [80, 86], "sm_80+ptx": [80, 86, 90, 100, 120], "sm_90": [90], "sm_90a": [90]}


def test_facts_of_a_call(launcher, world):
    table, _ = example_table()
    ordinal, facts, arguments, grid = launcher._facts(0, False, Tensor("float16"), Tensor(address=1), n=48, grid=(3,))
    fp16, hint = dispatch.TYPES["fp16"], dispatch.HINT_16
    assert (ordinal, grid, arguments[2:]) == (0, (3,), (48, None))
    assert facts == (0, 0, fp16 | hint, dispatch.TYPES["fp32"], dispatch.TYPES["i32"] | hint, dispatch.ALL_BITS)
    assert table.kernels[0].parameters[2].mask == dispatch.TYPES["i32"] | hint | dispatch.HINT_1


@pytest.mark.parametrize("type_", ["i1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"])
def test_which_integers_fit_a_type(launcher, type_):
    """Against the definition, at the edges of every type."""
    bits, signed = int(type_[1:]), type_[0] == "i" and type_ != "i1"
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    edges = {sign * 2**power + step for power in (0, 1, 7, 8, 15, 16, 31, 32, 63, 64) for step in (-1, 0, 1) for sign in (1, -1)}
    for value in sorted(edge for edge in edges if -(2**63) <= edge < 2**64):
        fact = integer_fact(value)
        assert bool(fact & dispatch.TYPES[type_]) == (low <= value <= high), value
    assert launcher is not None


def integer_fact(value: int) -> int:
    """Python's own account of an integer's types."""
    facts = 0
    for name, bit in dispatch.TYPES.items():
        if name[0] in "iu":
            bits = int(name[1:])
            low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if name[0] == "i" and bits > 1 else (0, 2**bits - 1)
            facts |= bit * (low <= value <= high)
    return facts


def manifest_with(rows, grid=("n",)):
    kernels = tuple(Kernel(name, grid) for name in dict.fromkeys(variant.kernel for variant, _ in rows))
    return Manifest(type("Package", (), {"name": "p", "version": "1", "summary": ""})(), kernels)


def test_rows_are_ordered_by_code_then_as_written_then_by_specialisation():
    def row(arch, hint, conditions=(), block=64, compiled=""):
        key = f"{arch}{compiled}{hint}{conditions}{block}"
        return built(Variant("f", arch, (("n", f"i32{hint}"),), key, {}, {"BLOCK": block}, conditions), arch=compiled)

    rows = [
        row("sm_80", ""), row("sm_80", ":16"), row("sm_90", "", ("n <= 8",)), row("sm_90", ":1", ("n <= 8",)),
        row("sm_90", "", block=128), row("sm_90", ":16", block=128), row("sm_90", "", compiled="sm_90a"),
    ]  # fmt: skip
    names = [row.name for row in tables.make_table(manifest_with(rows), rows).kernels[0].rows]
    assert names == [
        "sm_90a BLOCK=64 num_warps=4", "sm_90 BLOCK=64 num_warps=4 n:1 if n <= 8", "sm_90 BLOCK=64 num_warps=4 if n <= 8",
        "sm_90 BLOCK=128 num_warps=4 n:16", "sm_90 BLOCK=128 num_warps=4",
        "sm_80 BLOCK=64 num_warps=4 n:16", "sm_80 BLOCK=64 num_warps=4",
    ]  # fmt: skip


def test_many_levels_of_shared_memory_are_merged_upwards():
    rows = [built(Variant("f", "sm_90", (("n", "i32"),), str(i), {}, {"I": i}), shared=50000 + 100 * i) for i in range(150)]
    kernel = tables.make_table(manifest_with(rows), rows).kernels[0]
    assert len(kernel.levels) <= 60
    for row in kernel.rows:
        level = kernel.levels[row.required[dispatch.FACT_SHARED].bit_length() - 1]
        assert row.shared <= level <= row.shared + 300


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"args": (("class", "i32"),)}, "is not a name that Python and C allow"),
        ({"args": (('x"; system("', "i32"),)}, "is not a name that Python and C allow"),
        ({"args": (("stream", "i32"),)}, "a name that the package needs itself"),
        ({"args": (("n", "float"),)}, 'unknown type "float"'),
        ({"args": (("n", "i32:8"),)}, 'unknown type "i32:8"'),
        ({"kernel": "explain"}, "a name that the package needs itself"),
        ({"kernel": "__init__"}, "is not a name"),
        ({"conditions": ("m <= 3",)}, 'when: unknown name "m"'),
        ({"matrix": {"n": 3}}, "matrix.n: is the name of an argument too"),
    ],
)
def test_bad_tables_are_told(change, message):
    variant = Variant(**({"kernel": "f", "arch": "sm_90", "args": (("n", "i32"),), "key": "k"} | change))
    rows = [(variant, Facts("f", 0, 4, 32, "sm_90", (), "0" * 64))]
    with pytest.raises(ManifestError, match=message):
        tables.make_table(manifest_with(rows), rows)
