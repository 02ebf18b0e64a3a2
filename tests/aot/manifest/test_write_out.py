"""Kernels like others, lists of facts, and meta-parameters that are computed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.aot.manifest.expand import Variant, expand
from kbuild.aot.manifest.expressions import evaluate, parse
from kbuild.aot.manifest.load import load
from kbuild.aot.manifest.model import Guard
from tests.aot.conftest import KERNEL
from tests.aot.manifest.mistakes import mistakes
from tests.manifests import package_table

K = 'kernel "scale": '
HEAD = (
    package_table("demo_kernels", "sm_80", version="0.1.0")
    + """\
[[kernel]]
name = "scale"
source = "kernels/scale.py"
grid = ["cdiv(n, BLOCK)"]
args = { "x, y" = "*{dtype}", n = "i32" }
matrix = { dtype = ["fp16", "fp32"], NEGATE = [false, true], WIDTH = [48, 64] }
"""
)
LINE = HEAD.count("\n") + 1


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "kernels").mkdir()
    source = KERNEL.replace("SCALE:", "WIDTH: tl.constexpr, PARTS: tl.constexpr = 2, SCALE:")
    (tmp_path / "kernels/scale.py").write_text(source)
    return tmp_path


def configs(project: Path, text: str) -> list[tuple[str, list[int], dict[str, object]]]:
    """Conditions, bounds and meta-parameters of the configurations in such a manifest."""
    (project / "kernels.toml").write_text(HEAD + text)
    kernel = load(project / "kernels.toml").kernel("scale")
    return [
        (str(one.when), [guard.bound(132) for guard in one.guards], dict(one.constexprs))
        for one in kernel.configs
    ]


def test_a_list_of_facts_repeats_its_line(project: Path) -> None:
    found = configs(
        project, 'config = [{ BLOCK = 64, when = { n = ["<= 64", "> 9, <= 99"] } }, { BLOCK = 8 }]\n'
    )
    assert found == [("", [64], {"BLOCK": 64}), ("", [9, 99], {"BLOCK": 64}), ("", [], {"BLOCK": 8})]


@pytest.mark.parametrize(
    ("fact", "block"),
    [
        ("<= 256", 256),
        ("<= 1000", 1024),
        ("< 1025", 1024),
        ("> 3, <= 60", 64),
        ("== 48", 64),
        ("<= 9, <= 5", 8),
    ],
)
def test_a_value_computed_from_the_largest_argument(project: Path, fact: str, block: int) -> None:
    text = f'config = [{{ BLOCK = "next_power_of_2(n)", when = {{ n = "{fact}" }} }}, {{ BLOCK = 1 }}]\n'
    assert configs(project, text)[0][2] == {"BLOCK": block}


def test_a_default_is_computed_for_each_configuration(project: Path) -> None:
    text = """\
defaults = { BLOCK = "next_power_of_2(n) // PARTS", PARTS = 1, num_warps = 8 }
config = [
  { when = { n = ["<= 64", "<= 100"] } }, { PARTS = 4, when = { n = "<= 256" } },
  { BLOCK = 512, when = { n = "<= 512" } }, { BLOCK = "32 * num_warps" }]
"""
    assert [list(values.items()) for _, _, values in configs(project, text)] == [
        [("BLOCK", 64), ("PARTS", 1)],
        [("BLOCK", 128), ("PARTS", 1)],
        [("BLOCK", 64), ("PARTS", 4)],
        [("BLOCK", 512), ("PARTS", 1)],
        [("BLOCK", 256), ("PARTS", 1)],
    ]


def test_a_value_computed_from_an_axis_and_the_default_of_the_source(project: Path) -> None:
    text = 'config = [{ BLOCK = "PARTS * next_power_of_2(WIDTH)", when = { NEGATE = true } }, { BLOCK = "WIDTH // 4" }]\n'
    assert configs(project, text) == [
        ("NEGATE = True, WIDTH = 48", [], {"BLOCK": 128}),
        ("NEGATE = True, WIDTH = 64", [], {"BLOCK": 128}),
        ("WIDTH = 48", [], {"BLOCK": 12}),
        ("WIDTH = 64", [], {"BLOCK": 16}),
    ]
    blocks = {variant.values["BLOCK"] for variant in expand(load(project / "kernels.toml")).variants}
    assert blocks == {128, 12, 16}


def test_axes_that_a_condition_names_are_computed_for_its_values(project: Path) -> None:
    text = 'config = [{ BLOCK = "2 * WIDTH", when = { WIDTH = 48 } }, { BLOCK = "WIDTH + 0", when = { WIDTH = [64] } }]\n'
    assert [values["BLOCK"] for _, _, values in configs(project, text)] == [96, 64]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            '{ BLOCK = "next_power_of_2(n)" }',
            'BLOCK: n has no largest value here: say it in `when`, as n = "<= 1024"',
        ),
        ('{ BLOCK = "n + 1", when = { n = ">= 9" } }', "BLOCK: n has no largest value here"),
        ('{ BLOCK = "n + 1", when = { n = "<= num_sms" } }', "BLOCK: n has no largest value here"),
        ('{ BLOCK = "n + 1", when = { n = "9" } }', 'when.n: "9" is not a fact'),
        ("{ BLOCK = \"__import__('os')\" }", 'BLOCK: unknown function "__import__"'),
        ('{ BLOCK = "open(1).read()" }', 'BLOCK: unknown function "open(1).read"'),
        ('{ BLOCK = "m + 1" }', 'BLOCK: unknown name "m" in "m + 1"; the names known here are'),
        ('{ BLOCK = "1 /" }', 'BLOCK: "1 /" is not an expression'),
        ('{ BLOCK = "1 // 0" }', "BLOCK: division by zero"),
        ('{ BLOCK = "PARTS * 2", PARTS = "BLOCK * 2" }', "BLOCK: depends on itself, by way of BLOCK, PARTS"),
        (
            "{ BLOCK = 8, when = { n = [] } }",
            "when.n: expected a fact, or a list of them, found an empty list",
        ),
        ('{ BLOCK = 8, when = { n = ["<= 8", 9] } }', "when.n: the int 9 is not a fact"),
        ('{ BLOCK = "2 * dtype" }', 'BLOCK: unknown name "dtype"'),
    ],
)
def test_mistakes_point_at_the_key(project: Path, config: str, message: str) -> None:
    (project / "kernels.toml").write_text(
        HEAD + f"config = [\n  {{ BLOCK = 4, when = {{ n = '<= 4' }} }},\n  {config},\n]\n"
    )
    found = mistakes(project)
    assert any(entry.startswith(f"{LINE + 2}: {K}config[1].{message}") for entry in found), found


def test_a_mistake_in_a_default_points_there(project: Path) -> None:
    text = 'defaults = { BLOCK = "2 * m" }\nconfig = [{ when = { n = "<= 4" } }, {}]\n'
    (project / "kernels.toml").write_text(HEAD + text)
    (found,) = mistakes(project)
    assert found.startswith(f'{LINE}: {K}defaults.BLOCK: unknown name "m"')


def test_a_configuration_behind_one_that_was_written_out_is_reported_by_its_own_number(project: Path) -> None:
    text = 'config = [\n  { BLOCK = 8, when = { n = ["<= 8", "<= 9"] } },\n  { BLOCK = "WIDTH + 0" },\n  { BLOCK = 4 },\n]\n'
    (project / "kernels.toml").write_text(HEAD + text)
    assert mistakes(project) == [
        f"{LINE + 3}: {K}config[2]: is never used: config[1] applies wherever it does; give it a `when`"
    ]


def test_a_size_that_is_asked_for_by_itself(project: Path) -> None:
    text = """\
config = [
  { BLOCK = "next_power_of_2(n)", when = { n = ["== 128", "== 4096"] } },
  { BLOCK = 1024, when = { n = "!= 0" } },
]
"""
    (project / "kernels.toml").write_text(HEAD + text)
    manifest = load(project / "kernels.toml")
    configs = manifest.kernel("scale").configs
    assert [(config.guards, dict(config.constexprs)["BLOCK"]) for config in configs] == [
        ((Guard("n", "==", 128),), 128),
        ((Guard("n", "==", 4096),), 4096),
        ((Guard("n", "!=", 0),), 1024),
    ]
    variants = expand(manifest).variants
    assert any(".n-eq-4096." in variant.file_name for variant in variants)
    assert all(Variant.parse(str(variant)) == variant for variant in variants)
    fact = parse(configs[1].guards[0].expression, ["n"], "")
    assert [evaluate(fact, {"n": n}) for n in (4095, 4096, 4097)] == [0, 1, 0]


LIKE = """\
config = [{ BLOCK = 64 }]
[[kernel]]
name = "negated"
like = "scale"
matrix = { dtype = ["fp16"], NEGATE = [true], WIDTH = [64] }
"""


def test_a_kernel_like_another(project: Path) -> None:
    (project / "kernels.toml").write_text(HEAD + LIKE)
    first, second = load(project / "kernels.toml").kernels
    assert (second.name, second.source, second.args, second.configs) == (
        "negated",
        first.source,
        first.args,
        first.configs,
    )
    assert [axis.values for axis in second.matrix] == [("fp16",), (True,), (64,)]
    (project / "kernels.toml").write_text(
        HEAD
        + LIKE
        + '[[kernel]]\nname = "third"\nlike = "negated"\nconfig = [{ BLOCK = 8, when = { n = "<= 4" } }]\n'
    )
    third = load(project / "kernels.toml").kernel("third")
    assert third.matrix == second.matrix and third.configs[0].guards == (Guard("n", "<=", 4),)


def test_configurations_for_what_a_kernel_has_not_are_not_taken_from_another(project: Path) -> None:
    """Neither those for other values of an axis, nor for specialisations of other names."""
    lines = (
        '{ BLOCK = 16, when = { dtype = "fp32" } }',
        '{ BLOCK = 32, when = { dtype = ["fp32", "fp16"], n = "<= 7" } }',
        '{ BLOCK = 8, when = { specialize = "odd" } }',
        "{ BLOCK = 64 }",
    )
    specialize = 'specialize = [{ name = "odd", n = 1 }, {}]\n'
    text = LIKE.replace("{ BLOCK = 64 }", ", ".join(lines)) + "specialize = [{}]\n"
    (project / "kernels.toml").write_text(HEAD + specialize + text)
    first, second = load(project / "kernels.toml").kernels
    assert [dict(config.constexprs)["BLOCK"] for config in first.configs] == [16, 32, 8, 64]
    assert [dict(config.constexprs)["BLOCK"] for config in second.configs] == [32, 64]
    assert second.configs[0].when.choices == (("dtype", ("fp16",)),)


def test_a_mistake_in_what_is_taken_from_another_kernel_is_reported_where_it_is_written(
    project: Path,
) -> None:
    (project / "kernels.toml").write_text(HEAD + LIKE.replace("WIDTH = [64]", "OTHER = [64]"))
    found = mistakes(project)
    assert any('kernel "negated": matrix.OTHER' in entry for entry in found)
    assert f'{LINE}: kernel "negated" (as in "scale"): config[0]: constexpr "WIDTH" has no value' in found[0]


THIRD = """\
[kernel.verify]
sizes = { "x, y" = "n" }
defaults = { n = "2 * NUMBER" }
values = [
  {},
  { n = 0.5 },
]
[[kernel]]
name = "third"
like = "negated"
specialize = [{ "x, y" = 16 }]
config = [{ BLOCK = 64, when = { NEGATE = true } }]
"""


@pytest.mark.parametrize(
    "old, new, line, kernel, message",
    [
        (
            "[{ BLOCK = 64 }]",
            "[{ BLOK = 64 }]",
            0,
            "scale",
            "config[0].BLOK: the kernel has no such parameter",
        ),
        (
            "NEGATE = [true]",
            'NEGATE = ["a"]',
            16,
            "third",
            "config[0].when.NEGATE: true is not a value of NEGATE",
        ),
        ('"x, y" = 16', "z = 16", 15, "third", "specialize[0].z: is not a run-time argument"),
        (
            'sizes = { "x, y" = "n" }',
            'sizes = { "x, y" = "m" }',
            6,
            "negated",
            'verify.sizes.x: unknown name "m"',
        ),
        ("2 * NUMBER", "2 * BLOK", 7, "negated", 'verify.defaults.n: unknown name "BLOK"'),
        ("n = 0.5", "n = true", 10, "negated", "verify.values[1].n: expected an integer or an expression"),
    ],
)
def test_a_mistake_that_several_kernels_inherit_is_reported_once(
    project: Path, old: str, new: str, line: int, kernel: str, message: str
) -> None:
    text = (LIKE + THIRD).replace("2 * NUMBER", "2 * BLOCK").replace("n = 0.5", "n = 40")
    (project / "kernels.toml").write_text(HEAD + text)
    load(project / "kernels.toml")
    old = old.replace("NUMBER", "BLOCK").replace("0.5", "40")
    assert text.count(old) == 1
    (project / "kernels.toml").write_text(HEAD + text.replace(old, new))
    found = [entry for entry in mistakes(project) if message in entry]
    assert len(found) == 1 and found[0].startswith(f'{LINE + line}: kernel "{kernel}": {message}'), found


@pytest.mark.parametrize("name", ["negated", "scales", "scale.py"])
def test_a_kernel_can_only_be_like_one_before_it(project: Path, name: str) -> None:
    (project / "kernels.toml").write_text(HEAD + LIKE.replace('like = "scale"', f'like = "{name}"'))
    assert any(f'negated": like: no kernel "{name}" before this one' in entry for entry in mistakes(project))
