/* From facts to cuLaunchKernel. */

/* The grid that a call gives: 1 if there is one, 0 where it is to be computed, -1 with an exception. */
static int read_grid(const Kernel *kernel, PyObject *given, int64_t *grid)
{
    grid[0] = grid[1] = grid[2] = 1;
    if (!given || given == Py_None) {
        if (kernel->has_grid)
            return 0;
        PyErr_Format(PyExc_TypeError, "%s() is missing the keyword argument 'grid'", kernel->name);
        return -1;
    }
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
        return 1;
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_OverflowError))
        return -1;
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s(): grid must be an integer, or a tuple of one to three integers", kernel->name);
    return -1;
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

static PyObject *launch_row(const Kernel *kernel, const Device *device, int index, const int64_t *grid, Call *call)
{
    const VariantEntry *row = &rows[index];
    TensorMap maps[row->map_count + 1];
    void *addresses[row->passed_count + 1];
    uint64_t encoded[row->passed_count + 1];
    if (pass_arguments(kernel, index, call->values, addresses, encoded, maps) < 0)
        return NULL;
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
    report_driver(failing, code, NULL, index);
    return NULL;
}

/* Not the number of a row: reading the call failed, with an exception. */
enum { UNREADABLE = -4 };

/* The device of a call whose arguments are read, and its row: NO_ROW or AMBIGUOUS where there is none, or UNREADABLE. */
static int select_of_call(const Kernel *kernel, Call *call, const Device **device)
{
    if (call->device < 0 && (call->device = default_device()) < 0)
        return UNREADABLE;
    *device = get_device(call->device);
    if (!*device || check_conditions(kernel, call->values, call->facts, (*device)->num_sms) < 0)
        return UNREADABLE;
    memcpy(call->facts, (*device)->facts[kernel - kernels], sizeof (*device)->facts[0]);
    int row = row_by_cost(kernel, call->facts, cached_row(kernel, call->facts), call->values, (*device)->num_sms);
    if (row == COST_FAULT)
        return UNREADABLE;
    return row < 0 ? row : row + kernel->first_row;
}

/* Launches a row that a call has selected. */
static PyObject *launch_selected(const Kernel *kernel, const Device *device, int row, Call *call)
{
    int64_t grid[3];
    int is_given = read_grid(kernel, call->slots[slots_of(kernel) - 1], grid);
    int empty = is_given < 0 ? -1 : compute_grid(kernel, &rows[row], is_given, call->values, device->num_sms, grid);
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

static PyObject *launch_call(const Kernel *kernel, Call *call)
{
    const Device *device;
    int row = select_of_call(kernel, call, &device);
    if (row == UNREADABLE)
        return NULL;
    return row < 0 ? refuse_call(kernel, call) : launch_selected(kernel, device, row, call);
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

#include "answers.h"

#include "module.h"
