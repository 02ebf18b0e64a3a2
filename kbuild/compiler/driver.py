"""compile(): a kernel's source through all stages, starting and stopping anywhere.

    source ─frontend─▶ ttir ─tensor pipeline─▶ ttir ─gpu pipeline─▶ ttgir ─lower─▶ llir ─LLVM─▶ ptx ─ptxas─▶
    cubin

This is the only module that imports both the frontend and the backend.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

import kbuild.compiler.transforms  # noqa: F401  (registers the passes)
from kbuild.compiler.backend.collector import collected_later
from kbuild.compiler.backend.cubin import CubinFacts, assemble, find_ptxas, ptxas_guarantees
from kbuild.compiler.backend.given_code import GivenCode, read_code
from kbuild.compiler.backend.llvm import to_ptx
from kbuild.compiler.backend.notes import Note
from kbuild.compiler.cuda.source import cuda_source
from kbuild.compiler.frontend import build_module, kernel_signature
from kbuild.compiler.ir.core import Func, Module, Value
from kbuild.compiler.ir.passes import PassLog, run_pipeline, split_pipeline
from kbuild.compiler.ir.printer import print_module
from kbuild.compiler.ir.types import DescriptorType
from kbuild.compiler.lower import lower_module
from kbuild.compiler.ops.gpu import ConvertLayout
from kbuild.compiler.ops.nvidia import WarpGroupDot
from kbuild.compiler.ops.tensor import GridDependencyWait
from kbuild.errors import CompileError, ErrorGroup, Loc, ToolError, UsageError
from kbuild.options import DEFAULTS, Block, CompileOptions
from kbuild.targets import ARCHS, Target, find_target
from kbuild.tensor_map import MapSources, TensorMapType, number_of

STAGES = ("ttir", "ttgir", "llir", "ptx", "cubin")


@dataclass(frozen=True)
class Metadata:
    """What is known about a compiled kernel besides its code."""

    name: str
    """The entry's symbol."""
    target: str
    """The architecture asked for."""
    arch: str
    """The architecture of the code: `sm_90a` where `sm_90` was asked for and Hopper-only instructions are
    used."""
    options: CompileOptions
    """The options that it was compiled with."""
    block: Block
    """Threads of a block along each axis, those of warps that only copy among them."""
    shared: int
    """Bytes of dynamic shared memory a launch must ask for."""
    params: tuple[tuple[str, str], ...]
    """Name and type of each kernel parameter, in order.  Tensor maps, which the launcher encodes, come last; their
    type is the text of a `TensorMapType`: `tensormap f16 1x128x64 128 a Z,M,K stride_z,stride`."""
    signature: tuple[tuple[str, str], ...] | None = None
    """Name and type of each run-time argument in the source's order, as signatures spell them, so with what is assumed of
    it: `("n", "i32:16")`, `("strides", "(i32, i32:1)")`.  Arguments that are one are not among `params`.  None where the
    source was LLVM or PTX, which do not say."""
    tma: tuple[str, ...] = ()
    """Which loads of loops use TMA, and why the others do not."""
    registers: int | None = None
    """Registers per thread; None before the stage `cubin`, like the four that follow."""
    spill_stores: int | None = None
    """Bytes."""
    spill_loads: int | None = None
    """Bytes."""
    ptxas_version: str | None = None
    nvrtc_version: str = ""
    """The version of NVRTC that made the PTX; empty where kbuild did, or it was given."""
    static_shared: int = 0
    """Bytes of shared memory besides; 0 before the stage `cubin`."""
    waits_for_launches: bool = False
    """Whether it waits for the launches before it by itself, so that it may begin before they have ended."""
    warnings: tuple[str, ...] = ()
    """The warnings of ptxas, and the `serialized` dots with their places in the source."""
    serialized: tuple[str, ...] = ()
    """Dots that ptxas does not let run ahead as the code has them, which costs speed alone; `strict` refuses
    them."""
    conversions: int = 0
    """Changes of layout that go through shared memory; known from the stage `ttgir` on."""
    stage_seconds: Mapping[str, float] = field(default_factory=dict, compare=False)
    """Time spent by stage."""

    @property
    def warps(self) -> int:
        """Warps of a launch."""
        return -(-prod(self.block) // 32)

    def with_facts(self, facts: CubinFacts | None, serialized: tuple[str, ...]) -> Metadata:
        """The same with the facts of the cubin, if there is one."""
        if facts is None:
            return self
        return replace(
            self,
            registers=facts.registers,
            spill_stores=facts.spill_stores,
            spill_loads=facts.spill_loads,
            ptxas_version=facts.ptxas_version,
            static_shared=facts.shared,
            warnings=(*self.warnings, *facts.warnings, *serialized),
            serialized=serialized,
        )


@dataclass(frozen=True)
class Artifact:
    """The result of `compile`: every stage's text, the cubin's bytes, and facts."""

    asm: Mapping[str, Any]
    """`ttir`, `ttgir`, `llir`, `ptx` as str and `cubin` as bytes, up to the stage asked for."""
    metadata: Metadata


@collected_later()
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
    run = _Compilation(chosen, options, stop, Path(dump) if dump else None, texts)
    if cuda := cuda_source(source):
        return run.from_cuda(*cuda, signature or {}, constexprs or {})
    start, text = _later_stage(source)
    if start and STAGES.index(stop) < STAGES.index(start):
        raise UsageError(f"cannot stop at {stop}: {source} is of the later stage {start}")
    if start is None:
        with run.timed("ttir"):
            module = build_module(source, signature or {}, constexprs or {}, options, chosen.capability)
        return run.from_module(module, "ttir")
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


def pipelines_of(module: Module, target: Target) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The passes over ttir and those to ttgir for a kernel."""
    return target.pipelines(bool(module.kernel.attrs.get("explicit_layouts")))


def is_unplaced(module: Module) -> bool:
    """Whether a kernel has layouts that are not to be changed, and its shared memory has no place yet: Triton's ttgir."""
    attrs = module.kernel.attrs
    return bool(attrs.get("explicit_layouts")) and "shared" not in attrs


def code_arch(module: Module, target: Target) -> str:
    """The architecture to generate code for: `Target.code_arch` by the operations of a kernel."""
    return target.code_arch(any(op.op_name.startswith("ttng.") for op in module.kernel.body.walk()))


def require_features(options: CompileOptions, target: Target) -> None:
    """Raise `UsageError` where an option that changes the code needs what a target lacks."""
    for option in options.lacking(target.features):
        if option.changes_code:
            raise UsageError(
                f"{option.name} is {getattr(options, option.name)}, but {target.arch} has no {option.feature}",
                help=f"it takes {' or '.join(arch for arch in ARCHS if find_target(arch).has(option.feature))}",
            )


def _parameters(kernel: Func) -> tuple[tuple[str, str], ...]:
    """Name and type of each parameter of a kernel."""
    names = [argument.name for argument in kernel.arguments]
    types = [str(argument.type) for argument in kernel.arguments]
    for argument in kernel.arguments:
        if isinstance(argument.type, DescriptorType):
            hints, block = kernel.argument_hints[argument.index], argument.type.block
            element = hints.get("rounding") or hints.get("element", block.element)
            sources = MapSources.parse(hints["tensor_map"]).renamed(lambda word: names[number_of(word)])
            made = TensorMapType(str(element), block.shape, hints["swizzle"], sources, "fill" in hints)
            types[argument.index] = str(made)
    return tuple(zip(names, types))


def _dots(module: Module) -> Sequence[Loc | None]:
    """The places of the warpgroup dots; the place of the kernel where there are none."""
    dots = [op.loc for op in module.kernel.body.walk() if isinstance(op, WarpGroupDot)]
    return dots or [module.kernel.loc]


def _serialized(dots: Sequence[Loc | None], notes: Sequence[Note]) -> list[CompileError]:
    """An error for each note of ptxas, at the dot that it is about; at the first dot where it names none."""
    # Given PTX has only its file as a place, whichever dot is meant.
    found = dict.fromkeys((dots[(note.dot or 0) if len(dots) > 1 else 0], str(note)) for note in notes)
    help = "smaller tiles, or more warps, take fewer registers of a thread; without strict this is a warning"
    return [CompileError(f"this dot runs slower than it could: {text}", loc, help) for loc, text in found]


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


@dataclass
class _Compilation:
    target: Target
    options: CompileOptions
    stop: str
    dump: Path | None
    texts: Collection[str]

    def __post_init__(self) -> None:
        self.arch = self.target.arch
        self.signature: tuple[tuple[str, str], ...] = ()
        self.seconds: dict[str, float] = {}
        self.asm: dict[str, Any] = {}
        if self.dump is not None:
            try:
                self.dump.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UsageError(f"cannot write to {self.dump}: {error.strerror}") from None

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - started

    def keep(self, stage: str, text: Callable[[], str]) -> bool:
        """Store a stage's text if it is wanted, and in the dump folder; whether to stop here."""
        if stage in self.texts or stage == self.stop or self.dump is not None:
            self.asm[stage] = text()
        if self.dump is not None:
            (self.dump / f"kernel.{stage}").write_text(self.asm[stage])
        return self.stop == stage

    def from_module(self, module: Module, start: str) -> Artifact:
        log = PassLog(self.dump)
        self.signature = kernel_signature(module)
        over_ttir, to_ttgir = pipelines_of(module, self.target)
        if start == "ttir":
            with self.timed("ttir"):
                run_pipeline(module, self.target, over_ttir, log)
            if self.keep("ttir", lambda: print_module(module, locations=self.options.lineinfo)):
                return self.finish(module)
        elif is_unplaced(module):
            run_pipeline(module, self.target, ("inline",), log)
        if start == "ttir" or is_unplaced(module):
            with self.timed("ttgir"):
                run_pipeline(module, self.target, to_ttgir, log)
        if self.keep("ttgir", lambda: print_module(module)):
            return self.finish(module)
        with self.timed("llir"):
            llir = lower_module(module, self.target, lineinfo=self.options.lineinfo)
        if self.keep("llir", lambda: llir):
            return self.finish(module)
        self.arch = code_arch(module, self.target)
        ptx = self.ptx_of(llir, fuses=module.kernel.attrs.get("enable_fp_fusion", True))
        if self.keep("ptx", lambda: ptx):
            return self.finish(module)
        facts, serialized = self.assembled(ptx, _dots(module))
        return self.finish(module, facts, serialized)

    def from_code(self, code: GivenCode) -> Artifact:
        """The stages after given LLVM or PTX; the metadata has what these texts say."""
        self.arch = code.arch(self.target)
        text = code.text
        if code.stage == "llir":
            if self.keep("llir", lambda: code.text):
                return self.finish_code(code)
            text = self.ptx_of(text, self.options.enable_fp_fusion)
        if self.keep("ptx", lambda: text):
            return self.finish_code(code)
        try:
            facts, serialized = self.assembled(text, [code.place])
        except ToolError:
            if not code.newer or code.newer == text:
                raise
            text = code.newer
            facts, serialized = self.assembled(text, [code.place])
            if "ptx" in self.asm:
                self.keep("ptx", lambda: text)
        return self.finish_code(code, facts, serialized)

    def from_cuda(
        self, path: str, function: str, signature: Mapping[str, Any], constexprs: Mapping[str, Any]
    ) -> Artifact:
        """The stages of a kernel in CUDA C++."""
        if self.stop not in ("ptx", "cubin"):
            raise UsageError(f"cannot stop at {self.stop}: CUDA C++ has the stages ptx and cubin")
        # Loading this takes as long as compiling a small kernel.
        from kbuild.compiler.cuda.front import compile_cuda

        def made(options: CompileOptions) -> GivenCode:
            return compile_cuda(path, function, signature, constexprs, self.target, options)

        def with_lines() -> tuple[str, ToolError | None]:
            code = made(self.options.changed({"lineinfo": True}))
            try:
                assemble(code.newer, self.arch, self.options.ptxas)
            except ToolError as error:
                return code.newer, error
            return code.newer, None

        with self.timed("ptx"):
            code = made(self.options)
        self.signature = code.signature
        try:
            return self.from_code(code)
        except ToolError as error:
            # Rarely needed, so it is not loaded at the top.
            from kbuild.compiler.cuda.assembler_errors import at_source

            raise ErrorGroup(at_source(error, code, with_lines) or [error]) from None

    def ptx_of(self, llir: str, fuses: bool) -> str:
        with self.timed("ptx"):
            return to_ptx(llir, self.target, self.arch, fuses=fuses)

    def assembled(self, ptx: str, dots: Sequence[Loc | None]) -> tuple[CubinFacts, tuple[str, ...]]:
        """Keep the cubin of a PTX text; its facts, and which dots ptxas serialized."""
        with self.timed("cubin"):
            cubin, facts = assemble(ptx, self.arch, self.options.ptxas, lineinfo=self.options.lineinfo)
        self.asm["cubin"] = cubin
        serialized = _serialized(dots, facts.notes)
        if serialized and self.options.strict:
            raise ErrorGroup(serialized)
        return facts, tuple(f"{error.loc}: {error.message}" for error in serialized)

    def finish_code(
        self, code: GivenCode, facts: CubinFacts | None = None, serialized: tuple[str, ...] = ()
    ) -> Artifact:
        options = self.options
        if options.block is None:  # Of the program's warps there is a power of two; others only copy.
            warps = -(-prod(code.block) // 32)
            options = options.changed({"num_warps": 1 << (min(warps, 32).bit_length() - 1), "num_ctas": 1})
        metadata = Metadata(
            name=code.name,
            target=self.target.arch,
            arch=self.arch,
            options=options,
            block=code.block,
            shared=code.shared,
            params=code.params,
            signature=self.signature or None,
            nvrtc_version=code.nvrtc_version,
            waits_for_launches=code.waits_for_launches,
            warnings=code.warnings,
            stage_seconds=self.seconds,
        ).with_facts(facts, serialized)
        self.require_shared(metadata, code.place)
        return Artifact(self.asm, metadata)

    def finish(
        self, module: Module, facts: CubinFacts | None = None, serialized: tuple[str, ...] = ()
    ) -> Artifact:
        attrs = module.kernel.attrs
        options = self.options.with_attributes(attrs)
        metadata = Metadata(
            name=module.kernel.name,
            target=self.target.arch,
            arch=self.arch,
            options=options,
            block=(32 * (attrs.get("num_warps", options.warps) + attrs.get("extra_warps", 0)), 1, 1),
            shared=attrs.get("shared", 0),
            params=_parameters(module.kernel),
            signature=self.signature,
            tma=tuple(attrs.get("tma", ())),
            waits_for_launches=any(isinstance(op, GridDependencyWait) for op in module.kernel.body.walk()),
            conversions=sum(
                isinstance(op, ConvertLayout) and op.scratch is not None for op in module.kernel.body.walk()
            ),
            stage_seconds=self.seconds,
        ).with_facts(facts, serialized)
        self.require_shared(metadata, module.kernel.loc)
        return Artifact(self.asm, metadata)

    def require_shared(self, metadata: Metadata, place: Loc | None) -> None:
        """Raise `CompileError` for a cubin that takes more shared memory than there is."""
        needed, most = metadata.shared + metadata.static_shared, self.target.limits.shared_bytes
        if "cubin" in self.asm and needed > most:
            text = f"{metadata.name} needs {needed} bytes of shared memory, {self.target.arch} has {most}"
            raise CompileError(text, place)
