"""The grammar of the command line: its verbs and their options.  Each verb is implemented by its module of
`verbs`."""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kbuild import __version__
from kbuild.cli.built import add_built
from kbuild.errors import UsageError, nearest
from kbuild.options import Option, options

_EXAMPLES = """\
examples:
  kbuild init kernels/scale.py                  write ./kernels.toml for the kernels of a file
  kbuild build                                  all kernels of ./kernels.toml, and the wheel in dist/
  kbuild build --arch sm_90 matmul              one kernel for one architecture
  kbuild merge dist/*+sm80*.whl dist/*+sm90*.whl  one wheel of two, each built for one architecture
  kbuild compile add.py:add_kernel -s 'x=*fp32:16,n=i32' -c BLOCK=1024 --emit ttgir
                                                one function, and what the compiler makes of it
  kbuild list -v                                the variants of kernels.toml, with registers and spills

  kbuild tune matmul                            time what [kernel.tune] lists, on the GPU at hand
  kbuild verify -k                              the variants' PTX, run on the CPU and compared
  kbuild mutate add --group sync                mistakes made in their PTX, and which of them that finds
  kbuild run add.py:add_kernel -s 'x=*fp32,n=i32' -c BLOCK=64 --arg n=50,x=random:50
  KBUILD_LIBCUDA=$(kbuild stand-in) pytest      the wheel's own tests, without a GPU

variables:
  KBUILD_CACHE_DIR, KBUILD_DISABLE_CACHE=1      where cubins are kept (~/.cache/kbuild), or that they are not
  KBUILD_PTXAS, CC                              the assembler and the C compiler to use
  KBUILD_DUMP                                   as compile --dump
  TRITON_DEBUG=1                                as --debug
  KBUILD_STRICT=1                               as --strict
  MAX_JOBS, SOURCE_DATE_EPOCH, NO_COLOR, CI     as everywhere

exit codes: 0 done, 1 a build or a check failed, 2 the command line or the manifest is wrong, 130 interrupted
"""


class _ArgumentParser(argparse.ArgumentParser):
    """Reports mistakes as kbuild reports all others."""

    def error(self, message: str) -> Any:
        wrong = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        close = nearest(wrong[1], re.findall(r"[\w-]+", wrong[2])) if wrong else ""
        raise UsageError(
            message, help=f'did you mean "{close}"?' if close else f"{self.prog} --help lists what there is"
        )


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


class _Verbs:
    """The verbs of a command line, in the order in which help lists them."""

    def __init__(self, top: argparse.ArgumentParser) -> None:
        self._added = top.add_subparsers(
            metavar="VERB",
            title="verbs; `kbuild VERB --help` says more",
            required=True,
            parser_class=_ArgumentParser,
        )

    def add(
        self, name: str, text: str, applying: str, module: str = "", **meanings: str
    ) -> argparse.ArgumentParser:
        """One verb; of the options of all verbs, help names those that apply, with `meanings` where it has
        its own."""
        added = self._added.add_parser(name, help=text, description=text, allow_abbrev=False)
        added.set_defaults(verb=name, module=module or name, grammar=added)
        _add_common(added, applying.split(), meanings)
        return added


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    top = _ArgumentParser(
        prog="kbuild",
        description="Compiles Triton-language GPU kernels ahead of time and packs them into wheels.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"kbuild {__version__}")
    verbs = _Verbs(top)
    _add_init(verbs)
    _add_building(verbs)
    _add_inspecting(verbs)
    add_built(verbs, _add_options)
    _add_checking(verbs)
    _add_tuning(verbs)
    _add_upkeep(verbs)
    return top


def _add_init(verbs: _Verbs) -> None:
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


def _add_building(verbs: _Verbs) -> None:
    """The verbs that make all of a project."""
    building = "-C -j -k -v -q --json --dry-run --arch -o --no-cache --color"
    build = verbs.add("build", "Compile the kernels of kernels.toml and make the wheel.", building)
    build.add_argument("kernels", nargs="*", metavar="KERNEL", help="compile these alone, and make no wheel")
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
    merging = verbs.add(
        "merge",
        "Join wheels of one project for different architectures to the wheel of all of them.",
        "-q --json -o",
    )
    merging.add_argument("wheels", nargs="+", metavar="WHEEL", help="made by kbuild wheel --arch")
    _add_options(build, "debug", "lineinfo", "strict")
    _add_options(wheel, "debug", "strict")


def _add_inspecting(verbs: _Verbs) -> None:
    """The verbs that show stages of one function, of IR, and of the manifest."""
    _add_compile(
        verbs.add(
            "compile",
            "Compile one function with one signature.",
            "-C -v -q --json --dry-run --arch -o",
            directory="the directory of FILE",
            archs="compile for this architecture (repeatable; default sm_90)",
            output="where to write (default: texts to standard output, the cubin to the current directory)",
        )
    )
    _add_opt(
        verbs.add(
            "opt",
            "Run passes over IR and print the result.",
            "-C -v --arch -o",
            directory="the directory of FILE",
            archs="the architecture (default sm_90)",
            output="where to write a file of the same name (default: standard output)",
        )
    )
    listing = verbs.add("list", "List the variants that kernels.toml asks for.", "-C -v -q --json --arch")
    listing.add_argument("kernels", nargs="*", metavar="KERNEL", help="of these kernels alone")
    _add_options(listing, "debug")


def _add_checking(verbs: _Verbs) -> None:
    """The verbs that run kernels on the CPU."""
    _add_verify(
        verbs.add(
            "verify",
            "Run the variants' PTX on the CPU, and compare with what the kernels mean.",
            "-C -j -k -v -q --json --dry-run --arch --no-cache --color",
            jobs="processes (default: MAX_JOBS, or as many as processors)",
            verbose="say what each run came to",
            no_cache="run everything again",
        )
    )
    _add_mutate(
        verbs.add(
            "mutate",
            "Make mistakes in the variants' PTX, and say which of them runs find.",
            "-C -j -q --json --dry-run --arch",
            jobs="processes (default: MAX_JOBS, or as many as processors)",
        )
    )
    _add_run(
        verbs.add(
            "run",
            "Run one kernel's PTX on the CPU.",
            "-C --json --arch",
            directory="the directory of FILE",
            archs="compile for this architecture (default sm_90)",
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


def _add_tuning(verbs: _Verbs) -> None:
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


def _add_upkeep(verbs: _Verbs) -> None:
    """The verbs about what builds need and leave behind."""
    cleaning = "Remove what builds made here; the cache stays."
    verbs.add("clean", cleaning, "-C -q --dry-run -o", output="where the wheel is (default: dist)")
    verbs.add("doctor", "Say which tools would be used, and what is missing.", "--json")


def _add_common(added: argparse.ArgumentParser, applying: list[str], meanings: Mapping[str, str]) -> None:
    """The options that every verb accepts.  Where one has no meaning, it is accepted all the same, but help
    omits it."""

    def add(*flags: str, help: str, **how: Any) -> None:
        name = how.get("dest") or flags[-1].lstrip("-").replace("-", "_")
        text = meanings.get(name, help) if set(flags) & set(applying) else argparse.SUPPRESS
        added.add_argument(*flags, help=text, **how)

    add(
        "-C",
        dest="directory",
        default=".",
        metavar="DIR",
        help="the project's directory (default: the current one)",
    )
    add(
        "-j",
        dest="jobs",
        type=_positive,
        metavar="N",
        help="steps at a time (default: MAX_JOBS, or as many as processors)",
    )
    add("-k", "--keep-going", action="store_true", help="go on with other variants when one fails")
    add("-v", "--verbose", action="store_true", help="say more; if kbuild itself fails, say where")
    add("-q", "--quiet", action="store_true", help="say nothing but errors")
    add("--json", action="store_true", help="print the result as JSON")
    add("--dry-run", action="store_true", help="say what would be done")
    add(
        "--arch",
        dest="archs",
        action="append",
        default=[],
        metavar="ARCH",
        help="only this architecture (repeatable)",
    )
    add("-o", "--output", metavar="PATH", help="where to put the wheel (default: dist)")
    add("--no-cache", action="store_true", help="neither read nor write the cache of cubins")
    add(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="draw a bar of progress (default: on terminals)",
    )


def _add_options(verb: argparse.ArgumentParser, *names: str) -> None:
    """The compile options of these names, or all that have flags."""
    for option in options():
        if option.name not in names if names else not option.is_flag:
            continue
        flags = [option.flag, *([f"--{option.alias}"] if option.alias else [])]
        if option.kind is bool:
            text = f"do not {option.doc}" if option.default else option.doc
            verb.add_argument(
                *flags,
                dest=option.name,
                action="store_const",
                const=not option.default,
                default=option.default,
                help=text,
            )
        else:
            text = f"{option.doc}: {option.expected} (default {'none' if option.default is None else option.default})"
            verb.add_argument(
                *flags, dest=option.name, type=_legal(option), default=option.default, metavar="N", help=text
            )


def _legal(option: Option) -> Callable[[str], int]:
    """The function that reads an option's value."""

    def value(text: str) -> int:
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else None
        if number is None or not option.is_legal(number):
            raise argparse.ArgumentTypeError(f"expected {option.expected}, found {text!r}")
        return number

    return value


def _add_function(verb: argparse.ArgumentParser) -> None:
    """One function and its specialisation."""
    add = verb.add_argument
    add(
        "source",
        metavar="FILE:FUNCTION",
        help="the kernel, or a .ttir, .ttgir, .llir or .ptx file to start from",
    )
    add(
        "-s",
        "--signature",
        action="append",
        default=[],
        metavar="NAME=TYPE,...",
        help="run-time arguments: X=*fp32:16,n=i32",
    )
    add(
        "-c",
        "--constexpr",
        action="append",
        default=[],
        metavar="NAME=VALUE,...",
        help="compile-time arguments: BLOCK=1024",
    )


def _add_compile(compile_: argparse.ArgumentParser) -> None:
    _add_function(compile_)
    add = compile_.add_argument
    add(
        "--emit",
        default="",
        metavar="STAGE,...",
        help="what to write: ttir, ttgir, llir, ptx, cubin (default cubin)",
    )
    add("--dump", metavar="DIR", help="write the IR after each pass there")
    _add_options(compile_)


def _add_run(running: argparse.ArgumentParser) -> None:
    _add_function(running)
    add = running.add_argument
    add(
        "--arg",
        action="append",
        default=[],
        metavar="NAME=VALUE,...",
        help="n=1000; x=random:N, range:N, zeros:N, poison:N",
    )
    add("--grid", default="1", metavar="X,Y,Z", help="programs along each axis (default 1)")
    add(
        "--schedule",
        default="lockstep",
        metavar="ORDER",
        help="lockstep, round-robin, forward, reverse, random(N), starve(N)",
    )
    add(
        "--timing",
        default="late",
        metavar="TIME",
        help="asynchronous operations early, late or random(N) (default late)",
    )
    add("--races", action="store_true", help="look for races too, in another order than lockstep")
    _add_options(running, *(option.name for option in options("variant") if option.is_flag))


def _add_verify(verifying: argparse.ArgumentParser) -> None:
    add = verifying.add_argument
    add("kernels", nargs="*", metavar="KERNEL", help="of these kernels alone")
    _add_options(verifying, "debug", "portable")
    add("--variant", default="", metavar="NAME", help="this variant alone")
    add("--case", type=_positive, default=0, metavar="N", help="the Nth launch alone; -v shows them")
    add("--data", default="", choices=("whole", "real", "special"), help="runs with these numbers alone")
    add("--schedule", default="", metavar="ORDER", help="only in this order of warps, as for `run`")
    add("--timing", default="", metavar="TIME", help="asynchronous operations early, late or random(N)")
    add("--lenient", action="store_true", help="without races that today's hardware is known to forgive")
    add(
        "--limit",
        type=_positive,
        default=0,
        metavar="SECONDS",
        help="the longest that a variant may take (default 300)",
    )


def _add_mutate(mutating: argparse.ArgumentParser) -> None:
    add = mutating.add_argument
    add("kernels", nargs="*", metavar="KERNEL", help="of these kernels alone")
    _add_options(mutating, "debug")
    add("--variant", default="", metavar="NAME", help="this variant alone")
    add(
        "--sample",
        type=_positive,
        default=0,
        metavar="N",
        help="variants of each kernel and architecture (default 1)",
    )
    add(
        "--limit",
        type=_positive,
        default=0,
        metavar="N",
        help="mutants of each kind of a variant (default: all)",
    )
    add(
        "--group",
        default="all",
        choices=("all", "sync", "logic"),
        help="mistakes of synchronisation, of logic, or both",
    )
    add(
        "--marks",
        default="",
        metavar="FILE",
        help="mutants known to do the same as the original, with reasons",
    )


def _add_opt(opt: argparse.ArgumentParser) -> None:
    add = opt.add_argument
    add("file", metavar="FILE", help="a .ttir or .ttgir file, or - for standard input")
    add(
        "-p",
        "--passes",
        required=True,
        metavar="PASS,...",
        help="passes in order; `tensor`, `gpu`: a pipeline",
    )


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 100_000):
        raise argparse.ArgumentTypeError(f"expected a number from 1, found {text!r}")
    return int(text)
