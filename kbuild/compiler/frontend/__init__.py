"""From Triton-language source to the tensor IR, without running the source.

`digest.source_digest` is not among the names here: builds ask for it, and a compilation that does not is
spared hashlib.
"""

from kbuild.compiler.frontend.module import build_module

__all__ = ["build_module"]
