"""One specialisation of a kernel in CUDA C++: from its source to PTX, by NVRTC.

sgemm.cu, sgemm, {BM: 16, T: fp32}   ▶   sgemm<16, float>   ▶   PTX of _Z5sgemmILi16EfEvPKT0_PS0_i
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kbuild.compiler.backend.given_code import GivenCode
from kbuild.compiler.cuda.diagnostics import NAMES, Diagnostic, diagnostics, warnings_in
from kbuild.compiler.cuda.headers import HeaderPath, header_path, lacks_cccl, needs_cccl
from kbuild.compiler.cuda.includes import Closure, closure
from kbuild.compiler.cuda.mangling import CppType, Unknown, parameter_types
from kbuild.compiler.cuda.nvrtc import NvrtcResult, nvrtc_version, run_nvrtc
from kbuild.compiler.cuda.ptx_text import (
    bounds_of,
    for_launches,
    is_accelerated,
    reduced,
    with_version,
)
from kbuild.compiler.cuda.signature import agrees, definition, given_template, headers_of, word_of
from kbuild.compiler.cuda.source import CudaKernel, find_kernel, text_of
from kbuild.compiler.cuda.tensor_maps import launched_type, parameter_type, require_map
from kbuild.errors import CompileError, ErrorGroup, Loc, UsageError, nearest
from kbuild.options import CompileOptions, block_text
from kbuild.targets import Target

_SIGNATURE = "\ntemplate <class kbuild_function> __device__ int kbuild_signature;\n"
"""Below the source: the name of this variable for the type of a kernel says what its parameters are."""
_HOST_HEADERS = (
    "NVRTC compiles code for devices alone: put code for the host, and what it includes, between "
    "#ifndef __CUDACC_RTC__ and #endif"
)


def compile_cuda(
    path: str,
    function: str,
    signature: Mapping[str, str | Sequence[str]],
    constexprs: Mapping[str, Any],
    target: Target,
    options: CompileOptions,
) -> GivenCode:
    """The PTX of a kernel for one block, with what a launch has to know.

    `constexprs` become arguments of the kernel's template, those that it has no parameter for macros.  Raises
    `CompileError` (or an `ErrorGroup` of them) for mistakes in the source, and where it does not agree with the signature;
    `UsageError` for constants that are none of the kernel's; `ToolError` where NVRTC or headers are missing.
    """
    kernel = find_kernel(path, function)
    unit = _Unit(path, kernel, dict(constexprs), target, options)
    unit.check_constants()
    result = unit.compiled()
    assert result.ptx is not None
    types = unit.types(result)
    parameters = _agreed(kernel, signature, types)
    entry = result.names[0]
    _check_bounds(kernel, result.ptx, entry, options)
    ptx = for_launches(reduced(result.ptx, entry), entry, options)
    return GivenCode(
        stage="ptx",
        text=with_version(ptx, target.ptx_feature),
        file=path,
        name=entry,
        block=options.threads,
        place=kernel.loc,
        params=tuple((name, parameter_type(name, given)) for name, given in parameters),
        signature=tuple((name, launched_type(given)) for name, given in parameters),
        shared=options.shared,
        nvrtc_version=nvrtc_version(),
        newer=ptx,
        warnings=warnings_in(diagnostics(result.log), unit.closure.files),
    )


@dataclass(frozen=True)
class _Unit:
    """What is compiled."""

    path: str
    kernel: CudaKernel
    constexprs: dict[str, Any]
    target: Target
    options: CompileOptions

    @cached_property
    def include(self) -> tuple[str, ...]:
        return tuple(self.options.include.split(",")) if self.options.include else ()

    @cached_property
    def closure(self) -> Closure:
        return closure(self.path, self.include)

    @cached_property
    def macros(self) -> dict[str, Any]:
        """The constants that are no parameters of the template."""
        template = {one.name for one in self.kernel.template}
        return {name: value for name, value in self.constexprs.items() if name not in template}

    @property
    def name(self) -> str:
        """The kernel, with the arguments of its template: `ns::sgemm<16, float>`."""
        arguments = given_template(self.kernel, self.constexprs)
        assert not isinstance(arguments, str), "check_constants found none missing"
        return f"{self.kernel.name}<{', '.join(arguments)}>" if self.kernel.template else self.kernel.name

    def check_constants(self) -> None:
        """Raise `UsageError` or `CompileError` for constants that are missing, or that nothing takes."""
        arguments = given_template(self.kernel, self.constexprs)
        if isinstance(arguments, str):
            raise CompileError(
                f"the template of {self.kernel.name} takes {arguments}, which has no value",
                self.kernel.loc,
                f"give it in config, or its values in matrix; on the command line: -c {arguments}=…",
            )
        parameters = [one.name for one in self.kernel.parameters]
        for name in self.macros:
            if name in parameters:
                raise UsageError(f"{name} is a run-time parameter of {self.kernel.name}", self.kernel.loc)
            if place := self.closure.definition(name):
                raise CompileError(
                    f"{name} is given a value, and the source defines it as well",
                    Loc(*place),
                    f"put its definition between #ifndef {name} and #endif",
                )
            if name not in self.closure.words:
                known = [one.name for one in self.kernel.template]
                close = nearest(name, [*known, *sorted(self.closure.words)])
                raise UsageError(
                    f"{name} is neither a parameter of the template of {self.kernel.name} nor a name in {self.path}",
                    self.kernel.loc,
                    f"did you mean {close}?" if close else "",
                )

    def compiled(self) -> NvrtcResult:
        """What NVRTC makes, for the architecture that the code takes."""
        arch = self.target.code_arch(False)
        accelerated = self.target.code_arch(True)
        if accelerated != arch and self.may_be_accelerated():
            result = self.run(accelerated)
            if is_accelerated(reduced(result.ptx or "", result.names[0])):
                return result
        return self.run(arch)

    def may_be_accelerated(self) -> bool:
        """Whether the code could have instructions of its architecture alone: the source writes them, or takes a library
        that does."""
        libraries = ("cute/", "cutlass/", "cuda/ptx")
        return any(name.startswith(libraries) for name in self.closure.names) or any(
            is_accelerated(text_of(file)) or "__CUDA_ARCH_" in text_of(file) for file in self.closure.files
        )

    def run(self, arch: str) -> NvrtcResult:
        """The PTX for an architecture.  Raises the errors of the compiler."""
        name = self.name
        text = text_of(self.path) + _SIGNATURE
        expressions = (name, f"&kbuild_signature<decltype(&{name})>")
        with_cccl = needs_cccl(self.closure.names)
        result = self.made(text, arch, expressions, with_cccl)
        if not with_cccl and lacks_cccl(result.log):
            result = self.made(text, arch, expressions, True)
        if result.ptx is None:
            found = [one for one in diagnostics(result.log) if one.kind == "error"]
            if not found:
                raise CompileError(f"NVRTC failed:\n{result.log.strip()}", self.kernel.loc)
            raise ErrorGroup(self.errors(found))
        return result

    def made(self, text: str, arch: str, expressions: Sequence[str], with_cccl: bool) -> NvrtcResult:
        """What NVRTC makes of a text, with the headers of CCCL or without."""
        headers = header_path(self.include, with_cccl)
        return run_nvrtc(text, self.path, self.flags(arch, headers), dict(headers.texts), expressions)

    def flags(self, arch: str, headers: HeaderPath) -> list[str]:
        """The options of NVRTC."""
        options = self.options
        # A virtual architecture: for a real one NVRTC assembles the code, too.
        # Without the cache, which NVRTC keeps where there is a driver: kbuild has its own.
        found = [f"-arch={arch.replace('sm_', 'compute_')}", f"-std=c++{options.cpp_std}", "--no-cache"]
        found += ["-lineinfo"] * options.lineinfo + ["-fmad=false"] * (not options.enable_fp_fusion)
        found += ["--use_fast_math"] * options.use_fast_math + ["-DNDEBUG"] * (not options.debug)
        found += [f"-D{name}={definition(value)}" for name, value in self.macros.items()]
        found += [f"--pre-include={header}" for header in headers_of(self.constexprs)]
        found += [f"-I{folder}" for folder in (os.path.dirname(self.path) or ".", *headers.folders)]
        return found

    def errors(self, found: Sequence[Diagnostic]) -> list[CompileError]:
        """The errors of the compiler; those about the kernel's name, at the kernel."""
        own = [one for one in found if one.loc.file != NAMES]
        if not own:
            shown = ", ".join(f"{one.type} {one.name}" for one in self.kernel.template)
            said = found[0].message
            message = f"{self.name} is no kernel: {said}"
            return [CompileError(message, self.kernel.loc, f"its template is <{shown}>" if shown else "")]
        return [self.error(one) for one in own]

    def error(self, one: Diagnostic) -> CompileError:
        made = one.error()
        if "cannot open source file" in one.message or "could not open source file" in one.message:
            made.help = _HOST_HEADERS
        return made

    def types(self, result: NvrtcResult) -> tuple[CppType, ...]:
        """The types of the kernel's parameters."""
        try:
            found = parameter_types(result.names[1])
        except Unknown as error:
            raise CompileError(
                f"the parameters of {self.kernel.name} have types that no package passes: {error}",
                self.kernel.loc,
            ) from None
        if len(found) != len(self.kernel.parameters):
            raise CompileError(
                f"{self.kernel.name} has {len(found)} parameters, of which {len(self.kernel.parameters)} are written out",
                self.kernel.loc,
                "parameters of a kernel are not made by macros",
            )
        return found


def _agreed(
    kernel: CudaKernel, signature: Mapping[str, str | Sequence[str]], types: Sequence[CppType]
) -> list[tuple[str, str]]:
    """The name of each parameter, and its type as the signature has it, in order.  Raises an `ErrorGroup` of `CompileError`
    where the signature, if there is one, says something else."""
    errors: list[CompileError] = []
    found: list[tuple[str, str]] = []
    names = [one.name for one in kernel.parameters]
    for name in signature:
        if name not in names:
            close = nearest(name, names)
            help = f"did you mean {close}?" if close else f"it has {', '.join(names)}"
            errors.append(CompileError(f"{kernel.name} has no parameter {name}", kernel.loc, help))
    for one, type_ in zip(kernel.parameters, types):
        word = word_of(type_)
        given = signature.get(one.name, word if not signature else None)
        if word is None:
            message = f"the parameter {one.name} is {type_}, which no package passes"
            errors.append(CompileError(message, one.loc, "it may be a pointer, a number, or a CUtensorMap"))
        elif given is None:
            errors.append(
                CompileError(
                    f"the parameter {one.name} is no argument of [kernel.args]",
                    one.loc,
                    f'write {one.name} = "{word}"',
                )
            )
        elif not isinstance(given, str) or not agrees(given, type_):
            message = f'the parameter {one.name} is {type_}, but args.{one.name} of the manifest is "{given}"'
            errors.append(
                CompileError(
                    message, one.loc, f'write {one.name} = "{word}" in [kernel.args], or change the parameter'
                )
            )
        else:
            require_map(one, given)
            found.append((one.name, given))
    if errors:
        raise ErrorGroup(errors)
    return found


def _check_bounds(kernel: CudaKernel, ptx: str, entry: str, options: CompileOptions) -> None:
    """Raise `CompileError` where the source forbids the block."""
    bounds = bounds_of(ptx, entry)
    threads = options.threads[0] * options.threads[1] * options.threads[2]
    if options.block is None:
        most = f"; __launch_bounds__ says up to {bounds.most} threads" if bounds.most else ""
        raise CompileError(
            f"nothing says how many threads a block of {kernel.name} has{most}",
            kernel.loc,
            "write block = [16, 16] in the manifest, or --block 16x16 on the command line",
        )
    if bounds.most is not None and threads > bounds.most:
        raise CompileError(
            f"block is {options.block}, {threads} threads, and __launch_bounds__ of {kernel.name} says at most {bounds.most}",
            kernel.loc,
            "make `block` of the manifest smaller, or the bound larger",
        )
    if bounds.exactly is not None and bounds.exactly != options.threads:
        raise CompileError(
            f"block is {options.block}, and {kernel.name} is for blocks of {block_text(bounds.exactly)} threads",
            kernel.loc,
            "`block` of the manifest has to be the same",
        )
    cluster = bounds.cluster
    if cluster is not None and options.cluster_size not in (1, cluster[0]):
        raise CompileError(
            f"cluster_size is {options.cluster_size}, and __cluster_dims__ of {kernel.name} says {block_text(cluster)}",
            kernel.loc,
        )
