"""Random programs mean the same to the interpreter as written and after the passes, and to the emulator as
PTX.

Few of them here; bench/fuzz/fuzz_programs.py runs as many as there is time for.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from random_programs import program
from random_programs.arrays import decoded, encoded
from random_programs.campaign import Settings, shrunk
from random_programs.compare import Checker, Finding, Kernel
from random_programs.cubins import emit, records
from random_programs.saved import read, saved
from random_programs.types import BF16, E4M3, E5M2, F16

from kbuild.compiler.ir import passes
from kbuild.compiler.ops.elementwise import SubI
from kbuild.emulator.driver.fake_driver import FakeDriver
from tests.emulator.fake_gpu import on_fake_gpu

CHECKER = Checker()
SEEDS = range(1000, 1018)


def found(seed: int, checker: Checker = CHECKER) -> Finding | None:
    return checker.check(Kernel.of(program(seed), seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_all_ways_to_run_a_program_agree(seed: int) -> None:
    assert found(seed) is None


def test_a_seed_gives_one_program() -> None:
    assert program(7).source() == program(7).source() != program(8).source()


def test_a_kernel_is_saved_with_its_launch(tmp_path: Path) -> None:
    kernel = Kernel.of(program(7), 7)
    (tmp_path / "kernel.py").write_text(saved(kernel, "seed 7\nof the generator"))
    assert read(tmp_path / "kernel.py") == kernel


@pytest.mark.parametrize("dtype", [F16, BF16, E4M3, E5M2], ids=lambda dtype: dtype.name)
def test_whole_numbers_survive_their_encoding(dtype: Any) -> None:
    numbers = range(-dtype.limit, dtype.limit + 1)
    assert decoded(encoded(np.array(numbers), dtype), dtype).tolist() == list(numbers)


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The pass `cse` exchanges the operands of differences."""
    entry = passes.registered_passes()["cse"]

    def wrong(module: Any, target: Any) -> None:
        entry.function(module, target)
        for op in list(module.kernel.body.walk()):
            if isinstance(op, SubI):
                op.operands = list(reversed(op.operands))

    monkeypatch.setitem(passes._PASSES, "cse", entry._replace(function=wrong))
    yield


def test_a_wrong_pass_is_found_named_and_shown_by_a_small_kernel(planted: None) -> None:
    checker = Checker(("sm_80",), stages=("passes",))
    failing = [seed for seed in SEEDS if found(seed, checker) is not None]
    seed = min(failing, key=lambda seed: len(program(seed).source()))
    first = found(seed, checker)
    assert first is not None and len(failing) > 2
    kernel, finding = shrunk(seed, first, Settings(checker, shrink_seconds=1000, shrink_trials=150))
    assert (finding.kind, finding.place) == ("pass", "cse")
    assert len(kernel.source.splitlines()) < 20 and "-" in kernel.source


@on_fake_gpu()
def test_records_are_launched_and_compared_with_the_expected_outputs(driver: FakeDriver) -> None:
    import fuzz_gpu  # It takes cuda-core.

    folder = Path("records")
    emit(2, folder, 1005, 1)
    some = {record.seed: record for record in records(folder)}
    reported: list[tuple[int, str, str | None]] = []
    pipe = SimpleNamespace(send=reported.append)
    for seed, record in some.items():
        ptx = CHECKER.compiled(Kernel.of(program(seed), seed), record.arch).ptx
        driver.register(zlib.decompress(record.cubin), ptx.replace(".target sm_80", ".target sm_90"))
    fuzz_gpu.work(pipe, folder, None, 0)
    assert [outcome for _, _, outcome in reported] == [None, "", None, "", ""]
    record = some[1005]
    found = fuzz_gpu.Device().outputs(record)
    name = record.outputs[0][0]
    found[name].view(np.uint8)[:] ^= 0x3F
    assert name in fuzz_gpu.wrong(record, found)
