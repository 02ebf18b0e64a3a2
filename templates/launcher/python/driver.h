/* The driver as Python's extension opens it, at the first launch; slow work and long words are dispatch.py's. */

/* What dispatch.py is asked for: slow work and long words. */
static struct {
    PyObject *open_device;  /* (ordinal or DRIVER_ALONE): opens the driver and the device, under the lock */
    PyObject *load_row;     /* (row, ordinal, stream): loads a cubin, under the lock */
    PyObject *no_variant;   /* (kernel, ordinal, facts, arguments): raises NoVariantError */
    PyObject *driver_error; /* (call, code, name, text, version, row): raises DriverError */
    PyObject *launch_error; /* the class LaunchError */
    PyObject *dispatch;     /* of operators.py: (operator, arguments): calls it by JAX or torch's dispatcher */
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

static int report_driver(const char *call, int code, const char *log, intptr_t row)
{
    const char *name = NULL, *text = NULL;
    if (driver.cuGetErrorName)
        driver.cuGetErrorName(code, &name);
    if (driver.cuGetErrorString)
        driver.cuGetErrorString(code, &text);
    raise_driver_error(call, code, name ? name : "unknown error", log && *log ? log : text, driver.version, row);
    return -1;
}

static int report(ReportKind kind, const char *format, ...)
{
    PyObject *const types[] = { PyExc_ValueError, PyExc_TypeError, hooks.launch_error };
    va_list arguments;
    va_start(arguments, format);
    PyErr_FormatV(types[kind], format, arguments);
    va_end(arguments);
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
    const char *missing = library ? resolve_driver(library) : NULL;
    if (missing)
        raise_driver_error("dlsym", -2, missing, path, driver.version, -1);
    int is_started = library && !missing && initialise_driver(library) == 0;
    if (library && !is_started)
        dlclose(library);
    Py_XDECREF(encoded);
    return is_started ? Py_NewRef(Py_None) : NULL;
}

/* _open_device(ordinal): retains the primary context of a device and reads its properties. */
static PyObject *open_device(PyObject *module, PyObject *argument)
{
    (void)module;
    long ordinal = PyLong_AsLong(argument);
    if (ordinal == -1 && PyErr_Occurred())
        return NULL;
    return start_device(ordinal) < 0 ? NULL : Py_NewRef(Py_None);
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
        no_device(ordinal);
        return NULL;
    }
    return call_open_device((int)ordinal) == 0 ? devices[ordinal] : NULL;
}

/* Leaves a context after a call that may have failed: a driver may run Python code, as that of the emulator does. */
static void leave_context_with_exception(int pushed)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    leave_context(pushed);
    PyErr_Restore(type, value, traceback);
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
        report_driver(call, code, log, index);
        return NULL;
    }
    device->functions[index] = function;
    return Py_NewRef(Py_None);
}

/* _is_capturing(ordinal, stream): whether a CUDA graph is being captured from the stream. */
static PyObject *is_capturing(PyObject *module, PyObject *arguments)
{
    (void)module;
    int ordinal, pushed;
    unsigned long long stream;
    if (!PyArg_ParseTuple(arguments, "iK", &ordinal, &stream))
        return NULL;
    Device *device = get_device(ordinal);
    if (!device || enter_context(device, &pushed) < 0)
        return NULL;
    int status = is_captured((CUstream)(uintptr_t)stream);
    leave_context_with_exception(pushed);
    return status < 0 ? NULL : PyBool_FromLong(status);
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
