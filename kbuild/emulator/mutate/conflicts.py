"""Whether any accesses of a launch need an order: which threads or CTAs touch which bytes, and how."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kbuild.emulator.engine.memory import Space
from kbuild.emulator.mutate.trial import ADVERSARIES, Subject, TrialCase

_UNTOUCHED, _SEVERAL = -1, -2


class _Touched:
    """Notes for every byte which actors touched it, whether any wrote it, and whether any did so other than
    atomically.

    `scope` is a unit that is examined alone, such as each CTA; within it `actor` numbers threads or CTAs.
    """

    def __init__(self, scope: Callable[[Any], Any], actor: Callable[[Any, np.ndarray], Any]) -> None:
        self.scope, self.actor = scope, actor
        self.found: dict[tuple[Any, int], tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def accessed(
        self,
        kind: str,
        space: Space,
        offsets: np.ndarray,
        size: int,
        lanes: np.ndarray,
        data: np.ndarray | None,
        site: Any,
    ) -> None:
        if space.name not in ("global", "shared"):
            return
        key, count = (self.scope(site[0]), id(space)), len(space.data)
        if key not in self.found:
            self.found[key] = np.full(count, _UNTOUCHED), np.zeros(count, bool), np.zeros(count, bool)
        owner, written, plain = self.found[key]
        actors = np.broadcast_to(self.actor(site[0], lanes), offsets.shape)
        for byte in range(size):
            places = offsets + byte
            for place, actor in zip(places.tolist(), actors.tolist()):
                owner[place] = actor if owner[place] in (_UNTOUCHED, actor) else _SEVERAL
            written[places] |= kind != "load"
            plain[places] |= kind != "atomic"

    @property
    def conflict(self) -> bool:
        """Whether several actors touched a byte that one of them wrote, not all atomically."""
        return any(
            bool(((owner == _SEVERAL) & written & plain).any())
            for owner, written, plain in self.found.values()
        )


def _conflict(
    subject: Subject, case: TrialCase, scope: Callable[[Any], Any], actor: Callable[[Any, np.ndarray], Any]
) -> bool:
    touched = _Touched(scope, actor)
    subject.launch(subject.program, case, ADVERSARIES[1], observers=[touched])
    return touched.conflict


def threads_conflict(subject: Subject, case: TrialCase) -> bool:
    """Whether two threads of a CTA touch a byte that one of them writes, not both atomically."""
    return _conflict(
        subject, case, lambda batch: batch.cta.index, lambda batch, lanes: lanes + batch.first_thread
    )


def ctas_conflict(subject: Subject, case: TrialCase) -> bool:
    """Whether two CTAs do."""
    x, y = 1 << 10, 1 << 20
    return _conflict(
        subject,
        case,
        lambda batch: 0,
        lambda batch, lanes: batch.cta.index[0] + x * batch.cta.index[1] + y * batch.cta.index[2],
    )
