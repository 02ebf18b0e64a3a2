"""`kbuild run`: one kernel on the CPU, with arguments from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.cli import main


def test_run_prints_arrays_and_findings(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = [
        "-C",
        str(project),
        "kernels/scale.py:scale_kernel",
        "-s",
        "x=*fp32,y=*fp32,n=i32",
        "-c",
        "BLOCK=64,NEGATE=true",
    ]
    assert main(["run", *source, "--arg", "x=range:50,y=poison:50", "--arg", "n=50"]) == 0
    assert "y: 50 elements of f32, 50 changed: 0.0, -2.0, -4.0" in capsys.readouterr().out
    assert main(["run", *source, "--arg", "x=range:50,y=poison:50,n=64"]) == 1
    found = capsys.readouterr().out
    assert "out-of-bounds" in found and "scale.py:" in found
    assert (
        main(["run", *source, "--arg", "x=range:50,y=poison:50,n=50", "--schedule", "reverse", "--races"])
        == 0
    )
    assert "y: 50 elements of f32, 50 changed" in capsys.readouterr().out
    assert main(["run", *source, "--arg", "x=range:50,y=poison:50,n=50", "--races"]) == 2
    assert "--schedule reverse" in capsys.readouterr().err
    assert main(["run", *source, "--arg", "x=range:50,y=poison:50,n=5000000000"]) == 2
    assert "--arg n=5000000000: i32 has 32 bits" in capsys.readouterr().err
    assert main(["run", *source, "--arg", "x=range:50,y=poison:50,n=-1"]) == 0
    assert main(["run", *source, "--arg", "x=range:3000000000,y=poison:50,n=50"]) == 2
    assert "N is a number of elements below 2^31" in capsys.readouterr().err
    assert main(["run", *source, "--arg", "x=5,y=poison:50,n=64"]) == 2
    assert "--arg x=5: " in capsys.readouterr().err
