"""Shards of one build: each variant in one of them, whatever the manifest becomes, and together the wheel of a single
build."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from kbuild.aot.build.cache import Cache
from kbuild.aot.build.progress import Progress
from kbuild.aot.build.project import BuildOptions, build, load_variants
from kbuild.aot.shards.merge import merge
from kbuild.aot.shards.shard import MOST, SPACE, WHOLE, Shard, gaps, position
from kbuild.cli import main
from kbuild.errors import UsageError
from kbuild.options import DEFAULTS
from tests.aot.artifact.partial_wheels import options_of, wheel_of
from tests.aot.conftest import KERNEL, MANIFEST


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> BuildOptions:
    """A build of two kernels on two architectures, 36 variants, in a project that the tests share and leave as it is."""
    folder = tmp_path_factory.mktemp("project")
    return made(folder)


@pytest.fixture
def own(tmp_path: Path) -> BuildOptions:
    """The same in a project that a test may change."""
    return made(tmp_path)


def made(folder: Path) -> BuildOptions:
    (folder / "kernels").mkdir()
    (folder / "kernels/scale.py").write_text(KERNEL)
    (folder / "kernels.toml").write_text(f'{MANIFEST}[[kernel]]\nname = "twice"\nlike = "scale"\n')
    cache = folder / "cache"
    cache.mkdir(mode=0o700)
    return replace(options_of(folder), cache=cache)


@pytest.fixture(scope="module")
def whole(options: BuildOptions) -> bytes:
    """The wheel of a single build."""
    return wheel_of(options).read_bytes()


def part_of(options: BuildOptions, shard: str, *kernels: str, archs: tuple[str, ...] = ()) -> Path:
    """The part that one of several machines makes."""
    result = build(replace(options, shard=Shard.parse(shard), kernels=kernels, archs=archs), Progress())
    assert not result.failures and result.wheel is not None and result.wheel.suffix == ".part"
    return result.wheel


def joined(options: BuildOptions, *parts: Path) -> Path:
    return merge(parts, options.project / "joined", options.environment, cache=Cache(options.cache))


def variants_of(options: BuildOptions) -> list[str]:
    _, expansion = load_variants(options.project, (), (), DEFAULTS)
    return [str(variant) for variant in expansion.variants]


@pytest.mark.parametrize("count", [1, 8])
def test_shards_make_the_wheel_of_one_build(options: BuildOptions, whole: bytes, count: int) -> None:
    parts = [part_of(options, f"{number}/{count}") for number in range(1, count + 1)]
    assert [part.name for part in parts] == [
        f"demo_kernels-0.1.0-{number}of{count}.part" for number in range(1, count + 1)
    ]
    random.Random(count).shuffle(parts)
    made = joined(options, *parts)
    assert made.name.startswith("demo_kernels-0.1.0-cp310-") and made.read_bytes() == whole


def test_shards_mix_with_architectures_kernels_and_wheels(options: BuildOptions, whole: bytes) -> None:
    halves = [part_of(options, f"{number}/2", archs=("sm_80",)) for number in (1, 2)]
    assert halves[0].name == "demo_kernels-0.1.0+sm80-1of2.part"
    one = joined(options, *halves)
    assert "+sm80-" in one.name
    other = part_of(options, "1/1", "twice", archs=("sm_90",))
    assert other.name == "demo_kernels-0.1.0+sm90-twice-1of1.part"
    rest = [part_of(options, shard, "scale", archs=("sm_90",)) for shard in ("..4c", "4c..")]
    assert rest[0].name == "demo_kernels-0.1.0+sm90-scale-0-4c.part"
    assert joined(options, *rest, other, *halves).read_bytes() == whole
    assert joined(options, one, other, *rest).read_bytes() == whole


def test_a_shard_may_have_no_variants(options: BuildOptions) -> None:
    _, expansion = load_variants(options.project, ("sm_80",), ("scale",), DEFAULTS)
    empty = next(
        shard
        for shard in (Shard.of(number, 64) for number in range(1, 65))
        if not shard.of_expansion(expansion).variants
    )
    around = [f"{one.text}" for one in gaps([empty])]
    parts = [part_of(options, text, archs=("sm_80",)) for text in around]
    parts += [
        part_of(options, empty.text, "scale", archs=("sm_80",)),
        part_of(options, empty.text, "twice", archs=("sm_80",)),
    ]
    assert joined(options, *parts).read_bytes() == wheel_of(options, "sm_80").read_bytes()


def test_another_zlib_on_a_machine_makes_no_difference(
    options: BuildOptions, whole: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [part_of(options, f"{number}/2") for number in (1, 2)]
    monkeypatch.setattr("zlib.ZLIB_RUNTIME_VERSION", "1.3.1.zlib-ng")
    assert joined(options, *parts).read_bytes() == whole


def test_missing_parts_are_named_by_the_commands_that_make_them(options: BuildOptions) -> None:
    eighths = [part_of(options, f"{number}/8") for number in range(1, 9)]
    with pytest.raises(
        UsageError, match=r"^error: \d+ of 36 variants are in none of these parts; these make"
    ) as found:
        joined(options, *eighths[:2], *eighths[3:5], *eighths[6:])
    assert found.value.message.splitlines()[1:] == [
        "  kbuild build --shard 3/8",
        "  kbuild build --shard 6/8",
    ]
    half = part_of(options, "1/2", archs=("sm_90",))
    of_twice = part_of(options, "2/2", "twice", archs=("sm_90",))
    with pytest.raises(UsageError) as found:
        joined(options, half, of_twice)
    assert found.value.message.splitlines()[1:] == ["  kbuild build --arch sm_90 --shard 2/2 scale"]


def test_what_two_parts_have_is_named(options: BuildOptions) -> None:
    one, other, third = (part_of(options, shard) for shard in ("1/2", "2/2", "1/3"))
    with pytest.raises(
        UsageError, match=r"-1of2\.part and \S+-1of3\.part both have scale\.\S+ and \d+ variants more"
    ):
        joined(options, one, other, third)
    wheel = joined(options, *(part_of(options, f"{number}/2", archs=("sm_80",)) for number in (1, 2)))
    with pytest.raises(UsageError, match=r"x86_64\.whl and \S+1of2\.part both have scale\.sm_80"):
        joined(options, wheel, one)


def test_parts_of_different_builds_are_refused(own: BuildOptions) -> None:
    one = part_of(own, "1/2", "scale", archs=("sm_80",))
    source = own.project / "kernels/scale.py"
    source.write_text("# A comment\n" + source.read_text())
    with pytest.raises(
        UsageError, match=r"-2of2\.part was built from other sources than \S+: kernels/scale\.py"
    ):
        joined(own, one, part_of(own, "2/2", "scale", archs=("sm_80",)))


def test_damaged_parts_are_refused(options: BuildOptions, tmp_path: Path) -> None:
    one, other = part_of(options, "1/2"), part_of(options, "2/2")
    data = other.read_bytes()
    broken = tmp_path / other.name
    generator = random.Random(0)
    for _ in range(20):
        at = generator.randrange(len(data))
        broken.write_bytes(data[:at] + bytes([data[at] ^ 1 << generator.randrange(8)]) + data[at + 1 :])
        try:
            made = joined(options, one, broken)
        except UsageError as error:
            assert other.name in error.message
        else:  # A bit that means nothing, such as a time in the archive.
            assert made.read_bytes() == joined(options, one, other).read_bytes()
    broken.write_bytes(data[:-9])
    with pytest.raises(UsageError, match=r"2of2\.part is not a part, or damaged"):
        joined(options, one, broken)


def test_positions_depend_on_the_variant_alone(own: BuildOptions) -> None:
    _, expansion = load_variants(own.project, (), (), DEFAULTS)
    before = {str(variant): position(variant) for variant in expansion.variants}
    manifest = own.project / "kernels.toml"
    manifest.write_text(manifest.read_text().replace('"fp16", "fp32"', '"fp16", "bf16", "fp32"'))
    _, expansion = load_variants(own.project, (), (), DEFAULTS)
    after = {str(variant): position(variant) for variant in expansion.variants}
    assert len(after) > len(before) and before.items() <= after.items()
    assert all(0 <= place < SPACE for place in after.values())


def test_variants_with_one_cubin_are_in_one_shard(own: BuildOptions) -> None:
    """They differ in the facts of dispatch alone: no two machines compile or verify the same."""
    halves = "".join(
        f"[[kernel.config]]\nwhen = {{ n = '{fact}' }}\nBLOCK = 512\n" for fact in ("<= 9", "> 9")
    )
    (own.project / "kernels.toml").write_text(MANIFEST[: MANIFEST.index("[[kernel.config]]")] + halves)
    _, expansion = load_variants(own.project, (), (), DEFAULTS)
    places = [position(variant) for variant in expansion.variants]
    assert len(places) == 32 and len(set(places)) == 16


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64, 65, 1000, MOST])
def test_numbered_shards_cover_everything_once(count: int) -> None:
    shards = [Shard.of(number, count) for number in range(1, count + 1)]
    assert shards[0].first == 0 and shards[-1].end == SPACE and not list(gaps(shards))
    assert all(one.end == other.first for one, other in pairwise(shards))
    assert all(Shard.parse(shard.text) == shard for shard in shards[:: max(1, count // 50)])
    assert shards[count // 2].text == (f"{count // 2 + 1}/{count}")


def test_shards_are_written_as_they_are_read() -> None:
    for text in ("3/8", "2f3a..5b", "..4c", "4c..", "1..3f", "0000000000000001.."):
        assert Shard.parse(text).text == text
    assert Shard.parse("..") == Shard.parse("1/1") == WHOLE and Shard.parse("..8").text == "1/2"
    assert [shard.text for shard in gaps([Shard.parse("..4"), Shard.parse("3..5"), Shard.parse("8..9")])] == [
        "5..8",
        "9..",
    ]


MISTAKES: dict[str, str] = {
    "0/8": r"--shard 0/8: there are shards 1/8 to 8/8",
    "9/8": r"--shard 9/8: there are shards 1/8 to 8/8",
    "1/0": r"--shard 1/0: expected a number of a count, or a range",
    "a/b": r"--shard a/b: expected",
    "5b..2f": r"--shard 5b\.\.2f: the range ends before it begins",
    "5..5": "the range ends before it begins",
    "1/999999": "expected a number of a count",
    "12345678901234567..": "expected",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_mistakes_in_shards_are_explained(text: str) -> None:
    with pytest.raises(UsageError, match=MISTAKES[text]):
        Shard.parse(text)


def test_the_commands(
    options: BuildOptions,
    whole: bytes,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(options.project)
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(options.cache))
    listed: list[str] = []
    for number in (1, 2, 3):
        assert main(["list", "--json", "--shard", f"{number}/3"]) == 0
        listed += [row["variant"] for row in json.loads(capsys.readouterr().out)["variants"]]
    assert sorted(listed) == sorted(variants_of(options))
    assert main(["verify", "--dry-run", "--shard", "1/3", "--arch", "sm_80"]) == 0
    chosen = capsys.readouterr().out.split()
    assert main(["list", "-q", "--shard", "1/3", "--arch", "sm_80"]) == 0
    assert capsys.readouterr().out.split() == chosen
    assert main(["build", "--shard", "4/3"]) == 2
    assert "there are shards 1/3 to 3/3" in capsys.readouterr().err
    parts = [str(part_of(options, f"{number}/2")) for number in (1, 2)]
    assert main(["merge", *parts, "-o", "out"]) == 0
    out, err = capsys.readouterr()
    assert Path(out.strip()).read_bytes() == whole and err.startswith("joined 2 parts, ")
    assert main(["merge", parts[0]]) == 2
    assert "these make them:\n  kbuild build --shard 2/2" in capsys.readouterr().err
    assert main(["build", "--shard", "1/2", "--platform", "aarch64"]) == 2
    assert "kbuild merge takes --platform" in capsys.readouterr().err
