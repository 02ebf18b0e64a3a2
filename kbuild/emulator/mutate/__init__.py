"""Mutation testing: how many possible mistakes in a kernel's PTX its runs on the emulator find.

subject ─mutants─▶ one instruction changed ─trials─▶ caught: a finding, or a wrong output
                                               └───▶ equivalent, by rule or by a person's mark ─┐
                                               └───▶ survived: a gap in inputs or emulator ◀─no─┘
"""

from kbuild.emulator.mutate.campaign import (
    OPERATORS,
    MutantResult,
    campaign,
    clean,
    share,
    table,
    wrong_marks,
)
from kbuild.emulator.mutate.equivalence import Mark, read_marks
from kbuild.emulator.mutate.trial import Subject, TrialCase

__all__ = [
    "OPERATORS",
    "Mark",
    "MutantResult",
    "Subject",
    "TrialCase",
    "campaign",
    "clean",
    "read_marks",
    "share",
    "table",
    "wrong_marks",
]
