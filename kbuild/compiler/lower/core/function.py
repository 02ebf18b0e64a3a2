"""The text around a kernel's body: signature, attributes, declarations, and debug locations."""

from __future__ import annotations

import re
from pathlib import PurePath

from kbuild.compiler.analysis.pressure import resident_programs
from kbuild.compiler.ir.core import Func
from kbuild.compiler.ir.types import I1, DescriptorType, PointerType, Type
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.literals import llvm_type
from kbuild.errors import Loc, shown_path

TRIPLE = "nvptx64-nvidia-cuda"
DATA_LAYOUT = (
    "e-p3:32:32-p4:32:32-p5:32:32-p6:32:32-p7:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
)
"""That of NVPTX with 32-bit pointers to shared, constant and local memory."""

TENSOR_MAP = "[16 x i64]"
"""A CUtensorMap.  As a constant of the grid it is read where it is, and not copied to the stack."""


def module_text(emit: Emitter, debug: DebugInfo | None) -> str:
    """The LLVM module of the kernel that an emitter has written."""
    body = emit.finish()
    func = emit.func
    parameters = ", ".join(_parameter(func, index, name) for index, name in enumerate(parameter_names(func)))
    threads = 32 * (emit.num_warps + emit.extra_warps)
    attributes = f'"nvvm.reqntid"="{threads}" nounwind'
    if (programs := func.attrs.get("cluster_size", 1)) > 1:
        attributes += f' "nvvm.cluster_dim"="{programs},1,1"'
    if (most := func.attrs.get("max_registers")) is not None:
        if "num_ctas" in func.attrs:  # The author has counted with the registers of several multiprocessors.
            most = min(most, emit.target.limits.registers_for(threads))
        attributes += f' "nvvm.maxnreg"="{most}"'
    elif not emit.extra_warps and not func.attrs.get("explicit_layouts"):
        # Authors of Gluon plan registers themselves.
        programs = resident_programs(func, emit.num_warps, emit.target.limits)
        attributes += f' "nvvm.minctasm"="{programs}"' if programs else ""
    suffix = f" !dbg !{debug.subprogram}" if debug is not None else ""
    lines = [
        f'target datalayout = "{DATA_LAYOUT}"',
        f'target triple = "{TRIPLE}"',
        "",
        *emit.globals,
        "",
    ]
    lines += [*emit.declarations.values(), ""]
    lines.append(f"define ptx_kernel void @{func.name}({parameters}) {attributes}{suffix} {{")
    lines += ["entry:", *body, "}", ""]
    if debug is not None:
        lines += debug.named()
    lines += [f"!{number} = {line}" for number, line in enumerate(emit.metadata)]
    return "\n".join(lines) + "\n"


def parameter_type(type_: Type) -> str:
    """The LLVM type in which a kernel takes an argument: i1 as a byte."""
    return "i8" if type_ == I1 else llvm_type(type_)


def parameter_names(func: Func) -> list[str]:
    """The LLVM names of a kernel's parameters: those of the source where LLVM takes them."""
    names: list[str] = []
    for index, argument in enumerate(func.arguments):
        proper = re.fullmatch(r"(?!v\d+$)[A-Za-z_]\w*", argument.name, re.ASCII)
        name = f"%{argument.name}" if proper else f"%arg{index}"
        names.append(name if name not in names else f"%arg{index}")
    return names


def _parameter(func: Func, index: int, name: str) -> str:
    argument = func.arguments[index]
    hints = func.argument_hints[index] if index < len(func.argument_hints) else {}
    if isinstance(argument.type, DescriptorType):
        return f'ptr byval({TENSOR_MAP}) align 64 "nvvm.grid_constant" {name}'
    divisibility = hints.get("divisibility", 1)
    aligned = (
        isinstance(argument.type, PointerType)
        and divisibility >= 16
        and not divisibility & (divisibility - 1)
    )
    return f"{parameter_type(argument.type)}{f' align {divisibility}' if aligned else ''} {name}"


class DebugInfo:
    """Line tables: which line of the user's source each instruction comes from, with the chain of inlined
    calls."""

    def __init__(self, emit: Emitter) -> None:
        self.emit = emit
        self.files: dict[str, int] = {}
        self.scopes: dict[tuple[str, str], int] = {}
        self.locations: dict[tuple[Loc, int | None], int] = {}
        places = (op.loc.frames()[0] for op in emit.func.body.walk() if op.loc is not None)
        loc = emit.func.loc or next(places, Loc("<unknown>", 1))
        self.unit = self._add("")
        emit.metadata[self.unit] = (
            f"distinct !DICompileUnit(language: DW_LANG_C, file: !{self._file(loc.file)}, isOptimized: true, "
            'producer: "kbuild", runtimeVersion: 0, emissionKind: DebugDirectivesOnly)'
        )
        self.flags = (
            self._add('!{i32 2, !"Debug Info Version", i32 3}'),
            self._add('!{i32 2, !"Dwarf Version", i32 2}'),
        )
        self.type = self._add("!DISubroutineType(types: !{})")
        self.subprogram = self._subprogram(loc.file, emit.func.name, loc.line)
        self.scopes[loc.file, ""] = self.subprogram
        emit.location_suffix = self.suffix
        emit.entry.suffix = emit.chunk.suffix = (
            f", !dbg !{self._add(self._location(loc, self.subprogram, None))}"
        )

    def named(self) -> list[str]:
        """The named metadata of the module."""
        return [
            f"!llvm.dbg.cu = !{{!{self.unit}}}",
            f"!llvm.module.flags = !{{!{self.flags[0]}, !{self.flags[1]}}}",
        ]

    def suffix(self, loc: Loc | None) -> str:
        """The end of a line of an operation at `loc`."""
        return self.emit.entry.suffix if loc is None else f", !dbg !{self._inlined(loc)}"

    def _inlined(self, loc: Loc) -> int:
        caller: int | None = None
        for frame in loc.frames():
            key = (frame, caller)
            if key not in self.locations:
                # The kernel's own frame lies in its subprogram; each inlined function gets one by file and
                # name.
                name = "" if caller is None else frame.function or "inlined"
                scope = self.scopes.get((frame.file, name))
                if scope is None:
                    scope = self.scopes[frame.file, name] = (
                        self.subprogram if caller is None else self._subprogram(frame.file, name, frame.line)
                    )
                self.locations[key] = self._add(self._location(frame, scope, caller))
            caller = self.locations[key]
        assert caller is not None
        return caller

    def _location(self, loc: Loc, scope: int, caller: int | None) -> str:
        inlined = f", inlinedAt: !{caller}" if caller is not None else ""
        kind = "distinct !DILocation" if caller is not None else "!DILocation"
        return f"{kind}(line: {loc.line}, column: {loc.column}, scope: !{scope}{inlined})"

    def _subprogram(self, file: str, name: str, line: int) -> int:
        source = self._file(file)
        return self._add(
            f'distinct !DISubprogram(name: "{name}", linkageName: "{name}", scope: !{source}, file: !{source}, '
            f"line: {line}, type: !{self.type}, scopeLine: {line}, spFlags: DISPFlagDefinition | DISPFlagOptimized, "
            f"unit: !{self.unit})"
        )

    def _file(self, file: str) -> int:
        if file not in self.files:
            # From the project's directory, in which builds compile: the same wherever the same is built.
            path = PurePath(shown_path(file))
            self.files[file] = self._add(f'!DIFile(filename: "{path.name}", directory: "{path.parent}")')
        return self.files[file]

    def _add(self, text: str) -> int:
        self.emit.metadata.append(text)
        return len(self.emit.metadata) - 1
