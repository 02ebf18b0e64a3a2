"""Blackwell of data centres: B200, GB200.

Its own MMAs (`tcgen05`, in memory of their own) are not used: tiles are copied by TMA, and warps multiply them
by `mma.sync`, for which ptxas widens fp8.
"""

from kbuild.targets.mma_sync import MMA_SYNC_SM80, MMA_SYNC_SM89
from kbuild.targets.pipelines import TMA_PIPELINE
from kbuild.targets.sm_90 import FEATURES
from kbuild.targets.target import Limits, Target

TARGET = Target(
    capability=100,
    ptx_feature="ptx86",
    limits=Limits(shared_bytes=232448, max_warps=64, cluster_size=8),
    multiprocessors=148,
    atoms=MMA_SYNC_SM80 + MMA_SYNC_SM89,
    features=FEATURES | {"fp8_mma_as_f16"},
    tensor_pipeline=TMA_PIPELINE,
)
