/* A fake libcuda.so.1: devices as the environment says, and a log of everything that is launched.
 *
 * FAKE_CUDA_DEVICES="90 80": compute capabilities; FAKE_CUDA_FAIL="cuInit=100": function and result;
 * FAKE_CUDA_VERSION="12040"; FAKE_CUDA_CAPTURING="1": streams are being captured. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LAUNCHES = 1 << 16, MAX_PARAMS = 16, MAX_FUNCTIONS = 256 };

typedef struct { unsigned grid[3], block, shared; uint64_t stream; void *context; char entry[64]; char image[64]; uint64_t params[MAX_PARAMS]; uint64_t map[16]; int may_begin_early; } Launch;

typedef struct { char entry[64], image[64]; int max_shared; void *context; } Function;

static Launch launches[MAX_LAUNCHES];
static int launch_count, load_count, push_count, sync_count, encode_count, memset_count;
static Function functions[MAX_FUNCTIONS];
static int function_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread void *stack[64];
static __thread int depth;

static int fails(const char *name)
{
    const char *text = getenv("FAKE_CUDA_FAIL");
    size_t length = strlen(name);
    return text && strncmp(text, name, length) == 0 && text[length] == '=' ? atoi(text + length + 1) : 0;
}

#define FAIL(name) do { int code = fails(name); if (code) return code; } while (0)

static int capability(int device)
{
    const char *text = getenv("FAKE_CUDA_DEVICES");
    char *end;
    text = text ? text : "90";
    for (int i = 0;; i++, text = end) {
        long value = strtol(text, &end, 10);
        if (end == text)
            return -1;
        if (i == device)
            return (int)value;
    }
}

int cuInit(unsigned flags) { (void)flags; FAIL("cuInit"); return 0; }
int cuDriverGetVersion(int *version) { const char *text = getenv("FAKE_CUDA_VERSION"); *version = text ? atoi(text) : 12040; return 0; }
int cuGetErrorName(int code, const char **name) { *name = code == 100 ? "CUDA_ERROR_NO_DEVICE" : code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_FAKE"; return 0; }
int cuGetErrorString(int code, const char **text) { (void)code; *text = "an injected error"; return 0; }
int cuDeviceGetCount(int *count) { FAIL("cuDeviceGetCount"); for (*count = 0; capability(*count) >= 0;) ++*count; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    int cc = capability(device);
    *value = attribute == 75 ? cc / 10 : attribute == 76 ? cc % 10 : attribute == 16 ? 6 : attribute == 97 ? (cc == 90 ? 232448 : cc == 86 ? 101376 : 166912) : 0;
    return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device) { FAIL("cuDevicePrimaryCtxRetain"); *context = (void *)(uintptr_t)(0xC000 + device); return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return 0; }
int cuCtxGetCurrent(void **context) { *context = depth ? stack[depth - 1] : NULL; return 0; }
int cuCtxGetDevice(int *device) { if (!depth) return 201; *device = (int)((uintptr_t)stack[depth - 1] - 0xC000); return 0; }
int cuCtxSetCurrent(void *context) { depth = depth ? depth : 1; stack[depth - 1] = context; return 0; }
int cuCtxPushCurrent_v2(void *context) { __sync_fetch_and_add(&push_count, 1); stack[depth++] = context; return 0; }
int cuCtxPopCurrent_v2(void **context) { *context = stack[--depth]; return 0; }

/* Addresses name their device in the bits from 40 on, as the tests make them: device 0 is 1 << 40. */
int cuPointerGetAttribute(void *value, int attribute, uint64_t address)
{
    (void)attribute;
    if (address >> 40 == 0)
        return 1;
    *(int *)value = (int)(address >> 40) - 1;
    return 0;
}

int cuModuleLoadDataEx(void **loaded, const void *image, unsigned count, int *options, void **values)
{
    (void)options;
    if (count && fails("cuModuleLoadDataEx"))
        strcpy(values[0], "ptxas: injected log");
    FAIL("cuModuleLoadDataEx");
    __sync_fetch_and_add(&load_count, 1);
    *loaded = (void *)image;
    return depth ? 0 : 201;
}

int cuModuleGetFunction(void **function, void *loaded, const char *entry)
{
    FAIL("cuModuleGetFunction");
    pthread_mutex_lock(&lock);
    Function *made = &functions[function_count++];
    pthread_mutex_unlock(&lock);
    snprintf(made->entry, sizeof made->entry, "%s", entry);
    snprintf(made->image, sizeof made->image, "%s", (const char *)loaded);
    made->max_shared = 48 * 1024;
    made->context = depth ? stack[depth - 1] : NULL;
    *function = made;
    return 0;
}

/* Kernels of libraries belong to no context. */
int cuLibraryLoadData(void **loaded, const void *image) { FAIL("cuLibraryLoadData"); *loaded = (void *)image; return 0; }
int cuLibraryUnload(void *loaded) { (void)loaded; return 0; }

int cuLibraryGetKernel(void **kernel, void *loaded, const char *entry)
{
    int code = cuModuleGetFunction(kernel, loaded, entry);
    if (!code)
        ((Function *)*kernel)->context = NULL;
    return code;
}

int cuModuleUnload(void *loaded) { (void)loaded; return 0; }
int cuFuncSetAttribute(Function *function, int attribute, int value) { if (attribute == 8) function->max_shared = value; return 0; }
int cuStreamIsCapturing(void *stream, int *status) { (void)stream; *status = getenv("FAKE_CUDA_CAPTURING") != NULL; return 0; }
int cuMemsetD8Async(uint64_t address, unsigned char value, size_t count, void *stream) { (void)address, (void)value, (void)count, (void)stream; FAIL("cuMemsetD8Async"); __sync_fetch_and_add(&memset_count, 1); return 0; }
int cuMemAllocAsync(uint64_t *address, size_t count, void *stream) { (void)stream; FAIL("cuMemAllocAsync"); *address = (uint64_t)(uintptr_t)malloc(count); return 0; }
int cuMemFreeAsync(uint64_t address, void *stream) { (void)stream; free((void *)(uintptr_t)address); return 0; }
int cuStreamSynchronize(void *stream) { (void)stream; __sync_fetch_and_add(&sync_count, 1); return 0; }

/* The fake driver's tensor map holds the values that it was made from. */
int cuTensorMapEncodeTiled(uint64_t *map, int type, unsigned rank, void *address, const uint64_t *sizes, const uint64_t *pitches,
                           const unsigned *box, const unsigned *steps, int interleave, int swizzle, int promotion, int fill)
{
    FAIL("cuTensorMapEncodeTiled");
    if ((uintptr_t)map % 64 || rank < 2 || rank > 3 || steps[0] != 1 || steps[1] != 1 || steps[2] != 1 || interleave || promotion != 2 || fill)
        return 1;
    __sync_fetch_and_add(&encode_count, 1);
    uint64_t words[16] = { (uintptr_t)address, sizes[0], sizes[1], pitches[0], box[0], box[1], (uint64_t)type, (uint64_t)swizzle,
                           rank > 2 ? sizes[2] : 0, rank > 2 ? pitches[1] : 0, rank > 2 ? box[2] : 0 };
    memcpy(map, words, sizeof words);
    return 0;
}

int cuLaunchKernel(Function *function, unsigned x, unsigned y, unsigned z, unsigned block, unsigned block_y, unsigned block_z,
                   unsigned shared, void *stream, void **params, void **extra)
{
    (void)block_y, (void)block_z, (void)extra;
    FAIL("cuLaunchKernel");
    if ((int)shared > function->max_shared || !depth || (function->context && stack[depth - 1] != function->context))
        return 400;
    Launch *launch = &launches[__sync_fetch_and_add(&launch_count, 1) % MAX_LAUNCHES];
    *launch = (Launch){ { x, y, z }, block, shared, (uintptr_t)stream, stack[depth - 1], "", "", { 0 }, { 0 }, 0 };
    memcpy(launch->entry, function->entry, sizeof launch->entry);
    memcpy(launch->image, function->image, sizeof launch->image);
    const char *count = strrchr(function->image, '#'); /* the tests write the number of parameters at the end of an image */
    for (int i = 0; count && i < atoi(count + 1) && i < MAX_PARAMS; i++)
        launch->params[i] = *(uint64_t *)params[i];
    if (count && strchr(function->image, '^')) /* and mark those whose last parameter is a tensor map */
        memcpy(launch->map, params[atoi(count + 1) - 1], sizeof launch->map);
    return 0;
}

/* Launches with at most one attribute: whether they may begin early. */
int cuLaunchKernelEx(const void *config, Function *function, void **params, void **extra)
{
    const struct { unsigned grid[3], block[3], shared; void *stream; const unsigned *attribute; unsigned count; } *given = config;
    FAIL("cuLaunchKernelEx");
    if (given->count > 1 || (given->count && given->attribute[0] != 6))
        return 1;
    int code = cuLaunchKernel(function, given->grid[0], given->grid[1], given->grid[2], given->block[0], given->block[1],
                              given->block[2], given->shared, given->stream, params, extra);
    launches[(launch_count - 1) % MAX_LAUNCHES].may_begin_early = code == 0 && given->count && given->attribute[2] == 1;
    return code;
}

const Launch *fake_launches(void) { return launches; }
int fake_launch_count(void) { return launch_count; }
int fake_load_count(void) { return load_count; }
int fake_push_count(void) { return push_count; }
int fake_sync_count(void) { return sync_count; }
int fake_encode_count(void) { return encode_count; }

/* For cuda.bindings, which asks for functions by their names without a version, newest first. */
int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status)
{
    char versioned[128];
    Dl_info place;
    (void)version, (void)flags;
    void *self = dladdr((void *)cuGetProcAddress_v2, &place) ? dlopen(place.dli_fname, RTLD_NOW | RTLD_NOLOAD) : NULL;
    snprintf(versioned, sizeof versioned, "%s_v2", name);
    *function = dlsym(self, versioned);
    *function = *function ? *function : dlsym(self, name);
    if (status)
        *status = *function ? 0 : 1;
    return *function ? 0 : 500;
}
