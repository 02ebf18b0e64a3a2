"""The library for C: operators and bare launches without Python's extension, over the fake driver."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.aot.op import c_tensors
from tests.aot.op.c_tensors import CPU, DLTensor, TvmAny, view

PACKAGE = "operators_example"
INVALID, FAILED = -1, -2


class Library:
    """The functions of the library by their names without that of the package; tensors are passed by reference."""

    def __init__(self, path: Path) -> None:
        self.functions = ctypes.CDLL(str(path))
        self.symbol("last_error").restype = ctypes.c_char_p

    def symbol(self, name: str) -> Any:
        return getattr(self.functions, name if name.startswith("__") else f"{PACKAGE}_{name}")

    def call(self, name: str, *arguments: Any) -> tuple[int, str]:
        """The code of a call, and what was wrong with it."""
        passed = [ctypes.byref(each) if isinstance(each, DLTensor) else each for each in arguments]
        code = self.symbol(name)(*passed)
        return code, self.symbol("last_error")().decode()


@pytest.fixture
def library(project: Path, driver, monkeypatch: pytest.MonkeyPatch) -> Library:
    monkeypatch.setenv("KBUILD_LIBCUDA", str(driver.path))
    return Library(project / "site" / PACKAGE / f"lib{PACKAGE}.so")


def floats(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_an_operator(library: Library, driver, dtype) -> None:
    x, y = floats(2, 3, 50, dtype=dtype)
    out = driver.empty((3, 50), dtype)
    assert library.call("vector_add", view(driver.array(x)), view(driver.array(y)), view(out), None) == (
        0,
        "",
    )
    assert (out.copy_to_host() == x + y).all()


def test_the_cheapest_variant_is_taken(library: Library, driver) -> None:
    for count, programs in ((1, 1), (256, 1), (512, 2), (513, 1), (1024, 1), (1025, 5), (1281, 2), (4000, 4)):
        x, y = floats(2, count)
        out = driver.empty((count,), np.float32)
        passed = view(driver.array(x)), view(driver.array(y)), view(out)
        assert library.call("add_cheaply", *passed, None) == (0, "")
        assert driver.launches[-1].grid == (programs, 1, 1), count
        assert (out.copy_to_host() == x + y).all()
    seven = view(driver.array(floats(7))), view(driver.array(floats(7))), view(driver.empty((7,), np.float32))
    code, message = library.call("add_cheaply", *seven, None)
    assert code == FAILED and "a cost of its rows overflows 64 bits, or divides by zero" in message


def test_outputs_that_are_not_wanted_and_defaults(library: Library, driver) -> None:
    """mean and rstd are made and given back; strides may be any where the operator takes them."""
    wide, weight, bias = floats(6, 80), floats(64), floats(65)[1:]
    x, y = driver.array(wide), driver.empty((6, 64), np.float32)
    code = library.symbol("layer_norm")(
        ctypes.byref(view(x, (6, 64), (80, 1))),
        ctypes.byref(view(driver.array(weight))),
        ctypes.byref(view(driver.array(bias))),
        ctypes.c_double(1e-5),
        ctypes.byref(view(y)),
        None,
        None,
        None,
    )
    rows = wide[:, :64].astype(np.float64)
    right = (rows - rows.mean(1, keepdims=True)) / np.sqrt(rows.var(1, keepdims=True) + 1e-5) * weight + bias
    assert code == 0 and np.abs(y.copy_to_host() - right).max() < 1e-4


def test_optional_outputs_are_computed_where_one_is_asked_for(library: Library, driver) -> None:
    x, ones = floats(6, 64), np.ones(64, np.float32)
    inputs = [view(driver.array(array)) for array in (x, ones, 0 * ones)]
    y, mean = driver.empty((6, 64), np.float32), driver.empty(6, np.float32)
    for wanted in (None, view(mean)):
        code = library.call("normalise", *inputs, ctypes.c_double(1e-5), view(y), wanted, None, None)
        assert code == (0, "")
        assert [any(argument) for argument in driver.launches[-1].arguments[4:6]] == [bool(wanted)] * 2
    assert np.allclose(mean.copy_to_host(), x.mean(1), atol=1e-6)


def test_two_launches_with_a_workspace(library: Library, driver) -> None:
    x, out = floats(40_000), driver.empty((), np.float32)
    assert library.call("sum", view(driver.array(x)), view(out), None) == (0, "")
    assert abs(out.copy_to_host() - x.sum(dtype=np.float64)) < 1e-2
    assert not [text for text in driver.leftovers if not text.startswith(("Module", "array"))], (
        driver.leftovers
    )


def test_optional_tensors_words_and_computed_defaults(library: Library, driver) -> None:
    x, counter = floats(100), driver.empty(1, np.int32)
    array = driver.array(x)
    assert library.call("scale_", view(array), None, None, b"negate", view(counter), None) == (0, "")
    assert np.allclose(array.copy_to_host(), -x / 10) and counter.copy_to_host()[0] == 2
    factor = ctypes.c_double(3.0)
    bias = driver.array(floats(100))
    code, _ = library.call("scale_", view(array), view(bias), ctypes.byref(factor), None, view(counter), None)
    assert code == 0 and np.allclose(array.copy_to_host(), -0.3 * x + floats(100), atol=1e-6)


def test_a_bare_launch(library: Library, driver) -> None:
    x, y = floats(2, 1000)
    out = driver.empty(1000, np.float32)
    arrays = [view(array) for array in (driver.array(x), driver.array(y), out)]
    assert library.call("launch_vector_add", *arrays, ctypes.c_int64(1000), None, None) == (0, "")
    assert (out.copy_to_host() == x + y).all()


def test_all_cubins_are_loaded_ahead(library: Library, driver) -> None:
    assert library.call("preload", 0) == (0, "")
    code, text = library.call("preload", 7)
    assert code == FAILED and "there is no CUDA device 7" in text


def test_threads_load_a_cubin_once(project: Path, driver, tmp_path: Path, monkeypatch) -> None:
    """The first calls of several threads at once, of a copy that has loaded nothing yet."""
    site = Path(shutil.copytree(project / "site" / PACKAGE, tmp_path / PACKAGE))
    monkeypatch.setenv("KBUILD_LIBCUDA", str(driver.path))
    library = Library(site / f"lib{PACKAGE}.so")
    x, y = floats(2, 300)
    arrays, loads = (driver.array(x), driver.array(y)), driver.loads.get(0, 0)
    made = [driver.empty(300, np.float32) for _ in range(12)]
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda out: library.call("vector_add", *map(view, arrays), view(out), None), made)
        assert all(answer == (0, "") for answer in found)
    assert all((out.copy_to_host() == x + y).all() for out in made) and driver.loads[0] == loads + 1


def test_what_is_wrong_is_said(library: Library, driver) -> None:
    x, y, out = driver.array(floats(8)), driver.array(floats(9)), driver.empty(8, np.float32)
    half = driver.array(floats(8, dtype=np.float16))

    def wrong(*tensors: DLTensor | None) -> str:
        code, text = library.call("vector_add", *tensors, None)
        assert code == INVALID and text.startswith("vector_add(): ")
        return text.removeprefix("vector_add(): ")

    assert "shape is (8,) in x and (9,) in y" in wrong(view(x), view(y), view(out))
    odd = view(x)
    odd.code, odd.bits = 5, 64
    assert wrong(odd, view(x), None).startswith("x holds complex64, and the operator takes fp")
    assert "x holds fp32 and y holds fp16; both have to be of one type" in wrong(
        view(x), view(half), view(out)
    )
    assert wrong(view(x), None, view(out)) == "y has to be given"
    assert "x is not on a CUDA device" in wrong(view(x, device_type=CPU), view(x), view(out))
    assert "an argument before it is on device 0" in wrong(view(x), view(x, device_id=1), view(out))
    assert "x has elements, but no memory" in wrong(view(x, data=None), view(x), view(out))
    assert "out has a stride of 2 along shape" in wrong(view(x, (4,)), view(x, (4,)), view(out, (4,), (2,)))
    shifted = view(x, (4,), byte_offset=8)
    assert "out is written, and shares memory with x" in wrong(view(x, (4,)), view(x, (4,)), shifted)
    integer = driver.array(np.zeros(8, np.int32))
    assert "x holds i32, and the operator takes fp16 or fp32" in wrong(view(integer), view(x), view(out))


def test_a_word_that_no_kernel_knows(library: Library, driver) -> None:
    array = view(driver.array(floats(8)))
    code, text = library.call("scale_", array, None, None, b"square", None, None)
    assert (code, text) == (INVALID, "scale_(): mode is 'square', and 'keep' or 'negate' are expected")


def test_a_call_that_no_variant_takes(library: Library, driver) -> None:
    array, counter = view(driver.array(floats(8))), view(driver.empty(1, np.int32))
    numbers = ctypes.c_int64(8), ctypes.c_int64(1), ctypes.c_double(1.0), ctypes.c_bool(False)
    code, text = library.call("launch_scale", array, None, counter, *numbers, b"square", None)
    assert code == FAILED and "no variant takes these arguments on device 0 (compute capability 9.0)" in text
    assert text.endswith("which is not for these values of MODE")


def test_a_handler_of_xla(library: Library, driver) -> None:
    handler = library.symbol("layer_norm_xla")
    assert c_tensors.version_of(handler) == (0, 1)
    x, weight, bias = floats(4, 32), floats(32), floats(33)[1:]
    operands = [driver.array(array) for array in (x, weight, bias)]
    results = [driver.empty(shape, np.float32) for shape in ((4, 32), 4, 4)]
    assert c_tensors.call_as_xla(handler, operands, results, _given=7, eps=1e-3) == ""
    mean, variance = x.mean(1), x.var(1)
    assert np.allclose(results[1].copy_to_host(), mean, atol=1e-6)
    assert np.allclose(results[2].copy_to_host(), (variance + 1e-3) ** -0.5, atol=1e-5)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        (
            {"_given": 7, "epsilon": 1.0},
            "layer_norm(): a custom call of XLA has the unknown attribute epsilon",
        ),
        ({"_given": 7, "eps": 1}, "layer_norm(): the attribute eps has to be a float64"),
        ({"_given": 3}, "layer_norm(): bias has to be given"),
        ({"_given": 15}, ""),
    ],
)
def test_what_a_handler_of_xla_refuses(library: Library, driver, attributes, message) -> None:
    operands = [driver.array(floats(*shape)) for shape in ((4, 32), (32,), (32,))]
    results = [driver.empty(shape, np.float32) for shape in ((4, 32), 4, 4)]
    handler = library.symbol("layer_norm_xla")
    assert c_tensors.call_as_xla(handler, operands, results, **attributes) == message


def test_a_function_of_tvm(library: Library, driver) -> None:
    x, counter = floats(100), driver.empty(1, np.int32)
    array = driver.array(x)
    own = [view(array), view(counter)]
    arguments = (TvmAny * 5)(*map(TvmAny.of, (own[0], None, 2.0, "negate", own[1])))
    result = TvmAny()
    assert library.symbol("__tvm_ffi_scale_")(None, arguments, 5, ctypes.byref(result)) == 0
    assert np.allclose(array.copy_to_host(), -2 * x) and result.type == 0
    arguments[2] = TvmAny.of("two")
    assert library.symbol("__tvm_ffi_scale_")(None, arguments, 5, ctypes.byref(result)) == -1
    assert library.symbol("last_error")() == b"scale_(): factor has to be a float"
    arguments[0] = TvmAny.of(1)
    library.symbol("__tvm_ffi_scale_")(None, arguments, 5, ctypes.byref(result))
    assert library.symbol("last_error")() == b"scale_(): x has to be a tensor"


def test_a_damaged_archive_is_reported(project: Path, driver, tmp_path: Path, monkeypatch) -> None:
    site = Path(shutil.copytree(project / "site" / PACKAGE, tmp_path / PACKAGE))
    monkeypatch.setenv("KBUILD_LIBCUDA", str(driver.path))
    archive = site / "cubins" / "sm_90.kbz"
    data = bytearray(archive.read_bytes())
    library = Library(site / f"lib{PACKAGE}.so")
    x, out = view(driver.array(floats(8))), view(driver.empty(8, np.float32))
    start = 40 + int.from_bytes(data[4:8], "little")
    for broken, words in (
        (data[:start] + bytes(len(data) - start), "it is damaged"),
        (data[:start], "it is damaged"),
        (data[:10] + bytes(30) + data[40:], "its index is not that of this package"),
        (data[:10], "it does not begin as an archive does"),
    ):
        archive.write_bytes(broken)
        code, text = library.call("vector_add", x, x, out, None)
        assert code == FAILED and words in text and f"install {PACKAGE} again" in text
    archive.unlink()
    assert "it cannot be opened" in library.call("vector_add", x, x, out, None)[1]
    archive.write_bytes(data)
    assert library.call("vector_add", x, x, out, None) == (0, "")


@pytest.fixture(scope="module")
def header(project: Path) -> Path:
    return project / "site" / PACKAGE / "include"


@pytest.mark.parametrize(
    "command", [["cc", "-std=c99", "-xc"], ["cc", "-std=c17", "-xc"], ["c++", "-std=c++17", "-xc++"]]
)
def test_the_header_stands_alone(header: Path, tmp_path: Path, command: list[str]) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]} here")
    (tmp_path / "use").write_text(
        f"#include <{PACKAGE}/kernels.h>\n#include <{PACKAGE}/kernels.h>\nint main(void) {{ return 0; }}\n"
    )
    strict = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", f"-I{header}"]
    subprocess.run([*command, *strict, tmp_path / "use"], check=True)


PROGRAM = f"""\
#include <{PACKAGE}/kernels.h>
#include <cstdio>
int main()
{{
    int64_t shape[] = {{ 8 }};
    DLTensor x = {{ shape, {{ kDLCUDA, 0 }}, 1, {{ kDLFloat, 32, 1 }}, shape, nullptr, 0 }};
    try {{
        {PACKAGE}::vector_add(x, x, x);
    }} catch (const {PACKAGE}::error &error) {{
        std::printf("%d %s\\n", error.code, error.what());
    }}
}}
"""


def test_a_program_in_cpp_by_cmake(project: Path, tmp_path: Path) -> None:
    if shutil.which("cmake") is None or shutil.which("c++") is None:
        pytest.skip("no CMake, or no compiler for C++, here")
    (tmp_path / "main.cpp").write_text(PROGRAM)
    (tmp_path / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.18)\nproject(app CXX)\nfind_package({PACKAGE} 0.1 CONFIG REQUIRED)\n"
        f"add_executable(app main.cpp)\ntarget_link_libraries(app PRIVATE {PACKAGE}::{PACKAGE})\n"
        "target_compile_features(app PRIVATE cxx_std_17)\n"
    )
    prefix = f"-DCMAKE_PREFIX_PATH={project / 'site' / PACKAGE}"
    subprocess.run(["cmake", "-S", tmp_path, "-B", tmp_path / "b", prefix], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", tmp_path / "b"], check=True, capture_output=True)
    environment = {"KBUILD_LIBCUDA": str(tmp_path / "no_driver.so")}
    said = subprocess.run(
        [tmp_path / "b/app"], env=environment, check=True, capture_output=True, text=True
    ).stdout
    assert said.startswith(f"{FAILED} the CUDA driver library {tmp_path}/no_driver.so cannot be loaded")


def test_the_library_needs_no_python(project: Path) -> None:
    library = project / "site" / PACKAGE / f"lib{PACKAGE}.so"
    symbols = subprocess.run(["nm", "-D", library], check=True, capture_output=True, text=True).stdout
    assert " Py" not in symbols and f"T {PACKAGE}_vector_add" in symbols
    public = {line.split()[-1] for line in symbols.splitlines() if " T " in line}
    assert all(name.startswith((PACKAGE, "__tvm_ffi_")) for name in public)


def test_the_extension_gives_the_handlers(ops: ModuleType) -> None:
    assert 'capsule object "xla._CUSTOM_CALL_TARGET"' in repr(ops._launcher._xla_handler(0))
    with pytest.raises(IndexError):
        ops._launcher._xla_handler(99)
