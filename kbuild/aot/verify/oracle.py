"""What a kernel's results are compared with: the kernel's own meaning, or what the manifest names instead: a function of
numpy, or another kernel, in Triton's language, which the interpreter runs.

    reference = "reference.py:sgemm"        def sgemm(a, b, c, M, N, K): c[:] = (a.reshape(M, K) @ b.reshape(K, N)).ravel()

A function of numpy gets the arguments by name, numbers with a point in float64, and changes arrays as the kernel does.  It is
called on several contents of the arrays, which shows what it writes, whether that depends on what was there, and whether
float32 is enough for it.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from kbuild.aot.manifest.expressions import NUM_SMS, evaluate, parse
from kbuild.aot.manifest.functions.python import python_functions
from kbuild.aot.verify.cases import FEW_SMS, LaunchCase
from kbuild.aot.verify.data import numbers, poisoned
from kbuild.aot.verify.recorded_reference import recorded_reference
from kbuild.aot.verify.reference import Reference, reference, types_of
from kbuild.aot.verify.verdict import ReferenceTask
from kbuild.compiler import driver
from kbuild.compiler.frontend import build_module
from kbuild.compiler.frontend.signature import parse_type
from kbuild.compiler.interp import decode, encode, memory_dtype
from kbuild.compiler.interp.loaded import Type, is_float, is_pointer, module_of, pointee_of
from kbuild.errors import Loc, UsageError
from kbuild.options import DEFAULTS

_SHIFT = 1000.5
"""What is added to the contents of arrays to see which elements are written, and whether they are read before."""


def types_of_signature(signature: Mapping[str, str]) -> dict[str, Type]:
    """The types of the arguments of a kernel in CUDA C++, by name; sizes and strides of tensors are among them."""
    found: dict[str, Type] = {}
    for name, text in signature.items():
        plain = (
            text.partition(":swizzle")[0].rstrip(">") + ">"
            if text.startswith("tensordesc")
            else text.partition(":")[0]
        )
        found |= {part: dtype.ir for part, dtype, _ in parse_type(plain, name).parameters(name)}
    return found


def types_of_artifact(artifact: driver.Artifact, signature: Mapping[str, str]) -> dict[str, Type]:
    """The types of a kernel's arguments, by name."""
    if "ttir" in artifact.asm:
        return types_of(module_of(artifact.asm["ttir"]))
    return types_of_signature(signature)


Oracle = Callable[[LaunchCase, str, int], Reference]
"""Gives the expected results of a launch with data of a kind, from a seed."""


def oracle_of(
    artifact: driver.Artifact,
    types: Mapping[str, Type],
    signature: Mapping[str, str],
    values: Mapping[str, Any],
    wanted: ReferenceTask | None,
) -> Oracle:
    """What the results of a variant with some compile-time values are compared with.  Raises KbuildError as compiling the
    reference does."""
    if wanted is None:
        own = module_of(artifact.asm["ttir"])
        return lambda case, kind, seed: (recorded_reference if case.recorded else reference)(
            own, case, kind, seed
        )
    constexprs = dict(values) | dict(wanted.constexprs)
    if not wanted.is_kernel:
        given = {name: value for name, value in values.items() if name not in types}
        return lambda case, kind, seed: numpy_reference(wanted.source, types, case, kind, seed, given)
    file, _, name = wanted.source.rpartition(":")
    takes = {one.name: one.is_constexpr for one in python_functions(Path(file))[name].parameters}
    module = build_module(
        wanted.source,
        {name: type_ for name, type_ in signature.items() if name in takes},
        {name: value for name, value in constexprs.items() if takes.get(name)},
        DEFAULTS,
    )

    def interpreted(case: LaunchCase, kind: str, seed: int) -> Reference:
        known = {
            name: value for name, value in (constexprs | dict(case.scalars)).items() if isinstance(value, int)
        }
        known |= {NUM_SMS: FEW_SMS}
        grid = tuple(evaluate(parse(text, known, "reference_grid"), known) for text in wanted.grid)
        return reference(module, replace(case, grid=grid or case.grid), kind, seed)

    return interpreted


@dataclass(frozen=True)
class _Called:
    """What a function of numpy made of some arrays."""

    before: Mapping[str, np.ndarray]
    """As bytes in memory."""
    after: Mapping[str, np.ndarray]

    def changed(self, name: str) -> np.ndarray:
        """Which elements of an array are other than before."""
        return _bits(self.before[name]) != _bits(self.after[name])


def numpy_reference(
    source: str,
    types: Mapping[str, Type],
    case: LaunchCase,
    kind: str,
    seed: int,
    constexprs: Mapping[str, Any] = MappingProxyType({}),
) -> Reference:
    """The expected results of a launch with data of a kind, by a function of numpy, which may take compile-time values as
    well.  Raises `UsageError` where it fails."""
    function = _taking(load_function(source))
    if case.sizes is None:
        raise UsageError(
            "the reference is a function of numpy, which does not show how large arrays are",
            help="add `sizes` to [kernel.verify]",
        )
    random, sizes, scalars = np.random.default_rng(seed), dict(case.sizes), dict(case.scalars)
    arrays = {
        name: numbers(kind, pointee_of(type_), sizes[name], random)
        for name, type_ in types.items()
        if is_pointer(type_)
    }
    for name in case.zeros:
        arrays[name][...] = 0
    given = dict(constexprs) | scalars | arrays
    elements = {name: pointee_of(types[name]) for name in arrays}
    wide = _call(source, function, given, elements, np.float64)
    touched = [name for name in arrays if wide.changed(name).any()]
    shifted = _shifted(given, elements, touched or list(arrays))
    other = _call_or_none(source, function, shifted, elements)
    written = {name: wide.changed(name) | (other.changed(name) if other else False) for name in arrays}
    outputs = [name for name in arrays if written[name].any()]
    unread = frozenset(outputs) if other and _same(wide, other, written) else frozenset[str]()
    narrow = _call(source, function, given, elements, np.float32)
    exact = all(np.array_equal(_bits(wide.after[name]), _bits(narrow.after[name])) for name in outputs)
    arguments = {name: given[name] for name in types}
    for name in unread:
        arguments[name] = np.where(written[name], poisoned(elements[name], sizes[name]), arrays[name])
    expected = {name: np.where(written[name], wide.after[name], arguments[name]) for name in arrays}
    return Reference(arguments, expected, written, unread, exact)


def _taking(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that leaves out the arguments that another does not take."""
    parameters = inspect.signature(function).parameters.values()
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
        return function
    takes = {one.name for one in parameters}
    return lambda **given: function(**{name: value for name, value in given.items() if name in takes})


def _call(
    source: str,
    function: Callable[..., Any],
    given: Mapping[str, Any],
    elements: Mapping[str, Type],
    float_: type,
) -> _Called:
    """What the function makes of arrays, with floating-point numbers of a type of numpy."""
    arrays = {
        name: decode(given[name].copy(), element).astype(float_) if is_float(element) else given[name].copy()
        for name, element in elements.items()
    }
    scalars = {name: value for name, value in given.items() if name not in arrays}
    with _blamed(source), np.errstate(all="ignore"):
        function(**scalars, **arrays)
    after = {
        name: np.atleast_1d(encode(arrays[name].astype(np.float64), element))
        if is_float(element)
        else arrays[name]
        for name, element in elements.items()
    }
    return _Called({name: given[name] for name in elements}, after)


def _call_or_none(
    source: str, function: Callable[..., Any], given: Mapping[str, Any], elements: Mapping[str, Type]
) -> _Called | None:
    """As `_call`; None where the function fails, as it may for numbers that are no positions any more."""
    try:
        return _call(source, function, given, elements, np.float64)
    except UsageError:
        return None


def _shifted(given: Mapping[str, Any], elements: Mapping[str, Type], names: list[str]) -> dict[str, Any]:
    """The arguments with other contents of some arrays, none of whose elements is what it was."""
    found = dict(given)
    for name in names:
        element, values = elements[name], given[name]
        if is_float(element):
            moved = (
                np.nan_to_num(decode(values, element).astype(np.float64), nan=0.0, posinf=1.0, neginf=2.0)
                + _SHIFT
            )
            found[name] = np.atleast_1d(encode(moved, element))
        else:
            found[name] = values ^ np.array(1, np.dtype(memory_dtype(element)))
    return found


def _same(one: _Called, other: _Called, written: Mapping[str, np.ndarray]) -> bool:
    """Whether two calls wrote the same."""
    return all(
        np.array_equal(_bits(one.after[name])[marks], _bits(other.after[name])[marks])
        for name, marks in written.items()
    )


def load_function(source: str) -> Callable[..., Any]:
    """The function that `file.py:name` names, from its module, which is executed.  Raises `UsageError` where there is none."""
    path, _, name = source.rpartition(":")
    folder = str(Path(path).parent)
    spec = importlib.util.spec_from_file_location(f"kbuild_reference_{Path(path).stem}", path)
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise UsageError(f"the reference {source}: there is no such file")
    module = importlib.util.module_from_spec(spec)
    if folder not in sys.path:  # As for a script, so that it can import what stands beside it.
        sys.path.insert(0, folder)
    with _blamed(source):
        spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise UsageError(f"the reference {source}: {path} has no function {name}")
    return function


@contextmanager
def _blamed(source: str) -> Iterator[None]:
    """Reports whatever goes wrong in the user's function as a mistake at its line."""
    path = source.rpartition(":")[0]
    try:
        yield
    except Exception as error:
        frames = [one for one in traceback.extract_tb(error.__traceback__) if one.filename == path]
        place = Loc(path, (frames[-1].lineno or 1) if frames else getattr(error, "lineno", 1) or 1)
        raise UsageError(f"the reference {source} failed: {type(error).__name__}: {error}", place) from None


def _bits(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")
