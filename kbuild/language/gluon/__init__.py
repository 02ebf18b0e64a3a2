"""Gluon, the language in which authors choose the layouts of tensors: `from kbuild.language import gluon`.

Kernels are decorated with `@gluon.jit`; their names come from `kbuild.language.gluon.language`, as `gl`.
"""

from kbuild.language.jit import ConstexprFunction, constexpr_function, gluon_jit, jit_aggregate

jit = gluon_jit
aggregate = jit_aggregate

__all__ = ["ConstexprFunction", "aggregate", "constexpr_function", "jit"]
