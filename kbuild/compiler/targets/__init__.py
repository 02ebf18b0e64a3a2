"""Hardware as data: what each architecture has, and the passes that compile for it."""

from kbuild.compiler.targets.sm_80 import SM_80
from kbuild.compiler.targets.sm_90 import SM_90
from kbuild.compiler.targets.target import REGISTER_FILE, Target, find_target, target_names

__all__ = ["REGISTER_FILE", "SM_80", "SM_90", "Target", "find_target", "target_names"]
