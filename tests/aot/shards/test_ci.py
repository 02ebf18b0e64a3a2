"""The jobs of `kbuild ci`: each variant in one of them, alike in cost, in files that GitHub and GitLab take, and what they
make is the wheel of a single build."""

from __future__ import annotations

import itertools
import json
import random
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kbuild.aot.build.project import load_variants
from kbuild.aot.manifest.expand import Variant
from kbuild.aot.shards.costs import FILE, TOOK, measured, remember, seconds_of
from kbuild.aot.shards.jobs import BuildJob, cut, jobs_of
from kbuild.aot.shards.shard import SPACE, Shard, gaps, position
from kbuild.aot.shards.workflows import FORMS
from kbuild.aot.shards.yaml_text import yaml_text
from kbuild.cli import main
from kbuild.cli.grammar import machines
from kbuild.cli.grammar.parser import parser
from kbuild.options import DEFAULTS
from tests.aot.conftest import KERNEL
from tests.aot.shards.runner import Machine, run_github, run_gitlab
from tests.manifests import package_table

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = load_variants(ROOT, (), (), DEFAULTS)
"""The kernels of this repository."""
SMALL = (
    package_table("small", "sm_80", "sm_90")
    + """\
[[kernel]]
name = "scale"
source = "kernels/scale.py"
grid = ["cdiv(n, BLOCK)"]
args = { "x, y" = "*{dtype}:16", n = "i32:16" }
matrix = { dtype = ["fp16", "fp32"], NEGATE = [false, true] }
config = [{ BLOCK = 128, num_warps = 1 }]
verify = { sizes = { "x, y" = "n" }, values = [{ n = 256 }] }
"""
)
VALIDATORS = {
    "github": ["--builtin-schema", "vendor.github-workflows"],
    "gitlab": [
        "--builtin-schema",
        "vendor.gitlab-ci",
        "--data-transform",
        "gitlab-ci",
        "--regex-variant",
        "nonunicode",
    ],
}
RUNNERS: dict[str, Callable[[Mapping[str, Any], Machine], None]] = {
    "github": run_github,
    "gitlab": run_gitlab,
}


POSITIONS = {variant: position(variant) for variant in SHIPPED[1].variants}


def variants_of(job: BuildJob) -> list[Variant]:
    """The variants that the command of a job builds."""
    shard = Shard.parse(job.build.partition("--shard ")[2].split()[0])
    return [
        variant
        for variant, place in POSITIONS.items()
        if shard.first <= place < shard.end
        and (not job.archs or variant.arch in job.archs)
        and (not job.kernels or variant.kernel in job.kernels)
    ]


@pytest.mark.parametrize("axes", [(), ("arch",), ("kernel",), ("arch", "kernel")])
def test_each_variant_is_in_one_job_of_any_number(axes: tuple[str, ...]) -> None:
    manifest, expansion = SHIPPED
    seconds = seconds_of(ROOT, manifest, expansion.variants, {})
    for count in range(1, 65) if not axes else (1, 2, 3, 8):
        jobs = jobs_of(expansion.variants, seconds, count, axes)
        found = [variants_of(job) for job in jobs]
        assert sorted(map(POSITIONS.__getitem__, itertools.chain(*found))) == sorted(POSITIONS.values())
        assert [job.variants for job in jobs] == [len(own) for own in found]
        assert len({job.name for job in jobs}) == len(jobs)
        assert axes or len(jobs) == count


def test_commands_of_jobs_are_read_as_they_are_meant() -> None:
    _, expansion = SHIPPED
    for job in jobs_of(expansion.variants, [1.0] * len(expansion.variants), 3, ("arch", "kernel")):
        options, unknown = parser().parse_known_args(shlex.split(job.build)[1:])
        assert (tuple(options.archs), tuple(options.kernels)) == (job.archs, job.kernels) and not unknown
        assert options.shard == job.shard and job.verify.endswith(job.build.removeprefix("kbuild build"))


def test_a_list_stays_right_when_the_manifest_changes() -> None:
    _, expansion = SHIPPED
    half = expansion.variants[::2]
    jobs = jobs_of(half, [1.0] * len(half), 8)
    assert not list(gaps(job.shard for job in jobs))
    found = [variant for job in jobs for variant in variants_of(job)]
    assert sorted(map(str, found)) == sorted(map(str, expansion.variants))


def test_jobs_cost_about_the_same() -> None:
    """None is further from its share than half of what stands at its ends: a variant, or all that share a cubin."""
    generator = random.Random(1)
    _, expansion = SHIPPED
    seconds = [generator.choice((0.1, 0.2, 5.0)) for _ in expansion.variants]
    at_position: dict[int, float] = defaultdict(float)
    for variant, cost in zip(expansion.variants, seconds):
        at_position[position(variant)] += cost
    for count in (2, 8, 20):
        shares = [job.seconds for job in jobs_of(expansion.variants, seconds, count)]
        assert sum(shares) == pytest.approx(sum(seconds))
        assert max(abs(share - sum(seconds) / count) for share in shares) <= max(at_position.values())


def test_jobs_have_at_least_one_variant() -> None:
    for count in (1, 3, 4, 9):
        placed = [(1 << 40, 0.1), (2 << 40, 99.0), (SPACE - 2, 0.1), (SPACE - 1, 0.1)]
        shards = cut(placed, count)
        held = [sum(shard.first <= place < shard.end for place, _ in placed) for shard in shards]
        assert len(shards) == min(count, 4) and min(held) >= 1 and sum(held) == 4 and not list(gaps(shards))
    assert [shard.text for shard in cut([], 5)] == ["1/1"]


def test_seconds_are_measured_or_estimated_to_the_scale_of_what_is(tmp_path: Path) -> None:
    manifest, expansion = SHIPPED
    variants = [variant for variant in expansion.variants if variant.kernel in ("softmax", "flash_attention")]
    guessed = dict(zip(variants, seconds_of(ROOT, manifest, variants, {})))
    first, second, *_ = (
        variant for variant in variants if (variant.kernel, variant.arch) == ("softmax", "sm_90")
    )
    remember(tmp_path, ["@cached", f"{TOOK} 3.500 {first.name}", f"{TOOK} x y", "noise"])
    remember(tmp_path, [])
    assert measured(tmp_path) == {first.name: 3.5}
    known = dict(zip(variants, seconds_of(ROOT, manifest, variants, measured(tmp_path))))
    assert known[first] == known[second] == 3.5
    other = next(variant for variant in variants if variant.kernel == "flash_attention")
    assert known[other] == pytest.approx(guessed[other] * 3.5 / guessed[first])
    (tmp_path / FILE).write_text("{}")
    assert measured(tmp_path) == {}


def test_a_build_measures_what_it_compiles(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(small / "cache"))
    assert main(["build", "-C", str(small), "-q", "--arch", "sm_80", "scale"]) == 0
    found = measured(small / "build")
    _, expansion = load_variants(small, ("sm_80",), (), DEFAULTS)
    assert set(found) == {variant.name for variant in expansion.variants} and min(found.values()) > 0


VALUES: list[Any] = [
    *(
        "plain",
        "a: b",
        "- a",
        "#x",
        "",
        "yes",
        "On",
        "1",
        "1.5",
        "null",
        "~",
        "a #b",
        "@x",
        "*x",
        "&x",
        "x*",
        "{a}",
        "a, b",
    ),
    *(
        " a",
        "a ",
        'say "a"',
        "it's",
        "a\tb",
        "%a",
        "!a",
        "|",
        ">",
        "ä",
        "${{ matrix.x }}",
        "..4c",
        "a9..",
        "a:b",
        "?",
        "e1",
    ),
    *(
        True,
        False,
        None,
        3,
        0.5,
        {},
        [],
        {"a": 1, "b": "x, y"},
        ["a b", "c d"],
        ["[x]"],
        [{"a": [1, 2]}, {"b": {"c": "d"}}],
    ),
    *({"a": {"b": {"c": []}}}, [[1, 2], ["a", "b"]], {"on": 1, "a b": 2, "x: y": 3}),
]


def test_yaml_is_read_as_it_was_meant() -> None:
    yaml = pytest.importorskip("ruamel.yaml")
    document = {f"key {number}": value for number, value in enumerate(VALUES)} | {"list": VALUES}
    assert yaml.YAML(typ="safe").load(yaml_text(document)) == document


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A project of eight variants that compile and verify quickly."""
    project = tmp_path / "project"
    (project / "kernels").mkdir(parents=True)
    (project / "kernels/scale.py").write_text(KERNEL)
    (project / "kernels.toml").write_text(SMALL)
    return project


def printed(small: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(["ci", *words, "-C", str(small)]) == 0
    return capsys.readouterr().out


def test_systems_take_the_files(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the schemas of schemastore.org and GitLab, which check-jsonschema brings."""
    pytest.importorskip("check_jsonschema")
    for form, words in VALIDATORS.items():
        files = [ROOT / f"examples/ci/{form}.yml"]
        for number, more in enumerate((["--shards", "3"], ["--by", "arch,kernel"])):
            files.append(tmp_path / f"{form}{number}.yml")
            files[-1].write_text(printed(small, capsys, form, *more))
        command = [sys.executable, "-m", "check_jsonschema", *words, *map(str, files)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        files[0] = tmp_path / "wrong.yml"
        files[0].write_text(files[1].read_text().replace("stage:", "stages:").replace("steps:", "step:"))
        assert (
            subprocess.run([*command[:-3], str(files[0])], capture_output=True, check=False).returncode == 1
        )


def test_what_the_jobs_make_is_the_wheel_of_a_single_build(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recipes of examples/ci, with two jobs in place of eight, and what `kbuild ci` prints."""
    yaml = pytest.importorskip("ruamel.yaml")
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(cache))
    assert main(["build", "-C", str(small), "-q"]) == main(["verify", "-C", str(small), "-q"]) == 0
    (whole,) = (small / "dist").glob("*.whl")
    texts = {
        "github recipe": (ROOT / "examples/ci/github.yml").read_text().replace("--shards 8", "--shards 2"),
        "gitlab recipe": (ROOT / "examples/ci/gitlab.yml").read_text().replace("parallel: 8", "parallel: 2"),
        "github printed": printed(small, capsys, "github", "--by", "arch"),
        "gitlab printed": printed(small, capsys, "gitlab", "--shards", "2"),
    }
    skipped = () if re.search(r"^ +size\b", parser().format_help(), re.MULTILINE) else ("kbuild size ",)
    for name, text in texts.items():
        machine = Machine(small, tmp_path / name.replace(" ", "_"), cache, skipped)
        RUNNERS[name.split()[0]](yaml.YAML(typ="safe").load(text), machine)
        (made,) = [
            files for files in machine.artifacts.values() if any(name.endswith(".whl") for name in files)
        ]
        assert {Path(name).name: data for name, data in made.items()} == {whole.name: whole.read_bytes()}
        builds = [command for command in machine.commands if command.startswith("kbuild build")]
        assert len(builds) == 2 and any("verify" in one for one in machine.commands)


def test_jobs_as_json_are_a_matrix_in_one_line(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(small, capsys, "json", "--shards", "3")
    (entry, *_), keys = json.loads(text)["include"], set(json.loads(text))
    assert text.count("\n") == 1 and keys == {"include"}
    assert entry["name"] == "1 of 3" and re.fullmatch(r"kbuild build --shard \.\.[0-9a-f]+", entry["build"])
    assert entry["verify"] == f"kbuild verify --keep-going --shard {entry['shard']}"
    assert capsys.readouterr().err == "" and main(["ci", "json", "-C", str(small)]) == 0
    out, err = capsys.readouterr()
    assert len(json.loads(out)["include"]) == 8 and err.startswith("8 variants, 8 jobs of 0.")


def test_mistakes_are_explained(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for words, message in {
        ("github", "--by", "device"): "--by device: no device",
        ("travis",): "invalid choice: 'travis'",
        ("json", "--shards", "0"): "expected a number from 1 to 100,000",
        ("json", "--arch", "sm_75"): "no architecture sm_75",
    }.items():
        assert main(["ci", *words, "-C", str(small)]) == 2
        assert message in capsys.readouterr().err
    monkeypatch.chdir(ROOT)
    assert main(["ci", "github", "--shards", "300"]) == 2
    assert "jobs, and a matrix of GitHub has at most 256" in capsys.readouterr().err


def test_the_command_line_knows_the_forms() -> None:
    assert set(machines.FORMS) == set(FORMS)


def test_positions_of_the_shipped_kernels_are_spread() -> None:
    """No sixteenth of the ring has twice its share, or half of it."""
    _, expansion = SHIPPED
    counts = [0] * 16
    for variant in expansion.variants:
        counts[position(variant) * 16 // SPACE] += 1
    assert len(expansion.variants) / 32 < min(counts) and max(counts) < len(expansion.variants) / 8
