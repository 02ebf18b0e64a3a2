"""Ampere: A100, A30."""

from kbuild.targets.mma_sync import MMA_SYNC_SM80
from kbuild.targets.target import Limits, Target

FEATURES = frozenset({"cp_async", "ldmatrix"})

TARGET = Target(
    capability=80,
    ptx_feature="ptx75",
    limits=Limits(shared_bytes=166912, max_warps=64),
    multiprocessors=108,
    atoms=MMA_SYNC_SM80,
    features=FEATURES,
)
