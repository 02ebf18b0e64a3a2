"""Inputs with mistakes in them: manifests, kernels and IR texts, mutated at random.  Each must be taken, or
refused in words.

`bench/fuzz/fuzz_input.py` tries many, `tests/mutated/test_mutated_inputs.py` a few.
"""
