"""A build compiles only what changed, survives interruptions and damage, and reports failures."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.aot import toolchain
from kbuild.aot.build.progress import Progress
from kbuild.aot.build.project import BuildOptions, build
from kbuild.aot.build.results import BuildResult
from kbuild.aot.files import templates_directory
from kbuild.errors import CompileError, KbuildError, ToolError, UsageError
from kbuild.options import DEFAULTS
from tests.aot.build.processes import at_work, command_line, interruptible, wait_until
from tests.aot.conftest import KERNEL, MANIFEST
from tests.manifests import package_table

ROOT = Path(__file__).parents[3]
VARIANTS = 3 * 2 + 3 * 4
"""Of `scale`: three points of the matrix, two specialisations; one configuration on sm_80, two on sm_90."""


@pytest.fixture
def options(project: Path) -> BuildOptions:
    """A build of the cubins alone, by the fake compiler, with a cache of its own."""
    second = KERNEL.replace("scale_kernel", "shift_kernel").replace("* SCALE", "+ SCALE")
    (project / "kernels/shift.py").write_text(second)
    table = MANIFEST[MANIFEST.index("[[kernel]]") :].replace("scale", "shift")
    (project / "kernels.toml").write_text(MANIFEST + "\n" + table)
    cache = project / "cache"
    cache.mkdir(mode=0o700)
    return BuildOptions(
        project=project,
        environment={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        kernels=("scale", "shift"),
        cache=cache,
        compiler="tests.aot.build.fake_compiler:compile",
        source_digest="tests.aot.build.fake_compiler:source_digest",
    )


def run(options: BuildOptions) -> BuildResult:
    return build(options, Progress())


def compiled(options: BuildOptions) -> list[str]:
    """The compiler's calls since the last time this was asked."""
    log = options.project / "kernels/compiled.log"
    lines = log.read_text().splitlines() if log.is_file() else []
    log.unlink(missing_ok=True)
    return lines


def cubins(options: BuildOptions) -> dict[str, bytes]:
    """The cubins and facts of a build."""
    base = options.project / "build"
    return {str(file.relative_to(base)): file.read_bytes() for file in base.glob("sm_*/*/*")}


def test_assertions_are_asked_of_the_compiler_and_named(options: BuildOptions) -> None:
    for debug, end in ((False, "w4s3"), (True, "w4s3debug")):
        run(replace(options, archs=("sm_80",), compile=DEFAULTS.changed({"debug": debug})))
        (file,) = (options.project / "build/sm_80/scale").glob(f"fp16.NEGATE=0.n=d16.*.{end}.ptx")
        assert f"('debug', {debug})" in file.read_text()
    source = options.project / "kernels/scale.py"
    source.write_text("# A line more, by which assertions are moved.\n" + source.read_text())
    plain = replace(options, archs=("sm_80",), kernels=("scale",))
    asserting = replace(plain, compile=DEFAULTS.changed({"debug": True}))
    assert len(run(asserting).compiled) == 6 and run(plain).compiled == ()


def test_what_changed_is_compiled_and_nothing_else(options: BuildOptions) -> None:
    assert len(run(options).compiled) == 2 * VARIANTS and len(compiled(options)) == 2 * VARIANTS
    first = cubins(options)
    assert len(first) == 3 * 2 * VARIANTS

    assert run(options).compiled == () and compiled(options) == []  # Nothing changed.

    source = options.project / "kernels/scale.py"
    source.write_text("# A comment moves every line.\n\n" + KERNEL)
    os.utime(options.project / "kernels/shift.py")
    text = options.project / "kernels.toml"
    text.write_text("# And one in the manifest.\n" + text.read_text())
    assert run(options).compiled == () and compiled(options) == [] and cubins(options) == first

    source.write_text(KERNEL.replace("* SCALE", "/ SCALE"))
    assert {name.split(".")[0] for name in run(options).compiled} == {"scale"}
    assert len(compiled(options)) == VARIANTS

    source.write_text(KERNEL)  # As `git checkout` does: what was compiled before is in the cache.
    result = run(options)
    assert len(result.compiled) == VARIANTS == result.cached and compiled(options) == []
    assert cubins(options) == first


def test_another_cost_compiles_nothing(options: BuildOptions) -> None:
    text = options.project / "kernels.toml"
    plain = text.read_text()
    run(options)
    compiled(options)
    for cost in ('"2 * n"', '"3 * n"'):
        text.write_text(plain.replace("BLOCK = 2048", f"BLOCK = 2048\ncost = {cost}"))
        result = run(options)
        assert len(result.compiled) == result.cached > 0 and compiled(options) == []
        assert {facts["variant"].rpartition(";")[2] for facts in result.facts if ";" in facts["variant"]} == {
            cost.strip('"')
        }


def test_a_kernel_excluded_everywhere_is_left_out_with_a_note(
    options: BuildOptions, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = options.project / "kernels.toml"
    text = manifest.read_text().replace('archs = ["sm_80", "sm_90"]', 'archs = ["sm_80"]')
    manifest.write_text(text + '[[kernel.exclude]]\narch = "sm_80"\n')
    result = run(replace(options, kernels=()))
    assert {job.variant.kernel for job in result.jobs} == {"scale"} and result.wheel is not None
    assert (
        capsys.readouterr().err == "note: shift is left out: the manifest excludes it everywhere on sm_80\n"
    )


def test_variants_no_longer_asked_for_go_away(options: BuildOptions) -> None:
    options = replace(options, kernels=())
    directory = options.project / "build"
    stale = directory / "sm_90/scale/old.w4s3.cubin"
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"")
    assert len(run(replace(options, dry_run=True)).jobs) == 2 * VARIANTS and stale.exists()
    run(replace(options, kernels=("scale",)))
    assert stale.exists()  # A build of some kernels does not affect others.
    assert run(options).wheel is not None
    assert not stale.exists()


def test_lost_and_broken_state_is_mended(options: BuildOptions) -> None:
    run(options)
    first = cubins(options)
    state = options.project / "build/.kbuild"
    for name in (".ninja_log", "build.ninja", "digests.json", "settings.json"):
        for content in (b"", b"garbage \xff\n" * 100, (state / name).read_bytes()[:-7] + b"\x00"):
            (state / name).write_bytes(content)
            run(options)
            assert cubins(options) == first
    shutil.rmtree(options.project / "build/sm_90")
    assert run(options).cached == VARIANTS - 6 + VARIANTS - 6
    assert cubins(options) == first
    shutil.rmtree(options.project / "build")
    compiled(options)
    run(options)
    assert compiled(options) == [] and cubins(options) == first


@pytest.mark.parametrize(
    "mode, says",
    [
        ("error", ["NEGATE is not for this kernel", "kernels/scale.py:6:5", "help: leave it out"]),
        ("abort", ["the compiler was ended by signal 6"]),
        ("broken", ["kbuild failed: ZeroDivisionError", "this is a bug of kbuild's"]),
    ],
)
def test_a_failed_variant_costs_that_variant(options: BuildOptions, mode: str, says: list[str]) -> None:
    (options.project / "kernels/scale.py").write_text(f'MODE = "{mode}"\n' + KERNEL)
    result = run(replace(options, keep_going=True))
    assert len(result.failures) == 6 and len(result.facts) == 2 * VARIANTS - 6
    text = str(result.failures[0])
    assert "scale.sm_80.fp16.NEGATE=1.n=d16.BLOCK=512,SCALE=2.0.w4s3 failed" in text
    assert all(part in text for part in says), text
    repeat = "this repeats it: kbuild compile kernels/scale.py:scale_kernel --arch sm_80 -s 'x=*fp16:16,y=*fp16:16,n=i32:16'"
    assert repeat + " -c NEGATE=True,BLOCK=512,SCALE=2.0 --num-warps 4 --num-stages 3" in text
    assert "Traceback" not in text
    assert len(run(replace(options, keep_going=True)).failures) == 6  # A failure is not kept.
    assert 1 <= len(run(options).failures) < 6  # Without -k the build ends at the first ones.


def test_dots_that_ptxas_serializes_are_warnings_and_with_strict_errors(options: BuildOptions) -> None:
    (options.project / "kernels/scale.py").write_text(f'MODE = "serialized"\n{KERNEL}')
    first = run(options)
    assert not first.failures
    assert [fact["kernel"] for fact in first.facts if fact["serialized"]] == ["scale"] * VARIANTS
    strict = replace(options, compile=DEFAULTS.changed({"strict": True}), keep_going=True)
    for again in (
        strict,
        strict,
        replace(strict, cache=None),
    ):  # Built already; not built, but in the cache; not even there.
        failures = [str(failure) for failure in run(again).failures]
        assert len(failures) == VARIANTS and all(
            "this dot runs slower than it could" in text for text in failures
        )
    assert not run(options).failures, "without strict they are there again"


def test_a_launch_that_begins_early_has_to_wait(options: BuildOptions) -> None:
    """A kernel that never waits would read what the launch before it has not written yet."""
    text = (options.project / "kernels.toml").read_text()
    head, _, shift = text.partition('name = "shift"')
    early = shift.replace("[[kernel.config]]\n", "[[kernel.config]]\nlaunch_pdl = true\n")
    (options.project / "kernels.toml").write_text(f'{head}name = "shift"{early}')
    failures = run(replace(options, keep_going=True)).failures
    assert len(failures) == 3 * 4, "on sm_90, where it would begin early"
    assert "launch_pdl, but shift_kernel never waits" in str(
        failures[0]
    ) and "tl.extra.cuda.gdc_wait()" in str(failures[0])
    source = options.project / "kernels/shift.py"
    source.write_text(source.read_text() + "X = 'gdc_wait'\n")
    assert run(options).failures == ()


def test_a_source_edited_while_it_is_compiled_is_not_kept(options: BuildOptions) -> None:
    (options.project / "kernels/scale.py").write_text('MODE = "edit"\n' + KERNEL)
    result = run(replace(options, kernels=("scale",), keep_going=True))
    assert result.failures and "changed while it was being compiled" in str(result.failures[0])
    assert not list((options.project / "cache/entries").rglob("*/*"))


def test_a_source_that_cannot_be_read_is_reported_before_anything_runs(options: BuildOptions) -> None:
    def broken(path: str, *_: object) -> str:
        raise CompileError(f"{Path(path).name} is wrong")

    sys.modules[__name__].__dict__["broken"] = broken
    with pytest.raises(KbuildError) as caught:
        run(replace(options, source_digest=f"{__name__}:broken"))
    assert [error.message for error in caught.value.errors()] == ["scale.py is wrong", "shift.py is wrong"]


def test_names_that_the_manifest_does_not_have(options: BuildOptions) -> None:
    for wrong in (replace(options, archs=("sm_70",)), replace(options, kernels=("sclae",))):
        with pytest.raises(UsageError):
            run(wrong)


SCRIPT = """
import sys
from pathlib import Path
from kbuild.aot.build.project import BuildOptions, build
from kbuild.aot.build.progress import Progress
from kbuild.options import DEFAULTS
options = BuildOptions(
    project=Path(sys.argv[1]), environment={"PATH": sys.argv[2], "PYTHONPATH": sys.argv[3]}, kernels=sys.argv[4:],
    cache=Path(sys.argv[1], "cache"), compiler="tests.aot.build.fake_compiler:compile",
    source_digest="tests.aot.build.fake_compiler:source_digest",
)
sys.exit(1 if build(options, Progress()).failures else 0)
"""


def start(options: BuildOptions) -> subprocess.Popen[bytes]:
    """The same build in a process of its own."""
    command = [
        sys.executable,
        "-c",
        SCRIPT,
        str(options.project),
        os.environ["PATH"],
        str(ROOT),
        *options.kernels,
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, preexec_fn=interruptible)


def test_builds_at_once_in_one_directory(options: BuildOptions) -> None:
    builds = [start(options) for _ in range(3)]
    assert [one.wait(120) for one in builds] == [0, 0, 0]
    assert len(compiled(options)) == 2 * VARIANTS
    assert any(b"waiting for another build" in (one.stderr.read() if one.stderr else b"") for one in builds)
    together = cubins(options)
    shutil.rmtree(options.project / "build")
    run(replace(options, cache=None))
    assert cubins(options) == together


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_build_that_is_cut_off_goes_on_as_if_it_had_not_been(
    options: BuildOptions, number: signal.Signals
) -> None:
    for delay in (0.05, 0.2, 0.35):
        process = start(options)
        time.sleep(delay)
        process.send_signal(number)
        process.wait(60)
    assert not run(options).failures
    cut = cubins(options)
    assert len(cut) == 3 * 2 * VARIANTS and not list((options.project / "build").rglob("*.part"))
    shutil.rmtree(options.project / "build")
    run(replace(options, cache=None))
    assert cubins(options) == cut


def test_a_build_waits_for_what_a_killed_one_has_left_at_work(options: BuildOptions) -> None:
    """Its server takes a moment to end, and a worker of it may still be writing; here it is stopped
    meanwhile."""
    source = options.project / "kernels/scale.py"
    source.write_text('MODE = "slow"\n' + KERNEL)
    first = start(options)
    wait_until(lambda: (options.project / "kernels/at_work").exists())
    left = [
        process for process, folder in at_work(options.project).items() if "@serve" in command_line(process)
    ]
    assert len(left) > 1, "a server, and workers"
    for process in left:
        os.kill(process, signal.SIGSTOP)
    first.kill()
    first.wait(10)
    source.write_text(KERNEL)
    second = start(options)
    assert second.stderr is not None and second.stderr.readline().startswith(b"waiting for another build")
    assert second.poll() is None
    for process in left:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)
    assert second.wait(60) == 0 and len(cubins(options)) == 3 * 2 * VARIANTS


ONE = (
    package_table("demo_kernels", "sm_80")
    + """\
[[kernel]]
name = "scale"
source = "kernels/scale.py"
grid = ["cdiv(n, BLOCK)"]
args = { x = "*fp16", y = "*fp16", n = "i32" }
config = [{ BLOCK = 512, NEGATE = false }]
"""
)
"""A manifest of one variant, which a build compiles without its server."""


@pytest.mark.parametrize("manifest", ["", ONE], ids=["many steps", "one step"])
def test_a_build_that_is_killed_takes_its_steps_along(options: BuildOptions, manifest: str) -> None:
    if manifest:
        (options.project / "kernels.toml").write_text(manifest)
        options = replace(options, kernels=("scale",))
    source, project = options.project / "kernels/scale.py", options.project.resolve()
    source.write_text('MODE = "slow"\n' + KERNEL)
    process = start(options)
    wait_until(lambda: project in at_work(project).values())
    process.kill()
    process.wait(10)
    wait_until(lambda: not at_work(project))
    source.write_text(KERNEL)
    result = run(options)
    assert not result.failures and len(result.facts) == (1 if manifest else 2 * VARIANTS)
    assert not list((project / "build").rglob("*.part"))


def test_a_ninja_that_is_killed_is_reported(options: BuildOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    ninja = options.project / "ninja"
    ninja.write_text("#!/bin/sh\nkill -KILL $$\n")
    ninja.chmod(0o755)
    monkeypatch.setattr(
        toolchain, "find_ninja", lambda environment: toolchain.Tool("ninja", str(ninja), "PATH")
    )
    with pytest.raises(ToolError, match=r"ninja was ended by signal 9$"):
        run(options)


def test_paths_with_odd_characters(options: BuildOptions) -> None:
    target = options.project.parent / "a b$c'd;e é"
    shutil.copytree(options.project, target)
    odd = replace(options, project=target, cache=None)
    assert len(run(odd).facts) == 2 * VARIANTS


def test_templates_are_found_in_a_checkout() -> None:
    assert templates_directory().name == "templates"


def test_the_launcher_is_compiled_once_for_all_packages(options: BuildOptions, tmp_path: Path) -> None:
    """Its object file is in the cache, like cubins."""
    log, cc = tmp_path / "cc.log", tmp_path / "logging-cc"
    cc.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec cc "$@"\n')
    cc.chmod(0o755)
    whole = replace(options, kernels=(), environment={**options.environment, "CC": str(cc)})
    again = tmp_path / "again"
    shutil.copytree(options.project, again)
    wheels = [run(replace(whole, project=project)).wheel for project in (options.project, again)]
    assert wheels[0] and wheels[1] and wheels[0].read_bytes() == wheels[1].read_bytes()
    assert log.read_text().count("launcher/python/launcher.c") == 1
