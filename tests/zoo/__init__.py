"""Kernels of all kinds with inputs and right answers: the shared test set of interpreter, passes, backend and GPU."""

from zoo import cases_basic, cases_descriptors, cases_products, cases_tiles
from zoo.case import Bits, Case, numbers

CASES = {case.name: case for case in (*cases_basic.CASES, *cases_products.CASES, *cases_tiles.CASES, *cases_descriptors.CASES)}

__all__ = ["CASES", "Bits", "Case", "numbers"]
