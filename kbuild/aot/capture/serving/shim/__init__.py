"""What libraries need of Triton when they are imported, for machines without it: kernels are served by packages, or not at all.

`modules.py` has the list; nothing here compiles anything, and functions of the language cannot be called.
"""
