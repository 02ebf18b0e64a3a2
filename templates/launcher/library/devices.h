/* The driver and its devices, opened at the first call; `lock` guards all of it. */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Memory in the order of a stream, which drivers have had since 11.2. */
static struct {
    CUresult (*cuMemAllocAsync)(uint64_t *address, size_t bytes, CUstream stream);
    CUresult (*cuMemFreeAsync)(uint64_t address, CUstream stream);
} memory;

static int open_driver(void)
{
    const char *given = getenv("KBUILD_LIBCUDA"), *path = given && *given ? given : "libcuda.so.1";
    if (driver.library)
        return 0;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return report(WRONG_LAUNCH, "the CUDA driver library %s cannot be loaded (%s); launching kernels takes an NVIDIA GPU and its driver",
                      path, dlerror());
    const char *missing = resolve_driver(library);
    void *allocate = dlsym(library, "cuMemAllocAsync"), *release = dlsym(library, "cuMemFreeAsync");
    memcpy(&memory.cuMemAllocAsync, &allocate, sizeof allocate);
    memcpy(&memory.cuMemFreeAsync, &release, sizeof release);
    if (missing || !allocate || !release)
        report(WRONG_LAUNCH, "the CUDA driver (%s) has no function %s; kernels need CUDA 11.4 or newer", path, missing ? missing : "cuMemAllocAsync");
    else if (initialise_driver(library) == 0)
        return 0;
    dlclose(library);
    return -1;
}

/* A device, opened if need be; NULL with a report. */
static Device *get_device(int64_t ordinal)
{
    pthread_mutex_lock(&lock);
    Device *device = open_driver() == 0 && start_device(ordinal) == 0 ? devices[ordinal] : NULL;
    pthread_mutex_unlock(&lock);
    return device;
}

/* Loads the code of a row into the current context, which is the device's; `lock` is held. */
static int load_row(Device *device, int index)
{
    char log[ERROR_LOG_SIZE] = "";
    const char *call;
    char *image = read_image(&rows[index]);
    if (!image)
        return -1;
    CUresult code = load_function(&rows[index], image, &device->functions[index], log, &call);
    free(image);
    log[ERROR_LOG_SIZE - 1] = '\0';
    return code == CUDA_SUCCESS ? 0 : report_driver(call, code, log, index);
}

/* The same for a call, whose stream must not be captured meanwhile. */
static int need_row(const Kernel *kernel, Device *device, int ordinal, int index, CUstream stream)
{
    if (device->functions[index])
        return 0;
    int captured = is_captured(stream);
    if (captured)
        return captured < 0 ? -1 : report(WRONG_LAUNCH, "%s(): its cubin is not loaded on device %d yet, and loading is not allowed while a "
                                          "CUDA graph is captured; call %s_preload(%d) before the capture", kernel->name, ordinal,
                                          package_symbol, ordinal);
    return load_row(device, index);
}

/* Loads all rows that run on a device. */
int preload_device(int ordinal)
{
    int pushed, status = 0;
    Device *device = get_device(ordinal);
    if (!device || enter_context(device, &pushed) < 0)
        return result_of(-1);
    pthread_mutex_lock(&lock);
    for (int k = 0; k < kernel_count; k++)
        for (int i = kernels[k].first_row; status == 0 && i < kernels[k].first_row + kernels[k].row_count; i++) {
            int runs = 1;
            for (int fact = 0; fact < DEVICE_FACTS; fact++)
                runs = runs && (device->facts[k][fact] & rows[i].required[fact]) == rows[i].required[fact];
            status = runs && !device->functions[i] ? load_row(device, i) : 0;
        }
    pthread_mutex_unlock(&lock);
    leave_context(pushed);
    return result_of(status);
}
