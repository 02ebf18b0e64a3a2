"""Ampere: A100 and, at the same major capability, A10, RTX 30 and others."""

from kbuild.compiler.targets.mma_sync import MMA_SYNC_SM80
from kbuild.compiler.targets.target import Target, register_target

TENSOR_PIPELINE = (
    "inline",
    "rewrite_tensor_pointer",
    "rewrite_tensor_descriptor_to_pointer",
    "canonicalize",
    "combine",
    "reorder_broadcast",
    "cse",
    "licm",
    "loop_unroll",
    "dce",
)

GPU_PIPELINE = (
    "canonicalize_pointers",
    "canonicalize",
    "to_gpu",
    "coalesce",
    "accelerate_matmul",
    "remove_conversions",
    "thread_locality",
    "ordered_reductions",
    "optimize_dot_operands",
    "cse",
    "licm",
    "warp_specialize",
    "pipeline",
    "canonicalize",
    "cse",
    "reorder",
    "alternate_tiles",
    "local_dots",
    "prefetch",
    "overlap_wgmma",
    "tensor_stores",
    "dce",
    "rematerialize",
    "allocate",
    "barriers",
    "skip_rescaling",
)

SM_80 = register_target(
    Target(
        arch="sm_80",
        capability=(8, 0),
        ptx_feature="ptx75",
        shared_bytes=166912,
        max_registers=255,
        atoms=MMA_SYNC_SM80,
        features=frozenset({"cp_async", "ldmatrix"}),
        tensor_pipeline=TENSOR_PIPELINE,
        gpu_pipeline=GPU_PIPELINE,
    )
)
