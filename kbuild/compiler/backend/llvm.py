"""LLVM text to PTX.

LLVM gets little to do: the lowering folds and merges already, and ptxas optimises again.  What is left is
inlining of helper functions, instruction combining, and dead code.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import string_at
from functools import lru_cache

from kbuild.compiler.backend.extensions import in_two_steps
from kbuild.compiler.backend.llvm_library import Message, library
from kbuild.compiler.lower.core.function import TRIPLE
from kbuild.errors import InternalError
from kbuild.targets import Target

_IDLE_PASSES = "nary-reassociate,load-store-vectorizer"
"""Passes of LLVM's code generator that leave the PTX of all shipped kernels as it is, and take a twentieth of
its time."""
OPTIONS = ("-nvptx-short-ptr", "-nvptx-mad-wide-opt", f"-opt-disable={_IDLE_PASSES}")
"""Pointers to shared memory have 32 bits; wide multiply-adds are used."""
_FUSION = "-nvptx-fma-level"
"""Whether multiplications and additions contract to fma: 2, or 0 for `mul.rn` and `add.rn`, which ptxas does not
contract either."""
_GUARD = "-enable-poison-reuse-guard"
"""Straight-line strength reduction asks of each pair of sums whether one of them may be poison before one is
made of the other. Sums here carry no marks of the lowering's, only such as LLVM itself has proved, so the
question is one of cost.  Not asked, all addresses of a tile become one chain of sums, which is the shortest
code; but each waits for the one before, and the loop behind a long chain begins with copies of it.  Asked, it
takes time that grows with the square of their number."""
_GUARDED = range(48, 129)
"""Addresses in global memory for which it is asked: for 100 of them that takes a tenth of a second, for 400
three seconds."""
_ADDRESS = re.compile(r" = getelementptr [^,]+, ptr addrspace\(1\) ")

_LOCK = threading.Lock()
"""A machine serves one thread at a time, and options are those of the process."""
_SET: dict[str, str] = {}
"""The options as they are set, by name."""


@lru_cache(maxsize=1)
def _initialize() -> None:
    llvm = library()
    llvm.LLVMPY_InitializeAllTargetInfos()
    llvm.LLVMPY_InitializeAllTargets()
    llvm.LLVMPY_InitializeAllTargetMCs()
    llvm.LLVMPY_InitializeAllAsmPrinters()
    # These must be set before a data layout is read.
    for option in OPTIONS:
        _set_option(option)


def _set_option(option: str) -> None:
    """Set an option of LLVM for all that the process does from now on."""
    name = option.partition("=")[0]
    if _SET.get(name) != option:  # Setting one takes LLVM as long as parsing a hundred instructions.
        _SET[name] = option
        library().LLVMPY_SetCommandLine(b"kbuild", option.encode())


@lru_cache(maxsize=8)
def _machine(arch: str, feature: str) -> int:
    _initialize()
    llvm, message = library(), Message()
    triple = TRIPLE.encode()
    target = llvm.LLVMPY_GetTargetFromTriple(triple, message.byref)
    if not target:
        raise InternalError(f"LLVM has no target {TRIPLE}: {message.take()}")
    features = f"+{feature}".encode()
    return llvm.LLVMPY_CreateTargetMachine(
        target, triple, arch.encode(), features, 2, b"default", b"default", 0, 0, b""
    )


def to_ptx(
    text: str, target: Target, arch: str | None = None, feature: str | None = None, fuses: bool = True
) -> str:
    """The PTX of an LLVM module, for the target's architecture or a variant of it (`sm_90a`) and PTX version
    (`ptx80`).

    With `fuses`, a multiplication and the addition that uses it are rounded once.

    Raises `InternalError` when LLVM rejects the text: the lowering is wrong then.
    """
    with _LOCK:
        machine = _machine(arch or target.arch, feature or target.ptx_feature)
        _set_option(f"{_FUSION}={2 if fuses else 0}")
        _set_option(f"{_GUARD}={'true' if len(_ADDRESS.findall(text)) in _GUARDED else 'false'}")
        with _parsed(text) as module:
            _optimize(module, machine)
            ptx = _emit(module, machine)
    if ", llvm." in ptx:
        # An intrinsic that LLVM does not know becomes a call of an outside function.
        raise InternalError(
            f"LLVM does not know {', '.join(sorted(set(re.findall(r'call.*?, (llvm[.a-z0-9]+)', ptx))))}"
        )
    return in_two_steps(ptx)


@contextmanager
def _parsed(text: str) -> Iterator[int]:
    """The verified module of a text, in a context of its own, so that nothing of it stays behind."""
    llvm, message = library(), Message()
    context = llvm.LLVMPY_ContextCreate()
    module = llvm.LLVMPY_ParseAssembly(context, text.encode(), message.byref)
    try:
        if not module or llvm.LLVMPY_VerifyModule(module, message.byref):
            said = message.take()
            raise InternalError(f"LLVM rejects the lowered kernel: {said}{_quoted(text, said)}")
        yield module
    finally:
        if module:
            llvm.LLVMPY_DisposeModule(module)
        llvm.LLVMPY_ContextDispose(context)


def _optimize(module: int, machine: int) -> None:
    llvm = library()
    options = llvm.LLVMPY_CreatePipelineTuningOptions()
    builder = llvm.LLVMPY_CreatePassBuilder(machine, options)
    passes = llvm.LLVMPY_CreateNewModulePassManager()
    llvm.LLVMPY_module_AddAlwaysInlinerPass(passes)
    llvm.LLVMPY_module_AddInstCombinePass(passes)
    llvm.LLVMPY_module_AddSimplifyCFGPass(passes)
    llvm.LLVMPY_module_AddADCEPass(passes)
    llvm.LLVMPY_RunNewModulePassManager(passes, module, builder)
    llvm.LLVMPY_DisposeNewModulePassManger(passes)
    llvm.LLVMPY_DisposePassBuilder(builder)
    llvm.LLVMPY_DisposePipelineTuningOptions(options)


def _emit(module: int, machine: int) -> str:
    llvm, message = library(), Message()
    buffer = llvm.LLVMPY_TargetMachineEmitToMemory(machine, module, False, message.byref)
    if not buffer:
        raise InternalError(f"LLVM cannot print the kernel as PTX: {message.take()}")
    try:
        return string_at(llvm.LLVMPY_GetBufferStart(buffer), llvm.LLVMPY_GetBufferSize(buffer)).decode()
    finally:
        llvm.LLVMPY_DisposeMemoryBuffer(buffer)


def _quoted(text: str, message: str) -> str:
    """The line of the text that a message of LLVM's parser names."""
    found = re.search(r":(\d+):\d+: error", message)
    lines = text.splitlines()
    number = int(found[1]) - 1 if found else len(lines)
    return f"\n    {lines[number].strip()}" if number < len(lines) else ""
