"""`kbuild verify`: runs the PTX of every variant on the CPU, and compares it with the kernel's meaning.

    manifest ─cases─▶ launches ─plan─▶ runs ─pool─▶ worker: compile ─▶ ttir ─interpreter─▶ right answers ┐
                                                              └─────▶ PTX  ─emulator────▶ outputs ──────┴─▶ checks, verdict

The process that the user started makes no arrays and compiles nothing: it finds the launches, looks verdicts
up in the cache and passes variants to workers, so that a crash or a hang fails only its variant.
"""
