"""`kbuild verify`: the PTX of every variant runs on the CPU, and has to do what the kernel means.

    manifest ─cases─▶ launches ─plan─▶ runs ─pool─▶ worker: compile ─▶ ttir ─interpreter─▶ right answers ┐
                                                              └─────▶ PTX  ─emulator────▶ outputs ──────┴─▶ checks, verdict

The process that the user started makes no arrays and compiles nothing: it finds the launches, looks verdicts
up in the cache and hands variants to workers, so that a crash or a hang costs the variant it came from.
"""
