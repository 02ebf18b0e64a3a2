"""Global and shared memory: addresses, loads and stores, atomics, asynchronous copies, TMA."""
