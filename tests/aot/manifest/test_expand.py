"""Expansion is pure and ordered, gives a reason for what it leaves out, and a variant reads back from its
text."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.aot.manifest import expressions
from kbuild.aot.manifest.expand import Excluded, Variant, expand, notes_on_size
from kbuild.aot.manifest.load import load
from kbuild.aot.manifest.model import Argument, Config, Guard, Kernel, Specialization
from kbuild.cli import main
from kbuild.options import DEFAULTS, CompileOptions


def test_variants_stand_as_written(project: Path) -> None:
    expansion = expand(load(project / "kernels.toml"), archs=["sm_90"])
    assert [variant.name for variant in expansion.variants][:4] == [
        "scale.sm_90.fp16.NEGATE=0.n=d16.BLOCK=1024,SCALE=2.0.n-le-1024.w8s3",
        "scale.sm_90.fp16.NEGATE=0.BLOCK=1024,SCALE=2.0.n-le-1024.w8s3",
        "scale.sm_90.fp16.NEGATE=0.n=d16.BLOCK=2048,SCALE=2.0.w8s2",
        "scale.sm_90.fp16.NEGATE=0.BLOCK=2048,SCALE=2.0.w8s2",
    ]
    assert expansion.variants[0] == Variant(
        kernel="scale",
        arch="sm_90",
        matrix=(("dtype", "fp16"), ("NEGATE", False)),
        signature=(("x", "*fp16:16"), ("y", "*fp16:16"), ("n", "i32:16")),
        constexprs=(("BLOCK", 1024), ("SCALE", 2.0)),
        options=CompileOptions(num_warps=8, num_stages=3),
        guards=(Guard("n", "<=", 1024),),
    )


def test_what_multiplies_to_very_many_variants_is_said(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, values = project / "kernels.toml", ", ".join(str(number) for number in range(28))
    file.write_text(file.read_text().replace("[kernel.matrix]", f"[kernel.matrix]\nSCALE = [{values}]"))
    manifest = load(file)
    expansion = expand(manifest)
    assert len(expansion.variants) == 28 * 18 and not [*notes_on_size(manifest, expand(manifest, ["sm_80"]))]
    expected = (
        'kernel "scale": 504 variants, of 2 archs × 28 SCALE × 2 dtype × 2 NEGATE × 2 hints of n × 3 config; '
        "shorten a list, put together in [[kernel.specialize]] what is aligned together, or leave out what nobody "
        "calls by [[kernel.exclude]]"
    )
    assert [*notes_on_size(manifest, expansion)] == [expected]
    monkeypatch.chdir(project)
    for verb in (["list"], ["list", "--json"], ["build", "--dry-run"]):
        assert main(verb) == 0
        said = capsys.readouterr().err
        assert (f"warning: {expected}\n" in said) == ("--json" not in verb) and said.count("warning") <= 1


def test_a_launch_that_begins_early_is_for_hopper(project: Path) -> None:
    text = (project / "kernels.toml").read_text()
    (project / "kernels.toml").write_text(
        text.replace("[[kernel.config]]\n", "[[kernel.config]]\nlaunch_pdl = true\n")
    )
    variants = expand(load(project / "kernels.toml")).variants
    assert {(variant.arch, variant.options.launch_pdl) for variant in variants} == {
        ("sm_80", False),
        ("sm_90", True),
    }
    assert all(Variant.parse(str(variant)) == variant for variant in variants)
    assert all(variant.file_name.endswith("pdl") == variant.options.launch_pdl for variant in variants)


def test_assertions_are_an_option_of_a_configuration(project: Path) -> None:
    file = project / "kernels.toml"
    file.write_text(file.read_text().replace("BLOCK = 2048", "BLOCK = 2048\ndebug = true"))
    found = expand(load(file)).variants
    assert {variant.options.debug for variant in found if dict(variant.constexprs)["BLOCK"] == 2048} == {True}
    assert {variant.options.debug for variant in found if dict(variant.constexprs)["BLOCK"] != 2048} == {
        False
    }
    for variant in found:
        assert (
            variant.name.endswith("debug") is variant.options.debug and Variant.parse(str(variant)) == variant
        )


def test_clusters_are_for_hopper(project: Path) -> None:
    text = (project / "kernels.toml").read_text()
    (project / "kernels.toml").write_text(
        text.replace("[[kernel.config]]\n", "[[kernel.config]]\ncluster_size = 4\n")
    )
    variants = expand(load(project / "kernels.toml")).variants
    assert {(variant.arch, variant.options.cluster_size) for variant in variants} == {
        ("sm_80", 1),
        ("sm_90", 4),
    }
    assert all(Variant.parse(str(variant)) == variant for variant in variants)
    assert all(variant.file_name.endswith("c4") == (variant.arch == "sm_90") for variant in variants)


def test_a_configuration_for_one_architecture(project: Path) -> None:
    """The first configuration of sm_80 asks for no run-time facts, so those after it are not built."""
    expansion = expand(load(project / "kernels.toml"), archs=["sm_80"])
    assert {variant.values["BLOCK"] for variant in expansion.variants} == {512}


def test_a_configuration_that_another_always_precedes_is_not_built(project: Path) -> None:
    """For fp16 the first configuration is taken wherever the second would apply."""
    text = (
        (project / "kernels.toml").read_text().replace('n = "<= 1024" }', 'n = "<= 1024", dtype = "fp16" }')
    )
    text = text.replace(
        "BLOCK = 2048", 'when = { n = "<= 1024" }\nBLOCK = 256\n[[kernel.config]]\nBLOCK = 2048'
    )
    (project / "kernels.toml").write_text(text)
    variants = expand(load(project / "kernels.toml"), archs=["sm_90"]).variants
    found = {(dict(variant.matrix)["dtype"], variant.values["BLOCK"]) for variant in variants}
    assert found == {("fp16", 1024), ("fp16", 2048), ("fp32", 256), ("fp32", 2048)}


def test_specialisations_go_together(project: Path) -> None:
    manifest = load(project / "kernels.toml")
    both = (Specialization((("n", "1"), ("x", "16"))), Specialization())
    kernel = replace(manifest.kernels[0], specializations=both, configs=(Config(),))
    found = [
        dict(variant.signature)["n"]
        for variant in expand(replace(manifest, kernels=(kernel,)), ["sm_80"]).variants
    ]
    assert found[:3] == ["i32:1", "i32:16", "i32"]


def test_the_grid_may_need_what_the_kernel_does_not_take(project: Path) -> None:
    text = (project / "kernels.toml").read_text()
    text = text.replace('BLOCK)"]', 'BLOCK)", "rows"]\n[kernel.grid_args]\nrows = "i32"')
    (project / "kernels.toml").write_text(text)
    manifest = load(project / "kernels.toml")
    assert manifest.kernels[0].grid_args == (Argument("rows", "i32"),)
    assert all("rows" not in dict(variant.signature) for variant in expand(manifest).variants)


def test_exclusions_say_why(project: Path) -> None:
    manifest = load(project / "kernels.toml")
    point = (("dtype", "fp32"), ("NEGATE", True))
    reason = "excluded by { dtype = fp32, NEGATE = True }"
    assert expand(manifest).excluded == (
        Excluded("scale", "sm_80", point, reason),
        Excluded("scale", "sm_90", point, reason),
    )
    kernel = replace(manifest.kernels[0], configs=manifest.kernels[0].configs[:1], excludes=())
    reasons = {excluded.reason for excluded in expand(replace(manifest, kernels=(kernel,))).excluded}
    assert reasons == {"no config applies"}


def test_every_variant_reads_back_and_has_its_own_file_name(project: Path) -> None:
    variants = expand(load(project / "kernels.toml")).variants
    assert len({(variant.arch, variant.file_name) for variant in variants}) == len(variants)
    for variant in variants:
        assert Variant.parse(str(variant)) == variant
        assert re.fullmatch(r"[A-Za-z0-9_.,=+-]{1,230}", variant.file_name)


def test_text_keeps_the_types_of_values() -> None:
    generator = random.Random(3)
    values = [True, False, 1, 0, -5, 2**63, 0.5, 1e-300, 1e22, -0.0, None, "none", "fp16", "true", "x1"]
    for _ in range(200):
        chosen = tuple((f"V{index}", generator.choice(values)) for index in range(generator.randrange(30)))
        guards = tuple(
            Guard("n", operator, generator.randrange(-9, 9))
            for operator in ("<", "<=", "%", "==", "!=", ">", ">=")
        )
        variant = Variant("k", "sm_90", chosen, (("n", "i64:1"), ("p", "*fp32")), chosen, guards=guards)
        back = Variant.parse(str(variant))
        assert back == variant and [type(value) for _, value in back.matrix] == [
            type(value) for _, value in chosen
        ]
        assert len(variant.file_name) < 230


@pytest.mark.parametrize(
    "text", ["", "a/b", "k/sm_90//n=i32//w4/", "k/sm_90//n//w4s3/", "k/sm_90//n=i32//w4s3/n~3"]
)
def test_what_is_not_a_variant_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Variant.parse(text)


def test_facts_as_expressions() -> None:
    expected = {"<": [3], "<=": [3, 4], "==": [4], "!=": [3, 5, 8], ">=": [4, 5, 8], ">": [5, 8], "%": [4, 8]}
    for operator, values in expected.items():
        expression = expressions.parse(Guard("n", operator, 4).expression, ["n"], "")
        assert [value for value in (3, 4, 5, 8) if expressions.evaluate(expression, {"n": value})] == values


def test_a_kernel_without_configuration(project: Path) -> None:
    kernel = load(project / "kernels.toml").kernels[0]
    assert Kernel("k", "k.py", "k_kernel", ("1",), kernel.args).configs[0].options == DEFAULTS
