"""What may go wrong around a launch: no driver, an old one, errors of it, damaged archives, threads, forks,
captures."""

import ast
import collections
import contextlib
import gc
import hashlib
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest

from kbuild.aot.artifact import rendering
from kbuild.aot.build.launcher import CORES, build_launcher, core_command, link_command, tables_command
from kbuild.errors import ToolError
from tests.launcher.dlpack import DLPackArray
from tests.launcher.example_package import Tensor, example_table, image_of


def launch(world, device=1):
    world.package.vector_add(Tensor(device=device), Tensor(device=device), 64)


def driver_error(world, device=1):
    with pytest.raises(world.package.DriverError) as caught:
        launch(world, device)
    assert isinstance(caught.value, world.package.LaunchError)
    return caught.value


def test_missing_driver(world, monkeypatch):
    monkeypatch.setenv("KBUILD_LIBCUDA", "/nowhere/libcuda.so.1")
    error = driver_error(world)
    assert "the CUDA driver library /nowhere/libcuda.so.1 cannot be loaded" in str(error)
    assert "install the driver" in str(error)
    with pytest.raises(world.package.DriverError):
        world.package.preload(0)


def test_driver_without_a_function(world, monkeypatch, tmp_path):
    source = tmp_path / "old.c"
    source.write_text("int cuDriverGetVersion(int *version) { *version = 10020; return 0; }")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "old.so", source], check=True)
    monkeypatch.setenv("KBUILD_LIBCUDA", str(tmp_path / "old.so"))
    error = driver_error(world)
    assert "the CUDA driver 10.2" in str(error)
    assert error.driver_version == "10.2"


@pytest.mark.parametrize(
    ("function", "code", "name"),
    [
        ("cuInit", 100, "CUDA_ERROR_NO_DEVICE"),
        ("cuDeviceGetCount", 1, "CUDA_ERROR_FAKE"),
        ("cuDevicePrimaryCtxRetain", 2, "CUDA_ERROR_FAKE"),
        ("cuModuleLoadDataEx", 222, "CUDA_ERROR_FAKE"),
        ("cuModuleGetFunction", 500, "CUDA_ERROR_FAKE"),
        ("cuLaunchKernel", 700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
    ],
)
def test_errors_of_the_driver_are_reported_and_survived(world, monkeypatch, function, code, name):
    monkeypatch.setenv("FAKE_CUDA_FAIL", f"{function}={code}")
    error = driver_error(world)
    assert (error.call, error.code, error.name, error.driver_version) == (function, code, name, "12.4")
    assert ("vector_add(), row sm_80 dtype=fp32 BLOCK=1024" in str(error)) == (
        function[2:8] in ("Module", "Launch")
    )
    monkeypatch.delenv("FAKE_CUDA_FAIL")
    launch(world)
    assert world.driver.last.device == 1


def test_every_flipped_byte_of_an_archive_is_refused(world):
    path = os.path.join(os.path.dirname(world.package.__file__), "cubins", "sm_80.kbz")
    with open(path, "rb") as file:
        good = file.read()
    place = good.index(b"add.fp32.aligned#")
    for offset in (0, 5, 20, 60, place + 3, place + 9):
        damaged = bytearray(good)
        damaged[offset] ^= 1
        with open(path, "wb") as file:
            file.write(damaged)
        with pytest.raises(world.package.ArchiveError, match=r"sm_80\.kbz"):
            launch(world)
    for size in (0, 3, 39, 45, len(good) - 400, place + 5):
        with open(path, "wb") as file:
            file.write(good[:size])
        with pytest.raises(world.package.ArchiveError):
            launch(world)
    os.unlink(path)
    with pytest.raises(world.package.ArchiveError, match="No such file"):
        launch(world)
    assert world.driver.count("load") == 0
    with open(path, "wb") as file:
        file.write(good)
    launch(world)


def replace_index(world, entries, blobs, is_known):
    """Put another valid archive of sm_80 in place; `is_known` makes the package expect its index."""
    index = json.dumps({"entries": entries}).encode()
    digest = hashlib.sha256(index).digest()
    path = os.path.join(os.path.dirname(world.package.__file__), "cubins", "sm_80.kbz")
    with open(path, "wb") as file:
        file.write(b"KBZ1" + len(index).to_bytes(4, "little") + digest + index + blobs)
    world.package.dispatch._indices.clear()
    if is_known:
        world.package.dispatch.ARCHIVES["sm_80"] = digest.hex()


def test_an_exchanged_cubin_is_refused(world):
    image = image_of("add.fp16.aligned", 3)
    entry = {
        "key": "add.fp32.aligned",
        "offset": 0,
        "stored": len(image),
        "size": len(image),
        "compression": "raw",
    }
    entry["sha256"] = hashlib.sha256(image).hexdigest()
    replace_index(world, [entry], image, is_known=False)
    with pytest.raises(world.package.ArchiveError, match="its index is not that of this package"):
        launch(world)
    replace_index(world, [entry], image, is_known=True)
    with pytest.raises(world.package.ArchiveError, match="is not the cubin that"):
        launch(world)


@pytest.mark.parametrize(
    "change",
    [
        {"offset": -1},
        {"offset": 2**70},
        {"stored": 5},
        {"size": 2**40},
        {"offset": "x"},
        {"compression": "zlib"},
        {"size": None},
        {"compression": "lzma"},
        {"key": "another"},
    ],
)
def test_places_outside_of_the_archive_are_refused(world, change):
    good = {
        "key": "add.fp32.aligned",
        "offset": 0,
        "stored": 4,
        "size": 4,
        "compression": "raw",
        "sha256": "",
    }
    replace_index(world, [good | change], b"abcd", is_known=True)
    with pytest.raises(world.package.ArchiveError, match=r"sm_80\.kbz"):
        launch(world)


def test_many_threads_load_once(world):
    start, errors = threading.Barrier(64), []

    def work(device):
        try:
            start.wait()
            for _ in range(50):
                launch(world, device)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i % 2 + 1,)) for i in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert (world.driver.count(), world.driver.count("load")) == (64 * 50, 2)


def _in_child(call, connection):
    try:
        call()
        connection.send("launched")
    except Exception as error:
        connection.send(str(error))


def _fork(call) -> str:
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=_in_child, args=(call, there))
    child.start()
    text = here.recv() if here.poll(10) else "no answer"
    child.terminate()
    child.join()
    return text


def test_fork_before_the_first_launch_works_and_after_it_is_refused(world):
    assert _fork(lambda: launch(world)) == "launched"
    launch(world)
    assert "this process was forked after CUDA had been initialised" in _fork(lambda: launch(world))
    assert "this process was forked after CUDA had been initialised" in _fork(lambda: launch(world, 2))
    launch(world)


def test_a_fork_while_another_thread_holds_the_lock_leaves_no_lock_behind(world):
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with world.package.dispatch._lock:
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    try:
        assert _fork(lambda: launch(world)) == "launched"
    finally:
        done.set()
        thread.join()


def test_capture_needs_preloading(world, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_CAPTURING", "1")
    with pytest.raises(world.package.LaunchError, match=r"call example.preload\(1\) before the capture"):
        launch(world)
    assert not world.package.is_loaded("vector_add", 1)
    assert world.package.preload(1, kernels=["vector_add"]) == 12
    assert world.package.is_loaded(world.package.vector_add, 1)
    loaded = world.driver.count("load")
    launch(world)
    assert world.driver.count("load") == loaded
    assert world.package.preload(2) == 12 + 1 + 1 + 4, (
        "not the softmax that needs more shared memory than device 2 has"
    )


def test_a_launcher_of_another_build_is_not_imported(world, tmp_path):
    package = tmp_path / world.package.__name__
    text = (package / "dispatch.py").read_text()
    build_id = world.package.dispatch.BUILD_ID
    (package / "dispatch.py").write_text(text.replace(build_id, "0" * 64))
    done = subprocess.run(
        [sys.executable, "-c", f"import {package.name}"], cwd=tmp_path, capture_output=True, text=True
    )
    assert "belongs to another build" in done.stderr


def test_import_takes_neither_driver_nor_packages(built_package):
    code = "import sys; sys.path.insert(0, sys.argv[1]); import example; print(sorted(sys.modules))"
    environment = {"KBUILD_LIBCUDA": "/nowhere"}
    command = [sys.executable, "-S", "-c", code, str(built_package)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    loaded = set(ast.literal_eval(done.stdout))
    assert not loaded & {
        "torch",
        "numpy",
        "json",
        "hashlib",
        "ctypes",
        "dataclasses",
        "inspect",
        "example._table",
    }


def test_explain(world, capsys):
    world.package.explain("softmax", Tensor(device=2), 1001, 7)
    device = "device 2 (compute capability 8.6, 101376 bytes of shared memory)"
    assert (
        capsys.readouterr().out
        == f"""\
softmax(x, n_cols, n_rows=None, *, stream=None, grid=None) on {device}
  sm_80 BLOCK=1024 num_warps=8 num_stages=3 if n_cols <= 1024 if n_cols % 2 == 0: no: \
n_cols % 2 == 0 does not hold (n_cols = 1001)
  2 rows: no: sm_90 does not run on {device}
  sm_80 BLOCK=4096 num_warps=8 num_stages=3 if n_cols <= 4096 if n_cols % 2 == 0: no: \
needs 196608 bytes of shared memory, more than {device} has
"""
    )


def test_explain_for_an_architecture_needs_no_device(world, capsys, monkeypatch):
    monkeypatch.setenv("KBUILD_LIBCUDA", "/nowhere")
    world.package.explain(world.package.vector_add, Tensor(), Tensor(address=0x104), 63, arch="sm_80")
    assert (
        capsys.readouterr().out
        == """\
vector_add(x, out, n, *, dtype=None, stream=None, grid=None) on sm_80
  sm_80 dtype=fp32 BLOCK=1024 num_warps=4 num_stages=3 x,out,n:16: no: the address of out, n = 63 are not divisible by 16
  sm_80 dtype=fp32 BLOCK=1024 num_warps=4 num_stages=3 n:1: no: n = 63 is not 1
  sm_80 dtype=fp32 BLOCK=1024 num_warps=4 num_stages=3: taken
  sm_80+ptx dtype=fp32 BLOCK=1024 num_warps=4 num_stages=3 x,out,n:16: no: the address of out, n = 63 are not divisible by 16
  sm_80+ptx dtype=fp32 BLOCK=1024 num_warps=4 num_stages=3 n:1: no: n = 63 is not 1
  sm_80+ptx dtype=fp32 BLOCK=1024 num_warps=4 num_stages=3: matches, behind the one taken
  6 rows: no: x holds fp32, not fp16; out holds fp32, not fp16
grid (1, 1, 1), 128 threads, 0 bytes of shared memory, 32 registers
"""
    )
    world.package.explain("vector_add", 16, Tensor(device=-1), numpy.int8(3), arch="sm_90")
    assert ": taken" in capsys.readouterr().out
    with pytest.raises(
        ValueError, match="has no kernel 'nothing'; it has vector_add, attention, softmax, copy"
    ):
        world.package.explain("nothing")
    with pytest.raises(ValueError, match="arch must be like"):
        world.package.explain("copy", 16, True, arch="hopper")


def call_and_forgive(call):
    with contextlib.suppress(TypeError, ValueError, ArithmeticError, RuntimeError):
        call()


@pytest.fixture
def frozen_heap() -> Iterator[None]:
    """What earlier tests have left in the process is not looked through at each collection."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("frozen_heap")
def test_references_and_memory_stay_level(world):
    add, x, half = world.package.vector_add, Tensor(device=1), Tensor("float16", device=1)
    stream = types.SimpleNamespace(cuda_stream=1 << 40)
    interface = {
        "data": ((2 << 40) + 256, False),
        "typestr": numpy.dtype("float32").str,
        "shape": (8, 64),
        "strides": (256, 4),
    }
    array = type("Array", (), {"__cuda_array_interface__": interface})()
    capsule = DLPackArray(2, 32, shape=(8, 64))
    capsule.asked = collections.deque(maxlen=1)
    block = type("Array", (), {"__cuda_array_interface__": interface | {"typestr": "<f2", "strides": None}})()
    below, odd = -(1 << 40), type("NoNumber", (), {})()
    watched = (
        below,
        type(odd).__name__,
        x,
        half,
        x.dtype,
        Tensor,
        stream.cuda_stream,
        None,
        add,
        TypeError,
        array,
        interface,
        *interface.values(),
        block,
    )
    for call in (
        lambda: add(x, x, 64, stream=None),
        lambda: add(x=x, out=x, n=numpy.int64(10**6), dtype="fp32", stream=stream, grid=(70_000, 1)),
        lambda: add(x, x, 0),
        lambda: add(x, "y", 64),
        lambda: add(x, half, 64),
        lambda: add(x, Tensor(device=0), 64),
        lambda: add(x, x, 64, grid=(1, "2")),
        lambda: add(x, x, 2**70, stream=0x10000),
        lambda: add(x, x, 64, stream=below),
        lambda: add(x, x, odd),
        lambda: add(array, array, 64),
        lambda: add(array, "y", 64),
        lambda: add(capsule, capsule, 64),
        lambda: world.package.blocks(block, 7, 1),
        lambda: world.package.blocks(block, 7, grid=(1, "2")),
    ):
        call_and_forgive(call)
        gc.collect()
        before, blocks = [sys.getrefcount(o) for o in watched], sys.getallocatedblocks()
        for _ in range(500):
            call_and_forgive(call)
        gc.collect()
        after = [sys.getrefcount(o) for o in watched]
        assert all(abs(b - a) < 100 for a, b in zip(before, after)), (
            "one reference for each call would be 500"
        )
        assert sys.getallocatedblocks() - blocks < 400


def test_a_library_is_built_from_a_relative_path(built_package, tmp_path, monkeypatch):
    # From Python 3.12 on, mkdtemp gives an absolute path for a relative directory too.
    made = tempfile.mkdtemp
    monkeypatch.setattr(tempfile, "mkdtemp", lambda *given, **named: os.path.abspath(made(*given, **named)))
    monkeypatch.chdir(tmp_path)
    table, _ = example_table()
    rendering.render(Path("example"), table)
    built, library = build_launcher(Path("example"))
    assert library.name == "libexample.so"
    assert built.read_bytes() == (built_package / "example" / "_launcher.abi3.so").read_bytes()


def test_library_is_the_same_wherever_it_is_built(built_package, tmp_path):
    table, _ = example_table()
    rendering.render(tmp_path / "else" / "example", table)
    built = build_launcher(tmp_path / "else" / "example")
    for library in built:
        assert library.read_bytes() == (built_package / "example" / library.name).read_bytes()
        needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
        assert not re.search("libcuda|libpython|libz", needed) and "BIND_NOW" in needed


def test_nothing_is_warned_of(built_package):
    commands = [core_command(["cc"], name) for name in CORES] + [tables_command(["cc"], "tables.o")]
    commands += [
        link_command(["cc"], f"{stem}_functions.c", ["tables.o", f"{stem}.o"], f"{stem}.so")
        for stem in ("launcher", "library")
    ]
    for command in commands:
        subprocess.run([*command, "-Werror"], cwd=built_package / "example", check=True)


def test_a_compiler_that_fails_is_reported(tmp_path):
    table, _ = example_table()
    rendering.render(tmp_path / "else" / "example", table)
    with pytest.raises(ToolError, match="was not found"):
        build_launcher(tmp_path / "else" / "example", cc=["no-such-compiler"])
    (tmp_path / "else" / "example" / "launcher_tables.c").write_text("int x = ;")
    with pytest.raises(ToolError, match="failed with exit code 1"):
        build_launcher(tmp_path / "else" / "example")
