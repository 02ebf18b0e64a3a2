"""Runs a launch: warps, registers, memory, barriers and schedules."""
