"""One step of a build: compiles a variant or the launcher, or assembles the package, whichever its job says.

    python -m kbuild @step < .kbuild/jobs/sm_90/matmul/<variant>.json       (in the build directory)

or, where there are several, a worker of `serve.py`, which does one after another.  It is a separate
process, so that a crash of LLVM fails only one variant.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path

from kbuild.aot.build.cache import Cache
from kbuild.aot.build.compile_variant import compile_job
from kbuild.aot.build.plan import STATE, Job, is_last
from kbuild.aot.files import why
from kbuild.aot.shards.costs import TOOK
from kbuild.errors import InternalError, KbuildError, render

CACHED = "@cached"
"""Printed when nothing had to be compiled."""


def main(arguments: list[str]) -> int:
    """Does the job on standard input; the exit code."""
    return run(sys.stdin.buffer.read())


def prepare() -> None:
    """Loads the modules of the last step, which takes as long as loading the compiler."""
    from kbuild.aot.artifact import rendering  # Not for variants, which do without.
    from kbuild.aot.build import assemble  # Not for variants, which do without.

    assert assemble
    rendering.templates()


def run(job: bytes) -> int:
    """Does an encoded job with the build directory as the current one, and prints what went wrong; the exit
    code."""
    build = Path.cwd()
    settings = json.loads(Path(STATE, "settings.json").read_bytes())
    sys.path.extend(entry for entry in settings.get("path", []) if entry not in sys.path)
    fields = json.loads(job)
    try:
        if is_last(job):
            from kbuild.aot.build.assemble import assemble  # Not for variants, which do without.

            assemble(Path(fields["package"]).read_bytes(), settings)
        elif "launcher" in fields:
            from kbuild.aot.build.launcher import compile_launcher  # As above.

            cache = settings.get("cache")
            compile_launcher(job, Cache(Path(cache) if cache else None))
        else:
            os.chdir(settings["project"])
            compiling, before = Job.decode(fields), _cpu_seconds()
            is_cached = compile_job(compiling, settings, build)
            print(CACHED if is_cached else f"{TOOK} {_cpu_seconds() - before:.3f} {compiling.variant.name}")
    except KbuildError as error:
        print(render(error))
        return 1
    except OSError as error:
        print(f"error: {why(error)}")
        return 1
    except Exception as error:
        help = "this is a bug of kbuild's; -v shows where"
        print(render(InternalError(f"kbuild failed: {type(error).__name__}: {error}", help=help)))
        if settings.get("verbose"):
            traceback.print_exc(file=sys.stdout)
        return 1
    finally:
        os.chdir(build)  # Where a worker's next job expects to be.
    return 0


def _cpu_seconds() -> float:
    """What this process and the ended ones that it started have used."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system
