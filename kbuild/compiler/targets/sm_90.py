"""Hopper: H100, H200, GH200."""

from kbuild.compiler.targets.mma_sync import MMA_SYNC_SM80, MMA_SYNC_SM89
from kbuild.compiler.targets.sm_80 import GPU_PIPELINE, SM_80, TENSOR_PIPELINE
from kbuild.compiler.targets.target import Target, register_target
from kbuild.compiler.targets.wgmma import WGMMA

SM_90 = register_target(
    Target(
        arch="sm_90",
        capability=(9, 0),
        ptx_feature="ptx84",
        shared_bytes=232448,
        max_registers=255,
        atoms=MMA_SYNC_SM80 + MMA_SYNC_SM89,
        wgmma_atoms=WGMMA,
        accelerated_arch="sm_90a",
        features=frozenset(
            {"wgmma", "tma", "clusters", "griddepcontrol", "bf16_arithmetic", "fp8_conversion", "stmatrix"}
        )
        | {"fp8_mma_as_f16"}  # ptxas widens the operands of `mma.sync`: Hopper multiplies fp8 by wgmma alone
        | SM_80.features,
        tensor_pipeline=(*TENSOR_PIPELINE, "recognise_tiles"),
        gpu_pipeline=GPU_PIPELINE,
    )
)
