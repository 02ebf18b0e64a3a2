"""Hardware as data: what each architecture has, the passes that compile for it, and which devices run what.

Every file `sm_*.py` of this folder makes a `TARGET`; there is no list of them anywhere else.
"""

from kbuild.targets.devices import Devices, capability_of, devices_of
from kbuild.targets.registry import ARCHS, TARGETS, find_target, nearest_target, target_of_code
from kbuild.targets.target import Limits, Target, Thresholds

__all__ = [
    "ARCHS",
    "TARGETS",
    "Devices",
    "Limits",
    "Target",
    "Thresholds",
    "capability_of",
    "devices_of",
    "find_target",
    "nearest_target",
    "target_of_code",
]
