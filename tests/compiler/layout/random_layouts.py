"""Random layouts for property tests."""

import random
from itertools import product

from kbuild.compiler.layout import LinearLayout

SHAPES = [(), (8,), (16, 8), (4, 1, 16), (32, 32)]


def random_layout(source: random.Random, shape, replicated=2) -> LinearLayout:
    """A layout that holds every element, with some replication, its bits in any order."""
    bits = (LinearLayout.make(shape).numel - 1).bit_length()
    bases = [1 << i for i in range(bits)]
    for _ in range(3 * bits):
        i, j = source.randrange(bits), source.randrange(bits)
        if i != j:
            bases[i] ^= bases[j]
    bases += [source.choice([0, source.randrange(1 << bits)]) for _ in range(replicated)]
    source.shuffle(bases)
    cuts = sorted(source.randrange(len(bases) + 1) for _ in range(2))
    return LinearLayout.make(
        shape, register=bases[: cuts[0]], lane=bases[cuts[0] : cuts[1]], warp=bases[cuts[1] :]
    )


def places(layout: LinearLayout):
    """Every hardware index of a layout."""
    return [
        dict(zip(layout.dims, index)) for index in product(*(range(layout.size(dim)) for dim in layout.dims))
    ]


def random_threads(source: random.Random, shape, lanes=5, warps=1, mix=2, replicated=2) -> LinearLayout:
    """A layout of whole warps that holds every element; `mix` bases are sums of several coordinates' bits."""
    bits = (LinearLayout.make(shape).numel - 1).bit_length()
    bases = [1 << i for i in range(bits)]
    for _ in range(mix):
        i, j = source.sample(range(bits), 2)
        bases[i] ^= bases[j]
    bases += [source.choice([0, source.randrange(1 << bits)]) for _ in range(replicated)]
    bases += [0] * (lanes + warps - len(bases))
    source.shuffle(bases)
    return LinearLayout.make(
        shape, lane=bases[:lanes], warp=bases[lanes : lanes + warps], register=bases[lanes + warps :]
    )
