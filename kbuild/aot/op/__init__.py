"""Operators: functions on tensors over the bare launches of kernels."""
