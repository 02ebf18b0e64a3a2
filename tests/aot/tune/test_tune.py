"""`kbuild tune`, with a simulated machine: which candidates are tried, which are kept, and how builds use
them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kbuild.aot.build import project as builder
from kbuild.aot.manifest import tuned
from kbuild.aot.manifest.expand import Variant, expand
from kbuild.aot.manifest.load import load
from kbuild.aot.manifest.tuned import TunedEntry
from kbuild.aot.tune.tasks import launch_of, short, tasks, variants_of
from kbuild.aot.tune.tune import SECONDS, DeviceFacts, TimedProgram, obstacle, programs_at_once
from kbuild.aot.verify.cases import LaunchCase
from kbuild.cli import main
from kbuild.cli.verbs import tune as verb
from kbuild.errors import ManifestError, ToolError
from tests.aot.manifest import test_decorated
from tests.aot.manifest.mistakes import mistakes

TABLE = """
[kernel.tune]
sizes = { x = "n", y = "n" }
candidates = { BLOCK = [512, 1024, 2048, 4096], num_warps = [4, 8] }
[[kernel.tune.bucket]]
when = { n = "<= 512", dtype = "fp16", NEGATE = false }
values = { n = 500 }
candidates = { num_warps = [2] }
[[kernel.tune.bucket]]
when = { dtype = "fp16" }
values = { n = 1048576 }
"""
H200 = DeviceFacts("NVIDIA H200", 90, 232448, 132)


class Machine:
    """Launches of 4096 elements are the fastest, and by four warps they are wrong; `broken` ones break the
    device, and `hanging` ones the run."""

    def __init__(self, device: DeviceFacts = H200) -> None:
        self.device = device
        self.hanging = self.broken = 0
        self.lost = False
        self.timed: list[str] = []
        self.checked: list[str] = []
        self.placed: list[dict[str, int]] = []

    def place(self, variant: Variant, case: LaunchCase) -> None:
        self.placed.append(dict(case.sizes or ()))

    def results(self, program: TimedProgram) -> dict[str, Any]:
        block = int(program.variant.values["BLOCK"] or 0)
        assert program.case.grid == (-(-dict(program.case.scalars)["n"] // block),)
        self.checked.append(f"{block}w{program.variant.options.num_warps}")
        return {"y": "wrong" if self.checked[-1] == "4096w4" else "right"}

    def difference(self, variant: Variant, expected: Mapping[str, Any], found: Mapping[str, Any]) -> str:
        return "" if expected == found else "wrong: y: all elements differ"

    def times(self, programs: Sequence[TimedProgram], seconds: float = SECONDS) -> list[float]:
        blocks = [int(program.variant.values["BLOCK"] or 0) for program in programs]
        self.timed += [
            f"{block}w{program.variant.options.num_warps}" for block, program in zip(blocks, programs)
        ]
        if self.hanging in blocks:
            raise KeyboardInterrupt
        self.lost |= self.broken in blocks
        if self.lost:
            raise ToolError("cuLaunchKernel failed: CUDA_ERROR_ILLEGAL_ADDRESS (700)")
        return [1e5 / block + program.variant.options.num_warps for block, program in zip(blocks, programs)]


@pytest.fixture
def decorated(tuning: Machine) -> Path:
    """The manifest of a kernel that has its configurations from `@triton.autotune`, in the current directory."""
    return test_decorated.project(Path(), more=test_decorated.TUNE)


@pytest.fixture
def tuning(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The project with a table `[kernel.tune]`, as the current directory, and the machine that the command
    finds."""
    file = project / "kernels.toml"
    file.write_text(file.read_text() + TABLE)
    monkeypatch.chdir(project)
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(builder, "COMPILER", "tests.aot.build.fake_compiler:compile")
    monkeypatch.setattr(builder, "SOURCE_DIGEST", "tests.aot.build.fake_compiler:source_digest")
    machine = Machine()
    monkeypatch.setattr(verb, "open_machine", lambda ordinal, environment: machine)
    return machine


def test_the_fastest_right_configuration_is_kept_and_built(
    tuning: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune"]) == 0
    said = capsys.readouterr().err
    assert "[1/3] scale.sm_90 dtype=fp16 NEGATE=False n<=1024 n<=512" in said
    assert "BLOCK=4096,SCALE=2.0 w4s2: wrong: y: all elements differ" in said
    assert "best: BLOCK=4096,SCALE=2.0 w8s2: 32.41 us; default BLOCK=2048,SCALE=2.0 w8s2: 56.83 us" in said
    entries = tuned.read(Path("kernels.tune.toml"))
    assert [(dict(e.config), e.us, str(e.facts and e.facts[-1])) for e in entries] == [
        ({"BLOCK": 4096, "num_warps": 2, "num_stages": 3}, 26.414, "n<=512"),
        ({"BLOCK": 4096, "num_warps": 8, "num_stages": 2}, 32.414, "()"),
        ({"BLOCK": 4096, "num_warps": 8, "num_stages": 2}, 32.414, "()"),
    ]
    # What is far behind in the trial is not checked; in each task the default's results are what the others
    # are compared with.
    assert tuning.checked == ["1024w8", "4096w2", *2 * ["2048w8", "4096w4", "4096w8"]]
    assert main(["list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    names = [line for line in listed if line.startswith("scale.sm_90.fp16.NEGATE=0.n=d16")]
    assert [name.partition("n=d16.")[2] for name in names] == [
        "BLOCK=4096,SCALE=2.0.n-le-1024,n-le-512.w2s3",
        "BLOCK=1024,SCALE=2.0.n-le-1024.w8s3",
        "BLOCK=4096,SCALE=2.0.w8s2",
    ]
    assert main(["build", "-q"]) == 0 and len(list(Path("dist").iterdir())) == 1
    assert main(["mutate", "--dry-run", "--sample", "99"]) == 0
    assert capsys.readouterr().out.splitlines() == [line for line in listed if line.startswith("scale.")], (
        "as any other verb"
    )


def test_a_second_run_takes_up_where_the_first_ended(
    tuning: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    tuning.hanging = 4096
    assert main(["tune"]) == 130
    tuning.hanging = 0
    assert main(["tune"]) == 0
    assert "BLOCK=4096,SCALE=2.0 w2s3: was running when the run ended" in capsys.readouterr().err
    # Of the first task only the default and the finalist are timed again.
    assert tuning.timed.count("512w2") == 1 and tuning.timed.count("2048w2") == 1 + 1
    assert dict(tuned.read(Path("kernels.tune.toml"))[0].config)["BLOCK"] == 2048
    assert main(["tune", "--fresh", "-q"]) == 0
    assert dict(tuned.read(Path("kernels.tune.toml"))[0].config)["BLOCK"] == 4096


def test_a_candidate_that_takes_the_device_along_ends_the_run(
    tuning: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    tuning.broken = 512
    assert main(["tune", "-q"]) == ToolError("").exit_code
    tuning.broken, tuning.lost, before = 0, False, len(tuning.timed)
    assert main(["tune"]) == 0
    said = capsys.readouterr().err
    assert said.count("cuLaunchKernel failed: CUDA_ERROR_ILLEGAL_ADDRESS") == 2, "once for each run"
    assert "BLOCK=512,SCALE=2.0 w2s3: cuLaunchKernel failed" in said and "512w2" not in tuning.timed[before:]


def test_entries_for_facts_of_products_are_built(tuning: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    file = Path("kernels.toml")
    file.write_text(
        file.read_text().replace('when = { n = "<= 512", dtype', 'when = { "n * n" = "<= 262144", dtype')
    )
    assert main(["tune", "-q"]) == 0
    assert [str(fact) for fact in tuned.read(Path("kernels.tune.toml"))[0].facts] == [
        "n<=1024",
        "n*n<=262144",
    ]
    assert main(["list"]) == 0
    said = capsys.readouterr()
    assert (
        "warning" not in said.err and said.out.count("BLOCK=4096,SCALE=2.0.n-le-1024,n+n-le-262144.w2s3") == 2
    )


def test_a_dry_run_shows_candidates_without_a_gpu(
    tuning: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verb, "open_machine", None)
    assert main(["tune", "--dry-run", "-q", "--arch", "sm_80"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "scale.sm_80 dtype=fp16 NEGATE=False n<=512: 4 of 4 candidates"
    assert lines[1] == "  + BLOCK=512,SCALE=2.0 w2s3: 32 registers, 0 bytes of shared memory, 32 at once"


def test_tables_of_several_machines_merge(tuning: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "-q"]) == 0
    here = tuned.read(Path("kernels.tune.toml"))
    other = [
        TunedEntry(
            **{
                **vars(entry),
                "device": "NVIDIA H100",
                "config": (("BLOCK", 512), ("num_warps", 1), ("num_stages", 1)),
                "us": 1.0,
            }
        )
        for entry in here
    ]
    tuned.write(Path("other.toml"), other)
    assert main(["tune", "--merge", "other.toml"]) == 0
    both = tuned.read(Path("kernels.tune.toml"))
    assert len(both) == 6 and set(both) == {*here, *other}
    # Where devices of one architecture differ, the one that gains the most decides.
    assert main(["list", "-q", "--arch", "sm_90"]) == 0
    assert capsys.readouterr().out.count("BLOCK=512,SCALE=2.0.n-le-1024,n-le-512.w1s1") == 2
    assert (
        main(["tune", "--merge", "none.toml"]) == 2 and "none.toml: no such file" in capsys.readouterr().err
    )


def test_entries_for_another_source_are_left_out(tuning: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "-q"]) == 0
    source = Path("kernels/scale.py")
    source.write_text(source.read_text() + "\nX = 1\n")
    assert main(["build", "-q"]) == 0
    assert capsys.readouterr().err == (
        "warning: kernels.tune.toml: scale: entries are for an earlier source; run kbuild tune again\n"
    )
    plain = expand(load(Path("kernels.toml"), "")).variants
    assert len(list(Path("build").glob("sm_*/scale/*.cubin"))) == len(plain)


@pytest.mark.parametrize(
    "text, says",
    [
        ("schema = 2", "expected schema = 1"),
        ("schema = 1\n[[entry]]\nkernel = 3", "entry[0]: expected a table with the keys kernel, device"),
        ("schema = ", "kernels.tune.toml: Invalid value"),
    ],
)
def test_tables_that_are_none(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "kernels.tune.toml"
    file.write_text(text)
    with pytest.raises(ManifestError) as caught:
        tuned.read(file)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "before, after, says",
    [
        (
            "BLOCK = [512",
            "BLOK = [512",
            'tune.candidates.BLOK: no configuration gives it; did you mean "BLOCK"?',
        ),
        (
            "num_warps = [4, 8]",
            "num_warps = [4, 5]",
            "tune.candidates.num_warps[1]: the int 5 cannot be a value of num_warps",
        ),
        ("n = 500", "n = 5000", "tune.bucket[0].values.n: the bucket is for n <= 512"),
        (
            "[kernel.tune]",
            '[kernel.tune]\nzeros = ["n"]',
            "tune.zeros[0]: expected an argument that is a pointer",
        ),
        (
            "[kernel.tune]",
            '[kernel.tune]\nrestore = ["z"]',
            "tune.restore[0]: expected an argument that is a",
        ),
        ("n = 500", "m = 500", "tune.bucket[0].values.m: unknown key"),
        ('x = "n", ', "", 'tune.sizes: missing key "x"'),
        ('y = "n" }', 'y = "m" }', "tune.sizes.y:"),
        (
            "[kernel.tune]",
            "[kernel.tune]\nrequire = 'BLOCKS < n'",
            'tune.require: unknown name "BLOCKS" in "BLOCKS < n"',
        ),
        (
            "BLOCK = [512, 1024, 2048, 4096]",
            "BLOCK = []",
            "tune.candidates.BLOCK: expected a list of values, found an empty",
        ),
    ],
)
def test_mistakes_in_the_table_are_reported(project: Path, before: str, after: str, says: str) -> None:
    file = project / "kernels.toml"
    assert before in TABLE
    file.write_text(file.read_text() + TABLE.replace(before, after))
    assert any(says in mistake for mistake in mistakes(project)), mistakes(project)


def test_arrays_of_zeros_are_those_to_verify_with_unless_given(project: Path) -> None:
    file = project / "kernels.toml"
    verify = '[kernel.verify]\nsizes = { x = "n", y = "n" }\nvalues = [{ n = 40 }]\nzeros = ["y"]\n'
    text = file.read_text() + verify + TABLE
    for given, expected in (("", ("y",)), ("zeros = []\n", ()), ('zeros = ["x"]\n', ("x",))):
        file.write_text(text.replace("[kernel.tune]\n", f'[kernel.tune]\n{given}restore = ["y"]\n'))
        kernel = load(file).kernel("scale")
        assert kernel.tune and kernel.tune.zeros == expected
        task, *_ = tasks(load(file), ("sm_90",), ())
        case = launch_of(kernel, task.default, task.bucket)
        assert case and (case.zeros, case.restored) == (expected, ("y",))


def test_the_configurations_of_autotune_are_tried(
    decorated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for n, facts, built in (
        (
            1280,
            ["n%256", "n!%512"],
            ["512,EVEN=0.n-mod-256,n-nomod-512.w2s3", "256,EVEN=1.n-mod-256.w2s3", "256,EVEN=0.w2s3"],
        ),
        (
            4096,
            ["n%256", "n%512"],
            ["512,EVEN=1.n-mod-256,n-mod-512.w2s3", "256,EVEN=1.n-mod-256.w2s3", "256,EVEN=0.w2s3"],
        ),
        (77, ["n!%512"], ["256,EVEN=1.n-mod-256.w2s3", "512,EVEN=0.n-nomod-512.w2s3", "256,EVEN=0.w2s3"]),
    ):
        Path("kernels.tune.toml").unlink(missing_ok=True)
        decorated.write_text(decorated.read_text().replace("n = 1280", f"n = {n}"))
        assert main(["tune", "--fresh", "--arch", "sm_90"]) == 0
        said = capsys.readouterr().err
        assert said.count("1 of the 4 configurations of @triton.autotune is used") == 1
        entries = tuned.read(Path("kernels.tune.toml"))
        assert [dict(entry.when)["ROUND"] for entry in entries] == [16, 48]
        for entry in entries:
            assert [str(fact) for fact in entry.facts] == facts
            assert dict(entry.config)["BLOCK"] == 512 and dict(entry.config)["EVEN"] == (n == 4096)
        assert main(["list", "-q", "--arch", "sm_90"]) == 0
        names = [
            line.partition("ROUND=16.x=any,count=any.BLOCK=")[2] for line in capsys.readouterr().out.split()
        ]
        assert [name for name in names if name] == built
        assert main(["tune", "--arch", "sm_90", "-q"]) == 0
        assert tuned.read(Path("kernels.tune.toml")) == entries, "those of an earlier run are replaced"
        decorated.write_text(decorated.read_text().replace(f"n = {n}", "n = 1280"))


def test_lists_of_the_manifest_are_tried_in_place_of_those_of_autotune(decorated: Path) -> None:
    lists = "candidates = { BLOCK = [1024], num_warps = [2, 8] }\nrequire = 'num_warps < 8'\nbucket = "
    decorated.write_text(decorated.read_text().replace("bucket = ", lists))
    (found,) = mistakes(Path())
    assert "tune.candidates: EVEN of @triton.heuristics would not follow them; leave them out, and" in found
    text = decorated.read_text().replace("[kernel.tune]", "defaults = { EVEN = false }\n[kernel.tune]")
    decorated.write_text(text)
    task, *_ = tasks(load(decorated), ("sm_90",), ())
    assert [short(variant) for variant in task.candidates] == ["BLOCK=1024,EVEN=False w2s3"]


def test_facts_rule_candidates_out() -> None:
    facts = {"spill_stores": 0, "spill_loads": 0, "shared": 100_000, "registers": 168, "warps": 8}
    assert obstacle(facts, H200) == "" and programs_at_once(facts, H200) == 1
    assert programs_at_once(facts | {"registers": 64, "shared": 0, "warps": 4}, H200) == 8
    assert obstacle(facts | {"spill_stores": 8, "spill_loads": 12}, H200, 16) == "spills 20 bytes"
    assert obstacle(facts | {"spill_stores": 8, "spill_loads": 12}, H200, 20) == "", "the default does, too"
    assert "232448 are there" in obstacle(facts | {"shared": 240_000}, H200)
    assert "more than there are" in obstacle(facts | {"warps": 16}, H200)


def test_what_is_required_of_candidates_is_not_even_compiled(project: Path) -> None:
    file = project / "kernels.toml"
    table = TABLE.replace("[kernel.tune]", '[kernel.tune]\nrequire = "BLOCK >= 256 * num_warps"')
    table = table.replace("values = { n = 500 }", 'values = { n = 500 }\nrequire = "BLOCK <= 2 * n"')
    file.write_text(file.read_text() + table)
    few, many, _ = tasks(load(file), ("sm_90",), ())
    assert [short(variant).partition(",")[0] for variant in few.candidates] == ["BLOCK=512"]
    assert len(many.candidates) == 8 - 3


def test_what_an_architecture_lacks_is_not_tried_on_it(project: Path) -> None:
    file = project / "kernels.toml"
    file.write_text(file.read_text() + TABLE.replace("BLOCK = [512, ", "num_ctas = [1, 2], BLOCK = [512, "))
    manifest = load(file)
    for arch, tried in (("sm_80", {1}), ("sm_90", {1, 2})):
        found = [one for task in tasks(manifest, (arch,), ()) for one in task.candidates]
        assert {variant.options.num_ctas for variant in found} == tried


def test_what_is_required_is_about_whole_numbers(project: Path) -> None:
    file = project / "kernels.toml"
    text = file.read_text().replace("BLOCK = 512\n", "BLOCK = 512\nSCALE = 2.0\n")
    file.write_text(text + TABLE.replace("[kernel.tune]", '[kernel.tune]\nrequire = "BLOCK * SCALE > 8"'))
    with pytest.raises(
        ManifestError,
        match=r"tune\.require names SCALE, which is not a whole number in BLOCK=512,SCALE=2\.0 w",
    ):
        list(tasks(load(file), ("sm_90",), ()))


def test_candidates_may_set_what_only_another_configuration_gives(project: Path) -> None:
    file = project / "kernels.toml"
    text = file.read_text().replace("BLOCK = 512\n", "BLOCK = 512\nSCALE = 2.0\n")
    file.write_text(text + TABLE.replace("BLOCK = [512, ", "SCALE = [1.0, 2.0], BLOCK = [512, "))
    found = list(tasks(load(file), ("sm_90",), ()))
    assert len(variants_of(found)) == (1 + 8) + 16 + 16, (
        "where its warps are in the list, the default is a candidate"
    )
    assert len(found[1].candidates) == 2 * 8 and {
        variant.values["SCALE"] for variant in found[1].candidates
    } == {1.0, 2.0}


def test_configurations_with_a_cost(project: Path) -> None:
    """The cheapest for the bucket's launch is what candidates are compared with, and what is found stands before all that have a
    cost."""
    manifest = project / "kernels.toml"
    text = manifest.read_text().replace(
        'when = { n = "<= 1024" }', 'cost = "8 * cdiv(n, 1024)"\nwhen = { n = "<= 2097152" }'
    )
    text = text.replace("BLOCK = 2048", 'BLOCK = 2048\ncost = "9 * cdiv(n, BLOCK)"')
    manifest.write_text(text + TABLE)
    loaded = load(manifest)
    found = [task for task in tasks(loaded, ["sm_90"], []) if not dict(task.when)["NEGATE"]]
    assert [(dict(task.bucket.values)["n"], task.default.values["BLOCK"]) for task in found] == [
        (500, 1024),
        (1048576, 2048),
    ]
    assert not any(one.cost for task in found for one in (task.default, *task.candidates))
    when, entries = found[1].when, []
    for task in found:
        config = (("BLOCK", 4096), ("num_warps", 4), ("num_stages", 2))
        entries.append(TunedEntry("scale", "GPU", 90, "", when, task.facts, config, 1.0, 2.0))
    changed, warnings = tuned.applied(loaded, entries, {"scale": ""})
    blocks = [dict(config.constexprs)["BLOCK"] for config in changed.kernel("scale").configs]
    assert blocks == [512, 4096, 4096, 1024, 2048] and not warnings
    own = [one for one in expand(changed, ["sm_90"]).variants if one.values["BLOCK"] == 4096]
    assert own and not any(one.cost for one in own)


def test_without_a_driver_it_says_so(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = project / "kernels.toml"
    file.write_text(file.read_text() + TABLE)
    monkeypatch.chdir(project)
    monkeypatch.setenv("KBUILD_LIBCUDA", "no-such-library.so")
    assert main(["tune"]) == ToolError("").exit_code
    said = capsys.readouterr().err
    assert "no NVIDIA driver: no-such-library.so was not found" in said and "--dry-run" in said


def test_a_bucket_is_for_the_strongest_hints_that_its_launch_fulfils(project: Path) -> None:
    file = project / "kernels.toml"
    file.write_text(file.read_text() + TABLE)
    found = list(tasks(load(file), ("sm_90",), ()))
    assert [str(task) for task in found] == [
        "scale.sm_90 dtype=fp16 NEGATE=False n<=1024 n<=512",
        "scale.sm_90 dtype=fp16 NEGATE=False",
        "scale.sm_90 dtype=fp16 NEGATE=True",
    ]
    assert (
        dict(found[0].default.signature)["n"] == "i32" and dict(found[1].default.signature)["n"] == "i32:16"
    )
    assert {dict(variant.signature)["n"] for variant in found[1].candidates} == {"i32:16"} and len(
        found[1].candidates
    ) == 8
