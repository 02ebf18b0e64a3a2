"""A tile that dots of two kinds read: it is copied once, into the layout that the more particular one needs."""

from __future__ import annotations

import re

import numpy as np

import kbuild
import kbuild.language as tl
from tests.emulator.artifacts import left_in


@kbuild.jit
def decode(q, k, places, out, n, M: tl.constexpr, D: tl.constexpr, N: tl.constexpr):
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    queries = tl.load(q + rows[:, None] * D + inner[None, :])
    sums = tl.zeros((M, D), tl.float32)
    for start in range(0, n, N):
        place = tl.load(places + start + columns)
        keys = tl.load(k + place[None, :] * D + inner[:, None])
        scores = tl.dot(queries, keys)
        sums += tl.dot(scores.to(tl.float16), tl.trans(keys))
    tl.store(out + rows[:, None] * D + inner[None, :], sums)


def test_scores_read_the_keys_where_values_are():
    """`mma.sync` multiplies 16 queries with the keys, a warpgroup the scores with the same tile, whose layout no other
    can stand for: the keys need not move by way of registers into one of their own."""
    signature = {"q": "*fp16:16", "k": "*fp16:16", "places": "*i32", "out": "*fp32:16", "n": "i32"}
    artifact = kbuild.compile(
        decode, signature=signature, constexprs={"M": 16, "D": 256, "N": 32}, target="sm_90", stop="ptx"
    )
    text = artifact.asm["ttgir"]
    assert "tt.dot" in text and "ttng.warp_group_dot" in text
    loop = text[text.index("scf.for") :]
    assert "256x32xf16" not in "".join(re.findall(r".*local_alloc src=.*", loop)), loop
    # The scores, which it multiplies them with, are stored in one place: the dot ends in its iteration, and two tiles do.
    assert "memdesc<2 x 256x32xf16" in text
    random = np.random.default_rng(0)
    q, k = (
        random.integers(-2, 3, (16, 256)).astype(np.float16),
        random.integers(-1, 2, (96, 256)).astype(np.float16),
    )
    places = random.permutation(96).astype(np.int32)
    given = {"q": q, "k": k, "places": places, "out": np.zeros((16, 256), np.float32), "n": 96}
    made = left_in("out", artifact, given)
    wide = [one.astype(np.float32) for one in (q, k)]
    scores = (wide[0] @ wide[1].T).astype(np.float16).astype(np.float32)
    np.testing.assert_allclose(made, scores @ wide[1], rtol=1e-3)
