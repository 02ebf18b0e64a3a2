"""The arguments of the verbs: those that all have in common, the compile options, and those of single verbs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from kbuild.options import Option, options


def add_common(added: argparse.ArgumentParser, applying: list[str], meanings: Mapping[str, str]) -> None:
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
        type=positive,
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


def add_options(verb: argparse.ArgumentParser, *names: str) -> None:
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
                *flags,
                dest=option.name,
                type=legal(option),
                default=option.default,
                metavar="TEXT" if option.kind is str else "N",
                help=text,
            )


def legal(option: Option) -> Callable[[str], int | str]:
    """The function that reads an option's value."""

    def value(text: str) -> int | str:
        if option.kind is str and option.is_legal(text):
            return text
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else None
        if number is None or not option.is_legal(number):
            raise argparse.ArgumentTypeError(f"expected {option.expected}, found {text!r}")
        return number

    return value


def add_function(verb: argparse.ArgumentParser) -> None:
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


def add_compile(compile_: argparse.ArgumentParser) -> None:
    add_function(compile_)
    add = compile_.add_argument
    add(
        "--emit",
        default="",
        metavar="STAGE,...",
        help="what to write: ttir, ttgir, llir, ptx, cubin (default cubin)",
    )
    add("--dump", metavar="DIR", help="write the IR after each pass there")
    add_options(compile_)


def add_shard(verb: argparse.ArgumentParser, text: str) -> None:
    """The option `--shard`, with `text` for what it has the verb do."""
    verb.add_argument(
        "--shard",
        type=_shard,
        metavar="I/N",
        help=f"{text}; or a range of digests, A..B, as kbuild ci prints them",
    )


def add_run(running: argparse.ArgumentParser) -> None:
    add_function(running)
    add = running.add_argument
    add(
        "--arg",
        action="append",
        default=[],
        metavar="NAME=VALUE,...",
        help="n=1000; x=random:N, range:N, zeros:N, poison:N",
    )
    add("--grid", default="1", metavar="X,Y,Z", help="programs along each axis (default 1)")
    add("--device", type=int, metavar="N", help="on this GPU, instead of the CPU")
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
    scopes = options("variant") + options("kernel")
    add_options(running, *(option.name for option in scopes if option.is_flag))


def add_verify(verifying: argparse.ArgumentParser) -> None:
    add = verifying.add_argument
    add("kernels", nargs="*", metavar="KERNEL", help="of these kernels alone")
    add_options(verifying, "debug", "portable")
    add("--variant", default="", metavar="NAME", help="this variant alone")
    add_shard(verifying, "one of N shards of the variants alone")
    add("--case", type=positive, default=0, metavar="N", help="the Nth launch alone; -v shows them")
    add("--data", default="", choices=("whole", "real", "special"), help="runs with these numbers alone")
    add("--schedule", default="", metavar="ORDER", help="only in this order of warps, as for `run`")
    add("--timing", default="", metavar="TIME", help="asynchronous operations early, late or random(N)")
    add("--lenient", action="store_true", help="without races that today's hardware is known to forgive")
    add(
        "--limit",
        type=positive,
        default=0,
        metavar="SECONDS",
        help="the longest that a variant may take (default 300)",
    )


def add_mutate(mutating: argparse.ArgumentParser) -> None:
    add = mutating.add_argument
    add("kernels", nargs="*", metavar="KERNEL", help="of these kernels alone")
    add_options(mutating, "debug")
    add("--variant", default="", metavar="NAME", help="this variant alone")
    add(
        "--sample",
        type=positive,
        default=0,
        metavar="N",
        help="variants of each kernel and architecture (default 1)",
    )
    add(
        "--limit",
        type=positive,
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


def add_opt(opt: argparse.ArgumentParser) -> None:
    add = opt.add_argument
    add(
        "file",
        metavar="FILE",
        help="a .ttir or .ttgir file, of kbuild's or Triton's, or - for standard input",
    )
    add(
        "-p",
        "--passes",
        default="",
        metavar="PASS,...",
        help="passes in order; `tensor`, `gpu`: a pipeline (default: none)",
    )
    add(
        "--print",
        action="append",
        default=[],
        metavar="ANALYSIS,...",
        help="show analyses as comments: axis_info, liveness, allocation, coalescing, layouts",
    )


def add_layout(layout: argparse.ArgumentParser) -> None:
    add = layout.add_argument
    add(
        "layout",
        metavar="LAYOUT",
        help="'#blocked{…}', 'BlockedLayout(…)', '#ttg.blocked<{…}>', or FILE:%%VALUE of a dump",
    )
    add("--shape", default="", metavar="AxB", help="the shape of the tensor, for a layout in words")
    add("--type", default="", metavar="TYPE", help="the type of the elements (default fp16)")
    add(
        "--with",
        dest="other",
        default="",
        metavar="LAYOUT",
        help="another layout, from or to which elements go",
    )


def positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 100_000):
        raise argparse.ArgumentTypeError(f"expected a number from 1, found {text!r}")
    return int(text)


def _shard(text: str) -> Any:
    # For those alone who ask for shards: it loads the model of manifests.
    from kbuild.aot.shards.shard import Shard

    return Shard.parse(text)
