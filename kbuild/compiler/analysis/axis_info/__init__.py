"""Facts about the numbers in a tensor along each axis: runs of consecutive ones, runs of equal ones, and
factors."""

from kbuild.compiler.analysis.axis_info import rules  # noqa: F401  registers what operations do to the facts
from kbuild.compiler.analysis.axis_info.facts import AxisInfo, Info, power_of_two_in, unit_of

__all__ = ["AxisInfo", "Info", "power_of_two_in", "unit_of"]
