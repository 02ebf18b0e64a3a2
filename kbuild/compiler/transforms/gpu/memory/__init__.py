"""Passes about shared memory and registers: what lies where, barriers, stores by TMA, the order of loads."""
