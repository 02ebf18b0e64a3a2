"""The fake driver has a record of devices of its own, because it shares no code with what it checks: both
agree."""

from __future__ import annotations

import pytest

from kbuild.emulator.driver.codes import DeviceAttribute
from kbuild.emulator.driver.devices import Device
from kbuild.emulator.driver.modules import runs_on
from kbuild.targets import ARCHS, TARGETS, Target, devices_of
from tests.targets.test_records import DEVICES


@pytest.mark.parametrize("target", TARGETS.values(), ids=ARCHS)
def test_a_device_of_each_architecture_has_its_limits(target: Target) -> None:
    device, limits = Device(0, target.arch, 1 << 20), target.limits
    asked = {
        DeviceAttribute.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: limits.shared_bytes,
        DeviceAttribute.RESERVED_SHARED_MEMORY_PER_BLOCK: limits.reserved_shared_bytes,
        DeviceAttribute.MAX_REGISTERS_PER_MULTIPROCESSOR: limits.register_file,
        DeviceAttribute.MAX_THREADS_PER_MULTIPROCESSOR: 32 * limits.max_warps,
        DeviceAttribute.CLUSTER_LAUNCH: int(limits.cluster_size > 1),
        DeviceAttribute.TENSOR_MAP_ACCESS_SUPPORTED: int(target.has("tma")),
    }
    assert device.capability == target.capability
    assert {attribute: device.attribute(attribute) for attribute in asked} == asked


@pytest.mark.parametrize("suffix", ["", "a", "f"])
@pytest.mark.parametrize("is_ptx", [False, True])
@pytest.mark.parametrize("arch", ARCHS)
def test_it_runs_the_same_code_on_the_same_devices(arch: str, is_ptx: bool, suffix: str) -> None:
    for capability in DEVICES:
        if capability == 130:  # Which the fake driver does not know.
            continue
        device = Device(0, f"sm_{capability}", 1 << 20)
        expected = devices_of(arch + suffix, is_ptx).have(capability)
        assert runs_on(arch + suffix, not is_ptx, device) == expected, (arch, suffix, capability)
