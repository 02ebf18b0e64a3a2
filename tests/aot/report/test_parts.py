"""Occupancy, the intervals of a build, and the layouts of a text."""

from __future__ import annotations

from kbuild.aot.history.ledger import BuildRun, Step
from kbuild.aot.report.layouts import layouts_in
from kbuild.aot.report.timeline import critical_path, lanes, shortest, timeline


def step(what: str, start: float | None, end: float, how: str = "compiled", kind: str = "compile") -> Step:
    return Step(what, kind, start, end, how)


STEPS = (
    step("short", 0.0, 1.0),
    step("long", 0.0, 4.0),
    step("second", 1.02, 2.0, "cache"),
    step("failed", None, 2.5, "failed"),
    step("third", 2.01, 5.0),
    step("demo", 5.01, 6.0, kind="package"),
)


def test_steps_take_the_first_lane_that_is_free() -> None:
    assert lanes(STEPS) == [0, 1, 0, -1, 0, 0]
    assert lanes(()) == [] and critical_path(()) == []


def test_the_critical_path_ends_with_the_build() -> None:
    assert [STEPS[place].what for place in critical_path(STEPS)] == ["short", "second", "third", "demo"]
    instant = tuple(step(str(number), 0.0, 0.0) for number in range(5))
    assert len(critical_path(instant)) == 1
    assert shortest(STEPS) == 4.0 + 0.99


def test_a_build_for_the_page() -> None:
    found = timeline(BuildRun(3, 100.0, 4, STEPS))
    assert (found["number"], found["seconds"], found["hits"], found["failed"]) == (3, 6.0, 1, 1)
    assert found["work"] == round(1.0 + 4.0 + 0.98 + 2.99 + 0.99, 3)
    assert found["steps"][2] == ["second", "compile", 1.02, 2.0, "cache", 0, []]


TTGIR = """\
#blocked = blocked{sizePerThread=[1,4], threadsPerWarp=[4,8], warpsPerCTA=[2,1], order=[1,0]}
#shared = swizzled{vector=8, perPhase=1, maxPhase=8, order=[1,0]}
#odd = of another kind

  %p: tensor<8x32x!tt.ptr<f16>, #blocked> = tt.splat %a
  %x: tensor<8x32xf16, #blocked> = tt.load %p
  %s: !ttg.memdesc<3 x 16x64xbf16, #shared> = ttg.local_alloc
  %y: tensor<4xf32, #odd> = a
  %z: tensor<4xf32> = b
""".splitlines()


def test_layouts_of_a_text() -> None:
    found = layouts_in(TTGIR)
    blocked, shared = TTGIR[0].partition(" = ")[2], TTGIR[1].partition(" = ")[2]
    assert set(found) == {f"8x32 {blocked}", f"16x64 {shared}"}
    first = found[f"8x32 {blocked}"]
    assert first["shape"] == [8, 32] and first["bytes"] == 8, "of the first tensor, which is of pointers"
    assert first["bases"][:2] == [
        ["register", [[0, 1], [0, 2]]],
        ["lane", [[0, 4], [0, 8], [0, 16], [1, 0], [2, 0]]],
    ]
    assert found[f"16x64 {shared}"]["bytes"] == 2
    assert [name for name, _ in found[f"16x64 {shared}"]["bases"]] == ["offset", "block"]
