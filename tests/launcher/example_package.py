"""A package made from a hand-written table, a fake driver, and fake torch tensors."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import sys
import types
import zlib
from dataclasses import dataclass
from pathlib import Path

from kbuild.aot.artifact import rendering, tables
from kbuild.aot.manifest.expand import Variant
from kbuild.aot.manifest.model import Argument, Axis, Guard, Kernel, Manifest, Package
from kbuild.options import DEFAULTS, by_name

HERE = Path(__file__).parent


def variant_of(kernel: str, arch: str, signature: dict[str, str], **values) -> Variant:
    """A variant; parts that are left out are empty."""
    matrix, constexprs = (tuple(values.get(name, {}).items()) for name in ("matrix", "constexprs"))
    guards = tuple(values.get("guards", ()))
    options = DEFAULTS.changed({name: value for name, value in values.items() if by_name(name)})
    cost = values.get("cost", "")
    return Variant(kernel, arch, matrix, tuple(signature.items()), constexprs, options, guards, cost)


def image_of(key: str, passed: int) -> bytes:
    """Bytes in place of a cubin: the fake driver logs them, and reads the number of parameters from them."""
    return f"{key}#{passed}".encode()


def built(
    variant: Variant, key: str = "", *, arch: str = "", shared: int = 0, ptx: bool = False, hidden: tuple = ()
) -> tuple:
    """A variant with the facts of its cubin: arguments equal to one are not passed, hidden ones are."""
    arguments = [
        (name, type_.partition(":")[0]) for name, type_ in variant.signature if not type_.endswith(":1")
    ]
    params = [*arguments, *((name, "*i8") for name in hidden)]
    key = key or variant.name
    facts = {
        "arch": arch or variant.arch,
        "entry": f"{variant.kernel}_entry",
        "params": params,
        "shared": shared,
        "registers": 32,
        "num_warps": variant.options.num_warps,
        "block": variant.options.threads,
        "static_shared": 0,
        "key": key,
        "sha256": hashlib.sha256(image_of(key, len(params))).hexdigest(),
        "archive": variant.arch,
        "archive_sha256": "",
    }
    return variant, facts | ({"ptx_key": f"{key}.ptx"} if ptx else {})


def vector_add_rows() -> list[tuple]:
    rows = []
    for dtype in ("fp32", "fp16"):
        for pointer, n, name in ((":16", ":16", "aligned"), ("", "", "plain"), ("", ":1", "one")):
            signature = {"x": f"*{dtype}{pointer}", "out": f"*{dtype}{pointer}", "n": f"i32{n}"}
            variant = variant_of(
                "vector_add", "sm_80", signature, matrix={"dtype": dtype}, constexprs={"BLOCK": 1024}
            )
            rows.append(built(variant, f"add.{dtype}.{name}", ptx=True))
    return rows


def attention_rows() -> list[tuple]:
    rows = []
    signature = {
        "q": "*fp16:16",
        "scale": "fp32",
        "slope": "bf16",
        "n_ctx": "i32",
        "heads": "i64",
        "seed": "u64",
    }
    for causal in (True, False):
        for head in (64, 128):
            matrix, constexprs = (
                {"HEAD_DIM": head, "IS_CAUSAL": causal},
                {"BLOCK_M": 128 if head == 64 else 64},
            )
            variant = variant_of(
                "attention", "sm_90", signature, matrix=matrix, constexprs=constexprs, num_warps=8
            )
            key = f"attention.{causal}.{head}"
            rows.append(
                built(variant, key, arch="sm_90a", shared=1024 * head, hidden=("global_scratch",), ptx=True)
            )
    return rows


def softmax_rows() -> list[tuple]:
    rows = []
    for arch in ("sm_80", "sm_90"):
        for block in (1024, 4096):
            guards = (Guard("n_cols", "<=", block), Guard("n_cols", "%", 2))
            signature = {"x": "*fp32", "n_cols": "i32"}
            variant = variant_of(
                "softmax",
                arch,
                signature,
                constexprs={"BLOCK": block},
                guards=guards,
                num_warps=8,
                launch_pdl=arch == "sm_90" and block == 4096,
            )
            rows.append(built(variant, f"softmax.{arch}.{block}", shared=block * 48))
    return rows


def matmul_rows() -> list[tuple]:
    """A kernel whose cubin takes a tensor map of `x` besides its arguments."""
    signature = {"x": "*fp16", "rows": "i32", "columns": "i64", "stride": "i32"}
    variant, facts = built(variant_of("matmul", "sm_90", signature), "matmul^", arch="sm_90a")
    map_ = ("x_map", "tensormap f16 1x128x64 128 x 7,rows,columns 0,stride")
    facts["params"] = [*facts["params"], map_]
    facts["sha256"] = hashlib.sha256(image_of("matmul^", len(facts["params"]))).hexdigest()
    return [(variant, facts)]


def blocks_rows() -> list[tuple]:
    """A kernel that takes `x` as a tensor descriptor."""
    variant, facts = built(
        variant_of("blocks", "sm_90", {"x": "tensordesc<fp16[128x64]>", "n": "i32"}), "blocks^", arch="sm_90a"
    )
    extents = [("x_shape_0", "i32"), ("x_shape_1", "i32"), ("x_stride_0", "i64")]
    map_ = ("x_map", "tensormap f16 128x64 128 x x_shape_0,x_shape_1 x_stride_0")
    facts["params"] = [("x", "*fp16"), *extents, ("n", "i32"), map_]
    facts["sha256"] = hashlib.sha256(image_of("blocks^", len(facts["params"]))).hexdigest()
    return [(variant, facts)]


def tiles_rows() -> list[tuple]:
    """A kernel that reads its tensor by boxes of 1 to 36 rows; its grid is a product of two block counts."""
    made = []
    for rows in range(1, 37):
        signature = {"x": "*fp16", "m": "i32", "n": "i32"}
        variant, facts = built(
            variant_of("tiles", "sm_90", signature, matrix={"ROWS": rows}), f"tiles{rows}^", arch="sm_90a"
        )
        facts["params"] = [*facts["params"], ("x_map", f"tensormap f16 {rows}x64 128 x m,n n")]
        facts["sha256"] = hashlib.sha256(image_of(f"tiles{rows}^", len(facts["params"]))).hexdigest()
        made.append((variant, facts))
    return made


def waves_rows() -> list[tuple]:
    """A kernel with a row for as many tiles of 64 as there are multiprocessors, for half as many again, and for
    any."""
    rows = []
    for key, bound in (("one", "num_sms"), ("half", "3*num_sms//2"), ("any", "")):
        guards = (Guard("n:64", "<=", bound),) if bound else ()
        rows.append(
            built(variant_of("waves", "sm_90", {"x": "*fp32", "n": "i32"}, guards=guards), f"waves.{key}")
        )
    return rows


ROUNDS = {(128, 192): 480, (128, 256): 620, (128, 128): 330, (64, 256): 342}
"""Tiles of the kernel `rounds`, and what a round of them costs."""


def rounds_rows() -> list[tuple]:
    """A kernel with a row for few rows, then tiles of which the cheapest is taken, one only where 64 divides n, and one behind
    the row for any sizes."""
    rows = []
    for dtype in ("fp32", "fp16"):
        for hint in (":16", ""):
            some = Guard("n", ">", 0)
            facts = {tile: (some, Guard("n", "%", 64)) if tile == (128, 128) else (some,) for tile in ROUNDS}
            tiles: list[tuple] = [("few", (Guard("m", "<=", 16),), "")]
            for (height, width), round_ in ROUNDS.items():
                cost = f"{round_} * cdiv(cdiv(m, {height}) * cdiv(n, {width}), num_sms)"
                tiles.append((f"{height}x{width}", facts[height, width], cost))
            tiles.insert(-1, ("any", (), ""))
            for key, guards, cost in tiles:
                signature = {"x": f"*{dtype}{hint}", "m": "i64", "n": "i64"}
                constexprs = {"TILE": key}
                variant = variant_of(
                    "rounds",
                    "sm_90",
                    signature,
                    matrix={"dtype": dtype},
                    constexprs=constexprs,
                    guards=guards,
                    cost=cost,
                )
                arch = "sm_90a" if key == "128x256" else ""
                rows.append(built(variant, f"rounds.{dtype}{hint}.{key}", arch=arch))
    return rows


def choice_rows() -> list[tuple]:
    """A kernel with options that have defaults, one of them the empty word."""
    rows = []
    for slope in (0.5, 1.0):
        for activation in ("", "relu"):
            matrix = {"SLOPE": slope, "ACTIVATION": activation}
            rows.append(
                built(
                    variant_of("choice", "sm_80", {"x": "*fp32"}, matrix=matrix),
                    f"choice.{slope}.{activation}",
                )
            )
    return rows


def manifest_of(kernels: tuple[Kernel, ...], package: str = "example") -> Manifest:
    return Manifest(Package(package, "1.2", ("sm_80", "sm_90")), kernels)


def kernel_of(
    name: str,
    grid: tuple[str, ...],
    doc: str = "",
    grid_args: tuple[Argument, ...] = (),
    matrix: tuple[Axis, ...] = (),
) -> Kernel:
    return Kernel(name, f"{name}.py", f"{name}_kernel", grid, (), doc=doc, grid_args=grid_args, matrix=matrix)


def example_table() -> tuple[rendering.PackageTable, list[tuple]]:
    kernels = (
        kernel_of("vector_add", ("cdiv(n, BLOCK)",), "Add one to every element."),
        kernel_of(
            "attention", ("cdiv(n_ctx, BLOCK_M)", "heads"), 'Attention, with a "quote" and a \\ backslash??/'
        ),
        kernel_of("softmax", ("n_rows",), grid_args=(Argument("n_rows", "i32"),)),
        kernel_of("copy", ()),
        kernel_of("matmul", ("min(rows, 2 * num_sms)",)),
        kernel_of("blocks", ("cdiv(x_shape_0, 128)", "programs"), grid_args=(Argument("programs", "i32"),)),
    )
    choices = (Axis("SLOPE", (0.5, 1.0), default=1.0), Axis("ACTIVATION", ("", "relu"), default=""))
    kernels += (kernel_of("choice", ("1",), matrix=choices), kernel_of("pairs", ("n",)))
    kernels += (kernel_of("waves", ("cdiv(n, 64)",)),)
    kernels += (kernel_of("tiles", ("cdiv(m, 64) * cdiv(n, 64)",)), kernel_of("rounds", ("num_sms",)))
    copy = variant_of("copy", "sm_80", {"source": "*i8:8", "flag": "i1"})
    rows = [
        *vector_add_rows(),
        *attention_rows(),
        *softmax_rows(),
        built(copy, "copy"),
        *matmul_rows(),
        *blocks_rows(),
    ]
    rows += choice_rows()
    rows.append(built(variant_of("pairs", "sm_90", {"x": "*fp32", "n": "i32"}, cluster_size=2), "pairs"))
    rows += [*tiles_rows(), *waves_rows(), *rounds_rows()]
    digests = {arch: hashlib.sha256(index_of(arch, rows)[0]).hexdigest() for arch in ("sm_80", "sm_90")}
    rows = [(variant, facts | {"archive_sha256": digests[variant.arch]}) for variant, facts in rows]
    return tables.make_table(manifest_of(kernels), rows), rows


def index_of(arch: str, rows: list[tuple]) -> tuple[bytes, bytes]:
    """Index and blobs of an archive, of the images that stand for cubins and PTX."""
    blobs, entries = b"", []
    for _, facts in (row for row in rows if row[0].arch == arch):
        for key in filter(None, (facts["key"], facts.get("ptx_key"))):
            image = image_of(key, len(facts["params"]))
            stored = zlib.compress(image) if "plain" in key else image
            place = {
                "offset": len(blobs),
                "stored": len(stored),
                "size": len(image),
                "sha256": hashlib.sha256(image).hexdigest(),
            }
            entries.append({"key": key, "compression": "zlib" if "plain" in key else "raw", **place})
            blobs += stored
    return json.dumps({"entries": entries}).encode(), blobs


def write_archives(package_dir: Path, rows: list[tuple]) -> None:
    """Archives as kbuild writes them."""
    (package_dir / "cubins").mkdir(exist_ok=True)
    for arch in ("sm_80", "sm_90"):
        index, blobs = index_of(arch, rows)
        header = b"KBZ1" + len(index).to_bytes(4, "little") + hashlib.sha256(index).digest()
        (package_dir / "cubins" / f"{arch}.kbz").write_bytes(header + index + blobs)


class Launch(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_uint64),
        ("context", ctypes.c_uint64),
        ("entry", ctypes.c_char * 64),
        ("image", ctypes.c_char * 64),
        ("params", ctypes.c_uint64 * 16),
        ("map", ctypes.c_uint64 * 16),
        ("may_begin_early", ctypes.c_int),
    ]

    @property
    def key(self) -> str:
        """The name of the cubin that was launched."""
        return self.image.decode().rpartition("#")[0]

    @property
    def device(self) -> int:
        """The ordinal of the device whose context was current."""
        return self.context - 0xC000


class Driver:
    """A launch as the fake driver logged it."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.fake_launches.restype = ctypes.POINTER(Launch)

    def count(self, what: str = "launch") -> int:
        return getattr(self._library, f"fake_{what}_count")()

    @contextlib.contextmanager
    def current_device(self, ordinal: int):
        """Makes a device's context current, as an application may have done."""
        self._library.cuCtxPushCurrent_v2(ctypes.c_void_p(0xC000 + ordinal))
        yield
        self._library.cuCtxPopCurrent_v2(ctypes.byref(popped := ctypes.c_void_p()))
        assert popped.value == 0xC000 + ordinal, "a launch leaves the stack of contexts as it was"

    @property
    def last(self) -> Launch:
        return self._library.fake_launches()[self.count() - 1]


@dataclass
class World:
    """A freshly imported package over a driver without memory of earlier tests."""

    package: types.ModuleType
    driver: Driver
    torch: types.ModuleType


class Tensor:
    """Has the attributes of a torch tensor that the launcher reads."""

    def __init__(
        self,
        dtype: str = "float32",
        address: int = 0x100,
        device: int = 0,
        numel: int = 64,
        shape: tuple = (),
        strides: tuple = (),
    ) -> None:
        self.shape, self._strides = shape, strides
        self.dtype = getattr(sys.modules["torch"], dtype)
        self._address = address + ((device + 1) << 40) if numel else 0
        self._device, self._numel = device, numel

    def data_ptr(self) -> int:
        return self._address

    def stride(self, axis: int) -> int:
        return self._strides[axis]

    def get_device(self) -> int:
        return self._device

    def numel(self) -> int:
        return self._numel


def fake_torch() -> types.ModuleType:
    torch = types.ModuleType("torch")
    names = ("float32", "float16", "bfloat16", "int8", "complex64")
    vars(torch).update(
        {name: types.SimpleNamespace(__str__=name) for name in names},
        Tensor=Tensor,
        _C=types.SimpleNamespace(_cuda_getCurrentRawStream=lambda ordinal: 0x5000 + ordinal),
    )
    return torch
