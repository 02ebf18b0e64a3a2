"""Passes and the pipelines made of them.

A pass is a function of a module and a target, registered under its file's name; options are keyword
arguments:

    @tensor_pass
    def loop_unroll(module, target): …

A pipeline is a tuple of pass texts (`"pipeline{stages=3}"`), kept as data with the target.  `run_pipeline`
runs, verifies, dumps `NN_name.ttir` or `.ttgir`, times, and on a failure of kbuild itself says how to repeat
it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from kbuild.compiler.ir.changes import changed_since, mark
from kbuild.compiler.ir.core import Module
from kbuild.compiler.ir.printer import print_module
from kbuild.compiler.ir.verify import verify
from kbuild.errors import InternalError, KbuildError, UsageError

PassFunction = TypeVar("PassFunction", bound=Callable[..., Any])


class Pass(NamedTuple):
    """A registered pass."""

    name: str
    suffix: str
    """`ttgir` for those that read or make layouts; `ttir` for those that leave the stage as it is."""
    function: Callable[..., Any]


_PASSES: dict[str, Pass] = {}
_STAGES = ("ttir", "ttgir")


def tensor_pass(function: PassFunction) -> PassFunction:
    """Register a pass over ttir (tensors without layouts), or over either."""
    _PASSES[function.__name__] = Pass(function.__name__, "ttir", function)
    return function


def gpu_pass(function: PassFunction) -> PassFunction:
    """Register a pass that reads or makes ttgir (tensors with layouts)."""
    _PASSES[function.__name__] = Pass(function.__name__, "ttgir", function)
    return function


def registered_passes() -> dict[str, Pass]:
    """All passes by name."""
    return dict(_PASSES)


def parse_pass(text: str) -> tuple[Pass, dict[str, Any]]:
    """A pass and its options from `name` or `name{key=value,…}` (integers, booleans and words)."""
    if text in _PASSES:
        return _PASSES[text], {}
    match = re.fullmatch(r"\s*([\w-]+)\s*(?:\{(.*)\})?\s*", text)
    name = match[1].replace("-", "_") if match else text
    if match is None or name not in _PASSES:
        raise UsageError(f"unknown pass {text.strip()!r}", help=f"known passes: {', '.join(sorted(_PASSES))}")
    options: dict[str, Any] = {}
    for item in (match[2] or "").split(","):
        if item.strip():
            key, _, value = (part.strip() for part in item.partition("="))
            options[key] = (
                int(value)
                if re.fullmatch(r"-?\d+", value)
                else {"true": True, "false": False}.get(value, value)
            )
    return _PASSES[name], options


def split_pipeline(text: str) -> tuple[str, ...]:
    """The passes of a comma-separated pipeline text; commas inside braces do not separate."""
    return tuple(part for part in re.split(r",(?![^{]*\})", text) if part.strip())


@dataclass
class PassLog:
    """The results of a pipeline run."""

    dump: Path | None = None
    """Folder for `00_start.ttir`, which the first pass gets, and `NN_name.ttir` and `NN_name.ttgir`, which the others
    leave; or None."""
    number: int = 0
    stage: str = "ttir"
    """That of the module as it is now."""
    seconds: dict[str, float] | None = None

    def write(self, name: str, module: Module) -> None:
        """Leaves the module as it is now in the folder, if there is one."""
        if self.dump is not None:
            path = self.dump / f"{self.number:02}_{name}.{self.stage}"
            path.write_text(print_module(module, locations=True))


def run_pipeline(module: Module, target: Any, passes: Sequence[str], log: PassLog | None = None) -> None:
    """Run passes in order, verifying after each that changes operations or operands, and after the last.  Where the passes
    are dumped, after each: what only changes types or attributes is then verified at once, not with what follows.

    Raises `KbuildError` for the user's mistakes as they are; anything else becomes an `InternalError` that
    names the pass and the command that repeats it.
    """
    log = log or PassLog()
    if log.number == 0:
        log.write("start", module)
    for number, text in enumerate(passes, 1):
        entry, options = parse_pass(text)
        before = print_module(module) if log.dump is not None else ""
        started, moment = time.perf_counter(), mark()
        try:
            entry.function(module, target, **options)
            if changed_since(moment) or number == len(passes) or log.dump is not None:
                for function in module.functions.values():
                    verify(function)
        except KbuildError as error:
            if isinstance(error, InternalError):
                raise _failed(text, target, before, log, error) from error
            raise
        except Exception as error:
            raise _failed(text, target, before, log, error) from error
        if log.seconds is not None:
            log.seconds[entry.name] = log.seconds.get(entry.name, 0.0) + time.perf_counter() - started
        log.number += 1
        log.stage = max(log.stage, entry.suffix, key=_STAGES.index)
        log.write(entry.name, module)


def _failed(text: str, target: Any, before: str, log: PassLog, error: Exception) -> InternalError:
    if log.dump is None:
        advice = "compile again with --dump DIR for the input of the pass and the command that repeats it"
    else:
        path = log.dump / f"{log.number:02}_before_failure.{log.stage}"
        path.write_text(before)
        advice = f"repeat with: kbuild opt {path} -p '{text}' --arch {target.arch}"
    loc = error.loc if isinstance(error, KbuildError) else None
    message = error.message if isinstance(error, KbuildError) else f"{type(error).__name__}: {error}"
    return InternalError(f"pass {text} failed: {message}", loc, advice)
