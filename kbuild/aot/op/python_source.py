"""What a package's `operators.py`, its stub and its operators of torch and JAX say, as the templates need it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from kbuild.aot.artifact.selection import KernelTable
from kbuild.aot.manifest.expressions import NUM_SMS
from kbuild.aot.op.expressions import OpExpression, aligned_name, given_name, to_conditions, to_python
from kbuild.aot.op.model import Op, OpRequirement, OpScalar, OpTensor
from kbuild.aot.op.tables import OperatorTable

_ANNOTATIONS = {"int": "SupportsIndex", "float": "SupportsFloat", "bool": "bool", "str": "str"}
_SCHEMA_TYPES = {"int": "int", "float": "float", "bool": "bool", "str": "str"}


def bare_launches(operators: Sequence[OperatorTable], kernels: Sequence[KernelTable]) -> list[KernelTable]:
    """The kernels whose launch is in the package itself: those that no operator has the name of."""
    taken = {table.name for table in operators}
    return [kernel for kernel in kernels if kernel.name not in taken]


def python_context(table: OperatorTable, kernels: Sequence[KernelTable]) -> dict[str, Any]:
    """An operator for `operators.py.j2`, its stub, and `_shapes.py.j2`, `_torch.py.j2` and `_jax.py.j2`."""
    op = table.op
    words = _words(table, kernels)
    arguments = [tensor.name for tensor in op.inputs] + [scalar.name for scalar in op.scalars]
    outputs = [tensor.name for tensor in op.outputs]
    return {
        "name": op.name,
        "kernels": tuple(dict.fromkeys(launch.kernel for launch in op.launches)),
        "doc": operator_doc(op, words),
        "c_doc": operator_doc(op, words, is_for_c=True),
        "signature": _signature(op),
        "stub": _stub(op, words),
        "result": _result(op),
        "arguments": arguments,
        "defaults": _signature(op)[: len(arguments)],
        "inputs": [
            {
                "name": tensor.name,
                "dims": [*tensor.dims],
                "types": tensor.types,
                "group": tensor.group,
                "optional": tensor.is_optional,
                "mutated": tensor.is_mutated,
            }
            for tensor in op.inputs
        ],
        "scalars": [scalar.name for scalar in op.scalars],
        "kinds": [(scalar.name, scalar.kind, scalar.computed is None) for scalar in op.scalars],
        "size_names": _size_names(table),
        "requirements": [
            (condition, requirement.message)
            for requirement in _traced(op)
            for condition in to_conditions(requirement.condition)
        ],
        "outputs": [_output(op, tensor) for tensor in op.outputs],
        "output_names": outputs,
        "returns": [*op.returns],
        "schema": _schema(op, is_out=False),
        "out_schema": _schema(op, is_out=True),
        "dims": [*op.dims],
        "packs": {name: any(f"*{name}" in tensor.dims for tensor in op.inputs) for name in op.dims},
        "has_written": any(tensor.is_mutated for tensor in op.inputs) or not op.outputs,
        "backward": _backward(op),
        "autocast": op.autocast,
    }


def _words(table: OperatorTable, kernels: Sequence[KernelTable]) -> dict[str, list[str]]:
    """The legal values of scalars that are words, by name."""
    found = {scalar.name: [*scalar.words] for scalar in table.op.scalars if scalar.words}
    for launch in table.launches:
        for option, number in zip(kernels[launch.kernel].options, launch.words):
            if number >= 0:
                own = [value for value in option.values if isinstance(value, str)]
                known = found.setdefault(table.op.scalars[number].name, own)
                known[:] = [value for value in known if value in own]
    return found


def _default(scalar: OpScalar) -> str | None:
    """The default in a signature; None where the scalar has to be given."""
    return None if scalar.is_required else "None" if scalar.computed else repr(scalar.default)


def _signature(op: Op) -> list[str]:
    texts = [tensor.name + "=None" * tensor.is_optional for tensor in op.inputs]
    for scalar in op.scalars:
        default = _default(scalar)
        texts.append(scalar.name if default is None else f"{scalar.name}={default}")
    return [*texts, "*", *(f"{tensor.name}=None" for tensor in op.outputs), "stream=None"]


def _stub(op: Op, words: dict[str, list[str]]) -> list[str]:
    """The annotated parameters of the stub."""
    texts = [f"{tensor.name}: _Array{' | None = None' if tensor.is_optional else ''}" for tensor in op.inputs]
    for scalar in op.scalars:
        default = _default(scalar)
        annotation = _ANNOTATIONS[scalar.kind]
        if scalar.name in words:
            annotation = f"Literal[{', '.join(repr(word) for word in words[scalar.name])}]"
        if scalar.computed:
            annotation += " | None"
        texts.append(f"{scalar.name}: {annotation}" + (f" = {default}" if default is not None else ""))
    outputs = [f"{tensor.name}: _Array | None = None" for tensor in op.outputs]
    return [*texts, "*", *outputs, "stream: _Stream = None"]


def _result(op: Op) -> str:
    """The annotation of what it returns."""
    count = len(op.returns)
    return "None" if not count else "_Array" if count == 1 else f"tuple[{', '.join(['_Array'] * count)}]"


def operator_doc(op: Op, words: dict[str, list[str]], is_for_c: bool = False) -> str:
    """The doc string of an operator, or its comment in C: the author's text, then shapes, types and defaults."""
    lines = [op.doc.strip() or f"The operator {op.name}.", ""]
    for tensor in op.inputs:
        optional = ", or None" if tensor.is_optional else ""
        written = ", which is written" if tensor.is_mutated else ""
        lines.append(f"{tensor.name}: {_tensor_doc(tensor)}{_layout_doc(tensor)}{optional}{written}")
    for scalar in op.scalars:
        what = {"int": "whole number", "float": "number", "bool": "True or False", "str": "word"}[scalar.kind]
        if scalar.name in words:
            what = " or ".join(repr(word) for word in words[scalar.name])
        default = scalar.computed.text if scalar.computed else repr(scalar.default)
        lines.append(f"{scalar.name}: {what}" + ("" if scalar.is_required else f", by default {default}"))
    for tensor in op.outputs:
        made = (
            "computed where it is given or gradients need it"
            if tensor.is_optional
            else "made unless it is given"
        )
        what = "written, NULL if it is not wanted" if is_for_c else made
        lines.append(f"{tensor.name}: {_tensor_doc(tensor)}, {what}")
    if is_for_c:
        return "\n".join(lines) + "\n"
    lines.append("stream: by default torch's current one, else the legacy stream")
    if op.returns:
        lines += ["", f"Returns {', '.join(op.returns)}."]
    return "\n".join(lines) + "\n"


def _tensor_doc(tensor: OpTensor) -> str:
    return f"tensor ({', '.join(tensor.dims)}) of {' or '.join(tensor.types)}"


def _layout_doc(tensor: OpTensor) -> str:
    """Which strides it may have."""
    if len(tensor.free) == len(tensor.dims):
        return ", of any strides" if tensor.dims else ""
    if not tensor.free:
        return ", contiguous"
    tight = [word.removeprefix("*") for place, word in enumerate(tensor.dims) if place not in tensor.free]
    return f", contiguous along {', '.join(tight)}"


def _output(op: Op, tensor: OpTensor) -> dict[str, Any]:
    """An output with its shape in Python: names of dimensions, and tuples of sizes for those that `*` stands for."""
    shape = []
    for word, size in zip(tensor.dims, tensor.sizes):
        shape.append(word if size is None else to_python(size))
    return {"name": tensor.name, "shape": shape, "dtype": _dtype(op, tensor)}


def _dtype(op: Op, tensor: OpTensor) -> str:
    """The type of an output in Python: that of the input that decides it, or the word for it."""
    group = [t for t in op.inputs if tensor.group and t.group == tensor.group]
    if not group:
        return repr(tensor.types[0])
    names = [t.name for t in group if not t.is_optional][:1] or [t.name for t in group]
    text = names.pop()
    for name in reversed(names):
        text = f"({name} if {name} is not None else {text})"
    return f"{text}.dtype"


def _traced(op: Op) -> list[OpRequirement]:
    """Requirements of sizes and scalars alone: strides, addresses and the device are not there while a call is traced."""
    unknown = {NUM_SMS, *(aligned_name(tensor.name) for tensor in op.tensors)}
    return [
        each
        for each in op.requirements
        if not each.condition.strides and not unknown & _names(each.condition)
    ]


def _size_names(table: OperatorTable) -> list[str]:
    """Statements for what sizes of outputs and requirements name beside dimensions: constants, what is given, defaults
    of scalars."""
    op = table.op
    named = {name for tensor in op.outputs for size in tensor.sizes for name in _names(size)}
    named |= {name for each in _traced(op) for name in _names(each.condition)}
    for scalar in reversed(op.scalars):
        named |= _names(scalar.computed) if scalar.name in named else set()
    lines = [f"{name} = {value}" for name, value in table.constants if name in named]
    for tensor in op.inputs:
        if given_name(tensor.name) in named:
            lines.append(f"{given_name(tensor.name)} = 0 if {tensor.name} is None else 1")
    for scalar in op.scalars:
        if scalar.name in named and not scalar.is_required:
            default = to_python(scalar.computed) if scalar.computed else repr(scalar.default)
            lines.append(f"{scalar.name} = {default} if {scalar.name} is None else {scalar.name}")
        if scalar.name in named and scalar.words:
            lines.append(f"{scalar.name} = {scalar.words!r}.index({scalar.name})")
    return lines


def _names(expression: OpExpression | None) -> set[str]:
    """The plain names in an expression."""
    nodes = ast.walk(expression.tree) if expression else ()
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def _schema(op: Op, is_out: bool) -> str:
    """The schema of torch's operator, which returns all outputs; with `is_out` it writes to given ones."""
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    texts = []
    for tensor in op.inputs:
        alias = f"({next(letters)}!)" if tensor.is_mutated else ""
        texts.append(f"Tensor{alias}{'?' * tensor.is_optional} {tensor.name}")
    for scalar in op.scalars:
        type_ = _SCHEMA_TYPES[scalar.kind] + "?" * (scalar.computed is not None)
        default = _default(scalar)
        if default is not None and scalar.kind == "str":
            default = f'"{scalar.default}"'
        texts.append(f"{type_} {scalar.name}" + (f"={default}" if default is not None else ""))
    if is_out:
        texts.append("*")
        texts += [f"Tensor({next(letters)}!) {tensor.name}" for tensor in op.outputs]
        return f"{op.name}.out({', '.join(texts)}) -> ()"
    results = ["Tensor"] * len(op.outputs)
    result = results[0] if len(results) == 1 else f"({', '.join(results)})"
    return f"{op.name}({', '.join(texts)}) -> {result}"


def _backward(op: Op) -> dict[str, Any] | None:
    """The names of what the backward pass takes and gives; arguments are looked up by the template."""
    if op.backward is None:
        return None
    return {"op": op.backward.op, "bind": dict(op.backward.bind), "grads": dict(op.backward.grads)}


def resolve_backward(contexts: Sequence[dict[str, Any]], operators: Sequence[OperatorTable]) -> None:
    """Give each operator with a gradient the arguments of the operator that computes it, in order.

    Each is `(what, name)`: an input, output or scalar of the forward operator, the gradient of an output, or a constant
    with its value: the default of a scalar, and None for what is computed, or a tensor that is not there.
    """
    by_name = {table.name: table.op for table in operators}
    for context, table in zip(contexts, operators):
        backward = context["backward"]
        if backward is None or backward["op"] not in by_name:
            context["backward"] = None
            continue
        other, op = by_name[backward["op"]], table.op
        inputs = [tensor.name for tensor in op.inputs]
        outputs = [tensor.name for tensor in op.outputs]
        scalars = [scalar.name for scalar in op.scalars]
        arguments: list[tuple[str, Any]] = []
        defaults = {scalar.name: scalar.default for scalar in other.scalars}
        for name in [*(tensor.name for tensor in other.inputs), *(scalar.name for scalar in other.scalars)]:
            source = backward["bind"].get(name, name).replace(" ", "")
            if source.startswith("grad("):
                arguments.append(("grad", source[5:-1]))
            elif source in inputs:
                arguments.append(("input", source))
            elif source in outputs:
                arguments.append(("output", source))
            elif source in scalars:
                arguments.append(("scalar", source))
            else:
                arguments.append(("constant", defaults.get(name)))
        made = [tensor.name for tensor in other.outputs]
        backward["arguments"] = arguments
        backward["saved_inputs"] = [name for kind, name in arguments if kind == "input"]
        backward["saved_outputs"] = [name for kind, name in arguments if kind == "output"]
        backward["differentiable"] = [name for kind, name in arguments if kind == "grad"]
        backward["results"] = [
            made.index(backward["grads"][name]) if name in backward["grads"] else None for name in inputs
        ]
        backward["single"] = len(made) == 1
