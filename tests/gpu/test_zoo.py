"""Every case of the zoo on the device: sm_90 from its cubin, sm_80 from its PTX through the driver's
compiler."""

from __future__ import annotations

import numpy as np
import pytest
from zoo import CASES

from kbuild.tensor_map import TensorMapType


@pytest.mark.parametrize("arch", ["sm_90", "sm_80"])
@pytest.mark.parametrize("name", CASES)
def test_case_is_right_on_the_device(device, artifacts, name, arch):
    case = CASES[name]
    if arch == "sm_90" and device.capability != (9, 0):
        pytest.skip(f"the device has compute capability {device.capability}")
    artifact = artifacts[name, arch].result()
    assert not isinstance(artifact, str), artifact
    arguments = case.make(np.random.default_rng(1))
    image = artifact.asm["cubin"] if arch == "sm_90" else artifact.asm["ptx"].encode()
    metadata = artifact.metadata
    signature = case.signature(arguments)
    types = {
        name: signature[name] for name, _ in metadata.params if name in signature
    }  # in the kernel's order
    maps = [text for _, text in metadata.params if TensorMapType.parse(text)]
    after = device.launch(
        image, metadata.name, case.grid, metadata.warps, metadata.shared, arguments, types, maps
    )
    case.check(arguments, after)
