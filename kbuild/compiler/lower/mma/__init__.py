"""Dots: by `mma.sync`, by `wgmma`, or by scalar multiply-adds."""
