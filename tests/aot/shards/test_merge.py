"""Wheels of single architectures, joined: the bytes of one build, or a message that says why not."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.aot.artifact import record
from kbuild.aot.artifact.wheel import packed
from kbuild.aot.build.project import BuildOptions
from kbuild.aot.identity import canonical_json
from kbuild.aot.manifest.load import load
from kbuild.aot.shards import merge as merging
from kbuild.aot.shards.merge import merge
from kbuild.cli import main
from kbuild.errors import ToolError, UsageError
from kbuild.options import DEFAULTS
from tests.aot.artifact.partial_wheels import options_of, wheel_of
from tests.aot.conftest import KERNEL


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def write(path: Path, text: str) -> None:
    path.write_text(text)


def joined(options: BuildOptions, *wheels: Path) -> Path:
    return merge(wheels, options.project / "joined", options.environment)


@pytest.fixture
def options(project: Path) -> BuildOptions:
    return options_of(project)


def test_it_is_the_wheel_of_one_build(options: BuildOptions) -> None:
    one, other, whole = wheel_of(options, "sm_80"), wheel_of(options, "sm_90"), wheel_of(options)
    for wheels in ((one, other), (other, one)):
        made = joined(options, *wheels)
        assert made.name == whole.name and made.read_bytes() == whole.read_bytes()
    with zipfile.ZipFile(whole) as archive:
        assert not [name for name in archive.namelist() if name.endswith(record.FILE)]


def test_so_it_is_for_a_project_with_all_that_a_manifest_may_say(
    project: Path, options: BuildOptions
) -> None:
    """PTX for newer GPUs of code that has none by itself, a kernel of one architecture alone, modules of its own, and
    times."""
    write(project / "kernels/scale.py", f'MODE = "accelerated"\n{KERNEL}')
    change(project / "kernels.toml", '"sm_80", "sm_90"', '"sm_100", "sm_80", "sm_90+ptx"')
    change(project / "kernels.toml", "demo_kernels", "demo.kernels")
    change(project / "kernels.toml", "[package]", '[package]\npackages = ["demo"]\nmin_driver = 590')
    more = '[[kernel]]\nname = "twice"\nlike = "scale"\nexclude = [{ arch = ["sm_80", "sm_100"] }]\n'
    (project / "kernels.toml").write_text((project / "kernels.toml").read_text() + more)
    (project / "demo").mkdir()
    (project / "demo/__init__.py").write_text("from demo.kernels import scale\n")
    (project / "LICENSE").write_text("MIT\n")
    options = replace(options, epoch=1_700_000_000, compile=DEFAULTS.changed({"debug": True}))
    wheels = {arch: wheel_of(options, arch) for arch in ("sm_80", "sm_90", "sm_100")}
    whole = wheel_of(options)
    assert joined(options, *wheels.values()).read_bytes() == whole.read_bytes()
    two = joined(options, wheels["sm_80"], wheels["sm_100"])
    assert "+sm100.sm80-" in two.name
    assert two.read_bytes() == wheel_of(options, "sm_80", "sm_100").read_bytes()
    assert joined(options, wheels["sm_90"], two).read_bytes() == whole.read_bytes()


def test_a_wheel_of_one_architecture_names_no_place_of_the_machine(options: BuildOptions) -> None:
    with zipfile.ZipFile(wheel_of(options, "sm_80")) as archive:
        texts = {name: archive.read(name) for name in archive.namelist()}
    assert not [name for name, data in texts.items() if str(options.project).encode() in data]


def test_the_record_of_a_manifest_is_all_of_it(project: Path) -> None:
    for manifest in (load(project / "kernels.toml"), load(Path(__file__).parents[3] / "kernels.toml")):
        kept = record.Record({}, manifest, {}, (), [])
        assert repr(record.decode(record.encode(kept)).manifest) == repr(manifest)


def test_values_that_json_has_not_are_kept() -> None:
    value = ("inf", float("inf"), -0.5, None, True, 1)
    assert record._decoded(json.loads(canonical_json(record._encoded(value)))) == value


DIFFERENCES: dict[str, tuple[Callable[[Path], None], dict[str, object], str]] = {
    "version": (
        lambda project: change(project / "kernels.toml", "0.1.0", "0.2.0"),
        {},
        r"is of version 0\.2\.0, and demo_kernels-0\.1\.0\+sm80\S+ of 0\.1\.0",
    ),
    "project": (
        lambda project: change(project / "kernels.toml", "demo_kernels", "other_kernels"),
        {},
        "other_kernels.* is of the project other_kernels, and demo_kernels-.* of demo_kernels",
    ),
    "manifest": (
        lambda project: change(project / "kernels.toml", "BLOCK = 2048", "BLOCK = 4096"),
        {},
        r"was built from another kernels\.toml than demo_kernels",
    ),
    "tuned": (
        lambda project: write(project / "kernels.tune.toml", "schema = 1\n"),
        {},
        r"was built with another kernels\.tune\.toml than",
    ),
    "sources": (
        lambda project: write(project / "kernels/scale.py", f"# {KERNEL}"),
        {},
        r"was built from other sources than demo_\S+: kernels/scale\.py",
    ),
    "options": (
        lambda project: None,
        {"compile": DEFAULTS.changed({"debug": True})},
        "with other options than",
    ),
    "metadata": (
        lambda project: write(project / "LICENSE", "MIT"),
        {},
        "has other files of the project, or other metadata, than",
    ),
    "epoch": (
        lambda project: None,
        {"epoch": 1_700_000_000},
        r"was built with SOURCE_DATE_EPOCH 1700000000, and demo_\S+ with none",
    ),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_wheels_of_different_builds_are_refused(options: BuildOptions, name: str) -> None:
    edit, changes, message = DIFFERENCES[name]
    first = wheel_of(options, "sm_80")
    edit(options.project)
    second = wheel_of(replace(options, **changes), "sm_90")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=message):
        joined(options, first, second)


def edited(wheel: Path, edit: Callable[[dict[str, bytes]], None], name: str = "") -> Path:
    """A copy of a wheel with other files and a right RECORD."""
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    edit(files)
    information = next(name for name in files if name.endswith("/WHEEL")).partition("/")[0]
    copy = wheel.parent / "edited" / (name or wheel.name)
    copy.parent.mkdir(exist_ok=True)
    copy.write_bytes(packed(files, information))
    return copy


def in_record(edit: Callable[[dict], None]) -> Callable[[dict[str, bytes]], None]:
    """An edit of a wheel that edits its record."""

    def edit_files(files: dict[str, bytes]) -> None:
        name = next(name for name in files if name.endswith(record.FILE))
        fields = json.loads(files[name])
        edit(fields)
        files[name] = canonical_json(fields)

    return edit_files


def test_other_tools_and_another_kbuild_are_refused(
    options: BuildOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = wheel_of(options, "sm_80"), wheel_of(options, "sm_90")
    ptxas = edited(other, in_record(lambda fields: fields["inputs"]["tools"].update(ptxas="0")))
    with pytest.raises(UsageError, match="another ptxas or llvmlite than"):
        joined(options, one, ptxas)
    with pytest.raises(UsageError, match="was made by another kbuild than"):
        joined(options, one, edited(other, in_record(lambda fields: fields["inputs"].update(kbuild={}))))
    monkeypatch.setattr(merging, "kbuild_identity", lambda: {"version": "9.9", "digest": ""})
    with pytest.raises(UsageError, match=r"sm80\S+ was made by kbuild 0\.1\.0, and this is kbuild 9\.9"):
        joined(options, one, other)


def test_one_architecture_twice_and_other_machines_are_refused(options: BuildOptions) -> None:
    one, other = wheel_of(options, "sm_80"), wheel_of(options, "sm_90")
    with pytest.raises(UsageError, match="both have sm_80"):
        joined(options, one, other, one)
    foreign = edited(
        other, lambda files: None, "demo_kernels-0.1.0+sm90-cp310-abi3-manylinux_2_17_riscv64.whl"
    )
    with pytest.raises(UsageError, match=r"riscv64\.whl is for manylinux_2_17_riscv64, and demo_"):
        joined(options, one, foreign)
    with pytest.raises(UsageError, match="takes two wheels or more"):
        joined(options, one)


def test_what_is_no_wheel_of_an_architecture_is_refused(options: BuildOptions, tmp_path: Path) -> None:
    one, whole = wheel_of(options, "sm_80"), wheel_of(options)
    text = tmp_path / "text.whl"
    text.write_text("no archive")
    cut = tmp_path / "cut.whl"
    cut.write_bytes(one.read_bytes()[:-9])
    empty = tmp_path / "empty.whl"
    with zipfile.ZipFile(empty, "w"):
        pass
    for path, message in (
        (whole, "is no wheel of some architectures"),
        (tmp_path / "none.whl", "no file "),
        (tmp_path, "is not a wheel"),
        (text, r"text\.whl is not a wheel"),
        (cut, r"cut\.whl is not a wheel"),
        (empty, "it has no .dist-info/RECORD"),
    ):
        with pytest.raises(UsageError, match=message):
            joined(options, one, path)


def test_damaged_wheels_are_refused(options: BuildOptions, tmp_path: Path) -> None:
    one, other = wheel_of(options, "sm_80"), wheel_of(options, "sm_90")
    archive = "demo_kernels/cubins/sm_90.kbz"
    edits = {
        "lacks cubins of sm_90": lambda files: files.pop(archive),
        "its format is 7": in_record(lambda fields: fields.update(format=7)),
        "was written by another kbuild: KeyError": in_record(lambda fields: fields.pop("rows")),
        "it is incomplete": in_record(lambda fields: fields["inputs"].pop("epoch")),
        "it has no manifest": in_record(lambda fields: fields.update(manifest=[])),
        "was written by another kbuild: ": in_record(lambda fields: fields.update(manifest={"Path": {}})),
    }
    for message, edit in edits.items():
        with pytest.raises(UsageError, match=message):
            joined(options, one, edited(other, edit))  # type: ignore[arg-type]
    flipped = tmp_path / other.name
    with zipfile.ZipFile(other) as source, zipfile.ZipFile(flipped, "w") as target:
        for name in source.namelist():
            target.writestr(name, source.read(name) + b" " * (name == archive))
    with pytest.raises(
        UsageError, match=r"is damaged: demo_kernels/cubins/sm_90\.kbz is not what its RECORD says"
    ):
        joined(options, one, flipped)


def test_without_a_c_compiler_it_says_so(options: BuildOptions, tmp_path: Path) -> None:
    wheels = wheel_of(options, "sm_80"), wheel_of(options, "sm_90")
    with pytest.raises(ToolError, match="no C compiler was found"):
        merge(wheels, tmp_path, {"PATH": str(tmp_path)})


def test_the_command(options: BuildOptions, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheels = [str(wheel_of(options, arch)) for arch in ("sm_80", "sm_90")]
    whole = wheel_of(options)
    assert main(["merge", *wheels, "-o", str(tmp_path / "out")]) == 0
    out, err = capsys.readouterr()
    assert Path(out.strip()).read_bytes() == whole.read_bytes() and err.startswith("joined 2 wheels, ")
    assert main(["merge", wheels[0], wheels[0], "-q"]) == 2
    assert "both have sm_80" in capsys.readouterr().err
