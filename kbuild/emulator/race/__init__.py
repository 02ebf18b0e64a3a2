"""Finds races and misuse of asynchronous operations: unordered accesses, whether or not this run went wrong."""

from kbuild.emulator.race.detector import RaceDetector
from kbuild.emulator.race.reports import KINDS, LENIENT

__all__ = ["KINDS", "LENIENT", "RaceDetector"]
