"""LLVM's library in the llvmlite package, called without the Python around it.

`import llvmlite.binding` takes 40 ms, longer than a small kernel takes to compile, nearly all of it for
classes that nothing here uses.  Loading the library alone takes 8, and the functions needed from it are few:
they are declared below, and a test compares the declarations with llvmlite's own.
"""

from __future__ import annotations

import importlib.util
from ctypes import CDLL, POINTER, byref, c_bool, c_char_p, c_int, c_size_t, c_uint, c_void_p
from functools import lru_cache
from pathlib import Path
from typing import Any

from kbuild.errors import ToolError

_OUT = POINTER(c_char_p)
"""Where a function leaves a message, which `LLVMPY_DisposeString` frees."""

DECLARATIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "LLVMPY_InitializeAllTargetInfos": (None, ()),
    "LLVMPY_InitializeAllTargets": (None, ()),
    "LLVMPY_InitializeAllTargetMCs": (None, ()),
    "LLVMPY_InitializeAllAsmPrinters": (None, ()),
    "LLVMPY_SetCommandLine": (None, (c_char_p, c_char_p)),
    "LLVMPY_GetTargetFromTriple": (c_void_p, (c_char_p, _OUT)),
    # Target, triple, processor, features, level, relocation model, code model, print, for a JIT, ABI.
    "LLVMPY_CreateTargetMachine": (
        c_void_p,
        (c_void_p, c_char_p, c_char_p, c_char_p, c_int, c_char_p, c_char_p, c_int, c_int, c_char_p),
    ),
    "LLVMPY_ContextCreate": (c_void_p, ()),
    "LLVMPY_ContextDispose": (None, (c_void_p,)),
    "LLVMPY_ParseAssembly": (c_void_p, (c_void_p, c_char_p, _OUT)),
    "LLVMPY_VerifyModule": (c_bool, (c_void_p, _OUT)),
    "LLVMPY_DisposeModule": (None, (c_void_p,)),
    "LLVMPY_CreatePipelineTuningOptions": (c_void_p, ()),
    "LLVMPY_DisposePipelineTuningOptions": (None, (c_void_p,)),
    "LLVMPY_CreatePassBuilder": (c_void_p, (c_void_p, c_void_p)),
    "LLVMPY_DisposePassBuilder": (None, (c_void_p,)),
    "LLVMPY_CreateNewModulePassManager": (c_void_p, ()),
    "LLVMPY_DisposeNewModulePassManger": (None, (c_void_p,)),
    "LLVMPY_module_AddAlwaysInlinerPass": (None, (c_void_p,)),
    "LLVMPY_module_AddInstCombinePass": (None, (c_void_p,)),
    "LLVMPY_module_AddSimplifyCFGPass": (None, (c_void_p,)),
    "LLVMPY_module_AddADCEPass": (None, (c_void_p,)),
    # Pass manager, module, pass builder.
    "LLVMPY_RunNewModulePassManager": (None, (c_void_p, c_void_p, c_void_p)),
    # Machine, module, whether to make an object file.
    "LLVMPY_TargetMachineEmitToMemory": (c_void_p, (c_void_p, c_void_p, c_int, _OUT)),
    "LLVMPY_GetBufferStart": (c_void_p, (c_void_p,)),
    "LLVMPY_GetBufferSize": (c_size_t, (c_void_p,)),
    "LLVMPY_DisposeMemoryBuffer": (None, (c_void_p,)),
    "LLVMPY_DisposeString": (None, (c_char_p,)),
    "LLVMPY_GetVersionInfo": (c_uint, ()),
}
"""Result and arguments of each function; everything that LLVM makes is a `void *` here."""


def library_path() -> Path:
    """The library's file, found without importing llvmlite.  Raises `ToolError` when it is not installed."""
    spec = importlib.util.find_spec("llvmlite")
    if spec is not None and spec.origin is not None:
        for path in sorted(Path(spec.origin).parent.glob("binding/*llvmlite*.so")):
            return path
    raise ToolError("llvmlite is not installed", help="pip install 'llvmlite>=0.50,<0.51'")


@lru_cache(maxsize=1)
def library() -> CDLL:
    """The loaded library, with its functions declared."""
    loaded = CDLL(str(library_path()))
    for name, (result, arguments) in DECLARATIONS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def llvm_version() -> str:
    """The version of LLVM, such as `22.1.0`."""
    number = library().LLVMPY_GetVersionInfo()
    return ".".join(str(number >> shift & 0xFF) for shift in (16, 8, 0))


class Message:
    """Text that a function of the library leaves, when it fails, in an argument made by `byref`."""

    def __init__(self) -> None:
        self._pointer = c_char_p()
        self.byref = byref(self._pointer)

    def take(self) -> str:
        """The text, which is freed; empty when the function left none."""
        text = (self._pointer.value or b"").decode(errors="replace")
        if self._pointer:
            library().LLVMPY_DisposeString(self._pointer)
            self._pointer.value = None
        return text
