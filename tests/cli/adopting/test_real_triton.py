"""Triton itself says what the stand-in says, where it is installed: as far as kernels can be launched on no device."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from tests.cli.adopting.conftest import Recording

TRITON = importlib.util.find_spec("triton")


@pytest.mark.skipif(TRITON is None, reason="Triton is not installed")
def test_triton_and_its_stand_in_say_the_same(
    record: Recording, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ops = project / "lib/ops.py"
    # Where no time is taken, a tuner takes the first configuration.
    ops.write_text(ops.read_text().replace('"BLOCK": 128}, num_warps=8', '"BLOCK": 64}, num_warps=2'))
    stand_in = record("--device", "sm_90")
    (project / "capture.jsonl").unlink()
    assert TRITON is not None and TRITON.origin
    real = os.pathsep.join([str(Path(TRITON.origin).parents[1]), str(project)])
    triton = record("--device", "sm_90", PYTHONPATH=real)
    assert not triton.failed
    assert list(triton.kernels.values()) == list(stand_in.kernels.values())
    assert [(one.args, one.constexprs, one.count) for one in triton.variants.values()] == [
        (one.args, one.constexprs, one.count) for one in stand_in.variants.values()
    ]
    launches = [list(one.launches.values()) for one in triton.variants.values()]
    assert launches == [list(one.launches.values()) for one in stand_in.variants.values()]
