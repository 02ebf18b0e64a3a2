"""`variants = "FILE.jsonl"`: lists of variants that do not multiply, and the mistakes in them, each with its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbuild.aot.manifest.expand import Expansion, expand, notes_on_size
from kbuild.aot.manifest.load import load
from kbuild.errors import KbuildError
from tests.manifests import package_table

KERNEL = """\
import triton
import triton.language as tl

@triton.jit
def scale_kernel(x, bias, y, n, FACTOR: tl.constexpr, BLOCK: tl.constexpr, LAST: tl.constexpr = 1):
    places = tl.arange(0, BLOCK)
    tl.store(y + places, tl.load(x + places, mask=places < n) * FACTOR, mask=places < n)
"""
TABLE = """\
[[kernel]]
name = "scale"
source = "scale.py"
grid = ["1"]
args = { "x, y" = "*{dtype}:16", n = "i32" }
variants = "scale.jsonl"
"""
HEADER = {
    "kbuild": "variants",
    "schema": 1,
    "axes": ["dtype", "FACTOR"],
    "hints": ["n"],
    "config": ["bias", "BLOCK", "num_warps"],
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "scale.py").write_text(KERNEL)
    (tmp_path / "kernels.toml").write_text(package_table("demo", "sm_80", "sm_90") + TABLE)
    return tmp_path


def expansion(project: Path, *rows: object, header: object = HEADER) -> Expansion:
    """The variants of a list with these rows; a string is a line as it is."""
    lines = [row if isinstance(row, str) else json.dumps(row) for row in (header, *rows)]
    (project / "scale.jsonl").write_text("\n".join(lines) + "\n")
    return expand(load(project / "kernels.toml", "kernels.toml"))


def test_each_row_is_a_variant_of_each_architecture(project: Path) -> None:
    found = expansion(
        project,
        [["fp16", 2], ["16"], [None, 64, 4]],
        [["fp32", 2], [""], [None, 128, 8]],
        [["fp16", 3], [""], [None, 64, 4]],
    )
    first, second, *_ = found.variants
    assert len(found.variants) == 6 and not found.excluded
    assert first.name == "scale.sm_80.fp16.FACTOR=2.n=d16.BLOCK=64,LAST=1.w4s3"
    assert dict(first.signature) == {"x": "*fp16:16", "y": "*fp16:16", "n": "i32:16"}
    assert first.constexprs == (("bias", None), ("BLOCK", 64), ("LAST", 1))
    assert second.name == "scale.sm_80.fp32.FACTOR=2.BLOCK=128,LAST=1.w8s3"


def test_facts_come_before_what_they_leave(project: Path) -> None:
    found = expansion(
        project,
        [["fp16", 2], [""], [None, 64, 4], ["n <= 64"]],
        [["fp16", 2], [""], [None, 128, 4], ["n>64", "n<=128"]],
        [["fp16", 2], [""], [None, 256, 4]],
    )
    assert [[str(guard) for guard in one.guards] for one in found.variants[:3]] == [
        ["n<=64"],
        ["n>64", "n<=128"],
        [],
    ]


def test_thousands_of_rows_are_read_in_no_time(project: Path) -> None:
    rows = [[["fp16", factor], [hint], [None, 64, 4]] for factor in range(1000) for hint in ("", "16")]
    assert len(expansion(project, *rows).variants) == 4000
    manifest = load(project / "kernels.toml", "kernels.toml")
    (note,) = notes_on_size(manifest, expand(manifest))
    assert note == (
        'kernel "scale": 4,000 variants, of 2 archs × the rows of scale.jsonl; delete rows that nobody calls'
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            ["hello"],
            "scale.jsonl:2: not a variant: expected a list of lists with 2 of axes, 1 of hints, 3 of config",
        ),
        ([[["fp16"], [""], [None, 64, 4]]], "scale.jsonl:2: not a variant"),
        ([[["fp61", 2], [""], [None, 64, 4]]], 'dtype: unknown type "fp61"; did you mean "fp64"?'),
        (
            [[["fp16", [2]], [""], [None, 64, 4]]],
            "FACTOR: expected a flag, a finite number, a plain word or a layout",
        ),
        ([[["fp16", None], [""], [None, 64, 4]]], "FACTOR: expected a flag, a finite number"),
        ([[["fp16", 2], ["3"], [None, 64, 4]]], 'n: "3" is not a hint; write "", "4", "8", "16", "1"'),
        ([[["fp16", 2], [""], [None, 64, 3]]], "num_warps: expected 1, 2, 4, 8, 16 or 32, found the int 3"),
        ([[["fp16", 2], [""], [None, 64, 4], ["m <= 4"]]], "m is not a run-time argument"),
        ([[["fp16", 2], [""], [None, 64, 4], ["n near 4"]]], "expected a fact such as M<=64"),
        (
            [[["fp16", 2], [""], [None, 64, 4]], [["fp16", True], [""], [None, 64, 4]]],
            "scale.jsonl:3: FACTOR: true is of another type than the int 2 before it",
        ),
        (
            [[["fp16", 2], [""], [None, 64, 4]], [["fp16", 2], [""], [None, 128, 4], ["n<=4"]]],
            "scale.jsonl:3: is never used: line 2 applies wherever it does",
        ),
        ([], "the list has no variants"),
    ],
)
def test_mistakes_in_rows(project: Path, rows: list[object], message: str) -> None:
    assert message in failure(project, *rows)


def test_rows_for_several_ctas_take_architectures_with_clusters(project: Path) -> None:
    header = {**HEADER, "config": ["bias", "BLOCK", "num_ctas"]}
    rows = [["fp16", 2], [""], [None, 64, None]], [["fp16", 3], [""], [None, 64, 2]]
    message = "scale.jsonl:3: num_ctas: is 2, but sm_80 has no thread_block_clusters; it takes sm_90 or"
    assert message in failure(project, *rows, header=header)
    manifest = project / "kernels.toml"
    manifest.write_text(manifest.read_text().replace('"sm_80", ', ""))
    found = expansion(project, *rows, header=header)
    assert [one.options.num_ctas for one in found.variants] == [1, 2]


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("hello", "scale.jsonl:1: not a list of variants: its first line is not that of kbuild import"),
        ({**HEADER, "schema": 2}, "a list of schema the int 2, and this kbuild reads schema 1"),
        ({**HEADER, "axes": "dtype"}, "axes: expected a list of names"),
        ({**HEADER, "axes": ["dtype", "dtype", "FACTOR"]}, "dtype is given twice"),
        ({**HEADER, "axes": ["dtype", "a b", "FACTOR"]}, '"a b" is not a name'),
        ({**HEADER, "hints": ["m"]}, "m is not a run-time argument"),
        ({**HEADER, "config": ["bias", "BLOK"]}, 'the kernel has no parameter BLOK; did you mean "BLOCK"?'),
        ({**HEADER, "config": ["bias"]}, 'constexpr "BLOCK" has no value; name it in axes or config'),
    ],
)
def test_mistakes_in_the_first_line(project: Path, header: object, message: str) -> None:
    assert message in failure(project, header=header)


def failure(project: Path, *rows: object, header: object = HEADER) -> str:
    """What is wrong, a line for each mistake: place, message and advice."""
    with pytest.raises(KbuildError) as caught:
        expansion(project, *rows, header=header)
    places = [(one, one.loc) for one in caught.value.errors() if one.loc]
    texts = [f"{Path(loc.file).name}:{loc.line}: {one.message}; {one.help}" for one, loc in places]
    return "\n".join(text.replace('kernel "scale": ', "") for text in texts)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"scale.jsonl"', '"none.jsonl"', 'kernels.toml:12: variants: no file "none.jsonl" in the project'),
        ('"scale.jsonl"', '"scale.csv"', '"scale.csv" is not a list of variants; its name ends in .jsonl'),
        (
            "[[kernel]]",
            "[[kernel]]\nmatrix = { FACTOR = [2] }",
            "matrix: the list of variants says it: scale.jsonl",
        ),
        (
            "[[kernel]]",
            "[[kernel]]\nconfig = [{ BLOCK = 64 }]",
            "config: the list of variants says it: scale.jsonl",
        ),
        ('n = "i32"', 'n = "i32", bias = "i32"', "args.bias: is given by the list of variants too"),
        ('"scale.py"', '"other.py"', 'source: no Python file "other.py"'),
        (
            '"scale.py"',
            '"no-such-wheel:scale.py"',
            "source: no-such-wheel is not installed; pip install no-such-wheel",
        ),
        ("[[kernel]]", '[[kernel]]\ndigest = "12"', 'digest: "12" is not a digest; kbuild import writes it'),
        (
            "[[kernel]]",
            f'[[kernel]]\ndigest = "{"0" * 64}"',
            "digest: scale_kernel of scale.py is not what was captured",
        ),
    ],
)
def test_mistakes_in_the_manifest(project: Path, old: str, new: str, message: str) -> None:
    manifest = project / "kernels.toml"
    manifest.write_text(manifest.read_text().replace(old, new))
    found = failure(project, [["fp16", 2], [""], [None, 64, 4]])
    assert message in found and found.count("\n") == 0
