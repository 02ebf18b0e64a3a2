"""PTX text from plain data; `parse(print_module(m))` is `m`."""

from __future__ import annotations

from collections.abc import Iterator

from kbuild.emulator.ptx.model import (
    BranchTargets,
    CallPrototype,
    Instruction,
    Label,
    Pragma,
    PtxFunction,
    PtxModule,
    RegisterDeclaration,
    SourceLine,
    Statement,
    Variable,
)


def print_module(module: PtxModule) -> str:
    """The text of a module."""
    lines = [
        f".version {module.version}",
        f".target {', '.join(module.target)}",
        f".address_size {module.address_size}",
        "",
    ]
    lines += [print_variable(variable) + ";" for variable in module.variables]
    for function in module.functions:
        lines += ["", *_function(function)]
    lines += [f'.file {number} "{name}"' for number, name in module.files]
    lines += [f".section {section}" for section in module.sections]
    return "\n".join(lines) + "\n"


def print_variable(variable: Variable) -> str:
    """A declaration without its final punctuation."""
    words = [f".{variable.linkage}"] if variable.linkage else []
    words.append(f".{variable.space}")
    if variable.align and not variable.attributes:
        words.append(f".align {variable.align}")
    words.append(f".{variable.type}")
    words += [f".{attribute}" for attribute in variable.attributes]
    if variable.align and variable.attributes:
        words.append(f".align {variable.align}")
    name = variable.name
    if variable.size is not None:
        name += f"[{variable.size or ''}]"
    if variable.initial:
        values = ", ".join(map(str, variable.initial))
        name += f" = {{{values}}}" if variable.size is not None else f" = {values}"
    return " ".join((*words, name))


def _parameters(parameters: tuple[Variable, ...]) -> str:
    return "(" + ", ".join(map(print_variable, parameters)) + ")"


def _function(function: PtxFunction) -> Iterator[str]:
    linkage = f".{function.linkage} " if function.linkage else ""
    results = _parameters(function.results) + " " if function.results else ""
    kind = ".entry" if function.is_entry else ".func"
    yield f"{linkage}{kind} {results}{function.name}{_parameters(function.parameters)}"
    for name, values in function.directives:
        yield f".{name} {', '.join(map(str, values))}".rstrip()
    if function.body is None:
        yield ";"
        return
    yield "{"
    source: SourceLine | None = None
    for statement in function.body:
        if isinstance(statement, Instruction) and statement.source != source and statement.source is not None:
            source = statement.source
            attributes = f", {source.attributes}" if source.attributes else ""
            yield f"\t.loc\t{source.file} {source.line} {source.column}{attributes}"
        yield _statement(statement)
    yield "}"


def _statement(statement: Statement) -> str:
    if isinstance(statement, Label):
        return f"{statement.name}:"
    if isinstance(statement, BranchTargets):
        return f"{statement.name}: .branchtargets {', '.join(statement.labels)};"
    if isinstance(statement, CallPrototype):
        return f"{statement.name}: .callprototype {statement.text};"
    if isinstance(statement, Pragma):
        return f'\t.pragma "{statement.text}";'
    if isinstance(statement, RegisterDeclaration):
        count = "" if statement.count is None else f"<{statement.count}>"
        return f"\t.reg .{statement.type} {statement.name}{count};"
    if isinstance(statement, Variable):
        return f"\t{print_variable(statement)};"
    return f"\t{statement}"
