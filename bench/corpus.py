"""How much of real code compiles: the compile requests that public projects made of Triton, replayed through
kbuild.

    python bench/corpus.py --requests liger.jsonl.gz tritonbench.jsonl.gz --liger CHECKOUT --tritonbench
    CHECKOUT

Each request is a JSON object of a function, its signature, constants and options (one a line, gzip).  Every
one runs in a process of its own, so that nothing it does stops the others.  The outcome is `ok`, `message`
(an error for the kernel's author) or `crash` (ours: an internal error, an exception, a signal, or too long).
Times are processor seconds.

Each is compiled to its cubin, unless `--stop` says less; then the table says how many have dots that ptxas
serializes, how many cubins are not what the PTX says (dots dropped, for one; such a request ends in a
message), and how many spill.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import traceback
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from forks import run_all

import kbuild
import kbuild.compiler.driver
import kbuild.language as tl
from kbuild.aot.environment import prepare
from kbuild.errors import InternalError, KbuildError

SECONDS = 60
"""The longest a request may take, by the clock."""
WRONG = "made a cubin that is not the PTX"
"""The text of errors about a ptxas that failed."""
DTYPES = {
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "fp64": "float64",
    "int32": "int32",
    "int64": "int64",
    "i32": "int32",
    "i64": "int64",
    "int8": "int8",
    "i8": "int8",
    "fp8e5": "float8e5",
    "fp8e4nv": "float8e4nv",
}
"""Names of data types in requests, and in the language."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one request."""

    kind: str
    """`ok`, `message` or `crash`."""
    text: str = ""
    """The error."""
    seconds: float = 0.0
    """Processor time in the compiler, ptxas included."""
    notes: tuple[str, ...] = ()
    """The dots that ptxas serializes."""
    spilled: int = 0
    """Bytes of registers stored in memory."""


def main() -> None:
    """Replay the requests and print the table, then the commonest reasons."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument("--arch", action="append", help="sm_80 and sm_90 unless given")
    parser.add_argument("--stop", default="cubin", choices=("ttir", "ttgir", "llir", "ptx", "cubin"))
    parser.add_argument("--every", type=int, default=1, help="replay one request in so many")
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--refused", action="store_true", help="replay the requests that Triton refused instead of the others"
    )
    options = parser.parse_args()
    prepare(os.environ)  # As the command line does.
    folders, requests = folders_of(options), chosen(options, options.refused)
    work = [
        (arch, request)
        for arch in options.arch or ["sm_80", "sm_90"]
        for request in requests[:: options.every]
    ]
    outcomes = run_all(
        work,
        lambda one: outcome_of(*one, folders, options.stop),
        lambda text: Outcome("crash", text),
        options.jobs,
        SECONDS,
    )
    report(work, outcomes)
    if options.json:
        rows = [
            {"arch": arch, "request": request, **asdict(outcome)}
            for (arch, request), outcome in zip(work, outcomes)
        ]
        options.json.write_text(json.dumps(rows, indent=1))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that say which requests, of which checkouts."""
    parser.add_argument("--requests", nargs="+", required=True)
    parser.add_argument("--liger", type=Path, required=True)
    parser.add_argument("--tritonbench", type=Path, required=True)
    parser.add_argument("--only", default="", help="functions whose name contains this")
    parser.add_argument("--one-each", action="store_true", help="the first request of each function only")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())


def folders_of(options: argparse.Namespace) -> dict[str, Path]:
    """Where the sources are, by the first part of their names in requests."""
    return {"liger": options.liger / "src", "tb": options.tritonbench / "data"}


def chosen(options: argparse.Namespace, refused: bool = False) -> list[Any]:
    """The requests that are asked for: those that Triton compiled, or those that it refused."""
    requests = [
        request
        for file in options.requests
        for request in read(file)
        if bool(request["error"]) == refused and options.only in request["name"]
    ]
    if options.one_each:
        requests = list({name_of(request): request for request in reversed(requests)}.values())
    return requests


def read(file: str) -> list[Any]:
    """The requests of a file."""
    with gzip.open(file, "rt") as lines:
        return [json.loads(line) for line in lines]


def name_of(request: Any) -> str:
    """The function that a request is for."""
    return f"{request['file']}:{request['name']}"


def source_of(request: Any, folders: dict[str, Path]) -> Path:
    """The file of that function."""
    folder, _, file = request["file"].partition("/")
    return folders[folder] / file


def compiled(request: Any, folders: dict[str, Path], arch: str, stop: str = "cubin") -> kbuild.Artifact:
    """What kbuild makes of a request."""
    signature, constexprs = arguments_of(request)
    options = {key: request["options"][key] for key in ("num_warps", "num_stages")}
    source = f"{source_of(request, folders)}:{request['name']}"
    return kbuild.compile(
        source, signature=signature, constexprs=constexprs, target=arch, stop=stop, **options
    )


def outcome_of(arch: str, request: Any, folders: dict[str, Path], stop: str) -> Outcome:
    """Compile one request in this process."""
    kind, text, facts = "ok", "", {}
    try:
        made = compiled(request, folders, arch, stop).metadata
        facts = {"notes": made.serialized, "spilled": made.spill_stores or 0}
    except InternalError as error:
        kind, text = "crash", str(error)
    except KbuildError as error:
        kind, text = "message", str(error)
    except BaseException:
        kind, text = "crash", traceback.format_exc()
    spent = os.times()
    return Outcome(
        kind, text, spent.user + spent.system + spent.children_user + spent.children_system, **facts
    )


def arguments_of(request: Any) -> tuple[dict[str, str], dict[str, Any]]:
    """Signature and constexprs in kbuild's form."""
    names = request["args"]
    constexprs = {names[path[0]]: value_of(value, tl) for path, value in request["constants"]}
    divisible = {path[0] for path, facts in request["attrs"] if ["tt.divisibility", 16] in facts}
    signature = {
        name: type_ + (":16" if index in divisible else "")
        for index, (name, type_) in enumerate((name, request["signature"][name]) for name in names)
        if type_ != "constexpr" and name not in constexprs
    }
    return signature, constexprs


def value_of(value: Any, language: ModuleType) -> Any:
    """A constant from its JSON form, with the data types of a language: kbuild's or Triton's."""
    if isinstance(value, dict):
        if "float" in value:
            return float.fromhex(value["float"])
        if "dtype" in value:
            return getattr(language, DTYPES[value["dtype"]])
        return tuple(value_of(item, language) for item in value["tuple"])
    return value


def report(work: list[tuple[str, Any]], outcomes: list[Outcome]) -> None:
    """Print the shares by architecture, by request and by function, the commonest last lines of errors, and
    the slowest."""
    columns = f"{'serialized':>11} {'wrong':>6} {'spills':>7}"
    header = f"{'':8} {'requests':>10} {'ok':>7} {'message':>8} {'crash':>6} {columns}"
    header += f" {'median s':>9} {'p99 s':>7} {'total s':>8}"
    print(f"{header}   functions whose requests all compile")
    for arch in dict.fromkeys(arch for arch, _ in work):
        own = [(request, outcome) for (of, request), outcome in zip(work, outcomes) if of == arch]
        counts = Counter(outcome.kind for _, outcome in own)
        functions: dict[tuple[str, str], set[str]] = defaultdict(set)
        for request, outcome in own:
            functions[request["file"], request["name"]].add(outcome.kind)
        found = [
            sum(map(bool, values)) for values in zip(*((o.notes, WRONG in o.text, o.spilled) for _, o in own))
        ]
        whole = sum(found == {"ok"} for found in functions.values())
        times = sorted(outcome.seconds for _, outcome in own)
        print(
            f"{arch:8} {len(own):10} {counts['ok'] / len(own):7.1%} {counts['message']:8} {counts['crash']:6} "
            f"{found[0]:11} {found[1]:6} {found[2]:7} "
            f"{times[len(own) // 2]:9.2f} {times[len(own) * 99 // 100]:7.2f} {sum(times):8.0f}   {whole} of {len(functions)}"
        )
    for kind in ("crash", "message"):
        reasons: Counter[str] = Counter()
        for (_, request), outcome in zip(work, outcomes):
            if outcome.kind == kind:
                lines = outcome.text.splitlines() or [""]
                said = [line for line in lines if "error" in line.lower()] or lines
                reasons[f"{said[-1].strip()[:200]}   ({request['name']})"] += 1
        print(f"\n{kind}, by reason:")
        for reason, count in reasons.most_common(60):
            print(f"{count:5}  {reason}")
    print_dots(work, outcomes)
    print("\nslowest, in seconds:")
    for (arch, request), outcome in sorted(zip(work, outcomes), key=lambda row: -row[1].seconds)[:15]:
        print(
            f"{outcome.seconds:7.2f}  {arch} {request['file']}:{request['name']} (Triton: {request['seconds']})"
        )


def print_dots(work: list[tuple[str, Any]], outcomes: list[Outcome]) -> None:
    """Print why ptxas serializes dots, and of which functions."""
    reasons: Counter[str] = Counter()
    for (arch, request), outcome in zip(work, outcomes):
        for note in {note.partition(": ")[2] for note in outcome.notes}:
            reasons[f"{note}   ({arch} {request['name']}, {request['options']['num_warps']} warps)"] += 1
    print("\ndots serialized by ptxas:")
    for reason, count in reasons.most_common(60):
        print(f"{count:5}  {reason}")


if __name__ == "__main__":
    main()
