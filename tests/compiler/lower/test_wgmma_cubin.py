"""What ptxas makes of warpgroup dots: the cubin has as many as the PTX, with a warning where it serializes
them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from zoo import CASES

import kbuild
from kbuild.compiler.backend.cubin import find_ptxas
from kbuild.compiler.backend.notes import notes_of
from kbuild.errors import ErrorGroup

DOTS = Path(__file__).parents[2] / "zoo/kernels/dots.py"


def instructions(cubin: bytes, folder: Path) -> list[str]:
    """The names of a cubin's dots in program order, as nvdisasm prints them."""
    file = folder / "kernel.cubin"
    file.write_bytes(cubin)
    command = [str(Path(find_ptxas()).with_name("nvdisasm")), str(file)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return re.findall(r"\b([HQI]GMMA)\.", text)


@pytest.mark.parametrize("name", ["dot_add_rows", "dot_add_rows_tf32", "dot_add_rows_bf16"])
def test_ptxas_drops_no_dot(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    signature = case.signature(case.make(np.random.default_rng(0)))
    artifact = kbuild.compile(case.source, signature=signature, constexprs=case.constexprs, target="sm_90")
    written = artifact.asm["ptx"].count("wgmma.mma_async")
    assert written >= 4 and len(instructions(artifact.asm["cubin"], tmp_path)) == written


def test_dots_in_flight_at_once_start_from_values_that_were_there_before_the_first() -> None:
    """If the second one's were written while the first is in flight, ptxas would wait for it (C7517)."""
    case = CASES["two_dots_add_rows"]
    signature = case.signature(case.make(np.random.default_rng(0)))
    artifact = kbuild.compile(case.source, signature=signature, constexprs=case.constexprs, target="sm_90")
    assert re.findall(r"wgmma\.(commit|wait)_group", artifact.asm["ptx"]) == [
        "commit",
        "commit",
        "wait",
        "wait",
    ]
    assert artifact.metadata.serialized == ()


def too_large(**options: Any) -> kbuild.Artifact:
    """A dot whose sums alone are 256 registers of a thread, one more than there are."""
    signature = {"a": "*fp16:16", "b": "*fp16:16", "c": "*fp32:16"}
    constexprs = {"M": 256, "N": 256, "K": 16, "PRECISION": "tf32"}
    return kbuild.compile(
        f"{DOTS}:dot_tile", signature=signature, constexprs=constexprs, num_warps=8, **options
    )


def test_a_dot_that_ptxas_serializes_is_a_warning_at_its_line() -> None:
    metadata = too_large().metadata
    (line,) = (
        n for n, text in enumerate(DOTS.read_text().splitlines(), 1) if "out_dtype=c.dtype.element_ty" in text
    )
    (warning,) = metadata.serialized
    assert re.search(rf"dots\.py:{line}:\d+: .* insufficient register resources .*C7511", warning)
    assert warning in metadata.warnings


def test_with_strict_it_is_an_error_at_its_line() -> None:
    with pytest.raises(
        ErrorGroup, match=r"dots\.py:\d+:\d+: error: this dot runs slower(.|\n)*tl\.dot(.|\n)*\^\^\^"
    ):
        too_large(strict=True)


def test_a_note_belongs_to_the_dot_whose_line_it_names() -> None:
    ptx = too_large(stop="ptx").asm["ptx"]
    line = next(number for number, text in enumerate(ptx.splitlines(), 1) if "wgmma.mma_async" in text)
    (note,) = notes_of(
        f"ptxas info : (C7514) wgmma is x in around line {line} by compiler in function 'dot_tile'", ptx
    )
    assert note == ("C7514", "wgmma is x by compiler", 0)
