"""From Triton-language source to the tensor IR, without running the source."""

from kbuild.compiler.frontend.digest import source_digest
from kbuild.compiler.frontend.module import build_module

__all__ = ["build_module", "source_digest"]
