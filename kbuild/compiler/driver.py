"""compile(): a kernel's source through all stages, starting and stopping anywhere.

    source ─frontend─▶ ttir ─tensor pipeline─▶ ttir ─gpu pipeline─▶ ttgir ─lower─▶ llir ─LLVM─▶ ptx ─ptxas─▶ cubin

This is the one module that sees both ends, the frontend and the backend.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import kbuild.compiler.transforms  # noqa: F401  (registers the passes)
from kbuild.compiler.backend.cubin import CubinFacts, assemble, find_ptxas, keeps_operands
from kbuild.compiler.backend.llvm import to_ptx
from kbuild.compiler.backend.notes import Note
from kbuild.compiler.frontend import build_module
from kbuild.compiler.ir.core import Func, Module
from kbuild.compiler.ir.passes import PassLog, run_pipeline, split_pipeline
from kbuild.compiler.ir.printer import print_module
from kbuild.compiler.ir.types import DescriptorType
from kbuild.compiler.lower import lower_module
from kbuild.compiler.ops.gpu import ConvertLayout
from kbuild.compiler.ops.nvidia import WarpGroupDot
from kbuild.compiler.ops.tensor import GridDependencyWait
from kbuild.compiler.targets import Target, find_target
from kbuild.errors import CompileError, ErrorGroup, UsageError

STAGES = ("ttir", "ttgir", "llir", "ptx", "cubin")
CLUSTER_SIZES = (1, 2, 4, 8)
"""How many programs a cluster may have; 8 is the most that every GPU with clusters has."""
TENSOR_MAP_TYPE = "tensormap"
"""What the type of a parameter begins with that is a tensor map."""


@dataclass(frozen=True)
class Metadata:
    """What is known of a compiled kernel besides its code."""

    name: str
    """The entry's symbol."""
    target: str
    """The architecture asked for."""
    arch: str
    """The architecture of the code: `sm_90a` where `sm_90` was asked for and Hopper-only instructions are used."""
    num_warps: int
    num_stages: int
    shared: int
    """Bytes of dynamic shared memory a launch must ask for."""
    params: tuple[tuple[str, str], ...]
    """Name and type of each kernel parameter, in order.  Tensor maps, which the launcher encodes, come last; their type tells
    element, sizes of the box, bytes of the swizzle, base of the tensor, its sizes, and its strides but the last, which is 1:
    `tensormap f16 1x128x64 128 a Z,M,K stride_z,stride`.  Sizes and strides are names of parameters, or numbers.  The element
    `tf32` is an f32 that is rounded to tf32 as it is copied, `s32` an i32 with a sign; that of `f16:nan` fills what lies
    beyond the tensor with NaN."""
    tma: tuple[str, ...] = ()
    """Which loads of loops the copy engine does, and why not the others."""
    registers: int | None = None
    """Registers per thread; None before the stage `cubin`, like the four that follow."""
    spill_stores: int | None = None
    """Bytes."""
    spill_loads: int | None = None
    """Bytes."""
    ptxas_version: str | None = None
    extra_warps: int = 0
    """Warps of a launch besides `num_warps`, which only copy."""
    cluster_size: int = 1
    """Programs of a cluster, next to each other along the first axis of the grid, of whose size it is a divisor."""
    waits_for_launches: bool = False
    """Whether it waits for the launches before it by itself, so that it may begin before they have ended."""
    warnings: tuple[str, ...] = ()
    """What ptxas warned of, and with their places in the source the `serialized` ones."""
    serialized: tuple[str, ...] = ()
    """Dots that ptxas does not let run ahead as the code has them, which costs speed alone; `strict` refuses them."""
    conversions: int = 0
    """Changes of layout that go through shared memory; known from the stage `ttgir` on."""
    stage_seconds: Mapping[str, float] = field(default_factory=dict, compare=False)
    """Time spent by stage."""

    @property
    def warps(self) -> int:
        """Warps of a launch."""
        return self.num_warps + self.extra_warps


@dataclass(frozen=True)
class Artifact:
    """The result of `compile`: every stage's text, the cubin's bytes, and facts."""

    asm: Mapping[str, Any]
    """`ttir`, `ttgir`, `llir`, `ptx` as str and `cubin` as bytes, up to the stage asked for."""
    metadata: Metadata


def compile(
    source: str | Path | Callable[..., Any],
    *,
    signature: Mapping[str, str] | None = None,
    constexprs: Mapping[str, Any] | None = None,
    target: str = "sm_90",
    num_warps: int = 4,
    num_stages: int = 3,
    cluster_size: int = 1,
    debug: bool = False,
    stop: str = "cubin",
    lineinfo: bool = False,
    ptxas: str | None = None,
    dump: str | Path | None = None,
    texts: Collection[str] = STAGES,
    strict: bool = False,
) -> Artifact:
    """Compile one specialisation of a kernel.  Needs no GPU, and neither Triton nor torch.

    `source` is `"path/to/file.py:function"`, a function object (plain, `@kbuild.jit` or `@triton.jit`), or a file of a
    later stage (`.ttir`, `.ttgir`, `.llir`, `.ptx`) to start from.  `signature` gives the type of each run-time argument
    in Triton's spelling, with `:16` for "divisible by 16" and `:1` for "equal to one": `{"x": "*fp32:16", "n": "i32"}`.
    `constexprs` gives the values of the compile-time arguments.  `dump` is a folder for the IR after each pass.
    With `cluster_size` so many programs next to each other along the first axis of the grid form a cluster.
    `debug` compiles in `assert` and `tl.device_assert`, and with them checks that `+`, `-` and `*` of integers with fewer than
    64 bits do not overflow, as does `debug=True` of the kernel's decorator: where one fails the kernel stops.
    `texts` are the stages that the artifact is to have besides the last: printing others is left out.
    `ptxas` is the program that assembles the cubin, by default that of NVIDIA's wheels; the stages before it make allowance for
    its version, also where they stop short of it.
    With `strict` it is an error, and not a warning, that ptxas serializes a dot.

    Raises `CompileError` (or an `ErrorGroup` of them) for mistakes in the kernel, `UsageError` for wrong arguments here,
    `ToolError` when ptxas is missing or fails.
    """
    if stop not in STAGES:
        raise UsageError(f"unknown stage {stop!r}", hint=f"stages: {', '.join(STAGES)}")
    chosen = target_for(target, ptxas or (find_ptxas() if stop == "cubin" else None))
    require_clusters(cluster_size, chosen)
    run = _Compilation(chosen, num_warps, num_stages, stop, lineinfo, ptxas, Path(dump) if dump else None, texts, strict)
    start, text = _later_stage(source)
    if start is None:
        require_warps(num_warps)
        with run.timed("ttir"):
            module = build_module(source, signature or {}, constexprs or {}, num_warps, num_stages, debug, cluster_size)
        return run.from_module(module, "ttir")
    from kbuild.compiler.ir.given import blamed_on, read_module  # Compiling Python needs no parser.

    with blamed_on(str(source)):
        return run.from_module(read_module(text, str(source)), start)


def opt(text: str, passes: str | Sequence[str], target: str = "sm_90", file: str = "<ir>", dump: str | Path | None = None) -> str:
    """Run passes over the text of a module and print the result; `tensor` and `gpu` stand for a target's pipelines."""
    from kbuild.compiler.ir.given import blamed_on, read_module  # As above.

    chosen = find_target(target)
    names: list[str] = []
    for item in split_pipeline(passes) if isinstance(passes, str) else passes:
        stage = {"tensor": chosen.tensor_pipeline, "gpu": chosen.gpu_pipeline}.get(item.strip())
        names.extend(stage if stage is not None else (item,))
    with blamed_on(file):
        module = read_module(text, file)
        run_pipeline(module, chosen, names, PassLog(Path(dump) if dump else None))
        return print_module(module)


def target_for(arch: str, ptxas: str | None = None) -> Target:
    """The target of an architecture, for code that a ptxas assembles: a program, or one of the version that is preferred.

    Raises `UsageError` for an architecture that kbuild does not know, `ToolError` for a program that tells no version.
    """
    target = find_target(arch)
    if not target.has("wgmma"):  # The version does not matter, and asking for it may take a process.
        return target
    return replace(target, keeps_operands=keeps_operands(ptxas))


def code_arch(module: Module, target: Target) -> str:
    """The architecture to generate code for: `sm_90a` where a kernel for `sm_90` uses operations of Hopper alone."""
    special = any(op.op_name.startswith("ttng.") for op in module.kernel.body.walk())
    return target.accelerated_arch if special else target.arch


def require_warps(num_warps: int) -> None:
    """Raise `UsageError` unless a program may have so many warps."""
    if num_warps not in (1, 2, 4, 8, 16, 32):
        raise UsageError(f"num_warps is {num_warps!r}", hint="it must be a power of two from 1 to 32")


def require_clusters(cluster_size: int, target: Target) -> None:
    """Raise `UsageError` unless a target has clusters of so many programs."""
    if cluster_size not in CLUSTER_SIZES:
        raise UsageError(f"cluster_size is {cluster_size!r}", hint=f"it must be one of {', '.join(map(str, CLUSTER_SIZES))}")
    if cluster_size > 1 and not target.has("clusters"):
        raise UsageError(f"cluster_size is {cluster_size}, but {target.arch} has no clusters", hint="they begin with sm_90")


def _parameters(kernel: Func) -> tuple[tuple[str, str], ...]:
    """Name and type of each parameter of a kernel."""
    names = [argument.hint for argument in kernel.arguments]
    types = [str(argument.type) for argument in kernel.arguments]
    for argument in kernel.arguments:
        if isinstance(argument.type, DescriptorType):
            hints, block = kernel.argument_hints[argument.index], argument.type.block
            box = "x".join(map(str, block.shape))
            sources = re.sub(r"#(\d+)", lambda match: names[int(match[1])], hints["tensor_map"])
            element = hints.get("rounding") or hints.get("element", block.element)
            element = f"{element}:{hints['fill']}" if "fill" in hints else element
            types[argument.index] = f"{TENSOR_MAP_TYPE} {element} {box} {hints['swizzle']} {sources}"
    return tuple(zip(names, types))


def _serialized(module: Module, notes: Sequence[Note]) -> list[CompileError]:
    """An error for each note of ptxas, at the dot that it is about; at the first dot where it names none."""
    dots = [op.loc for op in module.kernel.body.walk() if isinstance(op, WarpGroupDot)] or [module.kernel.loc]
    found = dict.fromkeys((dots[note.dot or 0], str(note)) for note in notes)
    hint = "smaller tiles, or more warps, take fewer registers of a thread; without strict this is a warning"
    return [CompileError(f"this dot runs slower than it could: {text}", loc, hint) for loc, text in found]


def _later_stage(source: Any) -> tuple[str | None, str]:
    """The stage and text of a source that is a file of a later stage; (None, "") for Python."""
    suffix = Path(source).suffix.lstrip(".") if isinstance(source, str | Path) else ""
    if suffix not in STAGES:
        return None, ""
    if suffix not in ("ttir", "ttgir"):
        raise UsageError(f"cannot start from {source}", hint="start from a .py:function, a .ttir or a .ttgir")
    try:
        return suffix, Path(source).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {source}: {getattr(error, 'strerror', '') or 'it is not text'}") from None


@dataclass
class _Compilation:
    target: Target
    num_warps: int
    num_stages: int
    stop: str
    lineinfo: bool
    ptxas: str | None
    dump: Path | None
    texts: Collection[str]
    strict: bool = False

    def __post_init__(self) -> None:
        self.arch = self.target.arch
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
        if start == "ttir":
            with self.timed("ttir"):
                run_pipeline(module, self.target, self.target.tensor_pipeline, log)
            if self.keep("ttir", lambda: print_module(module, locations=self.lineinfo)):
                return self.finish(module)
            with self.timed("ttgir"):
                run_pipeline(module, self.target, self.target.gpu_pipeline, log)
        if self.keep("ttgir", lambda: print_module(module)):
            return self.finish(module)
        with self.timed("llir"):
            llir = lower_module(module, self.target, lineinfo=self.lineinfo)
        if self.keep("llir", lambda: llir):
            return self.finish(module)
        self.arch = code_arch(module, self.target)
        with self.timed("ptx"):
            ptx = to_ptx(llir, self.target, self.arch)
        if self.keep("ptx", lambda: ptx):
            return self.finish(module)
        with self.timed("cubin"):
            cubin, facts = assemble(ptx, self.arch, self.ptxas, lineinfo=self.lineinfo)
        self.asm["cubin"] = cubin
        serialized = _serialized(module, facts.notes)
        if serialized and self.strict:
            raise ErrorGroup(serialized)
        return self.finish(module, facts, tuple(f"{error.loc}: {error.message}" for error in serialized))

    def finish(self, module: Module, facts: CubinFacts | None = None, serialized: tuple[str, ...] = ()) -> Artifact:
        attrs = module.kernel.attrs
        metadata = Metadata(
            name=module.kernel.name,
            target=self.target.arch,
            arch=self.arch,
            num_warps=attrs.get("num_warps", self.num_warps),
            num_stages=attrs.get("num_stages", self.num_stages),
            shared=attrs.get("shared", 0),
            extra_warps=attrs.get("extra_warps", 0),
            cluster_size=attrs.get("cluster_size", 1),
            params=_parameters(module.kernel),
            tma=tuple(attrs.get("tma", ())),
            registers=facts.registers if facts else None,
            spill_stores=facts.spill_stores if facts else None,
            spill_loads=facts.spill_loads if facts else None,
            ptxas_version=facts.ptxas_version if facts else None,
            waits_for_launches=any(isinstance(op, GridDependencyWait) for op in module.kernel.body.walk()),
            warnings=(*facts.warnings, *serialized) if facts else (),
            serialized=serialized,
            conversions=sum(isinstance(op, ConvertLayout) and op.scratch is not None for op in module.kernel.body.walk()),
            stage_seconds=self.seconds,
        )
        if facts is not None and metadata.shared > self.target.shared_bytes:
            raise CompileError(f"{metadata.name} needs {metadata.shared} bytes of shared memory, {self.target.arch} has "
                               f"{self.target.shared_bytes}", module.kernel.loc)
        return Artifact(self.asm, metadata)
