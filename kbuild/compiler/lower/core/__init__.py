"""What every lowering stands on: the walk over operations, the writer of LLVM text, control flow, elementwise
operations."""
