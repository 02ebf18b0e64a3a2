"""Which loads are found to be blocks of tensors, and the reasons given for the others."""

from __future__ import annotations

import numpy as np
import pytest
from zoo.cases_tiles import FORMS, tile_case

import kbuild
import kbuild.language as tl

BOTH = ("left: by a_map", "right: by b_map")
MAPS = {"a_map": "tensormap f16 64x32 64 a M,K lda", "b_map": "tensormap f16 32x32 64 b K,N ldb"}
REFUSED = {
    "column_sums": "indices that wrap around may reach what is stored",
    "ones": "where the mask is false it gives something else than zero",
    "diagonal": "its mask is not a comparison of indices with sizes",
    "table": "an index may be negative",
    "in_place": "the kernel may write to where it reads",
}


def compiled(form: str, **changed: str) -> kbuild.compiler.driver.Metadata:
    case = tile_case(form)
    signature = case.signature(case.make(np.random.default_rng(0))) | changed
    return kbuild.compile(case.source, signature=signature, constexprs=case.constexprs, stop="ttgir").metadata


@pytest.mark.parametrize(
    ("form", "left"),
    [
        ("masked", MAPS["a_map"]),
        ("wrapped", MAPS["a_map"]),
        ("heads", "tensormap f16 1x1x64x32 64 a 2147483647,2147483647,M,K stride_z,stride_h,lda"),
        ("batch", "tensormap f16 1x64x32 64 a 2147483647,M,K lda,lda"),
        ("blocks", MAPS["a_map"]),
        ("constant_stride", "tensormap f16 64x32 64 a M,K 96"),
        ("second_half", MAPS["a_map"]),
        ("above", MAPS["a_map"]),
        ("sums", MAPS["a_map"]),
    ],
)
def test_forms_that_the_tma_can_do(form: str, left: str) -> None:
    metadata = compiled(form)
    assert set(metadata.tma) >= set(BOTH)
    assert set(metadata.params) >= {("a_map", left), ("b_map", MAPS["b_map"])}


@pytest.mark.parametrize("form", REFUSED)
def test_forms_that_it_cannot(form: str) -> None:
    metadata = compiled(form)
    assert f"left: {REFUSED[form]}" in metadata.tma
    assert "a_map" not in dict(metadata.params)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"a": "*fp16"}, "left: a is not known to be divisible by 16 bytes"),
        ({"lda": "i32"}, "left: the stride lda is not known to be divisible by 16 bytes"),
        ({"K": "i64"}, "left: an index has 64 bits"),
    ],
)
def test_missing_divisibility(changed: dict[str, str], reason: str) -> None:
    assert reason in compiled("masked", **changed).tma


def test_every_form_is_one_or_the_other() -> None:
    possible = {
        "masked",
        "wrapped",
        "heads",
        "batch",
        "blocks",
        "constant_stride",
        "second_half",
        "above",
        "sums",
    }
    assert {*FORMS, "in_place"} == possible | {*REFUSED}


@kbuild.jit
def from_the_outer_loops_on(x, out, K):
    rows, columns = tl.arange(0, 64)[:, None], tl.arange(0, 32)[None, :]
    total = tl.zeros((64, 32), tl.float32)
    for outermost in range(0, K, 32):
        for outer in range(outermost, K, 32):
            for inner in range(outer, K, 32):
                for k in range(inner, K, 32):
                    place = tl.make_block_ptr(x, (64, K), (K, 1), (0, k), (64, 32), (1, 0))
                    left = tl.load(place, boundary_check=(0, 1), padding_option="zero")
                    total = tl.dot(left, tl.full((32, 32), 1, tl.float16), total)
    tl.store(out + rows * 32 + columns, total)


def test_loops_may_begin_where_outer_ones_are() -> None:
    signature = {"x": "*fp16:16", "out": "*fp32:16", "K": "i32:16"}
    assert (
        "left: by x_map"
        in kbuild.compile(from_the_outer_loops_on, signature=signature, stop="ttgir").metadata.tma
    )
