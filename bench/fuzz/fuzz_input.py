"""Mutated manifests, kernels and IR texts: kbuild accepts each or reports its mistakes; it does not fail, hang or
crash.

    python bench/fuzz/fuzz_input.py manifests --count 50000
    python bench/fuzz/fuzz_input.py kernels --count 10000 --jobs 2
    python bench/fuzz/fuzz_input.py ir --count 5000 --seed 7 --one        (that one alone: its text, and what becomes of it)

Each input follows from its seed.  Processes of their own try them in batches, so that an abort of LLVM costs
one input; one that takes longer than `--seconds` counts as a hang.  Exit code 1 when there is a finding.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, cast

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "tests")]
from kbuild.errors import InternalError, KbuildError  # noqa: E402

BATCH = 200


def main() -> int:
    """Parse the command line, try all seeds and print what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=("manifests", "kernels", "ir"))
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed (%(default)s)")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="longest that one input may take (%(default)s)"
    )
    parser.add_argument("--one", action="store_true", help="show the input of --seed, and what becomes of it")
    options = parser.parse_args()
    mutants = cast("Mutants", importlib.import_module(f"mutated.{options.kind}"))
    if options.one:
        made = mutants.mutated(random.Random(options.seed))
        text = made if isinstance(made, bytes) else made[1]
        print(text.decode(errors="backslashreplace"))
        print(outcome(mutants, options.seed, options.seconds, verbose=True))
        return 0
    started, counts = time.time(), Counter[str]()
    starts = range(options.seed, options.seed + options.count, BATCH)
    found: dict[str, list[int]] = {}
    with ThreadPoolExecutor(options.jobs) as pool:
        batches = [range(start, min(start + BATCH, options.seed + options.count)) for start in starts]
        for results in pool.map(lambda seeds: in_processes(mutants, seeds, options.seconds), batches):
            for seed, result in results:
                counts[result.partition(":")[0]] += 1
                if not result.startswith(("taken", "refused")):
                    found.setdefault(result, []).append(seed)
            done = sum(counts.values())
            rate = done / (time.time() - started)
            print(
                f"\r{done} of {options.count}, {rate:.0f}/s, {dict(counts)}   ",
                end="",
                flush=True,
                file=sys.stderr,
            )
    print(file=sys.stderr)
    for result, seeds in sorted(found.items(), key=lambda item: -len(item[1])):
        print(f"{len(seeds):5} × {result}\n        seeds {', '.join(map(str, seeds[:5]))}")
    print(
        f"{sum(counts.values())} {options.kind}: {', '.join(f'{count} {name}' for name, count in counts.most_common())}"
    )
    return int(bool(found))


class Mutants(Protocol):
    """A module of inputs, or what stands in for one."""

    @staticmethod
    def mutated(random_: random.Random, /) -> Any: ...
    @staticmethod
    def attempt(made: Any, folder: Path, /) -> str: ...


def in_processes(mutants: Mutants, seeds: range, seconds: float) -> list[tuple[int, str]]:
    """The outcome of each seed; a process that dies or hangs is followed by another for the rest."""
    results: list[tuple[int, str]] = []
    left = list(seeds)
    while left:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            _try_all(mutants, left, seconds, writing)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as lines:
            reports = [line.decode().rstrip("\n").partition("\t") for line in lines]
        _, status = os.waitpid(child, 0)
        results += [(int(seed), text) for seed, _, text in reports]
        left = left[len(reports) :]
        if left:
            number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            how = signal.Signals(number).name if number else f"exit status {status}"
            what = "hang: no end, and no answer" if number == signal.SIGALRM else f"died: {how}"
            results.append((left.pop(0), what))
    return results


def _try_all(mutants: Mutants, seeds: list[int], seconds: float, writing: int) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # LLVM's message before it aborts.
    for seed in seeds:
        # The alarm is an exception first, and ends the process where no Python code runs.
        result = outcome(mutants, seed, seconds)
        os.write(writing, f"{seed}\t{result}\n".encode(errors="backslashreplace"))


class Hang(BaseException):
    """Raised by the alarm; no handler in kbuild takes it for an error."""


def outcome(mutants: Mutants, seed: int, seconds: float, verbose: bool = False) -> str:
    """The outcome of one input: accepted, refused, or a finding."""

    def ring(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(5)
        raise Hang

    made = mutants.mutated(random.Random(seed))
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with tempfile.TemporaryDirectory() as folder:
            mutants.attempt(made, Path(folder))
        return "taken"
    except Hang:
        return f"hang: {_innermost()}"
    except InternalError as error:
        if verbose:
            traceback.print_exc()
        return f"broke: InternalError {error.message}"[:200].replace("\n", " ")
    except KbuildError as error:
        return _refusal(error, verbose)
    except Exception as error:
        if verbose:
            traceback.print_exc()
        return f"broke: {type(error).__name__} {_innermost()} {error}"[:200].replace("\n", " ")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.alarm(0)


def _refusal(error: KbuildError, verbose: bool) -> str:
    """A refusal says something, and its text can be shown."""
    text = str(error)
    if verbose:
        print(text)
    wrong = not all(single.message.strip() for single in error.errors()) or "Traceback" in text
    return f"mute: {text[:100]}" if wrong else "refused"


def _innermost() -> str:
    """The innermost place in kbuild of the exception in hand."""
    frames = traceback.extract_tb(sys.exc_info()[2])
    inner = [frame for frame in frames if "kbuild" in frame.filename.split("/")] or frames
    return f"{Path(inner[-1].filename).name}:{inner[-1].lineno}" if inner else ""


if __name__ == "__main__":
    sys.exit(main())
