"""`kbuild compile`: one function with one signature, to any stage."""

from __future__ import annotations

import argparse
import ast
import re
import sys
from pathlib import Path

from kbuild.aot.environment import dump_of
from kbuild.aot.toolchain import find_ptxas, ptxas_of_code
from kbuild.cli.verbs.show import compile_options, write
from kbuild.compiler import driver
from kbuild.errors import ErrorGroup, KbuildError, UsageError

_EXAMPLES = {
    "-s": "write, for example, -s 'x=*fp32:16,n=i32'",
    "-c": "write, for example, -c BLOCK=1024,EVEN=true",
    "--arg": "write, for example, --arg n=1000,x=random:1000",
}


def run(options: argparse.Namespace) -> int:
    emitted = [stage for stage in options.emit.split(",") if stage] or ["cubin"]
    for stage in emitted:
        if stage not in driver.STAGES:
            raise UsageError(f"--emit {stage}: no such stage", help=f"stages: {', '.join(driver.STAGES)}")
    signature, constexprs = signature_of(options), constexprs_of(options)
    asked = dump_of(options.environment)
    dump = options.dump or (asked.of(options.source.rpartition(":")[2]) if asked is not None else None)
    stop = max(emitted, key=driver.STAGES.index)
    ptxas = find_ptxas(options.environment).path if stop == "cubin" else ptxas_of_code(options.environment)
    source = str(Path(options.directory, options.source))
    if options.dry_run:
        print(f"would compile {source} for {', '.join(options.archs or ['sm_90'])} to {stop}")
        return 0
    errors: list[KbuildError] = []
    reports: list[dict[str, object]] = []
    for arch in options.archs or ["sm_90"]:
        try:
            artifact = driver.compile(
                source,
                signature=signature,
                constexprs=constexprs,
                target=arch,
                options=compile_options(options),
                ptxas=ptxas,
                dump=dump,
                stop=stop,
                texts=emitted,
            )
        except KbuildError as error:
            errors.append(error)
            continue
        files = _write_stages(options, artifact, arch, emitted)
        if options.json:
            reports.append(_artifact_json(artifact, arch, files))
        elif not options.quiet and stop == "cubin":
            for text in artifact.metadata.warnings:
                if not text.startswith("ptxas"):  # Spills are in the line below.
                    print(f"warning: {text}", file=sys.stderr)
            print(_artifact_line(artifact, files), file=sys.stderr)
    if options.json:
        from json import dumps  # Here, for most ask for none.

        print(dumps(reports, indent=1))
    if errors:
        # The same mistake is found for each architecture; one report is enough.
        raise ErrorGroup({(str(error), error.exit_code): error for error in errors}.values())
    return 0


def signature_of(options: argparse.Namespace) -> dict[str, str]:
    """Types of the run-time arguments, by name."""
    return dict(item for text in options.signature for item in pairs(text, "-s"))


def constexprs_of(options: argparse.Namespace) -> dict[str, object]:
    """Values of the compile-time arguments, by name."""
    return {name: _value(value) for text in options.constexpr for name, value in pairs(text, "-c")}


def pairs(text: str, flag: str) -> list[tuple[str, str]]:
    """`a=1,b=(2, 3)` as pairs."""
    found: list[tuple[str, str]] = []
    for item in _split(text.strip(", ")) if text else ():
        name, equals, value = (part.strip() for part in item.partition("="))
        if not (equals and value and name.isidentifier()):
            raise UsageError(
                f"{flag} {item!r}: expected NAME={'TYPE' if flag == '-s' else 'VALUE'}", help=_EXAMPLES[flag]
            )
        if name in dict(found):
            raise UsageError(f"{flag} {text!r}: {name} is given twice")
        found.append((name, value))
    return found


def _split(text: str) -> list[str]:
    """The parts of a text at commas before a name and `=`, others belong to a value; as do those in the
    parentheses of a named tuple."""
    parts, begin = [], 0
    for comma in re.finditer(r",(?=[^,=]*=)", text):
        if text.count("(", begin, comma.start()) <= text.count(")", begin, comma.start()):
            parts.append(text[begin : comma.start()])
            begin = comma.end()
    return [*parts, text[begin:]]


def _value(text: str) -> object:
    """A compile-time value: a Python literal, true, false, none, or the text itself."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _write_stages(
    options: argparse.Namespace, artifact: driver.Artifact, arch: str, emitted: list[str]
) -> dict[str, str]:
    """Writes the stages asked for: to files in `-o`; without it texts are printed, and the cubin lies in this
    directory."""
    files: dict[str, str] = {}
    for stage in driver.STAGES:
        if stage not in emitted:
            continue
        data = artifact.asm[stage]
        if options.output is None and stage != "cubin":
            if not options.json:
                print(data, end="" if data.endswith("\n") else "\n")
            continue
        path = Path(options.output or ".") / f"{artifact.metadata.name}.{arch}.{stage}"
        write(path, data if isinstance(data, bytes) else data.encode())
        files[stage] = str(path)
    return files


def _artifact_json(artifact: driver.Artifact, arch: str, files: dict[str, str]) -> dict[str, object]:
    # Here, for it brings the cache and all that a build needs.
    from kbuild.aot.build.compile_variant import (
        compile_facts,
    )

    facts = compile_facts(artifact.metadata) | {"target": arch, "files": files}
    return facts | {
        "stage_seconds": {
            stage: round(seconds, 4) for stage, seconds in artifact.metadata.stage_seconds.items()
        }
    }


def _artifact_line(artifact: driver.Artifact, files: dict[str, str]) -> str:
    facts = artifact.metadata
    spills = f"spills {facts.spill_stores} bytes" if facts.spill_stores or facts.spill_loads else "no spills"
    size = len(artifact.asm["cubin"])
    return f"{files['cubin']}: {size:,} bytes, {facts.registers} registers, {spills}, {facts.shared:,} bytes of shared memory"
