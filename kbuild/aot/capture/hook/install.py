"""Takes part in the import of Triton, and in nothing before: a process that never imports it is as without the hook."""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from kbuild.aot.capture.hook.decorators import wrap_methods
from kbuild.aot.capture.hook.fake_device import use, use_times
from kbuild.aot.capture.hook.finder import Finder
from kbuild.aot.capture.hook.recorder import MOST_KEYS, Recorder
from kbuild.aot.capture.hook.shared_choices import SharedChoices, question_of


def install(folder: str, device: str = "") -> None:
    """Has this process record into a folder, once it imports Triton; with `device`, such as `sm_90`, kernels are launched on
    a device that does nothing, and none is compiled."""
    capture = _Capture(folder, device)
    after: dict[str, Callable[[ModuleType], None]] = {
        "triton.runtime.jit": capture.jit,
        "triton.runtime.autotuner": capture.autotuner,
        "triton.compiler": capture.compiler,
    }
    if device:
        after["triton.testing"] = use_times
    sys.meta_path.insert(0, Finder(after))


class _Around(threading.local):
    """The decorators that a launch of this thread goes through, and whether a tuner is trying."""

    def __init__(self) -> None:
        self.decorators: list[Any] = []
        self.trials = 0
        self.launches = 0
        """Launches of kernels that it is in."""
        self.is_new_key = False


class _Capture:
    """The functions of Triton in whose place others record, and call them."""

    def __init__(self, folder: str, device: str) -> None:
        self._folder = folder
        self._device = device
        self._around = _Around()
        self._recorder: Recorder | None = None

    @property
    def recorder(self) -> Recorder:
        if self._recorder is None:
            triton = sys.modules.get("triton")
            facts = {"triton": getattr(triton, "__version__", ""), "python": sys.version.split()[0]}
            self._recorder = Recorder(self._folder, facts | {"device": self._device or _arch()})
            atexit.register(self._recorder.close)
        return self._recorder

    def jit(self, module: ModuleType) -> None:
        """`triton.runtime.jit`: all launches of kernels that Triton may have to compile."""
        cls: Any = module.__dict__["JITFunction"]
        cls.run = _recording(cls.run, self._around, lambda: self.recorder)

    def autotuner(self, module: ModuleType) -> None:
        """`triton.runtime.autotuner`: which launches are trials, and what a tuner or a heuristic has chosen."""
        choices = SharedChoices(self._folder, MOST_KEYS)
        tuner: Any = module.__dict__["Autotuner"]
        heuristics: Any = module.__dict__["Heuristics"]
        tuner.run = self._choosing(tuner.run, choices)
        wrap_methods(
            tuner,
            {
                "run": lambda run: self._inside(self._asking(run, choices)),
                "_bench": lambda bench: _trying(bench, self._around),
            },
        )
        heuristics.run = self._inside(heuristics.run)

    def compiler(self, module: ModuleType) -> None:
        """`triton.compiler`: what is compiled, but not for a launch of a kernel, as by torch's compiler."""
        if self._device:
            use(module, self._device)
        made = _compiling(module.__dict__["compile"], self._around, lambda: self.recorder)
        for one in (module, sys.modules.get("triton.compiler.compiler")):
            if one is not None:
                one.__dict__["compile"] = made

    def _asking(self, original: Callable[..., Any], choices: SharedChoices) -> Callable[..., Any]:
        """`run` of a tuner, Triton's or a library's own, which notes whether it is asked something new."""
        around = self._around

        def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            if not around.trials:
                is_new = choices.is_new(question_of(tuner, args, kwargs), tuner)
                around.is_new_key = is_new or around.is_new_key
            return original(tuner, *args, **kwargs)

        return run

    def _choosing(self, original: Callable[..., Any], choices: SharedChoices) -> Callable[..., Any]:
        """`Autotuner.run`, which chooses as other processes of the capture have."""

        def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            if self._around.trials:
                return original(tuner, *args, **kwargs)
            return choices.run(original, question_of(tuner, args, kwargs), tuner, args, kwargs)

        return run

    def _inside(self, original: Callable[..., Any]) -> Callable[..., Any]:
        around = self._around

        def run(decorator: Any, *args: Any, **kwargs: Any) -> Any:
            if any(one is decorator for one in around.decorators):
                return original(decorator, *args, **kwargs)  # A library's tuner goes on to Triton's `run`.
            around.decorators.append(decorator)
            try:
                return original(decorator, *args, **kwargs)
            finally:
                around.decorators.pop()
                if not around.decorators:
                    around.is_new_key = False

        return run


def _recording(
    original: Callable[..., Any], around: _Around, recorder: Callable[[], Recorder]
) -> Callable[..., Any]:
    """`JITFunction.run`, which returns the compiled kernel in all versions."""
    known: dict[str, Recorder] = {}

    def run(function: Any, *args: Any, **kwargs: Any) -> Any:
        around.launches += 1
        try:
            return recorded(function, *args, **kwargs)
        finally:
            around.launches -= 1

    def recorded(function: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if around.trials:
            return original(function, *args, grid=grid, warmup=warmup, **kwargs)
        sizes: list[Any] = []
        asked = _observed(grid, sizes) if callable(grid) else grid
        kernel = original(function, *args, grid=asked, warmup=warmup, **kwargs)
        if "it" not in known:
            known["it"] = recorder()
        entry = known["it"].seen.get(id(kernel))
        if entry is not None and not warmup:
            entry.count += 1
            if entry.count < entry.next and not around.is_new_key:
                return kernel
            entry.choice = around.is_new_key
        launched = None if warmup else sizes[0] if sizes else grid
        _note(known["it"], kernel, function, (launched, args, kwargs), around.decorators)
        return kernel

    return run


def _compiling(
    original: Callable[..., Any], around: _Around, recorder: Callable[[], Recorder]
) -> Callable[..., Any]:
    """`compile(source, target, options)` of Triton, of a kernel in its language or of IR."""

    def compile(src: Any, target: Any = None, options: Any = None, **more: Any) -> Any:
        kernel = original(src, target=target, options=options, **more)
        function = getattr(src, "fn", None)
        if function is not None and not around.launches:
            _note(recorder(), kernel, function, (None, (), dict(options or {})), ())
        return kernel

    return compile


def _note(
    recorder: Recorder, kernel: Any, function: Any, launch: tuple[Any, Any, Any], decorators: Sequence[Any]
) -> None:
    """Records a launch or a compilation; that it cannot be is no reason for it to fail."""
    try:
        recorder.note(_finished(kernel), function, launch, decorators)
    except Exception as error:
        recorder.failed(function, error)


def _finished(kernel: Any) -> Any:
    """The kernel itself, where Triton compiles in the background."""
    return kernel.result() if not hasattr(kernel, "src") and hasattr(kernel, "result") else kernel


def _observed(grid: Callable[[Any], Any], sizes: list[Any]) -> Callable[[Any], Any]:
    """A grid that is computed once, as without the hook, and known afterwards."""

    def observed(meta: Any) -> Any:
        found = grid(meta)
        sizes.append(found)
        return found

    return observed


def _trying(original: Callable[..., Any], around: _Around) -> Callable[..., Any]:
    """`Autotuner._bench`, whose launches nobody asked for."""

    def bench(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        around.trials += 1
        try:
            return original(tuner, *args, **kwargs)
        finally:
            around.trials -= 1

    return bench


def _arch() -> str:
    """The device that Triton compiles for, as `sm_90`; empty where it is none of NVIDIA's."""
    try:
        target = sys.modules["triton.runtime.driver"].driver.active.get_current_target()
        return f"sm_{target.arch}" if target.backend == "cuda" else ""
    except (AttributeError, KeyError, RuntimeError):
        return ""
