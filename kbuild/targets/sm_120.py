"""Blackwell of workstations: RTX 50, RTX PRO 6000."""

from kbuild.targets.mma_sync import MMA_SYNC_SM80, MMA_SYNC_SM89
from kbuild.targets.pipelines import TMA_PIPELINE
from kbuild.targets.sm_90 import FEATURES
from kbuild.targets.target import Limits, Target

TARGET = Target(
    capability=120,
    ptx_feature="ptx87",
    limits=Limits(shared_bytes=101376, max_warps=48, max_programs=24, cluster_size=8),
    multiprocessors=188,
    atoms=MMA_SYNC_SM80 + MMA_SYNC_SM89,
    features=FEATURES,
    tensor_pipeline=TMA_PIPELINE,
)
