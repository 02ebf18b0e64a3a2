"""Every mistake in a manifest is reported by its line, in one line, and all of them at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kbuild.targets import ARCHS
from tests.aot.conftest import MANIFEST
from tests.aot.manifest.mistakes import K, mistakes

FORGOTTEN = '''\
[[kernel]]
name = "forgotten"
source = "kernels/scale.py"
function = "scale_kernel"
grid = ["1"]
args = { x = "*fp16", y = "*fp16", n = "i32" }
[[kernel.config]]
when = { arch = "sm_90" }
BLOCK = 512
NEGATE = false
[[kernel.exclude]]
arch = "sm_90"'''
"""A kernel that sm_90 has a configuration for, but excludes, and sm_80 has none for."""
VERIFIED = '[kernel.verify]\nsizes = { x = "n", y = "n" }\nvalues = [{ n = 40 }]'
CASES = [
    # (text of the manifest, what stands there instead, line, message; None as the text appends to the end)
    ("schema = 1\n", "", 1, 'missing key "schema"'),
    ("schema = 1", "schema = 2", 1, "schema: schema 2 is not known; this kbuild reads schema = 1"),
    ("schema = 1", 'schema = "1"', 1, 'schema: expected an integer, found "1"'),
    ("[package]", "[pakcage]", 2, 'pakcage: unknown key; did you mean "package"?'),
    (
        'name = "demo_kernels"',
        'name = "demo-kernels"',
        3,
        'package.name: "demo-kernels" is not a name; a name has up to',
    ),
    ('name = "demo_kernels"', 'name = "class"', 3, 'package.name: "class" is a word of Python'),
    (
        'version = "0.1.0"',
        'version = "one"',
        4,
        'package.version: "one" is not a version; write it as PEP 440 does',
    ),
    ('version = "0.1.0"', 'vresion = "0.1.0"', 4, 'package.vresion: unknown key; did you mean "version"?'),
    (
        '"sm_80", "sm_90"',
        '"sm_80", "sm_09"',
        5,
        'package.archs[1]: unknown architecture "sm_09"; did you mean "sm_90"?',
    ),
    ('"sm_80", "sm_90"', '"8.0"', 5, 'package.archs[0]: unknown architecture "8.0"; did you mean "sm_80"?'),
    ('"sm_80", "sm_90"', '"sm_80", "sm_80"', 5, 'package.archs[1]: "sm_80" is named twice'),
    ('"sm_80", "sm_90"', "90", 5, "package.archs[0]: expected a string, found the int 90"),
    ('["sm_80", "sm_90"]', '"sm_90"', 5, 'package.archs: expected a list, found "sm_90"'),
    (
        'name = "scale"',
        'name = "scale"\nseen = { m = [4] }',
        9,
        f"{K}seen.m: the kernel has no such parameter",
    ),
    (
        'name = "scale"',
        'name = "scale"\nseen = { n = [4], BLOCK = [64, 128] }',
        9,
        f"{K}seen.BLOCK: has 2 values, and n has 1; each key has one of every name",
    ),
    ('name = "scale"', 'name = "sc ale"', 8, 'kernel[0]: name: "sc ale" is not a name'),
    ('name = "scale"', 'name = "{{ x }}"', 8, 'kernel[0]: name: "{{ x }}" is not a name'),
    ('name = "scale"', 'name = "x\\"; system(1); \\n"', 8, "kernel[0]: name: "),
    (
        'name = "scale"',
        'name = "explain"',
        8,
        'kernel "explain": name: "explain" is a name that kbuild uses itself',
    ),
    ('name = "scale"\n', "", 7, 'kernel[0]: missing key "name"'),
    ('name = "scale"', 'nmae = "scale"', 8, 'kernel[0]: nmae: unknown key; did you mean "name"?'),
    (
        'version = "0.1.0"',
        'version = "0.1.0"\nlicense = "free"',
        5,
        'package.license: "free" is not a licence expression; write it as SPDX does',
    ),
    (
        'version = "0.1.0"',
        'version = "0.1.0"\nptxas = 12.9',
        5,
        "package.ptxas: expected a string, found the float 12.9",
    ),
    (
        'version = "0.1.0"',
        'version = "0.1.0"\nptxas = "latest"',
        5,
        'package.ptxas: "latest" is not a version of ptxas; write it as "12.9" or "12.9.86"',
    ),
    (
        'version = "0.1.0"',
        'version = "0.1.0"\nptxas = "11.8"',
        5,
        "package.ptxas: ptxas 11.8 does not know the PTX that kbuild writes; it takes 12.4 or later",
    ),
    (
        'version = "0.1.0"',
        'version = "0.1.0"\nmin_driver = "525"',
        5,
        'package.min_driver: expected an integer, found "525"',
    ),
    (
        'version = "0.1.0"',
        'version = "0.1.0"\nmin_driver = 470',
        5,
        "package.min_driver: no ptxas makes code for drivers of the int 470; write 525 to 9999",
    ),
    (
        'version = "0.1.0"',
        'version = "0.1.0"\nmin_driver = 0',
        5,
        "package.min_driver: no ptxas makes code for drivers of the int 0",
    ),
    (
        'version = "0.1.0"',
        'version = "0.1.0"\nmin-driver = 525',
        5,
        'package.min-driver: unknown key; did you mean "min_driver"?',
    ),
    (
        'version = "0.1.0"',
        'version = "0.1.0"\nptxas = "13.0"\nmin_driver = 570',
        6,
        'package.min_driver: ptxas 13.0 makes code for drivers from 580 on, not 570; write min_driver = 580, or ptxas = "12.9"',
    ),
    (
        '"sm_80", "sm_90"',
        '"sm_75"',
        5,
        f'package.archs[0]: unknown architecture "sm_75"; known: {", ".join(ARCHS)}',
    ),
    (
        '"sm_80", "sm_90"',
        '"sm_90a"',
        5,
        'package.archs[0]: unknown architecture "sm_90a"; did you mean "sm_90"?',
    ),
    (
        '"kernels/scale.py"',
        '""',
        9,
        K + 'source: no file in Python or CUDA C++ ""; its name ends in .py or .cu',
    ),
    (
        "kernels/scale.py",
        "kernels/other.py",
        9,
        K
        + 'source: kernels/other.py has no function "other_kernel"; did you mean "another_kernel"?; the key `function` names it',
    ),
    (
        'grid = ["cdiv',
        'unverified = ""\ngrid = ["cdiv',
        10,
        K + "unverified: expected the reason, in one line of printable text",
    ),
    (
        'grid = ["cdiv',
        'unverified = "no"\nverify = {}\ngrid = ["cdiv',
        10,
        K + "unverified: the kernel has a table",
    ),
    (
        "BLOCK = 512",
        "BLOCK = 1" + "0" * 20,
        20,
        K + "config[0].BLOCK: expected a number of 64 bits, found the int 1000",
    ),
    ("kernels/scale.py", "../scale.py", 9, K + 'source: "../scale.py" is not a path within the project'),
    ("kernels/scale.py", "/etc/passwd", 9, K + 'source: "/etc/passwd" is not a path within the project'),
    ("kernels/scale.py", "kernels/skale.py", 9, K + 'source: no Python file "kernels/skale.py"'),
    (
        "kernels/scale.py",
        "kernels/outside.py",
        9,
        K + 'source: "kernels/outside.py" is outside the project',
    ),
    ("kernels/scale.py", "kernels/broken.py", 9, K + "source: kernels/broken.py:1: invalid syntax"),
    (
        "kernels/scale.py",
        "kernels/empty.py",
        9,
        K + 'source: kernels/empty.py has no function "empty_kernel"',
    ),
    (
        'source = "k',
        'function = "scale_kernal"\nsource = "k',
        9,
        K + 'function: kernels/scale.py has no function "scale_kernal"; did you mean "scale_kernel"?',
    ),
    ('"cdiv(n, BLOCK)"', "", 10, K + "grid: a grid has one to three expressions, not 0"),
    (
        '"cdiv(n, BLOCK)"',
        '"cdiv(n, BLOK)"',
        10,
        K + 'grid[0]: unknown name "BLOK" in "cdiv(n, BLOK)"; the names known',
    ),
    ('"cdiv(n, BLOCK)"', '"x"', 10, K + 'grid[0]: unknown name "x" in "x"; the names known'),
    ('"cdiv(n, BLOCK)"', '"n / BLOCK"', 10, K + 'grid[0]: unknown operator in "n / BLOCK"'),
    ('"cdiv(n, BLOCK)"', '"__import__(n)"', 10, K + 'grid[0]: unknown function "__import__"'),
    ('"cdiv(n, BLOCK)"', '"cdiv(n)"', 10, K + "grid[0]: cdiv takes 2 arguments, not 1"),
    ('"cdiv(n, BLOCK)"', '"n +"', 10, K + 'grid[0]: "n +" is not an expression'),
    ('"cdiv(n, BLOCK)"', "7", 10, K + "grid[0]: expected an expression in quotes, found the int 7"),
    ('x = "*{dtype}:16"\n', "", 11, K + 'args: missing argument "x"'),
    (
        'x = "*{dtype}:16"',
        'z = "*{dtype}:16"',
        12,
        K + "args.z: the kernel has no such parameter; known: x, y, n",
    ),
    (
        'x = "*{dtype}:16"',
        'x = "*{dtpye}:16"',
        12,
        K + 'args.x: no axis "dtpye" in the matrix; did you mean "dtype"?',
    ),
    ('x = "*{dtype}:16"', 'x = "*fp61:16"', 12, K + 'args.x: unknown type "fp61"; did you mean "fp64"?'),
    ('x = "*{dtype}:16"', "x = 16", 12, K + "args.x: the int 16 is not a type; write it as"),
    ('n = "i32:16?"', 'n = "i32:3"', 14, K + 'args.n: "i32:3" is not a type; write it as'),
    (
        'n = "i32:16?"',
        'n = "fp32:16"',
        14,
        K + "args.n: only pointers and integers can be divisible by 4, 8 or 16",
    ),
    (
        'n = "i32:16?"',
        'n = "i32"\nBLOCK = "i32"',
        15,
        K + "args.BLOCK: the parameter is a constexpr; give its values in",
    ),
    (
        '"fp16", "fp32"',
        '"fp16", "fp23"',
        16,
        K + 'matrix.dtype[1]: unknown type "fp23"; did you mean "fp32"?',
    ),
    ('"fp16", "fp32"', '"fp16", 32', 16, K + "matrix.dtype[1]: 32 is of another type than"),
    ('"fp16", "fp32"', '"fp16", "fp16"', 16, K + 'matrix.dtype[1]: "fp16" is named twice'),
    ('["fp16", "fp32"]', '"fp16"', 16, K + 'matrix.dtype: expected a list of values, found "fp16"'),
    ("[false, true]", "[]", 17, K + "matrix.NEGATE: expected a list of values, found an empty list"),
    (
        "[false, true]",
        "[nan]",
        17,
        K + "matrix.NEGATE[0]: expected a flag, a finite number, a plain word or a layout",
    ),
    (
        "[false, true]",
        '["a b"]',
        17,
        K + "matrix.NEGATE[0]: expected a flag, a finite number, a plain word or a layout",
    ),
    (
        "NEGATE = [false, true]",
        "NEGAET = [1]",
        17,
        K + "matrix.NEGAET: is neither a parameter of the kernel nor used in",
    ),
    ("NEGATE = [false, true]\n", "", 17, K + 'config[0]: constexpr "NEGATE" has no value; give it in config'),
    ("[false, true]", str(list(range(5000))), 15, K + "matrix: 40,000 variants, at most 10,000 are built"),
    (
        'arch = "sm_80" }',
        'arch = "sm_81" }',
        19,
        K + 'config[0].when.arch: "sm_81" is not a value of arch; did you mean',
    ),
    (
        'arch = "sm_80" }',
        'ach = "sm_80" }',
        19,
        K + "config[0].when.ach: no such architecture, axis or argument; did you",
    ),
    (
        'n = "<= 1024" }',
        'n = "at most 1024" }',
        22,
        K + 'config[1].when.n: "at most 1024" is not a fact; write it as',
    ),
    ('n = "<= 1024" }', "n = 1024 }", 22, K + "config[1].when.n: the int 1024 is not a fact"),
    (
        'n = "<= 1024" }',
        'x = "<= 1024" }',
        22,
        K + "config[1].when.x: only facts about integers can be asked for",
    ),
    (
        "[[kernel.exclude]]",
        "[[kernel.specialize]]\nm = 16\n[[kernel.exclude]]",
        30,
        K + "specialize[0].m: is not a run-time",
    ),
    (
        "[[kernel.exclude]]",
        "[[kernel.specialize]]\nn = 3\n[[kernel.exclude]]",
        30,
        K + "specialize[0].n: the int 3 is not a",
    ),
    (
        "[[kernel.exclude]]",
        "[[kernel.specialize]]\nx = 1\n[[kernel.exclude]]",
        30,
        K + "specialize[0].x: the int 1 is not a",
    ),
    (
        "[kernel.args]",
        "[kernel.grid_args]\nn = 'i32'\n[kernel.args]",
        12,
        K + "grid_args.n: is a parameter of the kernel",
    ),
    (
        "[kernel.args]",
        "[kernel.grid_args]\nm = 'fp32'\n[kernel.args]",
        12,
        K + 'grid_args.m: expected "i32" or "i64"',
    ),
    (
        'n = "<= 1024" }',
        '"n * x" = "<= 9" }',
        22,
        K + 'config[1].when."n * x": only facts about integers can be asked for',
    ),
    (
        'n = "<= 1024" }',
        '"n * m" = "<= 9" }',
        22,
        K + 'config[1].when."n * m": no such architecture, axis or argument',
    ),
    (
        'n = "<= 1024" }',
        '"cdiv(n, 0)" = "<= 9" }',
        22,
        K + 'config[1].when."cdiv(n, 0)": no such architecture, axis or argument',
    ),
    ('when = { n = "<= 1024" }', "", 25, K + "config[2]: is never used: config[1] applies wherever it does"),
    (
        "BLOCK = 1024",
        "BLOK = 1024",
        23,
        K + 'config[1].BLOK: the kernel has no such parameter; did you mean "BLOCK"?',
    ),
    ("BLOCK = 1024", "NEGATE = true", 23, K + "config[1].NEGATE: is given in args or matrix already"),
    (
        "BLOCK = 2048\nnum_warps = 8",
        "BLOCK = 2048\nnum_warps = 6",
        27,
        K + "config[2].num_warps: expected 1, 2, 4",
    ),
    ("num_stages = 2", "num_stages = 0", 28, K + "config[2].num_stages: expected 1 to 16, found the int 0"),
    (
        "num_stages = 2",
        "cluster_size = 3",
        28,
        K + "config[2].cluster_size: expected 1, 2, 4 or 8, found the int 3",
    ),
    (
        "num_stages = 2",
        "num_stages = 2.5",
        28,
        K + "config[2].num_stages: expected an integer, found the float 2.5",
    ),
    (
        'dtype = "fp32"\nNEGATE',
        'dtype = "bf16"\nNEGATE',
        30,
        K + 'exclude[0].dtype: "bf16" is not a value of dtype',
    ),
    (
        'dtype = "fp32"\nNEGATE = true',
        'dtype = ["fp16", "fp32"]',
        7,
        K + "has no variant: every point of its matrix",
    ),
    (None, FORGOTTEN, 32, 'kernel "forgotten": has no variant'),
    (None, "[[kernel]]\nname = 'scale'", 33, K + "name: the name is taken by the kernel on line 7"),
    (
        None,
        VERIFIED.replace("40", "3" + "0" * 39),
        34,
        K + "verify.values[0].n: the int 3000000000000000000000000000000000000000 is not a value of i32",
    ),
    (
        'grid = ["cdiv',
        'op = {}\ngrid = ["cdiv',
        10,
        K + 'op: missing key "inputs"',
    ),
    (None, "[kernel.op]\nschema = 5", 33, K + "op.schema: unknown key"),
    ("when = { n = ", "when = { arch = [], n = ", 22, K + "config[1].when.arch: expected at least one value"),
    (
        None,
        VERIFIED + "\ngrid = [1]",
        35,
        K + "verify.grid[0]: expected an expression in quotes, found the int",
    ),
    (None, VERIFIED + "\ngrid = []", 35, K + "verify.grid: a grid has one to three expressions, not 0"),
    (None, VERIFIED + '\nzeros = ["y", "y"]', 35, K + 'verify.zeros[1]: "y" is named twice'),
    (
        'version = "0.1.0"',
        'version = "0.1.0"\nsummary = "two\\nlines"',
        5,
        "package.summary: expected one line of printable text",
    ),
    (None, "kernle = 1", 32, K + "exclude[0].kernle: no such architecture or axis"),
    (None, "[[kernel]]\nname = ", 33, "Invalid value"),
    (None, '[[kernel]]\nname = "a\nb"', 33, "Illegal character"),
    (None, "[package]", 32, "Cannot declare ('package',) twice"),
    (None, "x = 1" + "0" * 5000, 1, "cannot be read: "),
]


@pytest.mark.parametrize("old, new, line, message", CASES, ids=[str(case[3])[:40] for case in CASES])
def test_one_mistake(project: Path, old: str | None, new: str, line: int, message: str) -> None:
    (project / "kernels/broken.py").write_text("def (:\n")
    (project / "kernels/empty.py").write_text("")
    (project / "kernels/other.py").write_text("def another_kernel(): pass\n")
    outside = project.parent / f"{project.name}_outside.py"
    outside.write_text("def outside_kernel(): pass\n")
    os.symlink(outside, project / "kernels/outside.py")
    assert old is None or old in MANIFEST
    text = MANIFEST + new + "\n" if old is None else MANIFEST.replace(old, new, 1)
    (project / "kernels.toml").write_text(text)
    found = mistakes(project)
    assert any(entry.startswith(f"{line}: {message}") for entry in found), "\n".join(found)


def test_all_mistakes_at_once_in_order_of_lines(project: Path) -> None:
    text = MANIFEST.replace("sm_90", "sm_91").replace("fp32", "fp31").replace("num_stages", "num_stage")
    (project / "kernels.toml").write_text(text)
    found = mistakes(project)
    assert [entry.partition(":")[0] for entry in found] == sorted(
        (entry.partition(":")[0] for entry in found), key=int
    )
    assert len(found) >= 3 and "sm_91" in found[0] and any("fp31" in entry for entry in found)


def test_tables_that_are_something_else(project: Path) -> None:
    head = MANIFEST.partition("[[kernel]]")[0]
    (project / "kernels.toml").write_text("kernel = 5\n" + head)
    assert mistakes(project) == ["1: kernel: expected a list, found the int 5"]
    table = '[[kernel]]\nname = "scale"\nsource = "kernels/scale.py"\ngrid = [1]\nargs = 1.5\n'
    (project / "kernels.toml").write_text(head + table)
    assert f"11: {K}args: expected a table, found the float 1.5" in mistakes(project)


def test_a_wrong_function_hides_no_other_mistake(project: Path) -> None:
    text = MANIFEST.replace('source = "k', 'function = "scale_kernal"\nsource = "k').replace(
        "num_warps = 8", "num_warps = 6"
    )
    text = text.replace("cdiv(n, BLOCK)", "cdiv(m, BLOCK)").replace('n = "<= 1024"', 'n = "about 1024"')
    text = text.replace("*{dtype}", "*{dtpye}", 1)
    (project / "kernels.toml").write_text(text)
    assert [line.split(";")[0].split(" in ")[0] for line in mistakes(project)] == [
        '9: kernel "scale": function: kernels/scale.py has no function "scale_kernal"',
        '11: kernel "scale": grid[0]: unknown name "m"',
        '13: kernel "scale": args.x: no axis "dtpye"',
        '23: kernel "scale": config[1].when.n: "about 1024" is not a fact',
        '25: kernel "scale": config[1].num_warps: expected 1, 2, 4, 8, 16 or 32, found the int 6',
        '28: kernel "scale": config[2].num_warps: expected 1, 2, 4, 8, 16 or 32, found the int 6',
    ]


def test_keys_that_name_an_argument_of_a_wrong_type_are_not_reported_as_well(project: Path) -> None:
    manifest = project / "kernels.toml"
    text = (
        manifest.read_text()
        + """
[[kernel.specialize]]
n = 16
y = 16
[kernel.verify]
sizes = { x = "n", y = "n" }
values = [{ n = 40 }]
[kernel.tune]
candidates = { BLOCK = [512] }
bucket = [{ values = { n = 500 } }]
"""
    )
    assert text.count('"fp16", "fp32"') == 1
    manifest.write_text(
        text.replace('"fp16", "fp32"', '"fp16", "fp32", "fp23"').replace('"i32:16?"', '"i23:16?"')
    )
    assert [line.split(";")[0] for line in mistakes(project)] == [
        '14: kernel "scale": args.n: unknown type "i23"',
        '16: kernel "scale": matrix.dtype[2]: unknown type "fp23"',
    ]
