"""Every kernel with wrong layouts in `mistakes_of_layouts.txt` gets its one message: place, line, both layouts,
advice."""

import linecache
from pathlib import Path

import pytest

import kbuild
from kbuild.errors import KbuildError

HEAD, *TEXTS = (Path(__file__).parent / "mistakes_of_layouts.txt").read_text().split("\n==== ")
PROLOGUE = HEAD.split("this:\n\n")[1]
CASES = [text.split("\n", 2) for text in TEXTS]


@pytest.mark.parametrize(("title", "types", "rest"), CASES, ids=[case[0] for case in CASES])
def test_message(title: str, types: str, rest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, expected = rest.split("----\n")
    monkeypatch.chdir(tmp_path)
    Path("k.py").write_text(f"{PROLOGUE.rstrip()}\n@gluon.jit\n{kernel}")
    linecache.clearcache()
    signature = dict(item.split("=") for item in types.split())
    with pytest.raises(KbuildError) as caught:
        kbuild.compile("k.py:k", signature=signature, constexprs={}, target="sm_90", stop="ttgir")
    assert str(caught.value).replace(f"{tmp_path}/", "") == expected.strip("\n")
