"""Every case of the zoo on the device: sm_90 from its cubin, sm_80 from its PTX through the driver's
compiler."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("cuda.core", reason="kernels are launched through cuda-core: pip install 'kbuild[gpu]'")

from device import Device
from zoo import CASES, Case

import kbuild
from kbuild.gpu.device import LaunchFacts


def run_case(device: Device, case: Case, artifact: kbuild.Artifact) -> None:
    """Launch a case, and check what it computes."""
    facts = LaunchFacts.of_metadata(artifact.metadata)
    image = artifact.asm["cubin"] if "cubin" in artifact.asm else artifact.asm["ptx"].encode()
    arguments = case.make(np.random.default_rng(1))
    case.check(arguments, device.launch(image, facts, case.grid, arguments))


@pytest.mark.parametrize(
    ("name", "arch"), [(case.name, arch) for case in CASES.values() for arch in case.archs]
)
def test_case_is_right_on_the_device(device, artifacts, name, arch):
    case = CASES[name]
    if arch == "sm_90" and device.capability != 90:
        pytest.skip(f"the device has compute capability {device.capability / 10}")
    artifact = artifacts[name, arch].result()
    assert not isinstance(artifact, str), artifact
    run_case(device, case, artifact)
