"""The history of builds: what is kept of it, and what damage does to it."""

from __future__ import annotations

from pathlib import Path

from kbuild.aot.history.ledger import (
    BUILDS,
    BUILDS_WITH_STEPS,
    FILE,
    BuildRun,
    Circumstances,
    Made,
    SourcePart,
    Step,
    append,
    encoded,
    encoded_source,
    read,
    rewrite,
)

JOB = {
    "identity": "i",
    "source": "k.py",
    "function": "k",
    "source_digest": "s",
    "variant": "k/sm_80/////w4s3/",
}
STEP = Step("a", "compile", 0.5, 1.5, "compiled", ("from elsewhere",))


def circumstances(id: str) -> Circumstances:
    return Circumstances(id, "1.0", "c", 1, {"options.py": "0"}, {"ptxas": "p"}, {"ptxas": "13.5"})


def lines(number: int, *names: str) -> list[bytes]:
    """What a build adds."""
    with_ = circumstances(f"w{number}")
    job = JOB | {"identity": str(number), "source_digest": f"s{number}"}
    source = encoded_source(f"s{number}", [SourcePart("k.py", "k", 3, "def k(): …", {"B": "4"})])
    made = [encoded(Made(name, number, "compiled", with_.id, job)) for name in names]
    return [encoded(with_), source, *made, encoded(BuildRun(number, float(number), 2, (STEP,)))]


def directory(tmp_path: Path) -> Path:
    (tmp_path / FILE).parent.mkdir()
    return tmp_path


def test_what_is_appended_is_read_back(tmp_path: Path) -> None:
    build = directory(tmp_path)
    append(build, lines(1, "a", "b"))
    append(build, lines(2, "a"))
    history = read(build)
    last, before = history.last("a"), history.before("a")
    assert last and before and (last.build, before.build) == (2, 1) and history.before("b") is None
    assert history.circumstances["w2"] == circumstances("w2")
    assert history.sources["s1"] == (SourcePart("k.py", "k", 3, "def k(): …", {"B": "4"}),)
    assert history.builds[1].steps == (STEP,) and history.builds[1].seconds == 1.5


def test_damage_costs_the_lines_that_it_hits(tmp_path: Path) -> None:
    build = directory(tmp_path)
    append(build, lines(1, "a", "b"))
    text = (build / FILE).read_bytes()
    for size in range(len(text)):
        (build / FILE).write_bytes(text[:size])
        append(build, lines(2, "a"))
        last = read(build).last("a")
        assert last is not None and last.build == 2
    for junk in (b"\xff\x00", b"[]", b"{}", b'{"variant": 3}', b'{"build": {"number": 1}}', b"[" * 100_000):
        (build / FILE).write_bytes(junk + b"\n" + text)
        assert read(build).last("b") is not None


def test_the_file_does_not_grow_for_ever(tmp_path: Path) -> None:
    build = directory(tmp_path)
    for number in range(1, BUILDS + 10):
        append(build, lines(number, "a", *(["gone"] if number == 1 else [])))
    assert not read(build).is_wasteful
    for number in range(1000, 1700):
        append(build, lines(number, "a"))
    assert read(build).is_wasteful
    rewrite(build, read(build).trimmed(["a"]))
    history = read(build)
    assert [made.build for made in history.made["a"]] == [1698, 1699] and "gone" not in history.made
    assert set(history.circumstances) == {"w1698", "w1699"} and set(history.sources) == {"s1698", "s1699"}
    assert len(history.builds) == BUILDS
    assert [bool(build.steps) for build in history.builds].count(True) == BUILDS_WITH_STEPS
    assert history.builds[-1].steps == (STEP,) and not history.is_wasteful
