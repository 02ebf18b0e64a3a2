"""Special registers: what every thread of a launch is told of itself, its CTA, its cluster and the grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Shape = tuple[int, int, int]


def specials_of_launch(
    block: Shape, grid: Shape, cluster: Shape, warps: int, shared_bytes: tuple[int, int]
) -> Mapping[str, Any]:
    """Those that are the same in every CTA, for each thread or one for all; `shared_bytes` are static and dynamic."""
    thread = np.arange(32 * warps)
    x, y, _ = block
    lane = (thread & 31).astype(np.uint64)
    bit, one = np.uint64(1) << lane, np.uint64(1)
    found: dict[str, Any] = {
        "%laneid": lane,
        "%warpid": thread >> 5,
        "%nwarpid": warps,
        "%smid": 0,
        "%nsmid": 1,
        "%gridid": 0,
        "WARP_SZ": 32,
        "%lanemask_eq": bit,
        "%lanemask_lt": bit - one,
        "%lanemask_le": bit * np.uint64(2) - one,
        "%lanemask_ge": ~(bit - one) & np.uint64(0xFFFFFFFF),
        "%lanemask_gt": ~(bit * np.uint64(2) - one) & np.uint64(0xFFFFFFFF),
        "%cluster_nctarank": int(np.prod(cluster)),
        "%is_explicit_cluster": int(cluster != (1, 1, 1)),
        "%dynamic_smem_size": shared_bytes[1],
        "%total_smem_size": sum(shared_bytes),
    }
    tid = (thread % x, thread // x % y, thread // (x * y))
    for axis, letter in enumerate("xyz"):
        found[f"%tid.{letter}"], found[f"%ntid.{letter}"] = tid[axis], block[axis]
        found[f"%nctaid.{letter}"] = grid[axis]
        found[f"%nclusterid.{letter}"] = grid[axis] // cluster[axis]
        found[f"%cluster_nctaid.{letter}"] = cluster[axis]
    return found


def specials_of_cta(index: Sequence[int], rank: int, cluster: Shape, steps: int) -> Mapping[str, int]:
    """Those of one CTA of a cluster; clocks count the steps of the launch."""
    found = {
        "%clock": steps & 0xFFFFFFFF,
        "%clock_hi": steps >> 32,
        "%clock64": steps,
        "%globaltimer": steps,
        "%globaltimer_lo": steps & 0xFFFFFFFF,
        "%globaltimer_hi": steps >> 32,
        "%cluster_ctarank": rank,
    }
    for place, part, letter in zip(index, cluster, "xyz"):
        found[f"%ctaid.{letter}"] = place
        found[f"%clusterid.{letter}"], found[f"%cluster_ctaid.{letter}"] = divmod(place, part)
    return found
