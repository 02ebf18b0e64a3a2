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

static PyObject *make_torch_tensor(PyOpCall *oc, int tensor, uint64_t type)
{
    const Extents *made = &oc->core.extents[tensor];
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
        PyErr_Format(PyExc_TypeError, "%s(): torch has no tensors of %s", oc->core.op->name, type_name(type));
    Py_XDECREF(sizes);
    Py_XDECREF(strides);
    Py_XDECREF(device);
    Py_XDECREF(arguments);
    Py_XDECREF(keywords);
    return result;
}

static PyObject *make_tensor(PyOpCall *oc, int tensor)
{
    const Extents *made = &oc->core.extents[tensor];
    uint64_t type = type_to_make(&oc->core, tensor);
    if (!type)
        return PyErr_Format(PyExc_TypeError, "%s(): no argument says which type %s is of; give it by keyword", oc->core.op->name,
                            oc->core.op->tensors[tensor].name);
    if (extents_to_make(&oc->core, tensor) < 0)
        return NULL;
    if (known_tensor(oc->first) >= 0 && torch.empty_like && torch.empty_strided)
        return make_torch_tensor(oc, tensor, type);
    PyObject *sizes = tuple_of_integers(made->sizes, made->rank);
    PyObject *result = sizes ? PyObject_CallFunction(hooks.allocate, "sOOs", oc->core.op->tensors[tensor].name, oc->first, sizes, type_name(type)) : NULL;
    Py_XDECREF(sizes);
    return result;
}

/* Makes outputs that the call does not give, and workspaces; all are then known as inputs are. */
static int make_tensors(PyOpCall *oc)
{
    const Operator *op = oc->core.op;
    for (int i = op->input_count; i < tensor_count(op); i++) {
        if (!oc->tensors[i]) {
            if (!(oc->tensors[i] = make_tensor(oc, i)))
                return -1;
            oc->core.made |= UINT64_C(1) << i;
            oc->core.frame.given[op->scalar_count + i] = 1;
            if (read_tensor(oc, i, oc->tensors[i]) < 0)
                return -1;
        }
        if (match_tensor(&oc->core, i) < 0)
            return -1;
    }
    return 0;
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
