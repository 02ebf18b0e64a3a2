"""Hopper: H100, H200, GH200."""

from kbuild.targets.mma_sync import MMA_SYNC_SM80, MMA_SYNC_SM89
from kbuild.targets.pipelines import TMA_PIPELINE
from kbuild.targets.sm_89 import FEATURES as BEFORE
from kbuild.targets.target import Limits, Target
from kbuild.targets.wgmma import WGMMA

FEATURES = BEFORE | {
    "bf16_arithmetic",
    "bf16_atomics",
    "griddepcontrol",
    "stmatrix",
    "thread_block_clusters",
    "tma",
    "vector_atomics",
}
"""Features that newer architectures have, too."""

TARGET = Target(
    capability=90,
    ptx_feature="ptx84",
    limits=Limits(shared_bytes=232448, max_warps=64, cluster_size=8),
    multiprocessors=132,
    atoms=MMA_SYNC_SM80 + MMA_SYNC_SM89,
    wgmma_atoms=WGMMA,
    accelerated_arch="sm_90a",
    # ptxas widens the operands of `mma.sync`: Hopper multiplies fp8 by wgmma alone.
    features=FEATURES | {"wgmma", "clusters", "fp8_mma_as_f16"},
    tensor_pipeline=TMA_PIPELINE,
)
