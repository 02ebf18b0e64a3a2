"""The record of compile options: its text forms, what reads it, and options of which the code depends."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kbuild
from kbuild.aot.build.compile_variant import compile_facts
from kbuild.aot.manifest import schema
from kbuild.cli.grammar.parser import parser
from kbuild.emulator import load, run
from kbuild.errors import UsageError
from kbuild.options import DEFAULTS, CompileOptions, options

OTHERS = {
    "num_warps": 8,
    "num_stages": 5,
    "cluster_size": 2,
    "num_ctas": 4,
    "max_registers": 64,
    "enable_fp_fusion": False,
    "launch_pdl": True,
    "debug": True,
    "lineinfo": True,
    "strict": True,
    "portable": True,
    "ptxas": "/opt/ptxas",
}
"""Every option of kernels in Triton's language with a value that is not its default."""
CUDA_OTHERS = {
    "block": "16x8x2",
    "shared": 4096,
    "include": "include,nvidia-cutlass:include",
    "use_fast_math": True,
    "cpp_std": 20,
    "max_registers": 64,
}
"""The same of kernels in CUDA C++, and one of both."""

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def weighted(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(out + i, v * v + 1.0, mask=i < n)
"""


@pytest.fixture
def source(tmp_path: Path) -> str:
    (tmp_path / "k.py").write_text(KERNEL)
    return f"{tmp_path / 'k.py'}:weighted"


def compiled(source: str, stop: str = "ptx", **named: Any) -> kbuild.Artifact:
    signature = {"x": "*fp32:16", "out": "*fp32:16", "n": "i32"}
    return kbuild.compile(source, signature=signature, constexprs={"BLOCK": 128}, stop=stop, **named)


def test_tags_read_back_and_show_what_is_not_default() -> None:
    assert {*OTHERS, *CUDA_OTHERS} == {option.name for option in options()}
    everything, cuda = DEFAULTS.changed(OTHERS), DEFAULTS.changed(CUDA_OTHERS)
    assert everything.tags == "w8s5c2ctas4r64nofmapdldebug" and cuda.tags == "t16x8x2m4096r64faststd20"
    assert cuda.threads == (16, 8, 2) and cuda.num_warps == 8 and "num_warps" not in cuda.requested()
    assert DEFAULTS.changed({"block": "96"}).num_warps == 3
    assert CompileOptions.parse(cuda.tags) == replace(cuda, include=None)
    for chosen in (
        DEFAULTS,
        everything,
        *(DEFAULTS.changed({name: value}) for name, value in OTHERS.items()),
    ):
        back = CompileOptions.parse(chosen.tags)
        assert back.values("variant") == chosen.values("variant") and back.values(
            "request"
        ) == DEFAULTS.values("request")


@pytest.mark.parametrize(
    "tags", ["", "w4", "w4s3c1x", "w3s3", "s3w4", "w4s3debugpdl", "w4s99", "w4t16", "w4s3t16", "t0", "t2048"]
)
def test_what_no_options_have_as_tags_is_refused(tags: str) -> None:
    with pytest.raises(ValueError):
        CompileOptions.parse(tags)


@pytest.mark.parametrize(
    "values, says",
    [
        ({"num_warps": 3}, "num_warps is 3\nhelp: it must be 1, 2, 4, 8, 16 or 32"),
        ({"num_ctas": 3}, "num_ctas is 3\nhelp: it must be 1, 2, 4, 8 or 16"),
        ({"num_stages": True}, "num_stages is True\nhelp: it must be 1 to 16"),
        ({"num_stages": 17}, "num_stages is 17\nhelp: it must be 1 to 16"),
        ({"maxnreg": 8}, "maxnreg is 8\nhelp: it must be 16 to 255"),
        ({"block": "32x64"}, "block is '32x64'\nhelp: it must be up to three numbers with x between them"),
        ({"debug": 1}, "debug is 1\nhelp: it must be true or false"),
        ({"num_warp": 4}, "unknown option num_warp\nhelp: did you mean num_warps?"),
    ],
)
def test_illegal_values_are_refused(source: str, values: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        compiled(source, **values)


def test_commands_repeat_what_they_were_made_from() -> None:
    """Flags give the options again; what has no flag is of launches, or of the machine."""
    for others in (OTHERS, CUDA_OTHERS):
        everything = DEFAULTS.changed(others)
        parsed = parser().parse_args(["compile", "k.py:k", *everything.arguments()])
        shown = {name: getattr(parsed, name) for name in others if name not in ("launch_pdl", "ptxas")}
        assert shown == {name: others[name] for name in shown}
    assert {option.name for option in options() if not option.is_flag} == {"launch_pdl", "ptxas"}


def test_the_schema_of_the_manifest_has_every_option_and_triton_s_names() -> None:
    keys = {key.name: key for key in schema.CONFIG.keys}
    assert {"num_warps", "max_registers", "maxnreg", "enable_fp_fusion", "launch_pdl", "debug"} <= set(keys)
    assert (
        keys["maxnreg"].shape
        == keys["max_registers"].shape
        == {"type": "integer", "minimum": 16, "maximum": 255}
    )


def test_options_of_an_architecture_without_a_feature_have_their_defaults() -> None:
    chosen = DEFAULTS.changed({"cluster_size": 2, "launch_pdl": True, "num_warps": 8})
    assert DEFAULTS.changed({"num_ctas": 2}).on(()).num_ctas == 2, "that is a mistake there"
    assert chosen.on({"clusters", "griddepcontrol"}) == chosen
    assert chosen.on(()) == CompileOptions(num_warps=8)


def test_registers_are_bounded_in_the_ptx_and_the_ir_and_facts_say_so(source: str, tmp_path: Path) -> None:
    artifact = compiled(source, maxnreg=32)
    assert re.search(r"^\.maxnreg 32$", artifact.asm["ptx"], re.MULTILINE)
    assert "maxnreg" not in compiled(source).asm["ptx"]
    assert (
        artifact.metadata.options.max_registers == 32
        and compile_facts(artifact.metadata)["max_registers"] == 32
    )
    (tmp_path / "k.ttgir").write_text(artifact.asm["ttgir"])
    again = kbuild.compile(tmp_path / "k.ttgir", stop="ptx")
    assert again.asm["ptx"] == artifact.asm["ptx"] and again.metadata.options.max_registers == 32


def test_the_bound_on_registers_holds_in_the_cubin(source: str) -> None:
    registers = compiled(source, max_registers=16, stop="cubin").metadata.registers
    assert registers is not None and registers <= 16


def test_products_and_sums_are_rounded_twice_without_fusion(source: str) -> None:
    """1 + x² in float32, exact in float64: fused it is rounded once."""
    x = np.random.default_rng(1).standard_normal(128).astype(np.float32)
    once, twice = (np.float64(x) ** 2 + 1).astype(np.float32), x * x + np.float32(1)
    assert (once != twice).any()
    for fuses, right in ((True, once), (False, twice)):
        artifact = compiled(source, enable_fp_fusion=fuses)
        assert ("fma.rn.f32" in artifact.asm["ptx"]) == fuses and (
            "mul.rn.f32" in artifact.asm["ptx"]
        ) != fuses
        out = np.full(128, np.nan, np.float32)
        facts = artifact.metadata
        report = run(
            load(artifact.asm["ptx"], facts.name), None, (1,), facts.warps, facts.shared, (x, out, 128)
        )
        assert not report.findings
        np.testing.assert_array_equal(report.outputs[1], right)
