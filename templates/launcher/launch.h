/* From facts to cuLaunchKernel. */

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
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_OverflowError))
        return -1;
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s(): grid must be an integer, or a tuple of one to three integers", kernel->name);
    return -1;
}

/* A size below zero holds as much as one of zero.  Where there would be nothing to do with zeros, such a size is a mistake, though
   the product of two of them may look like work. */
static int refuse_negative_sizes(const Kernel *kernel, const VariantEntry *row, const Value *arguments, int num_sms)
{
    int negative = -1, fault = 0;
    for (int i = 0; i < kernel->parameter_count; i++)
        if (kernel->parameters[i].in_grid && arguments[i].integer < 0)
            negative = i;
    if (negative < 0)
        return 0;
    Value clamped[kernel->parameter_count];
    for (int i = 0; i < kernel->parameter_count; i++) {
        clamped[i] = arguments[i];
        if (kernel->parameters[i].in_grid && arguments[i].integer < 0)
            clamped[i].integer = 0;
    }
    int64_t grid[3] = { 1, 1, 1 };
    kernel->grid(clamped, row->constants, num_sms, grid, &fault);
    if (fault || (grid[0] > 0 && grid[1] > 0 && grid[2] > 0))
        return 0;
    PyErr_Format(hooks.launch_error, "%s(): %s is %lld, and its grid takes no size below zero", kernel->name,
                 kernel->parameters[negative].name, (long long)arguments[negative].integer);
    return -1;
}

/* The grid of a row: 0 to launch, 1 when it is empty, -1 with an exception. */
static int compute_grid(const Kernel *kernel, const VariantEntry *row, PyObject *given, const Value *arguments, int num_sms, int64_t *grid)
{
    static const int64_t limits[] = {INT32_MAX, UINT16_MAX, UINT16_MAX};
    int fault = 0, is_given = given && given != Py_None;
    grid[0] = grid[1] = grid[2] = 1;
    if (is_given) {
        if (read_grid(kernel, given, grid) < 0)
            return -1;
    } else if (!kernel->has_grid) {
        PyErr_Format(PyExc_TypeError, "%s() is missing the keyword argument 'grid'", kernel->name);
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
        PyErr_Format(hooks.launch_error, "%s(): the grid has %lld programs along axis 0, not a multiple of the cluster size %d", kernel->name,
                     (long long)grid[0], row->cluster_size);
        return -1;
    }
    if (!is_given && refuse_negative_sizes(kernel, row, arguments, num_sms) < 0)
        return -1;
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

static PyObject *describe_launch(const Kernel *kernel, const Call *call);

static PyObject *refuse_call(const Kernel *kernel, const Call *call)
{
    PyObject *facts = tuple_of_bits(call->facts, kernel->fact_count);
    PyObject *arguments = call->operator_call ? describe_launch(kernel, call)
                                              : tuple_of_slots(call->slots, kernel->parameter_count + kernel->option_count);
    if (facts && arguments)
        has_raised(PyObject_CallFunction(hooks.no_variant, "iiOO", (int)(kernel - kernels), call->device, facts, arguments));
    Py_XDECREF(facts);
    Py_XDECREF(arguments);
    return NULL;
}

#include "maps.h"

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
static CUresult launch_function(const VariantEntry *row, CUfunction function, const int64_t *grid, CUstream stream, void **addresses,
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
    const VariantEntry *row = &rows[index];
    TensorMap maps[row->map_count + 1];
    int map_count = 0;
    void *addresses[row->passed_count + 1];
    uint64_t encoded[row->passed_count + 1], null = 0;
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

static PyObject *launch_call(const Kernel *kernel, Call *call)
{
    if (call->device < 0 && (call->device = default_device()) < 0)
        return NULL;
    const Device *device = get_device(call->device);
    if (!device)
        return NULL;
    if (check_conditions(kernel, call, device->num_sms) < 0)
        return NULL;
    memcpy(call->facts, device->facts[kernel - kernels], sizeof device->facts[0]);
    int row = cached_row(kernel, call->facts);
    if (row < 0)
        return refuse_call(kernel, call);
    row += kernel->first_row;
    int64_t grid[3];
    PyObject *given = call->slots[slots_of(kernel) - 1];
    int empty = compute_grid(kernel, &rows[row], given, call->values, device->num_sms, grid);
    if (empty)
        return empty < 0 ? NULL : Py_NewRef(Py_None);
    if (call->none >= 0) {
        wrong_type(kernel, call->none, "a tensor on a CUDA device or an address (0 for a null pointer)", Py_None);
        return NULL;
    }
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
    uint64_t room[room_of(kernel)];
    Call call;
    begin_call(kernel, &call, room, 0);
    if (bind_arguments(kernel, arguments, count, keywords, call.slots) < 0)
        return NULL;
    PyObject *result = read_arguments(kernel, &call) < 0 ? NULL : launch_call(kernel, &call);
    release_arguments(&call);
    return result;
}

#include "operators.h"

#include "module.h"
