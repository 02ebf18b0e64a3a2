"""Defaults of configurations and of launches, and mistakes in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.aot.manifest.load import load
from kbuild.aot.manifest.reader import with_defaults
from tests.aot.manifest.mistakes import K, mistakes
from tests.manifests import package_table

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
            "defaults.BLOCK: expected a flag, a finite number, a plain word or a layout, found a list",
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
        assert len(found) <= 2, "a wrong default is not reported for every configuration"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("BLOCK = 512,", "SCALE = WORD, BLOCK = 512,"),
        ("SCALE = 3.0", "SCALE = WORD"),
        ("[false, true]", "[WORD]"),
    ],
)
def test_a_type_is_written_as_in_args(project: Path, old: str, new: str) -> None:
    assert SHORT.count(old) == 1
    for name in ("tl.float16", "torch.float16"):
        (project / "kernels.toml").write_text(SHORT.replace(old, new.replace("WORD", f'"{name}"')))
        (found, *_) = mistakes(project)
        assert f'found "{name}"; write the type as "fp16"' in found
    (project / "kernels.toml").write_text(SHORT.replace(old, new.replace("WORD", '"fp16"')))
    load(project / "kernels.toml")


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
