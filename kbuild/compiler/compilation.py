"""One compilation: the stages of a kernel, one after the other, up to the one asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf, prod
from pathlib import Path
from typing import Any

import kbuild.compiler.transforms  # noqa: F401  (registers the passes)
from kbuild.compiler.analysis.tensor_registers import loop_words
from kbuild.compiler.artifact import Artifact, Metadata
from kbuild.compiler.backend.cubin import CubinFacts, assemble
from kbuild.compiler.backend.elf import instruction_count
from kbuild.compiler.backend.given_code import GivenCode
from kbuild.compiler.backend.llvm import to_ptx
from kbuild.compiler.backend.notes import Note
from kbuild.compiler.backend.pressure import live_registers
from kbuild.compiler.frontend import kernel_signature
from kbuild.compiler.ir.core import Func, Module
from kbuild.compiler.ir.passes import PassLog, run_pipeline
from kbuild.compiler.ir.printer import print_module
from kbuild.compiler.ir.types import DescriptorType
from kbuild.compiler.lower import lower_module
from kbuild.compiler.ops.control import For, While
from kbuild.compiler.ops.gpu import ConvertLayout
from kbuild.compiler.ops.nvidia import WarpGroupDot
from kbuild.compiler.ops.tensor import GridDependencyWait, Load
from kbuild.errors import CompileError, ErrorGroup, Loc, ToolError, UsageError
from kbuild.options import CompileOptions
from kbuild.targets import Target
from kbuild.tensor_map import MapSources, TensorMapType, number_of

_FITS, _NEVER_FITS = 0.75, 3.0
"""The ratio of a text's `live_registers` to the registers of a thread up to which ptxas never spills, and from which on it
spills so much that its answer is not waited for."""
_FEW = 16
"""Bytes of a thread that may be in memory: more warps would cost more."""
_SHARE = 0.08
"""The part of all instructions that brings values to memory and back for which a multiprocessor's second program is not
given up: a single one waits for the loads of each iteration with all its warps."""
_WORTH = 0.75
"""How much of what a block keeps in memory may be left for more warps to be worth it."""


@dataclass
class Attempt:
    """A kernel after all stages that were asked for, but ptxas."""

    module: Module
    asm: dict[str, Any]
    arch: str = ""
    """The architecture of its code."""
    ptx: str = ""
    """Empty where an earlier stage is the last."""
    overfull: bool = False
    """Whether it was left before LLVM, since its loops carry more than the registers of a thread."""
    cubin: bytes = b""
    facts: CubinFacts | None = None
    """Those of the cubin, once it is made."""

    @property
    def warps(self) -> int:
        """Those of its block that compute."""
        return self.module.kernel.attrs["num_warps"]


@dataclass
class Compilation:
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

    def from_python(self, build: Callable[[], Module]) -> Artifact:
        """All stages of a kernel that `build` makes, with the warps that were asked for, or more where their threads have the
        registers for what would be in memory."""
        best = first = self.attempt(build)
        dump, self.dump = self.dump, None
        while self.wants_warps(best):
            try:
                wider = self.attempt(build, 2 * best.warps)
            except CompileError:  # Not all layouts are for any number of warps.
                break
            if self.spilled(wider) > _WORTH * self.spilled(best) or self.costs_the_second(best, wider):
                break
            best = wider
        self.dump = dump
        if best.overfull or (dump is not None and best is not first):
            best = self.attempt(build, best.warps, whole=True)
        return self.finish(best)

    def attempt(self, build: Callable[[], Module], warps: int | None = None, whole: bool = False) -> Attempt:
        """All stages of a kernel, with other warps than were asked for if some are given.  Unless it is to be `whole`, it is
        left before LLVM where it shows that more warps are wanted."""
        self.asm = {}
        with self.timed("ttir"):
            module = build()
        if warps is not None:
            module.kernel.attrs |= {"num_warps": warps, "asked_warps": self.options.num_warps}
        return self.stages(module, "ttir", whole)

    def wants_warps(self, attempt: Attempt) -> bool:
        """Whether an attempt keeps values in memory for which twice the warps have registers."""
        return (
            (attempt.overfull or bool(attempt.ptx))
            and self.may_widen(attempt.module)
            and self.spilled(attempt) >= _FEW * attempt.warps
        )

    def may_widen(self, module: Module) -> bool:
        """Whether a kernel may have twice the warps, and they twice the registers.

        A thread has 255 registers at most, so that fewer than eight warps do not have all of a multiprocessor's.  Authors who
        limit registers, or give layouts, have planned them.
        """
        attrs, limits = module.kernel.attrs, self.target.limits
        return (
            limits.registers_for(2 * 32 * attrs["num_warps"]) == limits.registers
            and self.options.max_registers is None
            and not attrs.get("explicit_layouts")
        )

    def is_overfull(self, module: Module) -> bool:
        """Whether a kernel that may have more warps has a loop whose values alone are more than the registers of a thread."""
        loops = (op for op in module.kernel.body.walk() if isinstance(op, For))
        return self.may_widen(module) and any(
            loop_words(loop) > self.target.limits.registers for loop in loops
        )

    def spilled(self, attempt: Attempt) -> float:
        """Bytes that an attempt keeps in memory, summed over one thread of each warp."""
        if attempt.overfull:
            return inf
        alive = live_registers(attempt.ptx) / self.target.limits.registers
        if alive < _FITS:
            return 0
        if alive > _NEVER_FITS:
            return inf
        try:
            return self.assembled(attempt).spill_stores * attempt.warps
        except ToolError:  # As without a ptxas, which PTX does not need.
            if self.stop == "cubin":
                raise
            return 0

    def costs_the_second(self, attempt: Attempt, wider: Attempt) -> bool:
        """Whether an attempt spills little, and only one program of a wider one fits where two of its own do, of which one
        works while the other waits for an iteration's loads."""
        return (
            _loads_in_loops(attempt.module)
            and self.spilling_share(attempt) < _SHARE
            and self.programs(wider) < 2
            and self.programs(attempt) >= 2
        )

    def programs(self, attempt: Attempt) -> int:
        """How many programs of an attempt a multiprocessor holds."""
        shared: int = attempt.module.kernel.attrs.get("shared", 0)
        return self.target.limits.programs(shared, attempt.warps, self.assembled(attempt).registers)

    def spilling_share(self, attempt: Attempt) -> float:
        """What part of the instructions of a spilling attempt bring values to memory and back; all, where that is not
        waited for."""
        if self.spilled(attempt) == inf:
            return 1
        facts = self.assembled(attempt)
        return (facts.spill_stores + facts.spill_loads) / 4 / instruction_count(attempt.cubin)

    def from_module(self, module: Module, start: str) -> Artifact:
        """The stages after a given module."""
        return self.finish(self.stages(module, start, whole=True))

    def stages(self, module: Module, start: str, whole: bool) -> Attempt:
        """The stages of a module, before ptxas; where more warps are wanted, those before LLVM, unless all are to be done."""
        log = PassLog(self.dump)
        self.signature = kernel_signature(module)
        over_ttir, to_ttgir = pipelines_of(module, self.target)
        if start == "ttir":
            with self.timed("ttir"):
                run_pipeline(module, self.target, over_ttir, log)
            if self.keep("ttir", lambda: print_module(module, locations=self.options.lineinfo)):
                return Attempt(module, self.asm)
        elif is_unplaced(module):
            run_pipeline(module, self.target, ("inline",), log)
        if start == "ttir" or is_unplaced(module):
            with self.timed("ttgir"):
                run_pipeline(module, self.target, to_ttgir, log)
        if self.keep("ttgir", lambda: print_module(module)):
            return Attempt(module, self.asm)
        if not whole and self.is_overfull(module):
            return Attempt(module, self.asm, overfull=True)
        with self.timed("llir"):
            llir = lower_module(module, self.target, lineinfo=self.options.lineinfo)
        if self.keep("llir", lambda: llir):
            return Attempt(module, self.asm)
        self.arch = code_arch(module, self.target)
        ptx = self.ptx_of(llir, fuses=module.kernel.attrs.get("enable_fp_fusion", True))
        self.keep("ptx", lambda: ptx)
        return Attempt(module, self.asm, self.arch, ptx)

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
            self.asm["cubin"], facts = self.cubin_of(text, self.arch)
        except ToolError:
            if not code.newer or code.newer == text:
                raise
            text = code.newer
            self.asm["cubin"], facts = self.cubin_of(text, self.arch)
            if "ptx" in self.asm:
                self.keep("ptx", lambda: text)
        return self.finish_code(code, facts, self.serialized(facts, [code.place]))

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

    def assembled(self, attempt: Attempt) -> CubinFacts:
        """The facts of an attempt's cubin, which is made if it is not there yet."""
        if attempt.facts is None:
            attempt.cubin, attempt.facts = self.cubin_of(attempt.ptx, attempt.arch)
        return attempt.facts

    def cubin_of(self, ptx: str, arch: str) -> tuple[bytes, CubinFacts]:
        """The cubin of a PTX text, and its facts."""
        with self.timed("cubin"):
            return assemble(ptx, arch, self.options.ptxas, lineinfo=self.options.lineinfo)

    def serialized(self, facts: CubinFacts, dots: Sequence[Loc | None]) -> tuple[str, ...]:
        """Which dots ptxas has serialized; with `strict` these are errors."""
        errors = _serialized(dots, facts.notes)
        if errors and self.options.strict:
            raise ErrorGroup(errors)
        return tuple(f"{error.loc}: {error.message}" for error in errors)

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

    def finish(self, attempt: Attempt) -> Artifact:
        self.asm, module, facts, serialized = attempt.asm, attempt.module, None, ()
        if self.stop == "cubin":
            facts = self.assembled(attempt)
            self.asm["cubin"], serialized = attempt.cubin, self.serialized(facts, _dots(module))
        attrs = module.kernel.attrs
        options = self.options.with_attributes(attrs)
        metadata = Metadata(
            name=module.kernel.name,
            target=self.target.arch,
            arch=attempt.arch or self.arch,
            options=options,
            block=(32 * (attrs.get("num_warps", options.warps) + attrs.get("extra_warps", 0)), 1, 1),
            shared=attrs.get("shared", 0),
            params=parameters_of(module.kernel),
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


def pipelines_of(module: Module, target: Target) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The passes over ttir and those to ttgir for a kernel."""
    return target.pipelines(bool(module.kernel.attrs.get("explicit_layouts")))


def _loads_in_loops(module: Module) -> bool:
    """Whether iterations load from global memory what they need themselves."""
    loops = (op for op in module.kernel.body.walk() if isinstance(op, For | While))
    return any(isinstance(op, Load) for loop in loops for op in loop.walk())


def is_unplaced(module: Module) -> bool:
    """Whether a kernel has layouts that are not to be changed, and its shared memory has no place yet: Triton's ttgir."""
    attrs = module.kernel.attrs
    return bool(attrs.get("explicit_layouts")) and "shared" not in attrs


def code_arch(module: Module, target: Target) -> str:
    """The architecture to generate code for: `Target.code_arch` by the operations of a kernel."""
    return target.code_arch(any(op.op_name.startswith("ttng.") for op in module.kernel.body.walk()))


def parameters_of(kernel: Func) -> tuple[tuple[str, str], ...]:
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
