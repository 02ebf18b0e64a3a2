"""The kernels in CUDA C++ of tests/compiler/cuda on the device, with the tests that they have on the emulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cuda.core", reason="kernels are launched through cuda-core: pip install 'kbuild[gpu]'")

from device import Device

from kbuild.gpu.device import LaunchFacts
from tests.compiler.cuda import test_zoo

globals().update({name: value for name, value in vars(test_zoo).items() if name.startswith("test_")})


@pytest.fixture(autouse=True)
def on_the_device(device: Device, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Launches of the tests take the device."""

    def ran(
        kernel: str,
        block: str,
        grid: Sequence[int],
        arguments: Mapping[str, Any],
        signature: Mapping[str, str] | None = None,
        shared: int = 0,
        **named: Any,
    ) -> Any:
        stop = "ptx" if "target" in named else "cubin"  # Of an older architecture, which the driver compiles.
        artifact = test_zoo.compiled(kernel, block, signature, shared, stop, **named)
        image = artifact.asm["cubin"] if stop == "cubin" else artifact.asm["ptx"].encode()
        facts = LaunchFacts.of_metadata(artifact.metadata)
        capfd.readouterr()
        found = device.launch(image, facts, grid, arguments)
        return SimpleNamespace(
            outputs=[found.get(name) for name, _ in facts.params],
            printed=capfd.readouterr().out.splitlines(keepends=True),
        )

    monkeypatch.setattr(test_zoo, "ran", ran)
