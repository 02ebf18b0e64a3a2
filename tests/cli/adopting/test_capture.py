"""`kbuild capture` as a user sees it: a command runs, and what it asked Triton for is in a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kbuild import cli
from kbuild.aot.capture.hook.origin import is_known, module_of
from kbuild.aot.capture.records import Capture, CapturedVariant, read_captures
from tests.cli.adopting.conftest import Recording


def of(capture: Capture, name: str) -> list[CapturedVariant]:
    """The variants of the kernel of that name."""
    ids = {kernel.id for kernel in capture.kernels.values() if kernel.name == name}
    return [variant for variant in capture.variants.values() if variant.kernel in ids]


def test_each_specialisation_is_recorded_once(record: Recording) -> None:
    found = record()
    names = ["add_kernel", "made.<locals>.times", "norm_kernel", "scale_kernel"]
    assert sorted(kernel.name for kernel in found.kernels.values()) == names
    thousand, many, *_ = of(found, "add_kernel")
    assert thousand.args == {"x": "*fp16:16", "y": "*fp16:16", "out": "*fp16:16", "n": "i32"}
    assert many.args["n"] == "i32:16" and many.constexprs == {"BLOCK": 1024}
    assert (thousand.count, many.count) == (1, 2)
    (launch,) = many.launches.values()
    assert launch["grid"] == [4] and launch["values"]["n"] == 4096
    assert launch["values"]["x"] == {"shape": [4096], "strides": [1]}
    assert found.facts == {"triton": ["3.6.0"], "python": [sys.version.split()[0]], "device": ["sm_90"]}


def test_a_pointer_that_is_none_has_no_type(record: Recording) -> None:
    without, given = of(record(), "norm_kernel")[:2]
    assert without.args["bias"] == "none" and given.args["bias"] == "*fp16:16"
    assert without.options == {"num_warps": 4}


def test_all_versions_of_triton_say_the_same(record: Recording, project: Path) -> None:
    new = record()
    (project / "capture.jsonl").unlink()
    old = record(STAND_IN_TRITON="3.2.0")
    assert old.facts["triton"] == ["3.2.0"]
    assert [(one.args, one.constexprs) for one in old.variants.values()] == [
        (one.args, one.constexprs) for one in new.variants.values()
    ]
    assert list(old.kernels) == list(new.kernels)


def test_what_a_tuner_tries_is_not_what_was_asked_for(record: Recording) -> None:
    small, large, *_ = of(record(), "scale_kernel")
    assert small.constexprs == {"EVEN": True, "BLOCK": 64} and small.options["num_warps"] == 2
    assert large.constexprs == {"EVEN": True, "BLOCK": 128} and large.options["num_warps"] == 8
    assert (small.count, large.count) == (2, 1)
    assert [launch["key"] for launch in small.launches.values()] == [{"n": 640}]
    assert small.tuned == ("BLOCK", "num_ctas", "num_stages", "num_warps") and small.derived == ("EVEN",)


def test_all_processes_take_what_one_of_their_tuners_has_chosen(record: Recording) -> None:
    program = """\
import os, subprocess, sys
from lib.ops import Tensor, scale, scale_kernel

scale(Tensor(640))
if len(sys.argv) == 1:
    other = {**os.environ, "STAND_IN_FASTEST": "1"}
    subprocess.run([sys.executable, __file__, "other"], check=True, env=other)
else:
    assert scale_kernel.best_config is scale_kernel.configs[0] and len(scale_kernel.configs) == 2
    scale(Tensor(64))
"""
    found = record(program=program)
    assert len(found.processes) == 2
    chosen = {
        launch["key"]["n"]: variant.constexprs["BLOCK"]
        for variant in of(found, "scale_kernel")
        for launch in variant.launches.values()
    }
    assert chosen == {640: 64, 64: 128}


def test_a_process_waits_for_another_that_tries_the_same_configurations(record: Recording) -> None:
    program = """\
import os, subprocess, sys, time
from lib.ops import Tensor, scale, scale_kernel

if len(sys.argv) == 1:
    ways = [{**os.environ, "STAND_IN_FASTEST": str(number % 2)} for number in range(6)]
    made = [subprocess.Popen([sys.executable, __file__, "one"], env=way) for way in ways]
    sys.exit(max(one.wait() for one in made))
bench = type(scale_kernel)._bench
type(scale_kernel)._bench = lambda *args, **kwargs: time.sleep(0.1) or bench(*args, **kwargs)
scale(Tensor(640))
"""
    found = record(program=program)
    assert len(found.processes) == 6 and [variant.count for variant in of(found, "scale_kernel")] == [6]


def test_a_tuner_chooses_for_each_type(record: Recording) -> None:
    # Types of descriptors are no part of Triton's key, and none at all of the stand-in's.
    program = """\
import os
from lib.ops import Tensor, scale, scale_kernel

scale(Tensor(640, dtype="fp16"))
os.environ["STAND_IN_FASTEST"] = "1"
scale(Tensor(640, dtype="fp32"))
assert scale_kernel.best_config is scale_kernel.configs[1] and len(scale_kernel.cache) == 1
scale(Tensor(640, dtype="fp16"))
assert scale_kernel.best_config is scale_kernel.configs[0]
"""
    found = of(record(program=program), "scale_kernel")
    assert {one.args["x"]: (one.constexprs["BLOCK"], one.count) for one in found} == {
        "*fp16:16": (64, 2),
        "*fp32:16": (128, 1),
    }


def test_every_key_of_a_tuner_is_kept(record: Recording) -> None:
    program = "from lib.ops import Tensor, scale\nfor n in range(16, 1000, 16): scale(Tensor(n))\n"
    variants = of(record(program=program), "scale_kernel")
    assert sum(len(variant.launches) for variant in variants) == 62


def test_constants_from_around_a_kernel_are_part_of_it(record: Recording) -> None:
    kernel = next(one for one in record().kernels.values() if one.name.endswith("times"))
    times, above = kernel.parts
    assert times.values == {"factor": 3.0} and times.calls == {"above": "lib.shared:above"}
    assert above.values == {"EPS": 1e-06} and above.imports == {"tl": "triton.language"}
    assert times.text.startswith("def times(") and times.file == "lib/ops.py"


def test_comments_and_places_do_not_change_a_digest_and_constants_do(
    record: Recording, project: Path
) -> None:
    def digests() -> dict[str, str]:
        (project / "capture.jsonl").unlink(missing_ok=True)
        return {kernel.name: kernel.digest for kernel in record().kernels.values()}

    before, shared = digests(), project / "lib/shared.py"
    shared.write_text(shared.read_text().replace("# The least", "\n    # Another word,"))
    assert digests() == before
    shared.write_text(shared.read_text().replace("1e-6", "1.5e-6"))  # Of another size, for Python to see it.
    changed = digests()
    assert {name for name in before if changed[name] != before[name]} == {
        "norm_kernel",
        "made.<locals>.times",
    }


def test_without_a_gpu_a_device_does_nothing(record: Recording) -> None:
    assert not record(code=1, STAND_IN_GPU="").kernels
    found = record("--device", "sm_80", STAND_IN_GPU="")
    assert len(found.variants) == 18 and found.facts["device"] == ["sm_80"]


def test_no_time_passes_on_a_device_that_does_nothing(record: Recording) -> None:
    program = """\
from triton.testing import do_bench
from lib.ops import Tensor, add
call = lambda: add(Tensor(16), Tensor(16))
assert do_bench(call) == do_bench(call, return_mode="median") == do_bench(call, quantiles=[0.5]) > 0
assert len(do_bench(call, warmup=1, rep=1, quantiles=(0.5, 0.2, 0.8))) == 3 and len(do_bench(call, return_mode="all")) == 1
"""
    (add,) = of(record("--device", "sm_90", program=program), "add_kernel")
    assert add.count == 5


def test_forks_and_threads_record_by_themselves(record: Recording, project: Path) -> None:
    program = """\
import os, threading
from lib.ops import Tensor, add

add(Tensor(16), Tensor(16))
child = os.fork()
if not child:
    add(Tensor(16), Tensor(16))
    add(Tensor(17), Tensor(17))
    os._exit(0)
threads = [threading.Thread(target=lambda: [add(Tensor(32), Tensor(32)) for _ in range(50)]) for _ in range(4)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
os.waitpid(child, 0)
"""
    found = record(program=program)
    assert len(found.processes) == 2
    by_hint = {variant.args["n"]: variant.count for variant in of(found, "add_kernel")}
    assert by_hint.keys() == {"i32:16", "i32"} and by_hint["i32"] == 1 and by_hint["i32:16"] >= 150


def test_a_process_that_dies_leaves_what_it_has_seen(record: Recording) -> None:
    program = """\
import os, signal
from lib.ops import Tensor, add
add(Tensor(16), Tensor(16))
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert len(record(program=program, code=137).variants) == 1


def test_a_mistake_in_a_kernel_is_the_librarys_own(record: Recording) -> None:
    program = """\
from lib.ops import Tensor, broken_kernel, add
try:
    broken_kernel[(1,)](Tensor(1), BLOCK=1)
except ValueError as error:
    assert str(error) == "a mistake in the kernel"
    add(Tensor(1), Tensor(1))
"""
    assert len(record(program=program).variants) == 1


def test_a_launch_that_cannot_be_recorded_is_launched(record: Recording) -> None:
    program = """\
from lib.ops import Tensor, add
class Odd(Tensor):
    def stride(self): raise RuntimeError("no strides")
add(Odd(16), Odd(16))
print("done", file=open("done", "w"))
"""
    found = record(program=program)
    assert Path("done").exists() and "no strides" in str(found.failed)


def test_a_full_disk_is_no_reason_for_a_launch_to_fail(record: Recording) -> None:
    program = """\
import os, shutil
from lib.ops import Tensor, add, scale
shutil.rmtree(os.environ["KBUILD_CAPTURE"])
open(os.environ["KBUILD_CAPTURE"], "w").close()
add(Tensor(16), Tensor(16)), scale(Tensor(16))
os.remove(os.environ["KBUILD_CAPTURE"])
os.mkdir(os.environ["KBUILD_CAPTURE"])
"""
    assert not record(program=program).kernels


def test_captures_extend_and_join(
    record: Recording, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = record()
    second = record()
    assert second.variants.keys() == first.variants.keys() and second.launches == 2 * first.launches
    assert (
        cli.main(["capture", "--merge", "capture.jsonl", "--merge", "capture.jsonl", "-o", "both.jsonl"]) == 0
    )
    assert (project / "both.jsonl").read_bytes() == (project / "capture.jsonl").read_bytes()
    expected = "both.jsonl: 4 kernels, 18 variants, 44 launches, 2 processes\n"
    assert capsys.readouterr().err == expected


def test_json_says_how_much_was_seen(record: Recording, capsys: pytest.CaptureFixture[str]) -> None:
    record("--json")
    found = json.loads(capsys.readouterr().out)
    assert found["variants"] == 18 and found["exit_code"] == 0 and found["failed"] == {}


def test_the_environments_own_sitecustomize_is_imported(record: Recording, project: Path) -> None:
    (project / "sitecustomize.py").write_text("import builtins\nbuiltins.mine = 'here'\n")
    record(program="from lib.ops import Tensor, add\nadd(Tensor(1), Tensor(1))\nassert mine == 'here'\n")


def test_a_process_without_triton_is_left_alone(record: Recording, project: Path) -> None:
    program = """\
import sys
assert not [name for name in sys.modules if name.startswith(("triton", "numpy"))], "nothing is imported"
"""
    assert not record(program=program).kernels and not (project / "capture.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "error: no command to run\nhelp: kbuild capture -- COMMAND"),
        (["--", "no-such-program"], "error: no program 'no-such-program'\n"),
        (["--merge", "nothing.jsonl"], "nothing.jsonl: No such file or directory"),
        (["--merge", "other.jsonl"], "other.jsonl:1: not a line of kbuild capture\n"),
        (
            ["--merge", "new.jsonl"],
            "new.jsonl:1: a capture of schema 99, and this kbuild reads schema 1; capture again",
        ),
        (["-o", "lib", "--", "true"], "error: lib is a directory\n"),
        (["-o", "other.jsonl", "--", "true"], "other.jsonl:1: not a line of kbuild capture\n"),
    ],
)
def test_mistakes(project: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    (project / "other.jsonl").write_text("hello\n")
    (project / "new.jsonl").write_text('{"kbuild": "capture", "schema": 99, "process": "1"}\n')
    assert cli.main(["capture", *words]) == 2
    assert capsys.readouterr().err.startswith(message)


def test_a_line_that_was_cut_off_is_the_last(project: Path, record: Recording) -> None:
    whole = record()
    data = (project / "capture.jsonl").read_bytes()
    (project / "cut.jsonl").write_bytes(data[:-20])
    assert read_captures([project / "cut.jsonl"]).variants.keys() == whole.variants.keys()
    (project / "cut.jsonl").write_bytes(data[:300] + b"\n" + data[300:])
    assert cli.main(["capture", "--merge", "cut.jsonl"]) == 2


def test_what_is_compiled_without_a_launch_is_captured(record: Recording) -> None:
    """As torch's compiler does with the kernels that it writes."""
    program = (
        "from triton.compiler import ASTSource, compile\nfrom lib.ops import Tensor, add, add_kernel\n"
        "signature = {'x': '*fp32', 'y': '*fp32', 'out': '*fp32', 'n': 'i32', 'BLOCK': 'constexpr'}\n"
        "for block in (64, 128, 64):\n"
        "    source = ASTSource(add_kernel, signature, {(4,): block}, {(0,): [['tt.divisibility', 16]]})\n"
        "    compile(source, options={'num_warps': 2, 'sanitize_overflow': False})\n"
        "add(Tensor(16), Tensor(16))\n"
    )
    capture = record(program=program)
    found = [(one.constexprs["BLOCK"], one.count, one.options) for one in of(capture, "add_kernel")]
    options = {"num_warps": 2, "sanitize_overflow": False}
    assert found == [(64, 0, options), (128, 0, options), (1024, 1, {})] and not capture.failed
    assert [one.args["x"] for one in capture.variants.values()] == ["*fp32:16"] * 3


def test_what_torchs_compiler_writes_is_no_part_of_the_language() -> None:
    assert is_known("torch._inductor.runtime.triton_helpers")
    assert not is_known("torch._inductor.runtime.compile_tasks.cte2rbqfaji7gkmgjgy2")


@pytest.mark.parametrize(
    ("file", "module"),
    [("use.py", "use"), ("my-tool.py", "my_tool"), ("01 intro.py", "_01_intro"), ("run", "run")],
)
def test_a_program_has_a_name_that_modules_may_have(file: str, module: str) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile("def kernel(): pass", f"/somewhere/{file}", "exec"), names)
    assert module_of(names["kernel"]) == module
