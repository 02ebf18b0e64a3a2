"""What `@triton.autotune` and `@triton.heuristics` say about a kernel."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from kbuild.aot.manifest.configs.evaluate import Evaluator, NoValue, TritonConfig, last_name


@dataclass
class Decorations:
    """The decorators of one kernel, read."""

    configs: list[TritonConfig] = field(default_factory=list)
    """Those of autotune, in order."""
    keys: list[str] = field(default_factory=list)
    """Arguments for whose values Triton tunes each by itself."""
    zeroed: list[str] = field(default_factory=list)
    """Pointers of `reset_to_zero`."""
    restored: list[str] = field(default_factory=list)
    """Pointers of `restore_value`."""
    heuristics: dict[str, ast.expr] = field(default_factory=dict)
    """What computes a constexpr parameter from the arguments of a call."""
    unread: str = ""
    """Why the configurations of autotune cannot be read."""
    untranslated: list[str] = field(default_factory=list)
    """What a manifest has no counterpart for, in words."""


def read_decorations(kernel: ast.FunctionDef, evaluator: Evaluator) -> Decorations:
    """The decorators of a kernel."""
    found = Decorations()
    for decorator in kernel.decorator_list:
        if not isinstance(decorator, ast.Call):
            continue
        name = last_name(decorator.func)
        if name in ("autotune", "libtuner"):
            _read_autotune(decorator, evaluator, found)
        elif name == "heuristics":
            _read_heuristics(decorator, evaluator, found)
    return found


def _read_autotune(call: ast.Call, evaluator: Evaluator, found: Decorations) -> None:
    given: dict[str, ast.expr] = dict(zip(("configs", "key"), call.args))
    given.update({keyword.arg: keyword.value for keyword in call.keywords if keyword.arg})
    for name, node in given.items():
        if name == "configs":
            try:
                values = list(evaluator.value(node))
            except (NoValue, TypeError) as error:
                found.untranslated.append(f"autotune's configs, which cannot be read ({error})")
                found.unread = str(error)
                continue
            found.configs = [value for value in values if isinstance(value, TritonConfig)]
        elif name in ("key", "reset_to_zero", "restore_value"):
            names = _names(node, evaluator, found, name)
            if name == "key":
                found.keys = names
            elif name == "reset_to_zero":
                found.zeroed = names
            else:
                found.restored = names
        elif name not in ("warmup", "rep", "use_cuda_graph", "cache_results", "do_bench", "strategy"):
            found.untranslated.append(f"{name} of autotune: {ast.unparse(node)[:60]}")
    beside = {
        name
        for config in found.configs
        for name, value in config.options.items()
        if name not in ("num_warps", "num_stages", "num_ctas", "maxnreg")
        and value not in (1, False) + (None,) * (name != "pre_hook")
    }
    if beside:
        found.untranslated.append(f"{', '.join(sorted(beside))} of autotune's configs")


def _names(node: ast.expr, evaluator: Evaluator, found: Decorations, what: str) -> list[str]:
    """A list of parameters."""
    try:
        values = evaluator.value(node)
    except NoValue as error:
        found.untranslated.append(f"{what} of autotune, which cannot be read ({error})")
        return []
    if not isinstance(values, list | tuple):
        return []
    return [value for value in values if isinstance(value, str)]


def _read_heuristics(call: ast.Call, evaluator: Evaluator, found: Decorations) -> None:
    table = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "values"), None)
    if isinstance(table, ast.Name):
        table = evaluator.constants.get(table.id, table)
    if not isinstance(table, ast.Dict):
        found.untranslated.append(f"heuristics, which cannot be read: {ast.unparse(call)[:60]}")
        return
    for key, value in zip(table.keys, table.values):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            found.heuristics[key.value] = value
        else:
            found.untranslated.append(f"heuristics, which cannot be read: {ast.unparse(value)[:60]}")


def heuristic_body(node: ast.expr, evaluator: Evaluator) -> tuple[str, ast.expr] | None:
    """The parameter and the result of a lambda, or of a function that is one `return`; None for others."""
    if isinstance(node, ast.Lambda) and len(node.args.args) == 1:
        return node.args.args[0].arg, node.body
    if isinstance(node, ast.Name) and node.id in evaluator.functions:
        function = evaluator.functions[node.id]
        body = _without_doc(function.body)
        if len(body) == 1 and isinstance(body[0], ast.Return) and body[0].value and function.args.args:
            return function.args.args[0].arg, body[0].value
    return None


def _without_doc(body: Sequence[ast.stmt]) -> Sequence[ast.stmt]:
    is_doc = body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    return body[1:] if is_doc else body
