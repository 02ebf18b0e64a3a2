"""What is said of a call that a package does not serve: the captured neighbours, and the line that would add it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from kbuild.aot.capture.serving.facts import ServedLaunch
from kbuild.aot.capture.serving.launches import Launch, Misfit
from kbuild.aot.capture.serving.specialize import hint
from kbuild.aot.capture.serving.values import element_type, word


def refusal_text(function: Any, values: Mapping[str, Any], options: Mapping[str, Any], reasons: str) -> str:
    """The message of the error for a call of a `Function`."""
    package, facts = function.dispatch.package, function.facts
    head = f"{package} has no variant of {facts.module}:{facts.name} for this call"
    lines = [f"{head}: {reasons}" if reasons else head]
    for launch in function.launches:
        try:
            text = launch.refusal(values)
        except (Misfit, TypeError, ValueError, OverflowError):
            continue
        lines += [text] if text else []
        lines += _line_to_add(launch, values, options)
    lines.append(
        "to add it: run again with KBUILD_RECORD=FOLDER, give FOLDER to kbuild import beside the capture, and build "
        f"{package} anew"
    )
    return "\n".join(lines)


def _line_to_add(launch: Launch, values: Mapping[str, Any], options: Mapping[str, Any]) -> Iterator[str]:
    """The line of the manifest, or of its list of variants, that a launch lacks for a call."""
    facts = launch.facts
    if facts.listed:
        yield f"  the line to add to {facts.listed}:\n    {_row(facts, values, options)}"
        return
    for name in facts.axes:
        known = list(dict.fromkeys(config[facts.columns.index(name)] for config in facts.configs))
        if name in values and word(values[name]) not in known:
            wanted = json.dumps([*known, word(values[name])])
            yield f"  the line to change in kernels.toml, of the kernel {facts.name}:\n    matrix.{name} = {wanted}"
    for name, argument in facts.types:
        yield f"  its axis {name} is {element_type(values[argument]) or 'of an unknown type'} in this call"
    hints = {
        argument.name: hint(values[argument.name]) for argument in facts.arguments if not argument.is_tuple
    }
    assumed = ", ".join(f"{name} = {text}" for name, text in hints.items() if text)
    yield (
        f"  the entry of specialize that fits it:\n    {{ {assumed} }}"
        if assumed
        else "  it fits no hints: specialize = [{}]"
    )


def _row(facts: ServedLaunch, values: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """The line of a list of variants."""
    axes, hinted, columns = facts.header
    types = {name: element_type(values[argument]) for name, argument in facts.types}
    flat: dict[str, Any] = {}
    for argument in facts.arguments:
        value = values[argument.name]
        if argument.is_tuple:
            flat |= {f"{argument.name}_{index}": item for index, item in enumerate(value)}
        else:
            flat[argument.name] = value
    usual = dict(zip(facts.columns, facts.configs[0]))
    given = {**usual, **{name: word(value) for name, value in {**options, **values}.items()}}
    point = [types.get(name, given.get(name)) for name in axes]
    return json.dumps([point, [hint(flat[name]) for name in hinted], [given.get(name) for name in columns]])
