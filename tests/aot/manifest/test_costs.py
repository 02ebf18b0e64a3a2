"""Costs of configurations: what they may name, which variants they make, and which are never used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.aot.manifest.expand import Variant, expand, survey
from kbuild.aot.manifest.expressions import substituted
from kbuild.aot.manifest.load import load
from kbuild.aot.manifest.model import Guard
from tests.aot.conftest import KERNEL, MANIFEST
from tests.aot.manifest.mistakes import K, mistakes

HEAD = MANIFEST[: MANIFEST.index("[[kernel.config]]")]
"""The manifest without its configurations."""


def write(project: Path, *lines: str, defaults: str = "") -> None:
    """Gives the kernel these configurations, a line each behind that of `config`."""
    text = "config = [\n" + "".join(f"  {{ {line} }},\n" for line in lines) + "]\n"
    text += f"defaults = {{ {defaults} }}\n" if defaults else ""
    head, arguments, rest = HEAD.partition("[kernel.args]")
    (project / "kernels.toml").write_text(head + text + arguments + rest)


def at(number: int) -> int:
    """The line of a configuration that `write` has written."""
    return HEAD[: HEAD.index("[kernel.args]")].count("\n") + 2 + number


def costs(project: Path, arch: str = "sm_90") -> dict[str, str]:
    """The costs of the variants for one point, by the meta-parameters."""
    found = expand(load(project / "kernels.toml"), [arch]).variants
    point = found[0].matrix, found[0].signature
    return {
        f"{one.values['BLOCK']} {','.join(map(str, one.guards))}".strip(): one.cost
        for one in found
        if (one.matrix, one.signature) == point
    }


def test_a_cost_has_the_numbers_of_its_variant(project: Path) -> None:
    write(
        project,
        'BLOCK = 512, num_warps = 8, cost = "3*cdiv( cdiv(n, BLOCK) * num_warps, num_sms )"',
        'BLOCK = 1024, cost = "cdiv(n, BLOCK) * num_stages // (2 if NEGATE else 1)"',
        "BLOCK = 2048, cost = 620",
    )
    assert costs(project) == {
        "512": "3 * cdiv(cdiv(n, 512) * 8, num_sms)",
        "1024": "cdiv(n, 1024) * 3 // (2 if 0 else 1)",
        "2048": "620",
    }
    configs = load(project / "kernels.toml").kernel("scale").configs
    assert configs[0].cost == "3 * cdiv(cdiv(n, BLOCK) * num_warps, num_sms)", "in the normal form"


def test_a_cost_among_the_defaults(project: Path) -> None:
    write(project, "BLOCK = 512", "BLOCK = 1024, cost = 7", defaults='cost = "STEP * n", SCALE = 1.0')
    source = project / "kernels/scale.py"
    source.write_text(KERNEL.replace("= 2.0", "= 2.0, STEP: tl.constexpr = 5"))
    assert costs(project) == {"512": "5 * n", "1024": "7"}


def test_the_cost_of_the_defaults_may_name_that_of_the_configuration(project: Path) -> None:
    lines = 'BLOCK = 64, when = { n = "<= 64" }', "BLOCK = 512, cost = 3", 'BLOCK = 1024, cost = "n + 1"'
    write(project, *lines, defaults='cost = "cost * cdiv(n, BLOCK)"')
    assert costs(project) == {
        "64 n<=64": "",
        "512": "3 * cdiv(n, 512)",
        "1024": "(n + 1) * cdiv(n, 1024)",
    }


def test_an_argument_may_be_called_so(project: Path) -> None:
    source = project / "kernels/scale.py"
    source.write_text(KERNEL.replace("x, y, n, ", "x, y, n, cost, "))
    write(project, "BLOCK = 512, cost = 7", "BLOCK = 1024", defaults='cost = "2 * cost"')
    manifest = project / "kernels.toml"
    manifest.write_text(manifest.read_text().replace('n = "i32:16?"', 'n = "i32:16?"\ncost = "i32"'))
    assert costs(project) == {"512": "7", "1024": "2 * cost"}


def test_a_negative_number_for_a_name() -> None:
    assert substituted("a - b // c", {"a": -3, "b": -4}) == "-3 - -4 // c"
    assert substituted("a % b", {"a": "x + y", "b": "2 * z"}) == "(x + y) % (2 * z)"
    assert substituted("min(min, cdiv)", {"min": 3, "cdiv": 4}) == "min(3, 4)"


def test_costs_and_facts_mix(project: Path) -> None:
    """Those without a cost end the search as ever; those with one are compared wherever one is the first."""
    write(
        project,
        'BLOCK = 64, when = { n = "<= 64" }',
        'BLOCK = 128, cost = "3 * n", when = { n = "<= 1024" }',
        'BLOCK = 256, cost = "2 * n"',
        'BLOCK = 512, cost = "n", when = { n = "% 512" }',
        "BLOCK = 1024, cost = 1",
    )
    assert list(costs(project)) == ["64 n<=64", "128 n<=1024", "256", "512 n%512", "1024"]
    write(
        project,
        'BLOCK = 128, cost = "3 * n", when = { n = "<= 1024" }',
        "BLOCK = 256",
        "BLOCK = 512, cost = 1",
    )
    assert list(costs(project)) == ["128 n<=1024", "256", "512"], "the last where n <= 1024"
    counts, _ = survey(load(project / "kernels.toml"))
    assert counts["scale"] == len(expand(load(project / "kernels.toml")).variants)


def test_one_whose_facts_an_earlier_one_asks_for_is_not_built(project: Path) -> None:
    write(
        project,
        'BLOCK = 64, when = { n = "<= 64" }',
        'BLOCK = 128, cost = 3, when = { n = "<= 64" }',
        'BLOCK = 256, cost = 3, when = { n = "<= 1024" }',
        'BLOCK = 512, when = { n = "<= 1024" }',
        'BLOCK = 1024, cost = 2, when = { n = "<= 1024" }',
        "BLOCK = 2048",
    )
    assert list(costs(project)) == ["64 n<=64", "256 n<=1024", "1024 n<=1024", "2048"]


def test_options_without_effect_on_an_architecture(project: Path) -> None:
    """There the first of those that differ in their cost alone counts."""
    write(project, "BLOCK = 512, launch_pdl = true, cost = 1", "BLOCK = 512, cost = 2")
    assert len(expand(load(project / "kernels.toml"), ["sm_90"]).variants) == 2 * 8
    found = expand(load(project / "kernels.toml"), ["sm_80"]).variants
    assert len(found) == 8 and {one.cost for one in found} == {"1"}


def test_the_text_of_a_variant_has_its_cost(project: Path) -> None:
    write(project, 'BLOCK = 512, cost = "n // 3"', 'BLOCK = 1024, cost = "max(n, 2)"')
    for variant in expand(load(project / "kernels.toml")).variants:
        assert Variant.parse(str(variant)) == variant and variant.cost in ("n // 3", "max(n, 2)")
        guarded = replace(variant, guards=(Guard("n:64", "<=", "num_sms//2"), Guard("n", "%", 4)))
        assert Variant.parse(str(guarded)) == guarded
        assert str(guarded).endswith(f"/n:64<=num_sms//2,n%4;{variant.cost}")


def test_no_file_has_a_cost_in_its_name(project: Path) -> None:
    write(project, 'BLOCK = 512, cost = "2 * n"')
    variant = expand(load(project / "kernels.toml")).variants[0]
    long = replace(variant, constexprs=(("WORD", "w" * 300),))
    for one in (variant, long):
        assert {replace(one, cost=text).file_name for text in ("", "n", "2 * n")} == {one.file_name}


def test_a_parameter_of_the_kernel_may_be_called_so(project: Path) -> None:
    source = project / "kernels/scale.py"
    source.write_text(KERNEL.replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr, cost: tl.constexpr"))
    write(project, "BLOCK = 512", defaults='cost = "BLOCK // 2"')
    (variant, *_) = expand(load(project / "kernels.toml")).variants
    assert variant.cost == "" and variant.values["cost"] == 256


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ('"2 * m"', 'unknown name "m" in "2 * m"; the names known here are n, BLOCK, NEGATE, '),
        ('"x"', 'unknown name "x" in "x"'),
        ('"SCALE * n"', 'unknown name "SCALE" in "SCALE * n"'),
        ('"n / 2"', 'unknown operator in "n / 2" in "n / 2"; write // or cdiv(a, b)'),
        ('""', '"" is not an expression; write for example cdiv(n, BLOCK)'),
        ("1.5", "expected an integer or an expression, found the float 1.5"),
        ("true", "expected an integer or an expression, found true"),
    ],
)
def test_what_is_not_a_cost(project: Path, value: str, message: str) -> None:
    write(project, "BLOCK = 512", f"BLOCK = 1024, cost = {value}")
    found = mistakes(project)
    assert found[0].startswith(f"{at(1)}: {K}config[1].cost: {message}"), found


def test_a_mistake_in_the_cost_of_the_defaults(project: Path) -> None:
    write(project, "BLOCK = 512", "BLOCK = 1024, cost = 3", defaults='cost = "m"')
    (found,) = mistakes(project)
    assert found.startswith(f'{at(3)}: {K}defaults.cost: unknown name "m"')


def test_an_argument_of_64_bits_without_a_sign(project: Path) -> None:
    write(project, "BLOCK = 512, cost = 'n'")
    text = (project / "kernels.toml").read_text().replace('n = "i32:16?"', 'n = "u64:16?"')
    (project / "kernels.toml").write_text(text.replace("cdiv(n, BLOCK)", "1"))
    (found,) = mistakes(project)
    assert found.startswith(f'{at(0)}: {K}config[0].cost: unknown name "n"')


@pytest.mark.parametrize(
    ("lines", "number", "message"),
    [
        (
            ["BLOCK = 512, cost = 1", "BLOCK = 512, cost = 2"],
            1,
            "config[1]: differs from config[0] in its cost alone, and both apply to the same calls; "
            "give them one cost, or facts that are not the same",
        ),
        (
            ['BLOCK = 512, when = { n = "<= 8" }, cost = 1'] * 2,
            1,
            "config[1]: differs from config[0] in its cost alone",
        ),
        (
            ["BLOCK = 512, SCALE = 2.0, cost = 1", "BLOCK = 512, cost = 2"],
            1,
            "config[1]: differs from config[0] in its cost alone",
        ),
        (
            ['BLOCK = 128, cost = 1, when = { n = "<= 8" }', "BLOCK = 512", "BLOCK = 512, cost = 2"],
            2,
            "config[2]: differs from config[1] in its cost alone",
        ),
        (
            ["BLOCK = 128, cost = 1", "BLOCK = 512"],
            1,
            "config[1]: is never used: config[0] applies wherever it does",
        ),
        (
            ["BLOCK = 128", "BLOCK = 512, cost = 1"],
            1,
            "config[1]: is never used: config[0] applies wherever it does",
        ),
    ],
)
def test_configurations_that_are_never_used(
    project: Path, lines: list[str], number: int, message: str
) -> None:
    write(project, *lines)
    (found,) = mistakes(project)
    assert found.startswith(f"{at(number)}: {K}{message}")


def test_one_tile_may_have_several_costs_for_different_calls(project: Path) -> None:
    write(
        project,
        'BLOCK = 512, cost = 1, when = { n = "% 64" }',
        "BLOCK = 512, cost = 2",
        'BLOCK = 1024, cost = "n", when = { arch = "sm_80" }',
        'BLOCK = 1024, cost = "2 * n", when = { arch = "sm_90" }',
    )
    assert costs(project) == {"512 n%64": "1", "512": "2", "1024": "2 * n"}
