"""The key `reference` of `[kernel.verify]`, checked against the function that it names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from kbuild.aot.manifest.descriptors import expanded
from kbuild.aot.manifest.functions.kernel_function import KernelFunction
from kbuild.aot.manifest.functions.python import python_functions
from kbuild.aot.manifest.model import Kernel
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.reader import ManifestReader, described, suggestion
from kbuild.options import CUDA


def check_reference(
    reader: ManifestReader,
    path: KeyPath,
    given: Mapping[str, Any],
    kernel: Kernel,
    constants: Collection[str],
) -> None:
    """Notes a reference that is not there, or takes what the kernel does not have."""
    verify = kernel.verify
    key = (*path, "verify", "reference")
    if verify is None or not verify.reference:
        if verify is not None and kernel.language == CUDA and "reference" not in given["verify"]:
            advice = 'write reference = "reference.py:function", a function of numpy or a kernel in Triton\'s language'
            reader.error((*path, "verify"), 'missing key "reference"', advice)
        return
    function = reference_function(reader, key, verify.reference)
    if function is None:
        return
    known = {name for name, _, _ in expanded((argument.name, argument.type) for argument in kernel.args)}
    known |= {name for name, _ in verify.reference_constexprs}
    known |= {*constants, *(axis.name for axis in kernel.matrix)}
    for parameter in function.parameters:
        if parameter.name not in known and not parameter.has_default:
            message = f"{verify.reference} takes {parameter.name}, which is no argument of the kernel"
            close = suggestion(parameter.name, sorted(known))
            advice = "give it in reference_constexprs" if parameter.is_constexpr else close
            reader.error(key, message, advice)
    for name in ("reference_constexprs", "reference_grid"):
        if getattr(verify, name) and not function.is_jit:
            reader.error(
                (*path, "verify", name), f"is for kernels, and {verify.reference} is a function of numpy"
            )


def reference_function(reader: ManifestReader, key: KeyPath, reference: str) -> KernelFunction | None:
    """The function that a reference names; None, with the mistake noted, where there is none."""
    source, _, name = reference.partition(":")
    file = reader.root / source
    if not file.is_file():
        reader.error(key, f"no Python file {described(source)}")
        return None
    try:
        known = python_functions(file)
    except SyntaxError as error:
        reader.error(key, f"{source}:{error.lineno or 1}: {error.msg}")
        return None
    except OSError as error:
        reader.error(key, f"{source}: {error.strerror}")
        return None
    if name not in known:
        reader.error(key, f"{source} has no function {described(name)}", suggestion(name, known))
    return known.get(name)
