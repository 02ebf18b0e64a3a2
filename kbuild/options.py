"""How a kernel is compiled, besides its arguments and their specializations: one record, from which
everything else derives.

The keys of the manifest and their JSON schema, the flags of the command line, the keywords of `compile()`,
names and identities of variants, tuning and verification all read the fields of `CompileOptions`.  A new
option is a field here, and its use.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from math import prod
from typing import Any, Literal

from kbuild.errors import UsageError, nearest

Value = bool | int | str | None
Scope = Literal["variant", "kernel", "request"]
Block = tuple[int, int, int]
"""Threads of a block along x, y and z."""
CUDA, TRITON = "cuda", "triton"
"""The languages of kernels: CUDA C++, and Triton's, which is the same as kbuild's."""
MAX_THREADS = 1024
"""Threads of a block on every architecture."""
_BLOCK = r"[1-9]\d{0,3}(?:x[1-9]\d{0,3}){0,2}"
_LARGEST_BLOCK = (1024, 1024, 64)
"""The same along each axis: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"."""


@dataclass(frozen=True)
class Option:
    """One field of `CompileOptions`, with all its properties."""

    name: str
    """The field; the key of the manifest; with dashes, the flag."""
    default: Value
    doc: str
    """What it is, or what true does: a phrase for help texts and tables."""
    kind: type
    """Of its values: `bool`, `int` or `str`."""
    scope: Scope = "variant"
    """`variant`: part of what a manifest asks for, and of a variant's name.  `kernel`: the same, but a key of the
    kernel rather than of its configurations.  `request`: of one build, compilation or check."""
    choices: tuple[int, ...] = ()
    """The only legal values, if not empty."""
    limits: tuple[int, int] | None = None
    """The least and the largest legal value."""
    tag: str = ""
    """How a variant's name shows a value that is not the default: `c{}` with the number in place of the
    braces."""
    is_shown: bool = False
    """Whether names, attributes and command lines show it where it has its default as well."""
    alias: str = ""
    """Triton's name for it, which is understood wherever its own is."""
    feature: str = ""
    """The feature of an architecture that it needs; without that, a manifest's value has no effect."""
    needs_feature: bool = False
    """Whether a manifest's value is a mistake there instead."""
    changes_code: bool = True
    """Whether the cubin depends on it."""
    is_attribute: bool = True
    """Whether the IR carries it, as an attribute of the function."""
    is_flag: bool = True
    """Whether commands that compile have a flag for it."""
    may_be_parameter: bool = False
    """Whether an argument or axis of a kernel may have its name."""
    language: str = ""
    """The language of the kernels that it is for; empty for those of all."""
    is_block: bool = False
    """Whether its values are sizes of blocks, such as `16x16`."""

    @property
    def names(self) -> tuple[str, ...]:
        """Its name, and Triton's for it if that is another."""
        return (self.name, self.alias) if self.alias else (self.name,)

    @property
    def expected(self) -> str:
        """The legal values in words: `1, 2, 4 or 8`, `1 to 16`."""
        if self.choices:
            return ", ".join(map(str, self.choices[:-1])) + f" or {self.choices[-1]}"
        if self.limits:
            return f"{self.limits[0]} to {self.limits[1]}"
        if self.is_block:
            return (
                f"up to three numbers with x between them, such as 16x16, for at most {MAX_THREADS} threads"
            )
        return {bool: "true or false", int: "an integer", str: "a text"}[self.kind]

    def is_legal(self, value: object) -> bool:
        """Whether the option may have a value."""
        if value is None or value == self.default:
            return value == self.default and type(value) is type(self.default)
        if type(value) is not self.kind:
            return False
        if self.is_block:
            return re.fullmatch(_BLOCK, str(value)) is not None and is_block(
                [*map(int, str(value).split("x"))]
            )
        if self.choices:
            return value in self.choices
        return self.limits is None or (isinstance(value, int) and self.limits[0] <= value <= self.limits[1])

    @property
    def schema(self) -> Mapping[str, Any]:
        """Its values as a fragment of JSON Schema."""
        if self.choices:
            return {"enum": list(self.choices)}
        if self.limits:
            return {"type": "integer", "minimum": self.limits[0], "maximum": self.limits[1]}
        return {"type": {bool: "boolean", int: "integer", str: "string"}[self.kind]}

    @property
    def flag(self) -> str:
        """What turns it from its default, on the command line."""
        return ("--no-" if self.default is True else "--") + self.name.replace("_", "-")


def option(default: Value, doc: str, kind: type | None = None, **known: Any) -> Any:
    """A field of `CompileOptions`; `known` are those of `Option`."""
    return field(default=default, metadata={"doc": doc, "kind": kind or type(default), **known})


@dataclass(frozen=True)
class CompileOptions:
    """How a kernel is compiled, besides its arguments and their specializations."""

    num_warps: int = option(
        4, "warps per program", choices=(1, 2, 4, 8, 16, 32), tag="w{}", is_shown=True, language=TRITON
    )
    num_stages: int = option(
        3, "depth of software pipelines", limits=(1, 16), tag="s{}", is_shown=True, language=TRITON
    )
    block: str | None = option(
        None,
        "threads of a block along each axis, as 128 or 16x16, of a kernel in CUDA C++; `num_warps` follows from it",
        str,
        scope="kernel",
        is_block=True,
        tag="t{}",
        language=CUDA,
        is_attribute=False,
    )
    shared: int = option(
        0,
        "bytes of dynamic shared memory of a kernel in CUDA C++",
        scope="kernel",
        limits=(0, 1 << 20),
        tag="m{}",
        language=CUDA,
        is_attribute=False,
    )
    include: str | None = option(
        None,
        "folders that a kernel in CUDA C++ includes headers from, with commas between them; `wheel:folder` is a folder "
        "of an installed wheel",
        str,
        scope="kernel",
        language=CUDA,
        is_attribute=False,
    )
    cluster_size: int = option(
        1,
        "programs of a cluster, next to each other along the first axis of the grid, whose size it divides; they copy "
        "together the tiles that they share; without effect on architectures without `wgmma`",
        choices=(1, 2, 4, 8),
        tag="c{}",
        feature="clusters",
    )
    num_ctas: int = option(
        1,
        "blocks that share the work of one program in Triton, on sm_90 and later; here one block does it, with the warps "
        "of all, up to 32",
        choices=(1, 2, 4, 8, 16),
        tag="ctas{}",
        feature="thread_block_clusters",
        needs_feature=True,
        may_be_parameter=True,
        language=TRITON,
    )
    max_registers: int | None = option(
        None,
        "the largest number of registers of a thread, so that more programs fit into a multiprocessor; other values are spilled",
        int,
        limits=(16, 255),
        tag="r{}",
        alias="maxnreg",
    )
    enable_fp_fusion: bool = option(
        True, "round a product and the sum that it enters once, by a fused multiply-add", tag="nofma"
    )
    use_fast_math: bool = option(
        False,
        "let a kernel in CUDA C++ compute faster and less exactly, by `--use_fast_math` of NVRTC",
        tag="fast",
        language=CUDA,
        is_attribute=False,
    )
    cpp_std: int = option(
        17,
        "the version of C++ that a kernel is written in",
        choices=(17, 20),
        tag="std{}",
        language=CUDA,
        is_attribute=False,
    )
    launch_pdl: bool = option(
        False,
        "let a launch begin before the one before it in its stream has ended (programmatic dependent launch); the kernel "
        "waits for that one by `tl.extra.cuda.gdc_wait()`; without effect before sm_90",
        tag="pdl",
        feature="griddepcontrol",
        changes_code=False,
        is_attribute=False,
        is_flag=False,
    )
    debug: bool = option(
        False,
        "compile in `assert`, `tl.device_assert` and checks that integers do not overflow",
        tag="debug",
        is_attribute=False,
        may_be_parameter=True,
    )
    lineinfo: bool = option(
        False, "let the cubin refer to source lines, for profilers", scope="request", is_attribute=False
    )
    strict: bool = option(
        False,
        "fail where ptxas serializes a dot, instead of a warning",
        scope="request",
        changes_code=False,
        is_attribute=False,
    )
    portable: bool = option(
        False,
        "leave out features of this architecture alone (`wgmma`, clusters), so that the PTX runs on newer GPUs, too",
        scope="request",
        is_attribute=False,
    )
    ptxas: str | None = option(
        None,
        "the ptxas that assembles the cubin, by default that of NVIDIA's wheels; the stages before it depend on "
        "its version",
        str,
        scope="request",
        changes_code=False,
        is_attribute=False,
        is_flag=False,
    )

    def changed(self, values: Mapping[str, Any]) -> CompileOptions:
        """These options with other values, by name or alias.  Raises `UsageError` for unknown names and
        illegal values."""
        chosen: dict[str, Value] = {}
        for name, value in values.items():
            known = by_name(name)
            if known is None:
                close = nearest(name, [each.name for each in options()])
                raise UsageError(f"unknown option {name}", help=f"did you mean {close}?" if close else "")
            if not known.is_legal(value):
                raise UsageError(f"{name} is {value!r}", help=f"it must be {known.expected}")
            chosen[known.name] = value
        made = replace(self, **chosen)
        if made.block is None:
            return made
        return replace(made, num_warps=-(-prod(made.threads) // 32))

    @property
    def language(self) -> str:
        """The language of the kernels that these options are for."""
        return CUDA if self.block else TRITON

    @property
    def threads(self) -> Block:
        """Threads of a block, without those of warps that only copy."""
        x, y, z = (*map(int, self.block.split("x")), 1, 1)[:3] if self.block else (32 * self.num_warps, 1, 1)
        return x, y, z

    @property
    def warps(self) -> int:
        """Warps of a block, without those that only copy: all that the CTAs of a program would have together, as far as a block
        can have them."""
        return min(self.num_warps * self.num_ctas, MAX_THREADS // 32)

    def on(self, features: Collection[str]) -> CompileOptions:
        """These options for an architecture that has some features: what needs others has its default, unless that is a
        mistake."""
        lacking = [each for each in self.lacking(features) if not each.needs_feature]
        return replace(self, **{each.name: each.default for each in lacking})

    def lacking(self, features: Collection[str]) -> list[Option]:
        """The options whose values have no effect, or are a mistake, where an architecture has no other features."""
        return [
            each
            for each in options()
            if each.feature and each.feature not in features and getattr(self, each.name) != each.default
        ]

    def values(self, scope: Scope | None = None, language: str | None = None) -> dict[str, Any]:
        """All of them by name, or those of one scope, or for kernels of one language."""
        return {
            each.name: getattr(self, each.name)
            for each in options(scope)
            if language is None or each.language in ("", language)
        }

    def code(self) -> dict[str, Value]:
        """Those on which the cubin depends."""
        return {each.name: getattr(self, each.name) for each in options() if each.changes_code}

    def requested(self) -> dict[str, Value]:
        """Those of `code` that do not have their default."""
        return {
            each.name: value for each, value in self._shown() if each.changes_code and value != each.default
        }

    def stated(self) -> dict[str, Value]:
        """What facts and tables state of them: the numbers of warps and stages, and others that do not have their default."""
        return {each.name: value for each, value in self._shown() if each.is_attribute}

    def attributes(self) -> dict[str, Value]:
        """The same as the function carries it: `num_warps` are those of its block, and `asked_warps` those that its
        author asked for, where they are fewer."""
        asked = {"asked_warps": self.num_warps} if self.warps != self.num_warps else {}
        return self.stated() | {"num_warps": self.warps} | asked

    def with_attributes(self, attributes: Mapping[str, Any]) -> CompileOptions:
        """These options as the attributes of a function, or facts, have them."""
        carried = {each.name for each in options() if each.is_attribute} & attributes.keys()
        made = replace(self, **{name: attributes[name] for name in carried})
        ctas, warps = attributes.get("num_ctas", DEFAULTS.num_ctas), attributes.get("asked_warps")
        return replace(made, num_ctas=ctas, num_warps=warps or made.num_warps)

    @property
    def names_lines(self) -> bool:
        """Whether the cubin depends on the lines on which the source stands."""
        return self.debug or self.lineinfo

    @property
    def tags(self) -> str:
        """The options of the scope `variant` as names of variants have them: `w8s3c2pdl`."""
        return "".join(each.tag.format(value) for each, value in self._shown() if each.tag)

    @property
    def words(self) -> list[str]:
        """The same for people: `num_warps=8`, `launch_pdl`."""
        return [
            each.name if value is True else f"{each.name}={value}"
            for each, value in self._shown()
            if each.tag
        ]

    def arguments(self) -> list[str]:
        """The words of a command line that compiles with these options."""
        flags = ((each.flag, value) for each, value in self._shown() if each.is_flag)
        return [
            word
            for flag, value in flags
            for word in ([flag] if isinstance(value, bool) else [flag, str(value)])
        ]

    def _shown(self) -> Iterator[tuple[Option, Value]]:
        """What does not have its default, or is shown always."""
        for each in options():
            value = getattr(self, each.name)
            if each.language in ("", self.language) and (each.is_shown or value != each.default):
                yield each, value

    @staticmethod
    def parse(tags: str) -> CompileOptions:
        """The options that `tags` gave this text for; ValueError if none can have."""
        tagged = [each for each in options() if each.tag]
        match = re.fullmatch("".join(_pattern(each) for each in tagged), tags)
        if match is None or {match[each.name] is None for each in tagged if each.is_shown} != {
            bool(match["block"])
        }:
            expected = "".join(each.tag.format(f"<{each.name}>") for each in tagged if each.is_shown)
            raise ValueError(f"expected {expected}, found {tags!r}")
        found = [(each, match[each.name]) for each in tagged if match[each.name] is not None]
        try:
            return DEFAULTS.changed({each.name: _value(each, text) for each, text in found})
        except UsageError as error:
            raise ValueError(f"{tags!r}: {error.message}") from None


DEFAULTS = CompileOptions()


def _pattern(each: Option) -> str:
    """What matches an option's tag; the group of its name is the number, or the tag of a flag."""
    if each.kind is bool:
        return f"(?P<{each.name}>{each.tag})?"
    before, after = each.tag.split("{}")
    value = _BLOCK if each.is_block else r"\d+"
    return rf"(?:{before}(?P<{each.name}>{value}){after})?"


def _value(each: Option, text: str) -> Value:
    """The value whose tag this is, or has this in place of the braces."""
    return text if each.kind is str else not each.default if each.kind is bool else int(text)


def block_text(block: Block) -> str:
    """The option `block` of a block: `16x16` of 16, 16 and 1 threads."""
    x, y, z = block
    return f"{x}x{y}x{z}" if z > 1 else f"{x}x{y}" if y > 1 else str(x)


def is_block(block: Sequence[int]) -> bool:
    """Whether a device launches blocks of so many threads along each axis."""
    return (
        0 < len(block) <= 3
        and all(0 < size <= most for size, most in zip(block, _LARGEST_BLOCK))
        and prod(block) <= MAX_THREADS
    )


@cache
def options(scope: Scope | None = None) -> tuple[Option, ...]:
    """All options in the order of `CompileOptions`, or those of one scope."""
    found = (
        Option(each.name, getattr(DEFAULTS, each.name), **each.metadata) for each in fields(CompileOptions)
    )
    return tuple(each for each in found if scope in (None, each.scope))


@cache
def by_name(name: str, scope: Scope | None = None) -> Option | None:
    """The option of a name or alias, of any scope or of one; None if there is none."""
    return next((each for each in options(scope) if name in each.names), None)
