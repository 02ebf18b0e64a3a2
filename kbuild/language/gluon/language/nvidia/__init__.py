"""The names of NVIDIA's hardware: `ampere` and `hopper`."""

from kbuild.language.gluon.language.nvidia import ampere, hopper

__all__ = ["ampere", "hopper"]
