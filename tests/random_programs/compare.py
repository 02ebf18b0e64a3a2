"""Runs one kernel in every possible way and reports where the results differ.

The interpreter on the IR as built is the reference.  It runs again after the passes (and, where that differs,
after every pass, to name the guilty one); the emulator runs the PTX, looks for races, and takes the warps in
different orders.
"""

from __future__ import annotations

import linecache
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from random_programs.arrays import Argument, difference
from random_programs.nodes import Program

import kbuild.compiler.transforms  # noqa: F401  registers the passes
from kbuild.compiler import interp
from kbuild.compiler.backend.llvm import to_ptx
from kbuild.compiler.compilation import code_arch, parameters_of
from kbuild.compiler.frontend import build_module
from kbuild.compiler.ir.core import Module
from kbuild.compiler.ir.passes import run_pipeline
from kbuild.compiler.ir.printer import print_module
from kbuild.compiler.lower import lower_module
from kbuild.emulator import arguments_of, load
from kbuild.emulator import run as emulate
from kbuild.errors import ErrorGroup, InternalError, InterpretError, KbuildError
from kbuild.options import CompileOptions
from kbuild.targets import Target, find_target

ARCHS = ("sm_80", "sm_90")
SCHEDULES = ("reverse", "random(1)", "starve(0)", "round-robin")

HARMLESS = ("uninitialised-register",)
"""Kinds of findings that count only if they show: LLVM packs one half of a word with an undefined other half,
which nothing reads; registers begin poisoned, so that a result that depends on one differs."""


@dataclass(frozen=True)
class Kernel:
    """A kernel as text, with everything a launch needs."""

    source: str
    arguments: tuple[Argument, ...]
    grid: tuple[int, ...] = (1,)
    num_warps: int = 4
    num_stages: int = 3
    seed: int = 0
    """Of the arrays' contents."""

    @classmethod
    def of(cls, program: Program, seed: int) -> Kernel:
        return cls(
            program.source(),
            tuple(program.used_arguments()),
            program.grid,
            program.num_warps,
            program.num_stages,
            seed,
        )

    @property
    def signature(self) -> dict[str, str]:
        return {argument.name: argument.signature for argument in self.arguments}

    @property
    def outputs(self) -> list[Argument]:
        return [argument for argument in self.arguments if argument.is_output]

    def make(self) -> dict[str, Any]:
        """Fresh values of the arguments."""
        values: dict[str, Any] = {}
        for argument in self.arguments:
            values |= {argument.name: argument.make(self.seed), **dict(argument.companions)}
        return values


@dataclass(frozen=True)
class Compiled:
    """PTX, and what its launch needs."""

    ptx: str
    arch: str
    parameters: tuple[tuple[str, str], ...]
    warps: int
    shared: int


@dataclass(frozen=True)
class Finding:
    """A difference, or a failure."""

    kind: str
    """`pass`, `emulator`, `race`, `refused`, `broke`, `crash`, `timeout`; `invalid` where the program itself
    is at fault."""
    arch: str
    place: str
    """The guilty pass, the stage, or the kind of the emulator's finding."""
    message: str = field(compare=False, default="")

    def __str__(self) -> str:
        return f"{self.kind} {self.arch} {self.place}: {self.message}"


class TimeIsUp(BaseException):
    """A program took too long."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `TimeIsUp` after some seconds of the processor's time: a busy machine makes no findings."""

    def stop(*_: Any) -> None:
        raise TimeIsUp

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@dataclass
class Checker:
    """Compares kernels; one folder serves all of them."""

    archs: tuple[str, ...] = ARCHS
    every_pass: bool = False
    """Run the interpreter after each pass that changes something, instead of after the last."""
    schedules: tuple[str, ...] = SCHEDULES
    """Adverse schedules of the emulator: each program runs under one of them, and is checked for races, on
    one architecture, and in lockstep, which is several times faster, on the other."""
    stages: tuple[str, ...] = ("passes", "emulator")
    """The stages that are compared with the interpreter on the IR as built."""
    drawn: bool = False
    """Whether a program runs on one architecture, drawn by its seed, instead of on all: half the time."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Time spent, by stage."""

    def __post_init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="random_programs_"))

    def check(self, kernel: Kernel, limit: float = 60) -> Finding | None:
        """The first difference, if there is one."""
        self.stage = "", "frontend"
        try:
            with limited(limit):
                return self._check(kernel)
        except TimeIsUp:
            return Finding("timeout", *self.stage, f"more than {limit} seconds")

    def _check(self, kernel: Kernel) -> Finding | None:
        try:
            module = self.built(kernel)
            right = self.interpreted(kernel, module)
        except InterpretError as error:
            return Finding("invalid", "", "interpreter", str(error))
        except InternalError as error:
            return Finding("broke", "", "frontend", str(error))
        except (KbuildError, ErrorGroup) as error:
            return Finding("refused", "", "frontend", str(error))
        except Exception as error:
            return Finding("broke", "", self.stage[1], f"{type(error).__name__}: {error}")
        schedule = self.schedules[kernel.seed % len(self.schedules)]
        if self.drawn:
            return self.on(
                kernel,
                self.archs[kernel.seed // len(self.schedules) % len(self.archs)],
                module,
                right,
                schedule,
            )
        for number, arch in enumerate(self.archs):
            strict = (kernel.seed + ARCHS.index(arch)) % len(ARCHS) == 0
            found = self.on(kernel, arch, module if number == 0 else None, right, schedule if strict else "")
            if found is not None:
                return found
        return None

    def built(self, kernel: Kernel) -> Module:
        """The IR as the frontend makes it."""
        path = self.folder / f"kernel_{os.getpid()}.py"  # Processes of a campaign share the folder.
        with self.timed("", "frontend"):
            path.write_text(kernel.source)
            linecache.clearcache()
            return build_module(
                f"{path}:kernel", kernel.signature, {}, CompileOptions(kernel.num_warps, kernel.num_stages)
            )

    def interpreted(self, kernel: Kernel, module: Module) -> dict[str, np.ndarray]:
        """The outputs in the interpreter."""
        memory = kernel.make()
        with self.timed(self.stage[0], "interpreter"):
            interp.run(module, memory, kernel.grid)
        return {argument.name: memory[argument.name] for argument in kernel.outputs}

    def on(
        self, kernel: Kernel, arch: str, built: Module | None, right: Mapping[str, np.ndarray], schedule: str
    ) -> Finding | None:
        """The first difference for an architecture.  The passes change `built`, the IR as built, which is
        made if it is None."""
        try:
            target, module = find_target(arch), built or self.built(kernel)
            found = self.passes(kernel, module, target, right if "passes" in self.stages else None)
            if found is not None or "emulator" not in self.stages:
                return found
            compiled = self.lowered(module, target)
        except InternalError as error:
            return Finding("broke", arch, self.stage[1], str(error))
        except (KbuildError, ErrorGroup) as error:
            return Finding("refused", arch, self.stage[1], str(error))
        except Exception as error:
            return Finding("broke", arch, self.stage[1], f"{type(error).__name__}: {error}")
        return self.emulated(kernel, compiled, right, schedule)

    def compiled(self, kernel: Kernel, arch: str) -> Compiled:
        """The PTX for an architecture.  Raises what the compiler raises."""
        module = self.built(kernel)
        self.passes(kernel, module, find_target(arch), None)
        return self.lowered(module, find_target(arch))

    def lowered(self, module: Module, target: Target) -> Compiled:
        """The PTX of a module after all passes."""
        parameters = parameters_of(module.kernel)
        with self.timed(target.arch, "lower"):
            llir = lower_module(module, target)
        with self.timed(target.arch, "llvm"):
            ptx = to_ptx(llir, target, code_arch(module, target))
        attrs = module.kernel.attrs
        return Compiled(
            ptx,
            code_arch(module, target),
            parameters,
            attrs["num_warps"] + attrs.get("extra_warps", 0),
            attrs.get("shared", 0),
        )

    def passes(
        self, kernel: Kernel, module: Module, target: Target, right: Mapping[str, np.ndarray] | None
    ) -> Finding | None:
        """Run the passes; the first difference that one makes, where the reference is known."""
        names = (*target.tensor_pipeline, *target.gpu_pipeline)
        text = print_module(module) if self.every_pass else ""
        for number, name in enumerate(names):
            with self.timed(target.arch, name):
                run_pipeline(module, target, [name])
            if right is None or (not self.every_pass and number + 1 < len(names)):
                continue
            changed = print_module(module) if self.every_pass else ""
            if self.every_pass and changed == text:
                continue
            text = changed
            message = self.differs(kernel, module, right)
            if message:
                return Finding("pass", target.arch, name, message)
        return None

    def differs(self, kernel: Kernel, module: Module, right: Mapping[str, np.ndarray]) -> str:
        """How the outputs of the interpreter differ; empty if they do not."""
        try:
            outputs = self.interpreted(kernel, module)
        except InterpretError as error:
            return str(error)
        except Exception as error:
            return f"the interpreter broke: {type(error).__name__}: {error}"
        return differences(kernel, outputs, right)

    def emulated(
        self, kernel: Kernel, compiled: Compiled, right: Mapping[str, np.ndarray], schedule: str
    ) -> Finding | None:
        """The first difference of the emulator."""
        arch = compiled.arch.rstrip("a")
        parameters, warps, shared = compiled.parameters, compiled.warps, compiled.shared
        with self.timed(arch, "emulator"):
            try:
                program = load(compiled.ptx, "kernel")
                passed = arguments_of(parameters, kernel.make())
                report = emulate(
                    program,
                    None,
                    kernel.grid,
                    warps,
                    shared,
                    passed,
                    schedule=schedule or "lockstep",
                    checks="strict" if schedule else "",
                )
            except Exception as error:
                return Finding("emulator", arch, type(error).__name__, str(error))
        findings = [found for found in report.findings if found.kind not in HARMLESS]
        if findings:
            first = findings[0]
            return Finding("race" if "race" in first.kind else "emulator", arch, first.kind, str(first))
        outputs = {
            name: output for (name, _), output in zip(parameters, report.outputs) if output is not None
        }
        message = differences(kernel, outputs, right)
        return Finding("emulator", arch, "difference", message) if message else None

    @contextmanager
    def timed(self, arch: str, stage: str) -> Iterator[None]:
        self.stage = arch, stage
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - started

    def localized(self, kernel: Kernel, found: Finding, limit: float = 120) -> Finding:
        """The same finding with the name of the guilty pass."""
        if found.kind != "pass" or self.every_pass:
            return found
        again = replace(self, archs=(found.arch,), every_pass=True, stages=("passes",))
        return again.check(kernel, limit) or found


def differences(kernel: Kernel, outputs: Mapping[str, np.ndarray], right: Mapping[str, np.ndarray]) -> str:
    """How outputs differ, in words."""
    found = (
        difference(outputs[argument.name], right[argument.name], argument) for argument in kernel.outputs
    )
    return next((text for text in found if text), "")
