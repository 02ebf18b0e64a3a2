"""The two forms of dispatch are one: the launcher's choice in C against `select` in Python, and the same for
devices."""

import random
import re
from dataclasses import replace

import pytest

from kbuild.aot.artifact import selection, tables
from kbuild.aot.files import templates_directory
from kbuild.aot.manifest.model import Argument, Guard
from kbuild.errors import ManifestError, UsageError
from tests.launcher.example_package import Tensor, built, example_table, kernel_of, manifest_of, variant_of

ALL_BITS = (1 << 64) - 1


@pytest.fixture
def launcher(world):
    return world.package.dispatch._launcher


def test_select_in_c_and_in_python(launcher):
    table, _ = example_table()
    chance = random.Random(1)
    seen, compared = set(), set()
    for index, kernel in enumerate(table.kernels):
        for _ in range(3000):
            row = chance.choice(kernel.rows)
            noise = [chance.choice((0, 0, 0, 1 << chance.randrange(64), ALL_BITS)) for _ in row.required]
            facts = tuple(
                (need | bits) & ~(chance.random() < 0.05 and need) for need, bits in zip(row.required, noise)
            )
            costs = tuple(None if chance.random() < 0.05 else chance.randrange(-3, 4) for _ in kernel.costs)
            chosen = selection.select(kernel, facts, costs)
            trace = tuple(failed[0] if failed else -1 for failed in chosen.trace)
            assert launcher._select(index, facts, costs) == (chosen.row, trace)
            seen.add(min(chosen.row, 2))
            compared.add(chosen.compared.index(chosen.row) if chosen.row in chosen.compared else -1)
    assert seen == {selection.COST_FAULT, selection.AMBIGUOUS, selection.NO_ROW, 0, 1, 2}
    assert compared == {-1, 0, 1, 2, 3}, "the cheapest may be any of four"


def test_device_facts_in_c_and_in_python(launcher):
    table, _ = example_table()
    for index, kernel in enumerate(table.kernels):
        for capability in (75, 80, 86, 89, 90, 100, 103, 120):
            for shared in (49152, 65536, 101376, 166912, 232448):
                facts = selection.device_facts(kernel, table.targets, capability, shared)
                assert launcher._device_facts(index, capability, shared) == facts
    names = {t.name: [c for c in (75, 80, 86, 90, 100, 120) if t.first <= c <= t.last] for t in table.targets}
    assert names == {"sm_80": [80, 86], "sm_80+ptx": [80, 86, 90, 100, 120], "sm_90": [90], "sm_90a": [90]}, (
        "no sm_90a+ptx"
    )


def test_facts_of_a_call(launcher, world):
    table, _ = example_table()
    ordinal, facts, arguments, grid, costs = launcher._facts(
        0, 0, Tensor("float16"), Tensor(address=1), n=48, grid=(3,)
    )
    fp16, hint = selection.TYPES["fp16"], selection.HINT_16
    assert (ordinal, grid, arguments[2:], costs) == (0, (3,), (48, None), ())
    assert facts == (0, 0, fp16 | hint, selection.TYPES["fp32"], selection.TYPES["i32"] | hint, ALL_BITS)
    assert table.kernels[0].parameters[2].mask == selection.TYPES["i32"] | hint | selection.HINT_1


def test_which_integers_fit_a_type(launcher):
    """`seed` is u64, `heads` i64, `n` i32 with both hints, `flag` i1: at the edges of every type."""
    edges = {
        sign * 2**power + step
        for power in (0, 1, 4, 31, 32, 63, 64)
        for step in (-1, 0, 1)
        for sign in (1, -1)
    }
    types, q = selection.TYPES, Tensor("float16")
    for value in sorted(edge for edge in edges if -(2**63) <= edge < 2**64):
        call = launcher._facts(1, 1, q, 0.5, 1.5, 1, value, value, HEAD_DIM=64, IS_CAUSAL=True)[1]
        assert call[6:8] == (types["i64"] * (value < 2**63), types["u64"] * (value >= 0)), value
        n = launcher._facts(0, 1, q, q, value)[1][4]
        hints = selection.HINT_16 * (value % 16 == 0) | selection.HINT_1 * (value == 1)
        assert n == types["i32"] * (-(2**31) <= value < 2**31) | hints, value
        assert launcher._facts(3, 1, q, value, grid=1)[1][3] == types["i1"] * (value in (0, 1)), value
    with pytest.raises(OverflowError):
        launcher._facts(0, 1, q, q, 2**64)


def test_addresses_that_8_divides(launcher, world):
    for address in (0x100, 0x108, 0x104, 0x110):
        fact = launcher._facts(3, 1, Tensor("int8", address=address), 1, grid=1)[1][2]
        assert fact == selection.TYPES["i8"] | selection.HINT_8 * (address % 8 == 0), hex(address)
    with pytest.raises(world.package.NoVariantError, match="the address of source is not divisible by 8"):
        world.package.copy(Tensor("int8", address=0x104, device=1), True, grid=1)


def table_of(rows, grid=("n",)):
    kernels = tuple(kernel_of(name, grid) for name in dict.fromkeys(variant.kernel for variant, _ in rows))
    return tables.make_table(manifest_of(kernels), rows)


def test_rows_are_ordered_by_code_then_by_specialisation_then_as_written():
    def row(arch, hint, guards=(), block=64, compiled=""):
        return built(
            variant_of("f", arch, {"n": f"i32{hint}"}, constexprs={"BLOCK": block}, guards=guards),
            arch=compiled,
        )

    small = (Guard("n", "<=", 8),)
    rows = [
        row("sm_80", ""),
        row("sm_80", ":16"),
        row("sm_90", "", small),
        row("sm_90", ":1", small),
        row("sm_90", "", block=128, compiled="sm_90a"),
        row("sm_90", ":16", block=128),
        row("sm_90", ":4", block=512),
        row("sm_90", ":8", block=256),
    ]
    assert [row.name for row in table_of(rows).kernels[0].rows] == [
        "sm_90 BLOCK=64 num_warps=4 num_stages=3 n:1 if n <= 8",
        "sm_90 BLOCK=128 num_warps=4 num_stages=3 n:16",
        "sm_90 BLOCK=256 num_warps=4 num_stages=3 n:8",
        "sm_90 BLOCK=512 num_warps=4 num_stages=3 n:4",
        "sm_90 BLOCK=64 num_warps=4 num_stages=3 if n <= 8",
        "sm_90a BLOCK=128 num_warps=4 num_stages=3",
        "sm_80 BLOCK=64 num_warps=4 num_stages=3 n:16",
        "sm_80 BLOCK=64 num_warps=4 num_stages=3",
    ]


def test_arguments_of_the_grid_alone_may_choose_among_rows():
    """Then a call which gives its grid cannot leave them out."""
    kernel = replace(kernel_of("f", ("n",)), grid_args=(Argument("n", "i32"), Argument("m", "i32")))
    few = variant_of("f", "sm_90", {"x": "*fp32"}, constexprs={"BLOCK": 64}, guards=(Guard("n", "<=", 8),))
    table = tables.make_table(
        manifest_of((kernel,)),
        [built(few), built(variant_of("f", "sm_90", {"x": "*fp32"}, constexprs={"BLOCK": 128}))],
    ).kernels[0]
    assert [(p.name, p.grid_only) for p in table.parameters] == [("x", False), ("n", False), ("m", True)]
    assert table.conditions == ("n <= 8",) and len(table.rows) == 2


def test_a_configuration_for_any_values_takes_no_call_from_a_specialised_one():
    """As in the manifest of matmul: the slow general tile is written first, and never for aligned rows."""
    any_value = variant_of("f", "sm_90", {"n": "i32"}, constexprs={"BLOCK": 16})
    aligned = variant_of("f", "sm_90", {"n": "i32:16"}, constexprs={"BLOCK": 128})
    kernel = table_of([built(any_value), built(aligned)]).kernels[0]
    for hint, name in (
        (0, "BLOCK=16 num_warps=4 num_stages=3"),
        (selection.HINT_16, "BLOCK=128 num_warps=4 num_stages=3 n:16"),
    ):
        facts = (ALL_BITS, ALL_BITS, selection.TYPES["i32"] | hint)
        assert kernel.rows[selection.select(kernel, facts).row].name == f"sm_90 {name}"


@pytest.mark.parametrize(
    ("signatures", "values", "is_required"),
    [
        (("*fp16", "*fp32"), ("fp16", "fp32"), False),  # the type of x says it
        (("*fp16", "*fp16"), ("fp16", "fp32"), True),  # such as that of the accumulator: x is the same
        (("*fp16", "*fp32"), ("a", "b"), True),  # no types
        (("*fp16", "*fp32"), (1, 2), True),
    ],
)
def test_an_option_may_be_left_out_where_the_arguments_imply_it(signatures, values, is_required):
    rows = [
        built(variant_of("f", "sm_90", {"x": signature, "n": "i32"}, matrix={"kind": value}))
        for signature, value in zip(signatures, values)
    ]
    [option] = table_of(rows).kernels[0].options
    assert (option.name, option.values, option.required) == ("kind", values, is_required)


def test_many_levels_of_shared_memory_are_merged_upwards():
    rows = [
        built(variant_of("f", "sm_90", {"n": "i32"}, constexprs={"I": i}), shared=50000 + 100 * i)
        for i in range(150)
    ]
    kernel = table_of(rows).kernels[0]
    assert len(kernel.levels) <= 60
    for row in kernel.rows:
        level = kernel.levels[row.required[selection.FACT_SHARED].bit_length() - 1]
        assert row.shared <= level <= row.shared + 300


@pytest.mark.parametrize(
    ("kernel", "signature", "values", "message"),
    [
        ("f", {"class": "i32"}, {}, "is not a name that Python and C allow"),
        ("f", {'x"; system("': "i32"}, {}, "is not a name that Python and C allow"),
        ("f", {"stream": "i32"}, {}, "a name that the package needs itself"),
        ("f", {"n": "float"}, {}, 'unknown type "float"'),
        ("f", {"n": "*i32:3"}, {}, 'unknown type "\\*i32:3"'),
        ("explain", {"n": "i32"}, {}, "a name that the package needs itself"),
        ("__init__", {"n": "i32"}, {}, "is not a name"),
        ("f", {"n": "i32"}, {"guards": (Guard("m", "<=", 3),)}, 'when: unknown name "m"'),
        ("f", {"n": "i32"}, {"matrix": {"n": 3}}, "matrix.n: is the name of an argument too"),
        ("f", {"m": "i32"}, {}, r'grid\[0\]: unknown name "n"'),
    ],
)
def test_bad_tables_are_reported(kernel, signature, values, message):
    with pytest.raises(ManifestError, match=message):
        table_of([built(variant_of(kernel, "sm_90", signature, **values))])


def test_facts_have_the_same_bits_in_c_and_in_python():
    text = (templates_directory() / "launcher" / "types.h").read_text()
    bits = {
        name: 1 << int(bit) for name, bit in re.findall(r"#define (\w+) \(UINT64_C\(1\) << (\d+)\)", text)
    }
    wanted = {f"TYPE_{name.upper()}": bit for name, bit in selection.TYPES.items()}
    assert bits == {
        **wanted,
        "HINT_16": selection.HINT_16,
        "HINT_8": selection.HINT_8,
        "HINT_4": selection.HINT_4,
        "HINT_1": selection.HINT_1,
    }
    assert len(set(bits.values())) == len(bits) and f"TYPE_MASK UINT64_C(0x{selection.TYPE_MASK:X})" in text


@pytest.mark.parametrize(
    ("arch", "is_ptx", "target"),
    [
        ("sm_80", False, selection.CodeTarget("sm_80", 80, 89)),
        ("sm_90a", False, selection.CodeTarget("sm_90a", 90, 90)),
        ("sm_100f", False, selection.CodeTarget("sm_100f", 100, 109)),
        ("sm_80", True, selection.CodeTarget("sm_80+ptx", 80, 9999)),
    ],
)
def test_what_the_code_of_a_variant_runs_on(arch, is_ptx, target):
    assert tables.Code(*built(variant_of("scale", arch, {"x": "*fp32"})), is_ptx=is_ptx).target == target


@pytest.mark.parametrize("arch", ["sm_9x", "90", "sm_90b"])
def test_an_unknown_architecture(arch):
    with pytest.raises(UsageError, match=f"unknown architecture '{arch}'"):
        _ = tables.Code(*built(variant_of("scale", arch, {"x": "*fp32"})), is_ptx=False).target
