"""What a library asks of Triton's JIT, recorded while it runs: `kbuild capture`, and the files that `kbuild import` reads."""
