"""LLVM text to PTX, through llvmlite: the only module that imports it.

LLVM gets little to do: the lowering folds and merges already, and ptxas optimises again.  What is left are inlining of
helper functions, instruction combining, and dead code.
"""

from __future__ import annotations

import re
from functools import lru_cache

import llvmlite.binding as llvm

from kbuild.compiler.targets import Target
from kbuild.errors import InternalError

OPTIONS = ("-nvptx-short-ptr", "-nvptx-fma-level=2", "-nvptx-mad-wide-opt")
"""Pointers to shared memory have 32 bits; products and sums contract to fma; wide multiply-adds are used."""


@lru_cache(maxsize=1)
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    # Options are global to the process, and must be set before a data layout is read.
    for option in OPTIONS:
        llvm.set_option("kbuild", option)


@lru_cache(maxsize=8)
def _machine(arch: str, feature: str) -> llvm.TargetMachine:
    _initialize()
    triple = llvm.Target.from_triple("nvptx64-nvidia-cuda")
    return triple.create_target_machine(cpu=arch, features=f"+{feature}", opt=3)


def to_ptx(text: str, target: Target, arch: str | None = None, feature: str | None = None) -> str:
    """The PTX of an LLVM module, for the target's architecture or a variant of it (`sm_90a`) and PTX version (`ptx80`).

    Raises `InternalError` when LLVM rejects the text: the lowering is wrong then.
    """
    machine = _machine(arch or target.arch, feature or target.ptx_feature)
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise InternalError(f"LLVM rejects the lowered kernel: {error}{_quoted(text, str(error))}") from error
    _optimize(module, machine)
    ptx = machine.emit_assembly(module)
    if ", llvm." in ptx:
        # An intrinsic that LLVM does not know becomes a call of an outside function.
        raise InternalError(f"LLVM does not know {', '.join(sorted(set(re.findall(r'call.*?, (llvm[.a-z0-9]+)', ptx))))}")
    return ptx


def _optimize(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.add_aggressive_dce_pass()
    passes.run(module, builder)


def _quoted(text: str, message: str) -> str:
    """The line of the text that a message of LLVM's parser names."""
    found = re.search(r":(\d+):\d+: error", message)
    lines = text.splitlines()
    number = int(found[1]) - 1 if found else len(lines)
    return f"\n    {lines[number].strip()}" if number < len(lines) else ""
