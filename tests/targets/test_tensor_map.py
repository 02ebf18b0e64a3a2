"""Tensor maps as types of parameters: their text, and how the driver and the emulator read it."""

from __future__ import annotations

import numpy as np
import pytest

from kbuild.emulator import TensorMapArgument, arguments_of
from kbuild.emulator.async_ops.tensor_map import ELEMENTS, TensorMap
from kbuild.emulator.driver import FakeDriver
from kbuild.errors import KbuildError
from kbuild.tensor_map import MapSources, TensorMapType, encoding, number_of
from tests.emulator.fake_gpu import on_fake_gpu

MATRIX = MapSources("a", ("M", "K"), ("lda",))
BATCH = MapSources("a", ("1", "M", "K"), ("1073741824", "lda"))
TEXTS = {
    "tensormap f16 64x32 128 a M,K lda": TensorMapType("f16", (64, 32), 128, MATRIX),
    "tensormap bf16:nan 64x32 64 a M,K lda": TensorMapType("bf16", (64, 32), 64, MATRIX, fill_nan=True),
    "tensormap tf32 1x64x8 32 a 1,M,K 1073741824,lda": TensorMapType("tf32", (1, 64, 8), 32, BATCH),
    **{
        f"tensormap {element} 1x8x16 0 a 1,M,K 1073741824,lda": TensorMapType(element, (1, 8, 16), 0, BATCH)
        for element in ("f8E4M3FN", "i8", "i16", "i32", "s32", "i64", "s64", "f32", "f64")
    },
}
VALUES = {"M": 100, "K": 0, "lda": 96}
ADDRESS = 1 << 20
TAKES_A_MAP = """\
.version 8.0
.target sm_90
.address_size 64
.visible .entry takes_a_map(.param .align 64 .b8 map[128])
{
    ret;
}
"""


@pytest.mark.parametrize("text", TEXTS)
def test_the_text_is_read_back(text: str) -> None:
    assert TensorMapType.parse(text) == TEXTS[text] and str(TEXTS[text]) == text


@pytest.mark.parametrize("text", ["i32", "*fp16", "tensormaps", "!tt.ptr<f16>"])
def test_types_of_other_parameters_are_not_maps(text: str) -> None:
    assert TensorMapType.parse(text) is None


@pytest.mark.parametrize(
    "text", ["tensormap f16", "tensormap f16 64xM 0 a M,K lda", "tensormap f16 64 0 a M", "tensormap "]
)
def test_what_no_map_has_as_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        TensorMapType.parse(text)


def test_parameters_get_other_words() -> None:
    numbers = {"a": 0, "M": 2, "lda": 3}
    found = TEXTS["tensormap f16 64x32 128 a M,K lda"].renamed(lambda word: f"#{numbers.get(word, 9)}")
    assert str(found) == "tensormap f16 64x32 128 #0 #2,#9 #3" and number_of(found.sources.sizes[1]) == 9
    assert str(BATCH.renamed(str.lower)) == "a 1,m,k 1073741824,lda"


@pytest.mark.parametrize("text", TEXTS)
def test_the_emulator_reads_the_same(text: str) -> None:
    """It may not see the record; what it makes of the text is what the driver is given."""
    record = TEXTS[text]
    parameters = [("a", "*fp16"), *((name, "i32") for name in VALUES), ("a_map", text)]
    *_, made = arguments_of(parameters, {"a": np.zeros(4, np.float16), **VALUES})
    numbers = {"a": ADDRESS, **VALUES}
    assert isinstance(made, TensorMapArgument)
    assert (made.element, made.box, made.swizzle, made.base, made.fill_nan) == (
        record.element,
        record.box,
        record.swizzle,
        0,
        record.fill_nan,
    )
    given, map_ = encoding(record, numbers), made.at(ADDRESS)
    assert (given.base, given.sizes, given.pitches, given.box, given.swizzle, bool(given.fill)) == (
        map_.address,
        map_.sizes,
        map_.strides,
        map_.box,
        map_.swizzle,
        map_.fill_nan,
    )
    assert ELEMENTS[given.type] == map_.element


@on_fake_gpu()
def test_a_kernel_gets_what_is_made_of_the_record(driver: FakeDriver) -> None:
    from kbuild.gpu.device import Gpu, LaunchFacts

    gpu = Gpu()
    matrix = gpu.allocate(1 << 16)
    values = {"a": int(matrix.handle), **VALUES}
    for text, record in TEXTS.items():
        kernel = gpu.kernel(TAKES_A_MAP.encode(), LaunchFacts("takes_a_map", (("map", text),), 0, (32,)))
        kernel.launch(gpu.stream, (1,), kernel.arguments(values))
        given = encoding(record, values)
        assert TensorMap.decode(driver.launches[-1].arguments[0]) == TensorMap(
            given.base,
            ELEMENTS[given.type],
            given.sizes,
            given.pitches,
            given.box,
            (1,) * len(given.box),
            given.swizzle,
            bool(given.fill),
        )
    kernel = gpu.kernel(
        TAKES_A_MAP.encode(), LaunchFacts("takes_a_map", (("map", next(iter(TEXTS))),), 0, (32,))
    )
    with pytest.raises(KbuildError, match=r"the tensor map of a \(tensormap f16 64x32 128 a M,K lda\)"):
        kernel.arguments({**values, "lda": 97})
