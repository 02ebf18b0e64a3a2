"""What `kbuild --help` ends with: examples, variables of the environment, exit codes."""

from __future__ import annotations

from kbuild.aot.environment import (
    CACHE_DIR,
    CACHE_URL,
    DEBUG,
    DISABLE_CACHE,
    DUMP,
    INTERPRET,
    PTXAS,
    REMOTE_URL,
    STRICT,
    VARIABLES,
)

_EXAMPLES = """\
examples:
  kbuild init kernels/scale.py                  write ./kernels.toml for the kernels of a file
  kbuild capture -- pytest -q tests             what a library asks Triton's JIT for, in capture.jsonl
  kbuild import capture.jsonl                   the kernels.toml that builds just that
  kbuild build                                  all kernels of ./kernels.toml, and the wheel in dist/
  kbuild build --arch sm_90 matmul              one kernel for one architecture
  kbuild build --shard 3/8                      an eighth of the variants, as a part of the wheel
  kbuild merge dist/*.part                      the wheel of all parts
  kbuild ci github --shards 8                   the workflow that does so in eight jobs
  kbuild compile add.py:add_kernel -s 'x=*fp32:16,n=i32' -c BLOCK=1024 --emit ttgir
                                                one function, and what the compiler makes of it
  kbuild build --cache https://host/kernels     with the cubins of other machines: docs/cache.md
  kbuild list -v                                the variants of kernels.toml, with registers and spills
  kbuild opt dump.ttgir --print axis_info       a dump, of kbuild's or Triton's, with what an analysis finds
  kbuild layout 'dump.ttgir:%x' -o x.svg        where the elements of a value are, as a table and a drawing

  kbuild tune matmul                            time what [kernel.tune] lists, on the GPU at hand
  kbuild verify -k                              the variants' PTX, run on the CPU and compared
  kbuild count sgemm                            transactions and bank conflicts of a launch, by source line
  kbuild mutate add --group sync                mistakes made in their PTX, and which of them that finds
  kbuild run add.py:add_kernel -s 'x=*fp32,n=i32' -c BLOCK=64 --arg n=50,x=random:50
  KBUILD_LIBCUDA=$(kbuild stand-in) pytest      the wheel's own tests, without a GPU

variables, of which docs/environment.md has all:
{variables}

exit codes: 0 done, 1 a build or a check failed, 2 the command line or the manifest is wrong, 130 interrupted
"""


_SHOWN = (
    CACHE_DIR,
    DISABLE_CACHE,
    CACHE_URL,
    REMOTE_URL,
    PTXAS,
    "CC",
    DUMP,
    DEBUG,
    STRICT,
    INTERPRET,
    "MAX_JOBS",
    "NO_COLOR",
)
"""The variables that help lists."""


def epilog() -> str:
    """The text after the options."""
    return _EXAMPLES.format(variables=_variables())


def _variables() -> str:
    """A line for each variable that help lists."""
    shown = [one for one in VARIABLES if one.name in _SHOWN]
    names = [", ".join((one.name, *one.also)) for one in shown]
    return "\n".join(f"  {name:<44}  {one.doc.replace('`', '')}" for name, one in zip(names, shown))
