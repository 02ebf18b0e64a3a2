"""What tuners choose, once for all processes of a capture, and for each set of types.

Each process would try the configurations anew and, where they are equally fast, choose another than its neighbours: a kernel that
is launched by what was chosen for another one is then captured with one choice and missing for the others.
"""

from __future__ import annotations

import copy
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from kbuild.aot.capture.hook.decorators import tuning_key
from kbuild.aot.capture.hook.origin import origin
from kbuild.aot.capture.hook.plain import plain

_FOLDER = "choices"
"""Where they are in the folder of a capture: a file for each."""
_LONGEST = 1 << 16
"""Bytes of a configuration."""

Question = tuple[Any, ...]
"""What a tuner is asked by a call: see `question_of`."""


class SharedChoices:
    """The choices of this process and of those beside it, which record into the same folder."""

    def __init__(self, folder: str, most: int) -> None:
        self._folder = os.path.join(folder, _FOLDER)
        with suppress(OSError):
            os.makedirs(self._folder, exist_ok=True)
        self._most = most
        self._asked: dict[Any, Any] = {}
        """Tuners, which are kept so that no other gets their identity, by this and what they were asked."""
        self._chosen: dict[Any, Any] = {}
        """The same tuners with one configuration, that which was chosen."""
        self._digests: dict[int, str] = {}

    def run(
        self,
        original: Callable[..., Any],
        question: Question | None,
        tuner: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """`original(tuner, …)`, the `run` of Triton's tuner, with what was chosen before for such a question."""
        known = self._chosen.get(question)
        if known is None:
            if (
                question is None
                or len(tuner.configs) < 2
                or not hasattr(tuner, "cache")
                or len(self._chosen) >= self._most
            ):
                return original(tuner, *args, **kwargs)
            with _held(os.path.join(self._folder, self._name(tuner, question))) as file:
                config = _read(file, tuner)
                if config is None:
                    made = _tuned(original, tuner, args, kwargs)
                    config = tuner.best_config
                    if any(one is config for one in tuner.configs):
                        _write(file, config)
                        self._chosen[question] = _with(tuner, configs=[config])
                    return made
            known = self._chosen[question] = _with(tuner, configs=[config])
        made = original(known, *args, **kwargs)
        tuner.best_config = known.configs[0]
        return made

    def is_new(self, question: Question | None, tuner: Any) -> bool:
        """Whether no launch of this process has asked the tuner the same."""
        if question is None or question in self._asked or len(self._asked) >= self._most:
            return False
        self._asked[question] = tuner
        return True

    def _name(self, tuner: Any, question: Question) -> str:
        """The name of a file, by the kernel, the configurations, and what is asked."""
        if id(tuner) not in self._digests:
            kernel = tuner
            while not hasattr(kernel, "params"):
                kernel = kernel.fn
            facts = origin(kernel)
            said = [facts["module"], facts["name"], facts["digest"], [_said(one) for one in tuner.configs]]
            self._digests[id(tuner)] = json.dumps(said, sort_keys=True)
        return hashlib.sha256(f"{self._digests[id(tuner)]} {question[1:]!r}".encode()).hexdigest() + ".json"


def question_of(tuner: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Question | None:
    """A tuner's identity and what it chooses by: its key, and the types of arrays and descriptors, of which Triton looks at the
    former alone.  None for a library's own tuner, which is another than Triton's."""
    try:
        given = {**dict(zip(tuner.arg_names, args)), **kwargs}
        types = [
            (name, getattr(getattr(value, "base", value), "dtype", None)) for name, value in given.items()
        ]
        known = tuple((name, str(dtype)) for name, dtype in types if dtype is not None)
        return id(tuner), tuning_key(tuner, args, kwargs), known
    except Exception:
        return None


def _with(tuner: Any, **changed: Any) -> Any:
    """A tuner like another one."""
    made = copy.copy(tuner)
    vars(made).update(changed)
    return made


def _tuned(original: Callable[..., Any], tuner: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A launch for which the configurations are tried, also where Triton would take the choice for other types.  This is done
    by a tuner like the given one, which other threads may use."""
    trying = _with(tuner, cache={})
    made = original(trying, *args, **kwargs)
    tuner.cache.update(trying.cache)
    vars(tuner).update(
        {name: value for name, value in vars(trying).items() if name not in ("cache", "nargs")}
    )
    return made


def _said(config: Any) -> Any:
    """A configuration as JSON has it."""
    return json.loads(json.dumps({name: plain(value) for name, value in config.all_kwargs().items()}))


@contextmanager
def _held(path: str) -> Iterator[int]:
    """A file that no other process has; one that tries the same configurations is waited for, as long as trying them here would
    take.  Below zero where there can be no file, as of a capture that has ended before its last process."""
    handle = -1
    with suppress(OSError):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield handle
    finally:
        if handle >= 0:
            os.close(handle)


def _read(file: int, tuner: Any) -> Any:
    """The configuration that a file names; None where it is new, or that of a process that was killed."""
    try:
        said = json.loads(os.pread(file, _LONGEST, 0))
    except (OSError, ValueError):
        return None
    return next((one for one in tuner.configs if _said(one) == said), None)


def _write(file: int, config: Any) -> None:
    with suppress(OSError):
        os.pwrite(file, json.dumps(_said(config)).encode(), 0)
