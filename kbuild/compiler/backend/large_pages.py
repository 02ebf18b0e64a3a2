"""Memory of the programs that kbuild starts, in large pages."""

from __future__ import annotations

import os
from collections.abc import Mapping

TUNABLES = "GLIBC_TUNABLES"
"""The variable of the environment that has settings of glibc's malloc."""
_LARGE_PAGES = "glibc.malloc.hugetlb=1:glibc.malloc.top_pad=33554432"
"""Settings of glibc's malloc, from 2.35 on: its heap grows by 32 MB at a time and asks for pages of 2 MB.  ptxas touches 20 to
60 MB for a tenth of a second: with pages of 4 kB, every seventh of its instructions is one of the kernel's
that brings a page."""


def with_large_pages(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which programs ask for large pages, unless the user has set how they allocate memory."""
    return {TUNABLES: _LARGE_PAGES, **environment}


def environment_of_programs() -> dict[str, str]:
    """What a program gets that is started without a command line's having prepared the environment: all of it, unread, and
    large pages."""
    return with_large_pages(os.environ)
