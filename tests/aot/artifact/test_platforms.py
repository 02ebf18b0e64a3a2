"""Wheels for other platforms: their tags, the compiler that is found, and launchers made by a cross compiler."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sysconfig
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.aot import toolchain
from kbuild.aot.artifact.platforms import (
    MACHINES,
    Platform,
    elf_machine,
    machine_of,
    needed_libraries,
    parse_platform,
    platform_tag,
    this_machine,
)
from kbuild.aot.build.launcher import build_launcher, core_command, foreign_headers
from kbuild.aot.build.progress import Progress
from kbuild.aot.build.project import BuildOptions, build
from kbuild.aot.shards.merge import merge
from kbuild.cli import main
from kbuild.errors import ToolError, UsageError
from tests.aot.artifact.partial_wheels import options_of, wheel_of

HERE = this_machine()
OTHER = next(machine for machine in MACHINES if machine != HERE)


def cross_compiler() -> toolchain.Tool | None:
    """A compiler for the other machine, if there is one."""
    try:
        return toolchain.find_cc({"PATH": "/usr/bin:/usr/local/bin"}, parse_platform(OTHER))
    except ToolError:
        return None


needs_cross_compiler = pytest.mark.skipif(
    cross_compiler() is None, reason=f"no C compiler for {OTHER}: pip install ziglang"
)


@pytest.fixture(scope="module")
def zig_cache(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variable of zig's cache, which keeps what it makes of the C library."""
    return {"ZIG_GLOBAL_CACHE_DIR": str(tmp_path_factory.mktemp("zig"))}


@pytest.fixture
def options(project: Path, zig_cache: dict[str, str]) -> BuildOptions:
    plain = options_of(project)
    return replace(plain, environment={**plain.environment, **zig_cache})


@pytest.mark.parametrize(
    "text, machine, glibc, zig",
    [
        ("aarch64", "aarch64", None, "aarch64-linux-gnu.2.17"),
        ("manylinux_2_28_aarch64", "aarch64", 28, "aarch64-linux-gnu.2.28"),
        ("manylinux2014_x86_64", "x86_64", 17, "x86_64-linux-gnu.2.17"),
        ("linux_x86_64", "x86_64", None, "x86_64-linux-gnu.2.17"),
    ],
)
def test_platforms_are_machines_or_tags(text: str, machine: str, glibc: int | None, zig: str) -> None:
    platform = parse_platform(text)
    assert (platform.machine, platform.glibc, platform.zig_target) == (machine, glibc, zig)
    assert platform.is_manylinux == (not text.startswith("linux")) and machine_of(text) == machine


@pytest.mark.parametrize(
    "text, help",
    [
        ("manylinux_2_28_arm64", 'did you mean "manylinux_2_28_aarch64"?'),
        ("win_amd64", "wheels are for Linux, where NVIDIA has drivers"),
        ("manylinux2020_x86_64", "did you mean"),
        ("riscv64", "wheels are for Linux, where NVIDIA has drivers"),
        ("", "wheels are for Linux, where NVIDIA has drivers"),
    ],
)
def test_others_are_refused(text: str, help: str) -> None:
    with pytest.raises(
        UsageError, match=f"--platform {text}: expected x86_64, aarch64, manylinux_2_28"
    ) as error:
        parse_platform(text)
    assert help in error.value.help


def launcher_of(machine: str) -> bytes:
    """The first bytes of a shared object of a machine, without sections."""
    return b"\x7fELF\x02\x01" + bytes(12) + {"x86_64": b"\x3e\0", "aarch64": b"\xb7\0"}[machine] + bytes(44)


def test_a_launcher_of_another_machine_has_no_tag() -> None:
    assert elf_machine(launcher_of(OTHER)) == OTHER and elf_machine(launcher_of(HERE)) == HERE
    assert platform_tag([launcher_of(OTHER)], parse_platform(OTHER)) == f"manylinux_2_17_{OTHER}"
    with pytest.raises(ToolError, match=f"the C compiler makes code for {OTHER}, and this machine is {HERE}"):
        platform_tag([launcher_of(OTHER)])
    with pytest.raises(ToolError, match=f"--platform is {OTHER}, and the C compiler makes code for {HERE}"):
        platform_tag([launcher_of(HERE)], parse_platform(OTHER))
    strange = launcher_of(HERE).replace(b"\x3e\0", b"\xf3\0")
    assert elf_machine(strange) == "ELF machine 243"


def test_a_launcher_with_too_new_a_glibc_has_no_older_tag() -> None:
    newer = launcher_of(OTHER) + b"\0GLIBC_2.34\0"
    assert platform_tag([newer], parse_platform(OTHER)) == f"manylinux_2_34_{OTHER}"
    assert platform_tag([newer], parse_platform(f"manylinux_2_39_{OTHER}")) == f"manylinux_2_39_{OTHER}"
    assert platform_tag([newer], parse_platform(f"linux_{OTHER}")) == f"linux_{OTHER}"
    with pytest.raises(ToolError, match=r"--platform is manylinux_2_28_\w+, but .* needs glibc 2\.34"):
        platform_tag([newer], parse_platform(f"manylinux_2_28_{OTHER}"))


def program(path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_compiler_for_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CC, then a cross gcc, then zig; never the one that makes code for this machine."""
    platform = parse_platform(f"manylinux_2_28_{OTHER}")
    native, zig = program(tmp_path / "bin/gcc"), program(tmp_path / "ziglang/zig")
    path = str(tmp_path / "bin")
    (tmp_path / "ziglang/__init__.py").write_text("")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ToolError, match=f"no C compiler for {OTHER} was found") as error:
        toolchain.find_cc({"PATH": path}, platform)
    assert (
        error.value.help
        == f"pip install ziglang, or set CC to a cross compiler such as {OTHER}-linux-gnu-gcc"
    )
    spec = importlib.util.spec_from_file_location("ziglang", tmp_path / "ziglang/__init__.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    arguments = ("cc", "-target", f"{OTHER}-linux-gnu.2.28")
    assert toolchain.find_cc({"PATH": path}, platform) == toolchain.Tool(
        "cc", str(zig), "ziglang package", arguments
    )
    cross = program(tmp_path / f"bin/{OTHER}-linux-gnu-gcc")
    assert toolchain.find_cc({"PATH": path}, platform).path == str(cross)
    assert toolchain.find_cc({"PATH": path, "CC": "gcc -m64"}, platform).path == str(native)
    assert toolchain.find_cc({"PATH": path}, parse_platform(HERE)).path == str(native)


def test_a_switch_of_headers_is_led_to_those_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's pyconfig.h includes one of several, by machine, of which only this machine's is there."""
    include = tmp_path / "python3.11"
    include.mkdir()
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(include))
    (include / "Python.h").write_text("")
    names = [f"<{machine}-linux-gnu/python3.11/pyconfig.h>" for machine in MACHINES]
    (include / "pyconfig.h").write_text("\n".join(f"# include {name}" for name in names))
    own = tmp_path / f"{HERE}-linux-gnu/python3.11/pyconfig.h"
    assert foreign_headers(OTHER) == {
        f"{OTHER}-linux-gnu/python3.11/pyconfig.h": f'#include "{own}"\n'.encode()
    }
    assert "-Iheaders" in core_command(["cc"], "launcher.o", "headers")
    (include / "pyconfig.h").write_text("#define SIZEOF_LONG 8\n")
    assert foreign_headers(OTHER) == {}


@needs_cross_compiler
def test_a_wheel_for_another_machine_has_the_same_cubins(options: BuildOptions) -> None:
    own, other = wheel_of(options), wheel_of(replace(options, platform=f"manylinux_2_28_{OTHER}"))
    assert other.name == f"demo_kernels-0.1.0-cp310-abi3-manylinux_2_28_{OTHER}.whl"
    assert own.exists(), "wheels of different machines lie side by side"
    with zipfile.ZipFile(own) as one, zipfile.ZipFile(other) as two:
        assert one.namelist() == two.namelist()
        differing = {name.rpartition("/")[2] for name in one.namelist() if one.read(name) != two.read(name)}
        launcher = two.read("demo_kernels/_launcher.abi3.so")
        assert (
            f"Tag: cp310-abi3-manylinux_2_28_{OTHER}\n"
            in two.read("demo_kernels-0.1.0.dist-info/WHEEL").decode()
        )
    assert differing <= {"_launcher.abi3.so", "libdemo_kernels.so", "WHEEL", "RECORD", "kbuild.cdx.json"}
    assert elf_machine(launcher) == OTHER
    assert needed_libraries(launcher) <= {
        b"libc.so.6",
        b"libdl.so.2",
        b"libpthread.so.0",
        b"ld-linux-aarch64.so.1",
    }
    plain = wheel_of(replace(options, platform=OTHER))
    assert machine_of(plain.stem.rpartition("-")[2]) == OTHER and not other.exists()


@needs_cross_compiler
def test_wheels_for_another_machine_are_merged_for_it(options: BuildOptions) -> None:
    own = wheel_of(options, "sm_90")
    options = replace(options, platform=OTHER)
    parts = [wheel_of(options, arch) for arch in ("sm_80", "sm_90")]
    folder = options.project / "joined"
    made = merge(parts, folder, options.environment)
    assert made.read_bytes() == wheel_of(options).read_bytes()
    with pytest.raises(UsageError, match=rf"was built with --platform none, and demo_\S+ with {OTHER}"):
        merge([parts[0], own], folder, options.environment)


@needs_cross_compiler
@pytest.mark.skipif(not Path("/usr/include/python3.11/Python.h").exists(), reason="no Debian headers here")
def test_headers_of_debian_do_for_another_machine(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel_of(options_of(project))
    monkeypatch.setattr(sysconfig, "get_path", lambda name: "/usr/include/python3.11")
    tool = cross_compiler()
    assert tool is not None
    made = build_launcher(project / "build/package/demo_kernels", [tool.path, *tool.arguments], machine=OTHER)
    assert {elf_machine(path.read_bytes()) for path in made} == {OTHER}


@needs_cross_compiler
def test_pyconfig_says_of_this_machine_what_holds_of_the_other(tmp_path: Path) -> None:
    """All that Python.h takes from it for Py_LIMITED_API are the sizes of types."""
    tool = cross_compiler()
    assert tool is not None
    sizes = {
        "VOID_P": "void *",
        "LONG": "long",
        "SIZE_T": "size_t",
        "WCHAR_T": "wchar_t",
        "LONG_LONG": "long long",
    }
    sizes |= {"INT": "int", "SHORT": "short", "DOUBLE": "double", "FLOAT": "float", "TIME_T": "time_t"}
    checks = [f'_Static_assert(sizeof({type_}) == SIZEOF_{name}, "");' for name, type_ in sizes.items()]
    text = "\n".join(["#include <pyconfig.h>", "#include <stddef.h>", "#include <time.h>", *checks])
    (tmp_path / "sizes.c").write_text(f"{text}\n")
    command = core_command([tool.path, *tool.arguments], "launcher.o")
    command[command.index("-c") + 1] = "sizes.c"
    subprocess.run(command, cwd=tmp_path, check=True)


@needs_cross_compiler
def test_a_cross_compiler_alone_is_reported(options: BuildOptions) -> None:
    """CC without --platform: the steps still run, for their client is not taken from it."""
    tool = cross_compiler()
    assert tool is not None
    words = " ".join([tool.path, *tool.arguments])
    result = build(replace(options, environment={**options.environment, "CC": words}), Progress())
    (failure,) = result.failures
    assert f"the C compiler makes code for {OTHER}, and this machine is {HERE}" in str(failure)
    assert f"--platform {OTHER} makes a wheel for {OTHER}; or unset CC" in str(failure)


def test_the_flag(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wheel", "-C", str(project), "--platform", "sparc"]) == 2
    assert "--platform sparc: expected x86_64, aarch64" in capsys.readouterr().err


def test_a_platform_of_this_machine_needs_no_other_compiler(project: Path) -> None:
    assert not Platform("", HERE).is_foreign and shutil.which("cc")
    made = wheel_of(replace(options_of(project), platform=f"manylinux_2_39_{HERE}"))
    assert made.name.endswith(f"-manylinux_2_39_{HERE}.whl")
