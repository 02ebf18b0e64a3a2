/* The CUDA driver: its functions, contexts and devices, resolved from a library that the host has opened. */

/* glibc 2.34 gave these functions a second version, for which a linker would make the library ask.  The first version is in
 * every glibc: in libdl until then, which is there too in any process that can import this library. */
#if defined(__GLIBC__) && defined(__x86_64__)
#define FIRST_VERSION "GLIBC_2.2.5"
#elif defined(__GLIBC__) && defined(__aarch64__)
#define FIRST_VERSION "GLIBC_2.17"
#endif
#ifdef FIRST_VERSION
__asm__(".symver dlopen, dlopen@" FIRST_VERSION "\n"
        ".symver dlsym, dlsym@" FIRST_VERSION "\n"
        ".symver dlclose, dlclose@" FIRST_VERSION "\n"
        ".symver dlerror, dlerror@" FIRST_VERSION "\n"
        ".symver dladdr, dladdr@" FIRST_VERSION);
#endif

typedef int CUresult;
typedef int CUdevice;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;

enum {
    CUDA_SUCCESS = 0,
    CAPTURE_IMPLICIT = 906,           /* CUDA_ERROR_STREAM_CAPTURE_IMPLICIT */
    ATTRIBUTE_CAPABILITY_MAJOR = 75,
    ATTRIBUTE_CAPABILITY_MINOR = 76,
    ATTRIBUTE_NUM_SMS = 16,           /* CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT */
    ATTRIBUTE_SHARED_LIMIT = 97,      /* CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */
    FUNCTION_DYNAMIC_SHARED = 8,      /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
    POINTER_DEVICE_ORDINAL = 9,       /* CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL */
    OPTION_ERROR_LOG = 5,             /* CU_JIT_ERROR_LOG_BUFFER */
    OPTION_ERROR_LOG_SIZE = 6,        /* CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES */
    ERROR_LOG_SIZE = 4096,
    STREAM_SERIALIZATION = 6,         /* CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION */
    FIRST_WITH_STREAM_SERIALIZATION = 12030, /* the first driver that captures such launches too */
    MAX_DEVICES = 64,
    DRIVER_ALONE = -1                 /* instead of an ordinal */
};

/* X(symbol, parameters): every function of the driver that is called. */
#define DRIVER_FUNCTIONS(X) \
    X(cuInit, (unsigned int)) \
    X(cuDriverGetVersion, (int *)) \
    X(cuGetErrorName, (CUresult, const char **)) \
    X(cuGetErrorString, (CUresult, const char **)) \
    X(cuDeviceGetCount, (int *)) \
    X(cuDeviceGet, (CUdevice *, int)) \
    X(cuDeviceGetAttribute, (int *, int, CUdevice)) \
    X(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice)) \
    X(cuCtxGetCurrent, (CUcontext *)) \
    X(cuCtxGetDevice, (CUdevice *)) \
    X(cuCtxPushCurrent_v2, (CUcontext)) \
    X(cuCtxPopCurrent_v2, (CUcontext *)) \
    X(cuPointerGetAttribute, (void *, int, uint64_t)) \
    X(cuModuleLoadDataEx, (CUmodule *, const void *, unsigned int, int *, void **)) \
    X(cuModuleGetFunction, (CUfunction *, CUmodule, const char *)) \
    X(cuModuleUnload, (CUmodule)) \
    X(cuFuncSetAttribute, (CUfunction, int, int)) \
    X(cuStreamIsCapturing, (CUstream, int *)) \
    X(cuStreamSynchronize, (CUstream)) \
    X(cuMemsetD8Async, (uint64_t, unsigned char, size_t, CUstream)) \
    X(cuLaunchKernel, (CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, \
                       unsigned int, CUstream, void **, void **))

/* The tensor map that a kernel with TMA takes: encoded by the driver, of version 12.0 or later. */
typedef struct { _Alignas(64) uint64_t words[16]; } TensorMap;

#define ENCODE_PARAMETERS (TensorMap *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const uint32_t *, \
                           const uint32_t *, int, int, int, int)

/* What a launch takes that may begin before the one before it has ended: since 11.8, and captured in graphs since 12.3. */
typedef struct { int id; uint32_t padding; uint32_t value[16]; } LaunchAttribute;

typedef struct {
    unsigned int grid[3], block[3], shared;
    CUstream stream;
    const LaunchAttribute *attributes;
    unsigned int attribute_count;
} LaunchConfig;

/* The same of functions that are NULL in drivers before 12.0 and 11.8. */
#define OPTIONAL_DRIVER_FUNCTIONS(X) \
    X(cuTensorMapEncodeTiled, ENCODE_PARAMETERS) \
    X(cuLaunchKernelEx, (const LaunchConfig *, CUfunction, void **, void **))

typedef struct {
    CUdevice device;
    CUcontext context;
    int capability;   /* 10 * major + minor */
    int shared_limit; /* bytes of shared memory that one block may opt in to */
    int num_sms;      /* multiprocessors */
    uint64_t (*facts)[DEVICE_FACTS]; /* of each kernel */
    CUfunction functions[];          /* of each row; NULL until it is loaded */
} Device;

static struct {
    void *library;
    int version;      /* 1000 * major + 10 * minor; 0 while unknown */
    int device_count;
    int forked;       /* whether this process was forked from one that had initialised the driver */
#define DECLARE(symbol, parameters) CUresult (*symbol) parameters;
    DRIVER_FUNCTIONS(DECLARE)
    OPTIONAL_DRIVER_FUNCTIONS(DECLARE)
#undef DECLARE
} driver;

static Device *devices[MAX_DEVICES];

static int driver_check(CUresult code, const char *call)
{
    return code == CUDA_SUCCESS ? 0 : report_driver(call, code, NULL, -1);
}

/* Resolves the functions of the driver's library; the name of one that is missing, or NULL. */
static const char *resolve_driver(void *library)
{
    const char *missing = NULL;
    void *address;
#define RESOLVE(symbol, parameters) \
    address = dlsym(library, #symbol); \
    memcpy(&driver.symbol, &address, sizeof address); \
    if (!address) \
        missing = #symbol;
    DRIVER_FUNCTIONS(RESOLVE)
#undef RESOLVE
#define RESOLVE(symbol, parameters) \
    address = dlsym(library, #symbol); \
    memcpy(&driver.symbol, &address, sizeof address);
    OPTIONAL_DRIVER_FUNCTIONS(RESOLVE)
#undef RESOLVE
    if (driver.cuDriverGetVersion)
        driver.cuDriverGetVersion(&driver.version);
    return missing;
}

/* Initialises the driver, whose functions are resolved; -1 with a report where it refuses. */
static int initialise_driver(void *library)
{
    if (driver_check(driver.cuInit(0), "cuInit") < 0 || driver_check(driver.cuDeviceGetCount(&driver.device_count), "cuDeviceGetCount") < 0)
        return -1;
    driver.library = library;
    return 0;
}

/* The facts of a device that the rows of a kernel ask for: which targets run there, and how much shared memory there is. */
static void device_facts(const Kernel *kernel, int capability, int shared_limit, uint64_t *facts)
{
    facts[FACT_TARGET] = facts[FACT_SHARED] = 0;
    for (int i = 0; i < target_count; i++)
        facts[FACT_TARGET] |= (uint64_t)(targets[i].first <= capability && capability <= targets[i].last) << i;
    for (int i = 0; i < kernel->level_count; i++)
        facts[FACT_SHARED] |= (uint64_t)(shared_limit >= kernel->levels[i]) << i;
}

static int no_device(int64_t ordinal)
{
    return report(WRONG_LAUNCH, "%s: there is no CUDA device %lld; the driver shows %d", package_name, (long long)ordinal, driver.device_count);
}

/* Retains the primary context of a device and reads its properties; -1 with a report. */
static int start_device(int64_t ordinal)
{
    if (ordinal < 0 || ordinal >= driver.device_count || ordinal >= MAX_DEVICES)
        return no_device(ordinal);
    if (devices[ordinal])
        return 0;
    Device *device = calloc(1, sizeof *device + row_count * sizeof *device->functions + kernel_count * sizeof *device->facts);
    if (!device)
        return report(WRONG_LAUNCH, "%s: there is no memory for the functions of a device", package_name);
    int major = 0, minor = 0;
    if (driver_check(driver.cuDeviceGet(&device->device, (int)ordinal), "cuDeviceGet") < 0 ||
        driver_check(driver.cuDeviceGetAttribute(&major, ATTRIBUTE_CAPABILITY_MAJOR, device->device), "cuDeviceGetAttribute") < 0 ||
        driver_check(driver.cuDeviceGetAttribute(&minor, ATTRIBUTE_CAPABILITY_MINOR, device->device), "cuDeviceGetAttribute") < 0 ||
        driver_check(driver.cuDeviceGetAttribute(&device->num_sms, ATTRIBUTE_NUM_SMS, device->device), "cuDeviceGetAttribute") < 0 ||
        driver_check(driver.cuDeviceGetAttribute(&device->shared_limit, ATTRIBUTE_SHARED_LIMIT, device->device),
                     "cuDeviceGetAttribute") < 0 ||
        driver_check(driver.cuDevicePrimaryCtxRetain(&device->context, device->device), "cuDevicePrimaryCtxRetain") < 0) {
        free(device);
        return -1;
    }
    device->capability = 10 * major + minor;
    device->facts = (void *)(device->functions + row_count);
    for (int i = 0; i < kernel_count; i++)
        device_facts(&kernels[i], device->capability, device->shared_limit, device->facts[i]);
    devices[ordinal] = device;
    return 0;
}

/* Makes the device's context current where it is not; `pushed` says whether leave_context has to undo it. */
static int enter_context(const Device *device, int *pushed)
{
    CUcontext current = NULL;
    *pushed = 0;
    if (driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == device->context)
        return 0;
    if (driver_check(driver.cuCtxPushCurrent_v2(device->context), "cuCtxPushCurrent") < 0)
        return -1;
    *pushed = 1;
    return 0;
}

static void leave_context(int pushed)
{
    CUcontext popped;
    if (pushed)
        driver.cuCtxPopCurrent_v2(&popped);
}

static CUresult load_function(const VariantEntry *row, const char *image, CUfunction *function, char *log, const char **call)
{
    CUmodule loaded = NULL;
    int options[] = {OPTION_ERROR_LOG, OPTION_ERROR_LOG_SIZE};
    void *values[] = {log, (void *)(uintptr_t)ERROR_LOG_SIZE};
    *call = "cuModuleLoadDataEx";
    CUresult code = driver.cuModuleLoadDataEx(&loaded, image, 2, options, values);
    if (code != CUDA_SUCCESS)
        return code;
    *call = "cuModuleGetFunction";
    code = driver.cuModuleGetFunction(function, loaded, row->entry);
    if (code == CUDA_SUCCESS && row->opts_in) {
        *call = "cuFuncSetAttribute";
        code = driver.cuFuncSetAttribute(*function, FUNCTION_DYNAMIC_SHARED, row->shared);
    }
    if (code != CUDA_SUCCESS)
        driver.cuModuleUnload(loaded);
    return code;
}

/* Whether a CUDA graph is being captured from a stream, in the current context; -1 with a report. */
static int is_captured(CUstream stream)
{
    int status = 0;
    CUresult code = driver.cuStreamIsCapturing(stream, &status);
    if (code == CAPTURE_IMPLICIT) /* of the default stream, while a stream that it waits for is captured */
        return 1;
    return driver_check(code, "cuStreamIsCapturing") < 0 ? -1 : status != 0;
}
