"""`kbuild run`: one kernel on the emulator, or on a GPU, with arguments from the command line."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from kbuild.aot.environment import INTERPRET, LIBCUDA, flag
from kbuild.aot.toolchain import find_ptxas, ptxas_of_code
from kbuild.aot.verify.one import interpret_one, run_one
from kbuild.cli.verbs.compile import constexprs_of, pairs, signature_of
from kbuild.cli.verbs.show import compile_options
from kbuild.compiler import driver
from kbuild.errors import UsageError
from kbuild.targets import ARCHS, capability_of, find_target


def run(options: argparse.Namespace) -> int:
    if len(options.archs) > 1:
        raise UsageError("--arch: one architecture at a time")
    grid = _grid(options.grid)
    texts = dict(item for text in options.arg for item in pairs(text, "--arg"))
    if options.device is not None:
        outputs, findings = _on_gpu(options, texts, grid), []
    else:
        outputs, findings = _on_cpu(options, texts, grid)
    if options.json:
        print(json.dumps({"outputs": outputs, "findings": findings}, indent=1))
    else:
        print("\n".join(outputs + findings))
    return 1 if findings else 0


def _grid(text: str) -> list[int]:
    parts = text.split(",")
    if len(parts) > 3 or not all(
        part.isascii() and part.isdigit() and 0 < int(part) < 2**31 for part in parts
    ):
        raise UsageError(
            f"--grid {text}: expected one to three numbers from 1 on",
            help="write, for example, --grid 4,2",
        )
    return [int(part) for part in parts]


def _compiled(options: argparse.Namespace, arch: str, stop: str, ptxas: str | None) -> driver.Artifact:
    return driver.compile(
        str(Path(options.directory, options.source)),
        signature=signature_of(options),
        constexprs=constexprs_of(options),
        target=arch,
        options=compile_options(options),
        lineinfo=True,
        stop=stop,
        ptxas=ptxas,
    )


def _on_cpu(
    options: argparse.Namespace, texts: dict[str, str], grid: list[int]
) -> tuple[list[str], list[str]]:
    """Lines about arrays, and about what was found wrong."""
    if options.races and options.schedule == "lockstep":
        raise UsageError(
            "--races: warps that run in lockstep have none", help="give another order: --schedule reverse"
        )
    arch = (options.archs or ["sm_90"])[0]
    artifact = _compiled(options, arch, "ptx", ptxas_of_code(options.environment))
    if flag(options.environment, INTERPRET):
        if "ttir" not in artifact.asm:
            raise UsageError(
                f"{INTERPRET}: {options.source} has no tensor IR, which is what is interpreted",
                help=f"unset {INTERPRET}, and its PTX is run",
            )
        return interpret_one(artifact, texts, grid)
    return run_one(artifact, texts, grid, options.schedule, options.timing, options.races)


def _on_gpu(options: argparse.Namespace, texts: dict[str, str], grid: list[int]) -> list[str]:
    """Lines about arrays."""
    if options.races or options.schedule != "lockstep" or options.timing != "late":
        raise UsageError(
            "--races, --schedule and --timing are of runs on the CPU, and have no meaning with --device"
        )
    # cuda-core, which is an extra, and which runs on the CPU do without.
    from kbuild.aot.verify.one_on_gpu import launch_one
    from kbuild.gpu.device import Gpu

    gpu = Gpu(options.device, options.environment.get(LIBCUDA))
    runs = [arch for arch in ARCHS if find_target(arch).runs_on(gpu.capability)]
    for arch in options.archs:
        if arch not in runs:
            raise UsageError(
                f"--arch {arch}: {gpu.name} has capability {gpu.capability / 10}",
                help=f"it runs cubins for {', '.join(runs)}" if runs else "",
            )
    if not runs:
        raise UsageError(f"{gpu.name} has capability {gpu.capability / 10}, which kbuild does not know")
    arch = (options.archs or [max(runs, key=capability_of)])[0]
    ptxas = find_ptxas(options.environment).path
    return launch_one(_compiled(options, arch, "cubin", ptxas), texts, grid, gpu)
