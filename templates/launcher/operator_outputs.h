/* Tensors that an operator makes, zeroes and returns, and memory that two of them share. */

static int read_tensor(OpCall *oc, int tensor, PyObject *value);

/* The element type of an output or workspace: its own, or that of its group. */
static uint64_t type_to_make(const OpCall *oc, int tensor)
{
    const OpTensor *declared = &oc->op->tensors[tensor];
    if (!(declared->types & (declared->types - 1)))
        return declared->types;
    for (int i = 0; i < tensor; i++)
        if (declared->group >= 0 && oc->op->tensors[i].group == declared->group && oc->tensors[i] && !(oc->types[i] & (oc->types[i] - 1)))
            return oc->types[i];
    return 0;
}

/* Sizes of a tensor to make, and its strides, which have no gaps; -1 with an exception. */
static int extents_to_make(OpCall *oc, int tensor)
{
    const OpTensor *declared = &oc->op->tensors[tensor];
    Extents *made = &oc->extents[tensor];
    made->rank = 0;
    for (int place = 0; place < declared->rank; place++) {
        int dim = declared->dims[place], count = 1;
        const int64_t *sizes = &oc->frame.sizes[dim];
        if (place == declared->pack) {
            const OpTensor *source = &oc->op->tensors[oc->packs[dim]];
            sizes = &oc->extents[oc->packs[dim]].sizes[source->pack];
            count = oc->extents[oc->packs[dim]].rank - source->rank + 1;
        }
        if (made->rank + count > MAX_RANK)
            return refuse_rank(&oc->op->arguments, parameter_of(oc->op, tensor), made->rank + count);
        for (int i = 0; i < count; i++)
            made->sizes[made->rank++] = sizes[i];
    }
    int64_t dense = 1;
    for (int i = made->rank - 1; i >= 0; i--) {
        made->strides[i] = dense;
        if (made->sizes[i] < 0 || __builtin_mul_overflow(dense, made->sizes[i] ? made->sizes[i] : 1, &dense))
            return wrong_shape(oc, tensor, "cannot be made");
    }
    return 0;
}

/* A tensor of torch's that has the type, sizes and strides of one to make, which is then made in half the time; NULL: there is none. */
static PyObject *tensor_like(const OpCall *oc, int tensor, uint64_t type)
{
    const Extents *made = &oc->extents[tensor];
    size_t length = (size_t)made->rank * sizeof *made->sizes;
    for (int i = 0; i < tensor; i++) {
        const Extents *known = &oc->extents[i];
        if (oc->tensors[i] && oc->types[i] == type && known->rank == made->rank && memcmp(known->sizes, made->sizes, length) == 0 &&
            memcmp(known->strides, made->strides, length) == 0)
            return oc->tensors[i];
    }
    return NULL;
}

static PyObject *make_torch_tensor(OpCall *oc, int tensor, uint64_t type)
{
    const Extents *made = &oc->extents[tensor];
    PyObject *like = tensor_like(oc, tensor, type);
    if (like)
        return PyObject_CallFunctionObjArgs(torch.empty_like, like, NULL);
    PyObject *dtype = NULL;
    for (int i = 0; i < DTYPE_SLOTS && !dtype; i++)
        dtype = torch.dtypes[i] && torch.dtype_bits[i] == type ? torch.dtypes[i] : NULL;
    PyObject *sizes = tuple_of_integers(made->sizes, made->rank), *strides = tuple_of_integers(made->strides, made->rank);
    PyObject *device = PyObject_GetAttrString(oc->first, "device"), *result = NULL;
    PyObject *arguments = sizes && strides ? PyTuple_Pack(2, sizes, strides) : NULL;
    PyObject *keywords = dtype && device ? Py_BuildValue("{s:O,s:O}", "dtype", dtype, "device", device) : NULL;
    if (arguments && keywords)
        result = PyObject_Call(torch.empty_strided, arguments, keywords);
    else if (!PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "%s(): torch has no tensors of %s", oc->op->name, type_name(type));
    Py_XDECREF(sizes);
    Py_XDECREF(strides);
    Py_XDECREF(device);
    Py_XDECREF(arguments);
    Py_XDECREF(keywords);
    return result;
}

static PyObject *make_tensor(OpCall *oc, int tensor)
{
    const Extents *made = &oc->extents[tensor];
    uint64_t type = type_to_make(oc, tensor);
    if (!type)
        return PyErr_Format(PyExc_TypeError, "%s(): no argument says which type %s is of; give it by keyword", oc->op->name,
                            oc->op->tensors[tensor].name);
    if (extents_to_make(oc, tensor) < 0)
        return NULL;
    if (known_tensor(oc->first) >= 0 && torch.empty_like && torch.empty_strided)
        return make_torch_tensor(oc, tensor, type);
    PyObject *sizes = tuple_of_integers(made->sizes, made->rank);
    PyObject *result = sizes ? PyObject_CallFunction(hooks.allocate, "sOOs", oc->op->tensors[tensor].name, oc->first, sizes, type_name(type)) : NULL;
    Py_XDECREF(sizes);
    return result;
}

/* Makes outputs that the call does not give, and workspaces; all are then known as inputs are. */
static int make_tensors(OpCall *oc)
{
    const Operator *op = oc->op;
    for (int i = op->input_count; i < tensor_count(op); i++) {
        if (!oc->tensors[i]) {
            if (!(oc->tensors[i] = make_tensor(oc, i)))
                return -1;
            oc->made |= UINT64_C(1) << i;
            oc->frame.given[op->scalar_count + i] = 1;
            if (read_tensor(oc, i, oc->tensors[i]) < 0)
                return -1;
        }
        if (match_tensor(oc, i) < 0)
            return -1;
    }
    return 0;
}

static void release_made(OpCall *oc)
{
    PyObject *type, *value, *traceback;
    if (!oc->made)
        return;
    PyErr_Fetch(&type, &value, &traceback);
    for (int i = 0; oc->made >> i; i++)
        if (oc->made >> i & 1)
            Py_DECREF(oc->tensors[i]);
    PyErr_Restore(type, value, traceback);
}

static int64_t bytes_of(uint64_t types)
{
    if (types & (TYPE_I64 | TYPE_U64 | TYPE_FP64))
        return 8;
    if (types & (TYPE_I32 | TYPE_U32 | TYPE_FP32))
        return 4;
    return types & (TYPE_I16 | TYPE_U16 | TYPE_FP16 | TYPE_BF16) ? 2 : 1;
}

/* Bytes from a tensor's first element to the end of its last, of the dimensions with strides below `limit`; 0: it is empty. */
static uint64_t span_of(const Extents *extents, int64_t bytes, int64_t limit)
{
    int64_t last = 0;
    for (int i = 0; i < extents->rank; i++) {
        if (!extents->sizes[i])
            return 0;
        int64_t stride = extents->strides[i] * bytes;
        last += extents->sizes[i] > 1 && stride < limit ? (extents->sizes[i] - 1) * stride : 0;
    }
    return (uint64_t)(last + bytes);
}

/* Whether all strides of a tensor from a period on are multiples of it. */
static int has_period(const Extents *extents, int64_t bytes, int64_t period)
{
    for (int i = 0; i < extents->rank; i++)
        if (extents->sizes[i] > 1 && extents->strides[i] * bytes >= period && extents->strides[i] * bytes % period)
            return 0;
    return 1;
}

/* Whether two tensors have bytes in common; parts of one row beside each other, as of a packed q, k and v, have not. */
static int is_overlapping(const OpCall *oc, int one, int other)
{
    const Extents *a = &oc->extents[one], *b = &oc->extents[other];
    int64_t bytes_a = bytes_of(oc->types[one] & oc->op->tensors[one].types), bytes_b = bytes_of(oc->types[other] & oc->op->tensors[other].types);
    uint64_t from_a = oc->call.values[parameter_of(oc->op, one)].address, from_b = oc->call.values[parameter_of(oc->op, other)].address;
    uint64_t span_a = span_of(a, bytes_a, INT64_MAX), span_b = span_of(b, bytes_b, INT64_MAX);
    if (!span_a || !span_b || from_a + span_a <= from_b || from_b + span_b <= from_a)
        return 0;
    for (int i = 0; i < a->rank; i++) {
        int64_t period = a->strides[i] * bytes_a;
        if (a->sizes[i] < 2 || period <= 0 || !has_period(a, bytes_a, period) || !has_period(b, bytes_b, period))
            continue;
        uint64_t inner_a = span_of(a, bytes_a, period), inner_b = span_of(b, bytes_b, period);
        uint64_t place = (from_b >= from_a ? from_b - from_a : (uint64_t)period - (from_a - from_b) % (uint64_t)period) % (uint64_t)period;
        if (inner_a <= place && place + inner_b <= (uint64_t)period)
            return 0;
    }
    return 1;
}

/* Refuses memory that is written for two elements, or for a tensor and another one. */
static int check_aliases(OpCall *oc)
{
    const Operator *op = oc->op;
    for (int i = 0; i < op->input_count + op->output_count; i++) {
        if (!op->tensors[i].is_written || !oc->tensors[i] || oc->made >> i & 1)
            continue;
        for (int axis = 0; axis < oc->extents[i].rank; axis++)
            if (!oc->extents[i].strides[axis] && oc->extents[i].sizes[axis] > 1)
                return wrong_shape(oc, i, "is written, and several of its elements are one");
        for (int k = 0; k < op->input_count + op->output_count; k++) {
            if (k == i || !oc->tensors[k] || oc->made >> k & 1 || !is_overlapping(oc, i, k))
                continue;
            size_t length = (size_t)oc->extents[i].rank * sizeof(int64_t);
            int is_same = oc->call.values[parameter_of(op, i)].address == oc->call.values[parameter_of(op, k)].address &&
                          oc->extents[i].rank == oc->extents[k].rank &&
                          memcmp(oc->extents[i].sizes, oc->extents[k].sizes, length) == 0 &&
                          memcmp(oc->extents[i].strides, oc->extents[k].strides, length) == 0;
            if (op->tensors[i].may_alias && k < op->input_count && is_same)
                continue;
            PyErr_Format(PyExc_ValueError, "%s(): %s is written, and shares memory with %s", op->name, op->tensors[i].name, op->tensors[k].name);
            return -1;
        }
    }
    return 0;
}

/* Fills what the manifest wants zeroed, on the stream of the call. */
static int zero_tensors(OpCall *oc, const Device *device)
{
    const Operator *op = oc->op;
    for (int i = op->input_count; i < tensor_count(op); i++) {
        int64_t bytes = bytes_of(oc->types[i] & op->tensors[i].types);
        uint64_t span = op->tensors[i].is_zeroed ? span_of(&oc->extents[i], bytes, INT64_MAX) : 0;
        if (!span)
            continue;
        CUcontext current = NULL;
        CUresult code = driver.cuCtxGetCurrent(&current);
        int foreign = code != CUDA_SUCCESS || current != device->context;
        if (foreign)
            code = driver.cuCtxPushCurrent_v2(device->context);
        if (code == CUDA_SUCCESS)
            code = driver.cuMemsetD8Async(oc->call.values[parameter_of(op, i)].address, 0, (size_t)span, (CUstream)(uintptr_t)oc->call.stream);
        if (foreign)
            leave_context(1);
        if (driver_check(code, "cuMemsetD8Async") < 0)
            return -1;
    }
    return 0;
}

/* The one tensor that the operator returns, or a tuple of them; None where there is none.  To torch's dispatcher all outputs. */
static PyObject *returned_tensors(const OpCall *oc)
{
    const Operator *op = oc->op;
    int count = oc->is_run ? op->output_count : op->return_count;
    PyObject *tuple = count > 1 ? PyTuple_New(count) : NULL;
    if (count == 0)
        return Py_NewRef(Py_None);
    for (int i = 0; i < count; i++) {
        PyObject *tensor = oc->tensors[oc->is_run ? op->input_count + i : op->returned[i]];
        if (count == 1)
            return Py_NewRef(tensor);
        if (tuple)
            PyTuple_SetItem(tuple, i, Py_NewRef(tensor));
    }
    return tuple;
}
