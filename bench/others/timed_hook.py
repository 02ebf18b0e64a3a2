"""What `timed.py` does in each process of its command: it takes part in the launches of Triton's compiled kernels.

All that takes long to import, the compiler and cuda-core, waits for the first launch.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from timed_memory import Place, as_bytes, compared_again, copies, differences, places, restore, size_of
from timed_request import Request, passed, request_of
from timed_rows import TIMED, Row, Side
from timed_steady import steady
from torch_clock import TorchClock

import kbuild
from kbuild.aot.capture.hook.finder import Finder
from kbuild.aot.capture.hook.origin import function_of
from kbuild.aot.capture.hook.specialization import launch_values
from kbuild.aot.toolchain import find_ptxas
from kbuild.aot.tune.interleaved import interleave

MOST_BYTES = 6e9
"""Of the tensors of a launch that runs twice: two copies are made of them."""
SMALL = 1 << 16
"""Bytes of memory that may be counters, and is restored before each launch that is timed."""
LARGE = 1 << 28
"""Bytes of tensors whose copies are given back to the device at once, with all that torch keeps for later.  What smaller
ones leave there stays: a kernel that reads past its tensors, of which tests notice nothing, may fault."""
ROUNDS = 12
_ARGUMENTS = 9
"""What Triton's launcher takes before the kernel's arguments: grid, stream, function, packed metadata, launch metadata, and
the hooks around a launch."""

Launch = Callable[..., Any]


def install(folder: str, until: float, only: str) -> None:
    """Has this process run kernels twice, once it imports Triton, and write rows into a folder: until a time, and of the
    functions in whose names a regular expression is found."""
    hook = _Hook(Path(folder), until, re.compile(only))
    sys.meta_path.insert(0, Finder({"triton.compiler": hook.compiler}))


class _Failure(Exception):
    """A launch that did not run twice, or not to the end: the kind of its row, and why."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@contextmanager
def _during(kind: str) -> Iterator[None]:
    """Within it, what is raised is a failure of that kind."""
    try:
        yield
    except _Failure:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        is_memory = type(error).__name__ == "OutOfMemoryError"  # torch's.
        name = "" if type(error).__module__ == "kbuild.errors" else f"{type(error).__name__}: "
        raise _Failure("memory" if is_memory else kind, f"{name}{lines[0]}"[:300]) from error


class _Hook:
    """The functions of Triton in whose place others run kernels twice."""

    def __init__(self, folder: Path, until: float, only: re.Pattern[str]) -> None:
        self._folder = folder
        self._until = until
        self._only = only
        self._lock = threading.RLock()
        self._seen: dict[tuple[int, tuple[int, ...]], Any] = {}
        """Kernels by their identities and grids; kept, so that no other gets its identity."""
        self._compiled: dict[tuple[int, str], Any] = {}

    def compiler(self, module: ModuleType) -> None:
        """`triton.compiler`."""
        cls: Any = module.__dict__["CompiledKernel"]
        original, compile_ = cls.__dict__["run"], module.__dict__["compile"]

        def run(kernel: Any) -> Launch:
            return functools.partial(self._launch, kernel, original.__get__(kernel, type(kernel)))

        @functools.wraps(compile_)
        def compile(src: Any, target: Any = None, options: Any = None, **more: Any) -> Any:
            kernel = compile_(src, target=target, options=options, **more)
            # Its metadata are not what was asked for: where Triton specializes warps, it has more of them.
            kernel.asked_options = dict(options or {})
            return kernel

        cls.run = property(run)
        for one in (module, sys.modules.get("triton.compiler.compiler")):
            if one is not None:
                one.__dict__["compile"] = compile

    def _launch(self, kernel: Any, run: Launch, *given: Any) -> Any:
        """A launch of the command: its own, after the two that compare, where it is the first of its grid."""
        grid = given[:3]
        if (id(kernel), grid) not in self._seen and self._is_wanted(kernel, grid):
            with self._lock:
                self._run_both(kernel, run, given)
        return run(*given)

    def _is_wanted(self, kernel: Any, grid: tuple[int, ...]) -> bool:
        torch = sys.modules.get("torch")
        if torch is None or torch.cuda.is_current_stream_capturing():
            return False
        self._seen[id(kernel), grid] = kernel
        if time.time() > self._until or not all(grid) or not hasattr(kernel.src, "fn"):
            return False
        if not self._only.search(_name_of(kernel.src.fn)):
            return False
        # Of all processes, one.
        name = hashlib.sha256(f"{kernel.hash} {grid}".encode()).hexdigest()
        with suppress(OSError):  # It is there, or the command has ended, and the folder is gone.
            os.close(os.open(self._folder / name, os.O_CREAT | os.O_EXCL))
            return True
        return False

    def _run_both(self, kernel: Any, run: Launch, given: tuple[Any, ...]) -> None:
        pair = _Pair(kernel, run, given)
        try:
            with _during("request"):
                pair.find_memory()
                request = request_of(kernel, kernel.asked_options, pair.arguments)
            self._begin(pair.row, "while ours was compiled")
            artifact = self._artifact(kernel, request)
            self._begin(pair.row, "while other processes measured")
            with _during("launch"), self._alone():
                self._begin(pair.row, "while both ran")
                pair.run_both(artifact)
        except _Failure as failure:
            pair.row = replace(pair.row, kind=failure.kind, text=str(failure))
        self._write(pair.row)
        if pair.is_lost:
            self._until = 0.0

    def _artifact(self, kernel: Any, request: Request) -> Any:
        """Our compiled kernel.  Raises `_Failure`, at each attempt the same."""
        key = (id(kernel), request.key)
        if key not in self._compiled:
            try:
                with _during("compile"):
                    self._compiled[key] = kbuild.compile(
                        kernel.src.fn,
                        signature=request.signature,
                        constexprs=request.constexprs,
                        target=f"sm_{kernel.metadata.target.arch}",
                        ptxas=find_ptxas(os.environ).path,
                        **request.options,
                    )
            except _Failure as failure:
                self._compiled[key] = str(failure)  # Without what it refers to.
        found = self._compiled[key]
        if isinstance(found, str):
            raise _Failure("compile", found)
        return found

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Within it, no other process of the command measures."""
        with open(self._folder / "alone", "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _begin(self, row: Row, doing: str) -> None:
        """Leave a row that says how far it came, should the process end before the next one."""
        self._write(replace(row, text=doing))

    def _write(self, row: Row) -> None:
        with suppress(OSError), open(self._folder / f"{os.getpid()}.jsonl", "a") as file:
            file.write(row.line())


class _Pair:
    """A launch of Triton's kernel, and of ours with the same arguments."""

    def __init__(self, kernel: Any, run: Launch, given: tuple[Any, ...]) -> None:
        function = kernel.src.fn
        self.kernel = kernel
        self.arguments = dict(zip(function.arg_names, given[_ARGUMENTS:]))
        self.row = Row(_name_of(function), tuple(map(int, given[:3])), poison=_has_poison(kernel))
        """What is known so far."""
        self.is_lost = False
        """Whether the process can launch nothing more."""
        self._found: list[Place] = []
        self._theirs = functools.partial(run, *given[:6], None, None, None, *given[_ARGUMENTS:])
        self._stream = given[3]

    def find_memory(self) -> None:
        """Find the tensors, and what problem their sizes make.  Raises `_Failure` where they are too large."""
        values = launch_values(self.kernel.src.fn, (), self.arguments)
        digest = hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()
        self.row = replace(self.row, problem=digest[:12])
        self._found = places(self.arguments)
        if size_of(self._found) > MOST_BYTES:
            raise _Failure("large", f"{size_of(self._found) / 1e9:.1f} GB of tensors")

    def run_both(self, artifact: Any) -> None:
        """Run, compare and time both; afterwards the memory is as before.  Raises `_Failure`."""
        import torch  # The process has done so; without Triton, others need not have it.

        ours, found = self._our_launch(artifact), self._found
        torch.cuda.synchronize()
        before = copies(found)
        try:
            with _during("triton"):
                self._theirs()
                torch.cuda.synchronize()
            self.row = replace(self.row, ours=_our_side(artifact.metadata), theirs=_their_side(self.kernel))
            right = copies(found)
            restore(found, before)
            ours()
            torch.cuda.synchronize()
            with _during("compare"):
                made = tuple(differences(torch, found, before, right))
                if any(one.differs for one in made):
                    restore(found, before)
                    self._theirs()
                    torch.cuda.synchronize()
                    made = compared_again(torch, made, found, before, right)
            self.row = replace(self.row, differences=made)
            del right
            restore(found, before)
            with _during("time"):
                self._time(ours, _Clock(torch, found, before))
        finally:
            try:
                restore(found, before)
                torch.cuda.synchronize()
                before.clear()
                if size_of(found) >= LARGE:
                    torch.cuda.empty_cache()  # Other processes may need the memory.
            except Exception:  # As after an illegal access, which the command's own launch will meet.
                self.is_lost = True

    def _our_launch(self, artifact: Any) -> Launch:
        """The launch of our kernel, by the launcher that authors have."""
        launch = kbuild.load(artifact)[self.row.grid]
        values = [passed(self.arguments[name]) for name, _ in artifact.metadata.signature]
        return functools.partial(launch, *values, stream=self._stream)

    def _time(self, ours: Launch, clock: _Clock) -> None:
        calls = {"ours": ours, "theirs": self._theirs}
        us = steady(lambda: interleave(calls, clock, rounds=ROUNDS))
        assert self.row.ours is not None and self.row.theirs is not None
        self.row = replace(
            self.row,
            kind=TIMED,
            ours=replace(self.row.ours, us=us["ours"]),
            theirs=replace(self.row.theirs, us=us["theirs"]),
        )


class _Clock(TorchClock):
    """A clock that before each launch also restores what may be locks and counters: without that, a kernel that takes its
    tiles from a counter would have nothing left to do."""

    def __init__(self, torch: Any, found: Sequence[Place], before: Sequence[Any]) -> None:
        super().__init__(torch)
        small = [(place.storage, kept) for place, kept in zip(found, before) if size_of([place]) <= SMALL]
        self._places = [as_bytes(torch, storage) for storage, _ in small]
        self._kept = [as_bytes(torch, kept) for _, kept in small]

    def flush(self) -> None:
        if self._places:
            # By one kernel: copies of one storage after the other take the process longer than a kernel runs.
            self._torch._foreach_copy_(self._places, self._kept)
        super().flush()


def _our_side(metadata: Any) -> Side:
    return Side(metadata.registers, metadata.spill_stores, metadata.shared, metadata.warps)


def _their_side(kernel: Any) -> Side:
    words = getattr(kernel, "n_spills", None)  # Local memory, four bytes each.
    spills = None if words is None else 4 * words
    return Side(getattr(kernel, "n_regs", None), spills, kernel.metadata.shared, kernel.metadata.num_warps)


def _has_poison(kernel: Any) -> bool:
    """Whether a value that is left undefined remains in Triton's IR: what nothing uses is gone from there."""
    return "ub.poison" in getattr(kernel, "asm", {}).get("ttir", "")


def _name_of(function: Any) -> str:
    """A function with its file and that one's folder."""
    inner = function_of(function)
    return f"{'/'.join(Path(inner.__code__.co_filename).parts[-2:])}:{inner.__qualname__}"
