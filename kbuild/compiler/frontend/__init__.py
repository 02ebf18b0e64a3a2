"""From Triton-language source to the tensor IR, without running the source.

`digest.source_digest` is not among the names here: only builds use it, and other compilations need not import
hashlib.
"""

from kbuild.compiler.frontend.module import build_module
from kbuild.compiler.frontend.signature import kernel_signature

__all__ = ["build_module", "kernel_signature"]
