"""The command line as a user sees it: its output and its exit codes."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kbuild import cli
from kbuild.aot.build import ninja
from kbuild.aot.build import project as builder
from kbuild.aot.verify import session
from kbuild.cli.grammar import parser
from kbuild.cli.verbs import mutate
from tests.aot.build.processes import at_work, interruptible, wait_until
from tests.aot.conftest import KERNEL, MANIFEST

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the kernel `scale`, in the current directory, built by the fake compiler with a cache of
    its own."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/scale.py").write_text(KERNEL)
    (tmp_path / "kernels.toml").write_text(MANIFEST)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("CI", "MAX_JOBS", "KBUILD_PTXAS", "KBUILD_DISABLE_CACHE", "SOURCE_DATE_EPOCH", "CC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(builder, "COMPILER", "tests.aot.build.fake_compiler:compile")
    monkeypatch.setattr(builder, "SOURCE_DIGEST", "tests.aot.build.fake_compiler:source_digest")
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of one command."""
    code = cli.main(words)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_build_says_what_it_made_and_where(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "build")
    assert code == 0 and out == ""
    lines = err.splitlines()
    assert any(line.startswith("[1/20] compile ") for line in lines) and "package demo_kernels" in lines[19]
    assert lines[20].startswith("18 cubins in build, ") and "18 compiled, 0 from the cache; " in lines[20]
    assert lines[21].startswith("wheel: dist/demo_kernels-0.1.0-cp310-abi3-") and lines[21].endswith(" kB")
    code, _, err = run(capsys, "build")
    assert code == 0 and "nothing had to be compiled" in err and "[1/" not in err


def test_a_wheel_takes_the_place_of_one_with_another_tag(project: Path) -> None:
    for name in (
        "demo_kernels-0.1.0-cp39-abi3-linux_x86_64.whl",
        "demo_kernels-0.0.9-cp310-abi3-any.whl",
        "other-0.1.0-any.whl",
    ):
        (project / "dist").mkdir(exist_ok=True)
        (project / "dist" / name).write_bytes(b"")
    assert cli.main(["build", "-q"]) == 0
    left = sorted(path.name.rpartition("-")[0] for path in (project / "dist").iterdir())
    assert left == ["demo_kernels-0.0.9-cp310-abi3", "demo_kernels-0.1.0-cp310-abi3", "other-0.1.0"]


def test_a_quiet_build_says_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "build", "-q") == (0, "", "")


def test_json_of_a_build(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "build", "--json", "-q")
    result = json.loads(out)
    assert code == 0 and result["variants"] == 18 and len(result["facts"]) == 18 and result["failed"] == []
    assert Path(result["wheel"]).stat().st_size == result["wheel_bytes"]


def test_wheel_prints_its_path(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "wheel", "-o", "out", "-q")
    assert code == 0 and out.startswith("out/demo_kernels-0.1.0-") and Path(out.strip()).is_file()


def test_one_architecture_and_one_kernel(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "build", "--arch", "sm_80", "scale")
    assert code == 0 and "6 cubins in build" in err and "wheel" not in err
    assert not (project / "build/sm_90").exists()


def test_a_dry_run_compiles_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "build", "--dry-run")
    assert code == 0 and len(out.splitlines()) == 18 and not (project / "build/sm_80").exists()


def test_failed_variants_are_reported_and_the_others_built(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "kernels/scale.py").write_text('MODE = "error"\n' + KERNEL)
    code, _, err = run(capsys, "build", "-k")
    assert code == 1
    assert (
        "12 cubins in build" in err
        and "12 compiled, 0 from the cache, 6 failed; " in err
        and "6 of 18 variants failed" in err
    )
    assert "help: this repeats it: kbuild compile kernels/scale.py:scale_kernel --arch sm_80 -s" in err
    assert err.count("NEGATE is not for this kernel") == 1, (
        "what several variants have in common is reported once"
    )
    assert "likewise:\n  scale.sm_80.fp16.NEGATE=1.BLOCK=512,SCALE=2.0.w4s3\n  scale.sm_90" in err
    assert "Traceback" not in err
    code, _, err = run(capsys, "clean", "-q")
    code, _, err = run(capsys, "build", "-j", "1", "--no-cache")
    assert code == 1 and "1 of 18 variants failed" in err and "-k builds the" in err


def test_a_package_that_fails_is_not_reported_as_a_variant(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "false")
    code, _, err = run(capsys, "build", "-k", "-q")
    expected = "error: the package demo_kernels: compiling its launcher failed\n"
    assert (
        code == 1
        and err == f"{expected}error: {shutil.which('false')} failed with exit code 1 and said nothing\n"
    )


def test_a_full_disk_is_called_that(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(capsys, "build", "-q")
    [wheel] = (project / "dist").iterdir()
    wheel.write_bytes(b"old")

    def fail(_handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    code, _, err = run(capsys, "build")
    assert (
        code == 1
        and err.splitlines()[-1] == f"error: dist/{wheel.name}: the disk is full (No space left on device)"
    )
    assert wheel.read_bytes() == b"old" and list((project / "dist").iterdir()) == [wheel]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(project: Path, closed: str) -> None:
    command = f"exec {sys.executable} -m kbuild list {closed}"
    done = subprocess.run(
        ["sh", "-c", command], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert len(done.stdout.splitlines()) == (0 if ">&-" in closed.replace("2>&-", "") else 18)


def test_what_an_encoding_lacks_is_escaped(project: Path) -> None:
    (project / "k\xe4se").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "kbuild", "list", "-C", "k\xe4se"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and "k\\xe4se/kernels.toml: No such file" in done.stderr


def test_a_wrong_manifest_is_reported_line_by_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = MANIFEST.replace("cdiv(n, BLOCK)", "cdiv(n)").replace('"fp16", "fp32"', '"fp16", "fp31"')
    (project / "kernels.toml").write_text(text.replace("num_stages", "num_stage"))
    for verb in ("build", "list", "wheel"):
        code, out, err = run(capsys, verb)
        assert code == 2 and out == ""
        assert err.splitlines() == [
            'kernels.toml:10: kernel "scale": grid[0]: cdiv takes 2 arguments, not 1 in "cdiv(n)"',
            'kernels.toml:16: kernel "scale": matrix.dtype[1]: unknown type "fp31"; did you mean "fp32"?',
            'kernels.toml:28: kernel "scale": config[2].num_stage: the kernel has no such parameter; did you mean "num_stages"?',
            'kernels.toml:30: kernel "scale": exclude[0].dtype: "fp32" is not a value of dtype; did you mean "fp31"?',
        ]
    code, _, err = run(capsys, "list", "-C", "kernels")
    assert (
        code == 2
        and err
        == "kernels/kernels.toml: No such file or directory; a project has a kernels.toml; -C DIR names it\n"
    )


@pytest.mark.parametrize(
    "words, message",
    [
        ([], "the following arguments are required: VERB"),
        (["biuld"], "invalid choice"),
        (["biuld"], 'help: did you mean "build"?'),
        (
            ["clean", "--force"],
            "unrecognized arguments: --force\nhelp: kbuild clean --help lists what there is",
        ),
        (["build", "--no-such"], "unrecognized arguments: --no-such"),
        (["build", "--archs", "sm_90"], 'unrecognized arguments: --archs\nhelp: did you mean "--arch"?'),
        (["build", "--keep-goin"], 'unrecognized arguments: --keep-goin\nhelp: did you mean "--keep-going"?'),
        (["compile", "x.py"], "'x.py' names no function"),
        (["compile", "kernels/scale.py:other"], "kernels/scale.py has no function other"),
        (["build", "-j", "none"], "expected a number from 1, found 'none'"),
        (["build", "-C", "nowhere"], "-C nowhere: no such directory"),
        (["build", "--arch", "sm_70"], "no architecture sm_70 in the manifest"),
        (["build", "scael"], 'no kernel scael in the manifest\nhelp: did you mean "scale"?'),
        (["list", "scael"], "no kernel scael in the manifest"),
        (["compile"], "the following arguments are required: FILE:FUNCTION"),
        (["compile", "x.py:f", "--emit", "sass"], "--emit sass: no such stage"),
        (["compile", "x.py:f", "-s", "x"], "-s 'x': expected NAME=TYPE"),
        (["verify", "--schedule", "sorted"], "unknown schedule 'sorted'\nhelp: known are lockstep"),
        (
            ["verify", "--timing", "never"],
            "unknown timing 'never'\nhelp: known are early, late and random(SEED)",
        ),
        (["compile", "x.py:f", "-c", "1=2"], "-c '1=2': expected NAME=VALUE"),
    ],
)
def test_a_wrong_command_line(
    project: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    code, out, err = run(capsys, *words)
    assert code == 2 and out == "" and err.startswith("error: ") and message in err and "Traceback" not in err


@pytest.mark.parametrize(
    "words, message",
    [
        (["-s", "z=*fp16"], "kernel scale_kernel has no argument z"),
        (["-s", "x=*fp61,y=*fp16,n=i32", "-c", "BLOCK=64,NEGATE=false"], "argument x: '*fp61' is not a type"),
        (["-s", "x=*fp16"], "kernel scale_kernel is missing arguments y, n, BLOCK, NEGATE"),
        (
            ["-s", "x=*fp16,y=*fp16,n=i32", "-c", "BLOCK=64,NEGATE=\udcff"],
            "'\\udcff' is not text: it has half of a surrogate pair",
        ),
    ],
)
def test_a_wrong_signature_is_a_wrong_command_line(
    project: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    code, out, err = run(capsys, "compile", "kernels/scale.py:scale_kernel", *words)
    assert code == 2 and out == "" and message in err and "kernels/scale.py:6:1: error: " in err


def test_wrong_variables(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_JOBS", "many")
    assert (
        run(capsys, "build")[2] == "error: MAX_JOBS is 'many', expected a natural number of up to 11 digits\n"
    )
    monkeypatch.setenv("MAX_JOBS", "1")
    monkeypatch.setenv("KBUILD_PTXAS", "/no/ptxas")
    code, _, err = run(capsys, "build")
    assert code == 1 and "KBUILD_PTXAS is /no/ptxas, which is not a program" in err


def test_a_cache_that_cannot_be_used_is_said_once(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "file").write_text("")
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(project / "file/cache"))
    code, _, err = run(capsys, "build", "-q")
    assert code == 0 and err == f"warning: building without a cache: {project}/file/cache: Not a directory\n"


def test_a_directory_that_cannot_be_written(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "build").write_text("")
    code, _, err = run(capsys, "build")
    assert code == 1 and err == "error: build/.kbuild: Not a directory\n"


def test_an_unexpected_error_is_short_without_v(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parser, "parser", lambda: 1 // 0)
    code, _, err = run(capsys, "list")
    assert (
        code == 1
        and err.startswith("kbuild failed: ZeroDivisionError")
        and "report it" in err
        and "Traceback" not in err
    )
    assert "Traceback" in run(capsys, "list", "-v")[2]


def test_list(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "list", "-v")
    assert code == 0 and out.splitlines()[0] == "scale.sm_80.fp16.NEGATE=0.n=d16.BLOCK=512,SCALE=2.0.w4s3"
    assert "not scale.sm_80 dtype = fp32, NEGATE = True: excluded by { dtype = fp32, NEGATE = True }" in out
    assert err == "18 variants, 2 excluded\n"
    run(capsys, "build", "-q")
    listed = json.loads(run(capsys, "list", "--json", "--arch", "sm_90")[1])
    assert len(listed["variants"]) == 12 and listed["variants"][0]["built"]["registers"] == 32


def test_clean_removes_what_was_built_and_nothing_else(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "build", "-q")
    other = project / "dist/other.whl"
    other.write_text("")
    assert run(capsys, "clean", "--dry-run")[0] == 0 and (project / "build").exists()
    assert run(capsys, "clean")[0] == 0
    assert (
        sorted(path.name for path in project.rglob("*.whl")) == ["other.whl"]
        and not (project / "build").exists()
    )
    (project / "build").mkdir()  # Not made by kbuild.
    code, _, err = run(capsys, "clean")
    assert code == 0 and err == "no build in .\n" and (project / "build").exists()


def test_doctor(project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = run(capsys, "doctor")
    assert (
        code == 0
        and "nvidia-cuda-nvcc" in out
        and "missing" not in out
        and "Python.h" in out
        and "nvrtc     13." in out
    )
    assert re.search(r"ptxas .* V1\d\.\d+\.\d+; .*; for drivers from 5\d\d on", out)
    monkeypatch.setenv("CC", "no-such-compiler")
    code, out, _ = run(capsys, "doctor", "--json")
    rows = {row["name"]: row for row in json.loads(out)}
    assert code == 1 and not rows["cc"]["good"] and rows["ninja"]["good"]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0 and capsys.readouterr().out.startswith("kbuild 0.")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_ends_with_130(project: Path, number: signal.Signals) -> None:
    (project / "kernels/scale.py").write_text('MODE = "slow"\n' + KERNEL)
    code = (
        "import sys; from kbuild import cli; from kbuild.aot.build import project; "
        "project.COMPILER = 'tests.aot.build.fake_compiler:compile'; "
        "project.SOURCE_DIGEST = 'tests.aot.build.fake_compiler:source_digest'; sys.exit(cli.main(['build', '-j', '2']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=interruptible,
    )
    wait_until(lambda: (project / "kernels/at_work").exists())
    assert len(at_work(project)) > 2
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130 and err.endswith("interrupted\n") and "Traceback" not in err
    wait_until(lambda: not at_work(project))


@pytest.mark.parametrize(
    "variable, words, jobs", [("", [], 0), ("3", [], 3), ("3", ["-j", "5"], 5), ("", ["-j", "5"], 5)]
)
def test_the_number_of_steps_at_a_time(
    project: Path, monkeypatch: pytest.MonkeyPatch, variable: str, words: list[str], jobs: int
) -> None:
    """The command line takes precedence over the environment; every verb with -j reads both the same way."""
    monkeypatch.setenv("MAX_JOBS", variable)
    found: list[object] = []

    def note(place: int) -> Callable[..., None]:
        def called(*given: object) -> None:
            found.append(given[place])
            raise KeyboardInterrupt

        return called

    monkeypatch.setattr(ninja, "run", note(5))
    for module in (mutate, session):
        monkeypatch.setattr(module, "run_jobs", note(2))
    for verb in ("build", "verify", "mutate"):
        assert cli.main([verb, "-q", *words]) == cli.INTERRUPTED
    assert found == [jobs, *[jobs or len(os.sched_getaffinity(0))] * 2]
