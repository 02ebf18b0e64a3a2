"""Calls as packages answer them: with the choice of a tuner looked up, and the values of heuristics evaluated by their own
functions."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbuild.aot.capture.hook.decorators import chosen_names, is_tuner, tuning_key
from kbuild.aot.capture.serving.launches import Found, Misfit, Row
from kbuild.aot.capture.serving.live import Call, Live
from kbuild.aot.capture.serving.values import word


@dataclass(frozen=True)
class Answer:
    """A call that a package takes."""

    live: Live
    found: Found
    values: Mapping[str, Any]
    options: Mapping[str, Any]
    pre_hook: Any = None
    """What the configuration that was taken has done before its launches."""


def chain_of(decorator: Any) -> tuple[Any, list[Any]]:
    """The kernel under a tuner or heuristics, and these, the outermost first."""
    found: list[Any] = []
    while hasattr(decorator, "fn") and (hasattr(decorator, "configs") or hasattr(decorator, "values")):
        found.append(decorator)
        decorator = decorator.fn
    return decorator, found


def answered(live: Live, call: Call, decorators: Sequence[Any] = ()) -> Answer | str:
    """How a package takes a call that goes through these decorators; why it does not, where that is so.  Raises TypeError where
    the kernel has no such arguments.

    The reason is no exception, since packages call this of each other, whose classes are not the same.
    """
    try:
        return _answer(live, call, decorators)
    except Misfit as misfit:
        return str(misfit)


def _answer(live: Live, call: Call, decorators: Sequence[Any]) -> Answer:
    if not decorators:
        values, options = live.bind(call.args, call.kwargs)
        return Answer(live, live.function.find(values, options, call.warmup), values, options)
    tuner, *others = decorators
    if not is_tuner(tuner) or any(is_tuner(one) for one in others):
        raise Misfit("it has two tuners")
    open_names = frozenset(chosen_names(tuner))
    twice = sorted(open_names & live.function.constexprs & call.kwargs.keys())
    if twice:
        raise Misfit(f"{twice[0]} is given, and its tuner chooses it")
    if any(hasattr(value, "block_shape") for value in (*call.args, *call.kwargs.values())):
        answer = _described(live, call, tuner, others)
        if answer is not None:
            return answer
    if len(tuner.configs) == 1 and not callable(call.grid):
        return _only(live, call, tuner, others)
    found, values, options = _choice(live, call, open_names, others)
    return Answer(live, found, values, options, _pre_hook(live, tuner, found, call))


def _described(live: Live, call: Call, tuner: Any, heuristics: Sequence[Any]) -> Answer | None:
    """The answer to a call with tensor descriptors whose blocks are set by the hooks of configurations: these are called, one
    after the other, until a launch has such blocks that was captured for such a size, or else the first that has such blocks.
    None where no configuration has a hook, or none leads to a launch."""
    fitting: list[tuple[Any, Mapping[str, Any], Answer]] = []
    for config in tuner.configs:
        hook = getattr(config, "pre_hook", None)
        if hook is None or not live.function.has_config(config.all_kwargs()):
            continue
        given = evaluated(call, config.all_kwargs(), heuristics)
        values, options = live.bind(call.args, given)
        named = {**dict(zip(tuner.arg_names, call.args)), **given}
        hook(named)
        try:
            found = live.function.find(values, options, call.warmup)
            _check_pruning(live, tuner, config, call)
        except Misfit:
            continue
        if found.row.is_exact:
            fitting.append((config, named, Answer(live, found, values, options)))
            if not is_unseen(tuner, found, call):
                fitting = fitting[-1:]
                break
    if not fitting:
        return None
    config, named, answer = fitting[0]
    config.pre_hook(named)  # The blocks are those of the configuration that was tried last.
    tuner.best_config = config
    return answer


def _only(live: Live, call: Call, tuner: Any, heuristics: Sequence[Any]) -> Answer:
    """The answer to a call of a tuner that has no choice, whose grid may be for its configuration alone: so it is where torch has
    computed both."""
    config = tuner.configs[0]
    values, options = live.bind(call.args, evaluated(call, config.all_kwargs(), heuristics))
    found = live.function.find(values, options, call.warmup)
    tuner.best_config = config
    return Answer(live, found, values, options, getattr(config, "pre_hook", None))


def _choice(
    live: Live, call: Call, open_names: frozenset[str], heuristics: Sequence[Any]
) -> tuple[Found, Mapping[str, Any], Mapping[str, Any]]:
    """The row for a call whose tuner is not asked: that of the size, or the one that was taken most; with values and options.

    Where heuristics follow from what the tuner chooses, each configuration is tried until one leads to a row of its own.
    """
    if not heuristics:
        values, options = live.bind(call.args, call.kwargs, open_names)
        return live.function.find(values, options, call.warmup), values, options
    reasons: dict[str, None] = {}
    for config in live.function.configs(open_names):
        values, options = live.bind(call.args, evaluated(call, config, heuristics))
        try:
            found = live.function.find(values, options, call.warmup)
        except Misfit as misfit:
            reasons[str(misfit)] = None
            continue
        if found.row.is_exact:
            return found, values, options
    raise Misfit("; ".join(filter(None, reasons)))


def is_unseen(tuner: Any, found: Found, call: Call) -> bool:
    """Whether a tuner would choose for a call by values for which it did not when the package's kernels were captured."""
    facts = found.row.launch.facts
    if not facts.keys or not is_tuner(tuner):
        return False
    given = {**dict(zip(tuner.arg_names, call.args)), **call.kwargs}
    return tuple(word(given.get(name)) for name in facts.keys) not in facts.seen


def evaluated(call: Call, config: Mapping[str, Any], heuristics: Sequence[Any]) -> dict[str, Any]:
    """The keywords of a call with a tuner's configuration and the values that heuristics make of both."""
    given = {**call.kwargs, **config}
    for one in heuristics:
        for name, make in one.values.items():
            given[name] = make({**dict(zip(one.arg_names, call.args)), **given})
    return given


def _pre_hook(live: Live, tuner: Any, found: Found, call: Call) -> Any:
    """The hook of the tuner's configuration that a row is.  Raises Misfit where the tuner would not choose it."""
    config = next(_equal(tuner.configs, found.row.config), None)
    if config is None and getattr(tuner, "early_config_prune", None) is not None:
        kept = _pruned(tuner, call)  # It may change configurations, as to what the device has.
        config = next(_equal(kept, found.row.config), None)
    if config is None and any(getattr(one, "pre_hook", None) for one in tuner.configs):
        raise Misfit("the configuration that was built is none of its tuner's, which have hooks")
    if config is not None:
        _check_pruning(live, tuner, config, call)
    tuner.best_config = _as_config(tuner, found.row) if config is None else config
    return getattr(config, "pre_hook", None)


def _as_config(tuner: Any, row: Row) -> Any:
    """What a tuner's `best_config` is where its configurations lack that of a row."""
    config = copy.copy(tuner.configs[0])
    config.kwargs = {name: row.config[name] for name in config.kwargs if name in row.config}
    for name in ("num_warps", "num_stages", "num_ctas"):
        if name in row.config:
            setattr(config, name, row.config[name])
    return config


def _pruned(tuner: Any, call: Call) -> Sequence[Any]:
    """The configurations that a library keeps for a call."""
    return tuner.early_config_prune(tuner.configs, dict(zip(tuner.arg_names, call.args)), **call.all_kwargs)


def remembered_choice(tuner: Any, row: Row) -> tuple[Any, ...]:
    """What the launcher does where it answers a call of a tuner with a row: a guard, and what is set.  Empty where the tuner's
    configuration does more."""
    config = next(_equal(tuner.configs, row.config), None)
    if config is None or getattr(config, "pre_hook", None) is not None:
        return ()
    return (config, "pre_hook"), (tuner, "best_config", config)


def is_choice(config: Any, row: Row) -> bool:
    """Whether a row is built with a tuner's configuration."""
    return any(_equal([config], row.config))


def _equal(configs: Sequence[Any], values: Mapping[str, Any]) -> Iterator[Any]:
    """The configurations that a row may be."""
    for config in configs:
        given = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
        given["num_ctas"] = getattr(config, "num_ctas", 1)
        if all(values[name] == value for name, value in given.items() if name in values):
            yield config


def _check_pruning(live: Live, tuner: Any, config: Any, call: Call) -> None:
    """Raises Misfit where the library takes a configuration out for these arguments; it is asked once for each key."""
    if getattr(tuner, "early_config_prune", None) is None:
        return
    key = (id(config), tuning_key(tuner, call.args, call.kwargs))
    if key not in live.kept:
        live.kept[key] = any(one is config for one in _pruned(tuner, call))
    if not live.kept[key]:
        raise Misfit("its tuner takes the configuration that was built out for these arguments")
