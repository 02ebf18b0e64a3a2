"""Where the threads of a program have to wait for each other, and see a fence before."""

from kbuild.compiler.analysis.barriers.explicit import barrier_analysis

__all__ = ["barrier_analysis"]
