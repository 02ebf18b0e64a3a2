"""Verifies one variant, in a worker: compiles it to PTX, and runs every launch by the interpreter and by the
emulator."""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from kbuild.aot.build import project as builder
from kbuild.aot.build.cache import Cache
from kbuild.aot.build.compile_variant import resolve
from kbuild.aot.identity import bytes_digest, digest
from kbuild.aot.verify.cases import LaunchCase
from kbuild.aot.verify.compare import compare
from kbuild.aot.verify.findings import ENDLESS, Looks, once
from kbuild.aot.verify.oracle import oracle_of, types_of_artifact
from kbuild.aot.verify.pool import say
from kbuild.aot.verify.recorded_reference import UnrecordedError
from kbuild.aot.verify.reference import Reference, UnguessedError
from kbuild.aot.verify.remember import recall, remember
from kbuild.aot.verify.verdict import Check, LaunchRun, Verdict, VerifyTask
from kbuild.compiler import driver
from kbuild.compiler.interp import encode
from kbuild.compiler.interp.loaded import Type, is_float, is_pointer, pointee_of
from kbuild.compiler.interp.programs import DeadlockError, Index
from kbuild.compiler.sources import file_and_function
from kbuild.emulator import Program, Report, arguments_of
from kbuild.emulator import load as load_ptx
from kbuild.emulator import run as emulate
from kbuild.emulator.race import LENIENT, RaceDetector
from kbuild.errors import CompileError, InterpretError, KbuildError, UsageError

STEP_BUDGET = 5_000_000
"""Instructions of a launch, after which it is taken to be endless; the longest known take a hundredth."""

_FAR_OFF = 1e9
"""The error of results that cannot be compared."""

_right: dict[str, Check] = {}
"""The runs of this process that showed nothing wrong, by code, launch and order: variants that differ in the facts of
dispatch alone, or in their architecture, often have the same."""

_PLACES = (".loc", ".file", ".target", ".version")
"""Directives of PTX that do not change what a kernel does."""


def verify_task(task: VerifyTask, tools: str, cache: Cache) -> Verdict:
    """The verdict on one variant.  `tools` is the digest of what runs and compares, for the cache."""
    started = time.monotonic()
    checks: tuple[Check, ...] = ()
    problem, cached, unguessed, shared = "", False, False, 0
    try:
        artifact = _compile(task)
        launches = [repr(case) for case in task.cases], [repr(run) for run in task.runs]
        code = digest([_identity(artifact), task.lenient, task.early, repr(task.reference), task.tolerance])
        key = digest([tools, code, *launches])
        found = recall(cache, key)
        cached = found is not None
        checks, shared = (found, 0) if found is not None else _checked(task, artifact, code)
        if _source_digest(task) != task.source_digest:
            raise CompileError(
                f"{task.source} changed while it was being verified", help="run kbuild verify again"
            )
        if not cached and not any(check.problems for check in checks):
            remember(cache, key, checks)
    except UsageError as error:
        problem, unguessed = (
            _with_advice(task, error) if task.guessed else str(error),
            isinstance(error, UnguessedError),
        )
    except KbuildError as error:
        problem = str(error)
    return Verdict(
        task.name,
        task.kernel,
        task.arch,
        checks,
        problem,
        time.monotonic() - started,
        cached,
        unguessed,
        shared=shared,
    )


def _source_digest(task: VerifyTask) -> str:
    include = [task.options.include] if task.options.include else []
    return resolve(builder.SOURCE_DIGEST)(*file_and_function(task.source), False, *include)


def _compile(task: VerifyTask) -> driver.Artifact:
    return driver.compile(
        task.source,
        signature=dict(task.signature),
        constexprs=dict(task.constexprs),
        target=task.arch,
        options=task.options,
        stop="ptx",
    )


def _identity(artifact: driver.Artifact) -> str:
    """The digest of what a kernel means and what its code does; variants that differ in neither share it."""
    facts = artifact.metadata
    ptx = "\n".join(
        line for line in artifact.asm["ptx"].splitlines() if not line.lstrip().startswith(_PLACES)
    )
    ttir = re.sub(r" loc\([^\n]*\)$", "", artifact.asm.get("ttir", ""), flags=re.MULTILINE)
    texts = [bytes_digest(text.encode()) for text in (ptx, ttir)]
    return digest([facts.block, facts.shared, facts.params, texts])


def _checked(task: VerifyTask, artifact: driver.Artifact, code: str) -> tuple[tuple[Check, ...], int]:
    """The checks of all runs, and how many of them were known of variants with the same `code`, a digest of what is run
    and how it is compared."""
    types = types_of_artifact(artifact, dict(task.signature))
    program = load_ptx(artifact.asm["ptx"], artifact.metadata.name)
    oracle = oracle_of(artifact, types, dict(task.signature), dict(task.constexprs), task.reference)

    @lru_cache(maxsize=2)
    def right(launch: LaunchCase, data: str) -> Reference:
        return oracle(launch, data, zlib.crc32(f"{task.kernel} {launch}".encode()))

    def checked(case: LaunchCase, run: LaunchRun) -> Check:
        return check(artifact, program, types, right(case, run.data), task, case, run)

    checks, cases, shared = [], list(task.cases), 0
    for number, run in enumerate(sorted(task.runs, key=lambda run: (run.case, run.data)), 1):
        say(f"{task.name}: run {number} of {len(task.runs)}")
        case = cases[run.case - 1]
        key = digest([code, task.kernel, repr(case), run.data, run.schedule, run.timing])
        if key in _right:
            checks.append(replace(_right[key], run=run))
            shared += 1
            continue
        try:
            checks.append(checked(case, run))
            if checks[-1].unfinished and case.recorded and case.recorded != case.recorded.alone():
                cases[run.case - 1] = case = replace(case, recorded=case.recorded.alone())
                checks[-1] = checked(case, run)
        except UnrecordedError as error:
            checks.append(Check(run, str(case), unfinished=f"{error.message}\n{_advice(task)}"))
            continue
        except UsageError:
            raise  # The launch itself could not be made, nor can the others.
        except DeadlockError as error:
            arrays = ", ".join(f'"{name}"' for name in error.arrays if name not in case.zeros)
            advice = (
                f"where locks, flags and counters begin as zeros, [kernel.verify] says so: zeros = [{arrays}]"
            )
            found = InterpretError(error.message, error.loc, advice if arrays else "")
            return (*checks, Check(run, str(case), (str(found),))), shared
        except KbuildError as error:
            checks.append(Check(run, str(case), (str(error),)))
        if checks[-1].unfinished or any(problem.startswith(ENDLESS) for problem in checks[-1].problems):
            break  # The others would take as long, with the same result.
        if not checks[-1].problems:
            _right[key] = checks[-1]
    return tuple(checks), shared


def check(
    artifact: driver.Artifact,
    program: Program,
    types: Mapping[str, Type],
    right: Reference,
    task: VerifyTask,
    case: LaunchCase,
    run: LaunchRun,
) -> Check:
    """Run the PTX once and compare its arrays with the expected ones."""

    def launched(observers: Sequence[Any], budget: int) -> Report:
        given, grid, only = right.arguments, case.grid, right.programs
        return run_ptx(
            artifact, program, types, given, grid, run.schedule, run.timing, observers, budget, only
        )

    names = [name for name, _ in artifact.metadata.params]
    report = launched(_observers(names, right, task, run), STEP_BUDGET)
    problems, largest = [str(finding) for finding in once(report.findings)], 0.0
    if any(finding.kind == ENDLESS for finding in report.findings):
        if task.guessed or task.captured:
            why = f"no end after {STEP_BUDGET:,} instructions"
            return Check(run, str(case), steps=report.steps, unfinished=why, note=right.note)
        looks = Looks()
        launched([looks], STEP_BUDGET // 50)
        problems = [f"{problem}\n{looks}" if problem.startswith(ENDLESS) else problem for problem in problems]
    for name, output in zip(names, report.outputs):
        if output is not None and not report.findings:
            found = compare(
                pointee_of(types[name]),
                right.expected[name],
                output,
                right.written[name],
                right.exact,
                task.tolerance,
                right.roundings.get(name),
            )
            largest = max(largest, found.error)
            problems += [f"{name}: {found.problem}"] if found.problem else []
    error = min(largest, _FAR_OFF)
    return Check(run, str(case), tuple(problems), right.exact, error, report.steps, note=right.note)


def _observers(
    arguments: Sequence[str], right: Reference, task: VerifyTask, run: LaunchRun
) -> list[RaceDetector]:
    """The race detector, where warps run one by one; arrays that the kernel does not read hold nothing yet."""
    if run.schedule == "lockstep":
        return []
    unread, early = (
        [place for place, name in enumerate(arguments) if name in names]
        for names in (right.unread, task.early)
    )
    return [RaceDetector(LENIENT if task.lenient else (), unread, early)]


def run_ptx(
    artifact: driver.Artifact,
    program: Program,
    types: Mapping[str, Type],
    arguments: Mapping[str, Any],
    grid: Sequence[int],
    schedule: str,
    timing: str,
    observers: Sequence[Any] = (),
    budget: int | None = None,
    only: Sequence[Index] = (),
) -> Report:
    """The emulator's report on one launch, or on `only` some of its programs."""
    facts = artifact.metadata
    given = parameters_of(artifact, types, arguments)
    return emulate(
        program,
        None,
        grid,
        facts.block,
        facts.shared,
        given,
        schedule=schedule,
        timing=timing,
        observers=observers,
        step_budget=STEP_BUDGET if budget is None else budget,
        names=[name for name, _ in facts.params],
        only=only,
    )


def parameters_of(
    artifact: driver.Artifact, types: Mapping[str, Type], arguments: Mapping[str, Any]
) -> list[Any]:
    """A launch's arguments as the kernel takes them."""
    return arguments_of(
        artifact.metadata.params,
        {name: _as_parameter(type_, arguments[name]) for name, type_ in types.items()},
    )


def _as_parameter(type_: Type, value: Any) -> Any:
    """An argument as the emulator takes it: numbers of types that Python lacks as their bytes."""
    if is_pointer(type_) or not is_float(type_):
        return value
    return np.asarray(encode(np.array([value], np.float64), type_)).tobytes()


def _with_advice(task: VerifyTask, error: KbuildError) -> str:
    """A mistake that a guessed launch may be to blame for."""
    sizes = ", ".join(f'{name} = "…"' for name, type_ in task.signature if type_.startswith("*"))
    values = ", ".join(f"{name} = …" for name, _ in (task.cases[0].scalars if task.cases else ()))
    table = f"[kernel.verify]\nsizes = {{ {sizes} }}\nvalues = [{{ {values} }}]"
    if zeros := ", ".join(f'"{name}"' for name in getattr(error, "zeros", ())):
        table += f"\nzeros = [{zeros}]"
    advice = f'say in kernels.toml, below "{task.kernel}", why it is `unverified`, or how it is launched'
    help = f"the launch was guessed; {advice}:\n{table}"
    return str(UsageError(error.message, error.loc, help))


def _advice(task: VerifyTask) -> str:
    """How a launch that was captured can be replaced."""
    return f'[kernel.verify] of "{task.kernel}" in kernels.toml can give a launch that can be run'
