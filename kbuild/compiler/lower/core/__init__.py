"""The basis of every lowering: the walk over operations, the writer of LLVM text, control flow, elementwise
operations."""
