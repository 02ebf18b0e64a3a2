"""The digest of a kernel changes with its meaning, and with nothing else."""

import pytest

from kbuild.compiler.frontend.sources.digest import closure, source_digest
from kbuild.compiler.frontend.sources.files import find_function

HELPER = """\
import triton
import triton.language as tl
SCALE = tl.constexpr(3)
OTHER = 5

@triton.jit
def scaled(x):
    return x * SCALE

@triton.jit
def unused(x):
    return x
"""
KERNEL = """\
import triton
import triton.language as tl
from helper import scaled
import helper
LIMIT = tl.constexpr(8)
FACTOR = 2

@triton.autotune(configs=[triton.Config({"B": 16})], key=[])
@triton.jit
def k(X, B: tl.constexpr = 4, C: tl.constexpr = FACTOR):
    x = tl.load(X + tl.arange(0, B))
    tl.store(X, tl.sum(scaled(x)) + LIMIT)

def launch():
    return k
"""


@pytest.fixture
def digest(tmp_path):
    def of(kernel=KERNEL, helper=HELPER, places=False):
        (tmp_path / "kernel.py").write_text(kernel)
        (tmp_path / "helper.py").write_text(helper)
        return source_digest(str(tmp_path / "kernel.py"), "k", places)

    return of


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    x = tl.load", "    # a comment\n\n    x = tl.load"),
        ("    x = tl.load", '    """A docstring."""\n    x  =  tl.load'),
        ("import helper\n", "import helper\nimport os, sys\n\n\n"),
        ("    return k\n", "    return k, k\n"),
        ('{"B": 16}', '{"B": 32, "C": helper.OTHER}'),
        ("LIMIT = tl.constexpr(8)", "LIMIT = tl.constexpr(4 + 4)"),
        ("OTHER = 5", "OTHER = 6"),
        ("return x\n", "return x + 1\n"),
        ("    return x * SCALE", "    # comment\n    return (x * SCALE)"),
    ],
)
def test_edits_that_do_not_matter(digest, old, new):
    assert old in KERNEL + HELPER
    assert digest() == digest(KERNEL.replace(old, new), HELPER.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tl.sum", "tl.max"),
        ("B: tl.constexpr = 4", "B: tl.constexpr = 8"),
        ("B: tl.constexpr", "B"),
        ("LIMIT = tl.constexpr(8)", "LIMIT = tl.constexpr(9)"),
        ("SCALE = tl.constexpr(3)", "SCALE = tl.constexpr(3.0)"),
        ("x * SCALE", "x + SCALE"),
        ("tl.sum(scaled(x))", "tl.sum(helper.unused(x))"),
        ("tl.load(X +", "tl.load(X -"),
        ("FACTOR = 2", "FACTOR = 3"),
    ],
)
def test_edits_that_matter(digest, old, new):
    assert old in KERNEL + HELPER
    assert digest() != digest(KERNEL.replace(old, new), HELPER.replace(old, new))


def test_the_place_of_the_files_does_not_matter(digest, tmp_path):
    before = digest()
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "kernel.py").write_text(KERNEL)
    (folder / "helper.py").write_text(HELPER)
    assert source_digest(str(folder / "kernel.py"), "k") == before


def test_places_count_where_they_are_asked_for_or_assertions_name_them(digest):
    moved = KERNEL.replace("    x = tl.load", "\n    x = tl.load")
    moved_helper = HELPER.replace("    return x *", "\n    return x *")
    assert (
        len({digest(places=True), digest(moved, places=True), digest(helper=moved_helper, places=True)}) == 3
    )
    asserting, moved = (text.replace("@triton.jit", "@triton.jit(debug=True)") for text in (KERNEL, moved))
    assert len({digest(), digest(asserting), digest(moved)}) == 3


@pytest.mark.parametrize("table", ["(scaled, unused)", "Functions(unused, (scaled,))"])
def test_functions_in_constants_count(digest, table):
    kernel = KERNEL.replace(
        "LIMIT =",
        f"Functions = namedtuple('Functions', 'first rest')\nTABLE = tl.constexpr({table})\nLIMIT =",
    )
    kernel = kernel.replace("import scaled", "import scaled, unused").replace("scaled(x)", "TABLE[0](x)")
    known = digest(kernel)
    assert digest(kernel, HELPER.replace("return x\n", "return x + 1\n")) != known


def test_the_closure_names_the_functions_of_the_project_that_a_kernel_reaches(digest, tmp_path):
    digest()
    parts = closure(find_function(str(tmp_path / "kernel.py"), "k"))
    assert [(part.function.name, part.function.file.rpartition("/")[2]) for part in parts] == [
        ("k", "kernel.py"),
        ("scaled", "helper.py"),
    ]
    assert dict(parts[0].values)["scaled"] == "function scaled" and dict(parts[1].values)["SCALE"] == "3"
