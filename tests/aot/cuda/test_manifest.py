"""Kernels in CUDA C++ in a manifest: what is read from the source, and the message for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.aot.manifest.expand import Variant, expand
from kbuild.aot.manifest.load import load
from kbuild.options import CUDA, TRITON
from tests.aot.cuda.conftest import edit
from tests.aot.manifest.mistakes import mistakes

MATMUL, SCALE = 'kernel "matmul": ', 'kernel "scale": '
CASES = [
    [line[2:].replace("\\n", "\n") for line in lines] + [lines[2][0]]
    for case in (Path(__file__).parent / "mistakes.txt").read_text().split("\n\n")[1:]
    for lines in [case.splitlines()]
]


@pytest.mark.parametrize("old, new, message, kind", CASES, ids=[case[2][:50] for case in CASES])
def test_one_mistake(project: Path, old: str, new: str, message: str, kind: str) -> None:
    edit(project / "kernels.toml", old, new)
    found = mistakes(project)
    assert any(each.startswith(message) for each in found), "\n".join(found)
    assert len(found) == 1 or kind == "*", "\n".join(found)


@pytest.mark.parametrize(
    "key", ["block = [16, 16]", "shared = 1024", 'include = ["kernels"]'], ids=["block", "shared", "include"]
)
def test_keys_of_cuda_are_refused_for_kernels_in_triton_s_language(project: Path, key: str) -> None:
    edit(
        project / "kernels.toml",
        'source = "kernels/scale.cu"\nfunction = "tools::scale_all"\nblock = [128]',
        f'source = "kernels/scale.py"\n{key}',
    )
    name = key.partition(" ")[0]
    assert any(f"{SCALE}{name}: is for kernels in CUDA C++" in message for message in mistakes(project))


def test_headers_lie_in_the_project(project: Path) -> None:
    (project.parent / "outside.cuh").write_text("")
    edit(project / "kernels/matmul.cu", '"index.cuh"', '"../../outside.cuh"')
    (message,) = mistakes(project)
    assert message.startswith(f"9: {MATMUL}source: ") and "which is outside the project" in message


def test_what_is_read_from_the_source(project: Path) -> None:
    manifest = load(project / "kernels.toml")
    matmul, scale = manifest.kernels
    assert (matmul.language, matmul.function, matmul.block) == (CUDA, "matmul", ("TILE", "TILE"))
    assert matmul.doc == "Multiplies two matrices by tiles in shared memory."
    assert [axis.default for axis in matmul.matrix] == [None, False]
    assert [argument.name for argument in matmul.args] == ["a", "b", "c", "M", "N", "K", "alpha"]
    assert scale.function == "tools::scale_all" and scale.configs[0].constexprs == (("FACTOR", 3),)


def test_variants_have_their_block_and_read_back_from_their_text(project: Path) -> None:
    for variant in expand(load(project / "kernels.toml")).variants:
        assert Variant.parse(str(variant)) == variant
        size = dict(variant.constexprs).get("TILE")
        assert variant.options.threads == ((size, size, 1) if size else (128, 1, 1))


def test_options_of_cuda_are_free_names_in_triton_s_language(project: Path) -> None:
    (project / "kernels/scale.py").write_text(
        "import triton, triton.language as tl\n@triton.jit\n"
        "def scale_kernel(x, y, n, cpp_std: tl.constexpr, use_fast_math: tl.constexpr = 1): pass\n"
    )
    text = (project / "kernels.toml").read_text()
    start = text.index('[[kernel]]\nname = "scale"')
    (project / "kernels.toml").write_text(
        text[: text.index("[[kernel]]")]
        + '[[kernel]]\nname = "scale"\nsource = "kernels/scale.py"\ngrid = ["1"]\n'
        + 'args = { x = "*fp32", y = "*fp32", n = "i64" }\nconfig = [{ cpp_std = 3 }]\n'
    )
    assert start
    (kernel,) = load(project / "kernels.toml").kernels
    assert kernel.language == TRITON and dict(kernel.configs[0].constexprs)["cpp_std"] == 3
