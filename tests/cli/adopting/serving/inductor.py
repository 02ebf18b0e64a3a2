"""As much of torch's Inductor as writes the launch of a library's kernel, as texts of its modules, and programs of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

IR = """\
class V:
    class graph:
        cpp_wrapper = False


class Buffer:
    def __init__(self, name):
        self.name = name

    def codegen_reference(self):
        return self.name


class UserDefinedTritonKernel:
    def __init__(self, kernel, grid, values):
        self.kernel, self.grid, self.values = kernel, grid, values
        self.ordered_kwargs_for_cpp_kernel = [*values]

    def get_kernel_and_metadata(self):
        if not hasattr(self.kernel, "configs"):
            return self.kernel, [], [], []
        return self.kernel.fn, self.kernel.configs, [], []

    def get_kwargs_value(self, name):
        return self.values[name]

    def codegen(self, wrapper):
        wrapper.writeline("compiled.append(1)")
"""

WRAPPER = """\
def user_defined_triton_kernel_transitive_closure_source_code(kernel, epilogue_fusion=None):
    return kernel.src
"""


def put_inductor(torch: Any, folder: Path) -> None:
    """Has `torch._inductor` come from a folder."""
    files = {
        "__init__.py": "",
        "ir.py": IR,
        "codegen/__init__.py": "",
        "codegen/wrapper.py": WRAPPER,
    }
    for name, text in files.items():
        path = folder / "_inductor" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    torch.__path__ = [str(folder)]


class Program:
    """A program that Inductor writes."""

    def __init__(self) -> None:
        self.imports: list[str] = []
        self.lines: list[str] = []

    def add_import_once(self, line: str) -> None:
        if line not in self.imports:
            self.imports.append(line)

    def writeline(self, line: str) -> None:
        self.lines.append(line)

    def val_to_arg_str(self, value: Any) -> str:
        return str(value)

    def run(self, **values: Any) -> int:
        """Runs it with buffers and sizes; returns how many kernels it has compiled itself."""
        compiled: list[int] = []
        exec("\n".join([*self.imports, *self.lines]), {"compiled": compiled, **values})
        return len(compiled)
