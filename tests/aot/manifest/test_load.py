"""The meaning of a loaded manifest; every file is either loaded or refused."""

from __future__ import annotations

import os
import random
from pathlib import Path

from kbuild.aot.artifact.selection import signature
from kbuild.aot.artifact.tables import make_table
from kbuild.aot.manifest.expand import Variant, expand
from kbuild.aot.manifest.expressions import evaluate, parse
from kbuild.aot.manifest.load import load
from kbuild.aot.manifest.model import Argument, Guard
from kbuild.errors import KbuildError
from tests.aot.conftest import KERNEL, MANIFEST
from tests.aot.manifest.mistakes import mistakes


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


def test_no_file_no_utf8_and_a_huge_file(project: Path) -> None:
    (project / "kernels.toml").write_bytes(b"schema = 1\n# \xff\n")
    assert mistakes(project) == ["2: the text is not UTF-8"]
    (project / "kernels.toml").write_bytes(b"#" * (5 << 20))
    assert mistakes(project) == ["1: the file is larger than 4 MiB"]
    (project / "kernels.toml").unlink()
    assert "No such file or directory" in mistakes(project)[0]
    os.mkfifo(project / "kernels.toml")
    assert "not a file" in mistakes(project)[0], "a pipe is not read either: that would block"


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


def test_the_only_value_of_an_axis_is_its_default(project: Path) -> None:
    text = MANIFEST.replace("NEGATE = [false, true]", "NEGATE = [false]").replace("NEGATE = true", "")
    (project / "kernels.toml").write_text(text.replace('dtype = "fp32"', 'dtype = "fp32"\narch = "sm_80"'))
    manifest = load(project / "kernels.toml")
    assert [axis.default for axis in manifest.kernel("scale").matrix] == [None, False]
    facts = {"entry": "scale_kernel", "params": [["x", "*fp16"], ["y", "*fp16"], ["n", "i32"]], "shared": 0}
    facts |= {"archive": "a", "archive_sha256": "", "key": "k", "sha256": "", "registers": 32}
    facts |= {"static_shared": 0, "block": (128, 1, 1)}
    rows = [
        (each, {**facts, "arch": each.arch, "num_warps": each.options.num_warps})
        for each in expand(manifest).variants
    ]
    (table,) = make_table(manifest, rows).kernels
    assert signature(table) == "(x, y, n, *, dtype=None, NEGATE=False, stream=None, grid=None)"


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
