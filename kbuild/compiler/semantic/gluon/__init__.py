"""Gluon: the functions, layouts and values of kernels whose author chooses the layouts.

Tables: `gl` holds the functions of `gl` that `tl` lacks or has otherwise, `gl.nvidia.hopper.tma` and its like
those of the modules of hardware, `shared_memory` the methods of a tile.
"""
