"""Triton's own text of its IR, as Triton 3.6 prints it, read into kbuild's operations.

    module attributes {"ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
      tt.func public @double(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32}) { … }
    }

`is_upstream` tells such a text from kbuild's own.  A text that has operations outside of a function is a fragment, such
as documentation has: it becomes a function whose arguments are the values that the fragment does not define.
"""

from kbuild.compiler.upstream.reading import is_upstream, read_upstream

__all__ = ["is_upstream", "read_upstream"]
