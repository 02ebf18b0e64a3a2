"""Modules given as text: what is wrong with one is reported as an error of the text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kbuild.compiler.ir.core import Module, Value
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ir.verify import verify
from kbuild.errors import CompileError, InternalError, KbuildError, Loc


def read_module(text: str, file: str, names: dict[str, Value] | None = None) -> Module:
    """The module of a text from any source; `names` gets its values by name.  Raises `CompileError` where it breaks a
    rule of the IR."""
    with blamed_on(file):
        return verified(parse_module(text, file, with_places=True, names=names), file)


def verified(module: Module, file: str) -> Module:
    """A module that keeps the rules of the IR.  Raises `CompileError` where the one given does not."""
    with blamed_on(file):
        for function in module.functions.values():
            verify(function)
    return module


@contextmanager
def blamed_on(file: str) -> Iterator[None]:
    """Reports internal errors of passes as errors of the text: passes may rely on more than `verify` checks."""
    try:
        yield
    except KbuildError as error:
        if not isinstance(error, InternalError):
            raise
        raise _refused(file, error.message, error.loc) from error
    except Exception as error:
        raise _refused(file, f"{type(error).__name__}: {error}", None) from error


def _refused(file: str, message: str, loc: Loc | None) -> CompileError:
    help = "if kbuild itself wrote this text, please report that as a bug"
    return CompileError(f"not a module that kbuild makes: {message}", loc or Loc(file, 1), help)
