"""The verbs of the command line.  Each imports what it needs when it runs, so that none waits for another's modules."""

from __future__ import annotations

import argparse
import ast
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kbuild import __version__
from kbuild.errors import ErrorGroup, KbuildError, ToolError, UsageError

STAGES = ("ttir", "ttgir", "llir", "ptx", "cubin")
_MOST_WARNINGS = 20
"""Lines of warnings that a build prints."""


class _Parser(argparse.ArgumentParser):
    """Tells mistakes as kbuild tells all others."""

    def error(self, message: str) -> Any:
        raise UsageError(message, hint=f"{self.prog} --help lists what there is")


def run(words: list[str], environment: Mapping[str, str]) -> int:
    """Runs one command line; the exit code.  Raises KbuildError for what the user can mend."""
    options = parser().parse_args(words)
    options.environment = environment
    if options.directory != "." and not Path(options.directory).is_dir():
        raise UsageError(f"no directory {options.directory}")
    verb: Any = options.run
    return verb(options)


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    common = _common()
    top = _Parser(prog="kbuild", description="Compiles Triton-language GPU kernels ahead of time and packs them into wheels.")
    top.add_argument("--version", action="version", version=f"kbuild {__version__}")
    verbs = top.add_subparsers(metavar="VERB", required=True, parser_class=_Parser)

    def verb(name: str, function: Any, text: str) -> argparse.ArgumentParser:
        added = verbs.add_parser(name, parents=[common], help=text, description=text)
        added.set_defaults(run=function)
        return added

    build = verb("build", _build, "Compile the kernels of kernels.toml and make the wheel.")
    build.add_argument("kernels", nargs="*", metavar="KERNEL", help="compile these alone, and make no wheel")
    build.add_argument("--lineinfo", action="store_true", help="let cubins refer to source lines, for profilers")
    wheel = verb("wheel", _build, "Make the wheel; the same as build, and then print its path alone.")
    wheel.set_defaults(kernels=[], lineinfo=False, only_path=True)
    _add_compile(verb("compile", _compile, "Compile one function with one signature."))
    opt = verb("opt", _opt, "Run passes over IR and print the result.")
    opt.add_argument("file", metavar="FILE", help="a .ttir or .ttgir file, or - for standard input")
    opt.add_argument("-p", "--passes", required=True, metavar="PASS,...", help="passes in order; `tensor`, `gpu`: a pipeline")
    opt.add_argument("--target", default="sm_90", metavar="ARCH", help="architecture (default sm_90)")
    listing = verb("list", _list, "List the variants that kernels.toml asks for.")
    listing.add_argument("kernels", nargs="*", metavar="KERNEL", help="of these kernels alone")
    verb("clean", _clean, "Remove what builds made here; the cache stays.")
    verb("doctor", _doctor, "Say which tools would be used, and what is missing.")
    return top


def _common() -> _Parser:
    """Options of every verb."""
    common = _Parser(add_help=False)
    add = common.add_argument
    add("-C", dest="directory", default=".", metavar="DIR", help="the project's directory (default: the current one)")
    add("-j", dest="jobs", type=_positive, metavar="N", help="steps at a time (default: MAX_JOBS, or as many as processors)")
    add("-k", "--keep-going", action="store_true", help="go on with other variants when one fails")
    add("-v", "--verbose", action="store_true", help="say more, and where kbuild broke if it does")
    add("-q", "--quiet", action="store_true", help="say nothing but errors")
    add("--json", action="store_true", help="print the result as JSON")
    add("--dry-run", action="store_true", help="say what would be done")
    add("--arch", dest="archs", action="append", default=[], metavar="ARCH", help="only this architecture (repeatable)")
    add("-o", dest="output", metavar="DIR", help="where to put the wheel (default: dist), or what is compiled")
    add("--no-cache", action="store_true", help="neither read nor write the cache of cubins")
    add("--color", choices=("auto", "always", "never"), default="auto", help="whether to draw (default: on terminals)")
    return common


def _add_compile(compile_: argparse.ArgumentParser) -> None:
    add = compile_.add_argument
    add("source", metavar="FILE:FUNCTION", help="the kernel, or a .ttir or .ttgir file to start from")
    add("-s", "--signature", action="append", default=[], metavar="NAME=TYPE,...", help="run-time arguments: X=*fp32:16,n=i32")
    add("-c", "--constexpr", action="append", default=[], metavar="NAME=VALUE,...", help="compile-time arguments: BLOCK=1024")
    add("--num-warps", type=_positive, default=4, metavar="N", help="warps per program (default 4)")
    add("--num-stages", type=_positive, default=3, metavar="N", help="depth of pipelines (default 3)")
    add("--emit", default="", metavar="STAGE,...", help=f"what to write: {', '.join(STAGES)} (default cubin)")
    add("--dump", metavar="DIR", help="write the IR after each pass there")
    add("--lineinfo", action="store_true", help="let the cubin refer to source lines")


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 100_000):
        raise argparse.ArgumentTypeError(f"expected a number from 1, found {text!r}")
    return int(text)


def _build(options: argparse.Namespace) -> int:
    from kbuild.aot import build as builder
    from kbuild.aot.environment import epoch, number
    from kbuild.aot.progress import Bar, Lines, Progress

    started = time.monotonic()
    only_path = getattr(options, "only_path", False)
    plain = options.environment.get("CI") or options.color == "never" or not sys.stderr.isatty()
    progress = Progress() if options.quiet else Bar() if not plain or options.color == "always" else Lines()
    project = Path(options.directory)
    asked = builder.Options(
        project=project,
        environment=options.environment,
        archs=tuple(options.archs),
        kernels=tuple(options.kernels),
        jobs=options.jobs or number(options.environment, "MAX_JOBS") or 0,
        keep_going=options.keep_going,
        lineinfo=options.lineinfo,
        verbose=options.verbose,
        dry_run=options.dry_run,
        cache=_cache(options),
        dist=Path(options.output) if options.output else None,
        epoch=epoch(options.environment),
        display=_display(project / builder.MANIFEST),
    )
    result = builder.build(asked, progress)
    if options.json:
        print(json.dumps(_result_json(result, time.monotonic() - started), indent=1))
    elif only_path and result.wheel:
        print(result.wheel)
    elif options.dry_run:
        print("\n".join(job.variant.name for job in result.jobs))
    if not options.quiet and not options.dry_run:
        progress.message(_summary(result, project / builder.BUILD, time.monotonic() - started))
    if result.failures:
        raise ErrorGroup([*result.failures, _failed(result, options.keep_going)])
    return 0


def _cache(options: argparse.Namespace) -> Path | None:
    from kbuild.aot.cache import usable
    from kbuild.aot.environment import cache_directory

    directory = None if options.no_cache else cache_directory(options.environment)
    if directory is not None and (why := usable(directory)):
        print(f"warning: building without a cache: {why}", file=sys.stderr)
        return None
    return directory


def _display(path: Path) -> str:
    """A path as messages show it: without a leading `./`."""
    return path.as_posix()


def _failed(result: Any, keep_going: bool) -> KbuildError:
    variants = sum(1 for failure in result.failures)
    left = len(result.jobs) - len(result.facts) - variants
    text = f"{variants} of {len(result.jobs)} variants failed"
    return ToolError(text, hint="" if keep_going or left <= 0 else f"-k builds the {left} that were not tried")


def _summary(result: Any, build: Path, seconds: float) -> str:
    cubins = sum(fact["size"] for fact in result.facts)
    fresh = len(result.compiled)
    done = f"{fresh - result.cached} compiled, {result.cached} from the cache" if fresh else "nothing had to be compiled"
    new, older = [], 0
    for fact in result.facts:
        warnings = _warnings(fact)
        if fact["name"] in result.compiled:
            new += [f"warning: {fact['name']}: {warning}" for warning in warnings]
        else:
            older += bool(warnings)
    lines = new[:_MOST_WARNINGS]
    if len(new) > _MOST_WARNINGS:
        lines.append(f"and {len(new) - _MOST_WARNINGS} warnings more; kbuild list -v shows them all")
    if older:
        lines.append(f"{older} variants compiled before have warnings; kbuild list -v shows them")
    lines.append(f"{len(result.facts)} cubins in {build}, {_size(cubins)}; {done}; {seconds:.1f} s")
    if result.wheel:
        lines.append(f"wheel: {result.wheel}, {_size(result.wheel.stat().st_size)}")
    return "\n".join(lines)


def _warnings(fact: dict[str, Any]) -> list[str]:
    """What is not as it should be with a cubin."""
    spills = [f"spills {fact['spill_stores']} bytes of registers"] if fact["spill_stores"] or fact["spill_loads"] else []
    # ptxas tells of spills in words of its own, with the same numbers.
    return spills + [text for text in fact["warnings"] if not (spills and "spilled" in text)]


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def _result_json(result: Any, seconds: float) -> dict[str, object]:
    return {
        "variants": len(result.jobs),
        "compiled": list(result.compiled),
        "cached": result.cached,
        "failed": [failure.message.splitlines()[0] for failure in result.failures],
        "facts": list(result.facts),
        "wheel": str(result.wheel) if result.wheel else None,
        "wheel_bytes": result.wheel.stat().st_size if result.wheel else None,
        "seconds": round(seconds, 3),
    }


def _compile(options: argparse.Namespace) -> int:
    emitted = [stage for stage in options.emit.split(",") if stage] or ["cubin"]
    for stage in emitted:
        if stage not in STAGES:
            raise UsageError(f"--emit {stage}: no such stage", hint=f"stages: {', '.join(STAGES)}")
    signature = dict(item for text in options.signature for item in _pairs(text, "-s"))
    constexprs = {name: _value(value) for text in options.constexpr for name, value in _pairs(text, "-c")}
    dump = options.dump or options.environment.get("KBUILD_DUMP") or None
    stop = max(emitted, key=STAGES.index)
    ptxas = None
    if stop == "cubin":
        from kbuild.aot.toolchain import find_ptxas

        ptxas = find_ptxas(options.environment).path
    if options.dry_run:
        print(f"would compile {options.source} for {', '.join(options.archs or ['sm_90'])} to {stop}")
        return 0
    from kbuild.compiler.driver import compile as compile_  # The compiler itself, which no other verb waits for.

    errors: list[KbuildError] = []
    reports: list[dict[str, object]] = []
    for arch in options.archs or ["sm_90"]:
        try:
            artifact = compile_(
                options.source, signature=signature, constexprs=constexprs, target=arch, num_warps=options.num_warps,
                num_stages=options.num_stages, lineinfo=options.lineinfo, ptxas=ptxas, dump=dump, stop=stop,
            )  # fmt: skip
        except KbuildError as error:
            errors.append(error)
            continue
        files = _write_stages(options, artifact, arch, emitted)
        if options.json:
            reports.append(_artifact_json(artifact, arch, files))
        elif not options.quiet and stop == "cubin":
            print(_artifact_line(artifact, files), file=sys.stderr)
    if options.json:
        print(json.dumps(reports, indent=1))
    if errors:
        # The same mistake is found for each architecture; one telling is enough.
        raise ErrorGroup({(str(error), error.exit_code): error for error in errors}.values())
    return 0


def _pairs(text: str, flag: str) -> list[tuple[str, str]]:
    """`a=1,b=2` as pairs."""
    pairs: list[tuple[str, str]] = []
    for item in text.split(",") if text else ():
        name, equals, value = item.partition("=")
        if not equals or not name.strip().isidentifier():
            raise UsageError(f"{flag} {item!r}: expected NAME=VALUE")
        pairs.append((name.strip(), value.strip()))
    return pairs


def _value(text: str) -> object:
    """A compile-time value: a Python literal, true, false, none, or the text itself."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _write_stages(options: argparse.Namespace, artifact: Any, arch: str, emitted: list[str]) -> dict[str, str]:
    """Writes the stages asked for: to files in `-o`; without it texts are printed, and the cubin lies in this directory."""
    files: dict[str, str] = {}
    for stage in STAGES:
        if stage not in emitted:
            continue
        data = artifact.asm[stage]
        if options.output is None and stage != "cubin":
            if not options.json:
                print(data, end="" if data.endswith("\n") else "\n")
            continue
        path = Path(options.output or ".") / f"{artifact.metadata.name}.{arch}.{stage}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        files[stage] = str(path)
    return files


def _artifact_json(artifact: Any, arch: str, files: dict[str, str]) -> dict[str, object]:
    from kbuild.aot.compile_variant import compile_facts

    facts = compile_facts(artifact.metadata) | {"target": arch, "files": files}
    return facts | {"stage_seconds": {stage: round(seconds, 4) for stage, seconds in artifact.metadata.stage_seconds.items()}}


def _artifact_line(artifact: Any, files: dict[str, str]) -> str:
    facts = artifact.metadata
    spills = f"spills {facts.spill_stores} bytes" if facts.spill_stores or facts.spill_loads else "no spills"
    size = len(artifact.asm["cubin"])
    return f"{files['cubin']}: {size:,} bytes, {facts.registers} registers, {spills}, {facts.shared:,} bytes of shared memory"


def _opt(options: argparse.Namespace) -> int:
    from kbuild.compiler.driver import opt  # As for compile.

    try:
        text = sys.stdin.read() if options.file == "-" else Path(options.file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{options.file}: {getattr(error, 'strerror', None) or 'it is not text'}") from None
    printed = opt(text, options.passes, options.target, file=options.file)
    if options.output:
        path = Path(options.output) / Path(options.file).name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(printed)
    else:
        print(printed, end="" if printed.endswith("\n") else "\n")
    return 0


def _list(options: argparse.Namespace) -> int:
    from kbuild.aot.build import BUILD, MANIFEST, expand_known
    from kbuild.aot.load import load

    project = Path(options.directory)
    manifest = load(project / MANIFEST, _display(project / MANIFEST))
    expansion = expand_known(manifest, options.archs, options.kernels)
    rows: list[dict[str, Any]] = []
    for variant in expansion.variants:
        facts = project / BUILD / variant.arch / variant.kernel / f"{variant.file_name}.json"
        known = json.loads(facts.read_bytes()) if facts.is_file() else {}
        rows.append({"name": variant.name, "variant": str(variant), "built": known or None})
    if options.json:
        excluded = [
            {"kernel": e.kernel, "arch": e.arch, "matrix": dict(e.matrix), "reason": e.reason} for e in expansion.excluded
        ]
        print(json.dumps({"variants": rows, "excluded": excluded}, indent=1))
        return 0
    for row in rows:
        built = row["built"]
        facts = [_size(built["size"]), f"{built['registers']} registers", *_warnings(built)] if built and options.verbose else []
        print("  ".join([row["name"], ", ".join(facts)]).rstrip())
    for excluded in expansion.excluded if options.verbose else ():
        values = ", ".join(f"{name} = {value}" for name, value in excluded.matrix)
        print(f"not {excluded.kernel}.{excluded.arch} {values}: {excluded.reason}")
    if not options.quiet:
        print(f"{len(rows)} variants, {len(expansion.excluded)} excluded", file=sys.stderr)
    return 0


def _clean(options: argparse.Namespace) -> int:
    from shutil import rmtree  # It loads three compressors, which compiling does not need.

    from kbuild.aot.build import BUILD
    from kbuild.aot.plan import STATE

    project = Path(options.directory)
    directory = project / BUILD
    if not (directory / STATE).is_dir():
        if not options.quiet:
            print(f"no build in {project}", file=sys.stderr)
        return 0
    paths = [directory]
    record = directory / STATE / "wheel.json"
    if record.is_file():
        paths.append(Path(options.output or project / "dist", Path(json.loads(record.read_bytes())["wheel"]).name))
    for path in paths:
        if not path.exists():
            continue
        if not options.quiet:
            print(f"{'would remove' if options.dry_run else 'removed'} {path}", file=sys.stderr)
        if options.dry_run:
            continue
        if path.is_dir():
            rmtree(path)
        else:
            path.unlink()
    return 0


def _doctor(options: argparse.Namespace) -> int:
    from kbuild.aot import toolchain
    from kbuild.aot.cache import usable
    from kbuild.aot.environment import cache_directory

    rows: list[tuple[str, str, bool]] = [
        ("kbuild", f"{__version__} in {Path(__file__).parent}", True),
        ("python", f"{sys.version.split()[0]} in {sys.executable}", sys.version_info >= (3, 10)),
    ]
    for name, find in (("ptxas", toolchain.find_ptxas), ("ninja", toolchain.find_ninja), ("cc", toolchain.find_cc)):
        try:
            tool = find(options.environment)
            version = toolchain.version(tool)
            rows.append((name, f"{version}; {tool.path} ({tool.origin})", not version.startswith("(")))
        except KbuildError as error:
            rows.append((name, f"{error.message}; {error.hint}", False))
    try:
        rows.append(("llvmlite", toolchain.find_llvm().path, True))
    except KbuildError as error:
        rows.append(("llvmlite", f"{error.message}; {error.hint}", False))
    cache = cache_directory(options.environment)
    why = usable(cache) if cache else "switched off"
    rows.append(("cache", why or str(cache), not why or cache is None))
    if options.json:
        print(json.dumps([{"name": name, "found": text, "good": good} for name, text, good in rows], indent=1))
    else:
        for name, text, good in rows:
            print(f"{'ok     ' if good else 'missing'}  {name:9} {text}")
    return 0 if all(good for _, _, good in rows) else 1
