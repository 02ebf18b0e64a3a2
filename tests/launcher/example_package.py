"""A package made from a hand-written table, a stand-in for the driver, and stand-ins for torch's tensors."""

from __future__ import annotations

import ctypes
import hashlib
import json
import sys
import types
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.aot import tables

HERE = Path(__file__).parent
TEMPLATES = HERE.parents[1] / "templates"


@dataclass(frozen=True)
class Variant:
    kernel: str
    arch: str
    args: tuple[tuple[str, str], ...]
    key: str
    matrix: dict = field(default_factory=dict)
    config: dict = field(default_factory=dict)
    conditions: tuple[str, ...] = ()
    num_warps: int = 4


@dataclass(frozen=True)
class Facts:
    entry: str
    shared: int
    num_warps: int
    registers: int
    arch: str
    params: tuple[str, ...]
    sha256: str
    kind: str = "cubin"


@dataclass(frozen=True)
class Kernel:
    name: str
    grid: tuple[str, ...]
    doc: str = ""


@dataclass(frozen=True)
class Manifest:
    package: types.SimpleNamespace
    kernels: tuple[Kernel, ...]


def image_of(key: str, passed: int) -> bytes:
    """Bytes that stand for a cubin: the stand-in driver shows them again, and reads the number of parameters off them."""
    return f"{key}#{passed}".encode()


def built(variant: Variant, *, arch: str = "", shared: int = 0, kind: str = "cubin", hidden: tuple[str, ...] = ()) -> tuple:
    """A variant with the facts of its cubin: arguments equal to one are not passed, hidden ones are."""
    params = (*(name for name, type_ in variant.args if not type_.endswith(":1")), *hidden)
    image = image_of(variant.key, len(params))
    return variant, Facts(
        entry=f"{variant.kernel}_entry", shared=shared, num_warps=variant.num_warps, registers=32, arch=arch or variant.arch,
        params=params, sha256=hashlib.sha256(image).hexdigest(), kind=kind,
    )  # fmt: skip


def vector_add_rows(arch: str = "sm_80", kind: str = "cubin") -> list[tuple]:
    rows = []
    for dtype in ("fp32", "fp16"):
        for pointer, n, name in ((":16", ":16", "aligned"), ("", "", "plain"), ("", ":1", "one")):
            args = (("x", f"*{dtype}{pointer}"), ("out", f"*{dtype}{pointer}"), ("n", f"i32{n}"))
            key = f"add.{arch}.{kind}.{dtype}.{name}"
            variant = Variant("vector_add", arch, args, key, matrix={"dtype": dtype}, config={"BLOCK": 1024})
            rows.append(built(variant, kind=kind))
    return rows


def attention_rows() -> list[tuple]:
    rows = []
    for causal in (True, False):
        for head in (64, 128):
            args = (("q", "*fp16:16"), ("scale", "fp32"), ("slope", "bf16"), ("n_ctx", "i32"), ("heads", "i64"), ("seed", "u64"))
            block = 128 if head == 64 else 64
            key = f"attention.{causal}.{head}"
            matrix = {"HEAD_DIM": head, "IS_CAUSAL": causal}
            variant = Variant("attention", "sm_90", args, key, matrix, config={"BLOCK_M": block}, num_warps=8)
            rows.append(built(variant, arch="sm_90a", shared=1024 * head, hidden=("global_scratch",)))
    return rows


def softmax_rows() -> list[tuple]:
    rows = []
    for arch in ("sm_80", "sm_90"):
        for block in (1024, 4096):
            args = (("x", "*fp32"), ("n_cols", "i32"), ("n_rows", "i32"))
            key = f"softmax.{arch}.{block}"
            variant = Variant("softmax", arch, args, key, {}, {"BLOCK": block}, ("n_cols <= BLOCK",), num_warps=8)
            rows.append(built(variant, shared=block * 48))
    return rows


def example_table(package: str = "example") -> tuple[tables.Table, list[tuple]]:
    kernels = (
        Kernel("vector_add", ("cdiv(n, BLOCK)",), "Add one to every element."),
        Kernel("attention", ("cdiv(n_ctx, BLOCK_M)", "heads"), 'Attention, with a "quote" and a \\ backslash??/'),
        Kernel("softmax", ("n_rows",)),
        Kernel("copy", ()),
    )
    copy = Variant("copy", "sm_80", (("source", "*i8"), ("flag", "i1")), "copy.sm_80")
    rows = [*vector_add_rows(), *vector_add_rows(kind="ptx"), *attention_rows(), *softmax_rows(), built(copy)]
    manifest = Manifest(types.SimpleNamespace(name=package, version="1.2", summary=""), kernels)
    return tables.make_table(manifest, rows), rows


def write_archives(package_dir: Path, rows: list[tuple]) -> None:
    """Archives as kbuild writes them, of the images that stand for cubins."""
    for arch in sorted({variant.arch for variant, _ in rows}):
        blobs, entries = b"", []
        for variant, facts in rows:
            if variant.arch == arch:
                image = image_of(variant.key, len(facts.params))
                place = {"offset": len(blobs), "stored": len(image), "size": len(image), "compression": "raw"}
                entries.append({"key": variant.key, "sha256": facts.sha256, **place})
                blobs += image
        index = json.dumps({"entries": entries}).encode()
        header = b"KBZ1" + len(index).to_bytes(4, "little") + hashlib.sha256(index).digest()
        (package_dir / "cubins").mkdir(exist_ok=True)
        (package_dir / "cubins" / f"{arch}.kbz").write_bytes(header + index + blobs)


class Launch(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint), ("shared", ctypes.c_uint), ("stream", ctypes.c_uint64),
        ("context", ctypes.c_uint64), ("entry", ctypes.c_char * 64), ("image", ctypes.c_char * 64),
        ("params", ctypes.c_uint64 * 16),
    ]  # fmt: skip

    @property
    def key(self) -> str:
        """The cubin that was launched."""
        return self.image.decode().rpartition("#")[0]

    @property
    def device(self) -> int:
        """The ordinal of the device whose context was current."""
        return self.context - 0xC000


class Driver:
    """What the stand-in driver saw."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.fake_launches.restype = ctypes.POINTER(Launch)

    def count(self, what: str = "launch") -> int:
        return getattr(self._library, f"fake_{what}_count")()

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
    """Has what the launcher asks of a torch tensor."""

    def __init__(self, dtype: str = "float32", address: int = 0x100, device: int = 0, numel: int = 64) -> None:
        self.dtype = getattr(sys.modules["torch"], dtype)
        self._address = address + ((device + 1) << 40) if numel else 0
        self._device, self._numel = device, numel

    def data_ptr(self) -> int:
        return self._address

    def get_device(self) -> int:
        return self._device

    def numel(self) -> int:
        return self._numel


def fake_torch() -> types.ModuleType:
    torch = types.ModuleType("torch")
    torch.Tensor = Tensor
    for name in ("float32", "float16", "bfloat16", "int8", "complex64"):
        setattr(torch, name, types.SimpleNamespace(__str__=name))
    torch._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda ordinal: 0x5000 + ordinal)
    return torch
