"""Typed random programs in Triton's language, and what compares the ways to run them."""

from random_programs.generator import program
from random_programs.nodes import Program

__all__ = ["Program", "program"]
