/* The CUDA driver: opened at the first launch, one context and one table of functions for each device. */

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
        ".symver dlerror, dlerror@" FIRST_VERSION);
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
    SHARED_WITHOUT_OPTIN = 48 * 1024, /* bytes of dynamic shared memory that need no attribute */
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
#undef DECLARE
    CUresult (*cuTensorMapEncodeTiled) ENCODE_PARAMETERS;  /* NULL in drivers before 12.0, which know no such kernels */
    CUresult (*cuLaunchKernelEx)(const LaunchConfig *, CUfunction, void **, void **);  /* NULL in drivers before 11.8 */
} driver;

static Device *devices[MAX_DEVICES];

/* What dispatch.py is asked for: slow work and long words. */
static struct {
    PyObject *open_device;  /* (ordinal or DRIVER_ALONE): opens the driver and the device, under the lock */
    PyObject *load_row;     /* (row, ordinal, stream): loads a cubin, under the lock */
    PyObject *no_variant;   /* (kernel, ordinal, facts, arguments): raises NoVariantError */
    PyObject *driver_error; /* (call, code, name, text, version, row): raises DriverError */
    PyObject *launch_error; /* the class LaunchError */
    PyObject *dispatch;     /* of operators.py: (operator, arguments): calls it by torch's dispatcher */
    PyObject *allocate;     /* of operators.py: (name, array, shape, type): makes an array beside another */
} hooks;

/* A hook that raises has returned: an exception is set, whatever it did. */
static void has_raised(PyObject *answer)
{
    if (answer)
        PyErr_Format(hooks.launch_error, "%s: a call failed, but no error was raised", package_name);
    Py_XDECREF(answer);
}

/* Words of the driver and the loader are in no encoding that one could count on. */
static PyObject *text_of(const char *text)
{
    return PyUnicode_DecodeUTF8(text ? text : "", text ? (Py_ssize_t)strlen(text) : 0, "replace");
}

static void raise_driver_error(const char *call, CUresult code, const char *name, const char *text, int version, Py_ssize_t row)
{
    PyObject *words[] = { text_of(name), text_of(text) };
    if (words[0] && words[1])
        has_raised(PyObject_CallFunction(hooks.driver_error, "siOOin", call, code, words[0], words[1], version, row));
    Py_XDECREF(words[0]);
    Py_XDECREF(words[1]);
}

static void driver_fail(const char *call, CUresult code, const char *log, Py_ssize_t row)
{
    const char *name = NULL, *text = NULL;
    if (driver.cuGetErrorName)
        driver.cuGetErrorName(code, &name);
    if (driver.cuGetErrorString)
        driver.cuGetErrorString(code, &text);
    raise_driver_error(call, code, name ? name : "unknown error", log && *log ? log : text, driver.version, row);
}

static int driver_check(CUresult code, const char *call)
{
    if (code == CUDA_SUCCESS)
        return 0;
    driver_fail(call, code, NULL, -1);
    return -1;
}

static void after_fork_in_child(void)
{
    driver.forked = driver.forked || driver.library != NULL;
}

static int refuse_fork(void)
{
    if (!driver.forked)
        return 0;
    PyErr_Format(hooks.launch_error, "%s: this process was forked after CUDA had been initialised in its parent, and CUDA does "
                 "not work across fork; start workers with the \"spawn\" or \"forkserver\" method", package_name);
    return -1;
}

/* Resolves the functions of the driver's library and initialises it. */
static PyObject *start_driver(void *library, const char *path)
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
    address = dlsym(library, "cuTensorMapEncodeTiled");
    memcpy(&driver.cuTensorMapEncodeTiled, &address, sizeof address);
    address = dlsym(library, "cuLaunchKernelEx");
    memcpy(&driver.cuLaunchKernelEx, &address, sizeof address);
    if (driver.cuDriverGetVersion)
        driver.cuDriverGetVersion(&driver.version);
    if (missing) {
        raise_driver_error("dlsym", -2, missing, path, driver.version, -1);
        dlclose(library);
        return NULL;
    }
    CUresult code = driver.cuInit(0);
    const char *call = "cuInit";
    if (code == CUDA_SUCCESS) {
        code = driver.cuDeviceGetCount(&driver.device_count);
        call = "cuDeviceGetCount";
    }
    if (code != CUDA_SUCCESS) {
        driver_fail(call, code, NULL, -1);
        dlclose(library);
        return NULL;
    }
    driver.library = library;
    return Py_NewRef(Py_None);
}

/* _open_driver(path): opens the library and resolves its functions. */
static PyObject *open_driver(PyObject *module, PyObject *argument)
{
    (void)module;
    if (driver.library || refuse_fork() < 0)
        return driver.library ? Py_NewRef(Py_None) : NULL;
    PyObject *encoded = PyUnicode_EncodeFSDefault(argument);
    const char *path = encoded ? PyBytes_AsString(encoded) : NULL;
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (path && !library)
        raise_driver_error("dlopen", -1, path, dlerror(), 0, -1);
    PyObject *opened = library ? start_driver(library, path) : NULL;
    Py_XDECREF(encoded);
    return opened;
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

/* _open_device(ordinal): retains the primary context of a device and reads its properties. */
static PyObject *open_device(PyObject *module, PyObject *argument)
{
    (void)module;
    long ordinal = PyLong_AsLong(argument);
    if (ordinal == -1 && PyErr_Occurred())
        return NULL;
    if (ordinal < 0 || ordinal >= driver.device_count || ordinal >= MAX_DEVICES)
        return PyErr_Format(hooks.launch_error, "%s: there is no CUDA device %ld; the driver shows %d",
                            package_name, ordinal, driver.device_count);
    if (devices[ordinal])
        return Py_NewRef(Py_None);
    Device *device = PyMem_Calloc(1, sizeof *device + row_count * sizeof *device->functions + kernel_count * sizeof *device->facts);
    if (!device)
        return PyErr_NoMemory();
    int major = 0, minor = 0;
    if (driver_check(driver.cuDeviceGet(&device->device, (int)ordinal), "cuDeviceGet") < 0 ||
        driver_check(driver.cuDeviceGetAttribute(&major, ATTRIBUTE_CAPABILITY_MAJOR, device->device), "cuDeviceGetAttribute") < 0 ||
        driver_check(driver.cuDeviceGetAttribute(&minor, ATTRIBUTE_CAPABILITY_MINOR, device->device), "cuDeviceGetAttribute") < 0 ||
        driver_check(driver.cuDeviceGetAttribute(&device->num_sms, ATTRIBUTE_NUM_SMS, device->device), "cuDeviceGetAttribute") < 0 ||
        driver_check(driver.cuDeviceGetAttribute(&device->shared_limit, ATTRIBUTE_SHARED_LIMIT, device->device),
                     "cuDeviceGetAttribute") < 0 ||
        driver_check(driver.cuDevicePrimaryCtxRetain(&device->context, device->device), "cuDevicePrimaryCtxRetain") < 0) {
        PyMem_Free(device);
        return NULL;
    }
    device->capability = 10 * major + minor;
    device->facts = (void *)(device->functions + row_count);
    for (int i = 0; i < kernel_count; i++)
        device_facts(&kernels[i], device->capability, device->shared_limit, device->facts[i]);
    devices[ordinal] = device;
    return Py_NewRef(Py_None);
}

static int call_open_device(int ordinal)
{
    PyObject *done = PyObject_CallFunction(hooks.open_device, "i", ordinal);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* Opens the driver but no device: a context takes memory of its device. */
static int need_driver(void)
{
    return refuse_fork() < 0 ? -1 : driver.library ? 0 : call_open_device(DRIVER_ALONE);
}

/* The device of an ordinal, opened if need be; NULL with an exception set. */
static Device *get_device(int64_t ordinal)
{
    if (refuse_fork() < 0)
        return NULL;
    if (ordinal >= 0 && ordinal < MAX_DEVICES && devices[ordinal])
        return devices[ordinal];
    if (need_driver() < 0)
        return NULL;
    if (ordinal < 0 || ordinal >= driver.device_count || ordinal >= MAX_DEVICES) {
        PyErr_Format(hooks.launch_error, "%s: there is no CUDA device %lld; the driver shows %d",
                     package_name, (long long)ordinal, driver.device_count);
        return NULL;
    }
    return call_open_device((int)ordinal) == 0 ? devices[ordinal] : NULL;
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
    if (code == CUDA_SUCCESS && row->shared > SHARED_WITHOUT_OPTIN) {
        *call = "cuFuncSetAttribute";
        code = driver.cuFuncSetAttribute(*function, FUNCTION_DYNAMIC_SHARED, row->shared);
    }
    if (code != CUDA_SUCCESS)
        driver.cuModuleUnload(loaded);
    return code;
}

/* _load(row, ordinal, image): loads the verified bytes of a row; dispatch.py holds the lock. */
static PyObject *load_row(PyObject *module, PyObject *arguments)
{
    (void)module;
    int index, ordinal, pushed;
    const char *image;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(arguments, "iiy#", &index, &ordinal, &image, &size))
        return NULL;
    if (index < 0 || index >= row_count)
        return PyErr_Format(PyExc_IndexError, "no such row");
    Device *device = get_device(ordinal);
    if (!device || enter_context(device, &pushed) < 0)
        return NULL;
    char log[ERROR_LOG_SIZE] = "";
    const char *call;
    CUfunction function = NULL;
    CUresult code;
    Py_BEGIN_ALLOW_THREADS
    code = load_function(&rows[index], image, &function, log, &call);
    leave_context(pushed);
    Py_END_ALLOW_THREADS
    if (code != CUDA_SUCCESS) {
        log[ERROR_LOG_SIZE - 1] = '\0';
        driver_fail(call, code, log, index);
        return NULL;
    }
    device->functions[index] = function;
    return Py_NewRef(Py_None);
}

/* _is_capturing(ordinal, stream): whether a CUDA graph is being captured from the stream. */
static PyObject *is_capturing(PyObject *module, PyObject *arguments)
{
    (void)module;
    int ordinal, pushed, status = 0;
    unsigned long long stream;
    if (!PyArg_ParseTuple(arguments, "iK", &ordinal, &stream))
        return NULL;
    Device *device = get_device(ordinal);
    if (!device || enter_context(device, &pushed) < 0)
        return NULL;
    CUresult code = driver.cuStreamIsCapturing((CUstream)(uintptr_t)stream, &status);
    leave_context(pushed);
    if (code == CAPTURE_IMPLICIT) /* of the default stream, while a stream that it waits for is captured */
        Py_RETURN_TRUE;
    return driver_check(code, "cuStreamIsCapturing") < 0 ? NULL : PyBool_FromLong(status != 0);
}

/* _is_loaded(row, ordinal) */
static PyObject *is_loaded(PyObject *module, PyObject *arguments)
{
    (void)module;
    int row, ordinal;
    if (!PyArg_ParseTuple(arguments, "ii", &row, &ordinal))
        return NULL;
    int known = ordinal >= 0 && ordinal < MAX_DEVICES && devices[ordinal] && row >= 0 && row < row_count;
    return PyBool_FromLong(known && devices[ordinal]->functions[row]);
}

/* _device(ordinal): (compute capability, shared memory in bytes, multiprocessors, driver version) */
static PyObject *device_properties(PyObject *module, PyObject *argument)
{
    (void)module;
    long long ordinal = PyLong_AsLongLong(argument);
    if (ordinal == -1 && PyErr_Occurred())
        return NULL;
    Device *device = get_device(ordinal);
    return device ? Py_BuildValue("iiii", device->capability, device->shared_limit, device->num_sms, driver.version) : NULL;
}
