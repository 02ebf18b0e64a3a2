/* From facts to cuLaunchKernel, and the module that Python sees. */

/* An IEEE number of so many bits for exponent and mantissa, rounded to nearest even. */
static uint64_t encode_float(double value, int exponent_bits, int mantissa_bits)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint64_t sign = bits >> 63 << (exponent_bits + mantissa_bits);
    int exponent = (int)(bits >> 52 & 0x7FF) - 1023, bias = (1 << (exponent_bits - 1)) - 1;
    uint64_t fraction = bits & ((UINT64_C(1) << 52) - 1);
    uint64_t infinity = ((UINT64_C(1) << exponent_bits) - 1) << mantissa_bits;
    if (exponent == 1024)
        return sign | infinity | (fraction ? UINT64_C(1) << (mantissa_bits - 1) : 0);
    int shift = 52 - mantissa_bits, biased = exponent + bias;
    uint64_t base = 0;
    if (biased > 0) {
        base = (uint64_t)biased << mantissa_bits;
    } else {
        fraction |= UINT64_C(1) << 52;
        shift += 1 - biased;
    }
    if (shift > 54)
        return sign;
    uint64_t kept = base + (fraction >> shift), rest = fraction & ((UINT64_C(1) << shift) - 1), half = UINT64_C(1) << (shift - 1);
    kept += rest > half || (rest == half && (kept & 1));
    return sign | (kept < infinity ? kept : infinity);
}

static int read_grid(const Kernel *kernel, PyObject *given, int64_t *grid)
{
    int is_tuple = PyTuple_Check(given);
    Py_ssize_t count = is_tuple ? PyTuple_Size(given) : 1;
    for (Py_ssize_t i = 0; i < count && i < 3; i++) {
        PyObject *axis = PyNumber_Index(is_tuple ? PyTuple_GetItem(given, i) : given);
        grid[i] = axis ? PyLong_AsLongLong(axis) : -1;
        Py_XDECREF(axis);
        if (PyErr_Occurred())
            count = 0;
    }
    if (count >= 1 && count <= 3)
        return 0;
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s(): grid must be an integer, or a tuple of one to three integers", kernel->name);
    return -1;
}

/* The grid of a row: 0 to launch, 1 when it is empty, -1 with an exception. */
static int compute_grid(const Kernel *kernel, const Row *row, PyObject *given, const Value *arguments, int num_sms, int64_t *grid)
{
    static const int64_t limits[] = {INT32_MAX, UINT16_MAX, UINT16_MAX};
    int fault = 0;
    grid[0] = grid[1] = grid[2] = 1;
    if (given && given != Py_None) {
        if (read_grid(kernel, given, grid) < 0)
            return -1;
    } else if (!kernel->has_grid) {
        PyErr_Format(PyExc_TypeError, "%s() misses the keyword argument 'grid'", kernel->name);
        return -1;
    } else {
        kernel->grid(arguments, row->constants, num_sms, grid, &fault);
    }
    if (fault) {
        PyErr_Format(hooks.launch_error, "%s(): its grid overflows 64 bits, or divides by zero", kernel->name);
        return -1;
    }
    for (int i = 0; i < 3; i++)
        if (grid[i] < 0 || grid[i] > limits[i]) {
            PyErr_Format(hooks.launch_error, "%s(): the grid (%lld, %lld, %lld) has %lld programs along axis %d; a launch takes 0 to %lld",
                         kernel->name, (long long)grid[0], (long long)grid[1], (long long)grid[2], (long long)grid[i], i,
                         (long long)limits[i]);
            return -1;
        }
    if (grid[0] % row->cluster_size) {
        PyErr_Format(hooks.launch_error, "%s(): the grid has %lld programs along axis 0, which are no clusters of %d", kernel->name,
                     (long long)grid[0], row->cluster_size);
        return -1;
    }
    return !grid[0] || !grid[1] || !grid[2];
}

static PyObject *tuple_of_bits(const uint64_t *bits, int count)
{
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple && i < count; i++) {
        PyObject *item = PyLong_FromUnsignedLongLong(bits[i]);
        if (!item || PyTuple_SetItem(tuple, i, item) < 0) {
            Py_DECREF(tuple);
            return NULL;
        }
    }
    return tuple;
}

static PyObject *tuple_of_slots(PyObject *const *slots, int count)
{
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple && i < count; i++)
        PyTuple_SetItem(tuple, i, Py_NewRef(slots[i] ? slots[i] : Py_None));
    return tuple;
}

static PyObject *refuse_call(const Kernel *kernel, PyObject **slots, const Call *call)
{
    PyObject *facts = tuple_of_bits(call->facts, kernel->fact_count);
    PyObject *arguments = tuple_of_slots(slots, kernel->parameter_count + kernel->option_count);
    if (facts && arguments)
        Py_XDECREF(PyObject_CallFunction(hooks.no_variant, "iiOO", (int)(kernel - kernels), call->device, facts, arguments));
    Py_XDECREF(facts);
    Py_XDECREF(arguments);
    return NULL;
}

/* The tensor maps made last.  They hold addresses and sizes alone, so that they are right on every device. */
enum { MAP_CACHE_SLOTS = 64, MAP_ALIGNMENT = 16 };

enum { MAP_FACTS = 2 * MAX_MAP_RANK };

static struct { int plan; /* 1 + plan; 0: empty */ uint64_t facts[MAP_FACTS]; TensorMap map; } map_cache[MAP_CACHE_SLOTS];

static int64_t map_number(int64_t number, const Value *values)
{
    return number < 0 ? values[-1 - number].integer : number;
}

/* Sizes, and bytes from one index to the next, of the tensor of a plan; a size of zero counts as one, of which nothing is read
   that matters.  -1 with an exception where the copy engine cannot read it. */
static int map_extents(const Kernel *kernel, const MapPlan *plan, const Value *values, uint64_t *sizes, uint64_t *pitches)
{
    const char *name = kernel->parameters[plan->base].name;
    uint64_t address = values[plan->base].address;
    if (address % MAP_ALIGNMENT) {
        PyErr_Format(hooks.launch_error, "%s(): the address of %s is not divisible by %d, so it cannot be read through a tensor map",
                     kernel->name, name, (int)MAP_ALIGNMENT);
        return -1;
    }
    for (int i = 0; i < plan->rank; i++) {
        int64_t size = map_number(plan->sizes[i], values), pitch = 0;
        int overflow = i && __builtin_mul_overflow(map_number(plan->strides[i - 1], values), (int64_t)plan->element_bytes, &pitch);
        if (size < 0 || size > INT64_C(1) << 32) {
            PyErr_Format(hooks.launch_error, "%s(): %s has %lld elements along an axis, a tensor map 0 to 2^32", kernel->name, name,
                         (long long)size);
            return -1;
        }
        if (overflow || pitch < 0 || pitch >> 40 || pitch % MAP_ALIGNMENT) {
            PyErr_Format(hooks.launch_error, "%s(): %s has a stride of %lld elements; for a tensor map a stride is a multiple of %d bytes "
                         "below 2^40", kernel->name, name, (long long)map_number(plan->strides[i - 1], values), (int)MAP_ALIGNMENT);
            return -1;
        }
        sizes[i] = size ? (uint64_t)size : 1;
        if (i)
            pitches[i - 1] = (uint64_t)pitch;
    }
    return 0;
}

/* The map of a plan for the parameters of a call; -1 with an exception.  Called with the GIL held, which guards the cache. */
static int make_map(const Kernel *kernel, int index, int plan_number, const Value *values, TensorMap *made)
{
    const MapPlan *plan = &map_plans[plan_number];
    uint64_t facts[MAP_FACTS] = { values[plan->base].address };
    uint64_t hash = (uint64_t)plan_number;
    for (int i = 0; i < plan->rank; i++) {
        facts[1 + i] = (uint64_t)map_number(plan->sizes[i], values);
        if (i)
            facts[MAX_MAP_RANK + i] = (uint64_t)map_number(plan->strides[i - 1], values);
    }
    for (int i = 0; i < MAP_FACTS; i++)
        hash = (hash ^ facts[i]) * UINT64_C(0x9E3779B97F4A7C15);
    int slot = (int)(hash >> 58);
    if (map_cache[slot].plan == plan_number + 1 && memcmp(map_cache[slot].facts, facts, sizeof facts) == 0) {
        *made = map_cache[slot].map;
        return 0;
    }
    uint64_t sizes[MAX_MAP_RANK], pitches[MAX_MAP_RANK];
    if (map_extents(kernel, plan, values, sizes, pitches) < 0)
        return -1;
    if (!driver.cuTensorMapEncodeTiled) {
        PyErr_Format(hooks.launch_error, "%s(): the driver is too old for tensor maps; it has to be of CUDA 12.0 or later", kernel->name);
        return -1;
    }
    static const uint32_t steps[MAX_MAP_RANK] = { 1, 1, 1, 1, 1 };
    enum { NO_INTERLEAVE = 0, PROMOTE_128_BYTES = 2, FILL_ZEROS = 0 };
    CUresult code = driver.cuTensorMapEncodeTiled(made, plan->type, (uint32_t)plan->rank, (void *)(uintptr_t)facts[0], sizes, pitches,
                                                  plan->box, steps, NO_INTERLEAVE, plan->swizzle, PROMOTE_128_BYTES, FILL_ZEROS);
    if (code != CUDA_SUCCESS) {
        driver_fail("cuTensorMapEncodeTiled", code, NULL, index);
        return -1;
    }
    map_cache[slot].plan = plan_number + 1;
    memcpy(map_cache[slot].facts, facts, sizeof facts);
    map_cache[slot].map = *made;
    return 0;
}

/* Waits for the streams on which arguments will be ready, unless the launch is captured: a graph reads its arrays when it runs,
   and waiting would end the capture. */
static CUresult wait_for_producers(const Call *call, const char **failing)
{
    CUresult code = CUDA_SUCCESS;
    int is_asked = 0, capturing = 0;
    for (int i = 0; i < call->producer_count && code == CUDA_SUCCESS && !capturing; i++) {
        if (is_same_stream(call->producers[i], call->stream))
            continue;
        *failing = "cuStreamIsCapturing";
        code = is_asked++ ? CUDA_SUCCESS : driver.cuStreamIsCapturing((CUstream)(uintptr_t)call->stream, &capturing);
        if (code != CUDA_SUCCESS || capturing)
            break;
        *failing = "cuStreamSynchronize";
        code = driver.cuStreamSynchronize((CUstream)(uintptr_t)call->producers[i]);
    }
    return code;
}

/* Launches a row; with launch_pdl it may begin before the launch before it in the stream has ended. */
static CUresult launch_function(const Row *row, CUfunction function, const int64_t *grid, CUstream stream, void **addresses,
                                const char **failing)
{
    unsigned x = (unsigned)grid[0], y = (unsigned)grid[1], z = (unsigned)grid[2];
    unsigned threads = (unsigned)row->threads, shared = (unsigned)row->shared;
    if (!row->launch_pdl || !driver.cuLaunchKernelEx || driver.version < FIRST_WITH_STREAM_SERIALIZATION) {
        *failing = "cuLaunchKernel";
        return driver.cuLaunchKernel(function, x, y, z, threads, 1, 1, shared, stream, addresses, NULL);
    }
    *failing = "cuLaunchKernelEx";
    LaunchAttribute attribute = { STREAM_SERIALIZATION, 0, { 1 } };
    LaunchConfig config = { { x, y, z }, { threads, 1, 1 }, shared, stream, &attribute, 1 };
    return driver.cuLaunchKernelEx(&config, function, addresses, NULL);
}

static PyObject *launch_row(const Kernel *kernel, const Device *device, int index, const int64_t *grid, Call *call)
{
    const Row *row = &rows[index];
    TensorMap maps[MAX_MAPS];
    int map_count = 0;
    void *addresses[MAX_PASSED];
    uint64_t encoded[MAX_PASSED], null = 0;
    for (int i = 0; i < row->passed_count; i++) {
        const Passed *passed = &row->passed[i];
        addresses[i] = passed->parameter < 0 ? (void *)&null : (void *)&call->values[passed->parameter];
        if (passed->exponent) {
            encoded[i] = encode_float(call->values[passed->parameter].number, passed->exponent, passed->mantissa);
            addresses[i] = &encoded[i];
        }
        if (passed->map >= 0) {
            if (make_map(kernel, index, passed->map, call->values, &maps[map_count]) < 0)
                return NULL;
            addresses[i] = &maps[map_count++];
        }
    }
    CUresult code;
    const char *failing = "cuCtxPushCurrent";
    CUcontext current = NULL;
    Py_BEGIN_ALLOW_THREADS
    code = driver.cuCtxGetCurrent(&current);
    int foreign = code != CUDA_SUCCESS || current != device->context;
    if (foreign)
        code = driver.cuCtxPushCurrent_v2(device->context);
    if (code == CUDA_SUCCESS)
        code = wait_for_producers(call, &failing);
    if (code == CUDA_SUCCESS)
        code = launch_function(row, device->functions[index], grid, (CUstream)(uintptr_t)call->stream, addresses, &failing);
    if (foreign && strcmp(failing, "cuCtxPushCurrent") != 0)
        leave_context(1);
    Py_END_ALLOW_THREADS
    if (code == CUDA_SUCCESS)
        return Py_NewRef(Py_None);
    driver_fail(failing, code, NULL, index);
    return NULL;
}

static PyObject *launch_call(const Kernel *kernel, PyObject **slots, Call *call)
{
    if (call->device < 0 && (call->device = default_device()) < 0)
        return NULL;
    const Device *device = get_device(call->device);
    if (!device)
        return NULL;
    memcpy(call->facts, device->facts[kernel - kernels], sizeof device->facts[0]);
    int row = cached_row(kernel, call->facts);
    if (row < 0)
        return refuse_call(kernel, slots, call);
    row += kernel->first_row;
    int64_t grid[3];
    PyObject *given = slots[kernel->parameter_count + kernel->option_count + 1];
    int empty = compute_grid(kernel, &rows[row], given, call->values, device->num_sms, grid);
    if (empty)
        return empty < 0 ? NULL : Py_NewRef(Py_None);
    if (choose_stream(call) < 0)
        return NULL;
    if (!device->functions[row]) {
        PyObject *loaded = PyObject_CallFunction(hooks.load_row, "iiK", row, call->device, (unsigned long long)call->stream);
        if (!loaded)
            return NULL;
        Py_DECREF(loaded);
    }
    return launch_row(kernel, device, row, grid, call);
}

/* What the function of a kernel does. */
PyObject *launch_kernel(const Kernel *kernel, PyObject *const *arguments, Py_ssize_t count, PyObject *keywords)
{
    PyObject *slots[MAX_SLOTS];
    Call call;
    if (bind_arguments(kernel, arguments, count, keywords, slots) < 0)
        return NULL;
    call.offline = 0;
    PyObject *result = read_arguments(kernel, slots, &call) < 0 ? NULL : launch_call(kernel, slots, &call);
    release_arguments(&call);
    return result;
}

static const Kernel *kernel_of(PyObject *index)
{
    long number = PyLong_AsLong(index);
    if (number >= 0 && number < kernel_count)
        return &kernels[number];
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_IndexError, "no such kernel");
    return NULL;
}

/* _facts(kernel, offline, *arguments, **keywords): (ordinal or -1, facts, arguments, grid), without the device's own facts. */
static PyObject *call_facts(PyObject *module, PyObject *const *arguments, Py_ssize_t count, PyObject *keywords)
{
    (void)module;
    const Kernel *kernel = count >= 2 ? kernel_of(arguments[0]) : NULL;
    PyObject *slots[MAX_SLOTS], *result = NULL;
    Call call;
    if (!kernel || bind_arguments(kernel, arguments + 2, count - 2, keywords, slots) < 0)
        return NULL;
    call.offline = PyObject_IsTrue(arguments[1]);
    if (read_arguments(kernel, slots, &call) == 0) {
        call.facts[FACT_TARGET] = call.facts[FACT_SHARED] = 0;
        PyObject *grid = slots[kernel->parameter_count + kernel->option_count + 1];
        result = Py_BuildValue("iNNO", call.device, tuple_of_bits(call.facts, kernel->fact_count),
                               tuple_of_slots(slots, kernel->parameter_count + kernel->option_count), grid ? grid : Py_None);
    }
    release_arguments(&call);
    return result;
}

/* _grid(row, multiprocessors, *arguments, **keywords): the grid that a row would be launched with. */
static PyObject *call_grid(PyObject *module, PyObject *const *arguments, Py_ssize_t count, PyObject *keywords)
{
    (void)module;
    long index = count >= 2 ? PyLong_AsLong(arguments[0]) : -1;
    long num_sms = count >= 2 ? PyLong_AsLong(arguments[1]) : -1;
    const Kernel *kernel = kernels;
    if (PyErr_Occurred() || index < 0 || index >= row_count)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_IndexError, "no such row");
    while (index >= kernel->first_row + kernel->row_count)
        kernel++;
    PyObject *slots[MAX_SLOTS], *result = NULL;
    Call call;
    call.offline = 1;
    int64_t grid[3];
    if (bind_arguments(kernel, arguments + 2, count - 2, keywords, slots) < 0)
        return NULL;
    PyObject *given = slots[kernel->parameter_count + kernel->option_count + 1];
    if (read_arguments(kernel, slots, &call) == 0 && compute_grid(kernel, &rows[index], given, call.values, (int)num_sms, grid) >= 0)
        result = Py_BuildValue("LLL", (long long)grid[0], (long long)grid[1], (long long)grid[2]);
    release_arguments(&call);
    return result;
}

/* _select(kernel, facts): (row or NO_ROW or AMBIGUOUS, the first failing fact of each row or -1). */
static PyObject *select_facts(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *index, *sequence;
    uint64_t facts[MAX_FACTS];
    if (!PyArg_ParseTuple(arguments, "OO!", &index, &PyTuple_Type, &sequence))
        return NULL;
    const Kernel *kernel = kernel_of(index);
    if (!kernel)
        return NULL;
    if (PyTuple_Size(sequence) != kernel->fact_count)
        return PyErr_Format(PyExc_ValueError, "%s has %d facts", kernel->name, kernel->fact_count);
    for (int i = 0; i < kernel->fact_count; i++)
        facts[i] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(sequence, i));
    PyObject *trace = PyErr_Occurred() ? NULL : PyTuple_New(kernel->row_count);
    for (int i = 0; trace && i < kernel->row_count; i++) {
        int failing;
        row_matches(kernel, &rows[kernel->first_row + i], facts, &failing);
        PyTuple_SetItem(trace, i, PyLong_FromLong(failing));
    }
    return trace ? Py_BuildValue("iN", select_row(kernel, facts), trace) : NULL;
}

/* _device_facts(kernel, capability, shared_limit) */
static PyObject *facts_of_device(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *index;
    int capability, shared_limit;
    uint64_t facts[DEVICE_FACTS];
    if (!PyArg_ParseTuple(arguments, "Oii", &index, &capability, &shared_limit))
        return NULL;
    const Kernel *kernel = kernel_of(index);
    if (!kernel)
        return NULL;
    device_facts(kernel, capability, shared_limit, facts);
    return tuple_of_bits(facts, DEVICE_FACTS);
}

/* _bind(open_device, load_row, no_variant, driver_error, launch_error): what dispatch.py does for the launcher. */
static PyObject *bind_hooks(PyObject *module, PyObject *arguments)
{
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OOOOO", &hooks.open_device, &hooks.load_row, &hooks.no_variant, &hooks.driver_error,
                          &hooks.launch_error))
        return NULL;
    Py_INCREF(arguments); /* keeps the hooks for as long as the process lives */
    return Py_NewRef(Py_None);
}

#define FASTCALL(function) (PyCFunction)(void (*)(void))(function), METH_FASTCALL | METH_KEYWORDS

static const PyMethodDef own_methods[] = {
    { "_facts", FASTCALL(call_facts), NULL },
    { "_grid", FASTCALL(call_grid), NULL },
    { "_select", select_facts, METH_VARARGS, NULL },
    { "_device_facts", facts_of_device, METH_VARARGS, NULL },
    { "_bind", bind_hooks, METH_VARARGS, NULL },
    { "_open_driver", open_driver, METH_O, NULL },
    { "_open_device", open_device, METH_O, NULL },
    { "_device", device_properties, METH_O, NULL },
    { "_load", load_row, METH_VARARGS, NULL },
    { "_default_device", ask_default_device, METH_NOARGS, NULL },
    { "_is_loaded", is_loaded, METH_VARARGS, NULL },
    { "_is_capturing", is_capturing, METH_VARARGS, NULL },
    { NULL, NULL, 0, NULL }
};

/* The functions of the module, those of the kernels first; they stay for as long as the process lives. */
static PyMethodDef *all_methods(void)
{
    PyMethodDef *methods = PyMem_Calloc(kernel_count + sizeof own_methods / sizeof *own_methods, sizeof *methods);
    if (!methods)
        return NULL;
    for (int k = 0; k < kernel_count; k++)
        methods[k] = (PyMethodDef){ kernels[k].name, FASTCALL(kernels[k].launch), kernels[k].doc };
    memcpy(methods + kernel_count, own_methods, sizeof own_methods);
    return methods;
}

static struct PyModuleDef definition = { PyModuleDef_HEAD_INIT, .m_name = "_launcher", .m_size = -1 };

static int intern_names(void)
{
    for (int k = 0; k < kernel_count; k++) {
        const Kernel *kernel = &kernels[k];
        PyObject **slot = kernel->names;
        for (int i = 0; i < kernel->parameter_count; i++)
            *slot++ = PyUnicode_InternFromString(kernel->parameters[i].name);
        for (int i = 0; i < kernel->option_count; i++)
            *slot++ = PyUnicode_InternFromString(kernel->options[i].name);
        *slot++ = PyUnicode_InternFromString("stream");
        *slot++ = PyUnicode_InternFromString("grid");
    }
    names.data_ptr = PyUnicode_InternFromString("data_ptr");
    names.dtype = PyUnicode_InternFromString("dtype");
    names.get_device = PyUnicode_InternFromString("get_device");
    names.numel = PyUnicode_InternFromString("numel");
    names.array_interface = PyUnicode_InternFromString("__cuda_array_interface__");
    names.dlpack = PyUnicode_InternFromString("__dlpack__");
    names.dlpack_device = PyUnicode_InternFromString("__dlpack_device__");
    names.shape = PyUnicode_InternFromString("shape");
    names.stride = PyUnicode_InternFromString("stride");
    names.torch = PyUnicode_InternFromString("torch");
    names.torch_cuda = PyUnicode_InternFromString("torch.cuda");
    return PyErr_Occurred() ? -1 : 0;
}

__attribute__((visibility("default"))) PyMODINIT_FUNC PyInit__launcher(void)
{
    definition.m_doc = package_doc;
    definition.m_methods = definition.m_methods ? definition.m_methods : all_methods();
    if (!definition.m_methods)
        return PyErr_NoMemory();
    PyObject *module = PyModule_Create(&definition);
    if (!module)
        return NULL;
    if (intern_names() < 0 || PyModule_AddStringConstant(module, "build_id", build_id) < 0 ||
        pthread_atfork(NULL, NULL, after_fork_in_child) != 0) {
        Py_DECREF(module);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    return module;
}
