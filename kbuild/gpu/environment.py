"""What the environment says of the driver, for those who launch kernels without a command line."""

from __future__ import annotations

import os


def library_named() -> str | None:
    """The driver's library that is to be used in place of the machine's."""
    return os.environ.get("KBUILD_LIBCUDA") or None
