"""`kbuild` on the command line; with aot/backend.py the only module that reads the arguments and the
environment.

Exit codes: 0 done, 1 a build or a check failed, 2 the command line or the manifest is wrong, 130 interrupted.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from kbuild.aot.environment import prepare
from kbuild.aot.files import why
from kbuild.errors import KbuildError, ManifestError, render

INTERRUPTED = 130

_STEPS = {"@step": "step", "@serve": "serve"}
"""Steps of a build, which ninja runs: they bypass the parser of the command line, which takes as long to
make as they take to find a variant in the cache."""


def run() -> NoReturn:
    """The whole process: exits at once when the command is done, since tearing down Python and LLVM takes as
    long as a small compile."""
    # Compiling makes many objects and keeps most: looking for dead cycles 70 times as rarely saves a tenth of
    # the time.
    gc.set_threshold(50_000)
    _open_streams()
    prepare(os.environ)
    code = main()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # The reader may have gone.
            stream.flush()
    os._exit(code)


def _open_streams() -> None:
    """Opens standard streams that were closed, so that no file takes their numbers; has characters that an
    encoding lacks escaped."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            nothing = os.open(os.devnull, os.O_RDWR)
            if nothing != number:
                os.dup2(nothing, number)
                os.close(nothing)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
        elif number:
            stream.reconfigure(errors="backslashreplace")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    verbose = "-v" in words or "--verbose" in words
    # A build that is terminated ends its own processes, as one interrupted at the keyboard does.
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        code = _step(words) if words and words[0] in _STEPS else _command(words)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of the output has gone; nothing can be reported.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KbuildError as error:
        print(described(error), file=sys.stderr)
        return error.exit_code
    except OSError as error:
        # A directory that cannot be written, a full disk: for the user to mend, so without a stack.
        if verbose:
            _print_stack()
        print(f"error: {why(error)}", file=sys.stderr)
        return 1
    except Exception as error:
        if verbose:
            _print_stack()
        print(f"kbuild failed: {type(error).__name__}: {error}", file=sys.stderr)
        print(
            "This is a bug of kbuild's: please report it with the command and the output of -v.",
            file=sys.stderr,
        )
        return 1


def described(error: KbuildError) -> str:
    """The text of an error: one line for each mistake of a manifest, place, line and caret for those of a
    kernel."""
    lines: list[str] = []
    for single in error.errors():
        if isinstance(single, ManifestError):
            place = f"{single.loc}: " if single.loc else ""
            lines.append(place + single.message + (f"; {single.help}" if single.help else ""))
        else:
            lines.append(render(single))
    return "\n".join(lines)


def _step(words: Sequence[str]) -> int:
    import importlib  # Only here: a step needs its own module and no other.

    module = importlib.import_module(f"kbuild.aot.build.{_STEPS[words[0]]}")
    run: Callable[[list[str]], int] = module.main
    return run(list(words[1:]))


def _command(words: list[str]) -> int:
    from kbuild.cli.grammar import parser  # Not for steps of a build, for the time that it takes.

    return parser.run(words, os.environ)


def _print_stack() -> None:
    import traceback  # Needed only for an internal error.

    traceback.print_exc()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
