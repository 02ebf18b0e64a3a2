"""The launches that the tests on a GPU make, on the fake driver."""

from __future__ import annotations

import numpy as np
import pytest
from zoo import CASES

import kbuild
from emulated.kernels import scale
from kbuild.emulator.driver import FakeDriver
from tests.emulator.fake_gpu import on_fake_gpu

SAMPLE = ("vector_fp32", "matmul_fp16", "descriptor_shift_fp16", "dot_bf16", "convert_fp32_int8")


@on_fake_gpu()
def test_cases_of_the_zoo(driver: FakeDriver) -> None:
    from device import Device
    from test_zoo import run_case

    device = Device()
    assert (device.capability, device.num_sms) == (90, 132)
    for name in SAMPLE:
        case = CASES[name]
        artifact = kbuild.compile(
            case.source,
            signature=case.signature(case.make(np.random.default_rng(0))),
            constexprs=case.constexprs,
            options=case.options("sm_90"),
        )
        driver.register(artifact.asm["cubin"], artifact.asm["ptx"])
        run_case(device, case, artifact)


@on_fake_gpu()
def test_writes_beside_an_array_are_seen(driver: FakeDriver) -> None:
    from device import Device

    from kbuild.gpu.device import LaunchFacts

    made = scale(driver)
    facts = LaunchFacts.of_metadata(made.metadata)
    x, out = np.ones(64, np.float32), np.zeros(60, np.float32)
    given = {"x": x, "out": out, "factor": 2.0, "n": 60}
    assert Device().launch(made.asm["cubin"], facts, (1,), given)["out"].tolist() == [2.0] * 60
    with pytest.raises(AssertionError, match="the kernel wrote outside of out"):
        Device().launch(made.asm["cubin"], facts, (1,), given | {"n": 64})
