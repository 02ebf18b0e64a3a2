"""Every mistake in a manifest is told by its line, in one line, and all of them at once."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from kbuild.aot.manifest.expand import Variant, expand
from kbuild.aot.manifest.expressions import evaluate, parse
from kbuild.aot.manifest.load import load
from kbuild.aot.manifest.model import Argument, Guard
from kbuild.aot.manifest.reader import with_defaults
from kbuild.errors import KbuildError
from tests.aot.conftest import KERNEL, MANIFEST
from tests.manifests import package_table


def mistakes(project: Path) -> list[str]:
    """The messages that loading the project's manifest gives, as `line: message; hint`."""
    with pytest.raises(KbuildError) as caught:
        load(project / "kernels.toml", "kernels.toml")
    assert caught.value.exit_code == 2
    found = []
    for error in caught.value.errors():
        assert "\n" not in error.message + error.hint
        found.append(
            f"{error.loc.line if error.loc else 0}: {error.message}"
            + (f"; {error.hint}" if error.hint else "")
        )
    return found


def test_a_manifest_without_mistakes(project: Path) -> None:
    manifest = load(project / "kernels.toml")
    assert manifest.package.archs == ("sm_80", "sm_90")
    kernel = manifest.kernel("scale")
    assert kernel.function == "scale_kernel"
    assert kernel.doc == "Multiplies n elements by a constant."
    assert kernel.args == (
        Argument("x", "*{dtype}", ("16",)),
        Argument("y", "*{dtype}", ("16",)),
        Argument("n", "i32", ("16", "")),
    )
    assert kernel.configs[1].guards == (Guard("n", "<=", 1024),)
    assert kernel.defaults == (("SCALE", 2.0),)


def test_ptxas_and_driver(project: Path) -> None:
    manifest = project / "kernels.toml"
    assert (load(manifest).package.ptxas, load(manifest).package.min_driver) == ("", 0)
    manifest.write_text(
        manifest.read_text().replace("[package]", '[package]\nptxas = "13.0"\nmin_driver = 580')
    )
    assert (load(manifest).package.ptxas, load(manifest).package.min_driver) == ("13.0", 580)


K = 'kernel "scale": '
"""How messages about the kernel begin."""
SHORT = (
    package_table("demo_kernels", "sm_80", "sm_90", version="0.1.0")
    + """\
[[kernel]]
name = "scale"
source = "kernels/scale.py"
defaults = { BLOCK = 512, num_warps = 8 }
config = [
  { when = { arch = "sm_80" }, SCALE = 3.0 },
  { BLOCK = 64 },
]
grid = ["cdiv(n, BLOCK)"]
matrix = { dtype = ["fp16", "fp32"], NEGATE = [false, true] }
args = { "x, y" = "*{dtype}:16", n = "i32" }
"""
)
"""A kernel whose tables are lines, with defaults of its configurations."""


def test_defaults_are_for_configurations_that_do_not_give_them(project: Path) -> None:
    (project / "kernels.toml").write_text(SHORT)
    kernel = load(project / "kernels.toml").kernel("scale")
    assert [config.constexprs for config in kernel.configs] == [
        (("SCALE", 3.0), ("BLOCK", 512)),
        (("BLOCK", 64),),
    ]
    assert [config.options.num_warps for config in kernel.configs] == [8, 8]
    (project / "kernels.toml").write_text(SHORT.replace("BLOCK = 64 }", "num_warps = 2 }"))
    config = load(project / "kernels.toml").kernel("scale").configs[1]
    assert config.constexprs == (("BLOCK", 512),) and config.options.num_warps == 2
    text = SHORT.replace("BLOCK = 64 }", "max_registers = 80 }").replace("num_warps = 8", "maxnreg = 64")
    (project / "kernels.toml").write_text(text)
    assert [
        config.options.max_registers for config in load(project / "kernels.toml").kernel("scale").configs
    ] == [64, 80]
    (project / "kernels.toml").write_text(SHORT[: SHORT.index("config")] + SHORT[SHORT.index("grid") :])
    (config,) = load(project / "kernels.toml").kernel("scale").configs
    assert config.constexprs == (("BLOCK", 512),) and config.options.num_warps == 8, "they alone are one, too"


@pytest.mark.parametrize(
    "given, expected",
    [
        ("", "ABC"),
        ("A", "ABC"),
        ("C", "ABC"),
        ("AC", "ABC"),
        ("CA", "BCA"),
        ("xB", "xABC"),
        ("BxC", "ABxC"),
        ("x", "xABC"),
    ],
)
def test_a_default_stands_in_front_of_the_next_that_is_given(given: str, expected: str) -> None:
    merged = with_defaults(dict.fromkeys(given, 1), dict.fromkeys("ABC", 0))
    assert "".join(merged) == expected and all(value == (name in given) for name, value in merged.items())


@pytest.mark.parametrize(
    "old, new, line, message",
    [
        (
            "num_warps = 8",
            "num_warps = 6",
            10,
            "defaults.num_warps: expected 1, 2, 4, 8, 16 or 32, found the int 6",
        ),
        (
            "BLOCK = 512",
            "BLOK = 512",
            10,
            'defaults.BLOK: the kernel has no such parameter; did you mean "BLOCK"?',
        ),
        (
            "num_warps = 8",
            "num_warp = 8",
            10,
            'defaults.num_warp: the kernel has no such parameter; did you mean "num_warps"?',
        ),
        (
            "BLOCK = 512",
            "BLOCK = [512]",
            10,
            "defaults.BLOCK: expected a flag, a finite number or a plain word, found a list",
        ),
        ("BLOCK = 512", "NEGATE = true", 10, "defaults.NEGATE: is given in args or matrix already"),
        (
            "num_warps = 8",
            "when = {}",
            10,
            "defaults.when: defaults are for all configurations; give `when` in config",
        ),
        ("{ BLOCK = 512, num_warps = 8 }", "8", 10, "defaults: expected a table, found the int 8"),
        ("BLOCK = 512, ", "", 12, 'config[0]: constexpr "BLOCK" has no value'),
        (
            "SCALE = 3.0",
            "num_warps = 6",
            12,
            "config[0].num_warps: expected 1, 2, 4, 8, 16 or 32, found the int 6",
        ),
        (
            "BLOCK = 64",
            "BLOK = 64",
            13,
            'config[1].BLOK: the kernel has no such parameter; did you mean "BLOCK"?',
        ),
        ('"x, y" = ', '"x, z" = ', 17, "args.z: the kernel has no such parameter; known: x, y, n"),
        ('"x, y" = ', '"x, x, y" = ', 17, 'args."x, x, y": "x" is given twice'),
        ('"x, y" = "', '"x, y," = "', 17, 'args."": "" is not a name'),
        ("*{dtype}:16", "*{dtpye}:16", 17, 'args.y: no axis "dtpye" in the matrix'),
    ],
)
def test_mistakes_in_lines_and_their_defaults(
    project: Path, old: str, new: str, line: int, message: str
) -> None:
    assert SHORT.count(old) == 1
    (project / "kernels.toml").write_text(SHORT.replace(old, new))
    found = mistakes(project)
    assert any(entry.startswith(f"{line}: {K}{message}") for entry in found), "\n".join(found)
    if ": defaults" in found[0]:
        assert len(found) <= 2, "a wrong default is no mistake of every configuration"


LAUNCHES = """\
specialize = [{ "y, n, x" = 16 }, {}]
[kernel.verify]
sizes = { "x, y" = "n" }
defaults = { n = "2 * BLOCK" }
values = [{}, { n = 40 }]
[kernel.tune]
candidates = { BLOCK = [64] }
defaults = { n = 64 }
bucket = [
  { values = {}, when = { n = "<= 64" } },
  { values = { n = 128 } },
]
"""


def test_defaults_of_launches(project: Path) -> None:
    (project / "kernels.toml").write_text(SHORT + LAUNCHES)
    kernel = load(project / "kernels.toml").kernel("scale")
    assert kernel.specializations[0].hints == (("x", "16"), ("y", "16"), ("n", "16")), (
        "in the order of the arguments"
    )
    assert (
        kernel.verify is not None
        and kernel.tune is not None
        and kernel.verify.sizes == (("x", "n"), ("y", "n"))
    )
    assert kernel.verify.values == ((("n", "2 * BLOCK"),), (("n", 40),))
    assert [bucket.values for bucket in kernel.tune.buckets] == [(("n", 64),), (("n", 128),)]


@pytest.mark.parametrize(
    "old, new, line, message",
    [
        ("2 * BLOCK", "2 * BLOK", 21, 'verify.defaults.n: unknown name "BLOK"'),
        ('n = "2 * BLOCK"', "m = 2", 21, "verify.defaults.m: unknown key; known: n"),
        (
            'n = "2 * BLOCK"',
            "n = 0.5",
            21,
            "verify.defaults.n: expected an integer or an expression, found the float 0.5",
        ),
        ('n = "2 * BLOCK"', "", 22, 'verify.values[0]: missing key "n"'),
        ("n = 64 }\n", "n = true }\n", 25, "tune.defaults.n: expected an integer or an expression"),
        ("n = 64 }\n", "n = 65 }\n", 27, "tune.bucket[0].values.n: the bucket is for n <= 64"),
        ("{ n = 128 }", "{ n = 0.5 }", 28, "tune.bucket[1].values.n: expected an integer or an expression"),
    ],
)
def test_mistakes_in_defaults_of_launches(project: Path, old: str, new: str, line: int, message: str) -> None:
    assert LAUNCHES.count(old) == 1
    (project / "kernels.toml").write_text(SHORT + LAUNCHES.replace(old, new))
    found = mistakes(project)
    assert any(message in entry and entry.startswith(f"{line}: {K}") for entry in found), "\n".join(found)


def test_a_fact_about_a_product(project: Path) -> None:
    manifest = project / "kernels.toml"
    manifest.write_text(manifest.read_text().replace('n = "<= 1024" }', '"n * n" = "> 4, <= 1024" }'))
    guards = load(manifest).kernel("scale").configs[1].guards
    assert guards == (Guard("n*n", ">", 4), Guard("n*n", "<=", 1024)) and guards[0].arguments == ("n", "n")
    variant = next(variant for variant in expand(load(manifest)).variants if variant.guards)
    assert Variant.parse(str(variant)) == variant and ".n+n-gt-4,n+n-le-1024." in variant.file_name
    fact = parse(guards[1].expression, ["n"], "")
    assert evaluate(fact, {"n": 32}) and not evaluate(fact, {"n": 33})


def test_a_fact_about_a_number_of_tiles(project: Path) -> None:
    manifest = project / "kernels.toml"
    manifest.write_text(manifest.read_text().replace('n = "<= 1024" }', '"cdiv(n, 64) * n" = "<= 130" }'))
    (guard,) = load(manifest).kernel("scale").configs[1].guards
    assert guard == Guard("n:64*n", "<=", 130) and guard.arguments == ("n", "n")
    variant = next(variant for variant in expand(load(manifest)).variants if variant.guards)
    assert Variant.parse(str(variant)) == variant and ".nby64+n-le-130." in variant.file_name
    fact = parse(guard.expression, ["n"], "")
    assert evaluate(fact, {"n": 65}) and not evaluate(fact, {"n": 66})


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
        'package.license: "free" is no licence expression; write it as SPDX does',
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
        'package.ptxas: "latest" is no version of ptxas; write it as "12.9" or "12.9.86"',
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
    ('"sm_80", "sm_90"', '"sm_75"', 5, 'package.archs[0]: unknown architecture "sm_75"; known: sm_80, sm_90'),
    (
        '"sm_80", "sm_90"',
        '"sm_90a"',
        5,
        'package.archs[0]: unknown architecture "sm_90a"; did you mean "sm_90"?',
    ),
    ('"kernels/scale.py"', '""', 9, K + 'source: no Python file ""'),
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
        K + 'source: "kernels/outside.py" leads out of the project',
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
    ('n = "i32:16?"', 'n = "i32:4"', 14, K + 'args.n: "i32:4" is not a type; write it as'),
    (
        'n = "i32:16?"',
        'n = "fp32:16"',
        14,
        K + "args.n: only pointers and integers can be divisible by 8 or 16",
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
    ("[false, true]", "[nan]", 17, K + "matrix.NEGATE[0]: expected a flag, a finite number or a plain word"),
    (
        "[false, true]",
        '["a b"]',
        17,
        K + "matrix.NEGATE[0]: expected a flag, a finite number or a plain word",
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
        K + "specialize[0].m: is no run-time",
    ),
    (
        "[[kernel.exclude]]",
        "[[kernel.specialize]]\nn = 4\n[[kernel.exclude]]",
        30,
        K + "specialize[0].n: the int 4 is no",
    ),
    (
        "[[kernel.exclude]]",
        "[[kernel.specialize]]\nx = 1\n[[kernel.exclude]]",
        30,
        K + "specialize[0].x: the int 1 is no",
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
        K + "verify.values[0].n: the int 3000000000000000000000000000000000000000 is no i32",
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


def test_what_names_an_argument_of_a_wrong_type_is_no_mistake_as_well(project: Path) -> None:
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


def test_no_file_no_utf8_and_a_huge_file(project: Path) -> None:
    (project / "kernels.toml").write_bytes(b"schema = 1\n# \xff\n")
    assert mistakes(project) == ["2: the text is not UTF-8"]
    (project / "kernels.toml").write_bytes(b"#" * (5 << 20))
    assert mistakes(project) == ["1: the manifest is larger than 4 MiB"]
    (project / "kernels.toml").unlink()
    assert "No such file or directory" in mistakes(project)[0]
    os.mkfifo(project / "kernels.toml")
    assert "is no file" in mistakes(project)[0], "nor is a pipe read, for it would be waited for"


def test_a_byte_order_mark_and_an_empty_word(project: Path) -> None:
    text = MANIFEST.replace("NEGATE = [false, true]", 'NEGATE = ["", "yes"]').replace(
        "NEGATE = true", 'NEGATE = ""'
    )
    (project / "kernels.toml").write_text("\ufeff" + text)
    names = [variant.name for variant in expand(load(project / "kernels.toml")).variants]
    assert len(set(names)) == 18 and "scale.sm_80.fp16+.n=d16.BLOCK=512,SCALE=2.0.w4s3" in names


def test_a_parameters_default_is_its_axis_default(project: Path) -> None:
    kernel = project / "kernels/scale.py"
    kernel.write_text(KERNEL.replace("NEGATE: tl.constexpr,", "NEGATE: tl.constexpr = False,"))
    assert [axis.default for axis in load(project / "kernels.toml").kernel("scale").matrix] == [None, False]
    (project / "kernels.toml").write_text(
        MANIFEST.replace("[false, true]", "[0, 1]").replace("NEGATE = true", "NEGATE = 1")
    )
    assert [axis.default for axis in load(project / "kernels.toml").kernel("scale").matrix] == [None, None], (
        "0 is not false"
    )


def test_garbage_never_gives_a_traceback(project: Path) -> None:
    """Bytes flipped, lines dropped and doubled: a manifest loads, or its mistakes have lines."""
    generator = random.Random(7)
    for _ in range(300):
        data = bytearray(MANIFEST.encode())
        for _ in range(generator.randrange(1, 4)):
            place = generator.randrange(len(data))
            match generator.randrange(3):
                case 0:
                    data[place] = generator.randrange(256)
                case 1:
                    del data[place : place + generator.randrange(1, 40)]
                case _:
                    data[place:place] = data[generator.randrange(len(data)) :][: generator.randrange(1, 40)]
        (project / "kernels.toml").write_bytes(data)
        try:
            load(project / "kernels.toml")
        except KbuildError as error:
            assert all(single.loc is not None for single in error.errors())


def test_deep_nesting(project: Path) -> None:
    (project / "kernels.toml").write_text("x = " + "[" * 100_000 + "]" * 100_000)
    assert len(mistakes(project)) == 1


def test_the_function_is_never_executed(project: Path) -> None:
    (project / "kernels/scale.py").write_text("raise SystemExit('executed')\n" + KERNEL)
    assert load(project / "kernels.toml").kernels
