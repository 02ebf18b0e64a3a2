"""A `[[kernel]]` table made from a kernel's source: every key, and what was guessed for it."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbuild.aot.init.constants import Constants, ConstantsReader, candidates_of
from kbuild.aot.init.extents import ExtentsReader, NoExtent, Term, size_of
from kbuild.aot.init.guesses import AXES, TYPES, Guess, element_type, is_float_name
from kbuild.aot.init.launches import Launch, NoExpression, launches_of, layout_text, stride_axes
from kbuild.aot.init.source import KernelSource, SourceFile
from kbuild.aot.init.uses import Uses, read_uses
from kbuild.aot.init.verifying import LARGEST_TUNED, LARGEST_VERIFIED, launches_for
from kbuild.aot.manifest.configs.decorators import Decorations, read_decorations
from kbuild.aot.manifest.configs.evaluate import NoValue, last_name, names_in
from kbuild.aot.manifest.expressions import parse
from kbuild.aot.manifest.launches.load_tune import MAX_CANDIDATES
from kbuild.aot.manifest.model import DTYPES, TORCH_DTYPES
from kbuild.errors import ManifestError

_TORCH = {name: type_ for name, type_ in TORCH_DTYPES.items() if type_ in DTYPES}
_TORCH |= {"half": "fp16", "float": "fp32", "int": "i32", "long": "i64"}
_TL = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64", "int1": "i1"}
_TL |= {f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)} | {
    f"uint{bits}": f"u{bits}" for bits in (8, 16, 32, 64)
}
_MAX_REQUIRE = 900


@dataclass
class KernelDraft:
    """One kernel of the manifest to be, with the guesses by key."""

    name: str
    source: str
    function: str
    """Empty where it is the default of `source`."""
    args: dict[str, str] = field(default_factory=dict)
    grid: list[str] = field(default_factory=lambda: ["1"])
    grid_args: dict[str, str] = field(default_factory=dict)
    matrix: dict[str, list[Any]] = field(default_factory=dict)
    configs: list[dict[str, Any]] = field(default_factory=list)
    sizes: dict[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    zeros: list[str] = field(default_factory=list)
    candidates: dict[str, list[Any]] = field(default_factory=dict)
    require: str = ""
    tune_values: dict[str, Any] = field(default_factory=dict)
    restore: list[str] = field(default_factory=list)
    guesses: dict[str, list[Guess]] = field(default_factory=dict)
    """By key: `args`, `grid` …; those of the kernel itself under `name`."""

    def guess(self, key: str, subject: str, text: str) -> None:
        """Notes a guess, or what was left out."""
        self.guesses.setdefault(key, []).append(Guess(subject, text))


def draft_kernel(file: SourceFile, kernel: KernelSource, name: str, source: str) -> KernelDraft:
    """The table of one kernel."""
    is_default = kernel.name == f"{file.path.stem}_kernel"
    draft = KernelDraft(name, source, "" if is_default else kernel.name)
    uses = read_uses(kernel, file.jitted)
    launches = launches_of(file, kernel)
    decorations = read_decorations(kernel.node, file.evaluator)
    _draft_args(draft, uses, launches, file)
    integers = [name for name, type_ in draft.args.items() if type_ in ("i32", "i64", "u32", "u64")]
    constants = ConstantsReader(uses, decorations, launches, file.evaluator, integers).read()
    draft.matrix.update(constants.axes)
    draft.configs = constants.configs()
    draft.guesses.setdefault("config", []).extend(constants.guesses)
    draft.guesses.setdefault("matrix", []).extend(constants.axis_guesses)
    constexprs = _integer_constexprs(kernel, draft)
    _draft_grid(draft, launches, [*integers, *constexprs])
    _draft_verify(draft, uses, integers, constexprs, decorations, stride_axes(launches))
    _draft_tune(draft, kernel, decorations, constants)
    if draft.candidates:
        draft.restore = [name for name in decorations.restored if name in draft.args]
    elif decorations.restored:
        draft.guess("name", "no counterpart", f"restore_value of autotune: {', '.join(decorations.restored)}")
    for text in (*decorations.untranslated, *constants.untranslated):
        draft.guess("name", "no counterpart", text)
    if kernel.node.args.vararg:
        draft.guess("name", "no counterpart", f"*{kernel.node.args.vararg.arg}")
    return draft


def _draft_args(draft: KernelDraft, uses: Uses, launches: Sequence[Launch], file: SourceFile) -> None:
    """The types of run-time arguments."""
    taken = {parameter.name for parameter in uses.kernel.parameters}
    axis = next((name for name in AXES if name not in taken), "_".join(AXES))
    annotations = {
        node.arg: node.annotation for node in ast.walk(uses.kernel.node) if isinstance(node, ast.arg)
    }
    for parameter in uses.kernel.run_time:
        name = parameter.name
        passed = [(launch, launch.passed[name]) for launch in launches if name in launch.passed]
        annotated = annotations.get(name)
        stated = _TL.get(last_name(annotated), "") if annotated else ""
        if stated:
            draft.args[name] = stated
            continue
        if name in uses.descriptors:
            draft.args[name] = _descriptor(draft, uses, name, passed, axis)
        elif name in uses.pointers or (
            name not in uses.integers and any(_is_tensor(file, *one) for one in passed)
        ):
            element = next((known for one in passed if (known := _allocated(*one))), "")
            guessed = element_type(name, uses)
            draft.args[name] = f"*{element or guessed or '{' + axis + '}'}"
            if element or guessed:
                why = "as the wrapper allocates it" if element else "by its name or use"
                draft.guess("args", name, f"guessed *{element or guessed}, {why}")
        else:
            draft.args[name] = _scalar(name, uses, passed)
            draft.guess("args", name, f"guessed {draft.args[name]}")
        if name not in uses.descriptors and _is_tuple(name, uses, passed):
            draft.guess("args", name, f'a tuple: write the list of its types, as ["{draft.args[name]}", …]')
    if any(f"{{{axis}}}" in type_ for type_ in draft.args.values()):
        draft.matrix[axis] = [*TYPES]
        draft.guess("matrix", axis, "guessed: the element type of all pointers without one of their own")


def _is_tuple(name: str, uses: Uses, passed: Sequence[tuple[Launch, ast.expr]]) -> bool:
    """Whether a parameter is a tuple: launches pass one, or the kernel takes elements by their numbers."""
    if any(isinstance(launch.resolved(node), ast.Tuple) for launch, node in passed):
        return True
    return any(
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id == name
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, int)
        for node in ast.walk(uses.kernel.node)
    )


def _descriptor(
    draft: KernelDraft, uses: Uses, name: str, passed: Sequence[tuple[Launch, ast.expr]], axis: str
) -> str:
    """The type of a tensor descriptor, with the blocks that the wrapper gives it."""
    for launch, node in passed:
        made = launch.resolved(node)
        given = [launch.resolved(one) for one in made.args] if isinstance(made, ast.Call) else []
        is_last = uses.kernel.is_gluon and given and not isinstance(given[-1], ast.List | ast.Tuple)
        layout = layout_text(given.pop()) if is_last else ""
        if given and isinstance(given[-1], ast.List | ast.Tuple):
            try:
                sizes = [launch.expression(size) for size in given[-1].elts]
            except NoExpression:
                continue
            if (
                len(sizes) == uses.descriptors[name]
                and all(size.isidentifier() or size.isdigit() for size in sizes)
                and any(size != "1" for size in sizes)
            ):
                return f"tensordesc<{{{axis}}}[{', '.join(sizes)}]{layout and f',{layout}'}>"
    draft.guess("args", name, "guessed blocks of 64: write those that the kernel loads")
    return f"tensordesc<{{{axis}}}[{', '.join(['64'] * uses.descriptors[name])}]>"


def _is_tensor(file: SourceFile, launch: Launch, node: ast.expr) -> bool:
    """Whether a wrapper passes a tensor: annotated so, allocated by torch, or used as one."""
    if not isinstance(node, ast.Name):
        return False
    if "Tensor" in launch.annotations.get(node.id, ""):
        return True
    value = launch.scope.get(node.id)
    if isinstance(value, ast.Call) and last_name(value.func) in (
        "empty",
        "empty_like",
        "zeros",
        "zeros_like",
        "ones",
    ):
        return True
    return any(
        isinstance(used, ast.Attribute)
        and isinstance(used.value, ast.Name)
        and used.value.id == node.id
        and used.attr
        in ("stride", "shape", "numel", "data_ptr", "is_cuda", "is_contiguous", "contiguous", "device")
        for used in ast.walk(file.tree)
    )


def _allocated(launch: Launch, node: ast.expr) -> str:
    """The element type with which a wrapper allocates a tensor; empty where it does not say."""
    made = launch.resolved(node)
    if isinstance(made, ast.Call):
        dtype = next((keyword.value for keyword in made.keywords if keyword.arg == "dtype"), None)
        if isinstance(dtype, ast.Attribute) and ast.unparse(dtype.value) == "torch":
            return _TORCH.get(dtype.attr, "")
    return ""


def _scalar(name: str, uses: Uses, passed: Sequence[tuple[Launch, ast.expr]]) -> str:
    for launch, node in passed:
        known = launch.resolved(node)
        if isinstance(known, ast.Name):
            annotated = launch.annotations.get(known.id, "")
            if annotated in ("float", "bool"):
                return "fp32" if annotated == "float" else "i1"
            known = launch.defaults.get(known.id, known)
        try:
            value = launch.literal(known)
        except NoValue:
            continue
        if isinstance(value, float | bool):
            return "fp32" if isinstance(value, float) else "i1"
    is_float = is_float_name(name)
    if name in uses.integers and not (is_float and name in uses.floats):
        return "i32"
    return "fp32" if name in uses.floats or is_float else "i32"


def _integer_constexprs(kernel: KernelSource, draft: KernelDraft) -> list[str]:
    """The constexpr parameters that expressions of the manifest may name."""
    given = {**draft.configs[0], **{name: values[0] for name, values in draft.matrix.items()}}
    found: list[str] = []
    for parameter in kernel.constexprs:
        value = given.get(parameter.name, parameter.default)
        is_expression = isinstance(value, str) and not value.isidentifier() and value != ""
        if isinstance(value, int) or is_expression or parameter.name in ("num_warps", "num_stages"):
            found.append(parameter.name)
    return found


def _draft_grid(draft: KernelDraft, launches: Sequence[Launch], known: Sequence[str]) -> None:
    """The grid of the first launch that can be read."""
    reason = "no launch of it in this file"
    for launch in launches:
        try:
            axes = launch.grid_axes()
            for axis in axes:
                parse(axis, [*known, *launch.grid_names, "num_sms"], "grid")
        except (NoExpression, ManifestError) as error:
            reason = f"{' '.join(str(error.args[0]).split())[:80]} cannot be read"
            launch.grid_names.clear()
            continue
        used = set().union(*(names_in(ast.parse(text)) for text in axes))
        draft.grid = axes
        draft.grid_args = {name: "i32" for name in launch.grid_names if name in used}
        for name in draft.grid_args:
            meaning = launch.grid_names[name]
            text = "computed by the wrapper" if meaning == name else f"{meaning} in the wrapper"
            draft.guess("grid_args", name, f"guessed i32; {text}")
        return
    draft.guess("grid", "grid", f"to be filled in: {reason}")


def _draft_verify(
    draft: KernelDraft,
    uses: Uses,
    integers: Sequence[str],
    constexprs: Sequence[str],
    decorations: Decorations,
    axes: Mapping[str, int],
) -> None:
    pointers = [name for name, type_ in draft.args.items() if type_.startswith(("*", "tensordesc"))]
    reader = ExtentsReader(uses, () if "grid" in draft.guesses else draft.grid, integers, constexprs)
    terms: dict[str, list[Term]] = {}
    try:
        if descriptors := [name for name in pointers if name in uses.descriptors]:
            raise NoExtent(f"the descriptor {descriptors[0]}")
        for name in pointers:
            terms[name] = reader.terms(name)
            parse(
                size_of(terms[name]),
                [*integers, *constexprs, *draft.grid_args],
                "",
            )
    except (NoExtent, ManifestError) as error:
        what = " ".join(str(error.args[0]).split())
        draft.guess("verify", "[kernel.verify]", f"left out: what {what} reaches cannot be read")
        return
    if not pointers:
        draft.guess("verify", "[kernel.verify]", "left out: the kernel has no pointers")
        return
    scalars = {name: type_ for name, type_ in (draft.args | draft.grid_args).items() if name not in pointers}
    launches = launches_for(terms, scalars, draft.grid_args, axes)
    numbers = _numbers(draft)
    draft.sizes = launches.sizes
    draft.values = launches.values(numbers, LARGEST_VERIFIED)
    draft.tune_values = launches.values(numbers, LARGEST_TUNED, is_large=True)
    locks = [name for name in pointers if uses.pointers.get(name, set()) & {"atomic_cas", "atomic_xchg"}]
    draft.zeros = [name for name in pointers if name in (*decorations.zeroed, *locks)]
    draft.guess("verify", "sizes, values", "guessed from the addresses; check them")


def _numbers(draft: KernelDraft) -> dict[str, int]:
    """Values of constexprs, with which arrays are measured."""
    given = {**draft.configs[0], **{name: values[0] for name, values in draft.matrix.items()}}
    return {name: value for name, value in given.items() if isinstance(value, int)}


def _draft_tune(
    draft: KernelDraft, kernel: KernelSource, decorations: Decorations, constants: Constants
) -> None:
    """The other configurations of autotune, as candidates."""
    if len(decorations.configs) < 2:
        return
    defaults = {parameter.name: parameter.default for parameter in kernel.constexprs if parameter.is_literal}
    lists, require = candidates_of(decorations, constants, defaults)
    if decorations.keys:
        text = "autotune's key: a bucket for each range of them, with `when`, tunes them apart"
        draft.guess("tune", ", ".join(decorations.keys), text)
    count = math.prod(map(len, lists.values()))
    if not lists:
        return
    shown = ", ".join(f"{name} {values}" for name, values in lists.items())
    if not draft.sizes or count > MAX_CANDIDATES:
        why = "its sizes are not known" if not draft.sizes else f"{count:,} combinations are too many"
        draft.guess("tune", "[kernel.tune]", f"left out: {why}; autotune tries {shown}")
        return
    draft.candidates = lists
    draft.guess("tune", "bucket", "guessed: one launch stands for all")
    if len(require) <= _MAX_REQUIRE:
        draft.require = require
    else:
        text = f"all {count} combinations are tried, autotune's {len(decorations.configs)} and others"
        draft.guess("tune", "candidates", text)
