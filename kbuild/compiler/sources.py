"""Where kernels stand, in whichever language: the digest of all in the sources that one depends on."""

from __future__ import annotations


def file_and_function(source: str) -> tuple[str, str]:
    """The parts of `file:function`; a function in CUDA C++ may have its namespaces before it."""
    path, colon, function = source.rpartition(".cu:")
    if colon:
        return f"{path}.cu", function
    path, _, function = source.rpartition(":")
    return path, function


def source_digest(path: str, function: str, places: bool = False, include: str | None = None) -> str:
    """The sha256 of a kernel's source and all that it reaches, by the language of its file.

    Comments and places do not count, unless `places` are wanted; `include` is the compile option of that name.
    Raises `KbuildError` for sources that cannot be read.
    """
    if path.endswith(".cu"):
        from kbuild.compiler.cuda.includes import cuda_digest  # Each language's module for its kernels alone.

        return cuda_digest(path, places, tuple(include.split(",")) if include else ())
    from kbuild.compiler.frontend.sources.digest import source_digest as python_digest  # As above.

    return python_digest(path, function, places)
