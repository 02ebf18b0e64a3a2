"""Kernels whose configurations are those of `@triton.autotune` and `@triton.heuristics`."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.aot.manifest.expand import expand, notes_on_sources
from kbuild.aot.manifest.load import load
from kbuild.aot.manifest.model import Config, Kernel
from kbuild.cli import main
from tests.aot.manifest.mistakes import mistakes
from tests.manifests import package_table

SOURCE = """\
import triton
import triton.language as tl

SIZES = [256, 512]


def configs():
    return [triton.Config({"BLOCK": size}, num_warps=warps) for size in SIZES for warps in (2, 4)]


@triton.autotune(CONFIGS, key=["n"], reset_to_zero=["count"], restore_value=["x"])
@triton.heuristics(HEURISTICS)
@triton.jit
def scale_kernel(x, count, n, m, ROUND: tl.constexpr, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        value = tl.load(x + offsets)
        tl.store(x + offsets, value * 2.0)
    else:
        value = tl.load(x + offsets, mask=offsets < n)
        tl.store(x + offsets, value * 2.0, mask=offsets < n)
    tl.atomic_add(count, 1)
"""
MANIFEST = (
    package_table("demo_kernels", "sm_80", "sm_90", version="0.1.0")
    + """\
[[kernel]]
name = "scale"
source = "scale.py"
grid = ["cdiv(n, BLOCK)"]
args = { x = "*fp32", count = "*i32", "n, m" = "i32" }
matrix = { ROUND = [16, 48] }
"""
)
EVEN = '{"EVEN": lambda args: args["n"] % args["BLOCK"] == 0}'
VERIFY = """\
[kernel.verify]
sizes = { x = "cdiv(n, BLOCK) * BLOCK", count = "1" }
values = [{ n = 512, m = 1 }, { n = 300, m = 1 }]
"""
TUNE = """\
[kernel.tune]
sizes = { x = "n", count = "1" }
bucket = [{ values = { n = 1280, m = 1 } }]
"""


def project(folder: Path, heuristics: str = EVEN, configs: str = "configs()", more: str = "") -> Path:
    """The manifest of a project with the kernel."""
    source = SOURCE.replace("CONFIGS", configs).replace("HEURISTICS", heuristics)
    (folder / "scale.py").write_text(source)
    (folder / "kernels.toml").write_text(MANIFEST + more)
    return folder / "kernels.toml"


def shown(configs: tuple[Config, ...]) -> list[tuple[str, str, dict[str, object], int]]:
    """Points, facts, constexprs and warps."""
    return [
        (str(one.when), ", ".join(map(str, one.guards)), dict(one.constexprs), one.options.num_warps)
        for one in configs
    ]


def only(folder: Path, heuristics: str = EVEN, configs: str = "configs()", more: str = "") -> Kernel:
    """The loaded kernel."""
    return load(project(folder, heuristics, configs, more)).kernel("scale")


def test_the_first_configuration_of_autotune_is_used(tmp_path: Path) -> None:
    kernel = only(tmp_path)
    assert shown(kernel.configs) == [
        ("", "n%256", {"BLOCK": 256, "EVEN": True}, 2),
        ("", "", {"BLOCK": 256, "EVEN": False}, 2),
    ]
    assert shown(kernel.alternatives[1])[1] == ("", "n!%512", {"BLOCK": 512, "EVEN": False}, 2), (
        "what is tried may be put before others"
    )
    assert [shown(row)[0] for row in kernel.alternatives] == [
        ("", "n%256", {"BLOCK": 256, "EVEN": True}, 4),
        ("", "n%512", {"BLOCK": 512, "EVEN": True}, 2),
        ("", "n%512", {"BLOCK": 512, "EVEN": True}, 4),
    ]
    assert [*notes_on_sources(load(tmp_path / "kernels.toml"))] == [
        'kernel "scale": 1 of the 4 configurations of @triton.autotune is used: BLOCK = 256, num_warps = 2; '
        "with a bucket of calls in [kernel.tune], kbuild tune times them all",
        'kernel "scale": EVEN as @triton.heuristics computes it',
    ]
    assert len(expand(load(tmp_path / "kernels.toml")).variants) == 2 * 2 * 2


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("args['n'] % args['BLOCK'] == 0", [("n%256", True), ("", False)]),
        ("args['n'] % args['BLOCK'] != 0", [("n!%256", True), ("", False)]),
        ("not (args['n'] % args['BLOCK'])", [("n%256", True), ("", False)]),
        ("bool(args['n'] % 8)", [("n!%8", True), ("", False)]),
        ("args['n'] <= args['BLOCK']", [("n<=256", True), ("", False)]),
        ("2 * args['BLOCK'] > args['n']", [("n<512", True), ("", False)]),
        ("(args['n'] % 8 == 0) & (args['m'] % 16 == 0)", [("n%8, m%16", True), ("", False)]),
        ("args['n'] > 8 and args['n'] % 4 == 0", [("n>8, n%4", True), ("", False)]),
        ("args['n'] < 8 or args['m'] < 9", [("n<8", True), ("m<9", True), ("", False)]),
        ("not (args['n'] < 8 or args['m'] == 9)", [("n>=8, m!=9", True), ("", False)]),
        ("args['n'] * args['m'] <= 4096", [("n*m<=4096", True), ("", False)]),
        ("triton.cdiv(args['n'], args['BLOCK']) == 1", [("n:256==1", True), ("", False)]),
        ("args['BLOCK'] >= 256 and args['n'] > 3", [("n>3", True), ("", False)]),
        ("True if args['n'] > 3 else False", [("n>3", True), ("", False)]),
        ("64 if args['n'] > 3 else 32", [("n>3", 64), ("", 32)]),
        ("args['BLOCK'] > 256 and args['n'] > 3", [("", False)]),
        ("args['BLOCK'] >= 256", [("", True)]),
        ("triton.next_power_of_2(args['BLOCK'] + 1)", [("", 512)]),
        ("len(SIZES)", [("", 2)]),
    ],
)
def test_heuristics(tmp_path: Path, body: str, expected: list[tuple[str, object]]) -> None:
    kernel = only(tmp_path, f'{{"EVEN": lambda args: {body}}}')
    assert [(facts, values["EVEN"]) for _, facts, values, _ in shown(kernel.configs)] == expected


def test_two_heuristics_are_asked_for_together(tmp_path: Path) -> None:
    (tmp_path / "kernels.toml").touch()
    source = '{"EVEN": lambda args: args["n"] % 64 == 0, "ROUND": lambda args: args["m"] % 32 == 0}'
    file = project(tmp_path, source)
    file.write_text(file.read_text().replace("matrix = { ROUND = [16, 48] }\n", ""))
    found = shown(load(file).kernel("scale").configs)
    assert [(facts, values["EVEN"], values["ROUND"]) for _, facts, values, _ in found] == [
        ("n%64, m%32", True, True),
        ("n%64", True, False),
        ("m%32", False, True),
        ("", False, False),
    ]


def test_heuristics_of_axes_options_and_functions(tmp_path: Path) -> None:
    (tmp_path / "kernels.toml").touch()
    source = """{
    "EVEN": lambda args: args["n"] % args["ROUND"] == 0,
    "num_warps": lambda args: 8 if args["ROUND"] > 16 else 1,
    "num_stages": stages,
}"""
    file = project(tmp_path, source, "[triton.Config({'BLOCK': 64})]")
    text = (tmp_path / "scale.py").read_text()
    function = "def stages(args):\n    if args['BLOCK'] > 32:\n        return 5\n    return 2\n\n\n"
    (tmp_path / "scale.py").write_text(text.replace("def configs", function + "def configs"))
    kernel = load(file).kernel("scale")
    assert [(when, facts, warps) for when, facts, _, warps in shown(kernel.configs)] == [
        ("ROUND = 16", "n%16", 1),
        ("ROUND = 16", "", 1),
        ("ROUND = 48", "n%48", 8),
        ("ROUND = 48", "", 8),
    ]
    assert {one.options.num_stages for one in kernel.configs} == {5} and not kernel.alternatives
    assert kernel.notes[0] == "the configuration of @triton.autotune is used: BLOCK = 64"


def test_the_default_of_an_argument_or_axis_is_not_its_value(tmp_path: Path) -> None:
    source = "{'EVEN': lambda args: args['k'] == 8, 'num_warps': lambda args: args['SPLIT'] * 2}"
    file = project(tmp_path, source, "[triton.Config({'BLOCK': 64})]")
    text = (tmp_path / "scale.py").read_text()
    (tmp_path / "scale.py").write_text(
        text.replace("EVEN: tl.constexpr)", "EVEN: tl.constexpr, k=8, SPLIT: tl.constexpr = 1)")
    )
    file.write_text(
        MANIFEST.replace('"n, m"', '"n, m, k"').replace("matrix = { ", "matrix = { SPLIT = [1, 2], ")
    )
    assert [
        (when, facts, values["EVEN"], warps)
        for when, facts, values, warps in shown(load(file).kernels[0].configs)
    ] == [
        ("SPLIT = 1", "k==8", True, 2),
        ("SPLIT = 1", "", False, 2),
        ("SPLIT = 2", "k==8", True, 4),
        ("SPLIT = 2", "", False, 4),
    ]
    file.write_text(MANIFEST)
    assert shown(load(file).kernels[0].configs)[0][2]["EVEN"] is True, "the kernel is called without k"


def test_what_the_manifest_gives_is_not_computed(tmp_path: Path) -> None:
    kernel = only(tmp_path, "{'EVEN': lambda args: unknown(args)}", more="defaults = { EVEN = false }\n")
    assert shown(kernel.configs) == [("", "", {"BLOCK": 256, "EVEN": False}, 2)] and len(kernel.notes) == 1


def test_configurations_that_cannot_be_read(tmp_path: Path) -> None:
    kernel = only(tmp_path, configs="load('f')", more="defaults = { BLOCK = 32 }\n")
    assert dict(kernel.configs[0].constexprs)["BLOCK"] == 32
    said = "the configurations of @triton.autotune are not used: load() is not known from the source alone"
    assert kernel.notes[0] == said


def test_decorators_beside_config_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    more = "config = [{ BLOCK = 64, EVEN = false }]\n[[kernel]]\nname = 'other'\nlike = 'scale'\n"
    file = project(tmp_path, "{'EVEN': unknown}", "unknown", more)
    manifest = load(file)
    assert [shown(kernel.configs) for kernel in manifest.kernels] == [
        [("", "", {"BLOCK": 64, "EVEN": False}, 4)]
    ] * 2
    expected = (
        'note: kernels "scale", "other": config is given, so @triton.autotune and @triton.heuristics of its source '
        "is not read\n"
    )
    monkeypatch.chdir(tmp_path)
    for verb in (["list"], ["build", "--dry-run"]):
        assert main(verb) == 0 and capsys.readouterr().err.count(expected) == 1
    assert main(["list", "scale"]) == 0
    assert 'note: kernel "scale": config is given' in capsys.readouterr().err


def test_configurations_that_cannot_be_built_are_passed_over(tmp_path: Path) -> None:
    configs = """[
        triton.Config({"BLOCK": 512}, num_ctas=2),
        triton.Config({"BLOCK": 512, "GROUP": 2}),
        triton.Config({"BLOCK": 512}, num_warps=3),
        triton.Config({"BLOCK": [1]}),
        triton.Config({"BLOCK": 128, "ROUND": 8}, maxnreg=64, num_ctas=1),
        triton.Config({"BLOCK": 128}, maxnreg=64),
        triton.Config({"BLOCK": 64}, pre_hook=hook),
    ]"""
    kernel = only(tmp_path, configs=configs)
    assert dict(kernel.configs[0].constexprs)["BLOCK"] == 128 and kernel.alternatives == ()
    assert kernel.configs[0].options.max_registers == 64
    assert (
        "; 5 cannot be built, the first for num_ctas is 2, but sm_80 has no thread_block_clusters"
        in kernel.notes[0]
    )


def test_programs_of_several_ctas_are_for_architectures_with_clusters(tmp_path: Path) -> None:
    configs = "[triton.Config({'BLOCK': 512}, 8, 2, 4), triton.Config({'BLOCK': 64}, num_ctas=2)]"
    file = project(tmp_path, configs=configs)
    file.write_text(file.read_text().replace('["sm_80", "sm_90"]', '["sm_90"]'))
    kernel = load(file).kernel("scale")
    first = kernel.configs[0].options
    assert (first.num_warps, first.num_stages, first.num_ctas, first.warps) == (8, 2, 4, 32)
    assert [row[0].options.num_ctas for row in kernel.alternatives] == [2]
    assert "num_ctas = 4" in kernel.notes[0] and "not read" not in kernel.notes[0]


@pytest.mark.parametrize(
    ("heuristics", "configs", "more", "message"),
    [
        (
            '{"EVEN": lambda args: args["x"].is_contiguous()}',
            "configs()",
            "",
            "source: scale.py:12: EVEN of @triton.heuristics cannot be used: "
            "args['x'].is_contiguous() is no fact about integers; callers choose it by `matrix = { EVEN = [",
        ),
        (
            '{"EVEN": lambda args: args["x"] % 16 == 0}',
            "configs()",
            "",
            "args['x'] is not a run-time integer of the kernel; callers choose it by `matrix = { EVEN = [false, true] }`, "
            "or a configuration of your own gives it",
        ),
        (
            '{"EVEN": lambda args: "a b"}',
            "configs()",
            "",
            "EVEN of @triton.heuristics cannot be used: it is 'a b'",
        ),
        ('{"EVEN": True, "num_warps": lambda args: args["n"]}', "configs()", "", "write `config`"),
        (
            "{'EVEN': lambda args: False}",
            "load('f')",
            "",
            'constexpr "BLOCK" has no value; @triton.autotune cannot be read, load() is not known from the source '
            "alone: give it in config, or its values in matrix",
        ),
        (
            "{'EVEN': lambda args: False}",
            "[triton.Config({'BLOCK': 8}, num_ctas=4)]",
            "",
            'constexpr "BLOCK" has no value; none of the configurations of @triton.autotune can be built (num_ctas is 4, but '
            "sm_80 has no thread_block_clusters)",
        ),
        ("make()", "configs()", "", 'constexpr "EVEN" has no value'),
    ],
)
def test_mistakes(tmp_path: Path, heuristics: str, configs: str, more: str, message: str) -> None:
    project(tmp_path, heuristics, configs, more)
    found = mistakes(tmp_path)
    assert any(message in entry for entry in found) and not any("None" in entry for entry in found), found
    assert len({entry for entry in found if "EVEN of" in entry}) <= 1, "once for all configurations"


def test_counters_and_what_is_restored_are_those_of_autotune(tmp_path: Path) -> None:
    kernel = only(tmp_path, more=TUNE)
    assert kernel.tune and (kernel.tune.zeros, kernel.tune.restore) == (("count",), ("x",))
    assert kernel.notes[0].endswith("num_warps = 2; kbuild tune times them all")
    kernel = only(tmp_path, more=TUNE.replace("sizes", "zeros = []\nrestore = []\nsizes"))
    assert kernel.tune and not kernel.tune.zeros + kernel.tune.restore


def test_a_decorated_kernel_is_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project(tmp_path, more=VERIFY)
    code = main(["verify", "-C", str(tmp_path), "--no-cache", "--arch", "sm_90"])
    assert code == 0, capsys.readouterr().err
