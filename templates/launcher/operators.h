/* Calls of operators: tensors are checked against their shapes, outputs are made, and kernels are launched.
 *
 * A call gives all arguments by position: inputs, scalars, outputs or None, and the stream; operators.py sees to names and
 * defaults.  Whatever is asked of a tensor happens before anything is made. */

typedef struct { int rank; int64_t sizes[MAX_RANK], strides[MAX_RANK]; } Extents;

typedef struct OpCall {
    const Operator *op;
    Call call;                  /* of the operator's arguments, as if they were those of a kernel */
    OpFrame frame;
    Extents *extents;           /* of each tensor */
    PyObject **tensors;         /* borrowed from the caller, or owned where the operator has made them; NULL: None */
    uint64_t *types;            /* of each tensor, one bit; all where the call does not say */
    int16_t *packs;             /* of each dimension that stands for any number: the tensor that has it */
    PyObject *first;            /* the first tensor, after which others are made */
    uint64_t made;              /* one bit for each tensor that the operator has made */
    int is_run;                 /* whether torch's dispatcher has seen the call */
    int needs_torch;            /* whether it has to see it */
} OpCall;

static int tensor_count(const Operator *op)
{
    return op->input_count + op->output_count + op->workspace_count;
}

/* The number of the parameter in `arguments` that a tensor is: inputs, scalars, outputs, workspaces. */
static int parameter_of(const Operator *op, int tensor)
{
    return tensor < op->input_count ? tensor : tensor + op->scalar_count;
}

#include "operator_shapes.h"
#include "operator_outputs.h"

/* Axes of a tensor by attributes of Python, an array interface or DLPack. */
static int read_axes(const Operator *op, int index, PyObject *value, Call *call, Extents *extents)
{
    PyObject *held = held_of(call, index);
    Axis found = { 0, 0, 0 };
    int axis = 0;
    do {
        int status;
        if (held && PyCapsule_CheckExact(held))
            status = dlpack_extent(tensor_of(held), axis, &found) < 0 ? malformed(&op->arguments, index, "__dlpack__()") : 0;
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

static int axes_of_view(const Operator *op, int index, const DLTensor *view, Extents *extents)
{
    if (view->ndim > MAX_RANK)
        return refuse_rank(&op->arguments, index, view->ndim);
    extents->rank = view->ndim;
    int64_t dense = 1;
    for (int i = view->ndim - 1; i >= 0; i--) {
        extents->sizes[i] = view->shape[i];
        extents->strides[i] = view->strides ? view->strides[i] : dense;
        dense *= view->shape[i];
    }
    return 0;
}

/* Reads a tensor that the call gives. */
static int read_tensor(OpCall *oc, int tensor, PyObject *value)
{
    const Operator *op = oc->op;
    int index = parameter_of(op, tensor), known = known_tensor(value), status = 0;
    Call *call = &oc->call;
    uint64_t type = TYPE_MASK;
    DLTensor view;
    if (known < 0 && is_torch_tensor(value))
        known = known_tensor(value);
    if (value == Py_None || PyLong_Check(value) || PyFloat_Check(value))
        return wrong_type(&op->arguments, index, "a tensor on a CUDA device", value);
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
        if (axes_of_view(op, index, &view, &oc->extents[tensor]) < 0)
            return -1;
    } else {
        uint64_t fact = 0;
        if (read_pointer(&op->arguments, index, value, call, &fact) < 0 ||
            read_axes(op, index, value, call, &oc->extents[tensor]) < 0)
            return -1;
        type = fact & TYPE_MASK;
    }
    oc->types[tensor] = type;
    oc->frame.aligned[tensor] = call->values[index].address % 16 == 0;
    oc->first = oc->first ? oc->first : value;
    return check_type(oc, tensor);
}

static int read_scalar(OpCall *oc, int number, PyObject *value)
{
    const Operator *op = oc->op;
    const OpScalar *scalar = &op->scalars[number];
    int index = op->input_count + number;
    oc->frame.given[number] = value != Py_None;
    oc->frame.scalars[number] = scalar->standard;
    oc->frame.texts[number] = scalar->text;
    if (value == Py_None && !scalar->is_required)
        return 0;
    if (scalar->kind == SCALAR_STR) {
        oc->frame.texts[number] = PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, NULL) : NULL;
        return oc->frame.texts[number] ? 0 : wrong_type(&op->arguments, index, "a str", value);
    }
    if (read_parameter(&op->arguments, index, value, &oc->call) < 0)
        return -1;
    oc->frame.scalars[number] = oc->call.values[index];
    if (scalar->kind == SCALAR_BOOL && (oc->frame.scalars[number].integer & ~INT64_C(1)))
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
static int is_for_torch(const OpCall *oc)
{
    if (oc->needs_torch || !oc->call.has_torch_tensor)
        return oc->needs_torch;
    int64_t modes = 0;
    if (torch.count_modes && take_integer(PyObject_CallObject(torch.count_modes, NULL), &modes) < 0)
        return -1;
    if (modes)
        return 1;
    if (oc->op->needs_autocast && torch.is_autocast) {
        int is_autocast = is_true(PyObject_CallFunction(torch.is_autocast, "s", "cuda"));
        if (is_autocast)
            return is_autocast;
    }
    int is_enabled = torch.is_grad_enabled ? is_true(PyObject_CallObject(torch.is_grad_enabled, NULL)) : 0;
    for (int i = 0; is_enabled == 1 && i < oc->op->input_count; i++)
        if (oc->tensors[i] && is_known_tensor(oc->tensors[i])) {
            int requires = is_true(PyObject_GetAttr(oc->tensors[i], names.requires_grad));
            if (requires)
                return requires;
        }
    return is_enabled < 0 ? -1 : 0;
}

static int raise_fault(const Operator *op)
{
    PyErr_Format(hooks.launch_error, "%s(): an expression of its declaration overflows 64 bits, or divides by zero", op->name);
    return -1;
}

/* Everything about the call that comes before anything is made; 1: torch's dispatcher has to see it. */
static int read_operator_arguments(OpCall *oc, PyObject *const *arguments)
{
    const Operator *op = oc->op;
    int first_output = op->input_count + op->scalar_count;
    if (read_stream(arguments[first_output + op->output_count], &oc->call) < 0)
        return -1;
    for (int i = 0; i < op->input_count + op->output_count; i++) {
        PyObject *value = arguments[parameter_of(op, i)];
        int is_absent = value == Py_None && (i >= op->input_count || op->tensors[i].is_optional);
        oc->tensors[i] = is_absent ? NULL : value;
        oc->frame.given[op->scalar_count + i] = !is_absent;
        oc->call.values[parameter_of(op, i)].address = 0;
        oc->types[i] = TYPE_MASK;
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
    for (int i = 0; i < op->input_count; i++)
        if (oc->tensors[i] && match_tensor(oc, i) < 0)
            return -1;
    int fault = 0;
    op->defaults(&oc->frame, &fault);
    int failing = fault ? -1 : op->require(&oc->frame, &fault);
    if (fault)
        return raise_fault(op);
    if (failing >= 0) {
        PyErr_Format(PyExc_ValueError, "%s(): %s", op->name, op->messages[failing]);
        return -1;
    }
    return 0;
}

static uint64_t option_bits(const Option *option, const OpLaunch *launch, int index, const Value *value, const char *word)
{
    uint64_t bits = 0;
    if (launch->words[index] == -2)
        return option->standard < 0 ? ~UINT64_C(0) : UINT64_C(1) << option->standard;
    for (int i = 0; i < option->count; i++) {
        const OptionValue *known = &option->values[i];
        int is_same = word ? known->text && strcmp(known->text, word) == 0
                    : known->text ? 0
                    : launch->is_number[index] ? (known->is_float ? known->number : (double)known->integer) == value->number
                    : known->is_float ? known->number == (double)value->integer : known->integer == value->integer;
        bits |= (uint64_t)is_same << i;
    }
    return bits;
}

/* Objects in place of the arguments of a launch, for the words of an error. */
static PyObject *describe_launch(const Kernel *kernel, const Call *call)
{
    const OpCall *oc = call->operator_call;
    const OpLaunch *launch = call->operator_launch;
    int count = kernel->parameter_count + kernel->option_count;
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple && i < count; i++) {
        PyObject *item = NULL;
        if (i >= kernel->parameter_count) {
            int option = i - kernel->parameter_count, word = launch->words[option];
            const Value *value = &call->operator_options[option];
            item = word >= 0 ? PyUnicode_FromString(oc->frame.texts[word])
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

/* The arguments of one launch, as its kernel has them. */
static int bind_launch(OpCall *oc, const OpLaunch *launch, const Kernel *kernel, Call *call, Value *options)
{
    int fault = 0;
    launch->bind(&oc->frame, call->values, options, &fault);
    if (fault)
        return raise_fault(oc->op);
    for (int i = 0; i < kernel->parameter_count; i++) {
        const LaunchParameter *parameter = &kernel->parameters[i];
        int tensor = launch->tensors[i];
        uint64_t fact = TYPE_MASK;
        if (parameter->is_extent) {
            const OpTensor *whole = &oc->op->tensors[launch->tensors[parameter->tensor]];
            int place = parameter->axis;
            Axis axis = { whole->rank, oc->frame.sizes[whole->dims[place]], oc->frame.strides[whole->first_stride + place] };
            if (check_extent(kernel, i, &axis, call, &fact) < 0)
                return -1;
        } else if (tensor >= 0) {
            call->values[i].address = oc->call.values[parameter_of(oc->op, tensor)].address;
            fact = oc->types[tensor] | divisibility(call->values[i].address);
        } else if (parameter->kind == KIND_INTEGER) {
            fact = integer_facts(call->values[i].integer, 0);
        }
        call->facts[DEVICE_FACTS + i] = fact & parameter->mask;
    }
    for (int i = 0; i < kernel->option_count; i++) {
        const char *word = launch->words[i] >= 0 ? oc->frame.texts[launch->words[i]] : NULL;
        call->facts[DEVICE_FACTS + kernel->parameter_count + i] = option_bits(&kernel->options[i], launch, i, &options[i], word);
    }
    return 0;
}

static int launch_one(OpCall *oc, const OpLaunch *launch, int is_first)
{
    const Kernel *kernel = &kernels[launch->kernel];
    uint64_t room[room_of(kernel)];
    Value options[kernel->option_count + 1];
    Call call;
    int fault = 0;
    if (launch->when && !launch->when(&oc->frame, &fault))
        return fault ? raise_fault(oc->op) : 0;
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
    if (bind_launch(oc, launch, kernel, &call, options) < 0)
        return -1;
    PyObject *done = launch_call(kernel, &call);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* Makes outputs and workspaces, launches the kernels, and gives what the operator returns. */
static PyObject *complete_operator(OpCall *oc)
{
    const Operator *op = oc->op;
    int fault = 0;
    if (oc->call.device < 0 && (oc->call.device = default_device()) < 0)
        return NULL;
    const Device *device = get_device(oc->call.device);
    if (!device || choose_stream(&oc->call) < 0)
        return NULL;
    oc->frame.num_sms = device->num_sms;
    op->shapes(&oc->frame, &fault);
    if (fault)
        return raise_fault(op), NULL;
    if (make_tensors(oc) < 0 || check_aliases(oc) < 0)
        return NULL;
    int failing = op->agree(&oc->frame, &fault);
    if (fault)
        return raise_fault(op), NULL;
    if (failing >= 0)
        return PyErr_Format(PyExc_ValueError, "%s(): %s", op->name, op->messages[failing]);
    if (zero_tensors(oc, device) < 0)
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
static PyObject *list_launches(OpCall *oc, int num_sms)
{
    const Operator *op = oc->op;
    PyObject *list = PyList_New(0);
    int fault = 0;
    oc->frame.num_sms = num_sms;
    op->shapes(&oc->frame, &fault);
    int status = fault ? raise_fault(op) : make_tensors(oc);
    for (int i = 0; list && status == 0 && i < op->launch_count; i++) {
        const OpLaunch *launch = &op->launches[i];
        const Kernel *kernel = &kernels[launch->kernel];
        uint64_t room[room_of(kernel)];
        Value options[kernel->option_count + 1];
        Call call;
        if (launch->when && !launch->when(&oc->frame, &fault))
            continue;
        begin_call(kernel, &call, room, 1);
        call.operator_call = oc, call.operator_launch = launch, call.operator_options = options;
        status = bind_launch(oc, launch, kernel, &call, options);
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
    uint64_t types[tensors];
    int16_t packs[op->dim_count + 1];
    OpCall oc = { op, { 0 }, { sizes, strides, values, texts, given, aligned, 0 }, extents, objects, types, packs, NULL, 0, is_run, 0 };
    begin_call(&op->arguments, &oc.call, room, num_sms > 0);
    for (int i = 0; i < op->dim_count; i++)
        sizes[i] = op->fixed[i], packs[i] = -1;
    memset(strides, 0, sizeof strides);
    memset(objects, 0, sizeof objects);
    memset(given, 0, sizeof given);
    memset(aligned, 1, sizeof aligned);
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
