"""Ampere: A10, A40, RTX A6000, RTX 30."""

from kbuild.targets.mma_sync import MMA_SYNC_SM80
from kbuild.targets.sm_80 import FEATURES
from kbuild.targets.target import Limits, Target

TARGET = Target(
    capability=86,
    ptx_feature="ptx75",
    limits=Limits(shared_bytes=101376, max_warps=48, max_programs=16),
    multiprocessors=84,
    atoms=MMA_SYNC_SM80,
    features=FEATURES,
)
