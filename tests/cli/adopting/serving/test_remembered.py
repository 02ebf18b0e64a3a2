"""Calls that were answered before are answered by the launcher alone, and whatever would have another answer is noticed."""

from __future__ import annotations

import gc
import shutil
import sys
import weakref
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kbuild.aot.capture.records import read_captures
from tests.cli.adopting.serving.calls import Calls
from tests.cli.adopting.serving.conftest import World
from tests.cli.adopting.serving.tensors import Tensor


def test_a_call_is_looked_for_once(calls: Calls) -> None:
    first, second = calls.add(), calls.add()
    assert calls.asked == 1 and first is second
    assert calls.world.launched() == ["add_kernel"] * 2
    y = calls.tensor(np.float16)
    seen: list[Any] = []
    assert calls.add(1000, grid=lambda meta: seen.append(meta["BLOCK"]) or [1]) is not first
    assert calls.add(x=y) is not first
    assert calls.asked == 1 and seen == [1024]
    assert (y.numpy() == 2).all()


@pytest.mark.parametrize("world", ["absent"], indirect=True)
def test_without_triton_as_well(calls: Calls) -> None:
    calls.add()
    assert calls.is_remembered() and len(calls.world.launched()) == 2


def test_by_name_without_the_library_as_well(world: World) -> None:
    calls = Calls(world)
    kernel, x = calls.package.triton.add_kernel, calls.x
    made = kernel[(4,)](x, x, x, 4096, BLOCK=1024)
    assert kernel[(4,)](x, x, x, 4096, BLOCK=1024) is made and calls.asked == 1
    with pytest.raises(calls.error):
        kernel[(4,)](x, x, x, 4096.0, BLOCK=1024)
    assert len(world.launched()) == 2


def test_arrays_of_a_call_are_not_kept(world: World) -> None:
    """A process would keep the memory of the first call of each kernel for good."""
    world.package.install(strict=True)
    for call in (world.module("tiny_ops.elementwise").add_kernel, world.package.triton.add_kernel):
        x = world.torch.tensor(np.ones(4096, np.float32))
        gone = weakref.ref(x)
        for _ in range(3):
            call[(4,)](x, x, x, 4096, BLOCK=1024)
            call[lambda meta: (4096 // meta["BLOCK"],)](x=x, y=x, out=x, n=4096, BLOCK=1024)
        del x
        gc.collect()
        assert gone() is None


def test_what_a_hook_is_told_of_is_told(calls: Calls) -> None:
    calls.add()
    kernel, seen = calls.kernel("add_kernel"), []
    kernel.pre_run_hooks = [lambda *args, **kwargs: seen.append(args[3])]
    assert not calls.is_remembered() and seen == [4096]
    kernel.pre_run_hooks.clear()
    assert calls.is_remembered() and len(seen) == 1


def test_hooks_of_launches_are_called(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    knobs: Any = ModuleType("triton.knobs")
    chain = SimpleNamespace(calls=[])
    hook = _Chain()
    knobs.runtime = SimpleNamespace(launch_enter_hook=hook, launch_exit_hook=None)
    calls.add()
    monkeypatch.setitem(sys.modules, "triton.knobs", knobs)  # It was not there.
    assert not calls.is_remembered() and calls.is_remembered()
    hook.calls.append("a hook")
    assert not calls.is_remembered() and hook.count == 1
    hook.calls.clear()
    assert calls.is_remembered() and hook.count == 1
    knobs.runtime.launch_exit_hook = lambda facts: chain.calls.append(facts.get()["name"])
    assert not calls.is_remembered() and chain.calls == ["add_kernel"]
    knobs.runtime.launch_exit_hook = None
    assert calls.is_remembered()
    knobs.runtime = SimpleNamespace(launch_enter_hook=None, launch_exit_hook=hook)
    hook.calls.append("a hook")
    assert not calls.is_remembered() and hook.count == 2


class _Chain:
    """Hooks, as Triton has them since 3.4."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.count = 0

    def __call__(self, facts: Any) -> None:
        self.count += 1


def test_a_source_that_changes_is_noticed(calls: Calls) -> None:
    functions, triton = calls.world.module("tiny_ops.functions"), calls.world.module("triton.language")
    kernel, x = calls.kernel("rms_norm_kernel"), calls.x

    def norm() -> None:
        kernel[(8,)](x, None, x, 512, 512, HAS_WEIGHT=False, BLOCK=512)

    norm()
    assert calls.is_remembered(norm)
    usual, functions.LEAST = functions.LEAST, triton.constexpr(1.0)
    with pytest.raises(calls.error, match="another source"):
        norm()
    functions.LEAST = usual
    assert calls.is_remembered(norm)
    functions.inverse_root.src = functions.inverse_root.src.replace("1 /", "3 /")
    with pytest.raises(calls.error, match="another source"):
        norm()
    calls.add()
    add = calls.kernel("add_kernel")
    add.src += "    # The same tokens.\n"
    assert not calls.is_remembered() and calls.is_remembered()
    add.src = add.src.replace("+ tl.load", "- tl.load")
    with pytest.raises(calls.error, match="another source"):
        calls.add()


def test_a_property_is_watched_where_it_keeps_its_value(calls: Calls) -> None:
    """As `src` of Triton 3.5 and newer."""
    kernel = calls.kernel("add_kernel")
    cls = type(kernel)
    kernel._src = kernel.__dict__.pop("src")
    cls.src = property(lambda self: self._src if "_src" in self.__dict__ else self.__dict__["src"])
    calls.add()
    assert calls.is_remembered()
    kernel._src = kernel._src.replace("+ tl.load", "- tl.load")
    with pytest.raises(calls.error, match="another source"):
        calls.add()


def test_a_copy_of_a_kernel_is_another_one(calls: Calls) -> None:
    calls.add()
    kernel, x = calls.kernel("add_kernel"), calls.x
    other = copy(kernel)
    assert calls.is_remembered()
    for _ in range(2):
        other[(4,)](x, x, x, 4096, BLOCK=1024)
    assert calls.asked == 2
    other.src = other.src.replace("+ tl.load", "- tl.load")
    for launch in (other[(4,)], partial(other.run, grid=(4,), warmup=False)):
        with pytest.raises(calls.error, match="another source"):
            launch(x, x, x, 4096, BLOCK=1024)
    assert calls.is_remembered()
    tuner = calls.kernel("matmul_kernel")
    tuner[(2, 2)](x, x, x, 64, 64, 64)
    other = copy(tuner)
    other.early_config_prune = lambda configs, named, **kwargs: configs[1:]
    with pytest.raises(calls.error, match="takes the configuration"):
        other[(2, 2)](x, x, x, 64, 64, 64)


def test_triton_gets_its_calls_back(calls: Calls) -> None:
    calls.add()
    calls.package.uninstall()
    calls.world.launched()
    calls.add()
    assert calls.world.compiled() == 1 and not calls.world.launched()
    calls.package.install()
    calls.add()
    assert calls.is_remembered() and calls.world.compiled() == 1 and len(calls.world.launched()) == 2


def test_what_is_not_remembered_goes_to_triton_or_is_an_error_as_before(calls: Calls) -> None:
    calls.add()
    with pytest.raises(calls.error):
        calls.add(BLOCK=512)
    calls.package.install()
    calls.add()
    calls.add(BLOCK=512)
    assert calls.world.compiled() == 1
    assert calls.is_remembered()


def test_another_run_is_not_passed_over(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    calls.add()
    kernel, seen = calls.kernel("add_kernel"), []
    cls = type(kernel)
    usual = cls.run

    def run(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(kwargs["grid"])
        return usual(kernel, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(cls, "run", run)
        calls.add()
    assert seen == [(4,)] and calls.is_remembered()
    kernel.run = lambda *args, **kwargs: "own"
    assert calls.add() == "own"
    del kernel.run
    assert calls.is_remembered()


def test_run_itself_answers_alike(calls: Calls) -> None:
    kernel, x = calls.kernel("add_kernel"), calls.x
    made = calls.add()
    assert kernel.run(x, x, x, 4096, BLOCK=1024, grid=(4,), warmup=False) is made and calls.asked == 1
    assert kernel.run(x, x, x, 4096, BLOCK=1024, grid=(4,), warmup=True) is made and calls.asked == 2
    assert len(calls.world.launched()) == 2


def test_trials_of_a_tuner_are_tritons(calls: Calls) -> None:
    calls.package.install()
    calls.add()
    tuner_class = type(calls.kernel("matmul_kernel"))
    hooks = type(calls.kernel("add_kernel"))._kbuild_hooks_1

    def trial(tuner: Any, config: Any) -> list[str]:
        calls.world.launched()
        calls.add()
        return calls.world.launched()

    assert hooks._trying(trial)(tuner_class, config=None) == [] and calls.world.compiled() == 1
    assert calls.is_remembered()


def test_of_two_packages_the_first_that_takes_a_call_does(calls: Calls, site: Path) -> None:
    folder = calls.world.folder / "more"
    shutil.copytree(site / "adopt", folder / "other")
    sys.path.insert(0, str(folder))
    other = calls.world.module("other")
    made = calls.add()
    other.install()
    assert not calls.is_remembered() and calls.is_remembered()
    calls.package.uninstall()
    first, second = calls.add(), calls.add()
    assert first is second and first is not made
    calls.package.install()  # After the other one now.
    assert calls.add() is first
    other.uninstall()
    assert calls.add() is made


def test_what_a_later_package_takes_is_asked_of_the_first_each_time(calls: Calls, site: Path) -> None:
    folder = calls.world.folder / "more"
    shutil.copytree(site / "adopt", folder / "other")
    sys.path.insert(0, str(folder))
    other = calls.world.module("other")
    other.install()
    launches = calls.package.triton.add_kernel.launches
    kept = list(launches)
    launches.clear()  # A package that was built for other calls.
    other_one = calls.add()
    assert not calls.is_remembered()
    launches.extend(kept)
    assert calls.add() is not other_one


def test_calls_with_another_option_are_recorded_each_time(
    calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls.add(num_warps=8)
    assert calls.is_remembered(lambda: calls.add(num_warps=8))
    monkeypatch.setenv("KBUILD_RECORD", str(tmp_path / "misses"))
    calls.package.install(strict=True)
    for n in (4096, 1000):
        calls.add(num_warps=8)
        calls.add(n, num_warps=8)
    calls.add()
    assert calls.is_remembered()
    assert {one.args["n"] for one in read_captures([tmp_path / "misses"]).variants.values()} == {
        "i32:16",
        "i32",
    }


def test_equal_options_of_two_types_are_two_calls(calls: Calls) -> None:
    for count in (8, 8.0):
        calls.add(num_warps=count)
        assert calls.is_remembered(partial(calls.add, num_warps=count))


def test_a_launch_takes_calls_of_its_kinds_alone(calls: Calls) -> None:
    without, taking = calls.package.triton.rms_norm_kernel.launches
    usual = {"x": "pointer", "out": "pointer", "stride": "integer", "n": "integer"}
    given = ["x", "weight", "out", "stride", "n"]
    for weight, right in (("none", None), ("pointer", given), ("integer", None)):
        assert taking.places({**usual, "weight": weight}) == right
    for weight, right in (("none", ["x", "out", "stride", "n"]), ("pointer", None)):
        assert without.places({**usual, "weight": weight}) == right


def test_a_launch_that_was_built_with_other_values_leaves_calls_to_the_next(calls: Calls) -> None:
    launches = calls.package.triton.add_kernel.launches
    (own,) = launches
    configs = tuple(
        tuple(512 if column == "BLOCK" else value for column, value in zip(own.facts.columns, config))
        for config in own.facts.configs
    )
    other = copy(own)
    other.facts, other._rows, other.compiled = replace(own.facts, configs=configs), {}, {}
    launches.insert(0, other)
    made = calls.add()
    assert made in own.compiled.values() and calls.is_remembered() and calls.add() is made


def test_devices_are_those_of_each_call(calls: Calls) -> None:
    calls.add()
    there = calls.tensor(np.float32, device=1)
    with pytest.raises(calls.error, match="nothing was built for device 1"):
        calls.add(x=there)
    kernel = calls.kernel("add_kernel")
    with pytest.raises(calls.error, match="an argument before it is on device"):
        kernel[(4,)](calls.x, there, calls.x, 4096, BLOCK=1024)
    assert calls.is_remembered()


def test_tuned_kernels_are_remembered_while_their_tuner_is_what_it_was(calls: Calls) -> None:
    tuner, x = calls.kernel("matmul_kernel"), calls.x

    def matmul() -> Any:
        return tuner[lambda meta: (64 // meta["BLOCK_M"], 2)](x, x, x, 64, 64, 64)

    made = matmul()
    tuner.best_config = None
    assert calls.is_remembered(matmul) and matmul() is made
    assert tuner.best_config is tuner.configs[0]
    (config, other), hooked = tuner.configs, []
    config.pre_hook = hooked.append
    assert not calls.is_remembered(matmul) and hooked[0]["BLOCK_M"] == 32
    config.pre_hook = None
    assert calls.is_remembered(matmul) and len(hooked) == 1
    tuner.configs.remove(config)
    other.pre_hook = hooked.append  # Now a configuration that was built is none of the tuner's.
    with pytest.raises(calls.error):
        matmul()
    tuner.configs.insert(0, config)
    assert calls.is_remembered(matmul)
    tuner.early_config_prune = lambda configs, named, **kwargs: [other]
    with pytest.raises(calls.error, match="takes the configuration"):
        matmul()
    tuner.early_config_prune = None
    assert calls.is_remembered(matmul)
    tuner.configs = [config, other]
    assert not calls.is_remembered(matmul) and calls.is_remembered(matmul)


def test_what_is_given_and_chosen_by_a_tuner_is_refused_as_before(calls: Calls) -> None:
    tuner, x = calls.kernel("matmul_kernel"), calls.x
    tuner[(2, 2)](x, x, x, 64, 64, 64)
    with pytest.raises(calls.error, match="BLOCK_M is given, and its tuner chooses it"):
        tuner[(2, 2)](x, x, x, 64, 64, 64, BLOCK_M=32)


def test_heuristics_are_evaluated_for_each_call(calls: Calls) -> None:
    kernel, x = calls.kernel("cross_entropy_kernel"), calls.x
    target = Tensor(calls.world.driver.array(np.zeros(8, np.int64)))
    loss = Tensor(calls.world.driver.array(np.zeros(8, np.float32)))
    rows = [kernel[(2,)](x, target, loss, n, n) for n in (512, 2048, 512, 2048)]
    assert rows[:2] == rows[2:] and rows[0] is not rows[1] and calls.asked == 2
    with pytest.raises(calls.error):
        kernel[(2,)](x, target, loss, 1000, 1000)
