"""What a manifest says, as frozen values.

`load.py` makes these from `kernels.toml` and has checked everything said here; `expand.py` expands them to
variants. docs/manifest.md explains it all to authors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbuild.aot.manifest.descriptors import is_descriptor
from kbuild.aot.manifest.expressions import NUM_SMS, Expression, evaluate, parse
from kbuild.aot.manifest.launches.recorded import RecordedLaunch
from kbuild.aot.op.model import Op
from kbuild.errors import UsageError
from kbuild.options import CUDA, DEFAULTS, TRITON, CompileOptions, options

Value = bool | int | float | str | None
"""A compile-time value: of a matrix axis, a meta-parameter, or a constexpr parameter's default."""

DTYPES = (
    "fp16",
    "bf16",
    "fp32",
    "fp64",
    "fp8e4nv",
    "fp8e4b15",
    "fp8e5",
    "i1",
    "i8",
    "i16",
    "i32",
    "i64",
    "u8",
    "u16",
    "u32",
    "u64",
)
"""Element types, by the names that Triton's signatures use."""

TORCH_DTYPES = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    "bool": "i1",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
    "float8_e4m3fnuz": "fp8e4b8",
    "float8_e5m2fnuz": "fp8e5b16",
}
"""Attributes of the module torch, and their element types."""

TYPE_WORDS = {name: type_ for name, type_ in TORCH_DTYPES.items() if type_ in DTYPES}
TYPE_WORDS |= {"int1": "i1"} | {f"float8{form}": f"fp8{form}" for form in ("e4nv", "e4b15", "e5")}
"""Attributes of the modules torch and triton.language, and the words that manifests have for them."""

LANGUAGES = (TRITON, CUDA)
"""The languages of kernels."""

HINTS = ("4", "8", "16", "1")
"""What a run-time argument may be specialised to: divisible by 4, 8 or 16, equal to one."""

HINT_WEIGHTS = {"": 0, "4": 1, "8": 2, "16": 4, "1": 8}
"""The weight of each hint; dispatch takes the variant whose hints weigh most together."""

GUARD_OPERATORS = ("<=", ">=", "==", "!=", "<", ">", "!%", "%")
"""Comparisons a run-time fact may make with an integer; `%` means divisible by it, `!%` not divisible."""

RESERVED_NAMES = (
    "dispatch",
    "explain",
    "preload",
    "is_loaded",
    "launch",
    "operators",
    "cubins",
    "arch",
    "stream",
    "specialize",
    *(
        option.name
        for option in options("variant")
        if option.language != CUDA and not option.may_be_parameter
    ),
)
"""Names of the generated package and of the manifest itself, which no kernel, argument or axis may take."""


@dataclass(frozen=True)
class Package:
    """The Python package that a manifest makes: table `[package]`."""

    name: str
    """Import name of the package with the kernels; with dots, such as `fast_norms.kernels`, it is part of the
    package before the last dot, whose other modules `packages` names."""
    version: str
    """Version of the wheel, as PEP 440 writes it; required unless `pyproject.toml` has it."""
    archs: tuple[str, ...]
    """Architectures to compile for; with `+ptx` the PTX is shipped too, for newer GPUs."""
    ptx_archs: tuple[str, ...] = ()
    """Those of `archs` that were written with `+ptx`."""
    summary: str = ""
    """One line that says what the package is for."""
    license: str = ""
    """Licence as an SPDX expression."""
    distribution: str = ""
    """Name of the wheel, which `pip install` takes; by default that of the package."""
    packages: tuple[str, ...] = ()
    """Folders of the project with Python packages that go into the wheel whole, such as `src/fast_norms`."""
    include: tuple[str, ...] = ()
    """Patterns of further files of the project that go into the wheel, such as `helpers.py` or `data/*.json`; a
    path that begins with the folder around one of `packages`, such as `src`, goes without it."""
    ptxas: str = ""
    """Version of ptxas that assembles the cubins: `12.9` for any of that series, or a whole one; unless it is
    given, the one that kbuild was tested with, if that is installed."""
    min_driver: int = 0
    """The oldest driver that the cubins have to run on, by its branch: 525 is the first of CUDA 12, 580 that
    of CUDA 13. It chooses the ptxas; unless it is given, the package needs the driver that its ptxas makes
    code for, and says so."""

    @property
    def path(self) -> str:
        """The folder of the package with the kernels, within the wheel."""
        return self.name.replace(".", "/")


@dataclass(frozen=True)
class Argument:
    """A run-time argument of a kernel: one key of `[kernel.args]`, written `type[:hint[?]]...`."""

    name: str
    """Name of the kernel's parameter."""
    type: str
    """Type as Triton's signatures write it (`*fp16`, `i32`); `{axis}` stands for a value of a matrix axis.  A list
    of types is for a tuple, whose elements are arguments named `strides_0`, `strides_1`, …"""
    hints: tuple[str, ...] = ("",)
    """Specialisations to build, strongest first: `1` equal to one, `16`, `8` and `4` divisible by it, empty for
    none."""

    @property
    def is_pointer(self) -> bool:
        """Whether the argument is an address of elements, or a tensor with one."""
        return self.type.startswith("*") or self.is_descriptor

    @property
    def is_descriptor(self) -> bool:
        """Whether the argument is a tensor that the kernel takes as a tensor descriptor."""
        return is_descriptor(self.type)


@dataclass(frozen=True)
class Axis:
    """One axis of `[kernel.matrix]`; all axes multiply."""

    name: str
    """A constexpr parameter of the kernel, or a name that argument types refer to as `{name}`."""
    values: tuple[Value, ...]
    """Values to build, in the order written."""
    is_parameter: bool = True
    """Whether the kernel has a constexpr parameter of that name; otherwise the axis stands in argument types
    alone."""
    default: Value = None
    """The one of `values` that calls need not give, since the kernel's parameter has it by default or there is
    no other; None if there is none."""


@dataclass(frozen=True)
class Guard:
    """A fact about a run-time argument or a product of some, such as `M <= 64`, that holds where a
    configuration may be used."""

    argument: str
    """Integer argument of the kernel, or several with `*` between them; `M:64` is how many blocks of 64 it
    takes to cover M."""
    operator: str
    """One of `GUARD_OPERATORS`."""
    value: int | str
    """Right side of the comparison: a number, or a share of the device's multiprocessors, such as `num_sms`,
    `2*num_sms` or `num_sms//2`."""

    def __str__(self) -> str:
        return f"{self.argument}{self.operator}{self.value}"

    @property
    def factors(self) -> tuple[tuple[str, str], ...]:
        """The arguments that it is about, each with the size of the blocks that are counted, if any."""
        return tuple(
            (name, size) for name, _, size in (factor.partition(":") for factor in self.argument.split("*"))
        )

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments that it is about."""
        return tuple(name for name, _ in self.factors)

    def bound(self, num_sms: int) -> int:
        """The right side on a device of so many multiprocessors."""
        if isinstance(self.value, int):
            return self.value
        return evaluate(parse(self.value, (NUM_SMS,), "guard"), {NUM_SMS: num_sms})

    @property
    def expression(self) -> str:
        """The fact in the language of `expressions.py`."""
        product = "*".join(f"cdiv({name}, {size})" if size else name for name, size in self.factors)
        if self.operator in ("%", "!%"):
            return f"{product} % {self.value} {'==' if self.operator == '%' else '!='} 0"
        return f"{product} {self.operator} {self.value}"


@dataclass(frozen=True)
class PointCondition:
    """Which points of architecture and matrix something applies to; every entry has to hold."""

    choices: tuple[tuple[str, tuple[Value, ...]], ...] = ()
    """The values that are meant, by `arch`, `specialize` or axis."""

    def holds(self, point: dict[str, Value]) -> bool:
        """Whether the point (values by axis name, `arch`, and `specialize` where it may be named) is meant."""
        return all(any(is_same(point[name], value) for value in values) for name, values in self.choices)

    def __str__(self) -> str:
        return ", ".join(
            f"{name} = {' or '.join(str(value) for value in values)}" for name, values in self.choices
        )


@dataclass(frozen=True)
class Specialization:
    """Hints that are assumed together: one `[[kernel.specialize]]`."""

    hints: tuple[tuple[str, str], ...] = ()
    """The hint for each argument, besides those in `args`: 16, 8 or 4 divisible by it, 1 equal to it."""
    name: str = ""
    """What `when = { specialize = … }` of a configuration calls it."""


@dataclass(frozen=True)
class Config:
    """Meta-parameters for some points of the matrix: one `[[kernel.config]]`."""

    when: PointCondition = PointCondition()
    """Where the configuration is for: points of architecture, matrix and `specialize`, and facts of run-time
    arguments."""
    guards: tuple[Guard, ...] = ()
    """What has to hold of an integer argument, as `"<= 64"` or `"> 16, <= 64"`, for dispatch to take the
    configuration; or of a product of arguments and numbers of blocks, as `"cdiv(M, 64) * cdiv(N, 128)"`."""
    constexprs: tuple[tuple[str, Value], ...] = ()
    """Values of constexpr parameters, such as BLOCK_M."""
    options: CompileOptions = DEFAULTS
    """How the kernel is compiled; each option is a key of its own."""
    cost: str = ""
    """What a call costs with the configuration, by a model: a number, or an expression over integer arguments, `num_sms`,
    and the compile-time integers and options of the configuration.  Where the first configuration that applies has
    one, the cheapest of those that apply and have one is taken."""


@dataclass(frozen=True)
class Verify:
    """What `kbuild verify` launches a kernel with: table `[kernel.verify]`."""

    sizes: tuple[tuple[str, str], ...]
    """Elements that each pointer points to: expressions over integer arguments and constexprs."""
    values: tuple[tuple[tuple[str, int | float | str], ...], ...]
    """The launches, each with the values of all arguments that are not pointers: numbers, or, of integers,
    expressions over constexprs and each other.  A variant takes those that fit its hints and facts."""
    loops: tuple[tuple[str, str], ...] = ()
    """Integer arguments that loops count to, and the loops' steps, as expressions over constexprs: the first
    launch is made for 0 to 2 · (num_stages + 1) rounds as well, ragged and full."""
    grid: tuple[str, ...] = ()
    """Programs along each axis, where a kernel is right for fewer than its own grid has; by default the
    kernel's grid."""
    zeros: tuple[str, ...] = ()
    """Pointers to arrays of zeros, such as counters: all others point to numbers of many kinds."""
    reference: str = ""
    """What results are compared with instead of the kernel's own meaning, as `reference.py:sgemm`: a function of numpy,
    which gets the arguments by name and changes arrays as the kernel does, or a kernel in Triton's language.  A kernel in
    CUDA C++ needs one."""
    reference_constexprs: tuple[tuple[str, Value], ...] = ()
    """Compile-time values of a reference that is a kernel, besides those that both have."""
    reference_grid: tuple[str, ...] = ()
    """Programs along each axis of a reference that is a kernel; by default the kernel's grid."""
    tolerance: float | None = None
    """How far a floating-point result may be off, relative to the greater of its size and the mean size of its array;
    by default what is usual for its type."""
    ready: tuple[str, ...] = ()
    """Pointers to arrays that no launch just before writes or still reads, such as weights: a kernel of
    `launch_pdl` may touch them before `tl.extra.cuda.gdc_wait()`, and no others."""


@dataclass(frozen=True)
class Bucket:
    """Calls that are alike, and one that stands for them: one `[[kernel.tune.bucket]]`."""

    when: PointCondition
    """Which points of architecture, matrix and `specialize` are tuned; each by itself."""
    guards: tuple[Guard, ...]
    """What holds of the integer arguments of all calls that are meant, as in `[[kernel.config]]`."""
    values: tuple[tuple[str, int | float | str], ...]
    """The launch that is timed: values of all arguments that are not pointers, as in `[kernel.verify]`."""
    candidates: tuple[tuple[str, tuple[Value, ...]], ...] = ()
    """Values to try of meta-parameters and options such as `num_warps`; they multiply."""
    require: tuple[Expression, ...] = ()
    """What has to hold of a configuration to be tried, as `"BLOCK_M * BLOCK_N <= 32768"`: expressions over
    meta-parameters of whole numbers, options such as `num_warps`, and integer arguments; that of the bucket
    beside that of `[kernel.tune]`."""
    sizes: tuple[tuple[str, str], ...] = ()
    """Elements that each pointer points to in a captured launch."""


@dataclass(frozen=True)
class Tune:
    """What `kbuild tune` tries on a GPU: table `[kernel.tune]`."""

    sizes: tuple[tuple[str, str], ...]
    """Elements that each pointer points to; those of `[kernel.verify]` unless given."""
    buckets: tuple[Bucket, ...]
    """The calls to tune for, in the order in which dispatch asks for their facts; without them a kernel with `launches` is
    tuned for the largest of each variant."""
    candidates: tuple[tuple[str, tuple[Value, ...]], ...] = ()
    """Values to try for captured launches."""
    zeros: tuple[str, ...] = ()
    """Pointers to arrays that are zeros before every launch, such as locks and counters; those of
    `[kernel.verify]` unless given."""
    restore: tuple[str, ...] = ()
    """Pointers to arrays that have the same numbers before every launch, such as those that a kernel changes in
    place; what a launch writes into others is left there."""


@dataclass(frozen=True)
class Kernel:
    """One kernel and all that is built of it: one `[[kernel]]`."""

    name: str
    """Name of the function in the package."""
    source: str
    """File with the kernel, in Python or CUDA C++, relative to the manifest, with forward slashes; in Python also one of an
    installed wheel, as `liger-kernel:liger_kernel/ops/rms_norm.py`."""
    function: str
    """Function in the file; `<file>_kernel` unless the key `function` says otherwise, in CUDA C++ also one of the kernel's
    name, or the only one."""
    grid: tuple[str, ...]
    """One to three integer expressions over arguments, constexprs and `num_sms`, the multiprocessors of the
    device: programs along each axis of the launch."""
    args: tuple[Argument, ...]
    """Run-time arguments, in the order of the kernel's parameters."""
    matrix: tuple[Axis, ...] = ()
    """Compile-time choices that the caller's arguments make; they multiply."""
    specializations: tuple[Specialization, ...] = (Specialization(),)
    """Sets of hints that are assumed together; dispatch takes the strongest that a call fulfils."""
    grid_args: tuple[Argument, ...] = ()
    """Integers that the grid needs and the kernel does not take; in the function of the package they follow
    its arguments."""
    configs: tuple[Config, ...] = (Config(),)
    """Meta-parameters by architecture, matrix values and run-time facts, first match first; without them those of
    `@triton.autotune` and `@triton.heuristics` are used."""
    excludes: tuple[PointCondition, ...] = ()
    """Points of the matrix that are left out."""
    variants: str = ""
    """File with a list of variants in the place of `matrix`, `specialize` and `config`, relative to the manifest, where these do
    not multiply; `kbuild import` writes it."""
    listed: tuple[tuple[tuple[str, Value], ...], ...] = ()
    """The points of such a list, in its order: no others are built."""
    columns: tuple[tuple[str, ...], ...] = ()
    """The columns of such a list: axes, arguments with hints, and meta-parameters and options."""
    launches: str = field(default="", repr=False)
    """File with launches that were captured, relative to the manifest, which `kbuild verify` and `kbuild tune` take where the
    manifest gives none; `kbuild import` writes it."""
    recorded: tuple[RecordedLaunch, ...] = field(default=(), repr=False)
    """The launches of that file."""
    digest: str = ""
    """The digest of the source that was captured; another source is a mistake."""
    serves: str = ""
    """The function of a library whose calls through Triton's JIT it answers, as `module:name` with the qualified name."""
    seen: tuple[tuple[str, tuple[Value, ...]], ...] = ()
    """The sizes for which that function's tuner chose, by the names of its key; the first values of all are the first key.  Calls
    with others are recorded where misses are."""
    parameters: tuple[tuple[str, bool, bool, Value], ...] = ()
    """Those of the function that it serves, in order: name, whether it is a constexpr, whether it has a plain default, and
    that default."""
    language: str = TRITON
    """The language of the source, which its suffix says: `triton` for `.py`, `cuda` for `.cu`."""
    block: tuple[str, ...] = ()
    """Threads of a block of a kernel in CUDA C++ along one to three axes: numbers, or expressions over compile-time
    values."""
    shared: str = "0"
    """Bytes of dynamic shared memory of a kernel in CUDA C++: a number, or an expression over compile-time values;
    `T_bytes` is the size of an element of the type `T`."""
    include: tuple[str, ...] = ()
    """Folders with headers that a kernel in CUDA C++ includes: of the project, or of an installed wheel, as
    `nvidia-cutlass:cutlass_library/source/include`."""
    defaults: tuple[tuple[str, Value], ...] = ()
    """Constexpr parameters that the manifest does not mention, with the literal defaults of the kernel's
    source."""
    doc: str = ""
    """Doc string of the function in the package; the kernel's own when empty."""
    like: str = field(default="", repr=False)  # The other fields have its effect.
    """A kernel before this one, whose keys stand for those that are not given here: each whole, such as all of
    `config`, but `name`."""
    verify: Verify | None = field(default=None, repr=False)  # Not in the digest of what a package is made of.
    """Launches that `kbuild verify` runs on the CPU; without the table it takes those of `launches`, or guesses one."""
    unverified: str = field(default="", repr=False)
    """Why `kbuild verify` leaves the kernel out, which it prints: the CPU cannot make its arguments, such as
    arrays of addresses."""
    tune: Tune | None = field(default=None, repr=False)
    """What `kbuild tune` tries on a GPU; without the table nothing, or numbers of warps on those of `launches`."""
    op: Op | None = None
    """The operator on tensors that the package has in place of the bare launch, which is then in its module `launch`."""
    alternatives: tuple[tuple[Config, ...], ...] = field(default=(), repr=False)
    """The other configurations of `@triton.autotune`, where the manifest gives none, for `kbuild tune` to try; each
    as `configs` has the first, by facts of arguments."""
    notes: tuple[str, ...] = field(default=(), repr=False)
    """What is used of the decorators of its source, and what is not, for its author to know."""

    def source_in(self, root: Path, places: bool = False) -> tuple[Any, ...]:
        """What `source_digest` takes for the kernel's source in a project's directory."""
        include = below(",".join(self.include), root)
        return (str(source_path(self.source, root)), self.function, places, *([include] if include else ()))

    @property
    def sources(self) -> tuple[str, ...]:
        """The files of the project that it is made and verified of, without what these import or include."""
        reference = self.verify.reference.partition(":")[0] if self.verify else ""
        own = "" if ":" in self.source else self.source
        return tuple(file for file in (own, reference, self.variants, self.launches) if file)

    @property
    def meta_parameters(self) -> tuple[str, ...]:
        """The constexpr parameters of which configurations say values."""
        configs = (*self.configs, *(config for row in self.alternatives for config in row))
        return tuple(dict.fromkeys(name for config in configs for name, _ in config.constexprs))


@dataclass(frozen=True)
class Manifest:
    """A whole `kernels.toml`, checked."""

    package: Package
    """The package to make."""
    kernels: tuple[Kernel, ...]
    """Its kernels, in the order written."""
    schema: int = 1
    """Version of the manifest's format."""

    def kernel(self, name: str) -> Kernel:
        """The kernel of that name; KeyError if there is none."""
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        raise KeyError(name)


def below(include: str | None, root: Path) -> str | None:
    """The option `include` with its folders of the project below a directory."""
    entries = include.split(",") if include else []
    return ",".join(entry if ":" in entry else str(root / entry) for entry in entries) or None


def source_path(source: str, root: Path) -> Path:
    """Where a kernel's source is: below a project's directory, or in an installed wheel, as
    `liger-kernel:liger_kernel/ops/rms_norm.py`.  Raises UsageError where that wheel is not installed."""
    wheel, _, inner = source.rpartition(":")
    if not wheel:
        return root / inner
    from importlib import metadata  # It takes 30 ms, and few manifests name wheels.

    try:
        return Path(str(metadata.distribution(wheel).locate_file(inner)))
    except metadata.PackageNotFoundError:
        raise UsageError(f"{wheel} is not installed", help=f"pip install {wheel}") from None


def language_of(source: str) -> str:
    """The language of a file, by its suffix."""
    return CUDA if source.endswith(".cu") else TRITON


def is_same(left: Value, right: Value) -> bool:
    """Equality that keeps true apart from 1: an axis may hold both flags and numbers."""
    return type(left) is type(right) and left == right
