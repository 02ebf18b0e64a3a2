/* Calls of operators: tensors are checked against their shapes, outputs are made, and kernels are launched.
 *
 * A call gives all arguments by position: inputs, scalars, outputs or None, and the stream; operators.py sees to names and
 * defaults.  Whatever is asked of a tensor happens before anything is made. */

typedef struct PyOpCall {
    OpCall core;
    Call call;                  /* of the operator's arguments, as if they were those of a kernel */
    PyObject **tensors;         /* borrowed from the caller, or owned where the operator has made them; NULL: None */
    PyObject *first;            /* the first tensor, after which others are made */
    int is_run;                 /* whether torch's dispatcher has seen the call */
    int needs_torch;            /* whether it has to see it */
    int is_explained;           /* whether its launches are listed, and not done */
} PyOpCall;

#include "operator_outputs.h"
#include "jax.h"

/* Axes of a tensor by attributes of Python, an array interface or DLPack. */
static int read_axes(const Operator *op, int index, PyObject *value, Call *call, Extents *extents)
{
    PyObject *held = held_of(call, index);
    Axis found = { 0, 0, 0 };
    int axis = 0;
    do {
        int status;
        if (held && PyCapsule_CheckExact(held))
            status = dlpack_axis(tensor_of(held), axis, &found) < 0 ? malformed(&op->arguments, index, "__dlpack__()") : 0;
        else if (held)
            status = interface_extent(held, axis, &found) < 0 ? malformed(&op->arguments, index, "__cuda_array_interface__") : 0;
        else
            status = torch_extent(value, axis, &found);
        if (status < 0)
            return -1;
        if (found.rank > MAX_RANK || found.rank < 0)
            return refuse_rank(&op->arguments, index, found.rank);
        extents->rank = (int)found.rank;
        if (axis < found.rank) {
            extents->sizes[axis] = found.size;
            extents->strides[axis] = found.stride;
        }
    } while (++axis < extents->rank);
    return 0;
}

/* Reads a tensor that the call gives. */
static int read_tensor(PyOpCall *oc, int tensor, PyObject *value)
{
    const Operator *op = oc->core.op;
    int index = parameter_of(op, tensor), known = known_tensor(value), status = 0;
    Call *call = &oc->call;
    uint64_t type = TYPE_MASK;
    DLTensor view;
    if (known < 0) {
        if (value == Py_None || PyLong_Check(value) || PyFloat_Check(value))
            return wrong_type(&op->arguments, index, "a tensor on a CUDA device", value);
        known = is_torch_tensor(value) ? known_tensor(value) : -1;
    }
    oc->needs_torch = oc->needs_torch || (known >= 0 && !torch.is_plain[known] && !oc->is_run);
    if (oc->needs_torch)
        return 0;
    if (known >= 0 && torch.exchanges[known]) {
        status = borrow_torch_tensor(&op->arguments, index, value, call, &view, &type);
        oc->needs_torch = status == 0 && !oc->is_run; /* it has no memory of its own, as under vmap */
        if (status < 0 || oc->needs_torch)
            return status;
    }
    if (status > 0) {
        if (axes_of_view(op, index, &view, &oc->core.extents[tensor]) < 0)
            return -1;
    } else {
        uint64_t fact = 0;
        if (read_pointer(&op->arguments, index, value, call, &fact) < 0 ||
            read_axes(op, index, value, call, &oc->core.extents[tensor]) < 0)
            return -1;
        type = fact & TYPE_MASK;
    }
    oc->core.types[tensor] = type;
    oc->core.addresses[tensor] = call->values[index].address;
    oc->core.frame.aligned[tensor] = call->values[index].address % 16 == 0;
    oc->first = oc->first ? oc->first : value;
    return check_type(&oc->core, tensor);
}

static int read_scalar(PyOpCall *oc, int number, PyObject *value)
{
    const Operator *op = oc->core.op;
    const OpScalar *scalar = &op->scalars[number];
    int index = op->input_count + number;
    oc->core.frame.given[number] = value != Py_None;
    oc->core.frame.scalars[number] = scalar->standard;
    oc->core.frame.texts[number] = scalar->text;
    if (value == Py_None && scalar->is_computed)
        return 0;
    if (scalar->kind == SCALAR_STR) {
        Py_ssize_t length = 0;
        const char *text = PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, &length) : NULL;
        if (!PyUnicode_Check(value))
            return wrong_type(&op->arguments, index, "a str", value);
        PyErr_Clear();
        if (!text || strlen(text) != (size_t)length)
            return report(WRONG_VALUE, "%s(): %s is no word, for it has a character that is none", op->name, scalar->name);
        oc->core.frame.texts[number] = text;
        return check_word(&oc->core, number);
    }
    if (read_parameter(&op->arguments, index, value, &oc->call) < 0)
        return -1;
    oc->core.frame.scalars[number] = oc->call.values[index];
    if (scalar->kind == SCALAR_BOOL && (oc->core.frame.scalars[number].integer & ~INT64_C(1)))
        return wrong_type(&op->arguments, index, "a bool", value);
    return 0;
}

static int is_true(PyObject *answer)
{
    int truth = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    return truth;
}

/* Whether torch has to see the call: gradients, modes such as tracing, autocast; -1 with an exception. */
static int is_for_torch(const PyOpCall *oc)
{
    if (oc->needs_torch || !oc->call.has_torch_tensor)
        return oc->needs_torch;
    int64_t modes = 0;
    if (torch.count_modes && take_integer(PyObject_CallNoArgs(torch.count_modes), &modes) < 0)
        return -1;
    if (modes)
        return 1;
    if (oc->core.op->needs_autocast && torch.is_autocast) {
        int is_autocast = is_true(PyObject_CallFunction(torch.is_autocast, "s", "cuda"));
        if (is_autocast)
            return is_autocast;
    }
    int is_enabled = torch.is_grad_enabled ? is_true(PyObject_CallNoArgs(torch.is_grad_enabled)) : 0;
    for (int i = 0; is_enabled == 1 && i < oc->core.op->input_count; i++)
        if (oc->tensors[i] && is_known_tensor(oc->tensors[i])) {
            int requires = is_true(PyObject_GetAttr(oc->tensors[i], names.requires_grad));
            if (requires)
                return requires;
        }
    return is_enabled < 0 ? -1 : 0;
}

/* Everything about the call that comes before anything is made; 1: JAX or torch's dispatcher has to see it. */
static int read_operator_arguments(PyOpCall *oc, PyObject *const *arguments)
{
    const Operator *op = oc->core.op;
    int first_output = op->input_count + op->scalar_count;
    if (!oc->is_run && is_for_jax(op, arguments))
        return 1;
    if (read_stream(arguments[first_output + op->output_count], &oc->call) < 0)
        return -1;
    for (int i = 0; i < op->input_count + op->output_count; i++) {
        PyObject *value = arguments[parameter_of(op, i)];
        int is_absent = value == Py_None && (i >= op->input_count || op->tensors[i].is_optional);
        oc->tensors[i] = is_absent ? NULL : value;
        oc->core.frame.given[op->scalar_count + i] = !is_absent;
        if (!is_absent && read_tensor(oc, i, value) < 0)
            return -1;
    }
    if (!oc->is_run) {
        int status = is_for_torch(oc);
        if (status)
            return status;
    }
    for (int i = 0; i < op->scalar_count; i++)
        if (read_scalar(oc, i, arguments[op->input_count + i]) < 0)
            return -1;
    return check_requirements(&oc->core);
}

/* Objects in place of the arguments of a launch, for the words of an error. */
static PyObject *describe_launch(const Kernel *kernel, const Call *call)
{
    const PyOpCall *oc = call->operator_call;
    const OpLaunch *launch = call->operator_launch;
    int count = kernel->parameter_count + kernel->option_count;
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple && i < count; i++) {
        PyObject *item = NULL;
        if (i >= kernel->parameter_count) {
            int option = i - kernel->parameter_count, word = launch->words[option];
            const Value *value = &call->operator_options[option];
            item = word >= 0 ? PyUnicode_FromString(oc->core.frame.texts[word])
                 : word == -2 ? Py_NewRef(Py_None)
                 : launch->is_number[option] ? PyFloat_FromDouble(value->number) : PyLong_FromLongLong(value->integer);
        } else if (launch->tensors[i] >= 0) {
            item = Py_NewRef(oc->tensors[launch->tensors[i]] ? oc->tensors[launch->tensors[i]] : Py_None);
        } else {
            item = kernel->parameters[i].kind == KIND_FLOAT ? PyFloat_FromDouble(call->values[i].number)
                                                            : PyLong_FromLongLong(call->values[i].integer);
        }
        PyTuple_SetItem(tuple, i, item ? item : Py_NewRef(Py_None));
    }
    return tuple;
}

static int launch_one(PyOpCall *oc, const OpLaunch *launch, int is_first)
{
    const Kernel *kernel = &kernels[launch->kernel];
    uint64_t room[room_of(kernel)];
    Value options[kernel->option_count + 1];
    Call call;
    int wanted = is_wanted(&oc->core, launch);
    if (wanted <= 0)
        return wanted;
    begin_call(kernel, &call, room, 0);
    memset(call.slots, 0, (size_t)slots_of(kernel) * sizeof *call.slots);
    call.device = oc->call.device;
    call.has_stream = 1;
    call.stream = oc->call.stream;
    call.producers = oc->call.producers;
    call.producer_count = is_first ? oc->call.producer_count : 0;
    call.operator_call = oc;
    call.operator_launch = launch;
    call.operator_options = options;
    if (bind_launch(&oc->core, launch, kernel, call.values, call.facts, options) < 0)
        return -1;
    PyObject *done = launch_call(kernel, &call);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* Zeroes what has to be zero at the start, in the device's context. */
static int zero_on_device(const PyOpCall *oc, const Device *device)
{
    int pushed, is_needed = 0;
    for (int i = oc->core.op->input_count; i < tensor_count(oc->core.op); i++)
        is_needed = is_needed || oc->core.op->tensors[i].is_zeroed;
    if (!is_needed)
        return 0;
    if (enter_context(device, &pushed) < 0)
        return -1;
    int status = zero_tensors(&oc->core, (CUstream)(uintptr_t)oc->call.stream);
    leave_context_with_exception(pushed);
    return status;
}

/* Makes outputs and workspaces, launches the kernels, and gives what the operator returns. */
static PyObject *complete_operator(PyOpCall *oc)
{
    const Operator *op = oc->core.op;
    if (oc->call.device < 0 && (oc->call.device = default_device()) < 0)
        return NULL;
    const Device *device = get_device(oc->call.device);
    if (!device || choose_stream(&oc->call) < 0)
        return NULL;
    if (compute_shapes(&oc->core, device->num_sms) < 0 || make_tensors(oc) < 0 || check_aliases(&oc->core) < 0 ||
        check_agreement(&oc->core) < 0 || zero_on_device(oc, device) < 0)
        return NULL;
    for (int i = 0; i < op->launch_count; i++)
        if (launch_one(oc, &op->launches[i], i == 0) < 0)
            return NULL;
    return returned_tensors(oc);
}

/* The multiprocessors of the device that a call would be launched on; -1 with an exception. */
static int multiprocessors_of(Call *call)
{
    if (call->device < 0 && (call->device = default_device()) < 0)
        return -1;
    const Device *device = get_device(call->device);
    return device ? device->num_sms : -1;
}

/* For an explanation: pairs of a kernel's number and its arguments, of each launch; outputs are made, and nothing is launched. */
static PyObject *list_launches(PyOpCall *oc, int num_sms)
{
    const Operator *op = oc->core.op;
    PyObject *list = PyList_New(0);
    int status = compute_shapes(&oc->core, num_sms) < 0 ? -1 : make_tensors(oc);
    for (int i = 0; list && status == 0 && i < op->launch_count; i++) {
        const OpLaunch *launch = &op->launches[i];
        const Kernel *kernel = &kernels[launch->kernel];
        uint64_t room[room_of(kernel)];
        Value options[kernel->option_count + 1];
        Call call;
        int wanted = is_wanted(&oc->core, launch);
        if (wanted <= 0) {
            status = wanted;
            continue;
        }
        begin_call(kernel, &call, room, 1);
        call.operator_call = oc, call.operator_launch = launch, call.operator_options = options;
        status = bind_launch(&oc->core, launch, kernel, call.values, call.facts, options);
        PyObject *pair = status == 0 ? Py_BuildValue("iN", launch->kernel, describe_launch(kernel, &call)) : NULL;
        status = pair ? PyList_Append(list, pair) : -1;
        Py_XDECREF(pair);
    }
    if (status == 0)
        return list;
    Py_XDECREF(list);
    return NULL;
}

/* A call of an operator; `num_sms` is -1, or the multiprocessors of a device for which its launches are to be listed: 0 stands for
   the call's own device, other numbers for one that need not be there. */
static PyObject *operate(const Operator *op, PyObject *const *arguments, Py_ssize_t count, int is_run, int num_sms)
{
    int tensors = tensor_count(op), scalars = op->scalar_count;
    if (count != op->input_count + scalars + op->output_count + 1)
        return PyErr_Format(PyExc_TypeError, "%s() is called by operators.py alone", op->name);
    uint64_t room[room_of(&op->arguments)];
    Extents extents[tensors];
    int64_t sizes[op->dim_count + 1], strides[op->stride_count + 1];
    Value values[scalars + 1];
    const char *texts[scalars + 1];
    uint8_t given[scalars + tensors], aligned[tensors];
    PyObject *objects[tensors];
    uint64_t addresses[tensors], types[tensors];
    int16_t packs[op->dim_count + 1];
    OpFrame frame = { sizes, strides, values, texts, given, aligned, 0 };
    PyOpCall oc; /* Clearing all of it would take as long as filling it in. */
    oc.core = (OpCall){ op, frame, extents, addresses, types, packs, 0 };
    oc.tensors = objects;
    oc.first = NULL;
    oc.is_run = is_run;
    oc.needs_torch = 0;
    oc.is_explained = num_sms >= 0;
    begin_call(&op->arguments, &oc.call, room, num_sms > 0);
    begin_operator(&oc.core);
    memset(objects, 0, sizeof objects);
    int status = read_operator_arguments(&oc, arguments);
    PyObject *result = NULL;
    if (status == 0 && num_sms < 0)
        result = complete_operator(&oc);
    else if (status == 0 && (num_sms > 0 || (num_sms = multiprocessors_of(&oc.call)) >= 0))
        result = list_launches(&oc, num_sms);
    release_made(&oc);
    release_arguments(&oc.call);
    if (status <= 0)
        return result;
    PyObject *all = tuple_of_slots(arguments, (int)count);
    result = all ? PyObject_CallFunction(hooks.dispatch, "iO", (int)(op - operators), all) : NULL;
    Py_XDECREF(all);
    return result;
}

/* _launches(operator, multiprocessors, *arguments): the kernels that a call launches, with their arguments */
static PyObject *operator_launches(PyObject *module, PyObject *const *arguments, Py_ssize_t count, PyObject *keywords)
{
    (void)module, (void)keywords;
    long number = count >= 2 ? PyLong_AsLong(arguments[0]) : -1, num_sms = count >= 2 ? PyLong_AsLong(arguments[1]) : 0;
    if (PyErr_Occurred() || number < 0 || number >= operator_count || num_sms < 0)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_IndexError, "no such operator");
    return operate(&operators[number], arguments + 2, count - 2, 1, (int)num_sms);
}

/* The function of an operator. */
PyObject *call_operator(const Operator *op, PyObject *const *arguments, Py_ssize_t count, PyObject *keywords)
{
    (void)keywords;
    return operate(op, arguments, count, 0, -1);
}

/* The same for torch's dispatcher, which has seen the call. */
PyObject *run_operator(const Operator *op, PyObject *const *arguments, Py_ssize_t count, PyObject *keywords)
{
    (void)keywords;
    return operate(op, arguments, count, 1, -1);
}
