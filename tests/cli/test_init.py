"""`kbuild init` as a user sees it: files, messages and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbuild import cli
from tests.aot.init.sources import HEAD, MATMUL, SOFTMAX, VECTOR_ADD


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with kernels and no manifest, which is the current one."""
    (tmp_path / "demo/kernels").mkdir(parents=True)
    for name, text in {"add": VECTOR_ADD, "softmax": SOFTMAX, "matmul": MATMUL, "plain": "x = 1\n"}.items():
        (tmp_path / f"demo/kernels/{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path / "demo")
    return tmp_path / "demo"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of one command."""
    code = cli.main(["init", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_manifest_is_written_and_listed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "kernels/add.py", "kernels/matmul.py")
    assert code == 0 and out == ""
    assert "kernels.toml:15: n_elements: guessed i32\n" in err and err.endswith(
        "wrote kernels.toml: 2 kernels\n"
    )
    text = (project / "kernels.toml").read_text()
    assert 'name = "demo"' in text and 'source = "kernels/add.py"' in text
    assert text.splitlines()[14].startswith('args = { "x_ptr, y_ptr, output_ptr" = "*{dtype}"')
    assert cli.main(["list", "-q"]) == 0
    names = capsys.readouterr().out.split()
    assert sum(name.startswith("add.") for name in names) == 6 and any(
        name.startswith("matmul.") for name in names
    )


def test_a_manifest_is_never_overwritten(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "kernels.toml").write_text("mine\n")
    code, _, err = run(capsys, "kernels/add.py")
    assert code == 2 and err == (
        "error: kernels.toml is there already\n"
        "help: --append adds the kernels that it does not have, --output FILE writes another file\n"
    )
    assert (project / "kernels.toml").read_text() == "mine\n"
    assert run(capsys, "kernels/add.py", "--output", "other.toml", "-q") == (0, "", "")
    assert (project / "other.toml").is_file()


def test_a_dry_run_prints_the_manifest(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "kernels/add.py", "--dry-run")
    assert (
        code == 0
        and '[[kernel]]\nname = "add"\n' in out
        and err.endswith("would write kernels.toml: 1 kernel\n")
    )
    assert not (project / "kernels.toml").exists()


def test_append_adds_what_is_not_there(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "kernels/add.py", "-q")[0] == 0
    before = (project / "kernels.toml").read_text()
    code, _, err = run(capsys, "kernels/add.py", "kernels/softmax.py", "--append")
    after = (project / "kernels.toml").read_text()
    assert code == 0 and after.startswith(before) and after.count("[[kernel]]") == 2
    assert "kernels/add.py:add_kernel is there already, as add\n" in err
    line = next(number for number, text in enumerate(after.splitlines(), 1) if text.startswith("grid_args"))
    assert f"kernels.toml:{line}: n_rows: guessed i32; x.shape[0] in the wrapper\n" in err
    code, _, err = run(capsys, "kernels/softmax.py", "--append")
    assert code == 0 and err.endswith("nothing to add to kernels.toml\n")
    assert (project / "kernels.toml").read_text() == after
    assert cli.main(["list", "-q"]) == 0


def test_append_keeps_the_last_line_of_a_file_without_a_line_break(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "kernels/add.py", "-q")
    text = (project / "kernels.toml").read_text().rstrip("\n")
    (project / "kernels.toml").write_text(text)
    assert run(capsys, "kernels/softmax.py", "--append", "-q")[0] == 0
    assert (project / "kernels.toml").read_text().startswith(text + "\n\n[[kernel]]\n")


def test_json_lists_the_guesses(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "kernels/add.py", "--json", "-q")
    result = json.loads(out)
    assert code == 0 and result["kernels"] == ["add"] and result["manifest"] == "kernels.toml"
    assert {"line": 15, "subject": "n_elements", "text": "guessed i32"} in result["guesses"]


def test_functions_are_chosen_by_name(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(
        capsys, "kernels/matmul.py:matmul_kernel", "kernels/add.py:add_kernel", "--dry-run", "-q"
    )
    assert code == 0 and out.count("[[kernel]]") == 2
    code, out, _ = run(capsys, "kernels/matmul.py:leaky_relu,matmul_kernel", "--dry-run", "-q")
    assert code == 0 and out.count("[[kernel]]") == 2


MISTAKES = {
    "kernels/ad.py": "error: no file kernels/ad.py\nhelp: did you mean add.py?\n",
    "kernels/add.py:ad_kernel": "error: kernels/add.py has no function ad_kernel\nhelp: did you mean add_kernel?\n",
    "kernels/add.py:": "error: kernels/add.py:: no function is named\nhelp: write FILE.py:function, or FILE.py for all\n",
    "kernels/add.py:add": (
        "kernels/add.py:13:1: error: add is not a kernel\n    def add(x: torch.Tensor, y: torch.Tensor):\n    ^\n"
        "help: kernels are functions at the top level, decorated with @triton.jit or @gluon.jit\n"
    ),
    "kernels/plain.py": (
        "error: kernels/plain.py has no kernel\n"
        "help: kernels are functions at the top level, decorated with @triton.jit or @gluon.jit\n"
    ),
    "kernels": "error: kernels is not a Python file\nhelp: a manifest names files *.py\n",
    "../outside.py": (
        "error: ../outside.py is not below ., the manifest's directory\n"
        "help: -o FILE writes the manifest elsewhere, -C DIR names another project\n"
    ),
    "kernels/loop.py": "error: no file kernels/loop.py\n",
    "kernels/a\tb.py": "error: a manifest cannot name the file 'kernels/a\\tb.py'\nhelp: give it another name\n",
    "kernels/broken.py": ("kernels/broken.py:2:6: error: '(' was never closed\n    def f(x:\n         ^\n"),
}


@pytest.mark.parametrize("argument", MISTAKES)
def test_mistakes_are_told(argument: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "kernels/broken.py").write_text("import triton\ndef f(x:\n")
    (project.parent / "outside.py").write_text(VECTOR_ADD)
    (project / "kernels/loop.py").symlink_to("loop.py")
    code, out, err = run(capsys, argument)
    assert (out, err.replace(str(project), ".")) == ("", MISTAKES[argument]) and code in (1, 2)
    assert not (project / "kernels.toml").exists()


HOSTILE = {
    "not text": b"\xff\xfe\x00",
    "a null byte": b"x = '\0'\n",
    "deep": ("x = " + "-" * 50_000 + "1\n").encode(),
    "deep in a kernel": (
        HEAD + "@triton.jit\ndef f(x):\n    tl.store(x + " + "1 + " * 5_000 + "1, 0)\n"
    ).encode(),
    "cyclic names": (
        HEAD + "@triton.jit\ndef f(x, n):\n    a = b\n    b = a\n    a += b * n\n    tl.store(x + a, b)\n"
    ).encode(),
    "cyclic calls": (HEAD + "@triton.jit\ndef f(x):\n    g(x)\n@triton.jit\ndef g(x):\n    f(x)\n").encode(),
    "endless configs": (
        HEAD
        + "def c():\n    return c()\n@triton.autotune(c(), key=[])\n@triton.jit\ndef f(x):\n    tl.store(x, 1)\n"
    ).encode(),
    "large configs": (
        HEAD
        + "@triton.autotune([triton.Config({}) for a in range(10**9)], [])\n@triton.jit\ndef f(x):\n    tl.store(x, 1)\n"
    ).encode(),
    "names that manifests lack": (HEAD + "@triton.jit\ndef f(stream):\n    tl.store(stream, 1)\n").encode(),
    "quotes": (
        HEAD + "@triton.jit\ndef f(x, M: tl.constexpr):\n    if M == 'a\"\\\\\\n':\n        tl.store(x, 1)\n"
    ).encode(),
    "no arguments": (HEAD + "@triton.jit\ndef f():\n    pass\n").encode(),
    "variadic": (HEAD + "@triton.jit\ndef f(*xs, n=1, **kw):\n    tl.store(xs[0], n)\n").encode(),
    "unicode": (HEAD + "@triton.jit\ndef größe_kernel(wert):\n    tl.store(wert, 1)\n").encode(),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_file_ends_in_a_traceback(name: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "kernels/it.py").write_bytes(HOSTILE[name])
    code, _, err = run(capsys, "kernels/it.py")
    assert "Traceback" not in err and "bug" not in err and "does not load" not in err
    assert (code == 0) == (project / "kernels.toml").exists()
    if code == 0:
        assert cli.main(["list", "-q"]) == 0
