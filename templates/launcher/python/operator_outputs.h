/* Tensors that an operator makes and returns. */

/* A tuple of sizes or strides. */
static PyObject *tuple_of_integers(const int64_t *numbers, int count)
{
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple && i < count; i++) {
        PyObject *item = PyLong_FromLongLong(numbers[i]);
        if (!item) {
            Py_DECREF(tuple);
            return NULL;
        }
        PyTuple_SetItem(tuple, i, item);
    }
    return tuple;
}

static int read_tensor(PyOpCall *oc, int tensor, PyObject *value);

/* Whether torch makes the tensors of a call. */
static int is_made_by_torch(const PyOpCall *oc)
{
    return known_tensor(oc->first) >= 0 && torch.empty_like && torch.empty_strided;
}

/* A tensor of torch's that has the type, sizes and strides of one to make, which is then made in half the time; NULL: there is none. */
static PyObject *tensor_like(const PyOpCall *oc, int tensor, uint64_t type)
{
    const Extents *made = &oc->core.extents[tensor];
    size_t length = (size_t)made->rank * sizeof *made->sizes;
    for (int i = 0; i < tensor; i++) {
        const Extents *known = &oc->core.extents[i];
        if (oc->tensors[i] && oc->core.types[i] == type && known->rank == made->rank && memcmp(known->sizes, made->sizes, length) == 0 &&
            memcmp(known->strides, made->strides, length) == 0)
            return oc->tensors[i];
    }
    return NULL;
}

/* Arguments by keyword that make a tensor of torch's of an element type beside another one. */
static PyObject *torch_keywords(const PyOpCall *oc, uint64_t type)
{
    PyObject *dtype = NULL, *device = PyObject_GetAttrString(oc->first, "device");
    for (int i = 0; i < DTYPE_SLOTS && !dtype; i++)
        dtype = torch.dtypes[i] && torch.dtype_bits[i] == type ? torch.dtypes[i] : NULL;
    PyObject *keywords = dtype && device ? Py_BuildValue("{s:O,s:O}", "dtype", dtype, "device", device) : NULL;
    if (!dtype && !PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "%s(): torch has no tensors of %s", oc->core.op->name, type_name(type));
    Py_XDECREF(device);
    return keywords;
}

static PyObject *make_torch_tensor(PyOpCall *oc, int tensor, uint64_t type)
{
    const Extents *made = &oc->core.extents[tensor];
    PyObject *like = tensor_like(oc, tensor, type);
    if (like)
        return PyObject_CallFunctionObjArgs(torch.empty_like, like, NULL);
    PyObject *sizes = tuple_of_integers(made->sizes, made->rank), *strides = tuple_of_integers(made->strides, made->rank);
    PyObject *arguments = sizes && strides ? PyTuple_Pack(2, sizes, strides) : NULL, *keywords = torch_keywords(oc, type);
    PyObject *result = arguments && keywords ? PyObject_Call(torch.empty_strided, arguments, keywords) : NULL;
    Py_XDECREF(sizes);
    Py_XDECREF(strides);
    Py_XDECREF(arguments);
    Py_XDECREF(keywords);
    return result;
}

/* A tensor for the caller, whose type and extents are known by now. */
static PyObject *make_tensor(PyOpCall *oc, int tensor)
{
    const Extents *made = &oc->core.extents[tensor];
    uint64_t type = oc->core.types[tensor];
    if (is_made_by_torch(oc))
        return make_torch_tensor(oc, tensor, type);
    PyObject *sizes = tuple_of_integers(made->sizes, made->rank);
    PyObject *result = sizes ? PyObject_CallFunction(hooks.allocate, "sOOs", oc->core.op->tensors[tensor].name, oc->first, sizes, type_name(type)) : NULL;
    Py_XDECREF(sizes);
    return result;
}

/* The memory of all tensors that no caller sees: one array of bytes costs no more than one of them. */
static PyObject *make_bytes(PyOpCall *oc, int64_t bytes)
{
    if (!is_made_by_torch(oc))
        return PyObject_CallFunction(hooks.allocate, "OO(L)s", Py_None, oc->first, (long long)bytes, "u8");
    PyObject *keywords = torch_keywords(oc, TYPE_U8), *arguments = keywords ? Py_BuildValue("((L)(i))", (long long)bytes, 1) : NULL;
    PyObject *result = arguments ? PyObject_Call(torch.empty_strided, arguments, keywords) : NULL;
    Py_XDECREF(keywords);
    Py_XDECREF(arguments);
    return result;
}

/* Whether somebody sees a tensor: it is returned, torch's dispatcher gets all outputs, and an explanation shows every tensor. */
static int is_seen(const PyOpCall *oc, int tensor)
{
    const Operator *op = oc->core.op;
    int found = oc->is_explained || (oc->is_run && tensor < op->input_count + op->output_count);
    for (int i = 0; i < op->return_count && !oc->is_run; i++)
        found = found || op->returned[i] == tensor;
    return found;
}

/* Places the tensors of `hidden`, one bit each, in an array of bytes; `addresses` are from its beginning as yet.  Without bytes no array
   is made: the tensors have address 0, and an input stands for them. */
static int place_hidden(PyOpCall *oc, uint64_t hidden, int64_t bytes)
{
    const Operator *op = oc->core.op;
    uint64_t fact = 0;
    int first = __builtin_ctzll(hidden), index = parameter_of(op, first);
    PyObject *array = bytes ? make_bytes(oc, bytes) : Py_NewRef(oc->first);
    if (!array)
        return -1;
    int status = bytes ? read_pointer(&op->arguments, index, array, &oc->call, &fact) : 0;
    uint64_t begin = bytes ? oc->call.values[index].address : 0;
    for (int i = first; status == 0 && hidden >> i; i++)
        if (hidden >> i & 1) {
            oc->tensors[i] = Py_NewRef(array);
            oc->core.made |= UINT64_C(1) << i;
            oc->core.addresses[i] += begin;
        }
    Py_DECREF(array);
    return status;
}

/* Makes outputs that the call does not give, and workspaces; all are then known as inputs are.  torch's dispatcher gets all outputs. */
static int make_tensors(PyOpCall *oc)
{
    const Operator *op = oc->core.op;
    uint64_t hidden = 0;
    int64_t bytes = 0;
    for (int i = op->input_count; i < tensor_count(op); i++) {
        if (!oc->is_run && is_left_out(&oc->core, i))
            continue;
        if (!oc->tensors[i]) {
            uint64_t type = oc->core.types[i] = type_to_make(&oc->core, i);
            if (!type)
                return report(WRONG_TYPE, "%s(): no argument says which type %s is of; give it by keyword", op->name, op->tensors[i].name);
            if (extents_to_make(&oc->core, i) < 0)
                return -1;
            oc->core.frame.given[op->scalar_count + i] = 1;
            if (is_seen(oc, i)) {
                if (!(oc->tensors[i] = make_tensor(oc, i)))
                    return -1;
                oc->core.made |= UINT64_C(1) << i;
                if (read_tensor(oc, i, oc->tensors[i]) < 0)
                    return -1;
            } else {
                enum { ALIGNMENT = 256 };
                hidden |= UINT64_C(1) << i;
                oc->core.addresses[i] = (uint64_t)bytes;
                bytes += (int64_t)(span_of(&oc->core.extents[i], bytes_of(type), INT64_MAX) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
            }
        }
        if (match_tensor(&oc->core, i) < 0)
            return -1;
    }
    return hidden ? place_hidden(oc, hidden, bytes) : 0;
}

static void release_made(PyOpCall *oc)
{
    PyObject *type, *value, *traceback;
    if (!oc->core.made)
        return;
    PyErr_Fetch(&type, &value, &traceback);
    for (int i = 0; oc->core.made >> i; i++)
        if (oc->core.made >> i & 1)
            Py_DECREF(oc->tensors[i]);
    PyErr_Restore(type, value, traceback);
}

/* The one tensor that the operator returns, or a tuple of them; None where there is none.  To torch's dispatcher all outputs. */
static PyObject *returned_tensors(const PyOpCall *oc)
{
    const Operator *op = oc->core.op;
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
