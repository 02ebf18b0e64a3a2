"""Hardware as data: the features of each architecture, the passes that compile for it, and the devices that run
its code.

Every file `sm_*.py` of this folder makes a `TARGET`; they are not listed anywhere else.
"""

from kbuild.targets.devices import Devices, capability_of, devices_of
from kbuild.targets.registry import ARCHS, TARGETS, find_target, nearest_target, target_of_code
from kbuild.targets.target import Limits, PtxasGuarantees, Target, Thresholds

__all__ = [
    "ARCHS",
    "TARGETS",
    "Devices",
    "Limits",
    "PtxasGuarantees",
    "Target",
    "Thresholds",
    "capability_of",
    "devices_of",
    "find_target",
    "nearest_target",
    "target_of_code",
]
