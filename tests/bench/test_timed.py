"""bench/others/timed.py, without a GPU: rows and their table, launches as requests, memory, and a command of which each
process takes part."""

from __future__ import annotations

import json
import os
import sys
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import timed
import timed_memory
import timed_request
import timed_rows
from timed_rows import Difference, Row, Side
from timed_steady import steady

from tests.bench.timed_program import LIBRARY, PROGRAM
from tests.cli.adopting.conftest import STAND_IN


def timed_row(function: str, ours: float, theirs: float, problem: str = "", **more: Any) -> Row:
    sides = Side(40, 0, 1024, 4, ours), Side(50, 16, 2048, 8, theirs)
    return Row(function, (7, 1, 1), problem, "timed", "", *sides, **more)


def test_rows_are_read_as_they_were_written_and_what_was_begun_died(tmp_path: Path) -> None:
    rows = [
        timed_row("a.py:f", 10, 20, differences=(Difference("x", 0.5, 2, (1, 0)),)),
        Row("a.py:g", (1, 2, 3), "p", "compile", "no such thing"),
    ]
    lines = [line for row in rows for line in (Row(row.function, row.grid).line(), row.line())]
    (tmp_path / "1.jsonl").write_text("".join(lines))
    begun = [Row("a.py:h", (4, 1, 1), "q", text=f"while {doing}") for doing in ("others ran", "both ran")]
    (tmp_path / "2.jsonl").write_text("".join(row.line() for row in begun))
    waiting = Row("a.py:i", (1, 1, 1), "r", text="while others ran", poison=True)
    (tmp_path / "3.jsonl").write_text(waiting.line() + rows[0].line()[:-20])
    (tmp_path / "claim").write_text("")
    found = timed_rows.read(tmp_path)
    assert found[:2] == rows
    assert found[2:] == [
        Row("a.py:h", (4, 1, 1), "q", "died", "the process ended while both ran"),
        Row("a.py:i", (1, 1, 1), "r", "died", "the process ended while others ran", poison=True),
    ]


@pytest.mark.parametrize(
    "measured, least, measurements",
    [
        ([(10, 20), (10.4, 20)], (10, 20), 2),
        ([(40, 20), (10, 20), (10.1, 20)], (10, 20), 3),
        ([(10, 20), (20, 20), (10.3, 80)], (10, 20), 3),
        ([(60, 20), (50, 20), (40, 20), (30, 20), (20, 20), (10, 20), (9, 9)], (10, 20), 6),
    ],
)
def test_launches_that_other_processes_delay_are_timed_again(
    measured: list[tuple[float, float]], least: tuple[float, float], measurements: int
) -> None:
    left = iter(measured)
    assert steady(lambda: dict(zip(("ours", "theirs"), next(left)))) == dict(zip(("ours", "theirs"), least))
    assert len(measured) - len(list(left)) == measurements


def test_a_function_has_the_mean_the_least_and_the_best_of_its_launches() -> None:
    rows = [
        timed_row("a.py:f", 10, 20, "small"),
        timed_row("a.py:f", 40, 10, "small"),
        timed_row("a.py:f", 100, 100, "large"),
        timed_row("a.py:f", 1, 7.9, "tiny"),
        timed_row("a.py:g", 10, 9.9),
        Row("a.py:h", (1, 1, 1), kind="launch", text="refused"),
    ]
    f, g = timed_rows.functions(rows, 8)
    assert (f.name, f.ratio, f.least) == ("a.py:f", pytest.approx(0.5 ** (1 / 3)), 0.25)
    assert f.best == pytest.approx(1.0), "10 us each for the small one, in other configurations"
    assert (g.name, g.ratio) == ("a.py:g", pytest.approx(0.99))
    assert [one.name for one in timed_rows.functions(rows, 0)] == ["a.py:g", "a.py:f"], (
        "the slowest of ours first"
    )
    line = str(f).split()
    assert line[3:] == ["3", "100.0", "100.0", "40/50", "0/16", "1024/2048", "4/8", "a.py:f"]
    said = timed_rows.summary(rows, 8)
    assert "5 timed, 1 launch" in said and "2 functions of at least 8 us" in said
    assert f"mean {timed_rows.mean([f.ratio, 0.99]):.3f}" in said and "least 0.79, 1 at 0.98 or more" in said
    assert "none" in timed_rows.summary([], 8)


def test_the_table_says_first_what_is_wrong_then_what_failed() -> None:
    rows = [
        timed_row("a.py:fast", 10, 20),
        timed_row("a.py:slow", 20, 10, differences=(Difference("x", 1e-3), Difference("y", 3e-2))),
        timed_row("a.py:odd", 20, 21, differences=(Difference("x", 0.0, 3),)),
        timed_row("a.py:theirs", 20, 22, differences=(Difference("x", 0.5, 7, (0, 7)),)),
        timed_row("a.py:race", 20, 24, differences=(Difference("x", 0.5, again=0.3),)),
        timed_row("a.py:both", 20, 23, differences=(Difference("x", 0.5, 0, (7, 7)),)),
        timed_row("a.py:any", 20, 30, differences=(Difference("x", 0.5), Difference("y", 1e-3)), poison=True),
        Row("a.py:g", (1, 1, 1), kind="compile", text="no such thing"),
        Row("a.py:g", (2, 1, 1), kind="compile", text="no such thing"),
    ]
    lines = timed_rows.table(rows, 8).splitlines()
    assert lines[:6] == [
        "wrong    a.py:slow 7x1x1: y 3.0e-02",
        "wrong    a.py:odd 7x1x1: x 0.0e+00, 3 not finite on one side alone",
        "nan      a.py:theirs 7x1x1: x 5.0e-01, 7 not finite on one side alone, NaNs 0, Triton's 7",
        "unstable a.py:race 7x1x1: x 5.0e-01, Triton's once more 3.0e-01",
        "poison   a.py:any 7x1x1: x 5.0e-01",
        "compile  a.py:g: no such thing (2 runs)",
    ]
    assert [line.split()[-1] for line in lines[7:14]] == [
        f"a.py:{name}" for name in ("slow", "odd", "theirs", "both", "race", "any", "fast")
    ]
    assert "functions with wrong results: 2" in lines[-2]


def kernel_of(names: str, signature: dict[str, Any], constants: dict[Any, Any], attrs: dict[Any, Any]) -> Any:
    """As much of a compiled kernel of Triton's as a request takes; parameters in capitals are constexprs."""
    params = [SimpleNamespace(name=name, is_constexpr=name.isupper()) for name in names.split()]
    function = SimpleNamespace(arg_names=names.split(), params=params)
    source = SimpleNamespace(fn=function, signature=signature, constants=constants, attrs=attrs)
    return SimpleNamespace(src=source)


def test_a_launch_becomes_a_request() -> None:
    Pair = namedtuple("Pair", "pointer strides")
    live = object()
    signature = {
        "x": "*fp16",
        "pair": Pair("*fp32", ("i32", "constexpr", "constexpr")),
        "one": "constexpr",
        "bias": "constexpr",
        "d": "tensordesc<fp16[64, 64]>",
        "ACTIVATION": "constexpr",
    }
    constants = {(1, 1, 1): 1, (1, 1, 2): "word", (2,): 1, (3,): None, (5,): live}
    attrs = {(0,): [["tt.divisibility", 16]], (1, 1, 0): [["tt.divisibility", 16]]}
    kernel = kernel_of("x pair one bias d ACTIVATION", signature, constants, attrs)
    padded = SimpleNamespace(padding="nan")
    arguments = {
        "x": 0,
        "pair": Pair(0, (16, 1, "word")),
        "one": 1,
        "bias": None,
        "d": padded,
        "ACTIVATION": live,
    }
    options = {"num_warps": 8, "maxnreg": None, "arch": "sm90", "shared": 7, "num_stages": 2}
    request = timed_request.request_of(kernel, options, arguments)
    assert list(request.signature.items()) == [
        ("x", "*fp16:16"),
        ("pair", {"pointer": "*fp32", "strides": ("i32:16", "i32:1", "constexpr")}),
        ("one", "i32:1"),
        ("d", "tensordesc<fp16[64, 64]:nan>"),
    ]
    assert request.constexprs == {"pair_1_2": "word", "bias": None, "ACTIVATION": live}
    assert request.options == {"num_warps": 8, "num_stages": 2}
    padded.padding = "zero"
    assert timed_request.request_of(kernel, options, arguments).key != request.key


KERNEL = """
import triton
import triton.language as tl

@triton.jit
def kernel(x, pair, one, bias, d, N: tl.constexpr):
    tile = d.load([0, 0]) + tl.load(x + tl.arange(0, N)[None, :] * pair[1][0] * one * pair[1][1])
    if bias is None and pair[2] == "word":
        tl.store(pair[0] + tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :], tile)
"""


def test_what_a_request_compiles_to_takes_the_arguments_of_the_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("cuda.core", reason="cuda-core is not installed: pip install 'kbuild[gpu]'")
    import kbuild
    from kbuild.gpu.arguments import Arguments

    signature = {
        "x": "*fp16",
        "pair": ("*fp16", ("i32", "constexpr"), "constexpr"),
        "one": "constexpr",
        "bias": "constexpr",
        "d": "tensordesc<fp16[16, 16]>",
        "N": "constexpr",
    }
    constants = {(1, 1, 1): 1, (1, 2): "word", (2,): 1, (3,): None, (5,): 16}
    kernel = kernel_of("x pair one bias d N", signature, constants, {(0,): [["tt.divisibility", 16]]})
    x, base = torch.zeros(64, dtype=torch.float16), torch.zeros(4096, dtype=torch.float16)
    described = SimpleNamespace(
        base=base[64:], shape=[30, 20], strides=[32, 1], block_shape=[16, 16], padding="zero"
    )
    arguments = {"x": x, "pair": (x, (3, 1), "word"), "one": 1, "bias": None, "d": described, "N": 16}
    request = timed_request.request_of(kernel, {"num_warps": 2}, arguments)
    (tmp_path / "kernel.py").write_text(KERNEL)
    artifact = kbuild.compile(
        f"{tmp_path}/kernel.py:kernel",
        signature=request.signature,
        constexprs=request.constexprs,
        stop="ptx",
        **request.options,
    )
    metadata = artifact.metadata
    assert metadata.signature is not None and metadata.warps == 2
    values = [timed_request.passed(arguments[name]) for name, _ in metadata.signature]
    monkeypatch.setattr("kbuild.gpu.arguments.HOST", None)  # Tensors of the host stand for those of a GPU.
    assert Arguments("kernel", metadata.signature).take(values, {}).values == {
        "x": x.data_ptr(),
        "pair_0": x.data_ptr(),
        "pair_1_0": 3,
        "d": base.data_ptr() + 128,
        "d_shape_0": 30,
        "d_shape_1": 20,
        "d_stride_0": 32,
    }


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


def compared(torch: Any, before: Any, theirs: Any, ours: Any) -> Difference:
    place = timed_memory.Place("x", ours.dtype, ours.untyped_storage())
    return timed_memory.difference(torch, place, before.untyped_storage(), theirs.untyped_storage())


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_results_differ_by_what_was_written(torch: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed_memory, "_CHUNK", 3)
    inf, nan = float("inf"), float("nan")

    def of(*values: float) -> Any:
        return torch.tensor(values, dtype=getattr(torch, dtype))

    before = of(nan, 1e4, 0, 0, 0, 0, 0)
    assert compared(torch, before, before.clone(), before.clone()) == Difference("x", 0.0)
    theirs = of(nan, 1e4, 3, 4, 0, 0, 0)
    assert compared(torch, before, theirs, theirs.clone()) == Difference("x", 0.0)
    # Neither has written the first two, whatever they are.
    assert compared(torch, before, theirs, of(nan, 1e4, 3, 4, 1, 0, 0)) == Difference("x", 0.2)
    assert compared(torch, before, theirs, before.clone()).relative == 1.0
    assert compared(torch, before, of(nan, 1e4, 0, 0, 0, 0, inf), of(nan, 1e4, 0, 0, 0, 0, inf)).odd == 0
    found = compared(torch, before, theirs, of(nan, 1e4, 3, 4, nan, -inf, 0))
    assert (found.odd, found.nans, found.differs) == (2, (1, 0), True)
    found = compared(torch, before, of(nan, 1e4, 3, 4, nan, nan, 0), of(nan, 1e4, 3, 4, nan, 5, 0))
    assert (found.odd, found.nans, found.differs) == (1, (1, 2), False)


def test_whole_numbers_differ_by_their_share(torch: Any) -> None:
    for dtype in (torch.uint8, torch.bool, torch.int16, torch.int32, torch.int64):
        before = torch.zeros(8).to(dtype)
        theirs, ours = (
            torch.tensor([1, 1, 1, 1, 0, 0, 0, 0]).to(dtype),
            torch.tensor([1, 1, 1, 0, 0, 0, 0, 0]).to(dtype),
        )
        assert compared(torch, before, theirs, ours) == Difference("x", 0.25)


def test_eight_bit_floats(torch: Any) -> None:
    before, theirs = (
        torch.zeros(4).to(torch.float8_e4m3fn),
        torch.tensor([3.0, 4, 0, 0]).to(torch.float8_e4m3fn),
    )
    ours = torch.tensor([3.0, 4, 1, 0]).to(torch.float8_e4m3fn)
    assert compared(torch, before, theirs, ours) == Difference("x", 0.2)


def test_memory_is_that_of_all_arguments_once_and_whole(torch: Any) -> None:
    x, y = torch.arange(8.0), torch.arange(6, dtype=torch.int32)
    described = SimpleNamespace(base=SimpleNamespace(base=y[2:]), block_shape=[2])
    arguments = {"x": x[4:], "again": x, "n": 3, "pair": (None, (described, torch.empty(0))), "d": described}
    found = timed_memory.places(arguments)
    assert [(place.argument, place.storage.nbytes()) for place in found] == [("x", 32), ("pair", 24)]
    assert timed_memory.size_of(found) == 56
    before = timed_memory.copies(found)
    x[0] = 9
    theirs = timed_memory.copies(found)
    x[1], y[0] = 9, 7
    made = list(timed_memory.differences(torch, found, before, theirs))
    assert [(one.argument, round(one.relative, 3)) for one in made] == [("x", 0.883), ("pair", 1.0)]
    timed_memory.restore(found, before)
    assert x.tolist() == [*range(8)] and y.tolist() == [*range(6)]


def test_of_two_storages_at_one_address_the_larger_is_kept(torch: Any) -> None:
    x = torch.arange(8.0)
    part = torch.from_dlpack(x[:2])
    assert part.untyped_storage().nbytes() == 8
    for arguments in ({"part": part, "x": x}, {"x": x, "part": part}):
        (place,) = timed_memory.places(arguments)
        before = timed_memory.copies([place])
        x[1] = x[5] = 9
        timed_memory.restore([place], before)
        assert (place.argument, x.tolist()) == ("x", [*range(8)])


def test_processes_of_a_command_run_each_kernel_twice(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "library.py").write_text(LIBRARY)
    (tmp_path / "use.py").write_text(PROGRAM)
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.customized = True\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(STAND_IN), str(tmp_path)]))
    monkeypatch.setenv("STAND_IN_GPU", "1")
    command = ["--", sys.executable, "use.py"]
    assert timed.main(["--floor", "0", "--json", "rows.json", "--table", "table.txt", *command]) == 1
    out, err = capfd.readouterr()
    assert "done 1\n" in out, "the cache of torch was emptied for one launch, whose tensors were large"
    assert "the command ended with code 5" in out, err
    rows = json.loads(Path("rows.json").read_text())
    folder = tmp_path.name
    found = [
        (row["function"].removeprefix(f"{folder}/library.py:"), row["grid"][0], row["kind"]) for row in rows
    ]
    assert sorted(found) == [
        ("add", 3, "timed"),
        ("add", 4, "timed"),
        ("counted", 1, "timed"),
        ("deadly", 1, "died"),
        ("double", 2, "timed"),
        ("double", 4, "timed"),
        ("hasty", 1, "launch"),
        ("hasty", 2, "memory"),
        ("hasty", 3, "large"),
        ("poisoned", 1, "timed"),
        ("refused", 1, "compile"),
        ("unstable", 1, "timed"),
        ("wrong", 1, "timed"),
    ]
    table = Path("table.txt").read_text()
    assert table.startswith(f"wrong    {folder}/library.py:wrong 1x1x1: x 5.0e-01\n")
    assert f"unstable {folder}/library.py:unstable 1x1x1: x 5.0e-01, Triton's once more 1.0e+00\n" in table
    assert f"poison   {folder}/library.py:poisoned 1x1x1: x 5.0e-01\n" in table
    assert f"died     {folder}/library.py:deadly: the process ended while both ran\n" in table
    assert "launch   " in table and "no launch of this\n" in table and "no_such_function" in table
    by_name = {name: row for (name, _, _), row in zip(found, rows)}
    assert by_name["add"]["ours"]["us"] > 1000 and by_name["add"]["ours"]["registers"] > 0
    assert by_name["double"]["theirs"]["registers"] == 32
    assert {row["ours"]["warps"] for (name, _, _), row in zip(found, rows) if name == "double"} == {2, 8}
    assert timed.main(["--seconds", "0", *command]) == 0
    assert "launches: none" in capfd.readouterr().out
    assert timed.main(["--only", "y:(refused|lost)$", "--json", "rows.json", *command, "lost"]) == 0
    found = [
        (row["function"].rpartition(":")[2], row["kind"]) for row in json.loads(Path("rows.json").read_text())
    ]
    assert found == [("refused", "compile"), ("lost", "launch")]


def test_there_has_to_be_such_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        timed.main(["--", "no-such-program"])
    assert ended.value.code == 2 and "no program 'no-such-program'" in capsys.readouterr().err
