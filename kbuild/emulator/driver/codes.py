"""Results of the driver's functions and the numbers of its attributes, as in cuda.h, and `Refused`."""

from __future__ import annotations

from enum import IntEnum

from kbuild.errors import KbuildError


class DriverResult(IntEnum):
    """CUresult: what a function of the driver returns."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NOT_INITIALIZED = 3
    CUDA_ERROR_DEINITIALIZED = 4
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_INVALID_DEVICE = 101
    CUDA_ERROR_INVALID_IMAGE = 200
    CUDA_ERROR_INVALID_CONTEXT = 201
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209
    CUDA_ERROR_INVALID_PTX = 218
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222
    CUDA_ERROR_SHARED_OBJECT_INIT_FAILED = 303
    CUDA_ERROR_OPERATING_SYSTEM = 304
    CUDA_ERROR_INVALID_HANDLE = 400
    CUDA_ERROR_ILLEGAL_STATE = 401
    CUDA_ERROR_NOT_FOUND = 500
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_ILLEGAL_ADDRESS = 700
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701
    CUDA_ERROR_LAUNCH_TIMEOUT = 702
    CUDA_ERROR_CONTEXT_IS_DESTROYED = 709
    CUDA_ERROR_ASSERT = 710
    CUDA_ERROR_ILLEGAL_INSTRUCTION = 715
    CUDA_ERROR_MISALIGNED_ADDRESS = 716
    CUDA_ERROR_LAUNCH_FAILED = 719
    CUDA_ERROR_NOT_SUPPORTED = 801
    CUDA_ERROR_SYSTEM_NOT_READY = 802
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906
    CUDA_ERROR_CAPTURED_EVENT = 907
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908
    CUDA_ERROR_UNKNOWN = 999

    def __repr__(self) -> str:
        return f"{self.name} ({self.value})"

    @property
    def words(self) -> str:
        """The description of the result."""
        return "no error" if self == 0 else self.name.removeprefix("CUDA_ERROR_").replace("_", " ").lower()


FINDINGS = {
    "out-of-bounds": DriverResult.CUDA_ERROR_ILLEGAL_ADDRESS,
    "use-after-free": DriverResult.CUDA_ERROR_ILLEGAL_ADDRESS,
    "misaligned": DriverResult.CUDA_ERROR_MISALIGNED_ADDRESS,
    "assertion": DriverResult.CUDA_ERROR_ASSERT,
    "step-budget": DriverResult.CUDA_ERROR_LAUNCH_TIMEOUT,
    "divergent-collective": DriverResult.CUDA_ERROR_ILLEGAL_INSTRUCTION,
}
"""What a finding of the emulator becomes; all others are CUDA_ERROR_LAUNCH_FAILED."""


class Refused(KbuildError):
    """Raised where a call fails, with its result and, where known, the reason."""

    def __init__(self, result: int, why: str = "") -> None:
        super().__init__(f"{result!r}: {why}" if why else repr(result))
        self.result = int(result)
        self.why = why


class DeviceAttribute(IntEnum):
    """CUdevice_attribute, those that have a value other than 0."""

    MAX_THREADS_PER_BLOCK = 1
    MAX_BLOCK_DIM_X = 2
    MAX_BLOCK_DIM_Y = 3
    MAX_BLOCK_DIM_Z = 4
    MAX_GRID_DIM_X = 5
    MAX_GRID_DIM_Y = 6
    MAX_GRID_DIM_Z = 7
    MAX_SHARED_MEMORY_PER_BLOCK = 8
    TOTAL_CONSTANT_MEMORY = 9
    WARP_SIZE = 10
    MAX_REGISTERS_PER_BLOCK = 12
    CLOCK_RATE = 13
    MULTIPROCESSOR_COUNT = 16
    CONCURRENT_KERNELS = 31
    L2_CACHE_SIZE = 38
    MAX_THREADS_PER_MULTIPROCESSOR = 39
    UNIFIED_ADDRESSING = 41
    COMPUTE_CAPABILITY_MAJOR = 75
    COMPUTE_CAPABILITY_MINOR = 76
    STREAM_PRIORITIES_SUPPORTED = 78
    MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81
    MAX_REGISTERS_PER_MULTIPROCESSOR = 82
    MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97
    RESERVED_SHARED_MEMORY_PER_BLOCK = 111
    CLUSTER_LAUNCH = 120
    TENSOR_MAP_ACCESS_SUPPORTED = 127


class FunctionAttribute(IntEnum):
    """CUfunction_attribute."""

    MAX_THREADS_PER_BLOCK = 0
    SHARED_SIZE_BYTES = 1
    CONST_SIZE_BYTES = 2
    LOCAL_SIZE_BYTES = 3
    NUM_REGS = 4
    PTX_VERSION = 5
    BINARY_VERSION = 6
    MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
    PREFERRED_SHARED_MEMORY_CARVEOUT = 9


class PointerAttribute(IntEnum):
    """CUpointer_attribute."""

    CONTEXT = 1
    MEMORY_TYPE = 2
    DEVICE_POINTER = 3
    IS_MANAGED = 8
    DEVICE_ORDINAL = 9
    RANGE_START_ADDR = 11
    RANGE_SIZE = 12
    MAPPED = 13


class JitOption(IntEnum):
    """CUjit_option, those that have an effect."""

    INFO_LOG_BUFFER = 3
    INFO_LOG_BUFFER_SIZE = 4
    ERROR_LOG_BUFFER = 5
    ERROR_LOG_BUFFER_SIZE = 6


class CaptureMode(IntEnum):
    """CUstreamCaptureMode: the threads whose unsafe calls a capture refuses."""

    GLOBAL = 0
    THREAD_LOCAL = 1
    RELAXED = 2
