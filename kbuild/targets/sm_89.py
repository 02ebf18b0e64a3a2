"""Ada Lovelace: L4, L40, RTX 40."""

from kbuild.targets.mma_sync import MMA_SYNC_SM80, MMA_SYNC_SM89
from kbuild.targets.sm_80 import FEATURES as BEFORE
from kbuild.targets.target import Limits, Target

FEATURES = BEFORE | {"fp8_conversion"}
"""Features that newer architectures have, too."""

TARGET = Target(
    capability=89,
    ptx_feature="ptx84",
    limits=Limits(shared_bytes=101376, max_warps=48, max_programs=24),
    multiprocessors=142,
    atoms=MMA_SYNC_SM80 + MMA_SYNC_SM89,
    features=FEATURES,
)
