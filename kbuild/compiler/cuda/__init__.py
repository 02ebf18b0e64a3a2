"""Kernels in CUDA C++: from a `.cu` file to PTX, by NVRTC, without a toolkit and without a GPU.

    sgemm.cu ─tokens─▶ kernels, parameters, includes ─NVRTC─▶ PTX ─ptx_text─▶ PTX of one block ─▶ ptxas, as for all others

`source.py` reads what a manifest has to agree with, without a compiler; `front.py` compiles one specialisation.
"""
