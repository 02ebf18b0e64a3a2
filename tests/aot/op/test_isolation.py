"""What a package touches at run time: itself, Python's standard library and the driver, and nothing else.

A hook in a process of its own hears of every file that is opened, every process, socket and compilation, while the package
is imported, explains, fails to find a driver, and launches kernels of a driver that is a library in C.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

LIBCUDA = Path(__file__).resolve().parents[2] / "launcher" / "fake_libcuda.c"

HOOK = """\
import sys
site, package, libcuda, *standard = sys.argv[1:]
readable = (site + "/" + package + "/", *(folder + "/" for folder in standard))
found = []
forbidden = (
    "ctypes", "os.chmod", "os.chown", "os.exec", "os.fork", "os.link", "os.mkdir", "os.posix_spawn", "os.putenv", "os.remove",
    "os.rename", "os.rmdir", "os.spawn", "os.symlink", "os.system", "os.truncate", "os.utime", "pty", "shutil", "socket",
    "subprocess", "tempfile", "urllib", "webbrowser",
)

def watch(event, arguments):
    if event == "open":
        path, mode, flags = arguments
        if (isinstance(mode, str) and set(mode) & set("wax+")) or (flags or 0) & 3 or not str(path).startswith(readable):
            found.append(f"open {path}")
    elif event == "compile":  # The import system compiles modules, and the standard library makes classes of texts.
        if not sys._getframe(1).f_code.co_filename.startswith(("<frozen ", *(folder + "/" for folder in standard))):
            found.append("compile")
    elif event.startswith(forbidden):
        found.append(event)

def note(step):
    steps[step], found[:] = list(found), []

steps = {}
sys.path.append(site)
sys.addaudithook(watch)
"""

USE = """\
kernels = __import__(package)
modules = sorted(sys.modules)
note("import")

class Array:
    def __init__(self, shape, address, typestr="<f4"):
        self.shape, self.device = tuple(shape), "a device"
        interface = {"shape": self.shape, "typestr": typestr, "data": (address, False), "strides": None, "version": 3}
        self.__cuda_array_interface__ = interface
    def __array_namespace__(self):
        return Namespace

class Namespace:
    float32, float64, uint8 = "<f4", "<f8", "|u1"
    made = 0
    @staticmethod
    def empty(shape, dtype, device):
        Namespace.made += 1
        return Array(shape, (1 << 40) + (Namespace.made << 20), dtype)

x = Array((3, 5), 1 << 40)
kernels.explain(kernels.sum, x, arch="sm_90")
kernels.explain("vector_add", x, x, arch="sm_90")
kernels.explain(kernels.launch.vector_add, 16, 16, 16, 99, dtype="fp32", arch="sm_90")
note("explain")
import os
errors = []
def error_of(call):
    try:
        call()
    except Exception as error:
        errors.append(f"{type(error).__name__}: {error}")
os.environ["KBUILD_LIBCUDA"] = "/nowhere/libcuda.so.1"
found.clear()  # Setting the environment is this script's doing.
error_of(lambda: kernels.preload(0))
error_of(lambda: kernels.vector_add(x, x))
note("no driver")
os.environ["KBUILD_LIBCUDA"] = libcuda
found.clear()
shapes = [kernels.vector_add(x, x).shape, kernels.sum(x).shape]
kernels.preload(0)
error_of(lambda: kernels.vector_add(x, Array((5, 3), 1 << 40)))
note("launch")
print(__import__("json").dumps({"modules": modules, "steps": steps, "errors": errors, "shapes": shapes}))
"""

NAME = "operators_example"


@pytest.fixture(scope="module")
def libcuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A driver that does nothing, in C: the fake one of kbuild would be Python's in the same process."""
    library = tmp_path_factory.mktemp("driver") / "libfakecuda.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, LIBCUDA, "-lpthread"], check=True)
    return library


@pytest.fixture
def site(project: Path, tmp_path: Path) -> Iterator[Path]:
    """The unpacked wheel in a folder of its own."""
    shutil.copytree(project / "site" / NAME, tmp_path / "site" / NAME)
    yield tmp_path / "site"


def used(site: Path, libcuda: Path) -> dict[str, Any]:
    """What a process found that has Python's standard library and the package alone."""
    standard = {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    command = [sys.executable, "-I", "-S", "-B", "-c", HOOK + USE, str(site), NAME, str(libcuda)]
    done = subprocess.run(
        [*command, *sorted(standard | {os.path.dirname(os.__file__)})],
        cwd=site.parent,
        env={"FAKE_CUDA_DEVICES": "90"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_it_opens_itself_and_starts_compiles_and_writes_nothing(site, libcuda) -> None:
    found = used(site, libcuda)
    assert found["steps"] == {"import": [], "explain": [], "no driver": [], "launch": []}
    no_driver, no_launch, wrong_shape = found["errors"]
    assert "the CUDA driver library /nowhere/libcuda.so.1 cannot be loaded" in no_driver
    assert no_launch.startswith("DriverError")
    assert wrong_shape.startswith("ValueError: vector_add(): ")
    assert found["shapes"] == [[3, 5], []]


def test_importing_it_imports_no_other_package(site, libcuda) -> None:
    modules = used(site, libcuda)["modules"]
    tops = {name.partition(".")[0] for name in modules}
    assert tops - {*sys.stdlib_module_names, "__main__"} == {NAME}
    own = {name for name in modules if name.startswith(NAME)}
    parts = ("_launcher", "dispatch", "launch", "operators")
    assert own == {NAME, *(f"{NAME}.{part}" for part in parts)}, "and none of its own that few calls need"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("open('/etc/hostname')", "open /etc/hostname"),
        ("open('made', 'w')", "open made"),
        ("import os; os.mkdir('made')", "os.mkdir"),
        ("import socket; socket.socket()", "socket.__new__"),
        ("import subprocess; subprocess.run(['true'])", "subprocess.Popen"),
        ("import os; os.system('true')", "os.system"),
        ("import ctypes; ctypes.CDLL(None)", "ctypes.dlopen"),
        ("exec('1')", "compile"),
    ],
)
def test_the_hook_hears_of_what_is_forbidden(site, libcuda, code, expected) -> None:
    with open(site / NAME / "operators.py", "a", encoding="utf-8") as file:
        file.write(f"\n{code}\n")
    assert expected in used(site, libcuda)["steps"]["import"]
