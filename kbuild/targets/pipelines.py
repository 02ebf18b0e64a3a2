"""The passes that compile for an architecture, by name, in their order."""

TENSOR_PIPELINE = (
    "inline",
    "rewrite_tensor_pointer",
    "rewrite_tensor_descriptor_to_pointer",
    "canonicalize",
    "combine",
    "narrow_dots",
    "reorder_broadcast",
    "cse",
    "licm",
    "loop_unroll",
    "dce",
)
"""Passes over ttir."""

TMA_PIPELINE = (*TENSOR_PIPELINE, "drop_unit_axes", "recognise_tiles")
"""The same where TMA may do the loads."""

GPU_PIPELINE = (
    "canonicalize_pointers",
    "canonicalize",
    "to_gpu",
    "coalesce",
    "split_dots",
    "accelerate_matmul",
    "remove_conversions",
    "thread_locality",
    "ordered_reductions",
    "transposed_operands",
    "optimize_dot_operands",
    "cse",
    "licm",
    "start_accumulators",
    "warp_specialize",
    "pipeline",
    "tensor_loads",
    "canonicalize",
    "cse",
    "reorder",
    "alternate_tiles",
    "local_dots",
    "prefetch",
    "hoist_dots",
    "overlap_wgmma",
    "tensor_stores",
    "whole_offsets",
    "dce",
    "scatter_reductions",
    "rematerialize",
    "allocate",
    "order_copies",
    "barriers",
    "skip_rescaling",
)
"""Passes from ttir to ttgir ready for lowering."""

GLUON_TENSOR_PIPELINE = ("inline", "canonicalize")
"""Passes over kernels whose author chooses the layouts, before all layouts are known: values that are equal may
still get different ones."""

GLUON_GPU_PIPELINE = (
    "resolve_layouts",
    "canonicalize_pointers",
    "canonicalize",
    "widen_copies",
    "cse",
    "tma_lowering",
    "licm",
    "dce",
    "capture",
    "place_partitions",
    "allocate",
    "order_copies",
    "barriers",
)
"""Passes over the same once they are: none changes a layout that a later operation can see, or moves anything past
what the author waits for."""
