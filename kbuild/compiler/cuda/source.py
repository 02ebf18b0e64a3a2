"""The kernels of a `.cu` file, read from its tokens: what a manifest has to agree with, without a compiler.

    template <int BM, class T>
    __global__ void __launch_bounds__(256) sgemm(const T *__restrict__ a, float *c, int n)

    CudaKernel("sgemm", template (BM: int, T: class), parameters (a: const T *__restrict__, c: float *, n: int))

Macros are not expanded and conditions not decided, but for `#if 0`: what a parameter's type really is, the compiler says
(`signature.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from kbuild.compiler.cuda.tokens import Token, comment_text, tokens
from kbuild.errors import CompileError, Loc, UsageError, nearest

SUFFIX = ".cu"
"""Of files in CUDA C++."""
_ATTRIBUTES = (
    "__launch_bounds__",
    "__cluster_dims__",
    "__block_size__",
    "__maxnreg__",
    "__attribute__",
    "__declspec",
    "alignas",
)
"""Words before a function's name that take parentheses."""
_TYPE_WORDS = (
    "int",
    "long",
    "short",
    "char",
    "float",
    "double",
    "bool",
    "signed",
    "unsigned",
    "const",
    "volatile",
)
"""Words that end the type of a parameter without a name."""
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}


@dataclass(frozen=True)
class CudaParameter:
    """One run-time parameter of a kernel."""

    name: str
    type: str
    """As written, without the name: `const T *__restrict__`."""
    loc: Loc


@dataclass(frozen=True)
class TemplateParameter:
    """One compile-time parameter of a kernel."""

    name: str
    type: str
    """`class` for a type; for a value its type, such as `int`."""
    default: str | None = None
    """The expression of its default, if it has one."""

    @property
    def is_type(self) -> bool:
        return self.type == "class"


@dataclass(frozen=True)
class CudaKernel:
    """A `__global__` function."""

    name: str
    """With its namespaces: `detail::sgemm`."""
    template: tuple[TemplateParameter, ...]
    parameters: tuple[CudaParameter, ...]
    loc: Loc
    doc: str = ""
    """The comment directly before it."""


@dataclass(frozen=True)
class CudaSource:
    """What one file has."""

    kernels: tuple[CudaKernel, ...]
    includes: tuple[tuple[str, bool, int], ...]
    """What it includes: the name, whether in quotation marks, and the line."""
    words: frozenset[str]
    """All identifiers, those of directives among them."""
    defined: dict[str, int]
    """The macros that it defines whatever is defined before, and the line of each."""
    tested: frozenset[str]
    """The macros of which it asks whether they are defined."""

    def kernel(self, name: str) -> CudaKernel | None:
        """The kernel of a name, with or without namespaces; None where there is none."""
        return next((one for one in self.kernels if name in (one.name, one.name.rpartition("::")[2])), None)


@lru_cache(maxsize=64)
def read_source(text: str, file: str) -> CudaSource:
    """The kernels and macros of a text; `file` is its name in messages."""
    own = _live(tokens(text))
    words = {token.text for token in own if token.kind == "word"}
    includes: list[tuple[str, bool, int]] = []
    defined: dict[str, int] = {}
    tested: set[str] = set()
    for token in own:
        if token.kind != "directive":
            continue
        inner = tokens(token.text.lstrip("# "))
        words |= {one.text for one in inner if one.kind == "word"}
        head, rest = (inner[0].text, inner[1:]) if inner else ("", ())
        if head == "include" and rest:
            name = token.text.partition("include")[2].strip()
            includes.append((name[1:-1], name.startswith('"'), token.line))
        elif head in ("ifdef", "ifndef") and rest:
            tested.add(rest[0].text)
        elif head in ("if", "elif"):
            following = zip(rest, rest[1:], [*rest[2:], rest[-1]] if rest else ())  # defined X, defined(X)
            tested |= {(c if b.text == "(" else b).text for a, b, c in following if a.text == "defined"}
        elif head == "define" and rest and rest[0].text not in tested:
            defined.setdefault(rest[0].text, token.line)
    code = [token for token in own if token.kind != "directive"]
    return CudaSource(
        tuple(_kernels(code, file)), tuple(includes), frozenset(words), defined, frozenset(tested)
    )


def read_file(path: str | Path, shown: str = "") -> CudaSource:
    """The contents of a file.  Raises `UsageError` where it cannot be read."""
    return read_source(text_of(path), shown or str(path))


def text_of(path: str | Path) -> str:
    """A file's text.  Raises `UsageError` where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"cannot read {path}: {getattr(error, 'strerror', '') or 'it is not text'}"
        ) from None


def cuda_source(source: Any) -> tuple[str, str] | None:
    """File and function of `sgemm.cu:sgemm`; None for a source that is no file in CUDA C++."""
    if not isinstance(source, str | os.PathLike):
        return None
    path, colon, function = str(source).rpartition(".cu:")
    if colon:
        return path + SUFFIX, function
    return (str(source), "") if str(source).endswith(SUFFIX) else None


def find_kernel(path: str | Path, name: str) -> CudaKernel:
    """The kernel of a file; without a name its only one.  Raises `CompileError` where there is no such kernel."""
    source = read_file(path)
    known = [one.name for one in source.kernels]
    if not name and len(known) == 1:
        return source.kernels[0]
    found = source.kernel(name) if name else None
    if found is None:
        close = nearest(name, known)
        advice = f"did you mean {close}?" if close else f"its kernels are {', '.join(known)}" if known else ""
        raise CompileError(
            f"{path} has no __global__ function {name}".rstrip()
            if name or not known
            else f"{path} has {len(known)} kernels",
            Loc(str(path), 1),
            advice,
        )
    return found


def _live(found: Sequence[Token]) -> list[Token]:
    """The tokens that `#if 0` does not take out."""
    kept: list[Token] = []
    dead = 0
    for token in found:
        head = token.text.lstrip("# ").split(" ")[0] if token.kind == "directive" else ""
        if dead:
            if head in ("if", "ifdef", "ifndef"):
                dead += 1
            elif head == "endif" or (dead == 1 and head in ("else", "elif")):
                dead -= 1
        elif head == "if" and token.text.lstrip("# ").split(" ")[1:] == ["0"]:
            dead = 1
        else:
            kept.append(token)
    return kept


def _kernels(code: Sequence[Token], file: str) -> Iterator[CudaKernel]:
    """The `__global__` functions that are defined, in order."""
    scopes: list[str] = []
    template: tuple[TemplateParameter, ...] = ()
    first: Token | None = None
    """Where the declaration begins that is being read."""
    place, opening = 0, ""
    while place < len(code):
        token = code[place]
        first = first or token
        if token.text == "template" and place + 1 < len(code) and code[place + 1].text == "<":
            end = _match(code, place + 1)
            template = _template(code[place + 2 : end])
            place = end
        elif token.text == "namespace":
            opening = _namespace(code, place)
        elif token.text == "__global__":
            found, place = _kernel(code, place, file, scopes, template, first)
            if found is not None:
                yield found
            template, first, opening = (), None, ""
            continue
        elif token.text == "{":
            scopes.append(opening)
            template, first, opening = (), None, ""
        elif token.text == "}":
            if scopes:
                scopes.pop()
            template, first = (), None
        elif token.text == ";":
            template, first, opening = (), None, ""
        place += 1


def _namespace(code: Sequence[Token], place: int) -> str:
    """The name of a namespace that is opened at a place; empty for one without."""
    words: list[str] = []
    for token in code[place + 1 : place + 20]:
        if token.text == "{":
            return "".join(words).replace("inline", "")
        if token.text in (";", "="):
            return ""
        words.append(token.text)
    return ""


def _kernel(
    code: Sequence[Token],
    place: int,
    file: str,
    scopes: Sequence[str],
    template: tuple[TemplateParameter, ...],
    first: Token,
) -> tuple[CudaKernel | None, int]:
    """The kernel whose `__global__` stands at a place, None where it is not defined here, and the place after its
    parameters."""
    place += 1
    name: Token | None = None
    while place < len(code) and code[place].text not in (";", "{", "}"):
        token = code[place]
        if token.text == "(" and name is not None and name.text not in _ATTRIBUTES:
            end = _match(code, place)
            parameters = tuple(_parameters(code[place + 1 : end], file))
            following = next((one.text for one in code[end + 1 :] if one.text in (";", "{")), "")
            full = "::".join([*(scope for scope in scopes if scope), name.text])
            loc = Loc(file, name.line, name.column, name.column + len(name.text))
            kernel = CudaKernel(full, template, parameters, loc, comment_text(first.comment))
            return (kernel if following == "{" else None), end + 1
        if token.text in ("(", "["):
            place = _match(code, place)
        name = token if token.kind == "word" else None
        place += 1
    return None, place


def _match(code: Sequence[Token], place: int) -> int:
    """The place of the bracket that closes the one at a place; the last token where none does."""
    opening = code[place].text
    closing, depth, inside = _CLOSING[opening], 0, 0
    for index in range(place, len(code)):
        text = code[index].text
        if opening == "<":  # Within other brackets it compares.
            inside += (text in ("(", "[", "{")) - (text in (")", "]", "}"))
        if inside > 0:
            continue
        depth += (text == opening) - (text == closing) - 3 * (opening == "<" and text == ">>>")
        if depth <= 0:
            return index
    return len(code) - 1


def _split(code: Sequence[Token]) -> Iterator[list[Token]]:
    """The parts between commas that stand in no brackets."""
    part: list[Token] = []
    place = 0
    while place < len(code):
        token = code[place]
        is_open = token.text in ("(", "[", "{") or (
            token.text == "<" and bool(part) and part[-1].kind == "word"
        )
        end = _match(code, place) if is_open else place
        if token.text == ",":
            yield part
            part = []
        else:
            part += code[place : end + 1]
        place = end + 1
    if part:
        yield part


def _template(code: Sequence[Token]) -> tuple[TemplateParameter, ...]:
    """The parameters of `template <…>`."""
    found: list[TemplateParameter] = []
    for number, part in enumerate(_split(code)):
        place = next((index for index, token in enumerate(part) if token.text == "="), len(part))
        head, default = part[:place], spelled(part[place + 1 :]) or None
        words = [token.text for token in head]
        named = head[-1].kind == "word" and len(head) > 1
        name = words.pop() if named else f"<{number}>"
        is_type = words[:1] in (["class"], ["typename"]) and "::" not in words
        found.append(TemplateParameter(name, "class" if is_type else " ".join(words), default))
    return tuple(found)


def _parameters(code: Sequence[Token], file: str) -> Iterator[CudaParameter]:
    """The run-time parameters between the parentheses of a function."""
    parts = [part for part in _split(code) if part]
    if len(parts) == 1 and [token.text for token in parts[0]] == ["void"]:
        return
    for number, part in enumerate(parts):
        stop = next((index for index, token in enumerate(part) if token.text in ("=", "[")), len(part))
        words = [index for index, token in enumerate(part[:stop]) if token.kind == "word"]
        has_name = len(words) > 1 and words[-1] == stop - 1 and part[words[-1]].text not in _TYPE_WORDS
        token = part[words[-1]] if has_name else part[0]
        name = token.text if has_name else f"<{number}>"
        is_array = stop < len(part) and part[stop].text == "["
        type_ = spelled(part[: words[-1]] if has_name else part[:stop]) + " *" * is_array
        loc = Loc(file, token.line, token.column, token.column + len(token.text))
        yield CudaParameter(name, type_, loc)


def spelled(code: Sequence[Token]) -> str:
    """Tokens as they would be written."""
    text = ""
    for before, token in zip([None, *code], code):
        is_apart = before is not None and before.kind == token.kind == "word"
        is_mark = token.text in ("*", "&") and before is not None and before.text not in ("*", "&")
        text += f"{' ' if is_apart or is_mark else ''}{token.text}"
    return text
