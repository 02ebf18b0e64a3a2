"""Puts packages under the kernels of libraries: their objects stay what they are, and a launch asks the packages first.

Triton's classes get a `run` that looks for a package with the kernel's module, name and digest.  All installed packages share it,
whichever of them came first: each copy of this module finds the list of packages in Triton's own class.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from kbuild.aot.capture.hook.decorators import wrap_methods
from kbuild.aot.capture.hook.finder import Finder
from kbuild.aot.capture.hook.origin import function_of, module_of, origin, watched
from kbuild.aot.capture.serving.functions import Function
from kbuild.aot.capture.serving.graphs import join_graphs
from kbuild.aot.capture.serving.guards import Guard, launched_by, tuned_by, unchanged, without_hooks
from kbuild.aot.capture.serving.live import Call, Live
from kbuild.aot.capture.serving.recording import Misses
from kbuild.aot.capture.serving.shim.modules import is_absent, put
from kbuild.aot.capture.serving.tuners import (
    Answer,
    answered,
    chain_of,
    evaluated,
    is_choice,
    is_unseen,
    remembered_choice,
)

_PACKAGES = "_kbuild_packages_1"
"""The attribute of Triton's `JITFunction` with the tuple of installed packages; the number is that of what they have."""
_HOOKS = "_kbuild_hooks_1"
"""The attribute with what stands in the place of Triton's functions."""
_KNOWN = "_kbuild_known_1"
"""The attribute of a kernel with what was found of it."""
_ANSWERS = "_kbuild_answers_1"
"""The attribute of a kernel, or of a tuner, with its calls that a package's launcher answers alone."""


class Package:
    """A package that serves libraries."""

    def __init__(self, name: str, functions: Sequence[Function], error: type[Exception]) -> None:
        self.name = name
        self.strict = False
        self.misses: Misses | None = None
        self._functions = {(one.facts.module, one.facts.name, one.facts.digest): one for one in functions}
        self._names = {(one.facts.module, one.facts.name) for one in functions}
        self._alike: dict[tuple[str, str], Function] = {}
        """By name and digest, for kernels that are in another module than they were captured in: libraries write modules, and
        call them after the version of Triton."""
        for one in functions:
            self._alike.setdefault((one.facts.name, one.facts.digest), one)
        self._own_names = {name for _, name in self._names}
        self._error = error
        self._launcher = functions[0].dispatch.launcher

    def knows(self, kernel: Any) -> bool:
        """Whether the package has a kernel of this name, in whichever module."""
        return _name_of(kernel)[1] in self._own_names

    def serve(self, kernel: Any, digest: str) -> Live | None:
        """What answers a kernel of this digest; None where that is not the package's."""
        module, name = _name_of(kernel)
        found = self._functions.get((module, name, digest)) or self._alike.get((name, digest))
        return Live(found, kernel) if found else None

    def answer(self, live: Live, call: Call, chain: Sequence[Any]) -> Answer | str:
        """How it takes a call of a kernel that it serves, through these decorators; else why it does not."""
        return answered(live, call, chain)

    def refusal(self, kernel: Any) -> Exception:
        """The error for a kernel that no package serves."""
        module, name = _name_of(kernel)
        if (module, name) in self._names:
            what = "is another source than the one that was captured"
            advice = (
                "install the version of the library that was captured, or capture this one and build again"
            )
        else:
            near = sorted(other for place, other in self._names if place == module)
            what = "was not captured" + (f"; of {module} were {', '.join(near)}" if near else "")
            advice = "kbuild capture -- COMMAND records it, and kbuild import adds it to the manifest"
        return self._error(f"{self.name}: {module}:{name} {what}\n{advice}")

    def install(self, strict: bool, folder: str) -> None:
        """Answers calls of Triton's JIT from now on; of kernels of this process that exist already as well.  Without Triton, what
        stands in its place is put there, and there is nothing that a miss could go to."""
        if not_there := is_absent():
            put(self._launcher)
        self.strict = strict or not_there
        self.misses = self.misses or (Misses(folder) if folder else None)
        module = sys.modules.get("triton.runtime.jit")
        if module is not None:
            self.join(module)
        elif not any(
            isinstance(finder, _PackageFinder) and finder.package is self for finder in sys.meta_path
        ):
            sys.meta_path.insert(0, _PackageFinder(self))

    def uninstall(self) -> None:
        """Leaves Triton alone again."""
        sys.meta_path[:] = [
            finder
            for finder in sys.meta_path
            if not (isinstance(finder, _PackageFinder) and finder.package is self)
        ]
        module = sys.modules.get("triton.runtime.jit")
        cls: Any = module.__dict__["JITFunction"] if module else None
        if cls is not None and self in getattr(cls, _PACKAGES, ()):
            setattr(cls, _PACKAGES, tuple(one for one in getattr(cls, _PACKAGES) if one is not self))

    def join(self, module: ModuleType) -> None:
        """Has `triton.runtime.jit` ask the package."""
        cls: Any = module.__dict__["JITFunction"]
        if not hasattr(cls, _HOOKS):
            setattr(cls, _PACKAGES, ())
            setattr(cls, _HOOKS, _Hooks(cls))
        known = getattr(cls, _PACKAGES)
        # Another tuple even where it has the same items: what is remembered of calls does not outlive it.
        setattr(cls, _PACKAGES, (*known,) if self in known else (*known, self))
        _join_tuners(sys.modules.get("triton.runtime.autotuner"))


class _PackageFinder(Finder):
    """Installs a package when Triton is imported."""

    def __init__(self, package: Package) -> None:
        super().__init__({"triton.runtime.jit": package.join, "triton.runtime.autotuner": _join_tuners})
        self.package = package


def _join_tuners(module: ModuleType | None) -> None:
    """Puts hooks under tuners and heuristics, if both modules are there: either may import the other."""
    jit = sys.modules.get("triton.runtime.jit")
    cls: Any = jit.__dict__.get("JITFunction") if jit else None
    hooks = getattr(cls, _HOOKS, None)
    if hooks is not None and module is not None and "Heuristics" in module.__dict__:
        hooks.join_tuners(module)


class _Around(threading.local):
    """The decorators that a launch of this thread goes through, and whether a tuner is trying."""

    def __init__(self) -> None:
        self.decorators: list[Any] = []
        self.trials = 0


class _Hooks:
    """The functions in the place of Triton's."""

    def __init__(self, cls: Any) -> None:
        self._cls = cls
        self._around = _Around()
        self._lock = threading.RLock()
        self._has_tuners = False
        self._trials: dict[str, int] = {}
        """Empty, but while tuners of any thread are trying."""
        self._jit_run = cls.run = self._jit(cls.run)
        cls.__getitem__ = self._at(cls.__getitem__)
        join_graphs(self.is_asked)

    def is_asked(self, kernel: Any) -> bool:
        """Whether a launch of a kernel is a package's business: it has the kernel, or refuses all that it does not have."""
        packages: tuple[Package, ...] = getattr(self._cls, _PACKAGES)
        return any(package.strict for package in packages) or bool(self._lives(packages, kernel))

    def join_tuners(self, module: ModuleType) -> None:
        """Puts those of `triton.runtime.autotuner` there, once."""
        if self._has_tuners:
            return
        self._has_tuners = True
        tuner, heuristics = module.__dict__["Autotuner"], module.__dict__["Heuristics"]
        self._tuner_run = tuner.run = self._autotuner(tuner.run)
        tuner.__getitem__ = self._at(tuner.__getitem__)
        heuristics.run = self._inside(heuristics.run)
        tuner.warmup = self._warming(tuner.warmup)
        wrap_methods(tuner, {"_bench": self._trying})

    def _at(self, original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """`kernel[grid]`: where calls are remembered, a function of the launcher, which goes to `run` with others."""

        def at(kernel: Any, grid: Any) -> Any:
            known = kernel.__dict__.get(_ANSWERS)
            return original(kernel, grid) if known is None else known.at(kernel, grid)

        return at

    def _jit(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`JITFunction.run`."""

        def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            known = None if warmup else kernel.__dict__.get(_ANSWERS)
            if known is not None and (made := known.launch(kernel, grid, *args, **kwargs)) is not None:
                return made
            packages: tuple[Package, ...] = getattr(self._cls, _PACKAGES)
            if not packages or self._around.trials:
                return original(kernel, *args, grid=grid, warmup=warmup, **kwargs)
            call = Call(grid, warmup, args, kwargs)
            answer = self._answer(packages, kernel, call, ())
            if answer is not None:
                if not answer.found.row.is_exact:
                    self._record(packages, kernel, answer.values, call)
                made = answer.live.launch(answer.found, answer.values, call)
                self._remember(packages, kernel, answer, call, ())
                return made
            made = original(kernel, *args, grid=grid, warmup=warmup, **kwargs)
            self._record(packages, kernel, {}, call, compiled=made)
            return made

        return run

    def _autotuner(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`Autotuner.run`: what was captured or tuned is taken, and nothing is tried."""

        def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            launch = self._tuned(tuner, args, kwargs, bool(kwargs.get("warmup")))
            return launch() if launch is not None else self._go_on(original, tuner, args, kwargs)

        return run

    def _warming(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`Autotuner.warmup`, which gives a list of what was made for each configuration: here of the one that is taken."""

        def warmup(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            launch = self._tuned(tuner, args, kwargs, True)
            return [launch()] if launch is not None else self._go_on(original, tuner, args, kwargs)

        return warmup

    def _tuned(
        self, tuner: Any, args: Sequence[Any], kwargs: Mapping[str, Any], warmup: bool
    ) -> Callable[[], Any] | None:
        """What launches the call of a tuner; None where Triton has to."""
        packages: tuple[Package, ...] = getattr(self._cls, _PACKAGES)
        kernel, chain = chain_of(tuner)
        if not packages or self._around.trials or not isinstance(kernel, self._cls):
            return None
        given = {name: value for name, value in kwargs.items() if name not in ("grid", "warmup")}
        call = Call(kwargs.get("grid"), warmup, args, given)
        answer = self._answer(packages, kernel, call, chain)
        if answer is None:
            return None

        def launch() -> Any:
            if any(package.misses for package in packages):
                self._record_choice(packages, kernel, answer, call, chain)
            if answer.pre_hook is not None and not warmup:
                answer.pre_hook({**dict(zip(tuner.arg_names, args)), **given, **answer.found.row.config})
            made = answer.live.launch(answer.found, answer.values, call)
            self._remember(packages, kernel, answer, call, chain)
            return made

        return launch

    def _record_choice(
        self, packages: Sequence[Package], kernel: Any, answer: Answer, call: Call, chain: Sequence[Any]
    ) -> None:
        """Notes an answered call of a tuned kernel, where its tuner was not captured for such a size, or has other options."""
        near = is_unseen(chain[0], answer.found, call)
        if near or not answer.found.row.is_exact:
            chosen = answer.found.row.config
            options = {name: value for name, value in chosen.items() if name not in kernel.arg_names}
            noted = replace(call, kwargs={**options, **call.kwargs})
            self._record(packages, kernel, {**chosen, **answer.values}, noted, chain, near=near)

    def _inside(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`Heuristics.run`, which evaluates its functions itself."""
        return lambda decorator, *args, **kwargs: self._go_on(original, decorator, args, kwargs)

    def _go_on(
        self, original: Callable[..., Any], decorator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        self._around.decorators.append(decorator)
        try:
            return original(decorator, *args, **kwargs)
        finally:
            self._around.decorators.pop()

    def _trying(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`Autotuner._bench`, whose launches nobody asked for."""

        def bench(tuner: Any, *args: Any, config: Any, **kwargs: Any) -> Any:
            times = self._foreseen(tuner, args, config, kwargs)
            if times is not None:
                return times
            self._around.trials += 1
            with self._lock:
                self._trials["now"] = self._trials.get("now", 0) + 1
            try:
                return original(tuner, *args, config=config, **kwargs)
            finally:
                self._around.trials -= 1
                with self._lock:
                    self._trials["now"] -= 1
                    if not self._trials["now"]:
                        del self._trials["now"]

        return bench

    def _foreseen(
        self, tuner: Any, args: Sequence[Any], config: Any, kwargs: Mapping[str, Any]
    ) -> list[float] | None:
        """The times of a configuration for a library's own tuner, which goes on with the one that takes least: a millisecond for
        that of the package's row, and no end for others.  None where Triton has to try it."""
        packages: tuple[Package, ...] = getattr(self._cls, _PACKAGES)
        kernel, chain = chain_of(tuner)
        if not packages or self._around.trials or not isinstance(kernel, self._cls):
            return None
        given = {name: value for name, value in kwargs.items() if name not in ("grid", "warmup")}
        call = Call(kwargs.get("grid"), False, args, given)
        for package, live in self._lives(packages, kernel):
            answer = package.answer(live, call, chain)
            if not isinstance(answer, str):
                return [1.0 if is_choice(config, answer.found.row) else math.inf] * 3
        # The launch that follows is refused, and says why.
        return [math.inf] * 3 if any(package.strict for package in packages) else None

    def _answer(
        self, packages: Sequence[Package], kernel: Any, call: Call, chain: Sequence[Any]
    ) -> Answer | None:
        """How the first package that can takes a call; None where Triton has to.  Raises the error of a package that is strict,
        where that does not take the call either."""
        reasons: list[str] = []
        lives = self._lives(packages, kernel)
        strict = next((package for package in packages if package.strict), None)
        for package, live in lives:
            try:
                answer = package.answer(live, call, chain)
                if not isinstance(answer, str):
                    return answer
                reasons.append(answer)
            except TypeError:  # Arguments that the kernel does not have, of which Triton says it best.
                if strict:
                    raise
                return None
        if strict is None:
            return None
        config = chain[0].configs[0].all_kwargs() if chain else {}
        given = evaluated(call, config, chain[1:])
        self._record(packages, kernel, {}, replace(call, kwargs=given), chain)
        if not lives:
            owner = next((one for one in packages if one.strict and one.knows(kernel)), strict)
            raise owner.refusal(kernel)
        refusing = next((number for number, (package, _) in enumerate(lives) if package.strict), 0)
        live = lives[refusing][1]
        values, options = live.bind(call.args, call.kwargs, frozenset(config))
        raise live.function.refused(values, options, reasons[refusing])

    def _lives(self, packages: Sequence[Package], kernel: Any) -> Sequence[tuple[Package, Live]]:
        """What packages have for a kernel, by its digest, which is made again when something that it depends on has changed."""
        known = kernel.__dict__.get(_KNOWN)
        # A copy of a kernel has the attributes of the other one.
        is_right = known is not None and known[0] is packages and known[3] is kernel
        if known is not None and is_right and all(map(_is_as_before, known[1])):
            return known[2]
        with self._lock:
            lives: list[tuple[Package, Live]] = []
            depends: list[tuple[Any, str, Any]] = []
            if any(package.knows(kernel) for package in packages):
                depends, digest = watched(kernel), origin(kernel)["digest"]
                found = ((package, package.serve(kernel, digest)) for package in packages)
                lives = [(package, live) for package, live in found if live is not None]
            kernel.__dict__[_KNOWN] = (packages, depends, lives, kernel)
            return lives

    def _remember(
        self, packages: Sequence[Package], kernel: Any, answer: Answer, call: Call, chain: Sequence[Any]
    ) -> None:
        """Has the launcher answer calls that differ from this one in arrays and numbers alone, if the package is the first one
        that has the kernel: a later one takes only what those before it refuse."""
        known = kernel.__dict__.get(_KNOWN)
        if known is None or known[0] is not packages or known[2][0][1] is not answer.live:
            return
        watched_ones, tuner = known[1], chain[0] if chain else None
        is_plain = tuner is None or (
            len(chain) == 1 and tuner.fn is kernel and isinstance(tuner.configs, list)
        )
        is_recorded = any(package.misses for package in packages)
        if call.warmup or not is_plain or answer.pre_hook is not None or (tuner is not None and is_recorded):
            return  # What is recorded of a tuned call depends on its size.
        live, holder = answer.live, kernel if tuner is None else tuner

        def guards() -> list[Guard]:
            return [
                (self._cls, _PACKAGES, packages),
                (self._trials, "now"),
                *unchanged(watched_ones),
                *without_hooks(kernel),
                *launched_by(holder, self._jit_run if tuner is None else self._tuner_run),
                *(() if tuner is None else tuned_by(tuner)),
            ]

        def result(row: Any) -> tuple[Any, ...] | None:
            plain = (live.function.compiled(row), row.config)
            if tuner is not None:
                choice = remembered_choice(tuner, row)
                return (*plain, *choice) if choice else None
            return plain if row.is_exact or not is_recorded else None

        remembered = live.remembered(holder, guards, result)
        remembered.add(call.args, call.kwargs, answer.values, answer.options)
        holder.__dict__[_ANSWERS] = remembered.answers

    def _record(
        self,
        packages: Sequence[Package],
        kernel: Any,
        values: Mapping[str, Any],
        call: Call,
        chain: Sequence[Any] = (),
        compiled: Any = None,
        near: bool = False,
    ) -> None:
        """Notes a call in the first package's record: `compiled` is what Triton made of it, if it did; `near` says that it got
        the choice of a tuner for another size."""
        misses = next((package.misses for package in packages if package.misses), None)
        if misses is not None:
            launch = (None if call.warmup else call.grid, call.args, call.kwargs)
            misses.note(
                kernel,
                values or _bound(kernel, call),
                launch,
                [*self._around.decorators, *chain],
                compiled,
                near,
            )


def _bound(kernel: Any, call: Call) -> dict[str, Any]:
    """The values of a kernel's parameters in a call, by name."""
    found = {one.name: one.default for one in kernel.params if one.has_default}
    found |= dict(zip(kernel.arg_names, call.args))
    return found | {name: value for name, value in call.kwargs.items() if name in kernel.arg_names}


def _is_as_before(one: tuple[Any, str, Any]) -> bool:
    holder, name, value = one
    return (holder.get(name) if isinstance(holder, dict) else getattr(holder, name, None)) is value


def _name_of(kernel: Any) -> tuple[str, str]:
    """The module and the qualified name of a kernel."""
    inner = function_of(kernel)
    return module_of(inner), getattr(inner, "__qualname__", "")
