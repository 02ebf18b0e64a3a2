"""The grammar of the command line: its verbs and their options.  Each verb is implemented by its module of
`verbs`."""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from kbuild import __version__
from kbuild.cli.grammar.adopting import add_adopting
from kbuild.cli.grammar.arguments import (
    add_compile,
    add_layout,
    add_mutate,
    add_opt,
    add_options,
    add_run,
    add_shard,
    add_verify,
    positive,
)
from kbuild.cli.grammar.built import add_built
from kbuild.cli.grammar.epilog import epilog
from kbuild.cli.grammar.machines import add_cache, add_ci, add_merge, add_remote
from kbuild.cli.grammar.verbs import ArgumentParser, Verbs
from kbuild.errors import UsageError, nearest


def run(words: list[str], environment: Mapping[str, str]) -> int:
    """Runs one command line; the exit code.  Raises KbuildError for what the user can mend."""
    options, unknown = parser().parse_known_args(words)
    if unknown:
        flag = unknown[0].partition("=")[0]
        close = (
            nearest(flag, re.findall(r"--[\w-]+", options.grammar.format_help()))
            if flag.startswith("-")
            else ""
        )
        help = f'did you mean "{close}"?' if close else f"kbuild {options.verb} --help lists what there is"
        raise UsageError(f"unrecognized arguments: {' '.join(unknown)}", help=help)
    options.environment = environment
    if not Path(options.directory).is_dir():
        raise UsageError(f"-C {options.directory}: no such directory")
    module = importlib.import_module(f"kbuild.cli.verbs.{options.module}")
    verb: Callable[[argparse.Namespace], int] = module.run
    return verb(options)


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    top = ArgumentParser(
        prog="kbuild",
        description="Compiles Triton-language GPU kernels ahead of time and packs them into wheels.",
        epilog=epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"kbuild {__version__}")
    verbs = Verbs(top)
    _add_init(verbs)
    add_adopting(verbs)
    _add_building(verbs)
    _add_inspecting(verbs)
    add_built(verbs)
    _add_checking(verbs)
    _add_tuning(verbs)
    _add_upkeep(verbs)
    return top


def _add_init(verbs: Verbs) -> None:
    starting = verbs.add(
        "init",
        "Write a kernels.toml for kernels in Triton source, which is read and not executed.",
        "-C -q --json --dry-run -o",
        output="the file to write (default: kernels.toml)",
        dry_run="print the manifest, and write nothing",
    )
    starting.add_argument(
        "sources",
        nargs="+",
        metavar="FILE[:FUNCTION,...]",
        help="Python files below the manifest's directory, each with its kernels, or some of them",
    )
    starting.add_argument(
        "--append", action="store_true", help="add the kernels that the manifest does not have yet"
    )


def _add_building(verbs: Verbs) -> None:
    """The verbs that make all of a project."""
    building = "-C -j -k -v -q --json --dry-run --arch -o --no-cache --color"
    build = verbs.add("build", "Compile the kernels of kernels.toml and make the wheel.", building)
    build.add_argument("kernels", nargs="*", metavar="KERNEL", help="compile these alone, and make no wheel")
    add_shard(build, "make a part of the wheel, for kbuild merge, with one of N shards of the variants")
    wheel = verbs.add(
        "wheel", "Make the wheel; the same as build, and then print its path alone.", building, module="build"
    )
    wheel.set_defaults(kernels=[], only_path=True)
    hub = verbs.add(
        "export-hub",
        "Write the kernels as a repository of the Hugging Face Hub, for `kernels.get_kernel`.",
        "-C -j -v -q --json --arch --no-cache --color",
        module="export_hub",
    )
    hub.add_argument("folder", metavar="DIR", help="the folder of the repository")
    hub.add_argument(
        "wheels",
        nargs="*",
        metavar="WHEEL",
        help="wheels of kbuild, for one platform each (default: build one)",
    )
    hub.set_defaults(kernels=[])
    for verb in (build, wheel, hub):
        verb.add_argument(
            "--platform",
            default="",
            metavar="TAG",
            help="the platform of the wheel, as aarch64 or manylinux_2_28_aarch64 (default: this machine)",
        )
        add_remote(verb)
    add_merge(verbs)
    add_ci(verbs)
    add_options(build, "debug", "lineinfo", "strict")
    add_options(wheel, "debug", "strict")


def _add_inspecting(verbs: Verbs) -> None:
    """The verbs that show stages of one function, of IR, and of the manifest."""
    add_compile(
        verbs.add(
            "compile",
            "Compile one function with one signature.",
            "-C -v -q --json --dry-run --arch -o",
            directory="the directory of FILE",
            archs="compile for this architecture (repeatable; default sm_90)",
            output="where to write (default: texts to standard output, the cubin to the current directory)",
        )
    )
    add_opt(
        verbs.add(
            "opt",
            "Run passes over IR, kbuild's or Triton's, and print the result.",
            "-C -v --arch -o",
            directory="the directory of FILE",
            archs="the architecture (default sm_90)",
            output="where to write a file of the same name (default: standard output)",
        )
    )
    add_layout(
        verbs.add(
            "layout",
            "Show where the elements of a tensor or a tile are, and what follows from it.",
            "-C -q --json --arch -o",
            directory="the directory of files",
            archs="the architecture (default sm_90)",
            output="draw it, too: a file that ends in .svg",
            quiet="without the table of elements",
        )
    )
    listing = verbs.add("list", "List the variants that kernels.toml asks for.", "-C -v -q --json --arch")
    listing.add_argument("kernels", nargs="*", metavar="KERNEL", help="of these kernels alone")
    add_shard(listing, "of one of N shards alone")
    add_options(listing, "debug")


def _add_checking(verbs: Verbs) -> None:
    """The verbs that run kernels on the CPU."""
    add_verify(
        verbs.add(
            "verify",
            "Run the variants' PTX on the CPU, and compare with what the kernels mean.",
            "-C -j -k -v -q --json --dry-run --arch --no-cache --color",
            jobs="processes (default: MAX_JOBS, or as many as processors)",
            verbose="say what each run came to",
            no_cache="run everything again",
        )
    )
    counting = verbs.add(
        "count",
        "Count what the variants ask of memory, by source line: transactions, bank conflicts, occupancy.",
        "-C -q --json --arch",
    )
    counting.add_argument("kernels", nargs="*", metavar="KERNEL", help="of these kernels alone")
    counting.add_argument("--variant", default="", metavar="NAME", help="this variant alone")
    counting.add_argument("--case", type=positive, default=1, metavar="N", help="the Nth launch (default 1)")
    add_mutate(
        verbs.add(
            "mutate",
            "Make mistakes in the variants' PTX, and say which of them runs find.",
            "-C -j -q --json --dry-run --arch",
            jobs="processes (default: MAX_JOBS, or as many as processors)",
        )
    )
    add_run(
        verbs.add(
            "run",
            "Run one kernel's PTX on the CPU, or its cubin on a GPU.",
            "-C --json --arch",
            directory="the directory of FILE",
            archs="compile for this architecture (default sm_90, or that of the GPU)",
        )
    )
    verbs.add(
        "stand-in",
        "Make a libcuda.so.1 that runs the built cubins on the CPU, and print its path.",
        "-C --json --arch -o",
        module="stand_in",
        archs="a device of this architecture (repeatable; default: one of sm_90)",
        output="where to put it (default: the cache)",
    )


def _add_tuning(verbs: Verbs) -> None:
    tuning = verbs.add(
        "tune",
        "Time the configurations of [kernel.tune] on a GPU, and keep the fastest in kernels.tune.toml.",
        "-C -j -v -q --dry-run --arch --no-cache",
        archs="tune for this architecture (default: that of the GPU)",
    )
    tuning.add_argument("kernels", nargs="*", metavar="KERNEL", help="these kernels alone")
    tuning.add_argument("--device", type=int, default=0, metavar="N", help="the GPU to use (default 0)")
    tuning.add_argument(
        "--merge", action="append", default=[], metavar="FILE", help="only take in another machine's table"
    )
    tuning.add_argument("--fresh", action="store_true", help="forget what earlier runs have timed")


def _add_upkeep(verbs: Verbs) -> None:
    """The verbs about what builds need and leave behind."""
    cleaning = "Remove what builds made here; the cache stays."
    verbs.add("clean", cleaning, "-C -q --dry-run -o", output="where the wheel is (default: dist)")
    verbs.add("doctor", "Say which tools would be used, and what is missing.", "--json")
    add_cache(verbs)
