"""The commands that launch on a GPU, on the fake driver; and what needs neither a driver nor cuda-core."""

from __future__ import annotations

import contextlib
import importlib
import io
import subprocess
import sys
from pathlib import Path

import pytest

import kbuild
from emulated.kernels import scale
from kbuild.cli import main
from kbuild.emulator.driver import FakeDriver
from tests.emulator.fake_gpu import on_fake_gpu

ROOT = Path(__file__).parents[3]
RUN = ["run", "kernels.py:scale", "-s", "x=*fp32:16,out=*fp32:16,factor=fp32,n=i32", "-c", "BLOCK=64"]
ARGUMENTS = ["--arg", "x=range:70,out=poison:70,factor=2,n=70", "--grid", "2"]


def said_by(arguments: list[str], code: int = 0) -> str:
    """All that a command prints."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert main(arguments) == code, err.getvalue()
    return out.getvalue() + err.getvalue()


@on_fake_gpu("sm_80", "sm_90")
def test_run_on_a_device(driver: FakeDriver) -> None:
    for target in ("sm_80", "sm_90"):
        scale(driver, target=target, lineinfo=True)  # The fake driver has to find the PTX of the cubin.
    for number, capability in ((0, "8.0"), (1, "9.0")):
        said = said_by([*RUN, *ARGUMENTS, "--device", str(number)])
        assert "out: 70 elements of f32, 70 changed: 0.0, 2.0, 4.0" in said
        assert "x: 70 elements of f32, 0 changed" in said, capability
    assert said == said_by([*RUN, *ARGUMENTS]), "the same as on the CPU"
    assert [launch.device for launch in driver.launches] == [0, 1]
    assert "no CUDA device 2; the driver shows 2" in said_by([*RUN, *ARGUMENTS, "--device", "2"], 2)
    said = said_by([*RUN, *ARGUMENTS, "--device", "0", "--arch", "sm_90"], 2)
    assert "--arch sm_90: kbuild stand-in for sm_80 has capability 8.0" in said
    assert "are of runs on the CPU" in said_by([*RUN, *ARGUMENTS, "--device", "0", "--races"], 2)
    said = said_by(
        [*RUN, "--arg", "x=range:70,out=poison:60,factor=2,n=70", "--grid", "2", "--device", "1"], 1
    )
    assert "CUDA_ERROR_ILLEGAL_ADDRESS (700)" in said


def test_without_cuda_core_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = ("cuda", "kbuild.gpu", "kbuild.aot.tune.gpu")
    for name in [name for name in sys.modules if name.startswith(loaded)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cuda", None)  # It cannot be imported.
    (tmp_path / "nothing.py").write_text("import triton\n\n@triton.jit\ndef nothing():\n    pass\n")
    made = kbuild.compile(f"{tmp_path}/nothing.py:nothing", stop="ptx")
    with pytest.raises(kbuild.KbuildError, match="cuda-core and cuda-bindings") as caught:
        kbuild.load(made)
    assert "install kbuild[gpu]" in str(caught.value)
    with pytest.raises(kbuild.KbuildError, match="cuda-core and cuda-bindings"):
        importlib.import_module("kbuild.aot.tune.gpu")
    monkeypatch.undo()
    kbuild.__dict__.pop("load", None)
    sys.modules.pop("kbuild.gpu", None)


WITHOUT = """
import sys
import kbuild
from kbuild.cli import main
try:
    main(["--help"])
except SystemExit:
    pass
kbuild.compile("nothing.py:nothing", stop="ptx")
assert kbuild.load is not None
assert not [name for name in sys.modules if name.startswith("cuda") or name == "numpy"]
"""


def test_commands_and_compiling_do_not_import_it(tmp_path: Path) -> None:
    (tmp_path / "nothing.py").write_text("import triton\n\n@triton.jit\ndef nothing():\n    pass\n")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


NO_DRIVER = """
import kbuild
made = kbuild.compile("nothing.py:nothing", stop="ptx")
try:
    kbuild.load(made)[1]()
except kbuild.KbuildError as error:
    assert "no NVIDIA driver" in str(error) and "kbuild stand-in" in str(error), error
else:
    raise AssertionError("there is a driver")
"""


@pytest.mark.parametrize("library", ["missing.so", None])
def test_without_a_driver_it_says_so(library: str | None, tmp_path: Path) -> None:
    pytest.importorskip("cuda.core")
    if library is None and any(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("this machine has a driver")
    (tmp_path / "nothing.py").write_text("import triton\n\n@triton.jit\ndef nothing():\n    pass\n")
    environment = {"PYTHONPATH": str(ROOT)} | ({"KBUILD_LIBCUDA": library} if library else {})
    done = subprocess.run(
        [sys.executable, "-c", NO_DRIVER], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
