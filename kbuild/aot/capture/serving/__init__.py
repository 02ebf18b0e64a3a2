"""Answers calls of a library's own kernels, `kernel[grid](…)`, with the launches of a package.

These modules are copied into every package that serves a library, as its folder `_serving`, so they import nothing but the
standard library, each other, and those of `hook` and `text` that are copied with them (`artifact/rendering.py` has the list).
"""
