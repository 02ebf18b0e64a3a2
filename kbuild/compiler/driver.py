"""compile(): a kernel's source through all stages, starting and stopping anywhere.

    source ─frontend─▶ ttir ─tensor pipeline─▶ ttir ─gpu pipeline─▶ ttgir ─lower─▶ llir ─LLVM─▶ ptx ─ptxas─▶
    cubin

This and `compilation.py` are the only modules that import both the frontend and the backend.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import kbuild.compiler.transforms  # noqa: F401  (registers the passes)
from kbuild.compiler.artifact import STAGES, Artifact, Metadata
from kbuild.compiler.backend.collector import collected_later
from kbuild.compiler.backend.cubin import find_ptxas, ptxas_guarantees
from kbuild.compiler.backend.given_code import read_code
from kbuild.compiler.compilation import Compilation, pipelines_of
from kbuild.compiler.cuda.source import cuda_source
from kbuild.compiler.frontend import build_module
from kbuild.compiler.ir.core import Module, Value
from kbuild.compiler.ir.lifetime import taken_apart_later
from kbuild.compiler.ir.passes import PassLog, run_pipeline, split_pipeline
from kbuild.compiler.ir.printer import print_module
from kbuild.errors import UsageError
from kbuild.options import DEFAULTS, CompileOptions
from kbuild.targets import ARCHS, Target, find_target

__all__ = [
    "STAGES",
    "Artifact",
    "Metadata",
    "after_passes",
    "compile",
    "opt",
    "pipelines_of",
    "read_ir",
    "require_features",
    "target_for",
]


@collected_later()
@taken_apart_later()
def compile(
    source: str | Path | Callable[..., Any],
    *,
    signature: Mapping[str, Any] | None = None,
    constexprs: Mapping[str, Any] | None = None,
    target: str = "sm_90",
    stop: str = "cubin",
    dump: str | Path | None = None,
    texts: Collection[str] = STAGES,
    options: CompileOptions | None = None,
    **named: Any,
) -> Artifact:
    """Compile one specialisation of a kernel.  Needs no GPU, and neither Triton nor torch.

    `source` is `"path/to/file.py:function"`, a function object (plain, `@kbuild.jit` or `@triton.jit`),
    `"path/to/file.cu:function"` for a kernel in CUDA C++, which has the stages `ptx` and `cubin`, or a file of
    a later stage (`.ttir`, `.ttgir`, `.llir`, `.ptx`) to start from; the last two do not say the parameters'
    names and types nor the shared memory of a launch.  `signature` gives the type of
    each run-time argument in Triton's spelling, with `:16` for "divisible by 16" and `:1` for "equal to one":
    `{"x": "*fp32:16", "n": "i32"}`; that of a tuple is a tuple of types, or a dict of them by the names of its
    fields.
    `constexprs` gives the values of the compile-time arguments.  `dump` is a
    folder for the IR after each pass. `texts` are the stages that the artifact is to have besides the last:
    others are not printed.  `options` say how it is compiled; keywords that are fields of `CompileOptions`
    override them: `num_warps=8`, `debug=True`.

    Raises `CompileError` (or an `ErrorGroup` of them) for mistakes in the kernel, `UsageError` for wrong
    arguments here, `ToolError` when ptxas is missing or fails.
    """
    if stop not in STAGES:
        raise UsageError(f"unknown stage {stop!r}", help=f"stages: {', '.join(STAGES)}")
    options = (options or DEFAULTS).changed(named)
    chosen = target_for(target, options.ptxas or (find_ptxas() if stop == "cubin" else None))
    if options.portable:
        chosen = chosen.portable()
        options = options.on(chosen.features)
    require_features(options, chosen)
    run = Compilation(chosen, options, stop, Path(dump) if dump else None, texts)
    if cuda := cuda_source(source):
        return run.from_cuda(*cuda, signature or {}, constexprs or {})
    start, text = _later_stage(source)
    if start and STAGES.index(stop) < STAGES.index(start):
        raise UsageError(f"cannot stop at {stop}: {source} is of the later stage {start}")
    if start is None:
        return run.from_python(
            lambda: build_module(source, signature or {}, constexprs or {}, options, chosen.capability)
        )
    from kbuild.compiler.ir.given import blamed_on  # Compiling Python needs no parser.

    with blamed_on(str(source)):
        if start in ("llir", "ptx"):
            return run.from_code(read_code(start, text, str(source)))
        return run.from_module(read_ir(text, str(source), options), start)


def opt(
    text: str,
    passes: str | Sequence[str],
    target: str = "sm_90",
    file: str = "<ir>",
    dump: str | Path | None = None,
) -> str:
    """Run passes over the text of a module and print the result; `tensor` and `gpu` stand for a target's
    pipelines."""
    return print_module(after_passes(text, passes, target, file, dump))


def after_passes(
    text: str,
    passes: str | Sequence[str],
    target: str = "sm_90",
    file: str = "<ir>",
    dump: str | Path | None = None,
) -> Module:
    """The module of a text after some passes, as of `opt`."""
    from kbuild.compiler.ir.given import blamed_on  # As above.

    chosen = find_target(target)
    with blamed_on(file):
        module = read_ir(text, file)
        tensor, gpu = pipelines_of(module, chosen)
        stages = {"tensor": tensor, "gpu": gpu}
        names: list[str] = []
        for item in split_pipeline(passes) if isinstance(passes, str) else passes:
            names.extend(stages.get(item.strip(), (item,)))
        run_pipeline(module, chosen, names, PassLog(Path(dump) if dump else None))
        return module


def read_ir(
    text: str, file: str, options: CompileOptions = DEFAULTS, names: dict[str, Value] | None = None
) -> Module:
    """The module of a text of IR: kbuild's own, or Triton's, of which the options say what its ttir does not.

    `names` gets the values by the names that they have in the text, `%x`.

    Raises `CompileError` where the text is wrong.
    """
    # As above.
    from kbuild.compiler.ir.given import blamed_on, read_module, verified
    from kbuild.compiler.upstream import is_upstream, read_upstream

    if is_upstream(text):
        with blamed_on(file):
            return verified(read_upstream(text, file, options.attributes(), names), file)
    return read_module(text, file, names)


def target_for(arch: str, ptxas: str | None = None) -> Target:
    """The target of an architecture, for code that a ptxas assembles: a program, or one of the version that
    is preferred.

    Raises `UsageError` for an architecture that kbuild does not know, `ToolError` for a program that does not
    report a version.
    """
    target = find_target(arch)
    if not target.has("wgmma"):  # The version does not matter, and asking for it may take a process.
        return target
    return replace(target, ptxas=ptxas_guarantees(ptxas))


def require_features(options: CompileOptions, target: Target) -> None:
    """Raise `UsageError` where an option that changes the code needs what a target lacks."""
    for option in options.lacking(target.features):
        if option.changes_code:
            raise UsageError(
                f"{option.name} is {getattr(options, option.name)}, but {target.arch} has no {option.feature}",
                help=f"it takes {' or '.join(arch for arch in ARCHS if find_target(arch).has(option.feature))}",
            )


def _later_stage(source: Any) -> tuple[str | None, str]:
    """The stage and text of a source that is a file of a later stage; (None, "") for Python."""
    suffix = Path(source).suffix.lstrip(".") if isinstance(source, str | Path) else ""
    if suffix not in STAGES:
        return None, ""
    if suffix == "cubin":
        help = "start from a .py:function, or a .ttir, .ttgir, .llir or .ptx"
        raise UsageError(f"cannot start from {source}", help=help)
    try:
        return suffix, Path(source).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"cannot read {source}: {getattr(error, 'strerror', '') or 'it is not text'}"
        ) from None
