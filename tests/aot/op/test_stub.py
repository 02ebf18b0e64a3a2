"""The stub of a package's operators, by the eyes of pyright: right calls pass, and each wrong one is an error."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PYRIGHT = shutil.which("pyright", path=os.path.dirname(sys.executable))

PRELUDE = """\
from typing import Any, assert_type

import operators_example as kernels


class Tensor:
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...


x = Tensor()
"""

RIGHT = (
    "assert_type(kernels.vector_add(x, x), Tensor)",
    "assert_type(kernels.vector_add(x, x, out=x, stream=7), Tensor)",
    "assert_type(kernels.scale_(x), tuple[Tensor, Tensor])",
    "kernels.scale_(x, None, 2.0, 'negate', counter=x, stream=None)",
    "kernels.scale_(x, bias=x, factor=None)",
    "kernels.layer_norm(x, x, x, eps=1)",
    "kernels.launch.vector_add(x, 4096, x, 64)",
    "kernels.explain(kernels.sum, x, arch='sm_90')",
)

WRONG = {
    "kernels.vector_add(x)": 'Argument missing for parameter "y"',
    "kernels.vector_add(x, x, None)": "Expected 2 positional arguments",
    "kernels.vector_add(x, None)": 'to parameter "y"',
    "kernels.vector_add(x, [1.0])": 'to parameter "y"',
    "kernels.vector_add(x, 4096)": 'to parameter "y"',
    "kernels.vector_add(x, x, output=x)": 'No parameter named "output"',
    "kernels.scale_(x, mode='twice')": 'to parameter "mode"',
    "kernels.scale_(x, mode=None)": 'to parameter "mode"',
    "kernels.scale_(x, factor='large')": 'to parameter "factor"',
    "kernels.layer_norm(x, x, x, eps=None)": 'to parameter "eps"',
    "kernels.sum(x).mean": 'attribute "mean"',
    "kernels.sums(x)": '"sums" is not a known attribute of module',
}


@pytest.mark.skipif(PYRIGHT is None, reason="pyright is in the extra dev")
def test_pyright_passes_right_calls_and_no_wrong_one(project: Path, tmp_path: Path) -> None:
    lines = [*PRELUDE.splitlines(), *RIGHT, *WRONG]
    (tmp_path / "use.py").write_text("\n".join(lines) + "\n")
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(project / "site")]}))
    done = subprocess.run(
        [str(PYRIGHT), "--outputjson", "--pythonpath", sys.executable, "--project", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    found: dict[str, str] = {}
    for each in json.loads(done.stdout)["generalDiagnostics"]:
        if each["severity"] == "error":
            found[lines[each["range"]["start"]["line"]]] = each["message"]
    assert {call: message for call, message in found.items() if call not in WRONG} == {}
    for call, message in WRONG.items():
        assert message in found.get(call, "no error"), call
