"""Matrix instructions as functions of fragments: registers of warps in, registers out."""
